from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING

import pytest

from politesse import AgentView, Gatekeeper, NotYet, PacingOptions, Turn
from politesse.queue.queue import PoliteQueue, QueueClosed, QueueStatistics
from tests.unit.queue.crawl import UA, A, B, Log

if TYPE_CHECKING:
    from politesse.testing import ManualClock, ScriptedFetcher


async def test_repr_and_statistics_tell_what_it_holds(queue: PoliteQueue[object], gate: Gatekeeper) -> None:
    await gate.check_batch([A, B])
    assert repr(queue) == "<PoliteQueue: 0 queued at 0 hosts, 0 ready, 0 under way, 0 workers waiting>"
    for url in (f"{A}/1", f"{A}/2", f"{B}/1"):
        await queue.put(url)
    assert queue.statistics() == QueueStatistics(3, 2, 2, 0, 0, 0, 0, 0)
    async with queue.turn():
        assert queue.qsize() == 2
        queue.close()
        assert repr(queue).endswith("1 under way, 0 workers waiting, closed>")


@pytest.mark.realtime
async def test_on_the_real_clock_no_turn_is_early_and_none_overlap(fetcher: ScriptedFetcher) -> None:
    pacing = PacingOptions(min_delay_s=0.05, adaptive_factor=0)
    ended: dict[str, float] = {}
    gaps: list[float] = []
    async with Gatekeeper(UA, fetcher=fetcher, pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for place in range(100):
            host = f"h{place % 20}.example"
            await queue.put(f"https://{host}/{place}", item=host)
        queue.close()

        async def work() -> None:
            while True:
                async with queue.turn() as turn:
                    host = str(turn.item)
                    if host in ended:
                        gaps.append(time.monotonic() - ended.pop(host))
                    await asyncio.sleep(0.002)
                    ended[host] = time.monotonic()  # popped by the next: two at once would find it missing

        results = await asyncio.gather(*(work() for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {QueueClosed}
    assert len(gaps) == 80
    assert min(gaps) >= 0.05


class CountingView(AgentView):
    """Counts how often a turn is tried."""

    __slots__ = ("tries",)

    def __init__(self, gate: Gatekeeper) -> None:
        super().__init__(gate._shared, gate.identity)
        self.tries = 0

    def try_turn(self, url: str) -> Turn | NotYet:
        self.tries += 1
        return super().try_turn(url)


async def test_ten_thousand_hosts_cost_few_looks_each(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    hosts, rounds, workers = 10_000, 2, 100
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        view = CountingView(gate)
        queue: PoliteQueue[object] = PoliteQueue(view)
        for place in range(hosts * rounds):
            await queue.put(f"https://h{place % hosts}.example/{place // hosts}")
        assert len(fetcher.requests) <= 100
        log = Log(queue, clock)
        await log.drain(workers=workers, took_s=0.5)
    assert len(set(log.urls)) == hosts * rounds
    assert view.tries < 1.5 * hosts * rounds
    assert len(fetcher.requests) == hosts
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for url, moment in log.handed:
        moments[url.split("/")[2]].append(moment)
    assert all(after - before >= 1.5 for before, after in moments.values())  # 0.5 s taken, then 1 s of pause
    # 100 workers at 0.5 s each are what is scarce: nobody waits while somebody is ready.
    assert log.handed[-1][1] < 1.1 * hosts * rounds * 0.5 / workers + 5


async def test_statistics_are_a_snapshot(queue: PoliteQueue[object]) -> None:
    before = queue.statistics()
    with pytest.raises(FrozenInstanceError):
        before.queued = 5  # type: ignore[misc]
    await queue.put(f"{A}/1")
    assert (before.queued, queue.statistics().queued) == (0, 1)
