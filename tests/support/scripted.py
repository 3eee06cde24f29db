"""The name of the tests' crawler, and a fetcher that takes its time."""

from typing import Final

from politesse.ports import FetchRequest, FetchResult
from politesse.testing import ManualClock, ScriptedFetcher

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"


class SlowFetcher(ScriptedFetcher):
    """Takes a tenth of a second for each answer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await self.clock.sleep(0.1)
        return await super().fetch(request)
