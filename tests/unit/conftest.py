"""What the unit tests of several folders share."""

from collections.abc import AsyncIterator

import pytest

from politesse import Gatekeeper
from politesse.ports import FetchRequest, FetchResult
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"


class SlowFetcher(ScriptedFetcher):
    """Takes a tenth of a second for each answer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await self.clock.sleep(0.1)
        return await super().fetch(request)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that jumps to the next timer when all tasks wait."""
    return ManualClock(autojump=True)


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    """Return a gate over the fetcher of the test module."""
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        yield gate
