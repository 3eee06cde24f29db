"""Which sites are waited for, since when, and which of them are given up.

Theory of operation. A site waits in one of two ways. A *host* waits for the pacer: for the end of a Retry-After, a
backoff, a Visit-time or an interval. An *origin* waits for its robots.txt, which was unreachable or answered with 429;
other origins of the host go on. While a site waits, the scheduler's queue hands out none of its requests.

A site is given up, as a whole, when its wait would end more than ``POLITESSE_MAX_WAIT`` seconds after it began: after
the first of its failures in a row in this run, if it has any, otherwise after now. A name without an address is given
up at once. The crawler's own ``DOWNLOAD_DELAY`` is no reason. Nothing is lost by that: the requests stay where they
are, but the spider does not stay open for them. If it is still open when the wait ends, the site is tried again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._cache.outcome import is_fault_of_kind
from politesse._text import printable
from politesse.ports import FaultKind
from politesse.verdict import Bound, NotYet, Reason, Verdict, utc

if TYPE_CHECKING:
    from politesse.clock import Clock
    from politesse.integrations.scrapy.tally import CrawlTally
    from politesse.origin import Origin

logger = logging.getLogger(__name__)

DEFERRING: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS})
"""The reasons that deny only until robots.txt is fetched again."""

_REFUSING: Final = frozenset({429, 503})
_CLOSURES: Final = frozenset({Bound.RETRY_AFTER, Bound.BACKOFF, Bound.RATE_LIMIT})
_OF_SITE: Final = _CLOSURES | {Bound.VISIT_TIME, Bound.CRAWL_DELAY, Bound.REQUEST_RATE, Bound.RULE_OF_THUMB}
_LONG_S: Final = 60.0  # what a wait is from which a person should know of it


@dataclass(slots=True)
class SiteWait:
    """One wait of a site.

    Attributes:
        began_mono: when it began.
        why: what sets its end, as a phrase.
        is_closed: whether the site is closed, and not only slow.
        is_given_up: whether the spider does not stay open for it.
    """

    began_mono: float
    why: str
    is_closed: bool
    is_given_up: bool


class Closures:
    """The sites that wait now, by pacing host or by origin.

    Args:
        clock: the gate's clock.
        max_wait_s: after how many seconds a site is given up.
        tally: counts what happens here.
    """

    def __init__(self, clock: Clock, max_wait_s: float, tally: CrawlTally) -> None:
        self._clock = clock
        self._started_wall = clock.wall()
        self._max_wait_s = max_wait_s
        self._tally = tally
        self._waiting: dict[str, SiteWait] = {}
        self._refused_mono: dict[str, float] = {}
        self._answers: dict[str, NotYet] = {}  # of the pacer, for each host that was given up
        self._logged: set[str] = set()

    def __contains__(self, site: str) -> bool:
        return site in self._waiting

    def is_given_up(self, site: str) -> bool:
        """Return whether the spider does not stay open for the requests of a site."""
        closure = self._waiting.get(site)
        return closure is not None and closure.is_given_up

    def wait_for_turn(self, host: str, answer: NotYet) -> None:
        """Let a host wait until the pacer has a turn."""
        now_mono, bound_by = self._clock.monotonic(), answer.bound_by
        wait_s = answer.not_before - self._clock.wall()
        waited_s = now_mono - self._refused_mono.get(host, now_mono) if bound_by in _CLOSURES else 0.0
        too_late = bound_by in _OF_SITE and waited_s + wait_s > self._max_wait_s
        is_closed = bound_by in _CLOSURES or bound_by is Bound.VISIT_TIME
        why = f"{bound_by} until {utc(answer.not_before)}"
        if bound_by in _OF_SITE - _CLOSURES and wait_s >= _LONG_S and host not in self._logged:
            self._logged.add(host)  # the pacer logs the closures
            logger.info("%s is waited for until %s, for %.0f s: %s", host, utc(answer.not_before), wait_s, bound_by)
        if too_late:
            self._answers[host] = answer
        self._begin(host, host, SiteWait(now_mono, why, is_closed, too_late))

    def wait_for_robots(self, origin: Origin, verdict: Verdict) -> float:
        """Let an origin wait until its robots.txt may be fetched again; return in how many seconds that is."""
        now_wall, source = self._clock.wall(), verdict.source
        not_before = now_wall if verdict.not_before is None else verdict.not_before
        since_wall, has_no_address = now_wall, False
        if source is not None:
            since_wall = now_wall if source.failing_since_wall is None else source.failing_since_wall
            since_wall = max(since_wall, self._started_wall)  # what earlier runs have met is not this one's wait
            has_no_address = is_fault_of_kind(source, FaultKind.DNS)
        too_late = has_no_address or not_before - since_wall > self._max_wait_s
        why = str(verdict).partition(" (")[2].removesuffix(")")
        closure = SiteWait(self._clock.monotonic(), why, is_closed=True, is_given_up=too_late)
        self._begin(str(origin), origin.pacing_host, closure)
        return max(0.0, not_before - now_wall)

    def answer_of(self, host: str) -> NotYet | None:
        """Return the answer of the pacer for which a host was given up; None once it has been requested again."""
        return self._answers.get(host)

    def end(self, site: str) -> None:
        """End the wait of a site."""
        closure = self._waiting.pop(site, None)
        if closure is not None and closure.is_closed:
            self._tally.waited(self._clock.monotonic() - closure.began_mono)

    def end_all(self) -> None:
        """End all waits, because the spider is closed."""
        for site in tuple(self._waiting):
            self.end(site)

    def note_answer(self, host: str, status: int) -> None:
        """Count how long a host has answered with nothing but refusals."""
        self._answers.pop(host, None)
        if status in _REFUSING:
            self._refused_mono.setdefault(host, self._clock.monotonic())
        else:
            self._refused_mono.pop(host, None)

    def _begin(self, site: str, host: str, closure: SiteWait) -> None:
        self._waiting[site] = closure
        if closure.is_closed:
            self._tally.closed(host)
        if closure.is_given_up and self._tally.given_up(site, host, closure.why):
            logger.warning(
                "%s is given up, unless it opens while the spider is busy with others: "
                "POLITESSE_MAX_WAIT is %g s, and the wait would be longer (%s)",
                site,
                self._max_wait_s,
                printable(closure.why),
            )
