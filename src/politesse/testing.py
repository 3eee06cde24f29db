"""For tests of crawlers: time and robots.txt answers that the test decides."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from politesse.ports import FetchFault, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Timer
    from politesse.ports import FetchRequest, FetchResult


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
            FetchResponse or FetchFault, an exception to raise, or a list of these for one fetch after the other,
            the last of which stays. Whatever is not named answers 404.

    Attributes:
        requests: every request so far, in order.
        gate: cleared, it holds all answers back until it is set.
    """

    def __init__(self, answers: dict[str, Answer | list[Answer]] | None = None) -> None:
        self.answers = dict(answers or {})
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
        answer = self.answers.get(str(request.origin), 404)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
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
