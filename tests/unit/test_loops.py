"""A gatekeeper belongs to one event loop, and says so where another one would wait for ever."""

from __future__ import annotations

import asyncio

import pytest

from politesse import Gatekeeper, PoliteQueue, WrongEventLoop
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
URL = "https://example.com/page"


def make_gate() -> Gatekeeper:
    return Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock())


async def take(gate: Gatekeeper) -> None:
    turn = await gate.take_turn(URL, max_wait_s=1_000)
    turn.end()


async def settle_in(gate: Gatekeeper) -> None:
    await gate.check(URL)
    gate.try_turn(URL)  # which arms a timer


def test_who_would_wait_for_a_turn_in_another_loop_is_told() -> None:
    gate = make_gate()
    asyncio.run(settle_in(gate))
    with pytest.raises(WrongEventLoop, match="one for each"):
        asyncio.run(take(gate))


def test_a_queue_in_another_loop_is_told() -> None:
    gate = make_gate()
    asyncio.run(settle_in(gate))

    async def crawl() -> None:
        queue = PoliteQueue[None](gate)
        await queue.put(URL)
        async with queue.turn():
            pass

    with pytest.raises(WrongEventLoop):
        asyncio.run(crawl())


def test_who_would_wait_for_a_robots_txt_that_another_loop_asks_for_is_told() -> None:
    fetcher = ScriptedFetcher()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=ManualClock())

    async def ask() -> asyncio.Task[object]:
        fetcher.gate.clear()
        task = asyncio.ensure_future(gate.check(URL))
        await asyncio.sleep(0.01)
        return task

    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        asked = loop.run_until_complete(ask())
        with pytest.raises(WrongEventLoop):
            other.run_until_complete(gate.check(URL))
        fetcher.gate.set()
        assert loop.run_until_complete(asked)
        loop.run_until_complete(gate.aclose())
    finally:
        loop.close()
        other.close()


def test_what_is_known_is_told_in_whatever_loop() -> None:
    gate = make_gate()
    asyncio.run(settle_in(gate))
    assert gate.peek(URL)
    assert asyncio.run(gate.check(URL))
