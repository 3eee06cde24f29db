"""A ledger, a store, a journal and the database of another program: what each is when it is opened as another."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from politesse import Gatekeeper, PoliteQueue, PolitesseError
from politesse.ledger import LedgerReader, verify
from politesse.stores import SqliteStore
from politesse.testing import ScriptedFetcher
from tests.support.scripted import UA
from tests.tools.cli.command import politesse

URL = "https://example.com/page"


async def use_ledger(path: Path) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), ledger=path) as gate:
        await gate.check(URL)


async def use_store(path: Path) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), store=path) as gate:
        await gate.check(URL)


async def use_journal(path: Path) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate, PoliteQueue[None](gate, journal=path) as queue:
        await queue.put(URL)


async def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")


KINDS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "ledger": use_ledger,
    "store": use_store,
    "journal": use_journal,
    "foreign": make_foreign,
}
TOGETHER = {"store", "journal"}  # one file may be both


def contents(path: Path) -> object:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("use", ["ledger", "store", "journal"])
@pytest.mark.parametrize("is_a", list(KINDS))
async def test_a_ledger_shares_its_file_with_nothing(tmp_path: Path, is_a: str, use: str) -> None:
    path = tmp_path / "file.db"
    await KINDS[is_a](path)
    before = contents(path)
    if is_a == use or {is_a, use} == TOGETHER:
        await KINDS[use](path)
    else:
        with pytest.raises(PolitesseError, match=r"file\.db .*(file of its own|of another program)"):
            await KINDS[use](path)
        assert contents(path) == before


def test_a_store_that_was_made_first_refuses_a_ledger_that_appears(tmp_path: Path) -> None:
    path = tmp_path / "file.db"

    async def put() -> None:
        store = SqliteStore(path)
        await use_ledger(path)
        before = contents(path)
        with pytest.raises(PolitesseError, match="file of its own"):
            await store.put("https://example.com", b"record")
        await store.aclose()
        assert contents(path) == before

    asyncio.run(put())


COMMANDS = {
    "stats": ("store", "stats", "--store", "FILE"),
    "hosts": ("store", "hosts", "--store", "FILE"),
    "show": ("store", "show", URL, "--store", "FILE"),
    "export": ("store", "export", "TARGET", "--store", "FILE"),
    "prune": ("store", "prune", "--max-bytes", "0", "--store", "FILE"),
    "check": ("check", "--store", "FILE", "http://127.0.0.1:1/"),
    "filter": ("filter", "--store", "FILE"),
    "crawl": ("crawl", "--store", "FILE", "http://127.0.0.1:1/"),
    "journal": ("crawl", "--journal", "FILE", "http://127.0.0.1:1/"),
}


@pytest.mark.parametrize("command", list(COMMANDS))
async def test_no_command_for_a_store_or_a_journal_changes_a_ledger(tmp_path: Path, command: str) -> None:
    path = tmp_path / "ledger.db"
    await use_ledger(path)
    before = path.read_bytes()
    names = {"FILE": str(path), "TARGET": str(tmp_path / "target.jsonl")}
    done = await politesse(*(names.get(word, word) for word in COMMANDS[command]))
    assert (done.code, "file of its own" in done.err) == (2, True)
    assert path.read_bytes() == before
    assert verify(path).problem == ""
    with LedgerReader(path) as ledger:
        assert [one.url for one in ledger.decisions()] == [URL]


@pytest.mark.parametrize("command", ["stats", "hosts", "show", "export"])
@pytest.mark.parametrize("is_a", ["store", "journal", "foreign"])
async def test_a_command_that_reads_a_store_changes_no_file(tmp_path: Path, is_a: str, command: str) -> None:
    path, target = tmp_path / "file.db", tmp_path / "target.jsonl"
    await KINDS[is_a](path)
    before = path.read_bytes()
    names = {"FILE": str(path), "TARGET": str(target)}
    done = await politesse(*(names.get(word, word) for word in COMMANDS[command]))
    assert done.code == (0 if is_a == "store" else 2)
    assert path.read_bytes() == before
    if command == "export" and is_a == "store":
        assert json.loads(target.read_text().splitlines()[0])["key"]


async def test_an_export_does_not_replace_its_own_store(tmp_path: Path) -> None:
    path = tmp_path / "robots.db"
    await use_store(path)
    before = path.read_bytes()
    done = await politesse("store", "export", str(path), "--store", str(path))
    assert (done.code, "give another name" in done.err) == (2, True)
    assert path.read_bytes() == before
