"""What is impolite about a trace of requests: the one judge of ``assert_polite`` and of ``politesse demo``.

It knows no parser, no matcher and no pacing of the library: what a site expects is handed to it.

How gaps are measured. A crawler counts its pause from the moment at which it has seen the end of an answer, and a
request reaches the server after the crawler has decided to make it. A server that stamps the end of an exchange before
it writes the last octet, and the start when the request has come, makes the gap longer than the pause that was kept,
never shorter: a gap that is too short is the crawler's doing, and only the ticks of the clock have to be allowed for.

What counts as a request. A request for robots.txt waits for no pause. The pause after it is a whole one where it
brought the first usable copy; a later copy is fetched behind the questions and does not restart the pace. A file to
which a robots.txt redirects is fetched on behalf of the first origin and is no part of the pace.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urljoin

from politesse._constants import DAY_S
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from politesse.testing.exchange import Exchange

_ROBOTS_TXT: Final = "/robots.txt"
_TOO_MANY_REQUESTS: Final = 429
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CLOSING: Final = frozenset({_TOO_MANY_REQUESTS, 503})
_NEVER: Final = float("-inf")


class Kind(StrEnum):
    """What can be wrong about a request."""

    FORBIDDEN = "forbidden page requested"
    BEFORE_ROBOTS = "page requested before robots.txt"
    WHILE_CLOSED = "page requested without a usable robots.txt"
    STALE = "page requested with a robots.txt that is too old"
    REFETCHED = "robots.txt requested again too soon"
    RETRIED_EARLY = "robots.txt requested before Retry-After was over"
    RETRY_AFTER = "page requested before Retry-After was over"
    OVERLAP = "page requested while another request was under way"
    GAP = "page requested too soon after the request before"
    VISIT_TIME = "page requested outside the Visit-time"
    AGENT = "requested under another User-Agent"
    BACKWARDS = "exchange ends before it starts"
    UNKNOWN = "requested, though nothing links to it"


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that should not have been made.

    Attributes:
        kind: what is wrong about it.
        url: of the request.
        detail: the rule that forbids it, or the gap and the pace; may be empty.
    """

    kind: Kind
    url: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url:.200}{self.detail and f' ({self.detail})'}"


class Expectation(Protocol):
    """What a site expects of the crawler."""

    def against(self, target: str, /) -> str | None:
        """Return the rule that forbids a request target; None where it is allowed."""

    def interval(self, wall: float, /) -> tuple[float, str]:
        """Return the seconds between two requests that the site states for a time, and where it states them."""

    def open_at(self, wall: float, /) -> bool:
        """Return whether the site permits a visit at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What the crawler promises, whatever a site says.

    Attributes:
        min_delay_s: its pause where a host states none, in seconds.
        min_refetch_s: the least time between two requests for a robots.txt, from start to start, in seconds.
        max_age_s: the longest time that it uses a copy of robots.txt, in seconds.
        slack_s: by how much the clocks that logged may be off, in seconds.
        wall_slack_s: the same for Retry-After and for fetching again, which may be waited for by another clock.
        agent: matches the User-Agent of all its requests; None for any.

    Raises:
        ConfigurationError: a number is negative.
    """

    min_delay_s: float = 0.0
    min_refetch_s: float = 54.0
    max_age_s: float = DAY_S
    slack_s: float = 0.0
    wall_slack_s: float = 0.0
    agent: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        for name in ("min_delay_s", "min_refetch_s", "max_age_s", "slack_s", "wall_slack_s"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: give seconds, 0 or more")


@dataclass(slots=True, eq=False)
class _RobotsHistory:
    """The requests for the robots.txt of one origin: the last start, and the ends of the answers that open the site."""

    expected: Expectation | None
    last_started: float = _NEVER
    opened: list[float] = field(default_factory=list)

    def known(self, at: float) -> float:
        """Return when the newest copy that a crawler can have had at a time was received."""
        return max((opened for opened in self.opened if opened <= at), default=_NEVER)


@dataclass(slots=True, eq=False)
class _HostHistory:
    """The requests to one host: the ends of those that count for the pace, and what its Retry-After closed it for."""

    robots: dict[Origin, _RobotsHistory] = field(default_factory=dict)
    page_ended: float = _NEVER
    robots_ended: list[float] = field(default_factory=list)
    closed: list[tuple[float, float]] = field(default_factory=list)

    def last_ended(self, at: float) -> float:
        """Return the end of the last request that counts; a robots.txt that is under way may have pages beside it."""
        return max(self.page_ended, *(ended for ended in self.robots_ended if ended <= at), _NEVER)

    def not_before(self, at: float) -> float:
        """Return when the longest Retry-After that was received before ``at`` is over."""
        self.closed = [one for one in self.closed if one[1] > at]
        return max((until for received, until in self.closed if received <= at), default=_NEVER)


class TraceJudge:
    """Judges the requests of a trace, in the order of their starts.

    Args:
        expected: what each origin expects; an origin that is missing restricts nothing.
        promises: what the crawler promises.

    Attributes:
        violations: all that were found; a request may violate several.
        gaps_s: the pauses before the page requests that had a request before them, in seconds; negative where that was
            still under way.
    """

    def __init__(self, expected: Mapping[Origin, Expectation], promises: Promises) -> None:
        self.violations: list[Violation] = []
        self.gaps_s: list[float] = []
        self._expected = expected
        self._promises = promises
        self._hosts: dict[str, _HostHistory] = {}
        self._redirected: defaultdict[tuple[Origin, str], list[_RobotsHistory]] = defaultdict(list)
        self._unknown_targets = 0

    def judge(self, trace: Iterable[Exchange]) -> None:
        """Judge a whole trace, in whatever order it is."""
        for exchange in sorted(trace, key=lambda exchange: exchange.started):
            origin, target = split(exchange.url)
            host = self._hosts.setdefault(origin.pacing_host, _HostHistory())
            robots = host.robots.setdefault(origin, _RobotsHistory(self._expected.get(origin)))
            fetched_for = self._redirected[origin, target]
            first = fetched_for.pop(0) if fetched_for else None
            if first is not None or target == _ROBOTS_TXT:
                found = self._fetching(exchange, host, robots if first is None else None)
            else:
                found = self._requesting(exchange, host, robots, target)
            complaints = [*self._logged(exchange), *found]
            self.violations += [Violation(kind, exchange.url, detail) for kind, detail in complaints]
            if first is not None:
                self._note_target(exchange, first)
                if target == _ROBOTS_TXT and _opens(exchange.status):
                    robots.opened.append(exchange.ended)
            elif target == _ROBOTS_TXT:
                self._note_robots(exchange, host, robots)
            else:
                host.page_ended = max(host.page_ended, exchange.ended)
            if exchange.status in _CLOSING and exchange.retry_after_s is not None:
                host.closed.append((exchange.ended, exchange.ended + exchange.retry_after_s))

    def _logged(self, exchange: Exchange) -> Iterator[tuple[Kind, str]]:
        """Yield what is wrong about an exchange, whatever the others are."""
        if not exchange.started <= exchange.ended:
            yield Kind.BACKWARDS, f"it starts at {exchange.started} and ends at {exchange.ended}"
        agent = self._promises.agent
        if agent is not None and exchange.agent is not None and agent.search(exchange.agent) is None:
            yield Kind.AGENT, f"{exchange.agent!r:.100}"

    def _fetching(
        self, exchange: Exchange, host: _HostHistory, robots: _RobotsHistory | None
    ) -> Iterator[tuple[Kind, str]]:
        """Yield what is wrong about a request for robots.txt; ``robots`` is None for the target of a redirect."""
        early_s = host.not_before(exchange.started) - exchange.started
        if early_s > self._promises.wall_slack_s:
            yield Kind.RETRIED_EARLY, f"{early_s:.3f} s before"
        if robots is None:
            return
        since_s = exchange.started - robots.last_started
        if since_s < self._promises.min_refetch_s - self._promises.wall_slack_s:
            if self._unknown_targets:
                self._unknown_targets -= 1
            else:
                yield Kind.REFETCHED, f"{since_s:.3f} s after the request before, not {self._promises.min_refetch_s:g}"

    def _requesting(
        self, exchange: Exchange, host: _HostHistory, robots: _RobotsHistory, target: str
    ) -> Iterator[tuple[Kind, str]]:
        """Yield what is wrong about the request for a page."""
        promises, started = self._promises, exchange.started
        known = robots.known(started + promises.slack_s)
        if robots.last_started == _NEVER and not robots.opened:
            yield Kind.BEFORE_ROBOTS, f"before {Origin.of(exchange.url).robots_url}"
        elif known == _NEVER:
            yield Kind.WHILE_CLOSED, ""
        elif started - known > promises.max_age_s + promises.slack_s:
            yield Kind.STALE, f"{started - known:.0f} s old, not at most {promises.max_age_s:.0f}"
        early_s = host.not_before(started) - started
        if early_s > promises.wall_slack_s:
            yield Kind.RETRY_AFTER, f"{early_s:.3f} s before"
        if robots.expected is not None and (rule := robots.expected.against(target)) is not None:
            yield Kind.FORBIDDEN, rule
        # A host is bound by each of its sites whose robots.txt can be known.
        sites = [one for one in host.robots.values() if one is robots or one.known(started) > _NEVER]
        expected = [one.expected for one in sites if one.expected is not None]
        yield from self._pausing(started, host.last_ended(started), expected)

    def _pausing(self, started: float, ended: float, expected: list[Expectation]) -> Iterator[tuple[Kind, str]]:
        """Yield what is wrong about the moment at which a page was requested."""
        promises = self._promises
        if ended > _NEVER:
            gap_s = started - ended
            self.gaps_s.append(gap_s)
            stated = [(promises.min_delay_s, "floor"), *(one.interval(ended) for one in expected)]
            pace_s, bound_by = max(stated, key=lambda one: one[0])
            if gap_s < -promises.slack_s:
                yield Kind.OVERLAP, f"{-gap_s:.4f} s before its end, not {pace_s:g} ({bound_by}) after"
            elif gap_s < pace_s - promises.slack_s:
                yield Kind.GAP, f"{gap_s:.4f} s after its end, not {pace_s:g} ({bound_by})"
        if not all(one.open_at(started) or one.open_at(started + promises.slack_s) for one in expected):
            yield Kind.VISIT_TIME, ""

    def _note_robots(self, exchange: Exchange, host: _HostHistory, robots: _RobotsHistory) -> None:
        """Note what a robots.txt, or its absence, makes of its site."""
        if exchange.started - robots.known(exchange.started) > self._promises.max_age_s:
            host.robots_ended.append(exchange.ended)
        robots.last_started = exchange.started
        if _opens(exchange.status):
            robots.opened.append(exchange.ended)
        self._follow(exchange, robots)

    def _note_target(self, exchange: Exchange, robots: _RobotsHistory) -> None:
        """Note what the target of a redirect makes of the site that it was fetched for."""
        provisional = robots.opened.pop()
        if _opens(exchange.status):
            robots.opened.append(max(provisional, exchange.ended))
        self._follow(exchange, robots)

    def _follow(self, exchange: Exchange, robots: _RobotsHistory) -> None:
        """Expect a request for the target of a redirect."""
        if exchange.status not in _REDIRECTS:
            return
        if exchange.location is None:
            self._unknown_targets += 1
            return
        with suppress(InvalidURL):  # it leads to another scheme, or nowhere: nothing will be requested there
            self._redirected[split(urljoin(exchange.url, exchange.location))].append(robots)


def _opens(status: int) -> bool:
    """Return whether pages may be requested after this answer to a request for robots.txt.

    A redirect does, until its target has answered: where it leads may not be known, and a loop allows all. So does 304,
    which renews a copy that is older than the trace; and an unknown status, since nothing can be held against it.
    """
    # RFC 9309 2.3.1.2 to 2.3.1.4: 4xx is no file; 5xx, and politesse's reading of 206 and 429, is complete disallow.
    return status == 0 or (200 <= status < 500 and status not in {206, _TOO_MANY_REQUESTS})  # noqa: PLR2004 - classes
