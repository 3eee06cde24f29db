"""A crawl with a journal that is killed 20 times: nothing acknowledged is lost, and what has ended is not repeated."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.support.tiers import first_of
from tests.wire.clients.journal_program import PUTS

pytestmark = pytest.mark.realtime

PROGRAM: Final = Path(__file__).with_name("journal_program.py")
HOSTS: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
MAX_RUN_S: Final = 60.0
PAGE_S: Final = 0.015
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
        await asyncio.sleep(PAGE_S)
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
    def read(cls, path: Path) -> File:
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
        async with asyncio.timeout(MAX_RUN_S):
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
    if earlier is not None:
        again = [url for url in requests if earlier.has_ended(url)]
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
