# ruff: noqa: ASYNC240, S608 - the files of these tests are small, and the statements are made here

"""Ledgers are read back, and verified row by row."""

import os
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from politesse import Origin, Reason, Verdict
from politesse.errors import StoreError
from politesse.ledger import LedgerReader, Snapshot, verify
from politesse.stores import SqliteStore
from politesse.verdict import AccessResult, Match
from tests.support.ledgers import write_ledger

SITE, OTHER = Origin.of("https://example.com"), Origin.of("http://other.example:8080")
ROBOTS = b"User-agent: *\nDisallow: /private\nContent-Usage: train-ai=n\n"
DIGEST = sha256(ROBOTS).digest()
DAY_S = 86_400.0


def snapshot(origin: Origin = SITE, body: bytes | None = ROBOTS, *, wall: float = 1_000.0) -> Snapshot:
    url = origin.robots_url
    if body is None:
        return Snapshot(origin, url, AccessResult.UNAVAILABLE, 404, url, wall, recorded_wall=wall)
    headers = {"etag": '"a"', "date": "Thu, 01 Jan 1970 00:16:40 GMT"}
    digest = sha256(body).hexdigest()
    return Snapshot(origin, url, AccessResult.SUCCESSFUL, 200, url, wall, digest, body, headers, recorded_wall=wall + 1)


def decision(number: int) -> Verdict:
    return Verdict(f"{SITE}/{number}", "examplebot", allowed=True, match=Match(Reason.NO_RULE))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def twelve(path: Path) -> Path:
    """A ledger: row 1 begins it, row 2 is a snapshot, rows 3 to 12 are decisions."""
    write_ledger(path, [snapshot(), *map(decision, range(10))])
    return path


def test_snapshots_of_robots_txt_and_of_other_files_come_back_with_the_facts_of_their_answers(path: Path) -> None:
    recorded = [snapshot(), snapshot(OTHER, None, wall=2_000.0), snapshot(body=b"", wall=3_000.0)]
    url = SITE.text + "/llms.txt"
    file = Snapshot(SITE, url, AccessResult.SUCCESSFUL, 200, url, 5.0, sha256(b"# A").hexdigest(), b"# A")
    write_ledger(path, [*recorded, file])
    with LedgerReader(path) as ledger:
        assert list(ledger.snapshots()) == recorded
        assert list(ledger.snapshots(OTHER)) == recorded[1:2]
        assert list(ledger.snapshots(Origin.of("https://unknown.example"))) == []
        assert list(ledger.snapshots(SITE, path="/llms.txt")) == [file]
        assert list(ledger.snapshots(path=None)) == [*recorded, file]


def test_a_series_of_files_is_read_as_one_ledger(path: Path) -> None:
    end = write_ledger(path, [snapshot()])
    write_ledger(path.with_name("ledger.0002.db"), [decision(1)], previous=end)
    path.with_name("ledger.other.db").write_bytes(b"of another program")
    with LedgerReader(path) as ledger:
        assert (len(list(ledger.snapshots())), len(list(ledger.decisions()))) == (1, 1)
        assert "ledger.0002.db" in repr(ledger)
    with LedgerReader(path.with_name("ledger.0002.db")) as ledger:
        assert (len(list(ledger.snapshots())), len(list(ledger.decisions()))) == (0, 1)


def test_a_reader_works_while_a_writer_has_the_file_open(path: Path) -> None:
    write_ledger(path, [snapshot()])
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with LedgerReader(path) as ledger:
            assert list(ledger.snapshots()) == [snapshot()]
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                ledger._files[1].connection.execute("DELETE FROM ledger_rows")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_ledger_on_a_disk_that_is_read_only_can_be_read(path: Path) -> None:
    write_ledger(path, [snapshot()])
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with LedgerReader(path) as ledger:
            assert list(ledger.snapshots()) == [snapshot()]
    finally:
        path.parent.chmod(0o700)


async def test_a_path_without_a_ledger_that_this_version_reads_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no ledger at .*ledger\.db"):
        LedgerReader(path)
    path.write_bytes(b"no database, but long enough to be read as the header of one" * 20)
    with pytest.raises(StoreError, match="no politesse file"):
        LedgerReader(path)
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="is not set up yet"):
        LedgerReader(path)
    write_ledger(path, [])
    change(path, "UPDATE parts SET version = 2 WHERE name = 'ledger'")
    with pytest.raises(StoreError, match=r"newer politesse.*ledger version 2, known up to 1"):
        LedgerReader(path)
    store = SqliteStore(path.with_name("robots.db"))
    await store.put(SITE.text, b"record")
    await store.aclose()
    with pytest.raises(StoreError, match="has records, and a ledger needs a file of its own"):
        LedgerReader(path.with_name("robots.db"))


def test_a_damaged_row_is_named(path: Path) -> None:
    for damage in (
        "UPDATE ledger_rows SET content = 'x' WHERE number = 2",
        "UPDATE ledger_rows SET content = x'ff00' WHERE number = 2",
        "UPDATE ledger_rows SET content = replace(content, 'successful', 'fine') WHERE number = 2",
        "UPDATE ledger_rows SET content = '{}' WHERE number = 2",
        "DELETE FROM ledger_bodies",
    ):
        path.unlink(missing_ok=True)
        write_ledger(path, [snapshot()])
        change(path, damage)
        with LedgerReader(path) as ledger, pytest.raises(StoreError, match=r"row 2 of .*ledger\.db is damaged"):
            list(ledger.snapshots())


def test_an_untouched_ledger_is_intact_and_each_hash_is_that_of_the_row_and_the_hash_before(twelve: Path) -> None:
    found = verify(twelve)
    assert (found.is_intact, found.rows, found.files, found.problem) == (True, 12, 1, "")
    previous = bytes(32)
    with LedgerReader(twelve) as ledger:
        for _, row in ledger.rows():
            previous = sha256(previous + f"{row.number} {row.kind} {row.content}".encode()).digest()
            assert row.hash == previous
    assert found.head == previous.hex()


SWAP = [f"UPDATE ledger_rows SET number = {to} WHERE number = {at}" for at, to in ((7, 99), (8, 7), (99, 8))]
SHIFT = ["DELETE FROM ledger_rows WHERE number = 7", "UPDATE ledger_rows SET number = number - 1 WHERE number > 7"]
CHANGES = [
    (["UPDATE ledger_rows SET content = replace(content, '/4', '/5') WHERE number = 7"], "row 7 of ledger.db was"),
    (["UPDATE ledger_rows SET kind = 'turn' WHERE number = 7"], "row 7 of ledger.db was altered"),
    (["UPDATE ledger_rows SET hash = zeroblob(32) WHERE number = 7"], "row 7 of ledger.db was altered"),
    (SHIFT[:1], "row 7 of ledger.db is missing"),
    (["DELETE FROM ledger_rows WHERE number = 1"], "row 1 of ledger.db is missing"),
    (SHIFT, "row 7 of ledger.db was altered, or rows before it were removed or swapped"),
    (SWAP, "row 7 of ledger.db was altered, or rows before it were removed or swapped"),
    (["UPDATE ledger_rows SET content = '{' WHERE number = 7"], "row 7 of ledger.db was altered"),
    (["UPDATE ledger_bodies SET body = x'00'"], f"row 2 of ledger.db: the file {DIGEST.hex()} is altered"),
    (["DELETE FROM ledger_bodies"], "row 2 of ledger.db: the file"),
    (["UPDATE ledger_rows SET content = content || ' ' WHERE number = 1"], "row 1 of ledger.db was altered"),
]


def test_the_first_row_that_was_changed_is_named(path: Path) -> None:
    for statements, problem in CHANGES:
        path.unlink(missing_ok=True)
        write_ledger(path, [snapshot(), *map(decision, range(10))])
        change(path, *statements)
        found = verify(path)
        assert (found.is_intact, problem in found.problem) == (False, True), statements
        assert found.rows == int(problem.split()[1]) - 1


def test_damage_below_the_rows_is_a_problem_and_no_exception(twelve: Path) -> None:
    octets = bytearray(twelve.read_bytes())
    place = octets.index(b'"url":"https://example.com/9"') // 4096 * 4096
    octets[place : place + 100] = bytes(100)  # the header of the page that has the rows
    twelve.write_bytes(octets)
    assert "damaged" in verify(twelve).problem


def series(path: Path) -> list[Path]:
    paths = [path, *(path.with_name(f"ledger.{number:04}.db") for number in (2, 3))]
    for number, (before, name) in enumerate(pairwise(paths), start=2):
        seal(before)
        write_ledger(name, [decision(number)], previous=bytes.fromhex(verify(before).head))
    return paths


def seal(path: Path) -> None:
    number = verify(path).rows + 1
    previous, content = bytes.fromhex(verify(path).head), "{}"
    digest = sha256(previous + f"{number} seal {content}".encode()).hexdigest()
    change(path, f"INSERT INTO ledger_rows VALUES ({number}, 'seal', '{content}', x'{digest}')")


def test_files_of_a_series_are_one_chain(twelve: Path) -> None:
    paths = series(twelve)
    found = verify(twelve)
    assert (found.problem, found.files, found.rows) == ("", 3, 13 + 3 + 2)
    assert verify(paths[1]).problem == ""  # without the first file
    middle = paths[1].read_bytes()
    shutil.copy(paths[2], paths[1])
    assert verify(twelve).problem == "ledger.0002.db is no file of this series, or has another number"
    paths[1].unlink()
    assert verify(twelve).problem == "rows are missing between row 13 of ledger.db and ledger.0003.db"
    paths[1].write_bytes(middle)
    change(twelve, "DELETE FROM ledger_rows WHERE number > 9")
    assert verify(twelve).problem == "rows are missing between row 9 of ledger.db and ledger.0002.db"


def test_a_cut_at_the_end_is_found_by_a_noted_hash_alone(twelve: Path) -> None:
    head = verify(twelve).head
    change(twelve, "DELETE FROM ledger_rows WHERE number > 9")
    assert verify(twelve).problem == ""
    assert verify(twelve, head=head).problem.startswith(f"no row has the noted hash {head}")
    write_ledger(twelve, [decision(99)])
    earlier = verify(twelve).head
    write_ledger(twelve, [decision(100)])
    assert verify(twelve, head=earlier).is_intact
