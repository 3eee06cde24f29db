"""How much work a hit and a turn are, in calls: a change that doubles it fails here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse import Gatekeeper, PacingOptions
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.work import assert_work, counted_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UA = "ExampleBot/1.0 (+https://example.com/bot)"
ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*?session=\n"
HOSTS = [f"host{number}.example" for number in range(20)]


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    """A gate that knows the robots.txt of all hosts, and whose clock jumps to the next turn."""
    site = ScriptedFetcher({f"https://{host}": ROBOTS for host in HOSTS})
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=site, clock=clock, pacing=PacingOptions(adaptive_factor=0.0)) as gate:
        await gate.check_batch(f"https://{host}/" for host in HOSTS)
        await clock.sleep(10.0)
        yield gate


async def test_work_of_a_hit(gate: Gatekeeper) -> None:
    urls = [f"https://{host}/shelf/product-{number}" for host in HOSTS for number in range(10)]
    with counted_calls() as calls:
        for url in urls:
            gate.peek(url)
    assert_work(calls, len(urls), calls_each=3)


async def test_work_of_a_turn_that_is_free(gate: Gatekeeper) -> None:
    with counted_calls() as calls:
        for host in HOSTS:
            async with gate.turn(f"https://{host}/shelf") as turn:
                turn.observe(200)
    assert_work(calls, len(HOSTS), calls_each=45)


async def test_work_of_a_turn_that_is_tried(gate: Gatekeeper) -> None:
    with counted_calls() as calls:
        for host in HOSTS:
            turn = gate.try_turn(f"https://{host}/shelf")
            assert turn
            with turn:
                turn.observe(200)
    assert_work(calls, len(HOSTS), calls_each=42)


async def test_work_of_a_turn_for_which_many_tasks_wait(gate: Gatekeeper) -> None:
    turns_each, tasks_a_host = 4, 5

    async def work(host: str) -> None:
        for number in range(turns_each):
            async with gate.turn(f"https://{host}/shelf/product-{number}") as turn:
                turn.observe(200)

    with counted_calls() as calls:
        await asyncio.gather(*map(work, HOSTS * tasks_a_host))
    assert_work(calls, len(HOSTS) * tasks_a_host * turns_each, calls_each=39)
