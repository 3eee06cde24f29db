"""The names of the files of a ledger: names that end with a number, and a next file that is just being made."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from politesse import Gatekeeper
from politesse.errors import ConfigurationError, StoreError
from politesse.ledger import Ledger, LedgerOptions, LedgerReader, verify
from politesse.stores import SqliteStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.scripted import UA

SITE = "https://example.com"


async def record(path: Path, *names: str, max_file_bytes: int = 2**30) -> None:
    """Record a decision for each name; each of them fills a file if files are small."""
    ledger = Ledger(path, LedgerOptions(max_file_bytes=max_file_bytes))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), ledger=ledger, clock=ManualClock(autojump=True)) as gate:
        for name in names:
            await gate.check(f"{SITE}/{name}")
            await ledger.flush()


def recorded(path: Path) -> list[str]:
    with LedgerReader(path) as ledger:
        return [one.url.removeprefix(f"{SITE}/") for one in ledger.decisions()]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.db"))


async def test_a_name_with_a_number_is_the_name_of_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "crawl.2026.db"
    await record(path, "a")
    await record(path, "b")
    assert files(tmp_path) == ["crawl.2026.db"]
    assert (recorded(path), verify(path).problem, verify(path).files) == (["a", "b"], "", 1)
    await record(path, "c", "d", max_file_bytes=1)
    assert files(tmp_path)[:2] == ["crawl.2026.0002.db", "crawl.2026.0003.db"]
    assert (recorded(path), verify(path).problem) == (["a", "b", "c", "d"], "")
    assert recorded(tmp_path / "crawl.2026.0002.db") == ["d"]


async def test_ledgers_of_two_years_and_one_without_a_year_are_three(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("ledger.2025.db", "ledger.2026.db", "ledger.db")]
    for _ in range(2):
        for path in paths:
            await record(path, path.name)
    assert files(tmp_path) == sorted(path.name for path in paths)
    for path in paths:
        assert (recorded(path), verify(path).problem, verify(path).files) == ([path.name] * 2, "", 1)


async def test_a_store_whose_name_ends_with_a_number_is_no_file_of_a_ledger(tmp_path: Path) -> None:
    path, store = tmp_path / "crawl.db", SqliteStore(tmp_path / "crawl.2026.db")
    await store.put(SITE, b"record")
    await store.aclose()
    await record(path, "a")
    await record(path, "b")
    assert (recorded(path), verify(path).problem) == (["a", "b"], "")


async def test_a_ledger_in_place_of_the_next_file_is_refused(tmp_path: Path) -> None:
    path, second = tmp_path / "ledger.db", tmp_path / "ledger.0002.db"
    await record(second, "other")
    await record(path, "a")
    assert verify(path).problem == "rows are missing between row 5 of ledger.db and ledger.0002.db"
    before = second.read_bytes()
    ledger = Ledger(path)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), ledger=ledger, clock=ManualClock()) as gate:
        await gate.check(f"{SITE}/b")
        with pytest.raises(StoreError, match=r"ledger\.0002\.db belongs to another ledger"):
            await ledger.flush()
    assert second.read_bytes() == before


async def test_a_writer_is_given_the_first_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", max_file_bytes=1)
    with pytest.raises(ConfigurationError, match=r"ledger\.0002\.db continues another file: give the first file"):
        Ledger(tmp_path / "ledger.0002.db")


async def test_a_ledger_whose_first_files_were_moved_away_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", max_file_bytes=1)
    path.unlink()
    last = max(files(tmp_path))
    await record(path, "c")
    assert not path.exists()
    assert (recorded(path)[-1], verify(path).problem) == ("c", "")
    assert last in files(tmp_path)


def _empty(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))


def _without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _in_its_first_transaction(path: Path) -> None:
    """As a process leaves it that is killed before its first commit: with a journal to be rolled back."""
    _without_tables(path)
    head = bytes.fromhex("d9d505f920a163d7") + bytes(8) + (1).to_bytes(4) + (512).to_bytes(4) + (4096).to_bytes(4)
    path.with_name(f"{path.name}-journal").write_bytes(head.ljust(512, b"\0"))


def _without_rows(path: Path) -> None:
    first = path.with_name("ledger.db")  # its last rows may still be in its log, so the file is not just copied
    with closing(sqlite3.connect(first)) as source, closing(sqlite3.connect(path)) as connection, connection:
        source.backup(connection)
        connection.execute("DELETE FROM ledger_rows")


@pytest.mark.parametrize("leave", [_empty, _without_tables, _in_its_first_transaction, _without_rows])
async def test_a_next_file_without_rows_hides_no_row(tmp_path: Path, leave: object) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", max_file_bytes=1)
    assert callable(leave)
    count = len(files(tmp_path))
    leave(tmp_path / f"ledger.{count + 1:04}.db")
    assert (recorded(path), verify(path).problem, verify(path).files) == (["a", "b"], "", count)
    await record(path, "c")
    assert (recorded(path), verify(path).problem, verify(path).files) == (["a", "b", "c"], "", count + 1)


async def test_a_file_that_was_emptied_between_others_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", "c", max_file_bytes=1)
    (tmp_path / "ledger.0002.db").write_bytes(b"")
    assert verify(path).problem.startswith("rows are missing between row 5 of ledger.db and ledger.0003.db")
