"""What every Store promises. A new one is added to STORES and has to pass as it is."""

import asyncio
import hashlib
import pathlib
import re
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from politesse.errors import StoreError
from politesse.origin import Origin
from politesse.ports import Lease, LeaseHeld, LeasingStore, Store, UpdatingStore, VersionedRecord
from politesse.stores import MemoryStore, SharedMemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.stores import KEY, leased
from tests.support.tasks import settle

GUIDE: Final = (pathlib.Path(__file__).parents[3] / "src/politesse/guides/restarts.md").read_text()
[EXAMPLE] = re.findall(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def _memory(_: Path) -> Store:
    return MemoryStore()


def _shared_memory(_: Path) -> SharedMemoryStore:
    return SharedMemoryStore()


def _sqlite(place: Path) -> SqliteStore:
    return SqliteStore(place / "robots.db")


def _of_the_guide(place: Path) -> Store:
    namespace: dict[str, Any] = {
        "asyncio": asyncio,
        "hashlib": hashlib,
        "pathlib": pathlib,
        "secrets": secrets,
        "StoreError": StoreError,
    }
    exec(EXAMPLE, namespace)  # noqa: S102 - a file of this tree
    store: Store = namespace["FolderStore"](place)
    return store


def _redis(place: Path, server: str) -> RedisStore:
    return RedisStore(shared_server(server).url, prefix=f"{place}:")


# Each makes a store; those that keep records beyond the process keep them at the place.
UPDATING: dict[str, Callable[[Path], UpdatingStore]] = {
    "sqlite": _sqlite,
    **{f"redis, {name}": partial(_redis, server=name) for name in EXECUTABLES},
}
PERSISTENT: dict[str, Callable[[Path], Store]] = {**UPDATING}
LEASING: dict[str, Callable[[Path], LeasingStore]] = {
    "shared memory": _shared_memory,
    **{f"redis, {name}": partial(_redis, server=name) for name in EXECUTABLES},
}
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": _memory,
    "shared memory": _shared_memory,
    "of the guide": _of_the_guide,
    **PERSISTENT,
}


stores = pytest.mark.parametrize("make", STORES.values(), ids=STORES)
updating_stores = pytest.mark.parametrize("make", UPDATING.values(), ids=UPDATING)
persistent_stores = pytest.mark.parametrize("make", PERSISTENT.values(), ids=PERSISTENT)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    await made.aclose()


async def test_a_missing_record_is_none(store: Store) -> None:
    assert await store.get(KEY) is None


async def test_a_record_is_returned_as_it_was_put(store: Store) -> None:
    await store.put(KEY, b"record")
    assert await store.get(KEY) == b"record"


async def test_getting_a_record_does_not_remove_it(store: Store) -> None:
    await store.put(KEY, b"record")
    assert [await store.get(KEY) for _ in range(3)] == [b"record"] * 3


@pytest.mark.parametrize("second", [b"new", b"", b"a longer record than the one before"])
async def test_putting_a_record_replaces_the_earlier_one(store: Store, second: bytes) -> None:
    await store.put(KEY, b"the old one")
    await store.put(KEY, second)
    assert await store.get(KEY) == second


async def test_a_deleted_record_is_none_and_can_be_put_again(store: Store) -> None:
    await store.put(KEY, b"record")
    await store.delete(KEY)
    assert await store.get(KEY) is None
    await store.put(KEY, b"again")
    assert await store.get(KEY) == b"again"


async def test_deleting_a_missing_record_does_nothing(store: Store) -> None:
    await store.put("https://other.example", b"record")
    await store.delete(KEY)
    assert await store.get(KEY) is None
    assert await store.get("https://other.example") == b"record"


@pytest.mark.parametrize(
    "record",
    [b"", b"\x00", bytes(range(256)), b"\r\n\x1a\xff\xfe", b"politesse/1 ", b"x" * 1_000_000, b"\x00" * 20_000_000],
    ids=["empty", "NUL", "every octet", "line ends", "version", "a megabyte", "twenty megabytes"],
)
async def test_any_octets_come_back_as_they_were(store: Store, record: bytes) -> None:
    await store.put(KEY, record)
    assert await store.get(KEY) == record


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
    keys = [str(Origin.of(url)) for url in urls]
    assert len(set(keys)) == len(urls)
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number)
    assert [await store.get(key) for key in keys] == [b"%d" % number for number in range(len(keys))]
    await store.delete(keys[0])
    assert [await store.get(key) for key in keys] == [None, *(b"%d" % number for number in range(1, len(keys)))]


async def test_a_key_is_compared_as_a_whole_and_with_its_case(store: Store) -> None:
    await store.put(KEY, b"record")
    for key in (KEY[:-1], KEY + "/", KEY.upper(), "", "%", "*", "https://example_com", KEY + "\x00"):
        assert await store.get(key) is None, key


async def test_concurrent_tasks_each_get_their_own_record(store: Store) -> None:
    async def use(number: int) -> None:
        key = f"https://host{number}.example"
        for turn in range(10):
            record = b"%d %d" % (number, turn)
            await store.put(key, record)
            assert await store.get(key) == record
        await store.delete(key)
        assert await store.get(key) is None

    await asyncio.gather(*(use(number) for number in range(50)))


async def test_concurrent_writes_of_one_key_keep_one_whole_record(store: Store) -> None:
    records = [bytes([number]) * 10_000 for number in range(20)]
    await asyncio.gather(*(store.put(KEY, record) for record in records))
    assert await store.get(KEY) in records


async def test_any_text_is_a_key_of_its_own(store: Store) -> None:
    keys = ["", "\x00", "a\x00", "a\x00b", "a", "ä", "a\u0308", "\ud800", "\udfff", "\U0001f916", "%00", "x" * 10_000]
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number)
    assert [await store.get(key) for key in keys] == [b"%d" % number for number in range(len(keys))]
    await store.delete("\ud800")
    assert await store.get("\ud800") is None
    assert await store.get("\udfff") == b"8"


async def test_a_cancelled_caller_harms_no_other(store: Store) -> None:
    tasks = [asyncio.create_task(store.put(f"key-{number}", b"record")) for number in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {repr(result) for at, result in enumerate(results) if at % 3} == {"None"}
    for number in range(30):
        record = await store.get(f"key-{number}")
        assert record == b"record" or (number % 3 == 0 and record is None)


@stores
async def test_an_unused_store_can_be_closed(make: Callable[[Path], Store], tmp_path: Path) -> None:
    await make(tmp_path).aclose()


@stores
async def test_a_store_can_be_closed_twice_and_by_two_tasks(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path)
    await store.put(KEY, b"record")
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()


@persistent_stores
async def test_a_closed_store_raises_a_store_error(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path)
    await store.put(KEY, b"record")
    await store.aclose()
    for late in (store.get(KEY), store.put(KEY, b"late"), store.delete(KEY)):
        with pytest.raises(StoreError, match="closed"):
            await late


@persistent_stores
async def test_closing_finishes_the_calls_under_way(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path)
    puts = [asyncio.create_task(store.put(f"key-{number}", b"record")) for number in range(100)]
    await settle()
    await store.aclose()
    await asyncio.gather(*puts)
    store = make(tmp_path)
    assert [await store.get(f"key-{number}") for number in range(100)] == [b"record"] * 100
    await store.aclose()


@persistent_stores
async def test_records_are_there_when_the_store_is_made_again(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path)
    await store.put(KEY, b"first")
    await store.put(KEY, b"kept")
    await store.put("https://gone.example", b"record")
    await store.delete("https://gone.example")
    await store.aclose()
    store = make(tmp_path)
    assert await store.get(KEY) == b"kept"
    assert await store.get("https://gone.example") is None
    await store.aclose()


@persistent_stores
async def test_what_one_store_acknowledged_another_at_the_same_place_sees(
    make: Callable[[Path], Store], tmp_path: Path
) -> None:
    first, second = make(tmp_path), make(tmp_path)
    for turn in range(20):
        writer, reader = (first, second) if turn % 2 else (second, first)
        await writer.put(KEY, b"%d" % turn)
        assert await reader.get(KEY) == b"%d" % turn
    await first.delete(KEY)
    assert await second.get(KEY) is None
    await first.aclose()
    await second.put(KEY, b"alone")
    assert await second.get(KEY) == b"alone"
    await second.aclose()


@persistent_stores
async def test_stores_at_one_place_write_at_the_same_time(make: Callable[[Path], Store], tmp_path: Path) -> None:
    several = [make(tmp_path) for _ in range(4)]

    async def write(store: Store, name: int) -> None:
        for number in range(50):
            await store.put(f"{name}-{number}", b"%d" % number)

    await asyncio.gather(*(write(store, name) for name, store in enumerate(several)))
    for name in range(4):
        for number in range(50):
            assert await several[-1 - name].get(f"{name}-{number}") == b"%d" % number
    await asyncio.gather(*(store.aclose() for store in several))


# The optional ``update``.


def _count(record: bytes | None) -> bytes:
    return b"%d" % (int(record or b"0") + 1)


@stores
async def test_the_stores_that_update_are_those_that_are_tested_as_such(
    make: Callable[[Path], Store], tmp_path: Path
) -> None:
    store = make(tmp_path)
    assert isinstance(store, UpdatingStore) == (make in UPDATING.values())
    await store.aclose()


@updating_stores
async def test_an_update_is_given_the_record_and_keeps_what_is_made_of_it(
    make: Callable[[Path], UpdatingStore], tmp_path: Path
) -> None:
    store = make(tmp_path)
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
    await store.aclose()


@updating_stores
async def test_no_update_is_lost_among_tasks_and_stores_at_one_place(
    make: Callable[[Path], UpdatingStore], tmp_path: Path
) -> None:
    several = [make(tmp_path) for _ in range(3)]

    async def count(store: UpdatingStore) -> None:
        for _ in range(20):
            await store.update(KEY, _count)

    await asyncio.gather(*(count(store) for store in several for _ in range(5)))
    assert await several[0].get(KEY) == b"300"
    await asyncio.gather(*(store.aclose() for store in several))


class Odd(BaseException):
    """Neither an Exception nor an error of a store."""


@updating_stores
@pytest.mark.parametrize("error", [LookupError("no such word"), StoreError("damaged"), Odd("odd")])
async def test_what_a_change_raises_is_raised_in_its_caller_only(
    make: Callable[[Path], UpdatingStore], tmp_path: Path, error: BaseException
) -> None:
    def fail(_: bytes | None) -> bytes:
        raise error

    store = make(tmp_path)
    await store.put(KEY, b"4")
    others = [asyncio.ensure_future(store.update(key, _count)) for key in (KEY, "other")]
    with pytest.raises(type(error), match=str(error)):
        await store.update(KEY, fail)
    others += [asyncio.ensure_future(store.update(key, _count)) for key in (KEY, "other")]
    await asyncio.gather(*others)
    assert (await store.get(KEY), await store.get("other")) == (b"6", b"2")
    await store.aclose()


@updating_stores
async def test_a_cancelled_update_harms_no_other(make: Callable[[Path], UpdatingStore], tmp_path: Path) -> None:
    store = make(tmp_path)
    tasks = [asyncio.create_task(store.update(KEY, _count)) for _ in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {repr(result) for at, result in enumerate(results) if at % 3} == {"None"}
    assert 20 <= int(await store.get(KEY) or b"0") <= 30
    await store.aclose()


@updating_stores
async def test_an_update_at_the_close_is_kept_or_refused_and_a_later_one_is_refused(
    make: Callable[[Path], UpdatingStore], tmp_path: Path
) -> None:
    store = make(tmp_path)
    updates = [asyncio.create_task(store.update(KEY, _count)) for _ in range(50)]
    await settle()
    await store.aclose()
    results = await asyncio.gather(*updates, return_exceptions=True)
    kept = results.count(None)
    assert all("closed" in str(error) for error in results if error is not None)
    with pytest.raises(StoreError, match="closed"):
        await store.update(KEY, _count)
    store = make(tmp_path)
    assert int(await store.get(KEY) or b"0") == kept
    await store.aclose()


# Stores that lease.


@pytest.fixture(params=LEASING)
async def leasing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LeasingStore]:
    made = LEASING[request.param](tmp_path)
    yield made
    await made.aclose()


async def test_one_at_a_time_has_the_lease_of_a_key(leasing: LeasingStore) -> None:
    lease = await leased(leasing)
    held = await leasing.get_or_lease(KEY, "")
    assert isinstance(held, LeaseHeld)
    assert 0.0 < held.left_s <= lease.lasts_s
    await leased(leasing, "https://other.example")
    await leasing.release(KEY, lease)
    assert (await leased(leasing)).token > lease.token


async def test_of_many_that_ask_at_once_one_has_the_lease(leasing: LeasingStore) -> None:
    found = await asyncio.gather(*(leasing.get_or_lease(KEY, "") for _ in range(200)))
    assert [isinstance(one, Lease) for one in found].count(True) == 1


async def test_a_record_that_is_known_is_leased_and_another_one_returned(leasing: LeasingStore) -> None:
    await leasing.put(KEY, b"one")
    first = await leasing.get_or_lease(KEY, "")
    assert isinstance(first, VersionedRecord)
    assert first.record == b"one"
    lease = await leased(leasing, KEY, first.version)
    assert isinstance(await leasing.get_or_lease(KEY, first.version), LeaseHeld)
    assert await leasing.get_or_lease(KEY, "") == first
    await leasing.renew({KEY: lease})
    assert await leasing.put_leased(KEY, b"two", lease)
    second = await leasing.get_or_lease(KEY, first.version)
    assert isinstance(second, VersionedRecord)
    assert (second.record, await leasing.get(KEY)) == (b"two", b"two")
    assert second.version > first.version
    await leased(leasing, KEY, second.version)  # the record ended the lease


async def test_record_is_refused_if_another_lease_was_granted_or_a_record_put_since(leasing: LeasingStore) -> None:
    lease = await leased(leasing)
    await leasing.release(KEY, lease)
    newer = await leased(leasing)
    assert not await leasing.put_leased(KEY, b"late", lease)
    await leasing.release(KEY, lease)  # of another lease: no effect
    await leasing.put(KEY, b"put")
    assert not await leasing.put_leased(KEY, b"late", newer)
    assert await leasing.get(KEY) == b"put"
