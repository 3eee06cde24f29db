"""A ledger, a store, a journal and the database of another program: what each is when it is opened as another."""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from politesse import Gatekeeper, PoliteQueue, PolitesseError
from politesse.ledger import LedgerReader, verify
from politesse.stores import SqliteStore
from politesse.testing import ScriptedFetcher
from tests.support.scripted import UA
from tests.tools.cli.command import Done, politesse

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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a file of each kind, for copies."""
    paths = {kind: tmp_path_factory.mktemp(kind) / "file.db" for kind in KINDS}

    async def make() -> None:
        for kind, path in paths.items():
            await KINDS[kind](path)

    asyncio.run(make())
    return paths


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copy(path, folder))


async def test_a_ledger_shares_its_file_with_nothing(files: dict[str, Path], tmp_path: Path) -> None:
    for is_a, use in product(files, ("ledger", "store", "journal")):
        path = copied(files[is_a], tmp_path)
        before = contents(path)
        if is_a == use or {is_a, use} == TOGETHER:
            await KINDS[use](path)
        else:
            with pytest.raises(PolitesseError, match=r"file\.db .*(file of its own|of another program)"):
                await KINDS[use](path)
            assert contents(path) == before


async def test_a_store_that_was_made_first_refuses_a_ledger_that_appears(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    store = SqliteStore(path)
    await use_ledger(path)
    before = contents(path)
    with pytest.raises(PolitesseError, match="file of its own"):
        await store.put("https://example.com", b"record")
    await store.aclose()
    assert contents(path) == before


@pytest.mark.parametrize("size", [1, 15, 16, 99, 100, 511, 512, 513])
async def test_a_text_of_any_size_is_left_as_it_is(tmp_path: Path, size: int) -> None:
    text = b"https://example.com/some/page\n" * 20
    for use in (use_ledger, use_store, use_journal):
        path = tmp_path / f"{use.__name__}.txt"
        path.write_bytes(text[:size])
        with pytest.raises(PolitesseError, match="is left as it is"):
            await use(path)
        assert path.read_bytes() == text[:size]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
async def test_a_folder_and_a_file_have_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"jos\xe9")
    folder.mkdir()
    for kind, use in KINDS.items():
        path = folder / os.fsdecode(f"{kind}\xe9.db".encode("latin-1"))
        for _ in range(1 if kind == "foreign" else 2):
            await use(path)
        assert path.exists()


async def test_a_damaged_name_of_a_table_is_an_error_of_the_file(files: dict[str, Path], tmp_path: Path) -> None:
    for kind, name in {"ledger": b"ledger_rows", "journal": b"journal_owner"}.items():
        path = copied(files[kind], tmp_path)
        octets = path.read_bytes()
        assert name in octets
        path.write_bytes(octets.replace(name, b"\xb0" + name[1:], 1))
        with pytest.raises(PolitesseError, match="the file is damaged"):
            await KINDS[kind](path)


READING = ("store stats --store FILE", "store hosts --store FILE", f"store show {URL} --store FILE")
EXPORT = "store export TARGET --store FILE"
COMMANDS = (
    *READING,
    EXPORT,
    "store prune --max-bytes 0 --store FILE",
    "check --store FILE http://127.0.0.1:1/",
    "filter --store FILE",
    "crawl --store FILE http://127.0.0.1:1/",
    "crawl --journal FILE http://127.0.0.1:1/",
)


async def run(command: str, path: Path, target: Path) -> Done:
    return await politesse(*command.replace("FILE", str(path)).replace("TARGET", str(target)).split(" "))


async def test_no_command_for_a_store_or_a_journal_changes_a_ledger(files: dict[str, Path], tmp_path: Path) -> None:
    path = copied(files["ledger"], tmp_path)
    before = path.read_bytes()
    for command in COMMANDS:
        done = await run(command, path, tmp_path / "target.jsonl")
        assert (done.code, "file of its own" in done.err) == (2, True), command
        assert path.read_bytes() == before, command
    assert verify(path).problem == ""
    with LedgerReader(path) as ledger:
        assert [one.url for one in ledger.decisions()] == [URL]


async def test_a_command_that_reads_a_store_changes_no_file(files: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    for is_a in ("journal", "foreign", "store"):
        path = copied(files[is_a], tmp_path)
        before = path.read_bytes()
        for command in (*READING, EXPORT):
            done = await run(command, path, target)
            assert done.code == (0 if is_a == "store" else 2), command
            assert path.read_bytes() == before, command
        done = await run(EXPORT, path, path)
        assert (done.code, "give another name" in done.err or is_a != "store") == (2, True)
        assert path.read_bytes() == before
    assert json.loads(target.read_text().splitlines()[0])["key"]
