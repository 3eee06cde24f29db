from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from politesse import Gatekeeper
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.unit.queue.crawl import UA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
async def _no_callback_fails() -> AsyncIterator[None]:
    """What a callback of the event loop raises is only logged there: here it fails the test."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    yield
    assert not failures


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
