import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from politesse import Gatekeeper
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import Queue
from tests.core.queue.simulated import Errors, Pages


@pytest.fixture(autouse=True)
async def _no_callback_fails() -> AsyncIterator[None]:
    """What a callback of the event loop raises is only logged there: here it fails the test."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    yield
    assert not failures


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher()


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture
def queue(gate: Gatekeeper, clock: ManualClock, fetcher: ScriptedFetcher) -> Queue:
    return Queue(gate, clock, fetcher)
