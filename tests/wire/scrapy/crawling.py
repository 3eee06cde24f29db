"""Crawls by real Scrapy in processes of their own, and the servers that they meet."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from politesse.testing import Exchange, assert_polite

SPIDER: Final = Path(__file__).with_name("spider.py")
ADDON: Final = {"ADDONS": {"politesse.integrations.scrapy.PolitesseAddon": 100}}
AGENT: Final = "ExampleBot"
USER_AGENT: Final = "ExampleBot/1.0 (+https://example.com/bot)"
QUICK: Final = ADDON | {
    "DOWNLOAD_DELAY": 0,
    "POLITESSE_PACING": {"adaptive_factor": 0.0, "backoff_min_s": 0.5},
    "POLITESSE_CACHE": {"retry_min_s": 1.0},
}
PATIENT: Final = QUICK | {"POLITESSE_CACHE": {}}
"""A robots.txt that is unreachable is asked for once in a crawl."""
OPEN: Final = "User-agent: *\nAllow: /\n"

Answer = Callable[[], web.Response]
Robots = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_MAX_CRAWL_S: Final = 100.0  # a crawl that hangs; the machine may be slow


@dataclass
class Crawl:
    """The result of a crawl."""

    pages: list[str]
    ignored: dict[str, str]
    types: dict[str, list[str]]
    parsed: dict[str, dict[str, bool]]
    stats: dict[str, int | str]
    stats_s: dict[str, float]
    decisions: int
    data_txt: list[list[str]]
    said: dict[str, list[object] | None]
    log: str
    elapsed_s: float

    def stats_of(self, prefix: str) -> dict[str, int | str]:
        """Return the stats whose names start so, without that start."""
        return {name.removeprefix(prefix): value for name, value in self.stats.items() if name.startswith(prefix)}


async def crawl(
    urls: list[str], settings: Mapping[str, object], *, environment: Mapping[str, str] | None = None, **task: object
) -> Crawl:
    """Run a crawl to its end; spider.py reads the task."""
    started = time.monotonic()
    process = await start(json.dumps({"urls": urls, "settings": settings, **task}), environment)
    ended = asyncio.ensure_future(process.communicate())
    try:
        hangs = not (await asyncio.wait({ended}, timeout=_MAX_CRAWL_S))[0]
    finally:
        if process.returncode is None:
            process.kill()
        out, err = await ended
    log = err.decode()
    assert not hangs, f"the crawl has not ended after {_MAX_CRAWL_S:g} s:\n{log}"
    assert process.returncode == 0, log
    for sign in ("Task was destroyed", "never retrieved", "was never awaited", "was never entered", "Unhandled error"):
        assert sign not in log, log
    return Crawl(**json.loads(out), log=log, elapsed_s=time.monotonic() - started)


async def visit(settings: Mapping[str, object], *sites: "Site", path: str = "/", **task: Any) -> Crawl:
    """Serve sites, and run a crawl that starts at one page of each."""
    async with serving(*sites):
        return await crawl([f"{site.base}{path}" for site in sites], settings, **task)


async def start(task: str, environment: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "default::ResourceWarning", SPIDER, task),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | (environment or {}),
    )


async def crawl_until(
    number: int, when: Callable[[], bool], urls: list[str], settings: Mapping[str, object], kill_s: float | None = None
) -> str:
    """Run a crawl until a condition holds, send it a signal, and kill it ``kill_s`` later; return its log."""
    process = await start(json.dumps({"urls": urls, "settings": settings}))
    ended = asyncio.ensure_future(process.communicate())
    try:
        async with asyncio.timeout(_MAX_CRAWL_S):
            while not when() and not ended.done():
                await asyncio.sleep(0.02)
            if not ended.done():
                process.send_signal(number)
            await asyncio.wait({ended}, timeout=kill_s)
            if not ended.done():
                process.kill()
            _, err = await asyncio.shield(ended)
    finally:
        if process.returncode is None:
            process.kill()
            await ended
    return err.decode()


@dataclass
class Site:
    """An origin on loopback that records its requests, as ``Exchange`` and as header fields."""

    robots: str | int | Robots = 404
    pages: dict[str, Answer] = field(default_factory=dict)
    page_s: float = 0.0
    base: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)  # of each exchange
    robots_headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [exchange.url.removeprefix(self.base) for exchange in self.exchanges]

    @property
    def urls(self) -> list[str]:
        return [f"{self.base}{path}" for path in self.pages]

    @property
    def page_paths(self) -> list[str]:
        return [path for path in self.paths if path != "/robots.txt"]

    @property
    def robots_count(self) -> int:
        return self.paths.count("/robots.txt")

    @property
    def page_exchanges(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if not exchange.url.endswith("/robots.txt")]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        # Noted before and after the work: an exchange seems no shorter than it was, and no gap longer.
        started = time.monotonic()
        response: web.StreamResponse = web.Response(status=500)
        try:
            response = await (self._robots(request) if request.path == "/robots.txt" else self._page(request))
        finally:
            given = response.headers.get("Retry-After")
            retry_after_s = None if given is None else float(given)
            url = f"{self.base}{request.path_qs}"
            self.agents.append(request.headers.get("User-Agent", "").partition("/")[0])
            self.exchanges.append(Exchange(url, started, time.monotonic(), response.status, retry_after_s))
        return response

    async def _robots(self, request: web.BaseRequest) -> web.StreamResponse:
        self.robots_headers.append(dict(request.headers))
        if callable(self.robots):
            return await self.robots(request)
        if isinstance(self.robots, int):
            return web.Response(status=self.robots)
        return web.Response(text=self.robots)

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(self.page_s)
        return self.pages.get(request.path_qs, status(404))()


def html(*links: str) -> Answer:
    body = "".join(f'<a href="{link}">on</a>' for link in links)
    return text(f"<html><body>{body}</body></html>", Content_Type="text/html")


def status(number: int, body: str | bytes = "", **headers: str) -> Answer:
    octets = body.encode() if isinstance(body, str) else body
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.Response(status=number, body=octets, headers=fields)


def text(body: str | bytes, **headers: str) -> Answer:
    return status(200, body, **headers)


def redirect(location: str) -> Answer:
    return status(302, Location=location)


def in_turn(*answers: Answer) -> Answer:
    """Answer with one after the other; the last stays."""
    left = list(answers)

    def answer() -> web.Response:
        return (left.pop(0) if len(left) > 1 else left[0])()

    return answer


def answering(*answers: Answer) -> Robots:
    """Return a robots.txt that is answered with one after the other; the last stays."""
    answer = in_turn(*answers)

    async def robots(_: web.BaseRequest) -> web.StreamResponse:
        return answer()

    return robots


def wide(robots: str | int | Robots, number: int) -> Site:
    """Return a site of a front page and the pages that it links."""
    paths = [f"/{place}" for place in range(number)]
    return Site(robots, {"/": html(*paths), **dict.fromkeys(paths, html())})


def chain(number: int) -> dict[str, Answer]:
    """Return pages that are found one by one."""
    return {f"/{place}": html(f"/{place + 1}") for place in range(number - 1)} | {f"/{number - 1}": html()}


def giving_up_after(seconds: float) -> dict[str, object]:
    return {"POLITESSE_MAX_WAIT": seconds, "POLITESSE_MAX_UNREACHABLE": seconds}


@asynccontextmanager
async def serving(*sites: Site) -> AsyncIterator[None]:
    """Serve each site at an address of its own, 127.0.0.2 and so on, and so as a host of its own."""
    async with AsyncExitStack() as stack:
        for place, site in enumerate(sites, 2):
            runner = web.ServerRunner(web.Server(site.answer, handler_cancellation=True), shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, f"127.0.0.{place}", 0).start()
            host, port = runner.addresses[0][:2]
            site.base = f"http://{host}:{port}"
        yield


def least_gap_s(site: Site, *, every: bool = False) -> float:
    """Return the least pause between pages that the server saw; with ``every`` between all exchanges."""
    exchanges = sorted(site.exchanges if every else site.page_exchanges, key=lambda exchange: exchange.started)
    return min(after.started - before.ended for before, after in pairwise(exchanges))


def assert_sites_polite(*sites: Site, min_delay_s: float = 0.0) -> None:
    trace = [exchange for site in sites for exchange in site.exchanges]
    robots = {site.base: site.robots for site in sites if isinstance(site.robots, str)}
    assert_polite(trace, robots, agent=AGENT, min_delay_s=min_delay_s)
