import asyncio
import gc
import weakref

import pytest

from politesse import ClosedError, Gatekeeper
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import settle
from tests.unit.queue.crawl import UA, A, B, Log, Queue, fetch_task, put, running_timers, waiting


async def test_join_waits_for_turns_under_way(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
        assert not joined.done()
    await joined


async def test_closed_queue_hands_out_what_it_holds_and_then_raises(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    queue.close()
    with pytest.raises(QueueClosed, match=r"put after the queue was closed"):
        await queue.put(f"{A}/2")
    with pytest.raises(QueueClosed):
        queue.put_nowait(f"{A}/2")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        with pytest.raises(QueueClosed, match="nothing is left"):
            async with queue.turn():
                pytest.fail("there is no turn")
    await queue.join()


async def standing(fetcher: ScriptedFetcher, state: str) -> tuple[Gatekeeper, Queue, ManualClock]:
    """Return a queue with one URL in it, on a clock that stands still, so that nothing else could free anybody."""
    clock = ManualClock()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    if state == "deferred":
        fetcher.answers[A] = 503
    else:
        await gate.check(A)
    queue: Queue = PoliteQueue(gate, maxsize=1)
    if state != "empty":
        await queue.put(f"{A}/1")
    await settle()
    return gate, queue, clock


@pytest.mark.parametrize("state", ["empty", "ready", "deferred"])
async def test_closing_the_gatekeeper_wakes_at_once_tasks_that_no_other_event_would_wake(
    fetcher: ScriptedFetcher, state: str
) -> None:
    gate, queue, clock = await standing(fetcher, state)
    waits = []
    if state != "empty":
        waits += [queue.join(), queue.put(f"{A}/2"), queue.put(f"{A}/3")]
    if state != "ready":
        waits += [Log(queue, clock).work(), Log(queue, clock).work()]
    tasks = [asyncio.create_task(wait) for wait in waits]
    await settle()
    assert not any(task.done() for task in tasks)
    await gate.aclose()
    await settle()
    assert all(task.done() for task in tasks)
    assert [type(task.exception()) for task in tasks] == [ClosedError] * len(tasks)


async def test_an_answer_in_the_moment_of_the_close_starts_nothing(fetcher: ScriptedFetcher) -> None:
    clock = ManualClock()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    fetcher.answers[A] = 503
    queue: Queue = PoliteQueue(gate)
    fetcher.gate.clear()
    await put(queue, *(f"https://h{place}.example/" for place in range(99)))
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")  # there is no room for its fetch
    task = fetch_task(A)
    await settle()
    fetcher.gate.set()
    while not task.done():
        await asyncio.sleep(0)
    await gate.aclose()
    await settle()
    assert task.exception() is None
    assert not running_timers(clock)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert fetcher.count(B) == 0


async def test_join_raises_if_the_gatekeeper_is_closed_during_the_last_turn(queue: Queue, gate: Gatekeeper) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        await gate.aclose()
        with pytest.raises(ClosedError):
            await queue.join()


async def test_queue_of_a_closed_gatekeeper_raises(queue: Queue, gate: Gatekeeper) -> None:
    await gate.aclose()
    with pytest.raises(ClosedError):
        await queue.put(f"{A}/1")
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [ClosedError] * 3


async def test_a_gatekeeper_keeps_no_queue_alive(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate)
    seen = weakref.ref(queue)
    del queue
    gc.collect()
    assert seen() is None
    assert gate.state.closing == {}


async def test_the_close_of_the_gatekeeper_is_the_cause_of_later_errors(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    await settle()
    await gate.aclose()
    await settle()
    with pytest.raises(ClosedError, match="1 URLs queued") as raised:
        await queue.put(f"{B}/1")
    assert str(raised.value.__cause__) == "the gatekeeper was closed"


async def test_close_wakes_tasks_that_wait_to_put(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = [asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3)]
    await settle()
    queue.close()
    results = await asyncio.gather(*blocked, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 2


async def test_closing_the_gatekeeper_leaves_no_timer_and_no_deferral(fetcher: ScriptedFetcher) -> None:
    gate, queue, clock = await standing(fetcher, "deferred")
    assert queue.statistics().deferred == 1
    assert running_timers(clock)
    await gate.aclose()
    await settle()
    assert queue.statistics().deferred == 0
    assert not running_timers(clock)


async def test_join_ends_well_if_all_was_done_before_the_gatekeeper_was_closed(queue: Queue, gate: Gatekeeper) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
    await gate.aclose()
    await joined
    await queue.join()
