"""Processes that fork, are killed or start again, the clocks of the machine, and a thousand servers that are silent."""

import asyncio
import json
import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
from aiohttp import web

from politesse import FetchOptions, Gatekeeper, PacingOptions, TooFar
from politesse.options import SharedPacer
from politesse.ports import FetchResponse, Store
from politesse.stores import SqliteStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.sites import EAGER, UA
from tests.support.tiers import first_of
from tests.wire.clients.journal_program import PUTS
from tests.wire.clients.programs import INTERVAL_S

pytestmark = pytest.mark.realtime

# What is made before a fork has an identity of its own in each child, or raises an error that says what to do


async def reports(*parts: tuple[str, object, int]) -> list[list[Any]]:
    """Return what the two children of each part report; the last of its values is whether it was used before."""
    arguments = [str(value) for part in parts for value in part]
    process = await started("wire.clients.programs", "forked", *arguments, options=(), stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60.0):
        printed, _ = await process.communicate()
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(found) == 2 * len(parts)
    return [found[place : place + 2] for place in range(0, len(found), 2)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kinds", first_of(1, [("sqlite", "fleet"), ("redis", "gate")]))
async def test_what_is_made_before_a_fork_serves_each_child_unless_it_was_used(
    redis_server: RedisServer, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    store, gate = kinds
    place, journal = redis_server.url if store == "redis" else tmp_path / "robots.db", tmp_path / "urls.db"
    redis = redis_server.url if gate == "fleet" else ""
    unused_store, used_store, unused_queue, used_queue, used_gate = await reports(
        *((store, place, used) for used in (0, 1)),
        *(("queue", journal, 0), ("queue", tmp_path / "used.db", 1), (gate, redis, 1)),
    )
    assert unused_store == ["ok", "ok"]
    assert all("StoreError" in one and "before the fork" in one for one in used_store), used_store
    spans = sorted(one for one in unused_queue if isinstance(one, list))
    errors = [one for one in unused_queue if isinstance(one, str)]
    assert all("StoreError" in one and "one queue at a time" in one for one in errors), errors
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), spans
    for one in used_queue + used_gate:
        assert "WrongEventLoop: " in one
        assert "create one for each event loop" in one


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_gates_of_a_fleet_that_are_made_before_a_fork_keep_one_pace(redis_server: RedisServer) -> None:
    await asyncio.sleep(max(0.0, 1.5 - redis_server.age_s))
    [[one, other]] = await reports(("fleet", redis_server.url, 0))
    assert isinstance(one, list), one
    assert isinstance(other, list), other
    spans = sorted([*one, *other])
    assert len(spans) == 8
    assert all(later[0] - earlier[1] >= INTERVAL_S for earlier, later in pairwise(spans)), spans


# A crawl with a journal that is killed 20 times: nothing acknowledged is lost, and what has ended is not repeated


PROGRAM: Final = Path(__file__).with_name("journal_program.py")
HOSTS: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
WIDTH: Final = 14


@dataclass
class Web:
    """Three hosts whose pages link to each other: a tree, some of whose pages are redirects."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def starts(self) -> list[str]:
        return [f"http://{host}:{self.port}/" for host in HOSTS]

    def links(self, url: str) -> list[str]:
        """Return what the page, or the redirect, at a URL refers to."""
        path = url.split("/", 3)[3]
        if path.endswith("r"):
            return [f"{self.starts[len(path) % 3]}{path}target"]
        if path and (path.count("/") or not path.isdigit()):
            return []
        below = f"{path}/" if path else ""
        pages = [f"{self.starts[place % 3]}{below}{place}" for place in range(WIDTH)]
        return [*pages, f"{self.starts[1]}{below}r"]

    def pages(self) -> set[str]:
        """Return all URLs of a crawl from the starts, without those of the producer."""
        found, new = set(self.starts), self.starts
        while new:
            new = [link for url in new for link in self.links(url) if link not in found]
            found |= set(new)
        return found

    def puts(self) -> set[str]:
        return {f"{self.starts[number % 3]}put/{number}" for number in range(PUTS)}

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        url = f"http://{request.host}{request.path}"
        self.requests.append(url)
        await asyncio.sleep(0.015)
        links = self.links(url)
        if url.endswith("r"):
            return web.Response(status=301, headers={"Location": links[0]})
        return web.Response(text="".join(f'<a href="{link}">' for link in links))


@asynccontextmanager
async def serving() -> AsyncIterator[Web]:
    site = Web()
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        for host in HOSTS:
            await web.TCPSite(runner, host, site.port).start()
            site.port = site.port or runner.addresses[0][1]
        yield site
    finally:
        await runner.cleanup()


@dataclass
class File:
    """What the journal holds after a kill, as SQLite itself reads it."""

    queued: set[str]
    seen: set[bytes]

    @classmethod
    def read(cls, path: Path) -> "File":
        with closing(sqlite3.connect(path)) as connection:
            if not connection.execute("SELECT * FROM sqlite_master").fetchall():
                return cls(set(), set())  # killed before the tables were made
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            queued = [url for (url,) in connection.execute("SELECT url FROM queued")]
            seen = {digest for (digest,) in connection.execute("SELECT digest FROM seen")}
        assert len(queued) == len(set(queued)), "a URL is queued twice"
        return cls(set(queued), seen)

    def has_ended(self, url: str) -> bool:
        return url not in self.queued and blake2b(url.encode(), digest_size=16).digest() in self.seen


async def run(path: Path, site: Web, sabotage: str, kill_after_s: float | None) -> list[str]:
    """Run the program, kill it so long after its start, and return the URLs whose ``put`` has returned."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, path, sabotage, *site.starts, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(200.0):  # a guard: a run takes a second or two
            assert await process.stdout.readline() == b"ready\n"
            if kill_after_s is not None:
                await asyncio.sleep(kill_after_s)
                process.kill()
            said = (await process.stdout.read()).decode().splitlines()
            code = await process.wait()
    except BaseException:
        process.kill()
        raise
    if kill_after_s is None:
        assert (code, said[-1]) == (0, "over")
    return [url for url in said if url != "over"]


def check(site: Web, file: File, acknowledged: set[str], earlier: File | None, requests: list[str]) -> None:
    """Check what a killed run has left.

    Args:
        site: with the requests of all runs.
        file: what the run has left.
        acknowledged: the URLs whose ``put`` has returned, in this run or before.
        earlier: what the run before has left.
        requests: those of this run.
    """
    ended = {url for url in site.pages() | site.puts() if file.has_ended(url)}
    lost = acknowledged - file.queued - ended
    assert not lost, f"acknowledged, and not in the file: {lost}"
    assert ended <= set(site.requests), "ended, and never requested"
    for url in ended:
        missing = [link for link in site.links(url) if link not in file.queued and link not in ended]
        assert not missing, f"{url} has ended, but {missing} is not in the file"
    again = [url for url in requests if earlier is not None and earlier.has_ended(url)]
    assert not again, f"had ended, and requested again: {again}"


async def crawl_through_kills(path: Path, kills: int, sabotage: str = "") -> tuple[Web, int]:
    """Kill a crawl again and again and check each time, then let it end; return how many kills met work."""
    moments = random.Random(9309)
    acknowledged: set[str] = set()
    earlier, busy = None, 0
    async with serving() as site:
        for _ in range(kills):
            before = len(site.requests)
            acknowledged |= set(await run(path, site, sabotage, moments.uniform(0.0, 0.2)))
            file = File.read(path)
            check(site, file, acknowledged, earlier, site.requests[before:])
            busy += bool(file.queued)
            earlier = file
        before = len(site.requests)
        await run(path, site, sabotage, None)
        check(site, File.read(path), site.puts(), earlier, site.requests[before:])
    return site, busy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", first_of(1, [2, 20]))
async def test_no_url_is_lost_and_none_that_has_ended_is_repeated_through_kills(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "crawl.db"
    site, busy = await crawl_through_kills(path, kills)
    assert set(site.requests) == site.pages() | site.puts()
    assert File.read(path).queued == set()
    assert busy >= kills // 4, "kills met a crawl that had begun, and was not over"
    assert max(Counter(site.requests).values()) <= 1 + kills


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        ("put-returns-before-the-commit", "acknowledged, and not in the file"),
        ("end-of-a-page-before-its-links", "has ended, but .* is not in the file"),
    ],
)
async def test_the_check_finds_a_journal_that_breaks_its_promise(tmp_path: Path, sabotage: str, found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        await crawl_through_kills(tmp_path / "crawl.db", 20, sabotage)


# A gate that starts again on the file of an earlier one


START: Final = 1_800_000_000


def sites(count: int) -> dict[str, FetchResponse]:
    rules = {f"https://host{n}.example": f"User-agent: *\nDisallow: /private{n}/".encode() for n in range(count)}
    return {base: FetchResponse(200, f"{base}/robots.txt", {"etag": '"1"'}, body) for base, body in rules.items()}


async def answers(gate: Gatekeeper, count: int) -> list[bool]:
    """Whether each site allows what it disallows, and what the next one disallows."""
    urls = [f"https://host{n}.example/private{m}/x" for n in range(count) for m in (n, n + count)]
    return [verdict.allowed for verdict in await asyncio.gather(*map(gate.check, urls))]


@pytest.mark.parametrize(
    "count", [100, pytest.param(1_000, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.weekly)]
)
async def test_a_gate_on_the_same_file_answers_without_a_request(tmp_path: Path, count: int) -> None:
    first, second, path = ScriptedFetcher(sites(count)), ScriptedFetcher(), tmp_path / "robots.db"
    async with Gatekeeper(UA, fetcher=first, clock=ManualClock(wall=START), store=path) as gate:
        assert await answers(gate, count) == [False, True] * count
        async with Gatekeeper(UA, fetcher=second, clock=ManualClock(wall=START), store=path) as other:  # at once
            assert await answers(other, count) == [False, True] * count
    async with Gatekeeper(UA, fetcher=second, clock=ManualClock(wall=START + 43_200), store=path) as gate:
        assert await answers(gate, count) == [False, True] * count
    assert (len(first.requests), second.requests) == (count, [])


class WithoutUpdate:
    """A SqliteStore that has what a Store must have, and answers a moment later."""

    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path)
        self.put = self._store.put
        self.delete = self._store.delete
        self.aclose = self._store.aclose

    async def get(self, key: str, /) -> bytes | None:
        record = await self._store.get(key)
        await asyncio.sleep(0.02)
        return record


@pytest.mark.parametrize(("make", "rounds"), [(SqliteStore, 40), (WithoutUpdate, 10)])
async def test_two_gates_of_one_file_lose_nothing(tmp_path: Path, make: Callable[[Path], Store], rounds: int) -> None:
    """A store that gets and then puts loses one: the test can fail."""

    def gate_of(store: Store) -> Gatekeeper:
        fetcher, pacer = ScriptedFetcher(sites(rounds)), SharedPacer(EAGER)  # as in a process of its own
        return Gatekeeper(UA, store=store, fetcher=fetcher, pacer=pacer)

    path, hosts = tmp_path / "robots.db", [*sites(rounds)]
    async with gate_of(make(path)) as first, gate_of(make(path)) as second:
        for number, host in enumerate(hosts):
            one, other = (first, second) if number % 2 else (second, first)
            async with one.turn(f"{host}/page") as closed, other.turn(f"{host}/page") as answered:
                await asyncio.sleep(0.02)  # both starts are noted
                closed.observe(429, {"Retry-After": "3600"})
                answered.observe(200)
    opened: list[str] = []
    async with gate_of(SqliteStore(path)) as gate:
        for host in hosts:
            try:
                async with gate.turn(f"{host}/page", max_wait_s=1.0):
                    opened.append(host)
            except TooFar as far:
                assert far.not_yet.not_before > time.time() + 3000  # noqa: PT017
    assert bool(opened) == (make is WithoutUpdate), opened


# The pacer on the clocks of the machine, under the event loops that crawlers use


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_gap_is_under_the_interval(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    interval_s, trace = 0.05, {f"host{number}.example": list[tuple[float, float]]() for number in range(20)}

    async def work(gate: Gatekeeper, number: int) -> None:
        for visit in range(10):
            host = f"host{(number + 7 * visit) % len(trace)}.example"
            async with gate.turn(f"https://{host}/") as turn:
                started_mono = time.monotonic()
                await asyncio.sleep(0.001 * (number % 3))
                turn.observe(200)
                trace[host].append((started_mono, time.monotonic()))

    async def crawl() -> None:
        pacing = PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=pacing) as gate:
            await asyncio.gather(*(work(gate, number) for number in range(40)))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(crawl())
    assert sum(map(len, trace.values())) == 400
    gaps = [later[0] - earlier[1] for requests in trace.values() for earlier, later in pairwise(requests)]
    assert min(gaps) >= interval_s


# A healthy site beside a thousand servers that accept connections and never answer


# It has a process of its own: accepting a thousand connections is to cost the gate nothing. It listens at every
# address of loopback, and prints the ports of its silent and of its healthy server.
SERVER: Final = """
import asyncio

async def stall(reader, writer):
    await reader.read(-1)

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    body = b"User-agent: *\\nDisallow: /private\\n"
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    await writer.drain()
    writer.close()

async def main():
    servers = [await asyncio.start_server(handler, "0.0.0.0", 0, backlog=2000) for handler in (stall, answer)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address there")
@pytest.mark.parametrize("count", first_of(1, [250, 1000]))
async def test_servers_that_never_answer_do_not_hold_up_a_healthy_one(count: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    timeout_s = 15.0
    try:
        stalled, healthy = map(int, (await process.stdout.readline()).split())
        async with Gatekeeper(UA, fetch=FetchOptions(total_timeout_s=timeout_s)) as gate:
            urls = [f"http://127.1.{place // 250}.{place % 250 + 1}:{stalled}/page" for place in range(count)]
            asking = asyncio.ensure_future(gate.check_batch(urls))
            await asyncio.sleep(0)
            took_s = []
            for place in range(3):
                before = time.monotonic()
                assert await gate.check(f"http://127.2.0.{place + 1}:{healthy}/page")
                took_s.append(time.monotonic() - before)
                assert not asking.done(), "the others are still being waited for"
            asking.cancel()
    finally:
        process.kill()
        await process.wait()
    assert max(took_s) < timeout_s / 2, took_s  # not what it takes, but that nobody waits for the time limit
