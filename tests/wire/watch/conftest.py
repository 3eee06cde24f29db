"""What the tests of a watch share: a queue of the gate of each file, and a browser at its watch."""

from collections.abc import AsyncIterator

import pytest

from politesse import Gatekeeper, PoliteQueue
from politesse.watch import serve
from tests.wire.watch.watching import TOKEN, Browser, browsing


@pytest.fixture
def queue(gate: Gatekeeper) -> PoliteQueue[None]:
    return PoliteQueue(gate)


@pytest.fixture
async def browser(gate: Gatekeeper, queue: PoliteQueue[None]) -> AsyncIterator[Browser]:
    async with await serve(gate, queue, port=0, token=TOKEN) as server, browsing(server.url) as browser:
        yield browser
