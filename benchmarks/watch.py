"""What it costs a crawl to be watched: processor time of a page, and the longest step on its event loop.

The pages are answered on loopback by another process, at pace 0, and robots.txt is at hand. Three readers in a process
of their own read an event stream each, in different orders. Of the processor time, the time of the crawl's process
counts, so a ratio is that of pages a second on a processor of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from unittest import mock

import aiohttp

from benchmarks.figures import Figure, figure
from benchmarks.loopback import process_running, serving
from benchmarks.many_hosts.crawlers import UNPACED, USER_AGENT, LoopbackResolver, connector
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave, older_objects_frozen
from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.testing import ScriptedFetcher
from politesse.watch import WatchServer, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from politesse.queue import CrawlPage

_ROBOTS: Final = b"User-agent: *\nDisallow: /private/\n"
_WORKERS: Final = 20
_VIEWS: Final = ("?sort=host&count=50", "?sort=-queued&count=50", "?phase=waiting&sort=-waiting&count=50")
_NOT: Final = "not watched"
_SERVED: Final = "served, not watched"
_WATCHED: Final = "watched by three"
_NAMES: Final = (_NOT, _SERVED, _WATCHED)
_TICKS_S: Final = 4.0


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    hosts, pages = settings.size(1_000, 20), settings.size(10, 2)
    with serving([_ROBOTS]) as port, asyncio.Runner() as runner, ExitStack() as readers:
        origins, stack = [f"http://site{number}.example:{port}" for number in range(hosts)], AsyncExitStack()
        try:
            crawls = _Crawls(runner, readers, origins, pages, *runner.run(_opened(stack, origins)))
            contenders = [Contender(name, partial(crawls.prepare, name)) for name in _NAMES]
            samples = interleave(contenders, settings.rounds)
        finally:
            runner.run(stack.aclose())
    rows, figures = [], []
    for name in _NAMES:
        ratio = figure(f"watch/{name}", samples.ratios(name, _NOT))
        figures.append(ratio)
        rows.append(
            (name, f"{samples.median_us(name):.1f}", f"{ratio.value:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}")
        )
    yield table(
        f"watch: a crawl of {hosts:,} hosts with {pages} pages each, {settings.rounds} interleaved rounds",
        ("", "us a page", "x not watched", "quartiles"),
        rows,
    )
    yield from figures[1:]
    many, origins_of_one = settings.size(10_000, 200), settings.size(3_000, 20)
    longest_ms, share = asyncio.run(_longest_step(many, origins_of_one, settings.size(3, 1)))
    longest = ", ".join(f"{one:.1f}" for one in longest_ms[:4])
    yield (
        f"watch: {many:,} hosts, each with a URL in the queue, one of {origins_of_one:,} origins, three streams: the "
        f"longest steps took {longest} ms, all steps {100 * share:.1f} % of the time"
    )
    yield Figure("watch/longest step", longest_ms[0], longest_ms[0], longest_ms[0], "ms")


@dataclass(frozen=True, slots=True)
class _Crawls:
    """Attributes:
    runner: of the crawls.
    readers: ends the readers of a round.
    origins: that are crawled.
    pages: of each origin.
    gate: knows all origins.
    web: of the gate.
    """

    runner: asyncio.Runner
    readers: ExitStack
    origins: Sequence[str]
    pages: int
    gate: Gatekeeper
    web: PoliteSession
    servers: list[WatchServer] = field(default_factory=list)

    def prepare(self, name: str, number: int) -> Task:
        queue = self.runner.run(self._prepared(name, number))
        return Task(lambda: self.runner.run(self._crawl(queue)), len(self.origins) * self.pages)

    async def _prepared(self, name: str, number: int) -> PoliteQueue[None]:
        self.readers.close()
        while self.servers:  # of the round before
            await self.servers.pop().aclose()
        queue: PoliteQueue[None] = PoliteQueue(self.gate)
        for origin in self.origins:
            for page in range(self.pages):
                await queue.put(f"{origin}/{_NAMES.index(name)}/{number}/{page}")
        if name != _NOT:
            self.servers.append(await serve(self.gate, queue, port=0))
        if name == _WATCHED:
            pipe = self.readers.enter_context(process_running(_read, self.servers[0].url))
            await asyncio.to_thread(pipe.recv)
        return queue

    async def _crawl(self, queue: PoliteQueue[None]) -> None:
        async def handle(_: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
            await response.read()

        report = await queue.crawl(self.web, handle, workers=_WORKERS)
        if report.pages != len(self.origins) * self.pages:
            raise aiohttp.ClientError(f"{report}")


def _read(there: Connection, url: str) -> None:
    asyncio.run(_read_all(url, there))


async def _read_all(url: str, there: Connection | None = None) -> None:
    """Read an event stream for each view; tell when all have begun."""
    begun = asyncio.Barrier(len(_VIEWS) + 1)

    async def read(http: aiohttp.ClientSession, view: str) -> None:
        async with http.get(f"{url}events{view}") as response:
            await response.content.readuntil(b"event: hosts")
            await begun.wait()
            while await response.content.readany():
                pass

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(), read_bufsize=2**22) as http:
        reading = [asyncio.create_task(read(http, view)) for view in _VIEWS]
        await begun.wait()
        if there is not None:
            there.send(os.getpid())
        await asyncio.gather(*reading, return_exceptions=True)


async def _opened(stack: AsyncExitStack, origins: Sequence[str]) -> tuple[Gatekeeper, PoliteSession]:
    gate = await stack.enter_async_context(Gatekeeper(USER_AGENT, pacing=UNPACED, resolver=LoopbackResolver()))
    await gate.check_batch(f"{origin}/" for origin in origins)
    return gate, await stack.enter_async_context(PoliteSession(gate, connector=connector()))


async def _longest_step(hosts: int, origins_of_one: int, times: int) -> tuple[list[float], float]:
    """Return the longest steps of the event loop while many hosts are watched, in ms, and their share of the time.

    One more host, which is seen, has ``origins_of_one`` ports.
    """
    spent: list[float] = []
    run_handle = asyncio.Handle._run  # noqa: SLF001 - asyncio has no other place to time each step

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run_handle(handle)
        spent.append(time.thread_time() - began)

    origins = [f"https://a.example:{1 + number}" for number in range(origins_of_one)]
    origins += [f"https://h{number}.example" for number in range(hosts)]
    site = ScriptedFetcher(dict.fromkeys(origins, _ROBOTS))
    async with Gatekeeper(USER_AGENT, fetcher=site, pacing=UNPACED) as gate:
        await gate.check_batch(f"{origin}/" for origin in origins)
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for number in range(hosts):
            await queue.put(f"https://h{number}.example/1")
        async with await serve(gate, queue, port=0) as server:
            timing = mock.patch.object(asyncio.Handle, "_run", timed)
            with process_running(_read, server.url) as pipe, older_objects_frozen(), timing:
                await asyncio.to_thread(pipe.recv)
                started = time.monotonic()
                await asyncio.sleep(times * _TICKS_S)
                passed_s = time.monotonic() - started
    return sorted((1e3 * one for one in spent), reverse=True), sum(spent) / passed_s
