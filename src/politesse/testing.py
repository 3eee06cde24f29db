"""For tests of crawlers: time and robots.txt answers that the test decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from politesse.ports import FetchFault, FetchResponse

if TYPE_CHECKING:
    from politesse.ports import FetchRequest, FetchResult


class ManualClock:
    """A clock that stands still until it is moved.

    Args:
        wall: the Unix time to start at.
    """

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        self._wall = wall
        self._monotonic = 0.0
        self._changed = asyncio.Event()

    def wall(self) -> float:
        """Return the Unix time in seconds."""
        return self._wall

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._monotonic

    async def sleep(self, delay_s: float, /) -> None:
        """Return when the clock has been moved on by ``delay_s``."""
        until = self._monotonic + delay_s
        while self._monotonic < until:
            await self._changed.wait()
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move both clocks on and wake who sleeps; ``seconds`` is 0 or more."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time does not go back")
        self._wall += seconds
        self._monotonic += seconds
        self._changed.set()
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ManualClock(wall={self._wall}, monotonic={self._monotonic})"


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
