"""Tests that hang, each in its own way; run by test_time_limit.py alone."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import uvloop


async def test_await() -> None:
    await asyncio.Event().wait()


async def test_call() -> None:
    threading.Event().wait()


def test_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.Event().wait())


@pytest.fixture
async def never_torn_down() -> AsyncIterator[None]:
    yield
    await asyncio.Event().wait()


@pytest.mark.usefixtures("never_torn_down")
async def test_teardown() -> None:
    pass


async def test_task_beside() -> None:
    async def block() -> None:
        threading.Event().wait()

    blocking = asyncio.create_task(block())
    await asyncio.Event().wait()
    blocking.cancel()


async def test_swallowed_cancellation() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def test_thread() -> None:
    await asyncio.to_thread(threading.Event().wait)


def test_that_is_next() -> None:
    pass
