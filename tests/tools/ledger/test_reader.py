import os
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from politesse import Origin, Reason, RobotsTxt, Verdict
from politesse.errors import StoreError
from politesse.ledger import LedgerReader, RecordedTurn, Snapshot
from politesse.ledger._rows import turn_of
from politesse.stores._sqlite_file import Part
from politesse.stores._sqlite_opening import open_file
from politesse.verdict import AccessResult, Match, Source, VerdictBasis, verdict_of_basis
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


def verdict(path: str) -> Verdict:
    rules = RobotsTxt.parse(ROBOTS).rules_for("ExampleBot")
    source = Source(SITE.robots_url, AccessResult.SUCCESSFUL, 200, SITE.robots_url, 1_000.0, 1_000.0 + DAY_S)
    basis = VerdictBasis("examplebot", source, 1_000.0, rules.site_usage, digest=DIGEST)
    match = rules.match(path)
    return verdict_of_basis(SITE.text + path, match.allowed, match, basis, 1_005.0, 1_005.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_snapshots_come_back_with_the_facts_of_their_answers(path: Path) -> None:
    recorded = [snapshot(), snapshot(OTHER, None, wall=2_000.0), snapshot(body=b"", wall=3_000.0)]
    write_ledger(path, recorded)
    with LedgerReader(path) as ledger:
        assert list(ledger.snapshots()) == recorded
        assert list(ledger.snapshots(OTHER)) == recorded[1:2]
        assert list(ledger.snapshots(Origin.of("https://unknown.example"))) == []


def test_other_files_are_found_by_their_path(path: Path) -> None:
    url = SITE.text + "/llms.txt"
    file = Snapshot(SITE, url, AccessResult.SUCCESSFUL, 200, url, 5.0, sha256(b"# A").hexdigest(), b"# A")
    write_ledger(path, [snapshot(), file])
    with LedgerReader(path) as ledger:
        assert list(ledger.snapshots()) == [snapshot()]
        assert list(ledger.snapshots(SITE, path="/llms.txt")) == [file]
        assert list(ledger.snapshots(path=None)) == [snapshot(), file]


def test_decisions_come_back_with_the_copy_on_which_they_rest(path: Path) -> None:
    match = Match(Reason.POLICY_EXEMPT)
    exempt = Verdict("https://own.example/", "examplebot", allowed=True, match=match, note="our own server")
    write_ledger(path, [verdict("/private/a"), verdict("/b"), exempt])
    with LedgerReader(path) as ledger:
        first, second, third = ledger.decisions()
    assert (first.url, first.allowed, first.reason) == (SITE.text + "/private/a", False, Reason.DISALLOW_RULE)
    assert (first.agent, first.line, first.rule) == ("examplebot", 2, "Disallow: /private")
    assert (first.digest, first.fetched_wall, first.decided_wall) == (DIGEST.hex(), 1_000.0, 1_005.0)
    assert (second.allowed, second.reason, second.line) == (True, Reason.NO_RULE, None)
    assert second.usage == {"ai-train": "disallowed"}
    assert (third.reason, third.note) == (Reason.POLICY_EXEMPT, "our own server")
    assert (third.digest, third.fetched_wall) == ("", None)


def test_turns_come_back_with_the_copy_on_which_they_rest(path: Path) -> None:
    match = Match(Reason.POLICY_EXEMPT)
    exempt = Verdict("http://own.example:8080/", "examplebot", allowed=True, match=match, note="by agreement")
    write_ledger(path, [turn_of(verdict("/a"), 1.0, 1.5, 200), turn_of(exempt, 3.0, 3.5, None)])
    usage = {"ai-train": "disallowed"}
    with LedgerReader(path) as ledger:
        assert list(ledger.turns()) == [
            RecordedTurn(SITE.text + "/a", "example.com", "examplebot", 1.0, 1.5, 200, "", DIGEST.hex(), usage),
            RecordedTurn("http://own.example:8080/", "own.example", "examplebot", 3.0, 3.5, None, "by agreement"),
        ]


def test_a_series_of_files_is_read_as_one_ledger(path: Path) -> None:
    end = write_ledger(path, [snapshot()])
    write_ledger(path.with_name("ledger.0002.db"), [verdict("/a")], previous=end)
    path.with_name("ledger.other.db").write_bytes(b"of another program")
    with LedgerReader(path) as ledger:
        assert (len(list(ledger.snapshots())), len(list(ledger.decisions()))) == (1, 1)
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


def test_a_path_without_a_ledger_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no ledger at .*ledger\.db"):
        LedgerReader(path)
    path.write_bytes(b"no database, but long enough to be read as the header of one" * 20)
    with pytest.raises(StoreError, match="no politesse file"):
        LedgerReader(path)
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="is not set up yet"):
        LedgerReader(path)


def test_a_store_is_no_ledger(path: Path) -> None:
    open_file(path, [Part("records", ())], busy_timeout_s=1.0).close()
    with pytest.raises(StoreError, match="has records, and a ledger needs a file of its own"):
        LedgerReader(path)


def test_a_ledger_of_a_newer_politesse_is_refused(path: Path) -> None:
    write_ledger(path, [])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE parts SET version = 2 WHERE name = 'ledger'")
    with pytest.raises(StoreError, match=r"newer politesse.*ledger version 2, known up to 1"):
        LedgerReader(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_rows SET content = 'x' WHERE number = 2",
        "UPDATE ledger_rows SET content = x'ff00' WHERE number = 2",
        "UPDATE ledger_rows SET content = replace(content, 'successful', 'fine') WHERE number = 2",
        "UPDATE ledger_rows SET content = '{}' WHERE number = 2",
        "DELETE FROM ledger_bodies",
    ],
)
def test_a_damaged_row_is_named(path: Path, change: str) -> None:
    write_ledger(path, [snapshot()])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with LedgerReader(path) as ledger, pytest.raises(StoreError, match=r"row 2 of .*ledger\.db is damaged"):
        list(ledger.snapshots())
