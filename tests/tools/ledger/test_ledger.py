# ruff: noqa: ASYNC240 - the files of these tests are small

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from politesse import Disallowed, Gatekeeper, HostPolicy, Origin, Reason
from politesse.errors import ConfigurationError, StoreError
from politesse.events import ComponentFailed
from politesse.ledger import Ledger, LedgerOptions, LedgerReader, verify
from politesse.ledger import _ledger as writing
from politesse.ports import FetchResponse
from politesse.stores import MemoryStore, SharedMemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.support.programs import run_code
from tests.support.scripted import UA

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


def write(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


# The rows.


async def test_a_decision_is_recorded_with_the_digest_and_the_preferences_of_its_copy(
    path: Path, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with gate_of(fetcher, path, clock) as gate:
        begin_wall = clock.wall()
        await gate.check(f"{SITE}/old/a")
        assert gate.peek(f"{SITE}/b")
        unreachable = await gate.check("https://down.example/")  # ScriptedFetcher has no file there
    with LedgerReader(path) as ledger:
        denied, allowed, third = ledger.decisions()
        [robots] = ledger.snapshots(Origin.of(SITE))
    assert (denied.allowed, denied.line, denied.rule) == (False, 2, "Disallow: /old")
    assert (allowed.allowed, allowed.reason, allowed.usage) == (True, Reason.NO_RULE, {"ai-train": "disallowed"})
    assert denied.digest == allowed.digest == robots.digest == digest(OLD)
    assert denied.fetched_wall == robots.fetched_wall == robots.recorded_wall == denied.decided_wall == begin_wall
    assert (robots.body, robots.status, robots.result) == (OLD, 200, AccessResult.SUCCESSFUL)
    assert (third.reason, third.digest) == (unreachable.reason, "")


async def test_a_snapshot_has_the_relevant_headers_of_its_answer(path: Path) -> None:
    headers = {"etag": '"1"', "cache-control": "max-age=60", "date": "Fri, 15 Jan 2027 08:00:00 GMT"}
    async with gate_of(ScriptedFetcher({SITE: answer(OLD, server="nginx", **headers)}), path) as gate:
        await gate.check(f"{SITE}/")
    with LedgerReader(path) as ledger:
        [robots] = ledger.snapshots()
    assert robots.headers == {"content-type": "text/plain", **headers}


async def test_a_failed_fetch_is_recorded_without_a_file(path: Path) -> None:
    failed = FetchResponse(503, f"{SITE}/robots.txt", {"retry-after": "600"}, b"busy")
    async with gate_of(ScriptedFetcher({SITE: failed}), path) as gate:
        assert not await gate.check(f"{SITE}/")
    with LedgerReader(path) as ledger:
        [robots], [decision] = ledger.snapshots(), ledger.decisions()
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
    with LedgerReader(path) as ledger:
        decided = [(one.url.removeprefix(SITE), one.allowed, one.digest) for one in ledger.decisions()]
        assert [robots.body for robots in ledger.snapshots()] == [OLD, NEW]
    old, new = digest(OLD), digest(NEW)
    assert decided == [("/old", False, old), ("/new", True, old), ("/old", True, new), ("/new", False, new)]


async def test_a_copy_from_the_store_is_recorded_again_after_a_restart(path: Path, clock: ManualClock) -> None:
    fetcher, store = ScriptedFetcher({SITE: answer(OLD, etag='"1"', date="now")}), SharedMemoryStore()
    for name in (path.with_name("first.db"), path):
        async with Gatekeeper(UA, fetcher=fetcher, ledger=name, clock=clock, store=store) as gate:
            await gate.check(f"{SITE}/old")
        clock.advance(60.0)
    assert fetcher.count(SITE) == 1
    with LedgerReader(path) as ledger:
        [robots], [decision] = ledger.snapshots(), ledger.decisions()
    assert (robots.body, robots.digest, decision.digest) == (OLD, digest(OLD), digest(OLD))
    assert robots.headers == {"etag": '"1"', "content-type": "text/plain"}
    assert robots.recorded_wall == robots.fetched_wall + 60.0 == decision.decided_wall


async def test_a_304_confirms_the_same_file(path: Path, clock: ManualClock) -> None:
    confirmed = FetchResponse(304, f"{SITE}/robots.txt", {"date": "later"}, conditional=True)
    async with gate_of(ScriptedFetcher({SITE: [answer(OLD, etag='"1"'), confirmed]}), path, clock) as gate:
        for _ in range(2):
            await gate.check(f"{SITE}/")
            clock.advance(DAY_S + 1.0)
    with LedgerReader(path) as ledger:
        first, second = ledger.snapshots()
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
    with LedgerReader(path) as ledger:
        first, second = ledger.turns()
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
    with LedgerReader(path) as reader:
        decisions, turns = list(reader.decisions()), [turn.url for turn in reader.turns()]
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
        with LedgerReader(path) as reader:
            assert len(list(reader.decisions())) == 1
        assert gate.statistics().recorded == ledger.written == 2


async def test_close_writes_the_rows_that_wait_and_ends_the_thread(path: Path, fetcher: ScriptedFetcher) -> None:
    async with gate_of(fetcher, path) as gate:
        for number in range(3_000):
            await gate.check(f"{SITE}/{number}")
    assert (found := verify(path)).problem == ""
    assert (found.rows, found.unclosed, found.dropped) == (1 + 1 + 1 + 3_000 + 1, 0, 0)
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
            for number in range(2_000):
                assert gate.peek(f"{SITE}/{number}")
            assert 1_900 < gate.statistics().unrecorded < 2_000
            other.execute("ROLLBACK")
        await ledger.flush()
        dropped = ledger.dropped
        with LedgerReader(path) as reader:
            assert len(list(reader.decisions())) == 2_001 - dropped
        assert verify(path).dropped == dropped
    warned = [record.getMessage() for record in caplog.records if "drops rows" in record.getMessage()]
    assert len(warned) == 1
    assert f"dropped={dropped}" in repr(ledger)


async def test_large_files_that_wait_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_MAX_BODIES", 25_000)
    sites = {f"https://{number}.example": "#" * 10_000 for number in range(10)}
    ledger = Ledger(path)
    async with gate_of(ScriptedFetcher(sites), ledger) as gate:
        await gate.check_batch(f"{site}/" for site in sites)
        await ledger.flush()
        dropped = ledger.dropped
        assert dropped > 0
        with LedgerReader(path) as reader:
            assert len(list(reader.snapshots())) == 10 - dropped


async def test_a_full_disk_is_reported_once_and_rows_are_written_later(
    path: Path, fetcher: ScriptedFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_RETRY_S", 0.01)
    failures: list[ComponentFailed] = []
    ledger = Ledger(path)
    async with gate_of(fetcher, ledger) as gate:
        gate.subscribe(lambda event: failures.append(event) if isinstance(event, ComponentFailed) else None)
        await gate.check(f"{SITE}/acknowledged")
        await ledger.flush()
        write(path, "CREATE TRIGGER full BEFORE INSERT ON ledger_rows BEGIN SELECT RAISE(ABORT, 'no room'); END")
        await gate.check(f"{SITE}/later")
        for _ in range(2):
            with pytest.raises(StoreError, match="no room"):
                await ledger.flush()
        assert verify(path).problem == ""
        write(path, "DROP TRIGGER full")
        await ledger.flush()
        with LedgerReader(path) as reader:
            assert [one.url for one in reader.decisions()] == [f"{SITE}/acknowledged", f"{SITE}/later"]
    assert [(event.component, "ledger.db" in str(event.error)) for event in failures] == [("ledger", True)]


async def test_rows_that_cannot_be_written_at_the_close_are_reported_and_counted(
    path: Path, fetcher: ScriptedFetcher
) -> None:
    failures: list[ComponentFailed] = []
    ledger = Ledger(path)
    async with gate_of(fetcher, ledger) as gate:
        gate.subscribe(lambda event: failures.append(event) if isinstance(event, ComponentFailed) else None)
        await gate.check(f"{SITE}/")
        await ledger.flush()
        write(path, "CREATE TRIGGER full BEFORE INSERT ON ledger_rows BEGIN SELECT RAISE(ABORT, 'no room'); END")
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


@pytest.mark.parametrize("options", [LedgerOptions(max_file_bytes=1), LedgerOptions(max_file_age_s=60.0)])
async def test_a_full_or_old_file_is_sealed_and_the_next_continues_the_chain(
    path: Path, fetcher: ScriptedFetcher, options: LedgerOptions, clock: ManualClock
) -> None:
    for run in range(2):
        ledger = Ledger(path, options, clock=clock)
        async with gate_of(fetcher, ledger, clock) as gate:
            for number in range(3):
                await gate.check(f"{SITE}/{run}/{number}")
                await ledger.flush()
                clock.advance(61.0)
    found = verify(path)
    assert found.problem == ""
    assert found.files >= 4
    with LedgerReader(path) as reader:
        assert [one.url for one in reader.decisions()] == [f"{SITE}/{run}/{at}" for run in range(2) for at in range(3)]


async def test_all_files_of_a_ledger_without_a_suffix_are_read(tmp_path: Path, fetcher: ScriptedFetcher) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path, LedgerOptions(max_file_bytes=1))
    async with gate_of(fetcher, ledger) as gate:
        for number in range(3):
            await gate.check(f"{SITE}/{number}")
            await ledger.flush()
    with LedgerReader(path) as reader:
        assert [one.url for one in reader.decisions()] == [f"{SITE}/{number}" for number in range(3)]
    found = verify(path)
    assert found.problem == ""
    assert found.files >= 3


async def test_a_next_file_that_a_killed_process_left_empty_continues_the_chain(
    path: Path, fetcher: ScriptedFetcher
) -> None:
    async with gate_of(fetcher, Ledger(path, LedgerOptions(max_file_bytes=1))) as gate:
        await gate.check(f"{SITE}/first")
    last = max(path.parent.glob("ledger.*.db"), default=path)
    left = path.with_name(f"ledger.{len(list(path.parent.glob('*.db'))) + 1:04}.db")
    shutil.copy(last, left)
    write(left, "DELETE FROM ledger_rows")
    async with gate_of(fetcher, path) as gate:
        await gate.check(f"{SITE}/second")
    with LedgerReader(path) as reader:
        assert [one.url for one in reader.decisions()] == [f"{SITE}/first", f"{SITE}/second"]
    assert verify(path).problem == ""


async def test_a_second_run_continues_the_file_of_the_first(path: Path, fetcher: ScriptedFetcher) -> None:
    for _ in range(2):
        async with gate_of(fetcher, path) as gate:
            await gate.check(f"{SITE}/")
    assert (verify(path).rows, verify(path).files) == (1 + 2 * 4, 1)


async def test_two_gates_write_to_one_ledger(path: Path, fetcher: ScriptedFetcher) -> None:
    async with gate_of(fetcher, path) as one, gate_of(fetcher, path) as other:
        for number in range(500):
            await one.check(f"{SITE}/one/{number}")
            await other.check(f"{SITE}/other/{number}")
    found = verify(path)
    assert (found.problem, found.unclosed, found.rows) == ("", 0, 1 + 2 * (1 + 1 + 500 + 1))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b"another program" * 100), "no politesse file"),
        (lambda path: write(path, "CREATE TABLE other (a)"), "of another program"),
        (lambda path: path.mkdir(), "not a regular file"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused(path: Path, make: Callable[[Path], None], problem: str) -> None:
    make(path)
    before = path.is_file() and path.read_bytes()
    with pytest.raises(ConfigurationError, match=f"ledger: .*{problem}"):
        Gatekeeper(UA, ledger=path)
    assert before == (path.is_file() and path.read_bytes())


async def test_a_store_and_a_newer_ledger_are_refused(path: Path, fetcher: ScriptedFetcher) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, store=path) as gate:
        await gate.check(f"{SITE}/")
    with pytest.raises(ConfigurationError, match=r"ledger: .*has records, and a ledger needs a file of its own"):
        Gatekeeper(UA, ledger=path)
    newer = path.with_name("newer.db")
    async with gate_of(fetcher, newer) as gate:
        await gate.check(f"{SITE}/")
    write(newer, "UPDATE parts SET version = 2")
    with pytest.raises(ConfigurationError, match=r"ledger: .*newer politesse"):
        Gatekeeper(UA, ledger=newer)


async def test_the_file_of_another_series_is_left_alone(path: Path, fetcher: ScriptedFetcher) -> None:
    second = path.with_name("ledger.0002.db")
    async with gate_of(fetcher, path, clock := ManualClock()) as gate:
        await gate.check(f"{SITE}/")
    path.rename(second)
    async with gate_of(fetcher, path.with_name("other.db"), clock) as gate:
        await gate.check(f"{SITE}/")
    path.with_name("other.db").rename(path)
    clock.advance(60.0)  # otherwise the third robots.txt would have to wait
    before = second.read_bytes()
    second.rename(path.with_name("aside.db"))
    ledger = Ledger(path, LedgerOptions(max_file_bytes=1))
    gate = gate_of(fetcher, ledger, clock)
    path.with_name("aside.db").rename(second)
    await gate.check(f"{SITE}/")
    await ledger.flush()
    await gate.check(f"{SITE}/")
    with pytest.raises(StoreError, match=r"ledger\.0002\.db belongs to another ledger"):
        await ledger.flush()
    await gate.aclose()
    assert second.read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [{"sample": 1.5}, {"sample": "all"}, {"files": ["llms.txt"]}, {"max_queued_rows": 0}, {"max_file_age_s": 0.0}],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        LedgerOptions(**options)  # type: ignore[arg-type] # some are wrong


@pytest.mark.parametrize("ledger", ["", 5, b"ledger.db", MemoryStore()])
def test_a_ledger_of_another_type_is_refused(ledger: object) -> None:
    with pytest.raises(ConfigurationError):
        Gatekeeper(UA, ledger=ledger)  # type: ignore[arg-type]


def test_without_a_ledger_its_modules_are_not_loaded() -> None:
    program = "import sys; from politesse import *; Gatekeeper('Bot/1.0'); print('politesse.ledger' in sys.modules)"
    assert run_code(program).stdout == "False\n"
