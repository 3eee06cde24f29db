"""The cost of PolitesseAddon in a Scrapy crawl of many hosts: processor time for a page, beside Scrapy without it.

Each crawl has a process of its own, and finds the same pages by following links; the server's counts prove it. The
server is another process, so the processor time is the crawler's. Scrapy without the add-on obeys robots.txt, too, and
has no delay. So it is compared with the add-on at ``DOWNLOAD_DELAY`` 0; the default pace has a row of its own.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.crawl import checked
from benchmarks.many_hosts.serving import serving
from benchmarks.many_hosts.spider import crawl_seconds
from benchmarks.many_hosts.web import Size
from benchmarks.table import table
from benchmarks.timing import Samples
from politesse import PacingOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.many_hosts.serving import Server
    from benchmarks.settings import Settings

_HOSTS: Final = 1_000  # at most
_PAGES_EACH: Final = 3
_PAGE_BYTES: Final = 6_000
_ROUNDS_FOR_ONE: Final = 3  # a round takes more than a minute

_PLAIN: Final = "Scrapy, ROBOTSTXT_OBEY"
_UNPACED: Final = "with PolitesseAddon, no delay"
_PACED: Final = "with PolitesseAddon, default pace"

_ADDON: Final = {"ADDONS": {"politesse.integrations.scrapy.PolitesseAddon": 100}}
CRAWLS: Final[Mapping[str, Mapping[str, object]]] = {
    _PLAIN: {},
    _UNPACED: {**_ADDON, "DOWNLOAD_DELAY": 0, "POLITESSE_PACING": PacingOptions(adaptive_factor=0.0)},
    _PACED: _ADDON,
}


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    size = Size(min(settings.hosts, _HOSTS), _PAGES_EACH, _PAGE_BYTES)
    rounds = max(1, settings.rounds // _ROUNDS_FOR_ONE)
    yield (
        f"scrapy: Scrapy {version('scrapy')}, {size.hosts:,} hosts of {size.pages_each} pages, found by links; "
        f"medians of {rounds} interleaved rounds"
    )
    cpu, walls = Samples(), Samples()
    load = os.getloadavg()[0]
    with serving(size, settings.seed) as server:
        for number in range(rounds):
            for name in CRAWLS:
                cpu_s, wall_s = crawl(name, number, size, server)
                cpu.add(name, cpu_s / size.pages)
                walls.add(name, wall_s / size.pages)
    yield report(cpu, walls)
    yield f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores"


def crawl(name: str, number: int, size: Size, server: Server) -> tuple[float, float]:
    """Crawl hosts that have new names in each round; return processor time and wall time, in seconds."""
    ending = f".round{number}.crawl{list(CRAWLS).index(name)}.example:{server.port}"
    starts = [f"http://site{host}{ending}/" for host in range(size.hosts)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        seconds = process.submit(crawl_seconds, starts, CRAWLS[name]).result()
    checked(size, server.counts(), obeys=True)
    return seconds


def report(cpu: Samples, walls: Samples) -> str:
    rows = []
    for name in CRAWLS:
        pairs = zip(cpu.seconds[name], cpu.seconds[_PLAIN], strict=True)
        more_ms = [1e3 * (seconds - plain) for seconds, plain in pairs]
        is_plain = name == _PLAIN
        rows.append(
            (
                name,
                f"{cpu.median_us(name) / 1e3:.2f}",
                "" if is_plain else f"{median(more_ms):+.2f}",
                "" if is_plain else f"{min(more_ms):+.2f} to {max(more_ms):+.2f}",
                f"{cpu.ratio(name, _PLAIN):.2f}",
                f"{1 / median(walls.seconds[name]):,.0f}",
            )
        )
    header = ("", "ms a\npage", "ms\nadded", "least to\nmost", "x\nScrapy", "pages\na second")
    note = f"robots.txt is fetched and parsed once a host: one request more for {_PAGES_EACH} pages"
    return f"{table('scrapy: processor time of the crawler', header, rows)}\n{note}"
