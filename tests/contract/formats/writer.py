"""Writes the files of a format: ``python -m tests.contract.formats.writer FOLDER``; see ``data/README.md``."""

# ruff: noqa: ASYNC240 - the files are small

import asyncio
import gzip
import json
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from redis import Redis

from politesse import CacheOptions, Gatekeeper, HostPolicy, PacingOptions
from politesse._redis import text_of
from politesse.errors import PolitesseWarning
from politesse.ledger import Ledger, LedgerOptions
from politesse.options import FleetOptions
from politesse.ports import FetchResponse, Store
from politesse.queue import CrawlPage, PoliteQueue
from politesse.stores import MemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.simulated import Reply, SimulatedWeb, moved
from tests.support.redis_servers import RedisServer, begin_round

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
WALL: Final = 1_800_000_000.0  # 2027-01-15T08:00:00Z
PREFIX: Final = "format1:"
TEXT: Final = b"User-agent: *\nDisallow: /private\nCrawl-delay: 5\nContent-Usage: train-ai=n\n"
MODIFIED: Final = "Fri, 01 Jan 2027 00:00:00 GMT"
HEADERS: Final = {"etag": '"v1"', "last-modified": MODIFIED, "cache-control": "max-age=7200"}
OPEN, MOVED, GONE, BROKEN, CLOSED, BUSY, OURS = (
    f"https://{name}.example" for name in ("open", "moved", "gone", "broken", "closed", "busy", "ours")
)


def fetcher() -> ScriptedFetcher:
    """Return what the sites say; robots.txt of the others is empty."""
    opened = FetchResponse(200, f"{OPEN}/robots.txt", {**HEADERS, "content-type": "text/plain"}, TEXT)
    elsewhere = FetchResponse(200, "https://elsewhere.example/robots.txt", body=b"User-agent: *\nDisallow: /old\n")
    return ScriptedFetcher({OPEN: opened, MOVED: elsewhere, BROKEN: 503, CLOSED: "", BUSY: "", "https://a.example": ""})


async def use(gate: Gatekeeper, clock: ManualClock | None = None) -> None:
    """Check each site, request a page of the open one, and be refused by the closed one."""
    await gate.check_batch([f"{site}/private" for site in (OPEN, MOVED, GONE, BROKEN, CLOSED)])
    if clock is not None:
        clock.advance(10)
    async with gate.turn(f"{OPEN}/page") as turn:
        turn.observe(200)
    async with gate.turn(f"{CLOSED}/page") as turn:
        turn.observe(429, {"Retry-After": "3600"})


async def write_store(store: Store) -> None:
    clock, pacing, cache = ManualClock(WALL), PacingOptions(scope="process"), CacheOptions(store_timeout_s=3600)
    async with Gatekeeper(UA, fetcher=fetcher(), store=store, clock=clock, pacing=pacing, cache=cache) as gate:
        await use(gate, clock)


async def write_ledger(path: Path) -> None:
    for wall in (WALL, WALL + 60, WALL + 120):  # the second run seals the first file, and the third begins another
        clock = ManualClock(wall)
        ledger = Ledger(path, LedgerOptions(max_file_age_s=30), clock=clock)
        policies = {"ours.example": HostPolicy(exempt=True, reason="our own server")}
        async with Gatekeeper(UA, fetcher=fetcher(), ledger=ledger, clock=clock, policies=policies) as gate:
            if wall == WALL:
                await use(gate, clock)
            else:
                async with gate.turn(f"{OURS}/page") as turn:
                    turn.observe(404)


async def write_journal(path: Path) -> None:
    site, other = "https://a.example", "https://b.example"
    web = SimulatedWeb({f"{site}/moved": moved(f"{other}/target"), f"{site}/again": Reply(503)})
    clock = ManualClock(WALL, autojump=True)
    gate = Gatekeeper(UA, fetcher=fetcher(), clock=clock, pacing=PacingOptions(min_delay_s=0, adaptive_factor=0))
    async with gate, PoliteQueue[Any](gate, journal=path) as queue:

        async def handle(page: CrawlPage[Any], _: Reply) -> None:
            if page.url.endswith("/fails"):
                raise OSError("the disk of the handler is full")
            page.put(f"{site}/deep", item="link", priority=1)
            await asyncio.sleep(0)

        await queue.put(f"{site}/done", item="start")
        await queue.put(f"{site}/fails")
        await queue.crawl(web, handle, max_pages=2)
        await queue.put(f"{site}/moved", item="moved", priority=9)
        crawl = asyncio.create_task(queue.crawl(web, _stay, max_pages=9))
        while not web.requests[f"{other}/target"]:
            await asyncio.sleep(0)
        await queue.put(f"{site}/again", item="again", priority=8)
        while not web.requests[f"{site}/again"]:
            await asyncio.sleep(0)
        crawl.cancel()
        with suppress(asyncio.CancelledError):
            await crawl
        await queue.put(f"{site}/item", item={"page": [1, None, "é"]}, priority=2.5)
        await queue.put(f"{site}/late", priority=-1)
        await queue.put_sitemaps(f"{site}/sitemap.xml", item="listed")


async def _stay(_page: CrawlPage[Any], _response: Reply) -> None:
    await asyncio.Event().wait()


async def write_redis(path: Path) -> None:
    """Dump a store and a fleet; in the fleet a host is closed, and a request is under way at another."""
    with RedisServer() as server, Redis.from_url(server.url) as redis:
        await write_store(RedisStore(server.url, prefix=f"{PREFIX}store:"))
        begin_round(server.url, f"{PREFIX}fleet:")
        fleet = FleetOptions(server.url, prefix=f"{PREFIX}fleet:", lease_s=3600)
        async with Gatekeeper(UA, fetcher=fetcher(), fleet=fleet, store=MemoryStore()) as gate:
            await use(gate)
            async with gate.turn(f"{BUSY}/page"):
                seconds, micros = redis.time()
                dump = {key: _dumped(redis, key.encode()) for key in sorted(map(text_of, redis.keys(f"{PREFIX}*")))}
    path.write_text(json.dumps({"time": seconds * 10**6 + micros, "keys": dump}, indent=1) + "\n")


def _dumped(redis: Any, key: bytes) -> object:
    match redis.type(key):
        case b"string":
            return redis.get(key).hex()
        case b"hash":
            return {name.decode(): value.decode() for name, value in sorted(redis.hgetall(key).items())}
        case _:
            return [[member.decode(), score] for member, score in redis.zrange(key, 0, -1, withscores=True)]


async def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        await write_store(SqliteStore(made / "store.db", clock=ManualClock(WALL)))
        await write_ledger(made / "ledger.db")
        await write_journal(made / "journal.db")
        for path in sorted(made.glob("*.db")):
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    await write_redis(folder / "redis.json")


if __name__ == "__main__":
    with warnings.catch_warnings(action="error", category=PolitesseWarning):
        asyncio.run(main(Path(sys.argv[1])))
