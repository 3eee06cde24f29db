"""The pacer on the clocks of the machine, under the event loops that crawlers use."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest
import uvloop

from politesse import Gatekeeper, PacingOptions
from politesse.testing import ScriptedFetcher

HOSTS: Final = 50
TASKS: Final = 100
TURNS: Final = 10
INTERVAL_S: Final = 0.05

pytestmark = pytest.mark.realtime


async def _crawl() -> dict[str, list[tuple[float, float]]]:
    """Return when each request of each host was started and had ended, at the least."""
    pacing = PacingOptions(min_delay_s=INTERVAL_S, adaptive_factor=0.0)
    trace: dict[str, list[tuple[float, float]]] = {f"host{number}.example": [] for number in range(HOSTS)}

    async def work(number: int) -> None:
        for visit in range(TURNS):
            host = f"host{(number + 7 * visit) % HOSTS}.example"
            async with gate.turn(f"https://{host}/") as turn:
                started_mono = time.monotonic()
                await asyncio.sleep(0.001 * (number % 3))
                turn.observe(200)
                trace[host].append((started_mono, time.monotonic()))

    async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher(), pacing=pacing) as gate:
        await asyncio.gather(*(work(number) for number in range(TASKS)))
    return trace


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_gap_is_under_the_interval(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        trace = runner.run(_crawl())
    assert sum(map(len, trace.values())) == TASKS * TURNS
    for host, requests in trace.items():
        for (_, ended), (started, _) in pairwise(requests):
            assert started - ended >= INTERVAL_S, host
