"""ManualClock: it moves whenever every task waits, whatever its timers do."""

import asyncio
import logging
from typing import Any

import pytest

from politesse import Gatekeeper
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
ROUNDED_DOWN_S = 4045.699504362398
"""A time to which 60 s are added with a loss: ``(t + 60.0) - t < 60.0``."""


@pytest.mark.parametrize("start_s", [0.0, ROUNDED_DOWN_S])
async def test_a_stalled_queue_reports_once_and_goes_on(start_s: float, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nCrawl-delay: 300\n"})
    clock = ManualClock(autojump=True)
    clock.advance(start_s)
    async with asyncio.timeout(5), Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue = PoliteQueue[object](gate)
        await queue.put("https://example.com/1")
        async with queue.turn() as turn:
            assert turn.url == "https://example.com/1"
    assert "no progress for 60 s" in caplog.text


async def test_a_positive_delay_moves_the_clock_however_short_it_is() -> None:
    clock = ManualClock(autojump=True)
    clock.advance(1e9)
    due_s = clock.monotonic() + 1e-9
    calls = list[float]()

    def look() -> None:
        calls.append(clock.monotonic())
        if clock.monotonic() <= due_s:
            clock.call_later(1e-9, look)

    look()
    async with asyncio.timeout(5):
        await clock.sleep(1.0)
    assert len(calls) == 2


async def test_a_timer_that_raises_stops_no_other_timer() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    clock = ManualClock(autojump=True)

    def fail() -> None:
        raise ValueError("a broken callback")

    clock.call_later(1.0, fail)
    async with asyncio.timeout(5):
        await clock.sleep(2.0)
    assert clock.monotonic() == 2.0
    assert [str(failure["exception"]) for failure in failures] == ["a broken callback"]


def test_a_clock_jumps_in_a_second_event_loop() -> None:
    clock = ManualClock(autojump=True)

    async def leave_a_timer() -> None:
        clock.call_later(5.0, lambda: None)

    async def sleep() -> None:
        async with asyncio.timeout(5):
            await clock.sleep(10.0)

    asyncio.run(leave_a_timer())
    asyncio.run(sleep())
    assert clock.monotonic() == 10.0
