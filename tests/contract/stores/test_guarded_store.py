import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise

import pytest

from politesse._cache.guarded_store import GuardedStore, StorePaused
from politesse.errors import StoreError
from politesse.stores import MemoryStore
from politesse.testing import ManualClock
from tests.support.stores import FailingStore, KeptStore
from tests.support.tasks import settle

LIMIT_S = 5.0


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class Bench:
    def __init__(self, store: KeptStore) -> None:
        self.clock = ManualClock(autojump=True)
        self.store = store
        self.guarded = GuardedStore(store, timeout_s=LIMIT_S, clock=self.clock)

    async def get(self) -> str:
        """Return the outcome of a call: a record, or the text of an error."""
        try:
            return str(await self.guarded.get("key"))
        except (StoreError, StorePaused) as error:
            return f"{type(error).__name__}: {error}"

    async def calls(self) -> list[float]:
        """Call each second for a quarter of an hour; return when the store itself was called."""
        called: list[float] = []
        end_mono = self.clock.monotonic() + 900.0
        while (now_mono := self.clock.monotonic()) < end_mono:
            before = self.store.count("get")
            await self.get()
            called += [now_mono] * (self.store.count("get") - before)
            await self.clock.sleep(1.0)
        return called


async def test_store_that_hangs_is_left_alone_for_ever_longer() -> None:
    bench = Bench(FailingStore({}, "get"))
    called = await bench.calls()
    gaps = [after - before - LIMIT_S for before, after in pairwise(called)]
    assert gaps == pytest.approx([5, 10, 20, 40, 80, 160, 300], abs=2.1)


async def test_third_failure_in_a_row_pauses_the_store_and_says_so() -> None:
    bench = Bench(FailingStore({}, "get", fail=raising(StoreError("the disk is full"))))
    answers = [await bench.get() for _ in range(5)]
    assert answers[:2] == ["StoreError: the disk is full"] * 2
    assert answers[2] == "StoreError: the disk is full; the store is paused for 5 s"
    assert answers[3].startswith("StorePaused: the store is paused after a failure")
    assert bench.store.count("get") == 3


async def test_one_call_is_made_on_trial_and_its_success_ends_the_pauses() -> None:
    store = FailingStore({"key": b"record"}, "get")
    bench = Bench(store)
    await bench.get()
    await bench.clock.sleep(6)
    called = store.count("get")
    trials = [asyncio.ensure_future(bench.get()) for _ in range(10)]
    await settle(2)
    assert store.count("get") == called + 1
    store.methods.clear()
    store.release.set()
    answers = await asyncio.gather(*trials)
    assert sorted(answer.split(":")[0] for answer in answers) == ["StorePaused"] * 9 + ["b'record'"]
    assert [await bench.get() for _ in range(3)] == ["b'record'"] * 3


async def test_error_that_no_store_should_raise_is_raised_and_pauses_nothing() -> None:
    for error in (OSError("disk"), ZeroDivisionError("bug"), KeyError("bug")):
        bench = Bench(FailingStore({}, "get", fail=raising(error)))
        for _ in range(5):
            with pytest.raises(type(error)):
                await bench.guarded.get("key")
        assert bench.store.count("get") == 5


async def test_store_in_memory_is_called_without_a_task_or_a_limit() -> None:
    clock = ManualClock()
    guarded = GuardedStore(MemoryStore(), timeout_s=LIMIT_S, clock=clock)
    tasks = asyncio.all_tasks()
    putting: Coroutine[object, object, None] = guarded.put("key", b"record")
    with pytest.raises(StopIteration):
        putting.send(None)
    assert asyncio.all_tasks() == tasks
    assert not guarded.outlives
    assert await guarded.get("key") == b"record"


async def test_close_waits_for_pending_calls_and_then_closes_the_store_though_it_is_left_alone() -> None:
    store = FailingStore({}, "get")
    bench = Bench(store)
    await bench.get()
    pending = bench.guarded.run(bench.clock.sleep(2.0))
    assert await bench.guarded.aclose() is None
    assert pending.done()
    assert store.closed
    assert await bench.get() == "StorePaused: the store is closed"
