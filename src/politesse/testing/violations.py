"""Finds impolite requests in a trace, for ``assert_polite`` and ``politesse demo``.

The judge does not use the parser, the matcher or the pacing of the library: the caller passes the expectations of each
site.

How gaps are measured. The server must stamp the start of an exchange when the request has come, and the end before it
writes the last octet. The crawler counts its pause from the moment at which it has seen the end of the answer, to its
decision to make the next request. Both moments are within the gap of the server, so this gap is never shorter than the
pause. So a gap that is too short is the crawler's fault, except for the ticks of the clock.

Which requests count. A request for robots.txt need not wait for page requests. Requests for robots.txt to one host,
redirect targets included, are made one at a time. After the first two in a minute, they are ``min_delay_s`` apart. A
page request comes a whole pause after the robots.txt that opened its site. A later copy does not restart the pause. The
target of a robots.txt redirect is fetched for the first origin, and does not count for the pace of pages.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urljoin

from politesse._base.constants import DAY_S
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from politesse.testing.answers import Exchange

_ROBOTS_TXT: Final = "/robots.txt"
_TOO_MANY_REQUESTS: Final = 429
_CLOSING: Final = frozenset({_TOO_MANY_REQUESTS, 503})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NEVER: Final = float("-inf")
_FIRST_FETCHES: Final = 2
_MINUTE_S: Final = 60.0


class Kind(StrEnum):
    """The kinds of violation."""

    FORBIDDEN = "forbidden page requested"
    BEFORE_ROBOTS = "page requested before robots.txt"
    WHILE_CLOSED = "page requested without a usable robots.txt"
    STALE = "page requested with a robots.txt that is too old"
    REFETCHED = "robots.txt requested again too soon"
    ROBOTS_OVERLAP = "robots.txt requested while another robots.txt of the host was under way"
    ROBOTS_GAP = "robots.txt requested too soon after another robots.txt of the host"
    RETRIED_EARLY = "robots.txt requested before Retry-After was over"
    RETRY_AFTER = "page requested before Retry-After was over"
    OVERLAP = "page requested while another request was under way"
    GAP = "page requested too soon after the request before"
    VISIT_TIME = "page requested outside the Visit-time"
    AGENT = "requested under another User-Agent"
    BACKWARDS = "exchange ends before it starts"


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that should not have been made.

    Attributes:
        kind: the kind of violation.
        url: the URL of the request.
        detail: the rule that forbids it, or the gap and the pace; may be empty.
    """

    kind: Kind
    url: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url:.200}{self.detail and f' ({self.detail})'}"


class Expectation(Protocol):
    """The expectations of a site."""

    def against(self, target: str, /) -> str | None:
        """Return the rule that forbids a request target, or None."""

    def interval(self, wall: float, /) -> tuple[float, str]:
        """Return the interval that the site states for a time, in seconds, and the source of that statement."""

    def open_at(self, wall: float, /) -> bool:
        """Return whether the site permits a visit at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The promises of the crawler, which hold for every site.

    Attributes:
        min_delay_s: the pause if a host states none, and between requests for robots.txt to one host, in seconds.
        min_refetch_s: the least time between two requests for a robots.txt, from start to start, in seconds.
        max_age_s: the longest time that the crawler uses a copy of robots.txt, in seconds.
        slack_s: the tolerance for errors of the clocks in the log, in seconds.
        wall_slack_s: the tolerance for Retry-After and for fetching robots.txt again, in seconds. The crawler may
            measure these by another clock.
        agent: matches the User-Agent of all requests; None for any.

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
    """The requests for the robots.txt of an origin: the last start, and the ends of the answers that open the site."""

    expected: Expectation | None
    host: _HostHistory
    last_started: float = _NEVER
    opened: list[float] = field(default_factory=list)

    def known(self, at: float) -> float:
        """Return the end of the last answer up to ``at`` that opened the site; _NEVER without such an answer."""
        return max((opened for opened in self.opened if opened <= at), default=_NEVER)


@dataclass(slots=True, eq=False)
class _HostHistory:
    """The requests to a host: the ends of the requests that count for the pace, and the times of its Retry-After."""

    robots: dict[Origin, _RobotsHistory] = field(default_factory=dict)
    fetches_ended: list[float] = field(default_factory=list)
    page_ended: float = _NEVER
    robots_ended: list[float] = field(default_factory=list)
    closed: list[tuple[float, float]] = field(default_factory=list)

    def last_ended(self, at: float) -> float:
        """Return the end of the last request that counts. Pages may be requested while a robots.txt is under way."""
        return max(self.page_ended, *(ended for ended in self.robots_ended if ended <= at), _NEVER)

    def not_before(self, at: float) -> float:
        """Return when the longest Retry-After that was received before ``at`` is over."""
        self.closed = [one for one in self.closed if one[1] > at]
        return max((until for received, until in self.closed if received <= at), default=_NEVER)


class TraceJudge:
    """Judges the requests of a trace, in the order of their starts.

    Args:
        expected: the expectations of each origin; a missing origin restricts nothing.
        promises: the promises of the crawler.

    Attributes:
        violations: all violations that were found; a request may have several.
        gaps_s: the pause before each page request that follows another request, in seconds; negative if the earlier
            request was still under way.
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
        """Judge a whole trace, in any order."""
        for exchange in sorted(trace, key=lambda exchange: exchange.started):
            origin, target = split(exchange.url)
            host = self._hosts.setdefault(origin.pacing_host, _HostHistory())
            robots = host.robots.setdefault(origin, _RobotsHistory(self._expected.get(origin), host))
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
            # Only a page's Retry-After counts with any status; robots.txt is fetched again by the cache's own rules.
            if exchange.retry_after_s is not None and (target != _ROBOTS_TXT or exchange.status in _CLOSING):
                host.closed.append((exchange.ended, exchange.ended + exchange.retry_after_s))

    def _logged(self, exchange: Exchange) -> Iterator[tuple[Kind, str]]:
        """Yield the violations of an exchange that do not depend on other exchanges."""
        if not exchange.started <= exchange.ended:
            yield Kind.BACKWARDS, f"it starts at {exchange.started} and ends at {exchange.ended}"
        agent = self._promises.agent
        if agent is not None and exchange.agent is not None and agent.search(exchange.agent) is None:
            yield Kind.AGENT, f"{exchange.agent!r:.100}"

    def _fetching(
        self, exchange: Exchange, host: _HostHistory, robots: _RobotsHistory | None
    ) -> Iterator[tuple[Kind, str]]:
        """Yield the violations of a request for robots.txt; ``robots`` is None for the target of a redirect."""
        early_s = host.not_before(exchange.started) - exchange.started
        if early_s > self._promises.wall_slack_s:
            yield Kind.RETRIED_EARLY, f"{early_s:.3f} s before"
        yield from self._pausing_robots(exchange.started, host)
        # A request without an end was given up at an unknown time.
        ended = exchange.ended if isfinite(exchange.ended) else exchange.started
        host.fetches_ended = [*host.fetches_ended[-_FIRST_FETCHES + 1 :], ended]
        if robots is None:
            return
        since_s = exchange.started - robots.last_started
        if since_s < self._promises.min_refetch_s - self._promises.wall_slack_s:
            if self._unknown_targets:
                self._unknown_targets -= 1
            else:
                yield Kind.REFETCHED, f"{since_s:.3f} s after the request before, not {self._promises.min_refetch_s:g}"

    def _pausing_robots(self, started: float, host: _HostHistory) -> Iterator[tuple[Kind, str]]:
        """Yield the violations of a request for robots.txt that is too close to others at its host."""
        delay_s, slack_s, ended = self._promises.min_delay_s, self._promises.slack_s, host.fetches_ended
        if not ended:
            return
        gap_s = started - max(ended)
        recent = [one for one in ended if started - one < _MINUTE_S - slack_s]
        if gap_s < -slack_s:
            yield Kind.ROBOTS_OVERLAP, f"{-gap_s:.4f} s before its end"
        elif len(recent) == _FIRST_FETCHES and gap_s < delay_s - slack_s:
            yield Kind.ROBOTS_GAP, f"{gap_s:.4f} s after its end, not {delay_s:g}"

    def _requesting(
        self, exchange: Exchange, host: _HostHistory, robots: _RobotsHistory, target: str
    ) -> Iterator[tuple[Kind, str]]:
        """Yield the violations of a request for a page."""
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
        # Each site of the host whose robots.txt can be known binds the host.
        sites = [one for one in host.robots.values() if one is robots or one.known(started) > _NEVER]
        expected = [one.expected for one in sites if one.expected is not None]
        yield from self._pausing(started, host.last_ended(started), expected)

    def _pausing(self, started: float, ended: float, expected: list[Expectation]) -> Iterator[tuple[Kind, str]]:
        """Yield the violations of a request for a page that comes at a wrong time."""
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
        """Note whether a robots.txt, or its absence, opens its site."""
        pace_s = 0.0 if robots.expected is None else robots.expected.interval(exchange.started)[0]
        # A copy may expire during the page's wait for its pace.
        was_open = exchange.started - robots.known(exchange.started) <= self._promises.max_age_s + pace_s
        robots.last_started = exchange.started
        if _opens(exchange.status):
            robots.opened.append(exchange.ended)
            if not was_open:
                host.robots_ended.append(exchange.ended)
        self._follow(exchange, robots)

    def _note_target(self, exchange: Exchange, robots: _RobotsHistory) -> None:
        """Note whether the target of a redirect opens the site for which it was fetched."""
        provisional = robots.opened.pop()
        opens = _opens(exchange.status)
        if opens:
            robots.opened.append(max(provisional, exchange.ended))
        if not opens and provisional in robots.host.robots_ended:
            robots.host.robots_ended.remove(provisional)
        self._follow(exchange, robots)

    def _follow(self, exchange: Exchange, robots: _RobotsHistory) -> None:
        """Expect a request for the target of a redirect."""
        if exchange.status not in _REDIRECTS:
            return
        if exchange.location is None:
            self._unknown_targets += 1
            return
        with suppress(InvalidURL):  # the target has another scheme or is invalid, so it is not requested
            self._redirected[split(urljoin(exchange.url, exchange.location))].append(robots)


def _opens(status: int) -> bool:
    """Return whether pages may be requested after this answer to a request for robots.txt.

    After a redirect they may, until its target has answered: the target may be unknown, and a loop allows all pages.
    After a 304 they may, because it renews a copy that is older than the trace. After an unknown status they may,
    because it proves no violation.
    """
    # RFC 9309 2.3.1.2 to 2.3.1.4: 4xx is no file; 5xx, and politesse's reading of 206 and 429, is complete disallow.
    return status == 0 or (200 <= status < 500 and status not in {206, _TOO_MANY_REQUESTS})  # noqa: PLR2004 - classes
