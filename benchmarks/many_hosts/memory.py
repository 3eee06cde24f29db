"""How much memory a crawl takes, every so many pages: it may grow by the URLs in ``seen`` only."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import tracemalloc
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.many_hosts.crawlers import UNPACED, USER_AGENT, LoopbackResolver, connector, crawl_queue
from benchmarks.many_hosts.serving import serving
from benchmarks.many_hosts.web import Size
from benchmarks.table import table
from politesse import Gatekeeper, PoliteSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZE: Final = Size(hosts=1_000, pages_each=100, page_bytes=300)
SAMPLES: Final = 10

_REMEMBERED: Final = 10_000
_WORKERS: Final = 20


class Sample(NamedTuple):
    """Attributes:
    pages: how many had been crawled.
    traced_bytes: as tracemalloc counts them.
    resident_bytes: of the process, without the memory of tracemalloc itself; 0 without /proc.
    """

    pages: int
    traced_bytes: int
    resident_bytes: int


class RecentlySeen:
    """A ``seen`` that forgets: it keeps the last URLs only."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._urls: OrderedDict[object, None] = OrderedDict()

    def __contains__(self, url: object, /) -> bool:
        if url not in self._urls:
            return False
        self._urls.move_to_end(url)
        return True

    def add(self, url: str, /) -> None:
        self._urls[url] = None
        if len(self._urls) > self._most:
            self._urls.popitem(last=False)


def run(seed: int, size: Size = SIZE) -> Iterator[str]:
    """Yield the report."""
    yield (
        f"crawl: memory over {size.pages:,} pages of {size.hosts:,} hosts, {_WORKERS} workers, in a process of its own"
    )
    for forgets, seen in ((False, "the default seen"), (True, f"a seen that keeps the last {_REMEMBERED:,} URLs")):
        with serving(size, seed) as server:
            yield report(seen, measured(server.port, size, forgets=forgets))


def measured(port: int, size: Size, *, forgets: bool) -> list[Sample]:
    """Crawl in a fresh process, and return its memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, port, size, forgets=forgets).result()


def report(seen: str, samples: Sequence[Sample]) -> str:
    """Return a table, and the growth between its first row, when all hosts are known, and its last."""
    rows = [
        (f"{sample.pages:,}", f"{sample.traced_bytes / 1024**2:.1f}", f"{sample.resident_bytes / 1024**2:.1f}")
        for sample in samples
    ]
    first, last = samples[0], samples[-1]
    pages = last.pages - first.pages
    growth = [(last.traced_bytes - first.traced_bytes) / pages, (last.resident_bytes - first.resident_bytes) / pages]
    title = f"crawl: memory with {seen}"
    return "\n".join(
        [
            table(title, ("pages", "MiB\ntraced", "MiB\nresident"), rows),
            f"octets for each URL more: {growth[0]:.0f} traced, {growth[1]:.0f} resident",
        ]
    )


def _measure(port: int, size: Size, *, forgets: bool) -> list[Sample]:
    tracemalloc.start()
    return asyncio.run(_crawl(port, size, forgets=forgets))


async def _crawl(port: int, size: Size, *, forgets: bool) -> list[Sample]:
    samples: list[Sample] = []
    pages = 0

    def count() -> None:
        nonlocal pages
        pages += 1
        if pages % (size.pages // SAMPLES) == 0:
            samples.append(_sample(pages))

    seen = RecentlySeen() if forgets else None
    async with (
        Gatekeeper(USER_AGENT, pacing=UNPACED, resolver=LoopbackResolver()) as gate,
        PoliteSession(gate, connector=connector()) as web,
    ):
        starts = size.starts(f".memory.example:{port}")
        await crawl_queue(gate, web, starts, _WORKERS, seen=seen, on_page=count)
    if pages != size.pages:
        raise RuntimeError(f"{size.pages} pages were to be crawled, but: {pages}")
    return samples


def _sample(pages: int) -> Sample:
    gc.collect()
    traced_bytes, _ = tracemalloc.get_traced_memory()
    return Sample(pages, traced_bytes, max(0, resident_bytes() - tracemalloc.get_tracemalloc_memory()))


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
