# ruff: noqa: S608 - the statements are made here

import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from politesse import Origin, Reason, Verdict
from politesse.ledger import LedgerReader, Snapshot, verify
from politesse.verdict import AccessResult, Match
from tests.support.ledgers import write_ledger

SITE = Origin.of("https://example.com")
BODY = b"User-agent: *\nDisallow: /private\n"


def decision(number: int) -> Verdict:
    return Verdict(f"{SITE}/{number}", "examplebot", allowed=True, match=Match(Reason.NO_RULE))


def snapshot() -> Snapshot:
    url = SITE.robots_url
    return Snapshot(SITE, url, AccessResult.SUCCESSFUL, 200, url, 5.0, sha256(BODY).hexdigest(), BODY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger: row 1 begins it, row 2 is a snapshot, rows 3 to 12 are decisions."""
    path = tmp_path / "ledger.db"
    write_ledger(path, [snapshot(), *map(decision, range(10))])
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_an_untouched_ledger_is_intact(path: Path) -> None:
    found = verify(path)
    assert (found.is_intact, found.rows, found.files, found.problem) == (True, 12, 1, "")
    with LedgerReader(path) as ledger:
        assert found.head == [row.hash.hex() for _, row in ledger.rows()][-1]


def test_the_hash_of_a_row_is_the_sha256_of_the_previous_hash_number_kind_and_content(path: Path) -> None:
    previous = bytes(32)
    with LedgerReader(path) as ledger:
        for _, row in ledger.rows():
            previous = sha256(previous + f"{row.number} {row.kind} {row.content}".encode()).digest()
            assert row.hash == previous


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["UPDATE ledger_rows SET content = replace(content, '/4', '/5') WHERE number = 7"], "row 7 of ledger.db was"),
        (["UPDATE ledger_rows SET kind = 'turn' WHERE number = 7"], "row 7 of ledger.db was altered"),
        (["UPDATE ledger_rows SET hash = zeroblob(32) WHERE number = 7"], "row 7 of ledger.db was altered"),
        (["DELETE FROM ledger_rows WHERE number = 7"], "row 7 of ledger.db is missing"),
        (["DELETE FROM ledger_rows WHERE number = 1"], "row 1 of ledger.db is missing"),
        (
            ["DELETE FROM ledger_rows WHERE number = 7", "UPDATE ledger_rows SET number = number - 1 WHERE number > 7"],
            "row 7 of ledger.db was altered, or rows before it were removed or swapped",
        ),
        (
            [f"UPDATE ledger_rows SET number = {to} WHERE number = {at}" for at, to in ((7, 99), (8, 7), (99, 8))],
            "row 7 of ledger.db was altered, or rows before it were removed or swapped",
        ),
        (["UPDATE ledger_bodies SET body = x'00'"], "row 2 of ledger.db: the file"),
        (["DELETE FROM ledger_bodies"], "row 2 of ledger.db: the file"),
        (["UPDATE ledger_rows SET content = content || ' ' WHERE number = 1"], "row 1 of ledger.db was altered"),
    ],
)
def test_the_first_row_that_was_changed_is_named(path: Path, statements: list[str], problem: str) -> None:
    change(path, *statements)
    found = verify(path)
    assert not found.is_intact
    assert problem in found.problem
    assert found.rows == int(problem.split()[1]) - 1


def test_each_flipped_byte_of_a_row_is_found_in_that_row(path: Path) -> None:
    octets = path.read_bytes()
    start = octets.index(b'"url":"https://example.com/4"')
    copy = path.with_name("copy.db")
    for place in range(start, start + 60):
        flipped = bytearray(octets)
        flipped[place] ^= 0x41
        copy.write_bytes(flipped)
        assert verify(copy).problem.startswith("row 7 of copy.db was altered"), place


def test_a_flipped_byte_of_a_file_is_found(path: Path) -> None:
    octets = path.read_bytes()
    path.write_bytes(octets.replace(b"Disallow: /private\n", b"Disallow: /prjvate\n"))
    assert f"row 2 of ledger.db: the file {sha256(BODY).hexdigest()} is altered" in verify(path).problem


def test_damage_below_the_rows_is_a_problem_and_no_exception(path: Path) -> None:
    octets = bytearray(path.read_bytes())
    place = octets.index(b'"url":"https://example.com/9"') // 4096 * 4096
    octets[place : place + 100] = bytes(100)  # the header of the page that has the rows
    path.write_bytes(octets)
    assert "damaged" in verify(path).problem


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


def test_files_of_a_series_are_one_chain(path: Path) -> None:
    paths = series(path)
    found = verify(path)
    assert (found.problem, found.files, found.rows) == ("", 3, 13 + 3 + 2)
    assert verify(paths[1]).problem == ""  # without the first file


def test_a_missing_file_of_a_series_is_found(path: Path) -> None:
    series(path)[1].unlink()
    assert verify(path).problem == "rows are missing between row 13 of ledger.db and ledger.0003.db"


def test_rows_cut_from_the_end_of_an_earlier_file_are_found(path: Path) -> None:
    series(path)
    change(path, "DELETE FROM ledger_rows WHERE number > 9")
    assert verify(path).problem == "rows are missing between row 9 of ledger.db and ledger.0002.db"


def test_a_file_of_another_series_is_found(path: Path) -> None:
    paths = series(path)
    shutil.copy(paths[2], paths[1])
    assert verify(path).problem == "ledger.0002.db is no file of this series, or has another number"


def test_a_cut_at_the_end_is_found_by_a_noted_hash_alone(path: Path) -> None:
    head = verify(path).head
    change(path, "DELETE FROM ledger_rows WHERE number > 9")
    assert verify(path).problem == ""
    assert verify(path, head=head).problem.startswith(f"no row has the noted hash {head}")
    write_ledger(path, [decision(99)])
    earlier = verify(path).head
    write_ledger(path, [decision(100)])
    assert verify(path, head=earlier).is_intact
