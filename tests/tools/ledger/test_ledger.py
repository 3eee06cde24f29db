# ruff: noqa: ASYNC240 - the files of these tests are small

"""A gate writes a ledger: the rows, the queue and the thread, and the files."""

import asyncio
import json
import logging
import os
import sqlite3
import threading
import tracemalloc
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from politesse import Disallowed, Gatekeeper, HostPolicy, PoliteQueue, Reason, Verdict
from politesse.errors import ConfigurationError, StoreError
from politesse.events import ComponentFailed, Decided, Event
from politesse.ledger import Ledger, LedgerOptions, LedgerReader, RecordedDecision, RecordedTurn, Snapshot, verify
from politesse.ports import FetchResponse
from politesse.stores import MemoryStore, SharedMemoryStore, SqliteStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.usage import Purpose
from politesse.verdict import AccessResult
from tests.support.programs import run_code
from tests.support.scripted import UA
from tests.support.sites import until

SITE = "https://example.com"
OLD, NEW = b"User-agent: *\nDisallow: /old\nContent-Usage: train-ai=n\n", b"User-agent: *\nDisallow: /new\n"
DAY_S = 86_400.0


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def answer(body: bytes, **headers: str) -> FetchResponse:
    return FetchResponse(200, f"{SITE}/robots.txt", {"content-type": "text/plain", **headers}, body)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: OLD.decode()})


def gate_of(fetcher: ScriptedFetcher, ledger: Ledger | Path, clock: ManualClock | None = None) -> Gatekeeper:
    return Gatekeeper(UA, fetcher=fetcher, ledger=ledger, clock=clock or ManualClock(autojump=True))


async def record(
    path: Path, *names: str, options: LedgerOptions | None = None, clock: ManualClock | None = None
) -> None:
    """Record a decision for each name, one after the other; each of them fills a file if files are small."""
    clock = clock or ManualClock(autojump=True)
    ledger = Ledger(path, options or LedgerOptions(), clock=clock)
    async with gate_of(ScriptedFetcher(), ledger, clock) as gate:
        for name in names:
            await gate.check(f"{SITE}/{name}")
            await ledger.flush()
            clock.advance(2.0)


def recorded(path: Path) -> list[str]:
    """The URLs of the decisions, without the site."""
    return [one.url.removeprefix(f"{SITE}/") for one in contents(path).decisions]


@dataclass
class Contents:
    decisions: list[RecordedDecision]
    snapshots: list[Snapshot]
    turns: list[RecordedTurn]


def contents(path: Path) -> Contents:
    with LedgerReader(path) as ledger:
        return Contents(list(ledger.decisions()), list(ledger.snapshots()), list(ledger.turns()))


def seen(path: Path) -> tuple[list[str], str, int]:
    return recorded(path), verify(path).problem, verify(path).files


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.db"))


def write(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


# The rows.


async def test_a_decision_is_recorded_with_the_digest_and_the_preferences_of_its_copy(
    path: Path, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with gate_of(fetcher, path, clock) as gate:
        begin_wall = clock.wall()
        gate.set_policy("own.example", HostPolicy(exempt=True, reason="our own server"))
        await gate.check(f"{SITE}/old/a")
        assert gate.peek(f"{SITE}/b")
        await gate.check("https://own.example/")
    denied, allowed, exempt = contents(path).decisions
    robots = contents(path).snapshots[0]
    assert (denied.url, denied.agent, denied.allowed) == (f"{SITE}/old/a", "examplebot", False)
    assert (denied.reason, denied.line, denied.rule) == (Reason.DISALLOW_RULE, 2, "Disallow: /old")
    assert (allowed.allowed, allowed.reason, allowed.usage) == (True, Reason.NO_RULE, {"ai-train": "disallowed"})
    assert denied.digest == allowed.digest == robots.digest == digest(OLD)
    assert denied.fetched_wall == robots.fetched_wall == robots.recorded_wall == denied.decided_wall == begin_wall
    assert (robots.body, robots.status, robots.result) == (OLD, 200, AccessResult.SUCCESSFUL)
    assert (exempt.reason, exempt.note, exempt.line) == (Reason.POLICY_EXEMPT, "our own server", None)
    assert (exempt.digest, exempt.fetched_wall) == ("", None)


async def test_a_snapshot_has_the_relevant_headers_of_its_answer(path: Path) -> None:
    headers = {"etag": '"1"', "cache-control": "max-age=60", "date": "Fri, 15 Jan 2027 08:00:00 GMT"}
    async with gate_of(ScriptedFetcher({SITE: answer(OLD, server="nginx", **headers)}), path) as gate:
        await gate.check(f"{SITE}/")
    [robots] = contents(path).snapshots
    assert robots.headers == {"content-type": "text/plain", **headers}


async def test_a_failed_fetch_is_recorded_without_a_file(path: Path) -> None:
    failed = FetchResponse(503, f"{SITE}/robots.txt", {"retry-after": "600"}, b"busy")
    async with gate_of(ScriptedFetcher({SITE: failed}), path) as gate:
        assert not await gate.check(f"{SITE}/")
    [robots], [decision] = contents(path).snapshots, contents(path).decisions
    assert (robots.result, robots.status, robots.body, robots.digest) == (AccessResult.UNREACHABLE, 503, b"", "")
    assert (robots.headers, bool(robots.fault)) == ({"retry-after": "600"}, True)
    assert (decision.reason, decision.digest) == (Reason.UNREACHABLE, "")
    assert decision.fetched_wall == robots.fetched_wall


async def test_decisions_before_and_after_a_change_rest_on_their_own_copies(path: Path, clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: [OLD.decode(), NEW.decode()]})
    async with gate_of(fetcher, path, clock) as gate:
        for _ in range(2):
            await gate.check(f"{SITE}/old")
            await gate.check(f"{SITE}/new")
            clock.advance(DAY_S + 1.0)
    decided = [(one.url.removeprefix(SITE), one.allowed, one.digest) for one in contents(path).decisions]
    assert [robots.body for robots in contents(path).snapshots] == [OLD, NEW]
    old, new = digest(OLD), digest(NEW)
    assert decided == [("/old", False, old), ("/new", True, old), ("/old", True, new), ("/new", False, new)]


async def test_a_copy_from_the_store_is_recorded_again_after_a_restart(path: Path, clock: ManualClock) -> None:
    fetcher, store = ScriptedFetcher({SITE: answer(OLD, etag='"1"', date="now")}), SharedMemoryStore()
    for name in (path.with_name("first.db"), path):
        async with Gatekeeper(UA, fetcher=fetcher, ledger=name, clock=clock, store=store) as gate:
            await gate.check(f"{SITE}/old")
        clock.advance(60.0)
    assert fetcher.count(SITE) == 1
    [robots], [decision] = contents(path).snapshots, contents(path).decisions
    assert (robots.body, robots.digest, decision.digest) == (OLD, digest(OLD), digest(OLD))
    assert robots.headers == {"etag": '"1"', "content-type": "text/plain"}
    assert robots.recorded_wall == robots.fetched_wall + 60.0 == decision.decided_wall


async def test_a_304_confirms_the_same_file(path: Path, clock: ManualClock) -> None:
    confirmed = FetchResponse(304, f"{SITE}/robots.txt", {"date": "later"}, conditional=True)
    async with gate_of(ScriptedFetcher({SITE: [answer(OLD, etag='"1"'), confirmed]}), path, clock) as gate:
        for _ in range(2):
            await gate.check(f"{SITE}/")
            clock.advance(DAY_S + 1.0)
    first, second = contents(path).snapshots
    assert (second.body, second.digest, second.status) == (OLD, first.digest, 200)
    assert (second.headers["date"], second.headers["etag"]) == ("later", '"1"')
    assert second.fetched_wall == first.fetched_wall + DAY_S + 1.0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM ledger_bodies").fetchone() == (1,)


async def test_a_turn_is_recorded_at_its_end(path: Path, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    async with gate_of(fetcher, path, clock) as gate:
        async with gate.turn(f"{SITE}/a") as turn:
            started_wall = clock.wall()
            clock.advance(2.0)
            turn.observe(404)
        async with gate.turn(f"{SITE}/old", exempt="by agreement"):
            pass
        (await gate.take_turn(f"{SITE}/c")).give_back()
        with suppress(Disallowed):
            await gate.take_turn(f"{SITE}/old")
    first, second = contents(path).turns
    assert (first.url, first.host, first.agent, first.status) == (f"{SITE}/a", "example.com", "examplebot", 404)
    assert (first.started_wall, first.ended_wall) == (started_wall, started_wall + 2.0)
    assert (first.exempt, first.digest, first.usage) == ("", digest(OLD), {"ai-train": "disallowed"})
    assert (second.url, second.exempt, second.status) == (f"{SITE}/old", "by agreement", None)


async def test_a_sample_keeps_denials_and_exemptions_and_a_url_with_its_turn(
    path: Path, fetcher: ScriptedFetcher
) -> None:
    ledger = Ledger(path, LedgerOptions(sample=0.25))
    async with gate_of(fetcher, ledger) as gate:
        gate.set_policy("own.example", HostPolicy(exempt=True, reason="ours"))
        for number in range(200):
            await gate.check(f"{SITE}/old/{number}")
            await gate.check(f"https://own.example/{number}")
            async with gate.turn(f"{SITE}/{number}"):
                pass
    decisions, turns = contents(path).decisions, [turn.url for turn in contents(path).turns]
    assert sum(not one.allowed for one in decisions) == 200
    assert sum(one.reason is Reason.POLICY_EXEMPT for one in decisions) == 200
    assert [one.url for one in decisions if one.reason is Reason.NO_RULE] == turns
    assert 30 <= len(turns) <= 70


async def test_other_files_are_requested_like_pages_and_recorded(path: Path, clock: ManualClock) -> None:
    url = f"{SITE}/llms.txt"
    denied = "https://denied.example"
    robots = "User-agent: *\nDisallow: /llms.txt"
    fetcher = ScriptedFetcher({SITE: OLD.decode(), url: "# Example", denied: robots})
    async with gate_of(fetcher, Ledger(path, LedgerOptions(files=["/llms.txt"])), clock) as gate:
        await gate.check(f"{SITE}/")
        await gate.check(f"{denied}/")
        await clock.sleep(10.0)
    with LedgerReader(path) as ledger:
        [file] = ledger.snapshots(path="/llms.txt")
        assert [turn.url for turn in ledger.turns()] == [url]
    assert (file.url, file.body, file.digest) == (url, b"# Example", digest(b"# Example"))
    assert fetcher.count(f"{denied}/llms.txt") == 0


# The queue and the thread.


async def test_flush_acknowledges_earlier_rows(path: Path, fetcher: ScriptedFetcher) -> None:
    ledger = Ledger(path)
    async with gate_of(fetcher, ledger) as gate:
        await gate.check(f"{SITE}/")
        await ledger.flush()
        assert recorded(path) == [""]
        assert gate.statistics().recorded == ledger.written == 2


async def test_close_writes_the_rows_that_wait_and_ends_the_thread(path: Path, fetcher: ScriptedFetcher) -> None:
    async with gate_of(fetcher, path) as gate:
        for number in range(1_000):
            await gate.check(f"{SITE}/{number}")
    assert (found := verify(path)).problem == ""
    assert (found.rows, found.unclosed, found.dropped) == (1 + 1 + 1 + 1_000 + 1, 0, 0)
    assert not any(thread.name == "politesse ledger.db" for thread in threading.enumerate())


async def test_close_while_a_cancelled_task_flushes(path: Path, fetcher: ScriptedFetcher) -> None:
    ledger = Ledger(path)
    gate = gate_of(fetcher, ledger)
    await gate.check(f"{SITE}/")
    flushing = asyncio.create_task(ledger.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    closing_gate = asyncio.create_task(gate.aclose())
    await asyncio.sleep(0)
    closing_gate.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing_gate
    with pytest.raises(asyncio.CancelledError):
        await flushing
    await gate.aclose()
    assert verify(path).rows == 5
    with pytest.raises(StoreError, match=r"ledger .* is closed"):
        await ledger.flush()


async def test_a_turn_that_ends_after_the_close_is_counted(path: Path, fetcher: ScriptedFetcher) -> None:
    gate = gate_of(fetcher, path)
    turn = await gate.take_turn(f"{SITE}/")
    await gate.aclose()
    turn.end()
    assert gate.statistics().unrecorded == 1


async def test_rows_beyond_the_limit_are_dropped_counted_and_warned_of_once(
    path: Path, fetcher: ScriptedFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(path, LedgerOptions(max_queued_rows=10))
    async with gate_of(fetcher, ledger) as gate:
        await gate.check(f"{SITE}/")
        await ledger.flush()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the thread waits for the lock
            for number in range(500):
                assert gate.peek(f"{SITE}/{number}")
            assert 400 < gate.statistics().unrecorded < 500
            other.execute("ROLLBACK")
        await ledger.flush()
        dropped = ledger.dropped
        assert len(recorded(path)) == 501 - dropped
        assert verify(path).dropped == dropped
    warned = [record.getMessage() for record in caplog.records if "drops rows" in record.getMessage()]
    assert len(warned) == 1
    assert f"dropped={dropped}" in repr(ledger)


async def test_large_files_that_wait_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse.ledger._ledger._MAX_BODIES", 25_000)
    sites = {f"https://{number}.example": "#" * 10_000 for number in range(10)}
    ledger = Ledger(path)
    async with gate_of(ScriptedFetcher(sites), ledger) as gate:
        await gate.check_batch(f"{site}/" for site in sites)
        await ledger.flush()
        dropped = ledger.dropped
        assert dropped > 0
        assert len(contents(path).snapshots) == 10 - dropped


async def test_a_full_disk_is_reported_once_and_rows_are_written_later_or_counted_at_the_close(
    path: Path, fetcher: ScriptedFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse.ledger._ledger._RETRY_S", 0.01)
    fill = "CREATE TRIGGER full BEFORE INSERT ON ledger_rows BEGIN SELECT RAISE(ABORT, 'no room'); END"
    failures: list[ComponentFailed] = []
    ledger = Ledger(path)
    async with gate_of(fetcher, ledger) as gate:
        gate.subscribe(lambda event: failures.append(event) if isinstance(event, ComponentFailed) else None)
        await gate.check(f"{SITE}/acknowledged")
        await ledger.flush()
        write(path, fill)
        await gate.check(f"{SITE}/later")
        for _ in range(2):
            with pytest.raises(StoreError, match="no room"):
                await ledger.flush()
        assert verify(path).problem == ""
        write(path, "DROP TRIGGER full")
        await ledger.flush()
        assert recorded(path) == ["acknowledged", "later"]
        assert [(event.component, "ledger.db" in str(event.error)) for event in failures] == [("ledger", True)]
        failures.clear()
        write(path, fill)
        await gate.check(f"{SITE}/lost")
    assert (len(failures), ledger.dropped, ledger.queued) == (1, 1, 0)


async def test_a_file_that_is_replaced_is_a_fault(path: Path, fetcher: ScriptedFetcher) -> None:
    ledger = Ledger(path)
    async with gate_of(fetcher, ledger) as gate:
        await gate.check(f"{SITE}/")
        await ledger.flush()
        path.rename(path.with_name("moved.db"))
        await gate.check(f"{SITE}/")
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await ledger.flush()


async def test_a_gate_that_is_dropped_without_a_close_ends_the_thread(path: Path, fetcher: ScriptedFetcher) -> None:
    ledger = Ledger(path)
    ledger.record(await gate_of(fetcher, path.with_name("other.db")).check(f"{SITE}/"))
    await ledger.flush()
    del ledger
    for _ in range(200):
        if not any(thread.name == "politesse ledger.db" for thread in threading.enumerate()):
            break
        await asyncio.sleep(0.01)
    assert (verify(path).rows, verify(path).unclosed) == (3, 1)


# The files.


async def test_a_full_or_old_file_is_sealed_and_the_next_continues_the_chain(
    path: Path, clock: ManualClock, tmp_path: Path
) -> None:
    for name, options in {
        "small.db": LedgerOptions(max_file_bytes=1),
        "young.db": LedgerOptions(max_file_age_s=1.0),
        "without_suffix": LedgerOptions(max_file_bytes=1),
    }.items():
        for run in "12":
            await record(tmp_path / name, *(f"{run}{n}" for n in range(3)), options=options, clock=clock)
        found, problem, count = seen(tmp_path / name)
        assert (found, problem, count >= 4) == (["10", "11", "12", "20", "21", "22"], "", True)


async def test_two_gates_write_to_one_ledger(path: Path, fetcher: ScriptedFetcher) -> None:
    async with gate_of(fetcher, path) as one, gate_of(fetcher, path) as other:
        for number in range(200):
            await one.check(f"{SITE}/one/{number}")
            await other.check(f"{SITE}/other/{number}")
    found = verify(path)
    assert (found.problem, found.unclosed, found.rows) == ("", 0, 1 + 2 * (1 + 1 + 200 + 1))


async def test_a_newer_ledger_and_a_folder_are_refused(path: Path) -> None:
    await record(path, "a")
    write(path, "UPDATE parts SET version = 2")
    path.with_name("folder.db").mkdir()
    for name, problem in {"ledger.db": "newer politesse", "folder.db": "not a regular file"}.items():
        with pytest.raises(ConfigurationError, match=rf"ledger: .*{problem}"):
            Gatekeeper(UA, ledger=path.with_name(name))


async def test_the_file_of_another_series_is_left_alone(path: Path, fetcher: ScriptedFetcher) -> None:
    """The other file comes while this ledger is open."""
    second, aside, clock = path.with_name("ledger.0002.db"), path.with_name("aside.db"), ManualClock()
    await record(aside, "other", clock=clock)
    before = aside.read_bytes()
    ledger = Ledger(path, LedgerOptions(max_file_bytes=1))
    gate = gate_of(fetcher, ledger, clock)
    aside.rename(second)
    await gate.check(f"{SITE}/")
    await ledger.flush()
    await gate.check(f"{SITE}/")
    with pytest.raises(StoreError, match=r"ledger\.0002\.db belongs to another ledger"):
        await ledger.flush()
    await gate.aclose()
    assert second.read_bytes() == before


def test_wrong_options_and_ledgers_of_another_type_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"sample": 1.5}, {"sample": "all"}, {"files": ["llms.txt"]}, {"max_queued_rows": 0}]
    for options in [*wrong, {"max_file_age_s": 0.0}]:
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            LedgerOptions(**options)
    ledgers: tuple[Any, ...] = ("", 5, b"ledger.db", MemoryStore())
    for ledger in ledgers:
        with pytest.raises(ConfigurationError):
            Gatekeeper(UA, ledger=ledger)


def test_without_a_ledger_its_modules_are_not_loaded() -> None:
    program = "import sys; from politesse import *; Gatekeeper('Bot/1.0'); print('politesse.ledger' in sys.modules)"
    assert run_code(program).stdout == "False\n"


# The names of the files: names that end with a number, and a next file that is just being made.

SMALL = LedgerOptions(max_file_bytes=1)


async def test_a_name_with_a_number_is_the_name_of_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "crawl.2026.db"
    await record(path, "a")
    await record(path, "b")
    assert files(tmp_path) == ["crawl.2026.db"]
    assert seen(path) == (["a", "b"], "", 1)
    await record(path, "c", "d", options=SMALL)
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
        assert seen(path) == ([path.name] * 2, "", 1)


async def test_a_store_whose_name_ends_with_a_number_is_no_file_of_a_ledger(tmp_path: Path) -> None:
    path, store = tmp_path / "crawl.db", SqliteStore(tmp_path / "crawl.2026.db")
    await store.put(SITE, b"record")
    await store.aclose()
    await record(path, "a")
    await record(path, "b")
    assert seen(path)[:2] == (["a", "b"], "")


async def test_a_ledger_in_place_of_the_next_file_is_refused(tmp_path: Path) -> None:
    path, second = tmp_path / "ledger.db", tmp_path / "ledger.0002.db"
    await record(second, "other")
    await record(path, "a")
    assert verify(path).problem == "rows are missing between row 5 of ledger.db and ledger.0002.db"
    before = second.read_bytes()
    with pytest.raises(StoreError, match=r"ledger\.0002\.db belongs to another ledger"):
        await record(path, "b")
    assert second.read_bytes() == before


async def test_a_writer_is_given_the_first_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", options=SMALL)
    with pytest.raises(ConfigurationError, match=r"ledger\.0002\.db continues another file: give the first file"):
        Ledger(tmp_path / "ledger.0002.db")


async def test_a_ledger_whose_first_files_were_moved_away_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", options=SMALL)
    path.unlink()
    last = max(files(tmp_path))
    await record(path, "c")
    assert not path.exists()
    assert (recorded(path)[-1], verify(path).problem) == ("c", "")
    assert last in files(tmp_path)


def _empty(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))


def _without_tables(path: Path) -> None:
    write(path, "PRAGMA journal_mode = WAL")


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


async def test_a_next_file_without_rows_hides_no_row(tmp_path: Path) -> None:
    for leave in (_empty, _without_tables, _in_its_first_transaction, _without_rows):
        folder = tmp_path / leave.__name__
        folder.mkdir()
        path = folder / "ledger.db"
        await record(path, "a", "b", options=SMALL)
        count = len(files(folder))
        leave(folder / f"ledger.{count + 1:04}.db")
        assert seen(path) == (["a", "b"], "", count)
        await record(path, "c")
        assert seen(path) == (["a", "b", "c"], "", count + 1)


async def test_a_file_that_was_emptied_between_others_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await record(path, "a", "b", "c", options=SMALL)
    await until(lambda: not list(tmp_path.glob("*-wal")))  # the threads of the full files have closed them
    (tmp_path / "ledger.0002.db").write_bytes(b"")
    with closing(sqlite3.connect(path)) as connection:  # how many rows are written together depends on the threads
        [last] = connection.execute("SELECT max(number) FROM ledger_rows").fetchone()
    assert verify(path).problem.startswith(f"rows are missing between row {last} of ledger.db and ledger.0003.db")


# The text of a hostile site is cut wherever it is kept for each event.

RULE = f"User-agent: *\nDisallow: /{'*' * 400_000}\n"  # the normal form of the pattern is short, so all URLs match
STATEMENT = f"User-agent: *\nContent-Usage: /{'*' * 400_000} train-ai=n\n"


async def test_decisions_by_a_long_rule_take_no_disk_and_no_memory(path: Path) -> None:
    async with gate_of(ScriptedFetcher({SITE: RULE}), path) as gate:
        await gate.check(f"{SITE}/first")
        tracemalloc.start()
        for number in range(300):  # none is written yet: the ledger writes when the event loop is free
            gate.peek(f"{SITE}/{number}")
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 10 * len(RULE)
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 5 * len(RULE)
    [copy], decisions = contents(path).snapshots, contents(path).decisions
    assert len(decisions) == 301
    assert {(one.line, one.rule, one.digest) for one in decisions} == {(2, f"Disallow: /{'*' * 189}", copy.digest)}
    assert copy.body.decode() == RULE


async def test_a_short_rule_is_recorded_as_it_is_written(path: Path) -> None:
    rule = f"Disallow: /\u00e4\x07{'y' * 180}"
    async with gate_of(ScriptedFetcher({SITE: f"User-agent: *\n{rule}\n"}), path) as gate:
        await gate.check(f"{SITE}/\u00e4%07{'y' * 180}")
        await gate.check(f"{SITE}/b")
    assert {one.rule for one in contents(path).decisions} <= {rule, ""}


@pytest.mark.parametrize(("robots", "usage"), [(RULE, []), (STATEMENT, [Purpose.AI_TRAIN])], ids=["rule", "usage"])
async def test_records_events_errors_and_log_lines_of_a_refusal_are_short(
    caplog: pytest.LogCaptureFixture, path: Path, clock: ManualClock, robots: str, usage: list[Purpose]
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    records: list[dict[str, Any]] = []

    async def handle(*_: object) -> None:
        raise AssertionError("no page is requested")

    events: list[Event] = []
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: robots}), clock=clock, ledger=path, enforce_usage=usage)
    async with gate, aiohttp.ClientSession() as session:
        gate.subscribe(events.append)
        verdict = await gate.check(f"{SITE}/")
        assert not verdict
        refused: list[Verdict] = []
        queue: PoliteQueue[None] = PoliteQueue(gate, on_disallowed=lambda _, verdict: refused.append(verdict))
        await queue.put(f"{SITE}/a")
        await queue.crawl(session, handle, out=records.append)
        with pytest.raises(Disallowed) as raised:
            await gate.take_turn(f"{SITE}/b")
    assert [record["outcome"] for record in records] == ["disallowed"]
    texts = [json.dumps(records[0]), str(raised.value), verdict.note, verdict.explain(), repr(verdict)]
    texts += [repr(event) for event in events if isinstance(event, Decided)]
    texts += [record.getMessage() for record in caplog.records]
    with LedgerReader(path) as ledger:
        texts += [row.content for _, row in ledger.rows()]
    assert max(map(len, texts)) < 1_000
