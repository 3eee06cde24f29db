import asyncio
import gc
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    """No task, no unclosed transport and no unretrieved exception is left."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    yield
    for _ in range(5):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    gc.collect(1)  # an unclosed transport warns when it is collected, and warnings are errors
    await asyncio.sleep(0)
    assert left == set()
    assert complaints == []
