"""A SqliteStore whose process is killed, and one that several processes use."""

import sqlite3
from asyncio.subprocess import PIPE
from contextlib import closing
from pathlib import Path

import pytest

from politesse.stores import SqliteStore
from tests.contract.stores.store_writers import is_whole, key_of, missing, record_of
from tests.support.programs import numbers_until_killed, started


async def killed(task: str, path: Path, name: str, after: int) -> list[int]:
    """Kill a writer once it has acknowledged so many records; return all that it acknowledged."""
    process = await started("contract.stores.store_writers", task, str(path), name, stdout=PIPE)
    return await numbers_until_killed(process, after)


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
        records, total = connection.execute(
            "SELECT count(*), sum(length(key) + length(record)) FROM records"
        ).fetchone()
        assert connection.execute("SELECT total FROM record_bytes").fetchone() == (total,)
    assert records >= sum(map(len, said.values()))


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
    "questions", [100, pytest.param(1_000, marks=pytest.mark.full), pytest.param(12_500, marks=pytest.mark.weekly)]
)
async def test_four_processes_use_one_file(tmp_path: Path, questions: int) -> None:
    path = tmp_path / "robots.db"
    names = ["one", "two", "three", "four"]
    arguments = ("contract.stores.store_writers", "ask", str(path))
    processes = [await started(*arguments, name, str(questions), stdout=PIPE) for name in names]
    for process in processes:
        printed, _ = await process.communicate()
        assert (process.returncode, printed) == (0, b"")
    store = SqliteStore(path)
    for name in names:
        for number in range(questions):
            key = key_of(name, number)
            assert await store.get(key) == record_of(key, number)
    kept = {one.key: one.record async for one in store.records()}
    assert len(kept) == 4 * questions + 100
    assert all(is_whole(key, record) for key, record in kept.items())
    await store.aclose()
