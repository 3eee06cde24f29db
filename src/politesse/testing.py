"""For tests of crawlers: time and robots.txt answers that the test decides, and a judge of what was requested."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse.origin import split
from politesse.pacing.pace import PacingOptions, stated_pace, visit_from
from politesse.ports import FetchFault, FetchResponse
from politesse.robots import RobotsTxt
from politesse.robots.ruleset import ROBOTS_TXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from politesse.clock import Timer
    from politesse.ports import FetchRequest, FetchResult
    from politesse.robots import RuleSet


_QUIET_ROUNDS: Final = 20  # more than any chain of wake-ups takes from one task to the next


class ManualClock:
    """A clock that stands still until it is moved.

    Args:
        wall: the Unix time to start at.
        autojump: whether to move on by itself, to the next moment that somebody waits for, whenever every task of the
            event loop waits. A task that waits for the network waits too: use it where there is none.
    """

    def __init__(self, wall: float = 1_800_000_000.0, *, autojump: bool = False) -> None:
        self._wall = wall
        self._monotonic = 0.0
        self._autojump = autojump
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._touches = 0
        self._watching = False

    def wall(self) -> float:
        """Return the Unix time in seconds."""
        return self._wall

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        self._touches += 1
        return self._monotonic

    async def sleep(self, delay_s: float, /) -> None:
        """Return when the clock has been moved on by ``delay_s``."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(max(0.0, delay_s), lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Call ``callback`` when the clock has been moved on by ``delay_s``."""
        self._touches += 1
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self._monotonic + delay_s, self._touches, timer))
        if self._autojump and not self._watching:
            self._watching = True
            asyncio.get_running_loop().call_soon(self._watch, self._touches, 0)
        return timer

    def advance(self, seconds: float) -> None:
        """Move both clocks on, calling on the way what was due; ``seconds`` is 0 or more."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time does not go back")
        until = self._monotonic + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._move_to(max(due, self._monotonic))
            timer.fire()
        self._move_to(until)

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, forward or back, as an administrator may; the monotonic one goes on as it was."""
        self._wall = wall

    def _move_to(self, monotonic: float) -> None:
        self._wall += monotonic - self._monotonic
        self._monotonic = monotonic

    def _watch(self, touches: int, quiet: int) -> None:
        """Jump once the clock was left alone for some rounds of the event loop: then everybody waits."""
        loop = asyncio.get_running_loop()
        quiet = quiet + 1 if touches == self._touches else 0
        if quiet >= _QUIET_ROUNDS:
            quiet = 0
            while self._timers and self._timers[0][2].cancelled:
                heapq.heappop(self._timers)
            if not self._timers:
                self._watching = False
                return
            self.advance(max(0.0, self._timers[0][0] - self._monotonic))
        loop.call_soon(self._watch, self._touches, quiet)

    def __repr__(self) -> str:
        return f"ManualClock(wall={self._wall}, monotonic={self._monotonic})"


class _ManualTimer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.callback()


class ScriptedFetcher:
    """A Fetcher that answers as the test says, and remembers what it was asked.

    Args:
        answers: by origin, as in ``"https://example.com"``: a robots.txt as text or octets, a status, a
            FetchResponse or FetchFault, an exception to raise, or a sequence of these for one fetch after the other,
            the last of which stays. Whatever is not named answers 404.

    Attributes:
        requests: every request so far, in order.
        gate: cleared, it holds all answers back until it is set.
    """

    def __init__(self, answers: Mapping[str, Answer | Sequence[Answer]] | None = None) -> None:
        self.answers: dict[str, Answer | Sequence[Answer]] = dict(answers or {})
        self._given: Counter[str] = Counter()
        self.requests: list[FetchRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    def count(self, origin: str) -> int:
        """Return how often ``origin`` was asked."""
        return sum(str(request.origin) == origin for request in self.requests)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Answer as scripted."""
        self.requests.append(request)
        await self.gate.wait()
        origin = str(request.origin)
        answer = self.answers.get(origin, 404)
        if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
            answer = answer[min(self._given[origin], len(answer) - 1)]
            self._given[origin] += 1
        return _result(answer, request)

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True


Answer = str | bytes | int | FetchResponse | FetchFault | Exception


def _result(answer: Answer, request: FetchRequest) -> FetchResult:
    url = request.origin.robots_url
    if isinstance(answer, str | bytes):
        return FetchResponse(200, url, body=answer.encode() if isinstance(answer, str) else answer)
    if isinstance(answer, int):
        return FetchResponse(answer, url, conditional=request.validators is not None)
    if isinstance(answer, Exception):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, as a server or a crawler has logged it.

    Attributes:
        url: what was requested, robots.txt included.
        started: when it was, as Unix time.
        ended: when its answer had been read, as Unix time.
        status: of the answer.
        retry_after_s: what its Retry-After asked for, in seconds; None where it had none.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None


def assert_polite(
    trace: Iterable[Exchange],
    robots: Mapping[str, str | bytes],
    *,
    agent: str,
    min_delay_s: float = 0.0,
    slack_s: float = 0.0,
) -> None:
    """Raise AssertionError, naming every violation, unless a crawl was polite.

    Nothing is requested of an origin before its robots.txt; nothing that is disallowed; no two requests of a host at
    once; none sooner after the one before than its pace asks for; and none before a Retry-After is over. Requests for
    robots.txt itself need not wait.

    Args:
        trace: all requests of the crawl, in whatever order.
        robots: the robots.txt of each origin, as in ``"https://example.com"``; an origin without one restricts nothing.
        agent: the product token that the crawler obeys.
        min_delay_s: the pause that it promises where a host asks for none.
        slack_s: by how much the clocks that logged may be off.
    """
    rules = {origin: RobotsTxt.parse(body).rules_for(agent) for origin, body in robots.items()}
    options = PacingOptions(min_delay_s=min_delay_s)
    violations: list[str] = []
    asked: set[str] = set()
    hosts: dict[str, list[tuple[Exchange, str]]] = {}
    for exchange in sorted(trace, key=lambda exchange: exchange.started):
        origin, target = split(exchange.url)
        if target == ROBOTS_TXT:
            asked.add(str(origin))
        elif str(origin) not in asked:
            violations.append(f"{exchange.url} was requested before {origin.robots_url}")
        if str(origin) in rules and not (match := rules[str(origin)].match(exchange.url)):
            violations.append(f"{exchange.url} was requested against line {match.rule and match.rule.line}")
        hosts.setdefault(origin.pacing_host, []).append((exchange, str(origin)))
    for exchanges in hosts.values():
        violations += _too_soon(exchanges, rules, options, slack_s)
    if violations:
        raise AssertionError(f"{len(violations)} violations:\n" + "\n".join(violations))


def _too_soon(
    exchanges: list[tuple[Exchange, str]], rules: Mapping[str, RuleSet], options: PacingOptions, slack_s: float
) -> list[str]:
    said = [rules[origin] for origin in {origin for _, origin in exchanges} if origin in rules]
    violations = []
    ended = closed_until = float("-inf")
    for exchange, _ in exchanges:
        if split(exchange.url)[1] != ROBOTS_TXT:
            pace = stated_pace(said, ended, options) if ended > float("-inf") else None
            soonest = ended + (0.0 if pace is None else pace.interval_s)
            if exchange.started < soonest - slack_s and pace is not None:
                gap = f"{exchange.started - ended:.3f} s after the request before"
                violations.append(f"{exchange.url} came {gap}, not {pace.interval_s:g} ({pace.bound_by})")
            if exchange.started < closed_until - slack_s:
                violations.append(f"{exchange.url} came {closed_until - exchange.started:.3f} s before Retry-After")
            if visit_from(said, exchange.started) > exchange.started + slack_s:
                violations.append(f"{exchange.url} came outside the Visit-time")
        ended = max(ended, exchange.ended)
        if exchange.status in {429, 503} and exchange.retry_after_s is not None:
            closed_until = max(closed_until, exchange.ended + exchange.retry_after_s)
    return violations
