# ruff: noqa: ASYNC240 - the files of these tests are small

import asyncio
import multiprocessing
import os
import sqlite3
import stat
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from politesse.errors import ConfigurationError, StoreError
from politesse.stores._sqlite_file import Part, SqliteFile
from politesse.stores._sqlite_opening import OpenFile
from tests.support.tasks import settle

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


# What is acknowledged


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


async def test_a_store_error_of_an_operation_takes_no_other_call_with_it(file: SqliteFile, path: Path) -> None:
    def refuse(_: sqlite3.Connection, given: str) -> str:
        raise StoreError(given)

    hanging = Hanging()
    waiting = file.begin_write(hanging, "")
    calls = [file.begin_write(add, "a"), file.begin_write(refuse, "refused"), file.begin_write(add, "b")]
    hanging.go_on.set()  # by now they wait together
    first, refused, last = await asyncio.gather(*calls, return_exceptions=True)
    await waiting
    assert (first, str(refused), last) == ("a", "refused", "b")
    assert words_in(path) == ["a", "b"]


async def test_a_cancelled_caller_does_not_break_other_calls(file: SqliteFile) -> None:
    tasks = [asyncio.create_task(file.write(add, f"word-{number}")) for number in range(20)]
    await settle()
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(3), asyncio.CancelledError)
    assert results == [f"word-{number}" for number in range(20) if number != 3]


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


async def test_any_file_name_is_taken_as_it_is(tmp_path: Path) -> None:
    names = ["a b%20?mode=memory#x.db", "file:x.db", "ü.db"]
    for name in names:
        await kept(tmp_path / name, "polite")
    assert sorted(file.name for file in tmp_path.iterdir()) == names


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
    for given, error in errors.items():
        with pytest.raises(error, match="path="):
            SqliteFile(given, [WORDS])  # type: ignore[arg-type]


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
