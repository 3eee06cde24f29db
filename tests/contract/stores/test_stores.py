"""What every Store promises. A new one is added to STORES and has to pass as it is; then what is MemoryStore's own."""

import asyncio
import hashlib
import pathlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.records import GuardedStore, StorePaused
from politesse.errors import ConfigurationError, StoreError
from politesse.origin import Origin
from politesse.ports import Lease, LeaseHeld, LeasingStore, Store, UpdatingStore, VersionedRecord
from politesse.stores import MemoryStore, SharedMemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.stores import KEY, FailingStore, KeptStore, leased
from tests.support.tasks import settle

GUIDE: Final = (pathlib.Path(__file__).parents[3] / "src/politesse/guides/restarts.md").read_text()
[EXAMPLE] = re.findall(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def _of_the_guide(place: Path) -> Store:
    modules = {"asyncio": asyncio, "hashlib": hashlib, "pathlib": pathlib, "secrets": secrets}
    namespace: dict[str, Any] = {**modules, "StoreError": StoreError}
    exec(EXAMPLE, namespace)  # noqa: S102 - a file of this tree
    store: Store = namespace["FolderStore"](place)
    return store


def _redis(place: Path, server: str) -> RedisStore:
    return RedisStore(shared_server(server).url, prefix=f"{place}:")


# Each makes a store; those that keep records beyond the process keep them at the place.
REDIS: Final = {f"redis, {name}": partial(_redis, server=name) for name in EXECUTABLES}
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "shared memory": lambda _: SharedMemoryStore(),
    "of the guide": _of_the_guide,
    "sqlite": lambda place: SqliteStore(place / "robots.db"),
    **REDIS,
}
UPDATING: Final = ["sqlite", *REDIS]
LEASING: Final = ["shared memory", *REDIS]


def of_kinds(kinds: list[str]) -> pytest.MarkDecorator:
    """Of several servers of Redis, all but the first are for the full run."""
    full = list(REDIS)[1:]
    return pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.full] * (k in full)) for k in kinds])


every_store = of_kinds(list(STORES))
updating_stores = of_kinds(UPDATING)  # they are those that keep records beyond the process
leasing_stores = of_kinds(LEASING)


@pytest.fixture
async def make(kind: str, tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Make stores of a kind at one place, and close them at the end."""
    made: list[Store] = []

    def make() -> Store:
        made.append(STORES[kind](tmp_path))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
def store(make: Callable[[], Any]) -> Any:
    return make()


@every_store
async def test_a_record_is_the_one_that_was_put_last_until_it_is_deleted(store: Store) -> None:
    await store.delete(KEY)
    assert await store.get(KEY) is None
    await store.put("https://other.example", b"another")
    for record in (b"record", b"new", b"", b"a longer record than the one before"):
        await store.put(KEY, record)
        assert [await store.get(KEY) for _ in range(3)] == [record] * 3
    await store.delete(KEY)
    assert await store.get(KEY) is None
    await store.delete(KEY)
    await store.put(KEY, b"again")
    assert [await store.get(key) for key in (KEY, "https://other.example")] == [b"again", b"another"]


@every_store
async def test_any_octets_come_back_as_they_were(store: Store) -> None:
    records = [b"", b"\x00", bytes(range(256)), b"\r\n\x1a\xff\xfe", b"politesse/1 ", b"\x00" * 5_000_000]
    for record in records:
        await store.put(KEY, record)
        assert await store.get(KEY) == record


@every_store
@pytest.mark.clause("RFC 9309 2.3")
async def test_records_of_different_origins_do_not_touch_each_other(store: Store) -> None:
    urls = [
        "https://example.com/",
        "http://example.com/",
        "https://example.com:8443/",
        "https://www.example.com/",
        "https://example.com./",
        "https://münchen.example/",
        "https://xn--e1afmkfd.example/",
        "https://[2001:db8::1]/",
        "https://[2001:db8::1]:8443/",
        "https://192.0.2.1/",
        "https://under_score.example/",
        "https://" + ".".join(["a" * 61] * 4) + "/",
    ]
    kept: dict[str, bytes | None] = {str(Origin.of(url)): url.encode() for url in urls}
    assert len(kept) == len(urls)
    for key, record in kept.items():
        await store.put(key, record or b"")
    assert {key: await store.get(key) for key in kept} == kept
    await store.delete("https://example.com")
    kept["https://example.com"] = None
    assert {key: await store.get(key) for key in kept} == kept


@every_store
async def test_any_text_is_a_key_of_its_own_compared_as_a_whole_and_with_its_case(store: Store) -> None:
    await store.put(KEY, b"record")
    for key in (KEY[:-1], KEY + "/", KEY.upper(), "", "%", "*", "https://example_com", KEY + "\x00"):
        assert await store.get(key) is None, key
    keys = ["", "\x00", "a\x00", "a\x00b", "a", "ä", "a\u0308", "\ud800", "\udfff", "\U0001f916", "%00", "x" * 10_000]
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number)
    assert [await store.get(key) for key in keys] == [b"%d" % number for number in range(len(keys))]
    await store.delete("\ud800")
    assert await store.get("\ud800") is None
    assert await store.get("\udfff") == b"8"


@every_store
async def test_concurrent_tasks_each_get_their_own_record(store: Store) -> None:
    async def use(number: int) -> None:
        key = f"https://host{number}.example"
        for turn in range(3):
            record = b"%d %d" % (number, turn)
            await store.put(key, record)
            assert await store.get(key) == record
        await store.delete(key)
        assert await store.get(key) is None

    await asyncio.gather(*(use(number) for number in range(50)))
    records = [bytes([number]) * 10_000 for number in range(20)]
    await asyncio.gather(*(store.put(KEY, record) for record in records))
    assert await store.get(KEY) in records


@every_store
async def test_a_cancelled_caller_harms_no_other(store: Store) -> None:
    calls = [[store.put(f"key-{number}", b"record") for number in range(30)]]
    calls += [[store.update(KEY, _count) for _ in range(30)]] if isinstance(store, UpdatingStore) else []
    for several in calls:
        tasks = [asyncio.ensure_future(call) for call in several]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {repr(result) for at, result in enumerate(results) if at % 3} == {"None"}
    for number in range(30):
        record = await store.get(f"key-{number}")
        assert record == b"record" or (number % 3 == 0 and record is None)
    assert len(calls) == 1 or 20 <= int(await store.get(KEY) or b"0") <= 30


@every_store
async def test_a_store_can_be_closed_unused_and_twice_and_by_two_tasks(make: Callable[[], Store]) -> None:
    await make().aclose()
    store = make()
    await store.put(KEY, b"record")
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()


@every_store
async def test_the_stores_that_update_and_lease_are_those_that_are_tested_as_such(store: Store, kind: str) -> None:
    assert isinstance(store, UpdatingStore) == (kind in UPDATING)
    assert isinstance(store, LeasingStore) == (kind in LEASING)


# Stores that keep records beyond the process, and update them


@updating_stores
async def test_a_closed_store_raises_a_store_error(store: UpdatingStore) -> None:
    await store.put(KEY, b"record")
    await store.aclose()
    for late in (store.get(KEY), store.put(KEY, b"late"), store.delete(KEY), store.update(KEY, _count)):
        with pytest.raises(StoreError, match="closed"):
            await late


@updating_stores
async def test_closing_finishes_the_calls_under_way(make: Callable[[], Store]) -> None:
    store = make()
    puts = [asyncio.create_task(store.put(f"key-{number}", b"record")) for number in range(100)]
    await settle()
    await store.aclose()
    await asyncio.gather(*puts)
    store = make()
    assert [await store.get(f"key-{number}") for number in range(100)] == [b"record"] * 100


@updating_stores
async def test_what_one_store_acknowledged_another_at_the_same_place_sees(make: Callable[[], Store]) -> None:
    first, second = make(), make()
    for turn in range(6):
        writer, reader = (first, second) if turn % 2 else (second, first)
        await writer.put(KEY, b"%d" % turn)
        assert await reader.get(KEY) == b"%d" % turn
    await first.delete(KEY)
    assert await second.get(KEY) is None
    await first.aclose()
    await second.put(KEY, b"alone")
    await second.put("https://gone.example", b"record")
    await second.delete("https://gone.example")
    await second.aclose()
    later = make()
    assert [await later.get(key) for key in (KEY, "https://gone.example")] == [b"alone", None]


@updating_stores
async def test_stores_at_one_place_write_at_the_same_time(make: Callable[[], Store]) -> None:
    several = [make() for _ in range(4)]

    async def write(store: Store, name: int) -> None:
        for number in range(20):
            await store.put(f"{name}-{number}", b"%d" % number)

    await asyncio.gather(*(write(store, name) for name, store in enumerate(several)))
    for name in range(4):
        for number in range(20):
            assert await several[-1 - name].get(f"{name}-{number}") == b"%d" % number


def _count(record: bytes | None) -> bytes:
    return b"%d" % (int(record or b"0") + 1)


@updating_stores
async def test_an_update_is_given_the_record_and_keeps_what_is_made_of_it(store: UpdatingStore) -> None:
    given: list[bytes | None] = []

    def change(record: bytes | None) -> bytes:
        given.append(record)
        return bytes(range(256))

    await store.update(KEY, change)
    await store.put(KEY, b"put")
    await store.update(KEY, change)
    await store.delete(KEY)
    await store.update(KEY, change)
    assert given == [None, b"put", None]
    assert await store.get(KEY) == bytes(range(256))
    assert await store.get("https://other.example") is None


@updating_stores
async def test_no_update_is_lost_among_tasks_and_stores_at_one_place(make: Callable[[], UpdatingStore]) -> None:
    several = [make() for _ in range(3)]

    async def count(store: UpdatingStore) -> None:
        for _ in range(8):
            await store.update(KEY, _count)

    await asyncio.gather(*(count(store) for store in several for _ in range(4)))
    assert await several[0].get(KEY) == b"96"


class Odd(BaseException):
    """Neither an Exception nor an error of a store."""


@updating_stores
async def test_what_a_change_raises_is_raised_in_its_caller_only(store: UpdatingStore) -> None:
    for error in (LookupError("no such word"), StoreError("damaged"), Odd("odd")):

        def fail(_: bytes | None, error: BaseException = error) -> bytes:
            raise error

        await store.put(KEY, b"4")
        await store.put("other", b"0")
        others = [asyncio.ensure_future(store.update(key, _count)) for key in (KEY, "other")]
        with pytest.raises(type(error), match=str(error)):
            await store.update(KEY, fail)
        others += [asyncio.ensure_future(store.update(key, _count)) for key in (KEY, "other")]
        await asyncio.gather(*others)
        assert (await store.get(KEY), await store.get("other")) == (b"6", b"2")


@updating_stores
async def test_an_update_at_the_close_is_kept_or_refused(make: Callable[[], UpdatingStore]) -> None:
    store = make()
    updates = [asyncio.create_task(store.update(KEY, _count)) for _ in range(50)]
    await settle()
    await store.aclose()
    results = await asyncio.gather(*updates, return_exceptions=True)
    assert all("closed" in str(error) for error in results if error is not None)
    assert int(await make().get(KEY) or b"0") == results.count(None)


# Stores that lease


@leasing_stores
async def test_one_at_a_time_has_the_lease_of_a_key(store: LeasingStore) -> None:
    lease = await leased(store)
    held = await store.get_or_lease(KEY, "")
    assert isinstance(held, LeaseHeld)
    assert 0.0 < held.left_s <= lease.lasts_s
    await leased(store, "https://other.example")
    await store.release(KEY, lease)
    assert (await leased(store)).token > lease.token
    found = await asyncio.gather(*(store.get_or_lease("https://asked.example", "") for _ in range(200)))
    assert [isinstance(one, Lease) for one in found].count(True) == 1


@leasing_stores
async def test_a_record_that_is_known_is_leased_and_another_one_returned(store: LeasingStore) -> None:
    await store.put(KEY, b"one")
    first = await store.get_or_lease(KEY, "")
    assert isinstance(first, VersionedRecord)
    assert first.record == b"one"
    lease = await leased(store, KEY, first.version)
    assert isinstance(await store.get_or_lease(KEY, first.version), LeaseHeld)
    assert await store.get_or_lease(KEY, "") == first
    await store.renew({KEY: lease})
    assert await store.put_leased(KEY, b"two", lease)
    second = await store.get_or_lease(KEY, first.version)
    assert isinstance(second, VersionedRecord)
    assert (second.record, await store.get(KEY)) == (b"two", b"two")
    assert second.version > first.version
    await leased(store, KEY, second.version)  # the record ended the lease


@leasing_stores
async def test_record_is_refused_if_another_lease_was_granted_or_a_record_put_since(store: LeasingStore) -> None:
    lease = await leased(store)
    await store.release(KEY, lease)
    newer = await leased(store)
    assert not await store.put_leased(KEY, b"late", lease)
    await store.release(KEY, lease)  # of another lease: no effect
    await store.put(KEY, b"put")
    assert not await store.put_leased(KEY, b"late", newer)
    assert await store.get(KEY) == b"put"


# The bound of a MemoryStore


async def test_the_least_recently_used_record_is_evicted_first_keys_included() -> None:
    store = MemoryStore(max_bytes=100)
    for number in range(5):
        await store.put(f"key-{number}", bytes(19))  # 5 + 19 octets: four fit
    assert [await store.get(f"key-{number}") is not None for number in range(5)] == [False, True, True, True, True]
    assert len(store) == 4
    await store.get("key-1")
    await store.put("new-1", bytes(19))
    assert [await store.get(key) is not None for key in ("key-1", "key-2", "key-3")] == [True, False, True]
    await store.put("new-1", bytes(96))  # too large: it removes the record that it replaces
    assert await store.get("new-1") is None
    assert len(store) == 3


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 40)), max_size=60))
async def test_no_sequence_of_uses_exceeds_the_bound_or_mixes_records(steps: list[tuple[str, int | None]]) -> None:
    store = MemoryStore(max_bytes=64)
    last: dict[str, bytes] = {}
    for number, (key, size) in enumerate(steps):
        if size is None:
            await store.delete(key)
            last.pop(key, None)
        else:
            last[key] = bytes([number]) * size
            await store.put(key, last[key])
    kept = {key: record for key in "abcdefgh" if (record := await store.get(key)) is not None}
    assert sum(1 + len(record) for record in kept.values()) <= 64
    assert kept.items() <= last.items()


def test_a_store_without_room_is_a_configuration_error() -> None:
    for max_bytes in (0, -1):
        with pytest.raises(ConfigurationError, match=f"max_bytes={max_bytes}"):
            MemoryStore(max_bytes=max_bytes)


# The guard of a gate's store


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
            return str(await self.guarded.call(self.guarded.store.get, "key"))
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
                await bench.guarded.call(bench.guarded.store.get, "key")
        assert bench.store.count("get") == 5


async def test_store_in_memory_is_called_without_a_task_or_a_limit() -> None:
    clock = ManualClock()
    guarded = GuardedStore(MemoryStore(), timeout_s=LIMIT_S, clock=clock)
    tasks = asyncio.all_tasks()
    putting: Coroutine[object, object, None] = guarded.call(guarded.store.put, "key", b"record")
    with pytest.raises(StopIteration):
        putting.send(None)
    assert asyncio.all_tasks() == tasks
    assert not guarded.outlives
    assert await guarded.call(guarded.store.get, "key") == b"record"


async def test_close_waits_for_pending_calls_and_then_closes_the_store_though_it_is_left_alone() -> None:
    store = FailingStore({}, "get")
    bench = Bench(store)
    await bench.get()
    pending = bench.guarded.run(bench.clock.sleep(2.0))
    assert await bench.guarded.aclose() is None
    assert pending.done()
    assert store.closed
    assert await bench.get() == "StorePaused: the store is closed"
