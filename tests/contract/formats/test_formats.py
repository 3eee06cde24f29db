"""Files that were written by an earlier politesse: today's code finds each fact in copies of them."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from politesse import Bound, CacheOptions, Gatekeeper, HostPolicy, NotYet, PacingOptions, Reason, TooFar
from politesse._cache import records
from politesse._redis import text_of
from politesse.ledger import LedgerReader, RecordedDecision, RecordedTurn, Snapshot, verify
from politesse.options import FleetOptions
from politesse.origin import Origin
from politesse.ports import Store, Validators
from politesse.queue import CrawlPage, PoliteQueue
from politesse.stores import MemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.usage import Preference, Purpose
from politesse.verdict import AccessResult
from tests.contract.formats.writer import (
    BROKEN,
    BUSY,
    CLOSED,
    GONE,
    MODIFIED,
    MOVED,
    OPEN,
    OURS,
    PREFIX,
    TEXT,
    UA,
    WALL,
)
from tests.core.queue.simulated import Reply, SimulatedWeb
from tests.support.redis_servers import RedisServer, begin_round
from tests.tools.cli.command import politesse

DATA: Final = Path(__file__).parent / "data"
REDIS: Final = json.loads((DATA / "redis.json").read_text())
TIMES: Final = {"seen", "before", "closed", "version", "lost"}  # of a fleet's fields; a lease has two times as well
DIGEST: Final = "46affeb6b11f462d187fa38a418cff55609a7216e9f014f9f94f88e9aa4c9efd"  # of TEXT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in DATA.glob("*.gz"):
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return tmp_path


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Return a server with the keys of the file, which were written just now by its clock."""
    with RedisServer() as server, Redis.from_url(server.url) as redis:
        seconds, micros = redis.time()
        passed = seconds * 10**6 + micros - REDIS["time"]
        for key, value in REDIS["keys"].items():
            if isinstance(value, str):
                redis.set(key, bytes.fromhex(value))
            elif isinstance(value, dict):
                redis.hset(key, mapping={name: _moved(name, text, passed) for name, text in value.items()})
            else:
                redis.zadd(key, {member: score + passed for member, score in value})
        begin_round(server.url, f"{PREFIX}fleet:")
        yield server


def _moved(name: str, text: str, passed: int) -> str:
    if name in TIMES:
        return str(int(text) + passed)
    if not name.startswith("lease:"):
        return text
    expiry, start, late = text.split()
    return f"{int(expiry) + passed} {int(start) + passed} {late}"


def of_store(store: Store, at_wall: float) -> tuple[Gatekeeper, ScriptedFetcher]:
    """Return a gate of another process at a time; a robots.txt that it fetches is unchanged."""
    fetcher = ScriptedFetcher({OPEN: 304})
    cache, pacing = CacheOptions(store_timeout_s=3600), PacingOptions(scope="process")
    return Gatekeeper(UA, fetcher=fetcher, store=store, clock=ManualClock(at_wall), cache=cache, pacing=pacing), fetcher


async def check_store(make: Any) -> None:
    gate, fetcher = of_store(make(), WALL + 20)
    async with gate:
        urls = [f"{site}/private" for site in (OPEN, MOVED, GONE, BROKEN, CLOSED)]
        opened, moved, gone, broken, closed = await gate.check_batch(urls)
        assert fetcher.requests == [], "robots.txt is served by the store"
        assert (opened.allowed, str(opened.rule), opened.digest) == (False, "Disallow: /private", DIGEST)
        page = await gate.check(f"{OPEN}/page")
        assert page.usage is not None
        assert page.usage.preference(Purpose.AI_TRAIN) is Preference.DISALLOWED
        for verdict, result, status, final, fresh_s in (
            (opened, AccessResult.SUCCESSFUL, 200, OPEN, 7200),
            (moved, AccessResult.SUCCESSFUL, 200, "https://elsewhere.example", 86400),
            (gone, AccessResult.UNAVAILABLE, 404, GONE, 86400),
            (closed, AccessResult.SUCCESSFUL, 200, CLOSED, 86400),
        ):
            source = verdict.source
            assert source is not None
            told = (source.result, source.status, source.final_url, source.fetched_wall, source.fresh_until_wall)
            assert told == (result, status, f"{final}/robots.txt", WALL, WALL + fresh_s)
        assert (broken.reason, broken.source and broken.source.status) == (Reason.UNREACHABLE, 503)
        assert broken.source is not None
        assert broken.source.fault == "the server answered with status 503"
        assert broken.not_before is not None
        assert WALL + 60 <= broken.not_before <= WALL + 70
        with pytest.raises(TooFar) as refused:
            async with gate.turn(f"{CLOSED}/page", max_wait_s=0):
                pass
        assert refused.value.not_yet.not_before == pytest.approx(WALL + 3610, abs=1e-3)
        assert refused.value.not_yet.bound_by == Bound.RETRY_AFTER
    gate, _ = of_store(make(), WALL + 12)
    async with gate:  # the page was requested two seconds ago, and robots.txt demands five
        with pytest.raises(TooFar) as refused:
            async with gate.turn(f"{OPEN}/page", max_wait_s=0):
                pass
        assert refused.value.not_yet.not_before == pytest.approx(WALL + 15, abs=1e-3)
        assert refused.value.not_yet.bound_by == Bound.CRAWL_DELAY
    gate, fetcher = of_store(make(), WALL + 7300)
    async with gate:
        assert not await gate.check(f"{OPEN}/private")
        [request] = fetcher.requests
        assert request.validators == Validators(f"{OPEN}/robots.txt", '"v1"', MODIFIED)


# A store


async def test_store_in_a_file_keeps_copies_pauses_and_closures(folder: Path) -> None:
    await check_store(lambda: SqliteStore(folder / "store.db"))


async def test_store_in_redis_keeps_copies_pauses_and_closures(server: RedisServer) -> None:
    await check_store(lambda: RedisStore(server.url, prefix=f"{PREFIX}store:"))


async def test_each_field_of_a_record_is_read_and_written_again(folder: Path) -> None:
    store, keys = SqliteStore(folder / "store.db"), ("open", "moved", "gone", "broken", "closed")
    for name in keys:
        key = f"https://{name}.example"
        octets = await store.get(key)
        assert octets is not None
        assert records.encode(records.decode(octets, key), key) == octets
        host = f"{name}.example"
        octets = await store.get(f"pace/host/{host}")
        assert octets is not None
        written = json.loads(octets[33:])
        read = asdict(records.decode_state(octets, host)) | {"key": host}
        assert _known(written, read) == written
    await store.aclose()


def _known(written: Mapping[str, Any], read: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was read of the fields that were written; fields that were added later do not matter."""
    return {
        name: _known(value, read[name]) if isinstance(value, dict) else read.get(name)
        for name, value in written.items()
    }


async def test_fields_of_a_later_release_are_ignored(folder: Path) -> None:
    store = SqliteStore(folder / "store.db")
    for key, version in ((OPEN, b"politesse/3 "), ("pace/host/closed.example", b"politesse-pace/1 ")):
        octets = await store.get(key)
        assert octets is not None
        content = octets[len(version) + 16 :]
        text = zlib.decompress(content) if key == OPEN else content
        text = text.replace(b"{", b'{"added": [1], ', 1).replace(b'": {', b'": {"more": "x", ')
        changed = records.framed(version, zlib.compress(text) if key == OPEN else text)
        assert changed != octets
        await store.put(key, changed)
    await store.aclose()
    await check_store(lambda: SqliteStore(folder / "store.db"))


async def test_record_of_another_version_counts_as_missing_and_its_host_as_requested_just_now(folder: Path) -> None:
    store = SqliteStore(folder / "store.db")
    for key in (OPEN, "pace/host/closed.example"):
        octets = await store.get(key)
        assert octets is not None
        number = octets.index(b" ")
        await store.put(key, octets[: number - 1] + b"9" + octets[number:])
    gate, fetcher = of_store(store, WALL + 60)
    fetcher.answers[OPEN] = TEXT
    async with gate:
        assert await gate.check(f"{OPEN}/page")
        assert [request.url for request in fetcher.requests] == [f"{OPEN}/robots.txt"]
        await gate.check(f"{CLOSED}/page")
        with pytest.raises(TooFar) as refused:
            async with gate.turn(f"{CLOSED}/page", max_wait_s=0):
                pass
        assert refused.value.not_yet.not_before == pytest.approx(WALL + 61)


async def test_command_store_shows_the_records(folder: Path) -> None:
    path = str(folder / "store.db")
    [told] = (await politesse("store", "stats", "--store", path, "--json")).records
    assert (told["robots"], told["hosts"]) == (5, 5)
    copy, host = (await politesse("store", "show", CLOSED, "--store", path, "--json")).records
    assert (copy["copy"]["result"], copy["copy"]["fetched"]) == ("successful", "2027-01-15T08:00:00Z")
    assert (host["closed_until"], host["closed_by"], host["backoff_s"]) == ("2027-01-15T09:00:10Z", "retry-after", 10.0)


# A journal


async def test_journal_goes_on_with_urls_items_priorities_and_what_was_seen(folder: Path) -> None:
    a, b = "https://a.example", "https://b.example"
    web = SimulatedWeb({f"{a}/sitemap.xml": Reply(200, {"Content-Type": "text/plain"}, body=f"{a}/listed\n".encode())})
    pages: dict[str, tuple[object, ...]] = {}

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        pages[page.url] = (page.item, page.hops, page.attempt, page.depth)

    gate = Gatekeeper(UA, fetcher=ScriptedFetcher({a: "", b: ""}), clock=ManualClock(WALL, autojump=True))
    async with gate, PoliteQueue[object](gate, journal=folder / "journal.db") as queue:
        assert queue.left() == [
            (f"{a}/again", "again", 8),
            (f"{b}/target", "moved", 9),
            (f"{a}/deep", "link", 1),
            (f"{a}/item", {"page": [1, None, "é"]}, 2.5),
            (f"{a}/late", None, -1),
            (f"{a}/sitemap.xml", "listed", 0),
        ]
        for seen in ("done", "moved", "fails", "late"):
            await queue.put(f"{a}/{seen}", item="again")
        assert len(queue.left()) == 6
        await queue.crawl(web, handle)
    assert pages == {
        f"{a}/again": ("again", (), 2, 0),
        f"{b}/target": ("moved", (f"{a}/moved",), 1, 0),
        f"{a}/deep": ("link", (), 1, 1),
        f"{a}/item": ({"page": [1, None, "é"]}, (), 1, 0),
        f"{a}/late": (None, (), 1, 0),
        f"{a}/listed": ("listed", (), 1, 0),
    }
    assert [url for url in pages if url.startswith(a)] == [
        f"{a}/{n}" for n in ("late", "deep", "item", "again", "listed")
    ]


async def test_journal_requests_failed_urls_again(folder: Path) -> None:
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(WALL))
    async with gate, PoliteQueue[object](gate, journal=folder / "journal.db", retry_failed=True) as queue:
        assert ("https://a.example/fails", None, 0) in queue.left()


# A ledger

MISSING: Final = Origin.of(GONE)


def test_ledger_has_its_copies_decisions_and_turns(folder: Path) -> None:
    headers = {"cache-control": "max-age=7200", "content-type": "text/plain", "etag": '"v1"', "last-modified": MODIFIED}
    url, usage, agent = f"{OPEN}/robots.txt", {"ai-train": "disallowed"}, "examplebot"
    with LedgerReader(folder / "ledger.db") as ledger:
        assert list(ledger.paths) == [1, 2]
        assert [copy.url.removesuffix("/robots.txt") for copy in ledger.snapshots()] == [
            OPEN,
            MOVED,
            GONE,
            BROKEN,
            CLOSED,
        ]
        opened, _, gone, broken, _ = ledger.snapshots()
        assert opened == Snapshot(
            Origin.of(OPEN), url, AccessResult.SUCCESSFUL, 200, url, WALL, DIGEST, TEXT, headers, "", WALL
        )
        assert next(iter(ledger.snapshots(MISSING))) == gone
        assert (broken.fault, broken.status) == ("the server answered with status 503", 503)
        decisions, turns = list(ledger.decisions()), list(ledger.turns())
    assert [(one.url.removeprefix("https://"), one.reason.value) for one in decisions] == [
        ("open.example/private", "disallow-rule"),
        ("moved.example/private", "no-rule"),
        ("gone.example/private", "unavailable"),
        ("broken.example/private", "unreachable"),
        ("closed.example/private", "no-rule"),
        ("open.example/page", "no-rule"),
        ("closed.example/page", "no-rule"),
        ("ours.example/page", "policy-exempt"),
        ("ours.example/page", "policy-exempt"),
    ]
    rule = "Disallow: /private"
    assert decisions[0] == RecordedDecision(
        f"{OPEN}/private",
        agent,
        allowed=False,
        reason=Reason.DISALLOW_RULE,
        decided_wall=WALL,
        line=2,
        rule=rule,
        digest=DIGEST,
        fetched_wall=WALL,
    )
    assert decisions[5].usage == usage
    assert decisions[7].note == "our own server"
    at = WALL + 10
    assert turns[0] == RecordedTurn(f"{OPEN}/page", "open.example", agent, at, at, 200, "", DIGEST, usage)
    assert turns[1].status == 429
    at = WALL + 120
    assert turns[3] == RecordedTurn(f"{OURS}/page", "ours.example", agent, at, at, 404, "our own server")


async def test_ledger_is_intact_and_its_commands_report_it(folder: Path) -> None:
    path = str(folder / "ledger.db")
    found = verify(path)
    assert (found.files, found.rows, found.problem, found.dropped, found.unclosed) == (2, 27, "", 0, 0)
    assert (await politesse("ledger", "verify", path, "--head", found.head)).code == 0
    [denied, broken] = (await politesse("ledger", "show", path, "--denied", "--json")).records
    assert (denied["content"]["url"], broken["content"]["url"]) == (f"{OPEN}/private", f"{BROKEN}/private")
    done = await politesse("ledger", "history", path, OPEN, "--json")
    assert (done.code, [one["digest"] for one in done.records]) == (0, [DIGEST])


async def test_ledger_is_continued(folder: Path) -> None:
    path = folder / "ledger.db"
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(WALL + 125), ledger=path) as gate:
        await gate.check("https://new.example/")
    found = verify(path)
    assert (found.files, found.problem) == (2, "")
    assert found.rows > 27


# A fleet


@pytest.mark.realtime
async def test_fleet_keeps_pauses_closures_and_requests_under_way(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.link.HOLD_S", 0.05)  # the round has begun long ago
    prefix = f"{PREFIX}fleet:"
    done = await politesse("fleet", "status", "--fleet", server.url, "--fleet-prefix", prefix, "--json")
    told = {one["host"]: one for one in done.records if "host" in one}
    assert told.keys() == {"busy.example", "closed.example"}
    [lease] = told["busy.example"]["leases"]
    assert (lease["url"], told["closed.example"]["closed_by"]) == (f"{BUSY}/page", "retry-after")
    done = await politesse("fleet", "status", "--fleet", server.url, "--fleet-prefix", prefix, "open.example", "--json")
    assert done.records[0]["interval_s"] == 5.0
    with Redis.from_url(server.url) as redis:
        redis.hset(f"{prefix}2:host:closed.example", "added", "by a later release")
    fleet = FleetOptions(server.url, prefix=prefix)
    partner = HostPolicy(exempt=True, reason="no wait for robots.txt, which the closure would delay")
    policies = {"closed.example": partner, "busy.example": partner}
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher({OPEN: TEXT}), fleet=fleet, store=MemoryStore(), policies=policies)
    async with gate:
        waits: dict[str, NotYet] = {}
        for site in (CLOSED, BUSY, OPEN):
            with pytest.raises(TooFar) as refused:
                async with gate.turn(f"{site}/other", max_wait_s=0.3):
                    pass
            waits[site] = refused.value.not_yet
        now = time.time()
    assert waits[CLOSED].bound_by == Bound.RETRY_AFTER
    assert 3500 < waits[CLOSED].not_before - now < 3600
    assert waits[BUSY].bound_by == Bound.IN_FLIGHT
    assert waits[OPEN].bound_by == Bound.CRAWL_DELAY
    assert 0 < waits[OPEN].not_before - now < 5


async def test_keys_of_another_format_are_another_fleet(server: RedisServer) -> None:
    prefix = f"{PREFIX}fleet:"
    with Redis.from_url(server.url) as redis:
        for key in list(redis.scan_iter(f"{prefix}2:*")):
            redis.rename(key, text_of(key).replace(f"{prefix}2:", f"{prefix}9:"))
    done = await politesse("fleet", "status", "--fleet", server.url, "--fleet-prefix", prefix, "--json")
    assert done.records == [{"totals": dict.fromkeys(("busy", "idle", "foreign", "closed", "leases", "waiting"), 0)}]
