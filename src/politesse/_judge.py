"""Finds impolite requests in a log, for ``assert_polite``, ``politesse demo`` and ``politesse audit``.

The judge does not use the parser, the matcher or the pacing of the library: the caller passes the expectations of each
site.

How gaps are measured. The server must record the start of an exchange when the request has arrived, and the end before
it writes the last octet of the answer. The crawler counts its pause from the moment at which it has seen the end of the
answer, to its decision to make the next request. Both moments are within the gap that the server measures, so this gap
is never shorter than the pause. So a gap that is too short is the crawler's fault, within the resolution of the clock.

Which requests count. A request for robots.txt need not wait for page requests. Requests for robots.txt to one host,
redirect targets included, must be made one at a time. After the first two in a minute, they must be ``min_delay_s``
apart. A page request must come at least one pause after the robots.txt that opened its site. A later copy does not
restart the pause. The target of a robots.txt redirect is fetched for the redirecting origin, and does not count for the
pace of pages.

A page and a robots.txt may be under way together. Suppose that the answer to one of them states a Retry-After. The
crawler may have sent the other request before it read this answer, and that request may reach the server after the
answer. So the first such request is not a violation.

Memory. Exchanges come in the order of their starts, so a history keeps only the times that still matter: the
last time before the present start, and later times. If there are too many hosts, the host that was
requested least recently is forgotten.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import urljoin

from politesse._base.constants import DAY_S, ROBOTS_TXT
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_WEB_ADDRESS = re.compile(r"https?://[^\s();,]*")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer in the log of a server or a crawler.

    Example:
        >>> from politesse.testing import Exchange
        >>> Exchange("https://example.com/busy", started=10.0, ended=10.5, status=429, retry_after_s=60).status
        429

    Attributes:
        url: the requested URL, of a page or a robots.txt.
        started: when the request began, as Unix time.
        ended: when the answer had been read, as Unix time; infinite for a request under way.
        status: the status of the answer; 0 if it is unknown or missing.
        retry_after_s: the Retry-After of the answer in seconds, or None.
        agent: the User-Agent of the request, or None if it was not logged.
        location: the Location of the answer, or None.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None
    agent: str | None = None
    location: str | None = None


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
        detail: the rule that forbids the request, or the gap and the pace; may be empty.
        missing_s: by how many seconds the request came too early, or the copy of robots.txt was too old; otherwise 0.
    """

    kind: Kind
    url: str
    detail: str = ""
    missing_s: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url:.200}{self.detail and f' ({self.detail})'}"


class Expectation(Protocol):
    """The expectations of a site."""

    def against(self, target: str, wall: float, /) -> str | None:
        """Return the rule that forbids a request target at a time, or None."""

    def interval(self, wall: float, /) -> tuple[float, str]:
        """Return the interval that the site states for a time, in seconds, and the source of that statement."""

    def open_at(self, wall: float, /) -> bool:
        """Return whether the site permits a visit at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The promises of the crawler, which hold for every site.

    Attributes:
        min_delay_s: the pause before a page if the host states none, and the pause between requests for robots.txt to a
            host, in seconds.
        min_refetch_s: the least time between two requests for a robots.txt, from start to start, in seconds.
        max_age_s: the longest time for which the crawler uses a copy of robots.txt, in seconds.
        slack_s: the tolerance for errors of the clocks in the log, in seconds.
        wall_slack_s: the tolerance for Retry-After and for fetching robots.txt again, in seconds. The crawler may
            measure both times by another clock.
        agent: finds the crawler's product token in a logged User-Agent; None if any User-Agent is permitted.
        one_at_a_time: whether the crawler makes one request at a time to a host, even if no pace is stated.
        max_hosts: the number of hosts that the judge remembers.

    Raises:
        ConfigurationError: a number is negative.
    """

    min_delay_s: float = 0.0
    min_refetch_s: float = 54.0
    max_age_s: float = DAY_S
    slack_s: float = 0.0
    wall_slack_s: float = 0.0
    agent: Callable[[str], str | None] | None = None
    one_at_a_time: bool = True
    max_hosts: float = inf

    def __post_init__(self) -> None:
        for name in ("min_delay_s", "min_refetch_s", "max_age_s", "slack_s", "wall_slack_s"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: give seconds, 0 or more")


def token_finder(tokens: Iterable[str]) -> Callable[[str], str | None]:
    """Return a function that finds the first of some product tokens in a User-Agent; it returns None without any.

    Many a User-Agent holds a web address or an e-mail address with the name of another crawler of its operator.
    """
    names = {token.lower(): token for token in tokens}
    search = re.compile(rf"(?<![\w./@-])(?:{'|'.join(map(re.escape, names))})(?![\w.@-])").search

    def find(user_agent: str) -> str | None:
        found = search(_WEB_ADDRESS.sub(" ", user_agent.lower()))
        return None if found is None else names[found[0]]

    return find


NEVER: Final = float("-inf")
_MAX_TIMES: Final = 64  # above this length, a history drops the times that no longer matter


@dataclass(slots=True, eq=False)
class Times:
    """A history of times, sorted. If the history is long, ``last`` drops all times before its result."""

    times: list[float] = field(default_factory=list)

    def add(self, time: float) -> None:
        """Add a time, unless it is NaN."""
        if time == time:  # noqa: PLR0124 - NaN
            insort(self.times, time)

    def remove(self, time: float) -> bool:
        """Remove a time, and return whether it was there."""
        found = time in self.times
        if found:
            self.times.remove(time)
        return found

    def last(self, at: float) -> float:
        """Return the last time up to ``at``; NEVER if there is none."""
        place = bisect_right(self.times, at)
        if place > _MAX_TIMES:
            del self.times[: place - 1]
            place = 1
        return self.times[place - 1] if place else NEVER


@dataclass(slots=True, eq=False)
class Closings:
    """The Retry-Afters that bind one kind of request (for pages, or for robots.txt) at a host.

    Attributes:
        until: the latest end of the Retry-Afters that ``take`` has removed from ``recent``.
        recent: the other Retry-Afters: when each was received, its end, and whether a request of this kind received it.
    """

    until: float = NEVER
    recent: list[tuple[float, float, bool]] = field(default_factory=list)

    def take(self, at: float) -> float:
        """Move the Retry-Afters received up to ``at`` into ``until``.

        Returns:
            The latest end of those moved Retry-Afters that answered requests of this kind; NEVER if there are none.
        """
        of_this_kind = NEVER
        while self.recent and self.recent[0][0] <= at:
            _, until, is_own = self.recent.pop(0)
            self.until = max(self.until, until)
            if is_own:
                of_this_kind = max(of_this_kind, until)
        return of_this_kind


Found: TypeAlias = "Iterator[tuple[Kind, str, float]]"

_TOO_MANY_REQUESTS: Final = 429
CLOSING: Final = frozenset({_TOO_MANY_REQUESTS, 503})
"""The statuses that close a host: RFC 6585 4 and RFC 9110 15.6.4."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FIRST_FETCHES: Final = 2
_MINUTE_S: Final = 60.0
_MAX_PENDING: Final = 64  # the limit of kept redirects to one target that was not requested yet
_UNDER_WAY_S: Final = 1.0  # a request reaches the server at most this long after it was sent


@dataclass(slots=True, eq=False)
class _RobotsHistory:
    """The requests for the robots.txt of an origin: the last start, and the ends of the answers that open the site."""

    expected: Expectation | None
    host: _HostHistory
    last_started: float = NEVER
    opened: Times = field(default_factory=Times)


class _Redirect(NamedTuple):
    """A redirected robots.txt whose target was not requested yet: its site, and the time that opened the site."""

    robots: _RobotsHistory
    opened: float


@dataclass(slots=True, eq=False)
class _HostHistory:
    """The requests to a host: the ends of the requests that count for the pace, and the Retry-Afters of its answers."""

    robots: dict[Origin, _RobotsHistory] = field(default_factory=dict)
    fetches_ended: list[float] = field(default_factory=list)
    page_ended: float = NEVER
    robots_ended: Times = field(default_factory=Times)
    _closings: tuple[Closings, Closings] = field(default_factory=lambda: (Closings(), Closings()))  # pages, robots.txt

    def last_ended(self, at: float) -> float:
        """Return the end of the last request that counts for the pace. A robots.txt under way does not count."""
        return max(self.page_ended, self.robots_ended.last(at))

    def close(self, received: float, for_s: float, *, is_fetch: bool) -> None:
        """Note a Retry-After in the answer to a page or, with ``is_fetch``, to a request for robots.txt."""
        for kind, closings in enumerate(self._closings):
            insort(closings.recent, (received, received + for_s, kind == is_fetch))

    def not_before(self, at: float, *, is_fetch: bool) -> float:
        """Return the latest end of the Retry-Afters that bind a request at ``at``; NEVER if none is still in force.

        The crawler may have sent a request for a page before it read the Retry-After of a robots.txt, or the other way
        round. So a Retry-After of the other kind does not bind the first request that comes within a second.
        """
        for closings in self._closings:
            closings.take(at - _UNDER_WAY_S)
        closings = self._closings[is_fetch]
        binding = closings.until
        binding = max(binding, closings.take(at))
        return binding if binding > at else NEVER


class TraceJudge:
    """Judges the requests of a trace one by one, in the order of their starts.

    Args:
        expected: returns the expectations of an origin, or None if every page is permitted at any time.
        promises: the promises of the crawler.
        is_whole: whether the trace begins with the first request of the crawl. Otherwise the crawler may have older
            copies of robots.txt until the trace shows its requests for them.

    Attributes:
        least_gap_s: the shortest pause before a page request that follows another request, in seconds; negative if the
            earlier request was still under way; None without such a request.
    """

    def __init__(
        self, expected: Callable[[Origin], Expectation | None], promises: Promises, *, is_whole: bool = True
    ) -> None:
        self.least_gap_s: float | None = None
        self._expected = expected
        self._promises = promises
        self._is_whole = is_whole
        self._hosts: OrderedDict[str, _HostHistory] = OrderedDict()  # the host of the latest request is last
        self._redirected: OrderedDict[tuple[Origin, str], deque[_Redirect]] = OrderedDict()
        self._unknown_targets = 0

    def judge(self, exchange: Exchange) -> list[Violation]:
        """Judge the next exchange; return its violations."""
        origin, target = split(exchange.url)
        host = self._hosts.get(origin.pacing_host)
        if host is None:
            host = self._hosts[origin.pacing_host] = _HostHistory()
        self._hosts.move_to_end(origin.pacing_host)
        robots = host.robots.get(origin)
        if robots is None:
            robots = host.robots[origin] = _RobotsHistory(self._expected(origin), host)
        fetched_for = self._redirected.get((origin, target)) if self._redirected else None
        first = fetched_for.popleft() if fetched_for else None
        if first is not None or target == ROBOTS_TXT:
            found = self._fetching(exchange, robots, is_target=first is not None)
        else:
            found = self._requesting(exchange, robots, target)
        complaints = (*self._logged(exchange), *found)
        violations = [Violation(kind, exchange.url, detail, missing_s) for kind, detail, missing_s in complaints]
        self._note(exchange, robots, first, is_robots=target == ROBOTS_TXT)
        self._forget()
        return violations

    def _note(self, exchange: Exchange, robots: _RobotsHistory, first: _Redirect | None, *, is_robots: bool) -> None:
        """Note a judged exchange; ``first`` is the redirect that led to this exchange, or None."""
        if first is not None:
            self._note_target(exchange, *first)
            if is_robots and _opens(exchange.status):
                robots.opened.add(exchange.ended)
        elif is_robots:
            self._note_robots(exchange, robots)
        else:
            robots.host.page_ended = max(robots.host.page_ended, exchange.ended)
        # A Retry-After of a page counts with any status. A Retry-After of a robots.txt counts only with 429 and 503:
        # after any other status, the cache itself decides when to fetch robots.txt again.
        if exchange.retry_after_s is not None and (not is_robots or exchange.status in CLOSING):
            robots.host.close(exchange.ended, exchange.retry_after_s, is_fetch=is_robots or first is not None)

    def _forget(self) -> None:
        """Forget the hosts that were requested least recently, and the oldest redirects, if there are too many."""
        if len(self._hosts) > self._promises.max_hosts:
            self._hosts.popitem(last=False)
            self._is_whole = False  # later requests to this host are judged without its history
        if len(self._redirected) > self._promises.max_hosts:
            self._redirected.popitem(last=False)

    def _logged(self, exchange: Exchange) -> Found:
        """Yield the violations of an exchange that do not depend on other exchanges."""
        if not exchange.started <= exchange.ended:
            yield Kind.BACKWARDS, f"it starts at {exchange.started} and ends at {exchange.ended}", 0.0
        agent = self._promises.agent
        if agent is not None and exchange.agent is not None and agent(exchange.agent) is None:
            yield Kind.AGENT, f"{exchange.agent!r:.100}", 0.0

    def _fetching(self, exchange: Exchange, robots: _RobotsHistory, *, is_target: bool) -> Found:
        """Yield the violations of a request for robots.txt, or for the target of its redirect."""
        host = robots.host
        early_s = host.not_before(exchange.started, is_fetch=True) - exchange.started
        if early_s > self._promises.wall_slack_s:
            yield Kind.RETRIED_EARLY, f"{early_s:.3f} s before", early_s
        yield from self._pausing_robots(exchange.started, host)
        # If a request has no end, the crawler gave it up at an unknown time; the start then counts as the end.
        ended = exchange.ended if isfinite(exchange.ended) else exchange.started
        host.fetches_ended = [*host.fetches_ended[-_FIRST_FETCHES + 1 :], ended]
        if is_target:
            return
        since_s, least_s = exchange.started - robots.last_started, self._promises.min_refetch_s
        if since_s < least_s - self._promises.wall_slack_s:
            if self._unknown_targets:
                self._unknown_targets -= 1
            else:
                detail = f"{since_s:.3f} s after the request before, not {least_s:g}"
                yield Kind.REFETCHED, detail, least_s - since_s

    def _pausing_robots(self, started: float, host: _HostHistory) -> Found:
        """Yield a violation if a request for robots.txt comes too soon after other such requests to its host."""
        delay_s, slack_s, ended = self._promises.min_delay_s, self._promises.slack_s, host.fetches_ended
        if not ended:
            return
        gap_s = started - max(ended)
        recent = [one for one in ended if started - one < _MINUTE_S - slack_s]
        if gap_s < -slack_s and self._promises.one_at_a_time:
            yield Kind.ROBOTS_OVERLAP, f"{-gap_s:.4f} s before its end", -gap_s
        elif len(recent) == _FIRST_FETCHES and gap_s < delay_s - slack_s:
            yield Kind.ROBOTS_GAP, f"{gap_s:.4f} s after its end, not {delay_s:g}", delay_s - gap_s

    def _requesting(self, exchange: Exchange, robots: _RobotsHistory, target: str) -> Found:
        """Yield the violations of a request for a page."""
        promises, started, host = self._promises, exchange.started, robots.host
        known = robots.opened.last(started + promises.slack_s)
        if robots.last_started == NEVER and not robots.opened.times:
            if self._is_whole:
                yield Kind.BEFORE_ROBOTS, f"before {Origin.of(exchange.url).robots_url}", 0.0
        elif known == NEVER:
            yield Kind.WHILE_CLOSED, "", 0.0
        elif started - known > promises.max_age_s + promises.slack_s:
            age_s, most_s = started - known, promises.max_age_s
            yield Kind.STALE, f"{age_s:.0f} s old, not at most {most_s:.0f}", age_s - most_s
        early_s = host.not_before(started, is_fetch=False) - started
        if early_s > promises.wall_slack_s:
            yield Kind.RETRY_AFTER, f"{early_s:.3f} s before", early_s
        if robots.expected is not None and (rule := robots.expected.against(target, started)) is not None:
            yield Kind.FORBIDDEN, rule, 0.0
        # Each site whose robots.txt the crawler may know limits the pace of its whole host.
        expected = [
            one.expected
            for one in host.robots.values()
            if one.expected is not None and (one is robots or one.opened.last(started) > NEVER)
        ]
        yield from self._pausing(started, host.last_ended(started), expected)

    def _pausing(self, started: float, ended: float, expected: list[Expectation]) -> Found:
        """Yield the violations of a request for a page that comes at a wrong time."""
        promises = self._promises
        if ended > NEVER:
            gap_s = started - ended
            if isfinite(gap_s) and (self.least_gap_s is None or gap_s < self.least_gap_s):
                self.least_gap_s = gap_s
            pace_s, bound_by = promises.min_delay_s, "floor"
            for one in expected:
                stated = one.interval(ended)
                pace_s, bound_by = stated if stated[0] > pace_s else (pace_s, bound_by)
            if gap_s < -promises.slack_s and (promises.one_at_a_time or pace_s > 0):
                detail = f"{-gap_s:.4f} s before its end, not {pace_s:g} ({bound_by}) after"
                yield Kind.OVERLAP, detail, pace_s - gap_s
            elif gap_s < pace_s - promises.slack_s:
                yield Kind.GAP, f"{gap_s:.4f} s after its end, not {pace_s:g} ({bound_by})", pace_s - gap_s
        if not all(one.open_at(started) or one.open_at(started + promises.slack_s) for one in expected):
            yield Kind.VISIT_TIME, "", 0.0

    def _note_robots(self, exchange: Exchange, robots: _RobotsHistory) -> None:
        """Note whether a robots.txt, or its absence, opens its site."""
        if robots.last_started == NEVER and not self._is_whole:
            robots.opened.add(exchange.started)
        pace_s = 0.0 if robots.expected is None else robots.expected.interval(exchange.started)[0]
        # A copy may expire while a page waits for its turn.
        was_open = exchange.started - robots.opened.last(exchange.started) <= self._promises.max_age_s + pace_s
        robots.last_started = exchange.started
        if _opens(exchange.status):
            robots.opened.add(exchange.ended)
            if not was_open:
                robots.host.robots_ended.add(exchange.ended)
        self._follow(exchange, robots, exchange.ended)

    def _note_target(self, exchange: Exchange, robots: _RobotsHistory, provisional: float) -> None:
        """Note whether the target of a redirect opens the site for which it was fetched."""
        opens = _opens(exchange.status)
        was_noted = robots.opened.remove(provisional)
        if not opens:
            robots.host.robots_ended.remove(provisional)
        elif was_noted:
            provisional = max(provisional, exchange.ended)
            robots.opened.add(provisional)
        self._follow(exchange, robots, provisional)

    def _follow(self, exchange: Exchange, robots: _RobotsHistory, provisional: float) -> None:
        """Expect a request for the target of a redirect."""
        if exchange.status not in _REDIRECTS:
            return
        if exchange.location is None:
            self._unknown_targets += 1
            return
        with suppress(InvalidURL):  # the target has another scheme or is invalid, so it is not requested
            target = split(urljoin(exchange.url, exchange.location))
            waiting = self._redirected.setdefault(target, deque(maxlen=_MAX_PENDING))
            waiting.append(_Redirect(robots, provisional))


def _opens(status: int) -> bool:
    """Return whether pages may be requested after this answer to a request for robots.txt.

    A redirect permits pages until its target has answered: the target may be unknown, and a loop allows all pages. A
    304 permits pages, because it renews a copy that is older than the trace. An unknown status permits pages, because
    it proves no violation.
    """
    # RFC 9309 2.3.1.2 to 2.3.1.4: 4xx means no file, 5xx means complete disallow. politesse reads 206 and 429 like 5xx.
    return status == 0 or (200 <= status < 500 and status not in {206, _TOO_MANY_REQUESTS})  # noqa: PLR2004 - classes
