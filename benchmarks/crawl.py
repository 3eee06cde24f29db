"""The cost of a crawl of thousands of hosts: processor time for a page and pages a second, beside plain aiohttp.

Every crawler finds the same pages by following links, 20 requests at a time, and the server's counts prove it. The
server is another process, so the processor time is the client's. Plain aiohttp reads no robots.txt; aiohttp with a
Protego for each host fetches robots.txt, as politesse does; no peer has a pace. So the crawls are compared with
``min_delay_s=0``, and the default pace has a table of its own: it shows that no worker waits for one host.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.many_hosts import memory
from benchmarks.many_hosts.crawlers import crawl_politely, crawl_with_protego, crawl_with_semaphore
from benchmarks.many_hosts.serving import serving
from benchmarks.many_hosts.web import Size
from benchmarks.table import table
from benchmarks.timing import Contender, Samples, Task, interleave
from politesse import PacingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from benchmarks.many_hosts.serving import Counts, Server
    from benchmarks.settings import Settings

WORKERS: Final = 20
PACE: Final = PacingOptions()

_PAGES_EACH: Final = 3
_PAGE_BYTES: Final = 6_000
_ROUNDS_FOR_ONE: Final = 7  # a round takes half a minute

_PLAIN: Final = "aiohttp, semaphore of 20"
_PROTEGO: Final = "the same, Protego for each host"
_POLITESSE: Final = "politesse, queue.crawl"


@dataclass(frozen=True, slots=True)
class Crawler:
    """Attributes:
    crawl: crawls from URLs, with a number of workers.
    obeys: whether it reads robots.txt, and requests nothing that is forbidden.
    """

    crawl: Callable[[list[str], int], Coroutine[None, None, None]]
    obeys: bool = True


CRAWLERS: Final = {
    _PLAIN: Crawler(crawl_with_semaphore, obeys=False),
    _PROTEGO: Crawler(crawl_with_protego),
    _POLITESSE: Crawler(crawl_politely),
}


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    if settings.memory:
        yield from memory.run(settings.seed)
        return
    size, rounds = Size(settings.hosts, _PAGES_EACH, _PAGE_BYTES), max(1, settings.rounds // _ROUNDS_FOR_ONE)
    yield (
        f"crawl: {size.hosts:,} hosts of {size.pages_each} pages, {WORKERS} at a time, found by links; "
        f"medians of {rounds} interleaved rounds"
    )
    with serving(size, settings.seed) as server:
        walls = Samples()
        contenders = [Contender(name, _crawling(name, size, server, walls)) for name in CRAWLERS]
        yield _costs(size, interleave(contenders, rounds), walls)
        yield _paced(size, server, walls)


def checked(size: Size, counts: Counts, *, obeys: bool) -> None:
    """Raise RuntimeError unless each page was requested once, and forbidden pages only by crawlers without rules."""
    expected = (size.pages, size.hosts, 0) if obeys else (size.pages, 0, size.forbidden)
    if (counts.pages, counts.robots, counts.forbidden) != expected:
        raise RuntimeError(f"pages, robots.txt files and forbidden pages were to be {expected}, but: {counts}")


def _crawling(name: str, size: Size, server: Server, walls: Samples) -> Callable[[int], Task]:
    """Crawl hosts that have new names in each round; the first round, which warms up, finds few of them."""
    crawler, place = CRAWLERS[name], list(CRAWLERS).index(name)

    def prepare(number: int) -> Task:
        starts = size.starts(f".round{number}.crawler{place}.example:{server.port}")
        if not number:
            starts = starts[-1:]

        def crawl() -> None:
            started = time.perf_counter()
            asyncio.run(crawler.crawl(starts, WORKERS))
            seconds = time.perf_counter() - started
            counts = server.counts()
            if number:
                checked(size, counts, obeys=crawler.obeys)
                walls.add(name, seconds / size.pages)

        return Task(crawl, size.pages)

    return prepare


def _costs(size: Size, samples: Samples, walls: Samples) -> str:
    rows = []
    for name, crawler in CRAWLERS.items():
        requests = size.pages + (size.hosts if crawler.obeys else size.forbidden)
        rows.append(
            (
                name,
                f"{samples.median_us(name):.0f}",
                f"{samples.ratio(name, _PLAIN):.2f}",
                f"{samples.median_us(name) * size.pages / requests:.0f}",
                f"{1 / median(walls.seconds[name]):,.0f}",
                f"{1 / walls.ratio(name, _PLAIN):.2f}",
            )
        )
    header = ("", "us a\npage", "x\naiohttp", "us a request,\nrobots.txt too", "pages\na second", "x\naiohttp")
    title = "crawl: processor time of the client, and pages a second; min_delay_s=0"
    note = f"robots.txt is fetched and parsed once a host: one request more for {size.pages_each} pages"
    return f"{table(title, header, rows)}\n{note}"


def _paced(size: Size, server: Server, walls: Samples) -> str:
    """Crawl once at the default pace."""
    starts = size.starts(f".paced.example:{server.port}")
    started = time.perf_counter()
    asyncio.run(crawl_politely(starts, WORKERS, PACE))
    seconds = time.perf_counter() - started
    counts = server.counts()
    checked(size, counts, obeys=True)
    rows = [
        (f"{_POLITESSE}, min_delay_s=0", f"{1 / median(walls.seconds[_POLITESSE]):,.0f}", ""),
        (f"the same, {PACE.min_delay_s:g} s a host", f"{size.pages / seconds:,.0f}", f"{counts.least_gap_s:.3f}"),
        (f"at most, if {WORKERS} workers each waited for a host", f"{WORKERS / PACE.min_delay_s:,.0f}", ""),
    ]
    return table("crawl: the default pace", ("", "pages\na second", "shortest pause of\na host, s"), rows)
