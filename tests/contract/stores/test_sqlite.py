"""What is SqliteStore's own: its order, its bounds, and other connections to its file."""

import asyncio
import shutil
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import ConfigurationError, StoreError
from politesse.stores import SqliteStore, StoredRecord, StoreStatistics
from politesse.testing import ManualClock
from tests.support.programs import run_code
from tests.support.tasks import settle

START = 1_800_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall=START)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "robots.db", clock=clock)
    yield made
    await made.aclose()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with 2,500 records of 100 bytes with their keys, a second apart."""
    clock = ManualClock(wall=START)
    store = SqliteStore(tmp_path_factory.mktemp("filled") / "robots.db", clock=clock)

    async def fill_and_close() -> None:
        await fill(store, clock, 2_500)
        await store.aclose()

    asyncio.run(fill_and_close())
    return store.path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path_factory.mktemp("small") / "robots.db", max_bytes=64)
    yield store
    asyncio.run(store.aclose())


@pytest.fixture
async def full(filled: Path, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store of these records, as old as they are then."""
    path = shutil.copy(filled, tmp_path / "robots.db")
    async with aclosing(SqliteStore(path, clock=ManualClock(wall=START + 2_500))) as store:
        yield store


async def fill(store: SqliteStore, clock: ManualClock, count: int) -> None:
    for number in range(count):
        await store.put(f"key{number:04}", bytes([number % 251]) * 93)
        clock.advance(1)


async def keys(store: SqliteStore) -> list[str]:
    return [record.key async for record in store.records()]


async def test_all_records_are_listed_in_the_order_in_which_they_were_stored(
    store: SqliteStore, clock: ManualClock
) -> None:
    await fill(store, clock, 120)
    await store.put("key0000", b"again")
    await store.put("\ud800\x00", b"any key")
    listed = [record async for record in store.records()]
    assert listed[0] == StoredRecord("key0001", START + 1, b"\x01" * 93)
    assert listed[-2:] == [
        StoredRecord("key0000", START + 120, b"again"),
        StoredRecord("\ud800\x00", START + 120, b"any key"),
    ]
    assert len(listed) == 121


async def test_records_that_are_stored_while_all_are_listed_are_listed_too(store: SqliteStore) -> None:
    for number in range(60):
        await store.put(str(number), b"record")
    listed = []
    async for record in store.records():
        listed.append(record.key)
        if record.key == "0":
            await store.put("59", b"again")
            await store.put("late", b"record")
    assert listed == [*map(str, range(60)), "late"]


async def test_the_oldest_records_make_room_for_new_ones(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(tmp_path / "robots.db", max_bytes=1_000, clock=clock)
    await fill(store, clock, 10)
    await store.put("key0000", bytes(93))  # it is the newest now
    await store.put("key0010", bytes(193))
    assert await keys(store) == [*(f"key{number:04}" for number in range(3, 10)), "key0000", "key0010"]
    assert (await store.statistics()).record_bytes == 1_000
    await store.aclose()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 40), st.booleans()), max_size=40))
async def test_no_sequence_of_uses_exceeds_the_bound_or_mixes_records(
    small: SqliteStore, steps: list[tuple[str, int | None, bool]]
) -> None:
    await small.prune(max_bytes=0)
    last: dict[str, bytes] = {}
    for number, (key, size, updates) in enumerate(steps):
        last.pop(key, None)
        if size is None:
            await small.delete(key)
        else:
            last[key] = record = bytes([number]) * size
            await (small.update(key, lambda _, record=record: record) if updates else small.put(key, record))  # type: ignore[misc]
    kept = {record.key: record.record async for record in small.records()}
    assert list(kept.items()) == list(last.items())[len(last) - len(kept) :]  # the newest
    assert (await small.statistics()).record_bytes == sum(1 + len(record) for record in kept.values()) <= 64


async def test_an_update_that_waits_for_a_lock_is_given_what_the_other_process_wrote(store: SqliteStore) -> None:
    await store.put("key", b"old")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        update = asyncio.ensure_future(store.update("key", lambda record: (record or b"none") + b", updated"))
        await settle()
        other.execute("UPDATE records SET record = CAST('theirs' AS BLOB)")
        assert not update.done()
        reader = SqliteStore(store.path, busy_timeout_s=0.2)  # a file that is there is opened beside a writer
        assert await reader.get("key") == b"old"
        other.execute("COMMIT")
    await update
    assert await store.get("key") == b"theirs, updated"
    await reader.aclose()


NEWEST = [f"key{number:04}" for number in range(2_490, 2_500)]


async def test_pruning_by_age_deletes_what_was_stored_before(full: SqliteStore) -> None:
    assert await full.prune(max_age_s=10) == 2_490
    assert await keys(full) == NEWEST
    assert (await full.statistics()).record_bytes == 1_000
    assert await full.prune(max_age_s=10) == 0


async def test_pruning_by_bytes_keeps_the_newest_and_makes_the_file_smaller(full: SqliteStore) -> None:
    before = (await full.statistics()).file_bytes
    assert await full.prune(max_bytes=1_099) == 2_490
    assert await keys(full) == NEWEST
    after = (await full.statistics()).file_bytes
    assert after < before / 8
    assert await full.prune(max_bytes=0) == 10
    assert await full.statistics() == StoreStatistics(0, 0, (await full.statistics()).file_bytes, None, None)
    await full.aclose()
    assert full.path.stat().st_size < before / 8


async def test_an_option_out_of_its_range_is_a_configuration_error(store: SqliteStore, tmp_path: Path) -> None:
    await store.put("key", b"record")
    bounds: list[dict[str, Any]] = [{}, {"max_age_s": 0}, {"max_age_s": -1.0}, {"max_bytes": -1}, {"max_bytes": 1.5}]
    for bound in bounds:
        with pytest.raises(ConfigurationError, match="max_"):
            await store.prune(**bound)
    assert await keys(store) == ["key"]
    options: list[tuple[str, Any]] = [("max_bytes", value) for value in (0, -1, 1.5)]
    for name, value in [*options, ("busy_timeout_s", 0), ("busy_timeout_s", None)]:
        with pytest.raises(ConfigurationError, match=f"{name}="):
            SqliteStore(tmp_path / "robots.db", **{name: value})


async def test_a_bound_holds_for_records_of_an_earlier_store(full: SqliteStore) -> None:
    small = SqliteStore(full.path, max_bytes=500)
    await small.put("late000", bytes(93))
    assert await keys(small) == [*NEWEST[-4:], "late000"]
    await small.aclose()


async def test_an_emptied_table_is_counted_as_empty(store: SqliteStore, clock: ManualClock) -> None:
    await fill(store, clock, 10)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM records")  # by hand
    assert await store.prune(max_bytes=0) == 0
    assert (await store.statistics()).record_bytes == 0


async def test_what_somebody_else_wrote_comes_back_as_octets(store: SqliteStore) -> None:
    await store.put("key", b"record")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE records SET record = CAST(x'ff41' AS TEXT)")  # text, and not even UTF-8
    assert await store.get("key") == b"\xffA"
    assert [one.record async for one in store.records()] == [b"\xffA"]


_WITHOUT_SQLITE = """
import sys
sys.modules["sqlite3"] = None
from politesse import Gatekeeper
from politesse.stores import MemoryStore, SqliteStore
MemoryStore()
try:
    SqliteStore("robots.db")
except ImportError as error:
    print(error)
"""


def test_a_python_without_sqlite_has_the_other_stores_and_an_error_that_says_so(tmp_path: Path) -> None:
    done = run_code(_WITHOUT_SQLITE, cwd=tmp_path)
    assert "needs the standard module sqlite3, and this Python was built without it" in done.stdout


async def test_calls_that_race_with_the_close_end(tmp_path: Path) -> None:
    def ask_until_closed(store: SqliteStore, asking: threading.Event) -> None:
        async def ask() -> None:
            while True:
                asking.set()
                await store.get("key")

        with pytest.raises(StoreError, match="is closed"):
            asyncio.run(ask())

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(15):
            store, asking = SqliteStore(tmp_path / "robots.db"), threading.Event()
            asker = threading.Thread(target=ask_until_closed, args=(store, asking), daemon=True)
            asker.start()
            asking.wait()
            await store.aclose()
            await asyncio.to_thread(asker.join, 5.0)
            assert not asker.is_alive()
    finally:
        sys.setswitchinterval(interval_s)
