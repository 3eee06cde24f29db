"""The pacer on the clocks of the machine, under the event loops that crawlers use."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import uvloop

from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse.clock import SystemClock
from politesse.ports import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS: Final = 50
TASKS: Final = 100
TURNS: Final = 10
INTERVAL_S: Final = 0.05

pytestmark = pytest.mark.realtime


async def _crawl() -> dict[str, list[tuple[float, float]]]:
    """Return when each request of each host was started and had ended, at the least."""
    clock = SystemClock()
    pacer = LocalPacer(PacingOptions(min_delay_s=INTERVAL_S, adaptive_factor=0.0), clock=clock)
    trace: dict[str, list[tuple[float, float]]] = {f"host{number}.example": [] for number in range(HOSTS)}

    async def work(number: int) -> None:
        for turn in range(TURNS):
            host = f"host{(number + 7 * turn) % HOSTS}.example"
            permit = await pacer.start(TurnRequest(host, host, "ExampleBot"))
            await asyncio.sleep(0.001 * (number % 3))
            trace[host].append((permit.started_mono, clock.monotonic()))
            permit.observe(200)
            permit.end()

    await asyncio.gather(*(work(number) for number in range(TASKS)))
    await pacer.aclose()
    return trace


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_gap_is_under_the_interval(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        trace = runner.run(_crawl())
    assert sum(map(len, trace.values())) == TASKS * TURNS
    for host, requests in trace.items():
        for (_, ended), (started, _) in pairwise(requests):
            assert started - ended >= INTERVAL_S, host
