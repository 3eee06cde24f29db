"""What each client requests of the demo's sites, with politesse and without it, by the logs of the servers.

Each crawl has the web of ``politesse demo`` to itself, and runs in a process of its own. The judge is that of the demo.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from shutil import which
from typing import TYPE_CHECKING, Final

from benchmarks.client_crawls.plan import PACING, Plan
from benchmarks.table import table
from politesse._judge import Kind
from politesse.cli.demo.report import MIN_LIFETIME_S, audit
from politesse.cli.demo.web import LittleWeb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.settings import Settings

CLIENTS: Final = ("aiohttp", "httpx", "httpx2", "requests", "scrapy", "crawlee", "playwright")
LIMIT_S: Final = 120.0
_PAGES: Final = 300
_ERRORS_SHOWN: Final = 2_000


@dataclass(frozen=True, slots=True)
class Crawled:
    """What the servers saw of one crawl.

    Attributes:
        served: how many allowed pages were served.
        missed: how many allowed pages were not served.
        wrong: how many requests broke a rule, by kind.
        elapsed_s: how long the crawl took.
        ended: whether it came to its end, or was killed.
        errors: the end of its standard error.
    """

    served: int
    missed: int
    wrong: Counter[Kind]
    elapsed_s: float
    ended: bool
    errors: str

    def row(self) -> list[str]:
        """Return the cells of the table."""
        counts = [sum(self.wrong[kind] for kind in kinds) for kinds in _COLUMNS.values()]
        end = f"{self.elapsed_s:.0f} s" if self.ended else "killed"
        return [*map(str, (self.served, self.missed, *counts)), end]


_COLUMNS: Final = {
    "forbidden\npages": (Kind.FORBIDDEN,),
    "without\nrobots.txt": (Kind.BEFORE_ROBOTS, Kind.WHILE_CLOSED, Kind.STALE),
    "too soon,\ntogether": (Kind.GAP, Kind.OVERLAP),
    "in Retry-\nAfter": (Kind.RETRY_AFTER, Kind.RETRIED_EARLY),
    "robots.txt\ntoo often": (Kind.REFETCHED, Kind.ROBOTS_OVERLAP, Kind.ROBOTS_GAP),
    "other": (Kind.AGENT, Kind.VISIT_TIME, Kind.BACKWARDS),
}


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    pages = settings.size(_PAGES, 60)
    yield f"clients: requests to the nine sites of the demo with about {pages} pages, each client alone with its web"
    rows = []
    for client in CLIENTS:
        if not is_installed(client):
            yield f"{client} is not installed"
            continue
        for polite in (False, True):
            crawled = asyncio.run(crawl(client, pages, polite=polite))
            if not crawled.ended:
                yield f"{client} was killed: {crawled.errors}"
            name = f"{client} {version(client)}"
            rows.append([f"{name} with politesse" if polite else name, *crawled.row()])
    header = ("", "pages\nserved", "missed", *_COLUMNS, "took")
    yield table("clients: requests", header, rows)


def is_installed(client: str) -> bool:
    """Return whether a client can crawl here; Playwright needs a Chromium."""
    return find_spec(client) is not None and (client != "playwright" or which("chromium") is not None)


async def crawl(client: str, pages: int, *, polite: bool) -> Crawled:
    """Let a client crawl a web of its own."""
    async with LittleWeb(pages) as web:
        started = time.monotonic()
        ended, errors = await _run(client, Plan(polite, web.front_pages))
        elapsed_s = time.monotonic() - started
        rows = audit(web.logs(), PACING.min_delay_s, MIN_LIFETIME_S)
    wrong = Counter(violation.kind for row in rows for violation in row.violations)
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    return Crawled(served, missed, wrong, elapsed_s, ended, errors)


async def _run(client: str, plan: Plan) -> tuple[bool, str]:
    """Run a crawler in a process of its own; returns whether it ended well, and the end of its standard error."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"benchmarks.client_crawls.{client}", plan.text()),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            cwd=directory,  # whatever it leaves behind goes with it
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                ended = await process.wait() == 0
        except TimeoutError:
            ended = False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        errors.seek(0)
        return ended, errors.read().decode(errors="replace")[-_ERRORS_SHOWN:]
