"""The sites that wait or are given up; the stats ``politesse/...`` and their summary in the log.

Theory of operation. A site waits in one of two ways. A *host* waits for the pacer: for the end of a Retry-After, a
backoff, a Visit-time or an interval. An *origin* waits for its robots.txt, which was unreachable or answered with 429;
other origins of the host go on. While a site waits, the scheduler's queue hands out none of its requests.

A whole site is given up if its wait would be longer than ``POLITESSE_MAX_WAIT`` seconds, or, if its robots.txt is
unreachable, longer than ``POLITESSE_MAX_UNREACHABLE`` seconds, as in a queue of politesse. If fetches or requests have
failed, the wait counts from the first of the consecutive failures in this run, otherwise from now. A site that has
refused the crawler three times in a row is given up, too. A host name without an address, or with a denied address, is
given up at once. The crawler's own ``DOWNLOAD_DELAY`` is no reason to give up. Giving up loses no request: the requests
stay in the scheduler, but the spider does not stay open for them. If the spider is still open when the wait ends, the
site is tried again.

No request starts while the Redis of a fleet is away. After ``POLITESSE_MAX_WAIT`` seconds all sites are given up, until
Redis is back.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from politesse._base.text import printable, shortened
from politesse._pacing.refusals import is_served
from politesse.errors import InvalidURL
from politesse.events import Decided, Event, FleetAway, FleetBack, HostClosed, RobotsFetched
from politesse.origin import Origin
from politesse.queue._dispatch import WAITS_OF_SITE, is_fetched_too_late
from politesse.verdict import CLOSINGS, Bound, NotYet, Reason, Verdict, utc

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from politesse.clock import Clock, Timer

logger = logging.getLogger(__name__)

DEFERRING: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS})
"""The reasons that deny only until robots.txt is fetched again."""

_MAX_REFUSALS: Final = 3
_LONG_S: Final = 60.0  # a longer wait is logged
_HTTP: Final = ("http://", "https://")
_WITHOUT_HOST: Final = frozenset({"data", "file"})
_MAX_NAMED: Final = 10  # the summary names at most this many sites


def count(crawler: Crawler, stat: str, number: Any = 1) -> None:  # noqa: ANN401 - Scrapy says int, and adds any number
    """Add to a stat of the crawl."""
    if crawler.stats is not None:
        crawler.stats.inc_value(stat, number)


@lru_cache(maxsize=100_000)
def host_of(site: str) -> str:
    """Return the host name under which an origin or the slot of a host is paced; return any other slot unchanged."""
    scheme, separator, authority = site.partition("://")
    if not separator or ":" in scheme:
        return site  # a ``download_slot`` may have any name
    try:
        return Origin.of(f"http://{authority}").pacing_host
    except InvalidURL:
        return site


@lru_cache(maxsize=10_000)
def origin_of(url: str) -> Origin | None:
    """Return the origin that paces requests to ``url``; None if ``url`` has no host.

    For another scheme than http(s), the result is the http origin of the host, because only the host counts.
    """
    if not url.startswith(_HTTP):
        scheme, _, rest = url.partition(":")
        if scheme in _WITHOUT_HOST:
            return None
        url = f"http:{rest}"
    try:
        return Origin.of(url)
    except InvalidURL:
        return None


def slot_of(url: str) -> str | None:
    """Return the name of the scheduler's slot for requests to ``url``; None without a host.

    Only requests of http(s) URLs wait for the robots.txt of their origin, so other schemes have other slots.
    """
    origin = origin_of(url)
    if origin is None:
        return None
    return str(origin) if url.startswith(_HTTP) else f"{url.partition(':')[0]}://{origin.pacing_host}"


class CrawlTally:
    """Counts the events of a crawl.

    Args:
        crawler: has the stats.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._seen: set[tuple[str, str]] = set()
        self._given_up: dict[str, str] = {}  # maps each host and origin that is given up to the reason
        self._left: Counter[str] = Counter()
        self._kept = 0

    def add(self, name: str, number: float = 1) -> None:
        """Add to a stat."""
        count(self._crawler, f"politesse/{name}", number)

    def is_first(self, event: str, site: str) -> bool:
        """Return whether this is the first call with this pair of arguments."""
        is_new = (event, site) not in self._seen
        self._seen.add((event, site))
        return is_new

    def add_host(self, name: str, host: str) -> None:
        """Count a host once if the host or one of its origins is ``closed``, ``refused`` or ``given_up``."""
        if self.is_first(name, host):
            self.add(f"hosts/{name}")

    def given_up(self, site: str, host: str, why: str) -> bool:
        """Record why a site is given up, and count its host once; return False if the site was given up before."""
        self._given_up[site] = why
        self.add_host("given_up", host)
        return self.is_first("site given up", site)

    def left(self, site: str, number: int, *, on_disk: bool) -> None:
        """Count requests that are not made because their site was given up; requests on disk are for the next run."""
        self.add("requests/given_up", number)
        self._left[site] += number
        if on_disk:
            self.add("requests/kept", number)
            self._kept += number

    def log_summary(self) -> None:
        """Log in one line how many hosts were closed, and how many requests were given up."""
        left, closed = self._left, sum(event == "closed" for event, _ in self._seen)
        if not left:
            logger.info("Hosts closed for a time: %d; no request was given up for that", closed)
            return
        named = [
            f"{site} ({number}: {shortened(printable(self._given_up.get(site, '')))})"
            for site, number in left.most_common(_MAX_NAMED)
        ]
        more = f", and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
        logger.warning(
            "Hosts closed for a time: %d. Not fetched for that reason: %d requests, of which %d stay in JOBDIR for the "
            "next run: %s%s",
            *(closed, left.total(), self._kept, ", ".join(named), more),
        )


@dataclass(slots=True)
class SiteWait:
    """One wait of a site.

    Attributes:
        began_mono: when the wait began.
        is_closed: whether the site is closed, and not only slow.
        is_given_up: whether the spider does not stay open for the site.
    """

    began_mono: float
    is_closed: bool
    is_given_up: bool


class Waits:
    """The sites that wait now. A site is named by its host if the host waits, by its origin if only the origin waits.

    Args:
        clock: the gate's clock.
        max_wait_s: how long a site may wait before it is given up, in seconds.
        max_unreachable_s: the same for a site whose robots.txt is unreachable.
        tally: counts the waits.
        ended: called with each site whose wait has ended; with None if all sites may go on.

    Attributes:
        fleet_lost: the answer to all requests, if the Redis of the fleet has been away for too long; else None.
    """

    def __init__(
        self,
        clock: Clock,
        max_wait_s: float,
        max_unreachable_s: float,
        tally: CrawlTally,
        ended: Callable[[str | None], None],
    ) -> None:
        self._clock = clock
        self._started_wall = clock.wall()
        self._max_wait_s = max_wait_s
        self._max_unreachable_s = max_unreachable_s
        self._tally = tally
        self._ended = ended
        self._waiting: dict[str, SiteWait] = {}
        self._refused_mono: dict[str, float] = {}  # maps each host to the time of its first consecutive 429 or 5xx
        self._answers: dict[str, NotYet] = {}  # maps hosts that are given up to the answers of the pacer
        self._fleet_timer: Timer | None = None
        self.fleet_lost: NotYet | None = None

    def __contains__(self, site: str) -> bool:
        return site in self._waiting

    def holds(self, slot: str) -> bool:
        """Return whether no request of a slot may start now."""
        return self.fleet_lost is not None or slot in self._waiting or host_of(slot) in self._waiting

    def given_up(self, slot: str) -> str | None:
        """Return the origin or host of a slot if the spider does not stay open for that site, else None."""
        for site in (slot, host_of(slot)):
            if (wait := self._waiting.get(site)) is not None and wait.is_given_up:
                return site
        return None if self.fleet_lost is None else host_of(slot)

    def wait_for_turn(self, host: str, answer: NotYet) -> None:
        """Let a host wait until the pacer has a turn; the caller ends the wait."""
        now_mono, bound_by = self._clock.monotonic(), answer.bound_by
        wait_s = answer.not_before - self._clock.wall()
        waited_s = now_mono - self._refused_mono.get(host, now_mono) if bound_by in CLOSINGS else 0.0
        refusals = 0 if answer.refusal is None else answer.refusal.times
        too_late = refusals >= _MAX_REFUSALS or (bound_by in WAITS_OF_SITE and waited_s + wait_s > self._max_wait_s)
        is_closed = bound_by in CLOSINGS or bound_by is Bound.VISIT_TIME
        if bound_by in WAITS_OF_SITE - CLOSINGS and wait_s >= _LONG_S and self._tally.is_first("slow", host):
            # The pacer logs the closures.
            logger.info("%s is waited for until %s, for %.0f s: %s", host, utc(answer.not_before), wait_s, bound_by)
        if too_late:
            self._answers[host] = answer
        why = f"{answer.refusal or bound_by} until {utc(answer.not_before)}"
        self._begin(host, host, SiteWait(now_mono, is_closed, too_late), why)

    def wait_until(self, host: str, answer: NotYet, least_s: float = 0.0) -> None:
        """Let a host wait until the time of an answer, but at least for ``least_s`` seconds."""
        self.wait_for_turn(host, answer)
        self._clock.call_later(max(least_s, answer.not_before - self._clock.wall()), partial(self.end, host))

    def wait_for_robots(self, origin: Origin, verdict: Verdict) -> None:
        """Let an origin wait until its robots.txt may be fetched again."""
        now_wall, source = self._clock.wall(), verdict.source
        since_wall = now_wall if source is None or source.failing_since_wall is None else source.failing_since_wall
        since_wall = max(since_wall, self._started_wall)  # failures of earlier runs do not count
        too_late = is_fetched_too_late(verdict, since_wall, self._max_unreachable_s, self._max_wait_s)
        why = str(verdict).partition(" (")[2].removesuffix(")")
        wait = SiteWait(self._clock.monotonic(), is_closed=True, is_given_up=too_late)
        self._begin(str(origin), origin.pacing_host, wait, why)
        self._clock.call_later(max(0.0, (verdict.not_before or now_wall) - now_wall), partial(self.end, str(origin)))

    def answer_of(self, host: str) -> NotYet | None:
        """Return the pacer's answer that made the crawl give up a host; None after the host's next request."""
        return self._answers.get(host) if self.fleet_lost is None else self.fleet_lost

    def end(self, site: str) -> None:
        """End the wait of a site."""
        wait = self._waiting.pop(site, None)
        if wait is not None and wait.is_closed:
            self._tally.add("seconds_waited", self._clock.monotonic() - wait.began_mono)
        self._ended(site)

    def close(self) -> None:
        """End all waits, because the spider is closed."""
        for site in tuple(self._waiting):
            self.end(site)
        self._stop_fleet_timer()

    def note_status(self, host: str, status: int) -> None:
        """Record an answer of a host: consecutive answers of 429 and 5xx count as one wait."""
        self._answers.pop(host, None)
        if not is_served(status):
            self._refused_mono.setdefault(host, self._clock.monotonic())
        else:
            self._refused_mono.pop(host, None)

    def note(self, event: Event) -> None:
        """Count an event of the gate; the fleet makes all sites wait while its Redis is away."""
        match event:
            case Decided(verdict):
                self._tally.add(f"decisions/{verdict.reason}")
            case RobotsFetched():
                self._tally.add(f"robots_txt/{event.source.result}")
            case HostClosed(host, bound_by=bound_by):
                self._tally.add_host("closed", host)
                if bound_by is Bound.REFUSED:
                    self._tally.add_host("refused", host)
            case FleetAway(server, error):
                self._tally.add("fleet/away")
                self.note_fleet_away(f"{server}: {error}")
            case FleetBack(away_s=away_s):
                self._tally.add("fleet/seconds_away", away_s)
                self._stop_fleet_timer()
                self.fleet_lost = None
                self._ended(None)
            case _:
                pass

    def note_fleet_away(self, why: str) -> None:
        """Record that the Redis is away: from an event, or from an answer if the spider was opened after the event."""
        if self._fleet_timer is None:
            self._fleet_timer = self._clock.call_later(self._max_wait_s, partial(self._lose_fleet, why))

    def _lose_fleet(self, why: str) -> None:
        self.fleet_lost = NotYet(self._clock.wall(), Bound.FLEET)
        logger.error(
            "All sites are given up, unless the Redis of the fleet comes back while the spider is open: it has been "
            "away for %g s, as POLITESSE_MAX_WAIT permits (%s)",
            *(self._max_wait_s, printable(why)),
        )

    def _stop_fleet_timer(self) -> None:
        if self._fleet_timer is not None:
            self._fleet_timer.cancel()
            self._fleet_timer = None

    def _begin(self, site: str, host: str, wait: SiteWait, why: str) -> None:
        self._waiting[site] = wait
        if wait.is_closed:
            self._tally.add_host("closed", host)
        if wait.is_given_up and self._tally.given_up(site, host, why):
            logger.warning(
                "%s is given up, unless it opens while the spider is busy with others: it refuses the crawler, or its "
                "wait would be longer than POLITESSE_MAX_WAIT, %g s, or POLITESSE_MAX_UNREACHABLE, %g s (%s)",
                *(site, self._max_wait_s, self._max_unreachable_s, printable(why)),
            )
