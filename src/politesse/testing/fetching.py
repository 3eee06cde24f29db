"""Answers to robots.txt requests without a network."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from politesse.ports import FetchFault, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.ports import FetchRequest, FetchResult


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
