"""A middleware that checks whether a request may be made, and a downloader that takes its turn before it starts.

The middleware takes the place of Scrapy's ``RobotsTxtMiddleware``, and reads the directives of pages.

Scrapy's slots do not ensure a pace: a slot counts the delay from the start of a request, with jitter, and forgets the
last request after a minute. AutoThrottle, the spider and ``download_slot`` change the delay, or evade it. So politesse
does not rely on the slots. When Scrapy releases a request from its slot, the request takes its turn at its host
immediately before it is sent. A slot can only lengthen the wait.

Each request that waits in the downloader counts towards ``CONCURRENT_REQUESTS``, so many slow hosts would delay all
other hosts. So requests wait in the scheduler. Its queue hands out one request per host, and no requests of sites that
wait (``Waits``). If a request of the scheduler gets no turn, or if the spider is being closed, the request goes back
to the scheduler, so that JOBDIR keeps it. Requests that bypass the scheduler, such as requests of
``engine.download_async``, wait in the downloader.

A scheduler without PolitePriorityQueue, such as the scheduler of scrapy-redis, hands out all its requests. All these
requests wait here, or in the middleware if robots.txt is unreachable. When the spider closes, these requests go back to
the scheduler, because only the scheduler knows whether another run follows.

In a fleet, a check whether a host has a turn now would reserve that turn in Redis. So the downloader makes no such
check. A request of the scheduler waits here for its turn, perhaps behind requests of other processes. After 30 seconds
without a turn, it goes back to the scheduler. Each host has at most one such request.

Theory of operation of waits. A site waits in one of two ways. A *host* waits for the pacer: for the end of a
Retry-After, a backoff, a Visit-time or an interval. An *origin* waits for its robots.txt, which was unreachable or
answered with 429; other origins of the host go on. While a site waits, the scheduler's queue hands out none of its
requests.

A whole site is given up if its wait would be longer than ``POLITESSE_MAX_WAIT`` seconds, or, if its robots.txt is
unreachable, longer than ``POLITESSE_MAX_UNREACHABLE`` seconds, as in a queue of politesse. If fetches or requests have
failed, the wait counts from the first of the consecutive failures in this run, otherwise from now. A site that has
refused the crawler three times in a row is given up, too. A host name without an address, or with a denied address, is
given up at once. The crawler's own ``DOWNLOAD_DELAY`` is no reason to give up. Giving up loses no request: the requests
stay in the scheduler, but the spider does not stay open for them. If the spider is still open when the wait ends, the
site is tried again.

No request starts while the Redis of a fleet is away. After ``POLITESSE_MAX_WAIT`` seconds all sites are given up, until
Redis is back.

Two runs that share JOBDIR would destroy each other's queue. So a run locks JOBDIR when its downloader is created,
before the run changes the queue. The run frees the lock after Scrapy has written the queue and the journal was removed.
The system frees the lock of a killed process. The garbage collector frees the lock of a downloader that was dropped
without a close. The lock file is never removed, because one run could then lock the removed file, and another run a new
file. Only Scrapy's Scheduler and its subclasses keep a queue in JOBDIR, so processes of scrapy-redis may share JOBDIR.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit
from weakref import WeakSet

from cachetools import LRUCache
from scrapy import Request, signals
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.utils.misc import load_object

from politesse._base.text import printable, shortened
from politesse._gate.view import AgentView, TurnWait, try_turn
from politesse._http.fields import header_pairs
from politesse._http.signing import RequestSignature
from politesse._pacing.refusals import is_served
from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, TooFar
from politesse.events import Decided, Event, FleetAway, FleetBack, HostClosed, RobotsFetched
from politesse.integrations._request import StatedAgents, check_sent, content_codings, headers_alone, may_have_page
from politesse.integrations.scrapy import _internals
from politesse.integrations.scrapy._internals import CLOSING, HttpCache, SpiderClosing, patiently
from politesse.integrations.scrapy._robots import ROBOTS_TXT, EngineFetcher, RobotsTxtFailed, count, stored_parser
from politesse.integrations.scrapy._settings import fleet_of, make_gate, seconds_of
from politesse.origin import Origin
from politesse.page import PageDirectives
from politesse.queue._dispatch import WAITS_OF_SITE, is_fetched_too_late
from politesse.stores._sqlite_file import Locked, held_file
from politesse.verdict import CLOSINGS, Bound, NotYet, Reason, Verdict, utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser
    from twisted.python.failure import Failure

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._gate.turn import Turn
    from politesse.clock import Clock, Timer
    from politesse.integrations.scrapy._internals import T

logger = logging.getLogger(__name__)

PAGE: Final = "politesse_page"
"""The key of a response's PageDirectives in its meta."""

_CUT: Final = frozenset({"dataloss", "download_stopped", "partial"})
"""The flags of a response whose body is incomplete."""

_MAX_PARSERS: Final = 1000
_WITH_ROBOTS_TXT: Final = frozenset({"http", "https"})


DEFERRING: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS})
"""The reasons that deny only until robots.txt is fetched again."""

_MAX_REFUSALS: Final = 3
_LONG_S: Final = 60.0  # a longer wait is logged
_HTTP: Final = ("http://", "https://")
_WITHOUT_HOST: Final = frozenset({"data", "file"})
_MAX_NAMED: Final = 10  # the summary names at most this many sites


@lru_cache(maxsize=100_000)
def host_of(site: str) -> str:
    """Return the host name under which an origin or the slot of a host is paced; return any other slot unchanged."""
    origin = origin_of(site)
    return site if origin is None else origin.pacing_host  # a ``download_slot`` may have any name


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


class RobotsTxtMiddleware:
    """A downloader middleware that replaces Scrapy's own, with its settings, meta key, signal, stats and messages.

    Differences: a robots.txt is valid for one scheme, host and port, and is fetched again when its copy has expired. If
    robots.txt cannot be fetched, the site stays closed (``POLITESSE_ON_ERROR = "allow"`` opens it, as Scrapy does).

    URLs of other schemes, such as ``ftp:`` and ``data:``, go to Scrapy's handlers without a judgement.

    This middleware only checks permission. PoliteDownloader paces the requests; PolitesseAddon installs both.

    If a later downloader middleware returns a new request, that request passes this middleware, too. A middleware that
    changes the URL or the Host header of a request must come before this middleware. Otherwise only PoliteDownloader
    sees the change, and judges the request again.

    Every response has its PageDirectives as ``response.meta["politesse_page"]``, for the agent that the request was
    judged for. A robots.txt has no directives. With ``POLITESSE_PAGE_DIRECTIVES`` false, no response has directives. If
    a request carries the meta of an earlier response, the middleware removes the directives from that meta. Directives
    are marked ``truncated`` if the body cannot be read: because the extra ``html`` is missing, or because the body is
    still compressed (``COMPRESSION_ENABLED`` is false, or this middleware comes after HttpCompressionMiddleware, 590).

    ``process_request`` raises IgnoreRequest for a request that is not permitted.

    Example::

        DOWNLOADER_MIDDLEWARES = {
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "politesse.integrations.scrapy.RobotsTxtMiddleware": 100,
        }
    """

    def __init__(self, crawler: Crawler) -> None:
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured(
                "ROBOTSTXT_OBEY is False in the project, so no robots.txt is obeyed; remove the setting"
            )
        self.fetcher: EngineFetcher = EngineFetcher(crawler)
        self.gate: Gatekeeper = make_gate(crawler, self.fetcher)
        self.downloader: PoliteDownloader | None = None
        self._crawler = crawler
        self._agents = StatedAgents(self.gate, "")
        self._http_cache = HttpCache(crawler)
        self._stored_parsers: LRUCache[str, RobotParser | None] = LRUCache(_MAX_PARSERS)
        self._reads_pages = crawler.settings.getbool("POLITESSE_PAGE_DIRECTIVES", True)  # noqa: FBT003 - a default
        self._lacks_extra = False
        self._permitted: WeakSet[Request] = WeakSet()
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of a crawl.

        Raises:
            NotConfigured: ``ROBOTSTXT_OBEY`` is false.
            ConfigurationError: a setting is invalid.
        """
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Return None to continue, or another request to schedule; raises IgnoreRequest."""
        request.meta.pop(PAGE, None)  # the request may have the meta of an earlier page
        # For other schemes, Scrapy has a handler or raises NotSupported.
        if request.meta.get("dont_obey_robotstxt") or request.url.partition(":")[0].lower() not in _WITH_ROBOTS_TXT:
            return None
        view, downloader = self._view(request), self.downloader
        if self._http_cache.answers(request) and self._stored_robots_permit(request):
            self._permitted.add(request)
            return None
        try:
            verdict = await self._verdict(view, request)
            while downloader and verdict.reason in DEFERRING and await downloader.has_waited(request, verdict):
                verdict = await self._verdict(view, request)
        except SpiderClosing:
            later = None if downloader is None else downloader.keep(request)
            if later is None:
                raise
            return later
        self._permitted.add(request)
        if verdict.reason in DEFERRING:
            # As in Scrapy, pages that the stored rules forbid do not wait for the server. For the other pages the cache
            # answers even with a stale response, because PoliteDownloader sends no request while robots.txt is
            # unreachable.
            self._stored_robots_permit(request)
            if self._http_cache.stored(request.copy()) is not None:  # a copy, because a storage changes the request
                return None
        return self._continued(view, request, verdict)

    def process_request_2(self, rp: RobotParser, request: Request) -> None:
        """Raise IgnoreRequest if ``rp`` forbids ``request``, as Scrapy's own middleware does.

        ``rp`` is the robots.txt in the HTTP cache, which also answers ``request``.
        """
        if not rp.allowed(request.url, self._view(request).identity.tokens[0]):
            raise self._refuse(request, "")

    def process_response(self, request: Request, response: Response) -> Response:
        """Add the directives of the page to the meta; return ``response``."""
        if self._reads_pages and ROBOTS_TXT not in request.meta:
            request.meta[PAGE] = self._page(request, response)
        return response

    def view_of(self, request: Request) -> AgentView | None:
        """Return the view that judges ``request`` in its present form; None if the request was not judged."""
        return self._view(request, self.gate) if request in self._permitted else None

    def forbidden(self, request: Request, verdict: Verdict) -> IgnoreRequest:
        """Count and log a request that is not permitted; return the exception to raise."""
        # If a rule decides, the message is the same as in Scrapy's own middleware.
        why = "" if verdict.reason is Reason.DISALLOW_RULE else f" ({str(verdict).partition(' (')[2]}"
        error = self._refuse(request, why)
        if verdict.source is not None and (cause := self.fetcher.error(verdict.source)) is not None:
            error = RobotsTxtFailed(str(error))
            error.__cause__ = cause
        return error

    def check_sent(self, request: Request) -> None:
        """Raise IgnoreRequest if ``request`` goes to a URL that was not judged, or its User-Agent names no crawler."""
        self._view(request)
        hosts = (value.decode("latin-1") for value in request.headers.getlist(b"Host"))
        try:
            check_sent(request.url, urlsplit(request.url).path, hosts)
        except InvalidURL as error:
            raise self._refuse(request, f" (it {error.problem})") from None

    def _view(self, request: Request, refused: AgentView | None = None) -> AgentView:
        """Return the view for the User-Agent of ``request``, or ``refused`` if the User-Agent names no crawler.

        Raises:
            IgnoreRequest: the User-Agent names no crawler, and ``refused`` is None.
        """
        try:
            return self._agents.view([value.decode("latin-1") for value in request.headers.getlist(b"User-Agent")])
        except ConfigurationError as error:
            if refused is None:
                raise self._refuse(request, f" ({error})") from None
            return refused

    def _continued(self, view: AgentView, request: Request, verdict: Verdict) -> Request | None:
        """Return None to continue, or another request to schedule; raises IgnoreRequest."""
        is_deferred = verdict.reason in DEFERRING
        if self.downloader is not None and (verdict or is_deferred):
            later = self.downloader.postpone(request, verdict)
            if later is not None:
                return later  # the new request is judged again
        view.counted(verdict)
        if verdict:
            return None
        if self.downloader is not None and is_deferred:
            self.downloader.note_ignored(request)
        raise self.forbidden(request, verdict)

    def _stored_robots_permit(self, request: Request) -> bool:
        """Return whether the HTTP cache has a robots.txt; raises IgnoreRequest if that forbids ``request``."""
        robots_url = Origin.of(request.url).robots_url
        if robots_url not in self._stored_parsers:
            self._stored_parsers[robots_url] = stored_parser(self._http_cache.stored(Request(robots_url)))
        parser = self._stored_parsers[robots_url]
        if parser is not None:
            self.process_request_2(parser, request)
        return parser is not None

    async def _verdict(self, view: AgentView, request: Request) -> Verdict:
        self.check_sent(request)
        try:
            judged = view.judged(request.url)
            if judged is None:
                self.fetcher.note_cause(request)
                judged = await patiently(self._crawler, view.learn(request.url))
        except InvalidURL as error:
            raise self._refuse(request, f" (the URL {printable(error.problem)}; see dont_obey_robotstxt)") from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error
        return judged[0]

    def _page(self, request: Request, response: Response) -> PageDirectives:
        tokens, headers = self._view(request, self.gate).identity.tokens, header_pairs(response.headers)
        if not response.body or not may_have_page(request.method, response.status, headers):
            return PageDirectives.from_response(headers, None, tokens)
        if content_codings(headers):
            return headers_alone(headers, tokens)  # HttpCompressionMiddleware removes the header when it decodes
        try:
            page = PageDirectives.from_response(headers, response.body, tokens)
        except ImportError as error:
            if not self._lacks_extra:
                self._lacks_extra = True
                logger.warning(
                    "The METAs of pages are not read, and meta[%r] has only the directives of the headers: %s. "
                    "POLITESSE_PAGE_DIRECTIVES = False turns it off.",
                    *(PAGE, printable(str(error))),
                )
            return headers_alone(headers, tokens)
        return page if _CUT.isdisjoint(response.flags) else replace(page, truncated=True)

    def _refuse(self, request: Request, why: str) -> IgnoreRequest:
        logger.debug(
            "Forbidden by robots.txt: %(request)s%(why)s",
            {"request": printable(str(request)), "why": printable(why)},
            extra={"spider": self._crawler.spider},
        )
        count(self._crawler, "robotstxt/forbidden")
        return IgnoreRequest(f"Forbidden by robots.txt{why}")

    def _engine_started(self) -> None:
        if self.downloader is None:
            logger.warning(
                "Requests are not paced, neither by Crawl-delay nor by Retry-After: %s is not the DOWNLOADER. "
                "PolitesseAddon in ADDONS sets it.",
                "politesse.integrations.scrapy.PoliteDownloader",
            )

    async def _spider_closed(self) -> None:
        await self.gate.aclose()


_DONT_FILTER: Final = "politesse_dont_filter"
_LEAST_WAIT_S: Final = 0.1
_LOCK: Final = "politesse.lock"  # the name of the file in JOBDIR
_LOCK_WAIT_S: Final = 0.5  # wait for a run that is just ending
_MOMENT_S: Final = 30.0  # in a fleet, a request of the scheduler waits at most this long for its turn


class PutBack(IgnoreRequest):
    """A request goes back to the scheduler, because its site is not ready."""


class ServedStale(OSError):
    """The request is not sent, and HttpCacheMiddleware answers with its stale response, as after an OSError."""


class PoliteDownloader(_internals.SteppedDownloader):
    """Scrapy's downloader with a turn for every request that has a host; for the setting ``DOWNLOADER``.

    Requests to a host never overlap. The pause before the next request counts from the end of the previous request; no
    slot, delay, jitter or ``download_slot`` can shorten it. A 429, 502, 503 or 504 closes the host. The slot of a
    request is its host. URLs of other schemes are paced as well: ``ftp://example.com/`` takes its turn at example.com.
    ``data:`` and ``file:`` have no host, and no delay. A request that does not come from the scheduler, and would wait
    longer than ``POLITESSE_MAX_WAIT`` seconds, is ignored (stat ``politesse/too_far``). PolitesseAddon sets
    ``DOWNLOADER = "politesse.integrations.scrapy.PoliteDownloader"``.

    Attributes:
        queues: the ``wake`` and the ``note_left`` of each PolitePriorityQueue.
        at_end: the functions to call when the spider is closed, in reverse order, so that the lock is freed last.

    Raises:
        ConfigurationError: a setting is invalid, or another run uses ``JOBDIR``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._max_wait_s = seconds_of("POLITESSE_MAX_WAIT", crawler.settings.get("POLITESSE_MAX_WAIT", 3600.0))
        name = "POLITESSE_MAX_UNREACHABLE"
        max_unreachable_s = seconds_of(name, crawler.settings.get(name, 300.0))
        super().__init__(crawler)
        self.at_end: ExitStack[bool | None] = ExitStack()
        self.queues: list[tuple[Callable[[str | None], None], Callable[[], None]]] = []
        self._handed_out: WeakSet[Request] = WeakSet()
        self._last: WeakSet[Request] = WeakSet()  # requests that were handed out although their site was given up
        self._bounced: WeakSet[Request] = WeakSet()  # requests that were put back while the spider was closing
        self._under_way: Counter[str] = Counter()
        self._closing: asyncio.Future[None] | None = None
        directory = _internals.job_directory(crawler.settings)
        self._has_job_dir = directory is not None
        self._robots = self.find_middleware(RobotsTxtMiddleware)
        if self._robots is None:
            self._fetcher = EngineFetcher(crawler)
            self._gate = make_gate(crawler, self._fetcher)
        else:
            self._robots.downloader = self
            self._fetcher, self._gate = self._robots.fetcher, self._robots.gate
        self._clock = self._gate.clock
        self.tally: CrawlTally = CrawlTally(crawler)
        self.waits: Waits = Waits(self._clock, self._max_wait_s, max_unreachable_s, self.tally, self._wake)
        self._in_fleet = fleet_of(crawler.settings) is not None
        self._gate.subscribe(self.waits.note)
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        # Scrapy sends this signal when the scheduler has written the state of its queue.
        crawler.signals.connect(self.at_end.close, signals.spider_closed)
        if directory is not None and issubclass(load_object(crawler.settings["SCHEDULER"]), Scheduler):
            self._lock(directory)
            _internals.discard_cut_state(directory)

    def host_slot(self, request: Request) -> str | None:
        """Return the host as the pacer names it; the meta of a redirect still names the previous host."""
        origin = None if ROBOTS_TXT in request.meta else origin_of(request.url)
        return None if origin is None else origin.pacing_host

    def arrived(self, request: Request, slot: str) -> None:
        """Record that ``request`` is under way."""
        # ``dont_filter`` is restored, because a redirect must pass the filters for duplicates and for other sites.
        request.dont_filter = request.meta.pop(_DONT_FILTER, request.dont_filter)
        self._under_way[slot] += 1

    async def send(
        self, request: Request, transmit: Callable[[], Awaitable[Response]], signature: RequestSignature | None = None
    ) -> Response:
        """Send ``request`` in its turn, with its signature."""
        origin = None if ROBOTS_TXT in request.meta else origin_of(request.url)
        if origin is None:
            return await transmit()
        signer = self._gate.state.signer
        signature = signature or RequestSignature(signer, request.method, request.url, request.headers)
        with await self._turn(request, origin) as turn:
            await self._fetcher.check_host(origin.host.strip("[]"))
            with signature.added_to(request.headers):
                response = await transmit()
            if not signature.is_asked(response.status, response.headers):
                self.waits.note_status(origin.pacing_host, response.status)
                turn.observe(response.status, response.headers)
                return response
        return await self.send(request, transmit, signature)

    def failed(self, failure: Failure, request: Request) -> Request | Failure:
        """If a request got no turn, return a copy to schedule again; otherwise the failure for its errback."""
        if isinstance(failure.value, PutBack):
            return self._put_back(request)
        if isinstance(failure.value, SpiderClosing) and (later := self.keep(request)) is not None:
            return later
        if isinstance(failure.value, RobotsTxtFailed):
            raise failure.value.as_in_scrapy()  # raising bypasses all middlewares; RetryMiddleware would retry
        return failure

    def left(self, result: T, request: Request, slot: str) -> T:
        """Wake the sleeping slots of a host when its last request has ended."""
        self._under_way[slot] -= 1
        if not self._under_way[slot]:
            del self._under_way[slot]
            if ROBOTS_TXT not in request.meta:
                if request not in self._last and (origin := origin_of(request.url)):
                    self._rest(origin, request, has_ended=True)
                self._wake(slot)
        return result

    @property
    def is_bypassed(self) -> bool:
        """Whether the scheduler hands out requests without a PolitePriorityQueue."""
        return not self.queues

    def is_ready(self, slot: str, *, is_last: bool) -> bool:
        """Return whether a request of a slot may be handed out now.

        With ``is_last``, a request may also be handed out if its site waits or is given up.
        """
        return not self._under_way[host_of(slot)] and (is_last or not self.waits.holds(slot))

    def hand_out(self, request: Request, *, is_last: bool) -> None:
        """Record that ``request`` comes from the scheduler; with ``is_last`` it never goes back to the scheduler."""
        (self._last if is_last else self._handed_out).add(request)

    def postpone(self, request: Request, verdict: Verdict) -> Request | None:
        """If ``request`` came from the scheduler and its site is not ready, return a copy to schedule, else None."""
        origin = origin_of(request.url)
        if request not in self._handed_out or origin is None:
            return None
        if not verdict:
            self.waits.wait_for_robots(origin, verdict)
        elif not self._rest(origin, request):
            return None
        return self._put_back(request)

    def keep(self, request: Request) -> Request | None:
        """If another run may follow, return a copy of ``request`` to schedule again, else None."""
        # A request of ``engine.download_async`` is not kept, because it would come back to this downloader at once.
        may_be_kept = self._has_job_dir if request in self._handed_out else self.is_bypassed
        if not may_be_kept or request in self._bounced:
            return None
        later = self._put_back(request)
        self._bounced.add(later)
        return later

    async def has_waited(self, request: Request, verdict: Verdict) -> bool:
        """Wait to judge ``request`` once more; return False if the scheduler keeps it, or its site is given up."""
        origin = origin_of(request.url)
        if not self.is_bypassed or origin is None:
            return False
        if str(origin) not in self.waits:
            self.waits.wait_for_robots(origin, verdict)
        if self.waits.given_up(str(origin)) or verdict.not_before is None:
            return False
        wait_s = max(_LEAST_WAIT_S, verdict.not_before - self._clock.wall())
        await patiently(self.crawler, self._clock.sleep(wait_s))
        return True

    def note_ignored(self, request: Request) -> None:
        """Count ``request`` if it ends because its site was given up."""
        origin = origin_of(request.url)
        if (self.is_bypassed or request in self._last) and origin is not None:
            self.tally.left(self.waits.given_up(str(origin)) or origin.pacing_host, 1, on_disk=False)

    def _put_back(self, request: Request) -> Request:
        self.tally.add("requests/deferred")
        later = request.replace(dont_filter=True)  # otherwise the filter for duplicates would drop it
        later.meta[_DONT_FILTER] = request.dont_filter
        return later

    async def _turn(self, request: Request, origin: Origin) -> Turn:
        view = self._view(request)
        if self._robots is not None and view is not None:
            self._robots.check_sent(request)  # judged again, because a later middleware may have changed the request
        # A request that is not judged is still paced: it takes a turn for the URL of robots.txt, which is always
        # allowed.
        url = origin.robots_url if view is None else request.url
        agent = view or self._gate
        host = origin.pacing_host
        given_up = self.waits.answer_of(host) if request in self._last else self.waits.fleet_lost
        if given_up is not None:
            raise self._too_far(request, origin, TooFar(host, given_up, self._max_wait_s))
        longest_s = self._max_wait_s
        if self._in_fleet and request in self._handed_out:
            longest_s = min(_MOMENT_S, max(1.0, longest_s))
        try:
            # counts=False, because the middleware has counted the verdict.
            return await patiently(self.crawler, TurnWait(agent, url, longest_s, counts=False).take())
        except TooFar as error:
            raise self._too_far(request, origin, error) from error
        except ConfigurationError as error:
            raise self._refused(error) from error
        except Disallowed as error:
            raise self._disallowed(request, agent, error.verdict) from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error

    def _too_far(self, request: Request, origin: Origin, error: TooFar) -> IgnoreRequest:
        host, answer = origin.pacing_host, error.not_yet
        if answer.bound_by is Bound.FLEET and answer.not_before <= self._clock.wall():
            self.waits.note_fleet_away(str(answer))
        if request in self._handed_out:
            if self._in_fleet and host not in self.waits:
                self.waits.wait_until(host, answer, _LEAST_WAIT_S)
            if self._rest(origin, request):
                return PutBack(str(error))
        why = f"No turn at {host} within {self._max_wait_s:g} s: {answer}"
        logger.info("Ignoring %s: %s", printable(str(request)), why, extra={"spider": self.crawler.spider})
        self.tally.add("too_far")
        self.note_ignored(request)
        return IgnoreRequest(why)

    def _refused(self, error: ConfigurationError) -> SpiderClosing:
        """Close the spider, because the fleet cannot be used; return the exception for its requests."""
        if self._closing is None:
            logger.error("The spider is closed: POLITESSE_FLEET cannot be used: %s", printable(str(error)))
            self._closing = asyncio.ensure_future(_internals.close_spider(self.crawler, "politesse_fleet_refused"))
        return SpiderClosing(str(error))

    def _disallowed(self, request: Request, agent: AgentView, verdict: Verdict) -> IgnoreRequest:
        if verdict.reason is not Reason.TOO_SLOW:  # ``turn_request`` has already counted TOO_SLOW for the origin
            agent.counted(verdict)
        if self._robots is None:
            return IgnoreRequest(str(Disallowed(verdict)))
        if verdict.reason in DEFERRING and _internals.STALE in request.meta:
            raise ServedStale(str(verdict))
        if verdict.reason in DEFERRING and (self.is_bypassed or request in self._handed_out):
            self.waits.wait_for_robots(Origin.of(request.url), verdict)
            return PutBack(str(verdict))
        return self._robots.forbidden(request, verdict)

    def _view(self, request: Request) -> AgentView | None:
        return None if self._robots is None else self._robots.view_of(request)

    def _rest(self, origin: Origin, request: Request, *, has_ended: bool = False) -> bool:
        """Let a host wait until the pacer has a turn; return False if the pacer may have a turn now.

        Args:
            origin: the origin of the request.
            request: the request, whose User-Agent names the agent.
            has_ended: whether the request has just ended. In a fleet, the method asks the pacer only if this is true.
        """
        host = origin.pacing_host
        if host in self.waits:
            return True
        if self._in_fleet and not has_ended:
            return False
        agent = self._view(request) or self._gate
        try:
            turn = try_turn(agent, origin.robots_url, agent.judged(origin.robots_url))
        except (ClosedError, ConfigurationError, Disallowed):
            return False  # the next turn raises this error
        if not isinstance(turn, NotYet):
            turn.give_back()
            return False
        if not self._in_fleet:
            self.waits.wait_for_turn(host, turn)
            agent.when_ready(origin, partial(self.waits.end, host))
        elif turn.not_before > self._clock.wall():
            self.waits.wait_until(host, turn)
        return True

    def _wake(self, site: str | None) -> None:
        for wake, _ in self.queues:
            wake(site)
        _internals.wake(self.crawler)

    def close(self) -> None:
        """End the work of the downloader; a run that ends before its queue was opened frees its lock."""
        super().close()
        if not self.queues:
            self.at_end.close()

    def _lock(self, job_directory: Path) -> None:
        """Lock a job directory until the spider is closed; raises ConfigurationError if another run holds the lock."""
        try:
            lock = held_file((job_directory / _LOCK).absolute(), wait_s=_LOCK_WAIT_S)
        except Locked:
            raise ConfigurationError(
                f"JOBDIR={str(job_directory)!r}: another run uses it; wait for the end of that run, or give this run "
                "another JOBDIR"
            ) from None
        self.at_end.callback(lock.close)

    def _spider_opened(self) -> None:
        if self.is_bypassed:
            logger.warning(
                "The scheduler does not use PolitePriorityQueue: requests wait in the downloader, where slow or closed "
                "hosts may take up all %d places of CONCURRENT_REQUESTS and hold up the others",
                self.crawler.settings.getint("CONCURRENT_REQUESTS"),
            )

    async def _spider_closed(self) -> None:
        for _, note_left in self.queues:
            note_left()  # the scheduler closes only the queue on disk, not the queue in memory
        self.waits.close()
        self.tally.log_summary()
        if self._robots is None:
            await self._gate.aclose()
