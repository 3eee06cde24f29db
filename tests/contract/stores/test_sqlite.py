"""SqliteStore: its order, its bounds, the file under it, and the processes that use it."""
# ruff: noqa: ASYNC240 - the files of these tests are small

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import stat
import struct
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import ConfigurationError, StoreError
from politesse.stores import SqliteStore, StoredRecord, StoreStatistics
from politesse.stores._sqlite_file import OpenFile, Part, SqliteFile
from politesse.testing import ManualClock
from tests.contract.stores.store_writers import is_whole, key_of, missing, record_of
from tests.support.programs import numbers_until_killed, run_code, started
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


async def test_all_records_are_listed_in_the_order_of_their_storing(store: SqliteStore, clock: ManualClock) -> None:
    await fill(store, clock, 120)
    await store.put("key0000", b"again")
    await store.put("\ud800\x00", b"any key")
    listed = [record async for record in store.records()]
    assert listed[0] == StoredRecord("key0001", START + 1, b"\x01" * 93)
    newest = {"key0000": b"again", "\ud800\x00": b"any key"}
    assert listed[-2:] == [StoredRecord(key, START + 120, record) for key, record in newest.items()]
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


# The file under it: what is acknowledged


WORDS = Part("words", ("CREATE TABLE words (word TEXT UNIQUE CHECK (word <> 'rude'))",))


def add(connection: sqlite3.Connection, word: str) -> str:
    connection.execute("INSERT INTO words VALUES (?)", (word,))
    return word


def find(connection: sqlite3.Connection, word: str) -> bool:
    return connection.execute("SELECT 1 FROM words WHERE word = ?", (word,)).fetchone() is not None


def words_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY rowid")]


def files_beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


async def kept(path: Path, *words: str) -> None:
    """Write words, and close the file."""
    file = SqliteFile(path, [WORDS])
    for word in words:
        await file.write(add, word)
    await file.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[SqliteFile]:
    file = SqliteFile(path, [WORDS])
    yield file
    await file.aclose()


class Hanging:
    """An operation that lasts until it may go on."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    def __call__(self, _: sqlite3.Connection, given: str) -> str:
        self.began.set()
        self.go_on.wait()
        return given


async def test_calls_that_wait_together_are_served_together(file: SqliteFile) -> None:
    statements: list[str] = []

    def watch(connection: sqlite3.Connection, _: None) -> None:
        connection.set_trace_callback(statements.append)

    await file.write(watch, None)
    words = [f"word-{number}" for number in range(100)]
    assert await asyncio.gather(*(file.write(add, word) for word in words)) == words
    assert 0 < statements.count("COMMIT") < 20


async def test_a_call_that_fails_takes_no_other_with_it(file: SqliteFile, path: Path) -> None:
    words = ["a", "b", "rude", "c", "a", "d"]
    results = await asyncio.gather(*(file.write(add, word) for word in words), return_exceptions=True)
    assert [word for word in results if isinstance(word, str)] == words_in(path) == ["a", "b", "c", "d"]
    assert all(isinstance(results[at], StoreError) for at in (2, 4))


async def test_an_exception_of_an_operation_rolls_back_and_is_raised_as_it_is(file: SqliteFile, path: Path) -> None:
    def fail(connection: sqlite3.Connection, given: str) -> str:
        add(connection, given)
        raise LookupError("no such word")

    with pytest.raises(LookupError, match="no such word"):
        await file.write(fail, "lost")
    assert words_in(path) == []


async def test_a_call_that_is_cancelled_before_it_began_is_left_out(file: SqliteFile, path: Path) -> None:
    hanging = Hanging()
    first = asyncio.create_task(file.write(hanging, "first"))
    while not hanging.began.is_set():
        await asyncio.sleep(0)
    second = asyncio.create_task(file.write(add, "second"))
    await settle()
    assert not first.done(), "a slow disk does not hold up the event loop"
    second.cancel()
    await settle()
    hanging.go_on.set()
    assert await first == "first"
    await file.aclose()
    assert words_in(path) == []


# Its end


async def test_closing_finishes_what_was_accepted_and_ends_the_thread(file: SqliteFile, path: Path) -> None:
    tasks = [asyncio.create_task(file.write(add, f"word-{number}")) for number in range(2_500)]
    await settle()
    await asyncio.gather(file.aclose(), file.aclose())
    await file.aclose()
    assert not [thread for thread in threading.enumerate() if thread.name == "politesse words.db"]
    assert len(await asyncio.gather(*tasks)) == len(words_in(path)) == 2_500
    assert files_beside(path) == ["words.db"]  # no log is left
    with pytest.raises(StoreError, match=r"words\.db is closed"):
        await file.read(find, "word-1")


async def test_one_connection_closes_after_the_other(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that close at once, neither removes the log."""
    both, close = threading.Barrier(2), OpenFile.close

    def close_at_once(file: OpenFile) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.02)
        close(file)

    monkeypatch.setattr(OpenFile, "close", close_at_once)
    await file.write(add, "word")
    assert await file.read(find, "word")
    await file.aclose()
    assert both.broken


def test_a_program_that_does_not_close_its_file_ends(path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_leave_open, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert words_in(path) == ["polite"]


KEPT: list[SqliteFile] = []


def _leave_open(path: Path) -> None:
    KEPT.append(SqliteFile(path, [WORDS]))
    asyncio.run(_add(KEPT[0], "polite"))


async def _add(file: SqliteFile, word: str) -> None:
    await file.write(add, word)


# Many connections


async def test_a_lock_delays_writes_and_no_reads(path: Path) -> None:
    file = SqliteFile(path, [WORDS], busy_timeout_s=60)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")  # before the file is set up
        write = asyncio.create_task(file.write(add, "polite"))
        await asyncio.sleep(0.02)
        assert not write.done()
        other.execute("COMMIT")
        await write
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(file.write(add, "patient"))
        for _ in range(5):
            assert await file.read(find, "polite")
        assert not write.done()
        other.execute("COMMIT")
    assert await write == "patient"
    await file.aclose()


async def test_a_lock_that_is_held_for_too_long_fails_the_write_and_says_so(path: Path) -> None:
    file = SqliteFile(path, [WORDS], busy_timeout_s=0.1)
    await file.write(add, "polite")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"words\.db: another connection holds its lock .* busy_timeout_s=0\.1"):
            await file.write(add, "late")
    assert await file.write(add, "again") == "again"
    await file.aclose()
    assert words_in(path) == ["polite", "again"]


def in_forked_child(function: Callable[[], int]) -> int:
    """Return the result of ``function`` in a forked child; 100 if it raises."""
    child = os.fork()
    if not child:
        code = 100
        try:
            code = function()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused(path: Path) -> None:
    file = SqliteFile(path, [WORDS])

    def refusals() -> int:
        refused = 0
        try:
            asyncio.run(_add(file, "child"))
        except StoreError as error:
            refused += "before the fork" in str(error)
        try:
            SqliteFile(path, [WORDS])
        except ConfigurationError as error:
            refused += "was open when this process was forked" in str(error)
        return refused

    asyncio.run(_add(file, "parent"))
    assert in_forked_child(refusals) == 2
    asyncio.run(_add(file, "still here"))
    asyncio.run(file.aclose())
    assert words_in(path) == ["parent", "still here"]


# The file itself


async def test_the_file_and_its_log_are_for_their_owner_only(file: SqliteFile, path: Path) -> None:
    before = os.umask(0)
    try:
        await file.write(add, "secret")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((path.parent / name).stat().st_mode) for name in files_beside(path)}
    assert modes == {"words.db": 0o600, "words.db-wal": 0o600, "words.db-shm": 0o600}


async def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = SqliteFile("words.db", [WORDS])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await file.write(add, "polite")
    await file.aclose()
    assert words_in(tmp_path / "words.db") == ["polite"]


async def test_parts_share_a_file_and_each_has_its_version(path: Path) -> None:
    other = Part("numbers", ("CREATE TABLE numbers (number INTEGER)",))
    for parts in ([WORDS], [other], [WORDS, other]):
        file = SqliteFile(path, parts)
        await file.write(_nothing, None)
        await file.aclose()
    with closing(sqlite3.connect(path)) as connection:
        versions = "SELECT name, version FROM parts ORDER BY name"
        assert connection.execute(versions).fetchall() == [("numbers", 1), ("words", 1)]
        connection.execute("UPDATE parts SET version = 2 WHERE name = 'words'")
        connection.commit()
    SqliteFile(path, [other])
    with pytest.raises(ConfigurationError, match=r"newer politesse.*words version 2, known up to 1"):
        SqliteFile(path, [WORDS])
    with pytest.raises(ConfigurationError, match=r"older politesse.*give another path.*words version 2, 3 is needed"):
        SqliteFile(path, [replace(WORDS, version=3)])


def _nothing(_: sqlite3.Connection, _argument: None) -> None:
    """Only open the file."""


async def test_a_part_that_cannot_be_made_changes_nothing(path: Path) -> None:
    await kept(path, "kept")
    broken = Part("broken", ("DELETE FROM words", "ALTER TABLE nowhere ADD COLUMN x"))
    file = SqliteFile(path, [WORDS, broken])
    with pytest.raises(StoreError, match="nowhere"):
        await file.write(_nothing, None)
    await file.aclose()
    assert words_in(path) == ["kept"]
    SqliteFile(path, [WORDS])


async def test_a_file_of_a_newer_format_is_left_as_it_is(path: Path) -> None:
    await kept(path, "polite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"newer politesse.*file version 2, known up to 1"):
        SqliteFile(path, [WORDS])
    assert path.read_bytes() == before


def _foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("INSERT INTO theirs VALUES (1)")
        connection.commit()


def _foreign_database_with_log(path: Path) -> None:
    """As a program leaves it that was killed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE theirs (a)")
        log = path.with_name(f"{path.name}-wal").read_bytes()
        main = path.read_bytes()
    path.write_bytes(main)
    path.with_name(f"{path.name}-wal").write_bytes(log)


def _foreign_database_in_a_transaction(path: Path) -> None:
    """As a program leaves it that was killed as it committed."""
    _foreign_database(path)
    leave_a_hot_journal(path)


def leave_a_hot_journal(path: Path) -> None:
    """Write a rollback journal of a transaction that changed no page yet; see "Rollback Journal Format" of SQLite."""
    pages = path.stat().st_size // 4096
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">5L", 0, 0, pages, 512, 4096)
    path.with_name(f"{path.name}-journal").write_bytes(head.ljust(512, b"\0"))


def _encrypted(path: Path) -> None:
    path.write_bytes(bytes((number * 7919 + 13) % 251 for number in range(8192)))


def _text(path: Path) -> None:
    path.write_text("User-agent: *\nDisallow: /\n" * 100)


def _truncated(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0\x10\0")


def contents_beside(path: Path) -> dict[str, bytes]:
    """All but the shared memory, which readers change too."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    databases = [_foreign_database, _foreign_database_with_log, _foreign_database_in_a_transaction]
    problems = dict.fromkeys(databases, "another program")
    problems |= dict.fromkeys([_encrypted, _text, _truncated], "encrypted, damaged or of another program")
    for make, problem in problems.items():
        path = tmp_path / make.__name__ / "words.db"
        path.parent.mkdir()
        make(path)
        before = contents_beside(path)
        with pytest.raises(ConfigurationError, match=problem) as caught:
            SqliteFile(path, [WORDS])
        assert str(path) in str(caught.value)
        assert contents_beside(path) == before


async def test_a_file_whose_process_was_killed_as_it_created_it_is_set_up(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA user_version = 0")  # writes the first page
    leave_a_hot_journal(path)
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),  # before the transaction is rolled back
    ):
        connection.execute("PRAGMA application_id")
    await kept(path, "polite")
    assert words_in(path) == ["polite"]


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.touch()
    for target in ("there.db", "missing.db"):
        path = tmp_path / f"to-{target}"
        path.symlink_to(tmp_path / target)
        with pytest.raises(ConfigurationError, match="symbolic link"):
            SqliteFile(path, [WORDS])
    assert there.read_bytes() == b""
    assert not (tmp_path / "missing.db").exists()


async def test_a_link_that_takes_the_place_of_the_file_while_it_is_opened_is_not_followed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = path.with_name("there.db")
    there.touch()
    connect = sqlite3.connect

    def swap(*args: object, **options: object) -> sqlite3.Connection:
        path.unlink()
        path.symlink_to(there)
        return connect(*args, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", swap)
    file = SqliteFile(path, [WORDS])
    with pytest.raises(StoreError, match="symbolic link"):
        await file.write(add, "polite")
    await file.aclose()
    assert there.read_bytes() == b""


async def test_a_symbolic_link_in_place_of_the_log_is_not_followed(path: Path) -> None:
    there = path.with_name("there")
    there.write_bytes(b"mine")
    await kept(path, "before")
    path.with_name("words.db-wal").symlink_to(there)
    with pytest.raises(ConfigurationError, match="permissions, or a link"):
        SqliteFile(path, [WORDS])
    assert there.read_bytes() == b"mine"


def test_what_is_no_path_of_a_file_is_refused() -> None:
    errors: dict[object, type[Exception]] = dict.fromkeys(["", ":memory:", "a\0b"], ConfigurationError)
    errors |= dict.fromkeys([None, 5, b"words.db"], TypeError)
    for path_given, error in errors.items():
        with pytest.raises(error, match="path="):
            SqliteFile(path_given, [WORDS])  # type: ignore[arg-type]


def test_a_read_only_file_or_folder_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    access = os.access
    for read_only in (path, path.parent):
        with monkeypatch.context() as patch:
            # Root may write anywhere, so the permissions themselves would not do.
            patch.setattr(os, "access", lambda at, mode, ro=read_only: str(at) != str(ro) and access(at, mode))
            with pytest.raises(ConfigurationError, match=f"{read_only} is read-only for this process"):
                SqliteFile(path, [WORDS])


async def test_a_full_disk_fails_the_write_and_keeps_what_was_acknowledged(file: SqliteFile, path: Path) -> None:
    await file.write(add, "kept")

    def limit(connection: sqlite3.Connection, given: int) -> int:
        connection.execute(f"PRAGMA max_page_count = {given}")
        return given

    await file.write(limit, 20)
    words = [f"{number:05}" * 200 for number in range(200)]
    results = await asyncio.gather(*(file.write(add, word) for word in words), return_exceptions=True)
    written = [word for word in results if isinstance(word, str)]
    failures = [error for error in results if isinstance(error, StoreError)]
    assert len(written) + len(failures) == 200
    assert 0 < len(written) < 60
    assert all("the disk is full" in str(error) and "words.db" in str(error) for error in failures)
    assert isinstance(failures[0].__cause__, sqlite3.Error)
    assert all([await file.read(find, word) for word in written])
    await file.write(limit, 1_000_000)  # the disk has space again
    await file.write(add, "late")
    await file.aclose()
    assert set(words_in(path)) == {"kept", "late", *written}


async def test_a_file_that_is_deleted_in_use_is_not_used_any_more(file: SqliteFile, path: Path) -> None:
    await file.write(add, "polite")
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await file.write(add, "lost")
    await file.aclose()
    assert not path.exists()


async def test_a_damaged_file_fails_its_calls_and_serves_again_once_it_is_mended(path: Path) -> None:
    words = [f"{number:03d}" * 200 for number in range(200)]  # many pages, of which a read needs a few
    await kept(path, *words)
    whole = path.read_bytes()
    for is_open, damaged in ((False, whole[:100]), (True, whole[:8192])):
        file = SqliteFile(path, [WORDS])
        if is_open:
            assert await file.read(find, words[0])
        path.write_bytes(damaged + b"\xff" * (len(whole) - len(damaged)))
        with pytest.raises(StoreError, match=r"words\.db: the file is damaged"):
            await file.read(find, words[150])
        path.write_bytes(whole)
        assert await file.read(find, words[150])
        await file.aclose()


# A process that is killed, and several that use one file

WRITERS: Final = "contract.stores.store_writers"


async def killed(task: str, path: Path, name: str, after: int) -> list[int]:
    """Kill a writer once it has acknowledged so many records; return all that it acknowledged."""
    return await numbers_until_killed(await started(WRITERS, task, str(path), name, stdout=PIPE), after)


@pytest.mark.full
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.weekly)])
async def test_killing_a_writer_loses_no_record_that_it_acknowledged(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "robots.db"
    said: dict[str, list[int]] = {}
    for kill in range(kills):
        name = f"run{kill}"
        said[name] = await killed("write", path, name, after=1 + kill * 997 % 3_000)
    for name, acknowledged in said.items():
        assert await missing(path, name, acknowledged) == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = "SELECT count(*), sum(length(key) + length(record)) FROM records"
        records, total = connection.execute(counted).fetchone()
        assert connection.execute("SELECT total FROM record_bytes").fetchone() == (total,)
    assert records >= sum(map(len, said.values()))


@pytest.mark.full
async def test_a_writer_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    """The test above can fail."""
    lost: list[int] = []
    for kill in range(20):
        path = tmp_path / f"{kill}.db"
        acknowledged = await killed("hasty", path, "hasty", after=10 + kill)
        lost += await missing(path, "hasty", acknowledged)
        if lost:
            break
    assert lost


@pytest.mark.parametrize(
    ("names", "questions"),
    [
        (["one", "two"], 100),
        pytest.param(["one", "two", "three", "four"], 1_000, marks=pytest.mark.full),
        pytest.param(["one", "two", "three", "four"], 12_500, marks=pytest.mark.weekly),
    ],
)
async def test_processes_use_one_file(tmp_path: Path, names: list[str], questions: int) -> None:
    path = tmp_path / "robots.db"
    processes = [await started(WRITERS, "ask", str(path), name, str(questions), stdout=PIPE) for name in names]
    for process in processes:
        printed, _ = await process.communicate()
        assert (process.returncode, printed) == (0, b"")
    store = SqliteStore(path)
    for name in names:
        for number in range(questions):
            key = key_of(name, number)
            assert await store.get(key) == record_of(key, number)
    kept = {one.key: one.record async for one in store.records()}
    assert len(kept) == len(names) * questions + 100
    assert all(is_whole(key, record) for key, record in kept.items())
    await store.aclose()
