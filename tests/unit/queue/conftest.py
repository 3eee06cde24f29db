from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from politesse import (
    Gatekeeper,
)
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

from tests.unit.queue.crawl import UA


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=True)


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher()


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        yield gate


@pytest.fixture
def queue(gate: Gatekeeper) -> PoliteQueue[object]:
    return PoliteQueue(gate)
