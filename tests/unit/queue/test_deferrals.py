from __future__ import annotations

import pytest

from politesse import (
    Gatekeeper,
)
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.unit.queue.crawl import A, B, Log, waiting


@pytest.mark.parametrize("status", [503, 429])
async def test_unreachable_robots_txt_defers_and_the_url_is_handed_out_later(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, clock: ManualClock, status: int
) -> None:
    fetcher.answers[A] = [status, status, 404]
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert 180 <= clock.monotonic() <= 220
    assert fetcher.count(A) == 3


async def test_known_to_be_unreachable_defers_too(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = [503, 404]
    await gate.check(A)
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        assert queue.statistics().deferred == 1
        assert await worker == f"{A}/1"


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_after_so_many_deferrals_all_of_the_origin_is_refused(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, most: int
) -> None:
    fetcher.answers[A] = 503
    refused: list[object] = []
    queue: PoliteQueue[object] = PoliteQueue(
        gate, on_disallowed=lambda item, _: refused.append(item), max_deferrals=most
    )
    for place in range(3):
        await queue.put(f"{A}/{place}")
    await Log(queue, clock).drain(workers=2)
    assert refused == [f"{A}/{place}" for place in range(3)]
    assert fetcher.count(A) == most + 1
    await queue.join()


async def test_answers_in_between_begin_the_count_of_deferrals_anew(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [503, 404, 503, 404]
    queue: PoliteQueue[object] = PoliteQueue(gate, max_deferrals=1)
    for place in range(2):
        await queue.put(f"{A}/{place}")
    async with queue.turn():
        pass
    await gate.forget(A)
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
