"""Shows the crawl: a line each second, then a table of the servers' logs, and a summary."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich import box
from rich.table import Table
from rich.text import Text

from politesse.cli.console import say
from politesse.cli.demo.report import OWN_FLOOR, TICKS_S, Row, exit_code
from politesse.testing.hostile import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from politesse.cli.demo import LittleWeb
    from politesse.queue import CrawlReport

_LINE_EVERY_S: Final = 1.0
_STALLED_S: Final = 20.0
_MOST_VIOLATIONS: Final = 10
_WIDEST: Final = 80  # a paragraph has at most this many columns


async def watch(
    console: Console, crawl: asyncio.Task[CrawlReport], web: LittleWeb, look: Callable[[], list[Row]]
) -> CrawlReport | None:
    """Print a line each second until the crawl ends, and return its report; cancel a crawl that makes no requests.

    Args:
        console: shows the lines.
        crawl: the task of the crawl.
        web: the web that is crawled.
        look: returns the sums of the present logs.
    """
    started_mono = seen_mono = time.monotonic()
    requests = 0
    try:
        while not (await asyncio.wait({crawl}, timeout=_LINE_EVERY_S))[0]:
            now_mono, seen = time.monotonic(), sum(len(log) for _, log in web.logs())
            if seen != requests:
                requests, seen_mono = seen, now_mono
            elif now_mono - seen_mono > _STALLED_S:
                say(console, f"The servers saw no request for {_STALLED_S:.0f} s: the crawl was ended.", "red")
                return None
            say(console, _line(look(), now_mono - started_mono))
        return await crawl
    finally:
        crawl.cancel()
        await asyncio.gather(crawl, return_exceptions=True)


def introduce(console: Console, web: LittleWeb, tasks: int, floor_s: float) -> None:
    """Print the size of the web and the pace."""
    pages = [page for site in web.sites for page in site.pages.values()]
    may_not = sum(page.forbidden for page in pages)
    _say(
        console,
        f"A small web on this machine: {len(web.sites)} sites, each named for what its robots.txt does. "
        f"{len(pages) - may_not:,} of {len(pages):,} pages may be fetched. {tasks} tasks follow all links, one request "
        f"at a time to a host, at least {1000 * floor_s:g} ms between two; two sites ask for more.",
    )
    if web.sharing:
        _say(console, f"{web.sharing} of the sites share {LOOPBACK} with another, and its pace: so it takes longer.")
    console.print()


def conclude(console: Console, rows: Sequence[Row], report: CrawlReport | None, elapsed_s: float) -> None:
    """Print the table, the violations and the summary."""
    console.print(table(rows))
    violations = [violation for row in rows for violation in row.violations]
    for kind, count in Counter(violation.kind for violation in violations).items():
        console.print(Text(f"{count:,} x {kind.value}", style="bold red"))
    for violation in violations[:_MOST_VIOLATIONS]:
        say(console, f"  {violation}", "red")
    if violations:
        console.print()
    repeated = 0 if report is None else report.retried
    _say(console, f"In {elapsed_s:.1f} s. {repeated} requests answered with 429 were repeated.")
    _say(console, "Given up: robots.txt never answered.")
    _say(console, LEGEND)
    if not exit_code(rows):
        console.print()
        _say(console, f"✓ {SHOWN}", "bold green")
        return
    missed = sum(row.missed for row in rows)
    console.print()
    _say(console, f"✗ {len(violations):,} rules broken, {missed:,} allowed pages not fetched", "bold red")


def _say(console: Console, words: str, style: str = "") -> None:
    """Print a paragraph, in lines that fit."""
    console.print(Text(textwrap.fill(words, min(console.width, _WIDEST)), style))


SHOWN: Final = (
    "The servers' logs show: every page that robots.txt allows was fetched, no other page was requested, and no "
    "request came sooner than its site permits."
)


LEGEND: Final = "ms to keep: own = our floor, site = its robots.txt. 403 allows all (RFC 9309)."


def table(rows: Sequence[Row]) -> Table:
    """Return the logs as a table, one row for each site, for a terminal of 80 columns or more.

    Each page of a site is counted as fetched, disallowed, given up or left.
    """
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    shown.add_column("site", no_wrap=True, style="bold")
    shown.add_column("robots.txt\nanswers", no_wrap=True, min_width=10)
    for name in ("pages", "fetched", "disallowed", "given\nup", "left"):
        shown.add_column(name, justify="right", no_wrap=True, min_width=5)
    shown.add_column("least\ngap ms", justify="right", no_wrap=True, min_width=6)
    shown.add_column("ms to\nkeep", no_wrap=True, min_width=7)
    shown.add_column("rules\nbroken", justify="right", no_wrap=True)
    counts = [(row.pages, row.served, row.disallowed, row.unreachable, row.left) for row in rows]
    for row, numbers in zip(rows, counts, strict=True):
        *others, left = (f"{number:,}" for number in numbers)
        gap_s = row.least_gap_s
        shown.add_row(
            row.name,
            _answers(row.answers),
            *others,
            Text(left, style=_colour(wrong=row.missed > 0)),
            "-" if gap_s is None else Text(f"{1000 * gap_s:.1f}", _colour(wrong=gap_s < row.pace_s - TICKS_S)),
            f"{1000 * row.pace_s:g} {'own' if row.pace_by == OWN_FLOOR else 'site'}",
            Text(f"{len(row.violations):,}", style=_colour(wrong=len(row.violations) > 0)),
        )
    sums = (f"{sum(column):,}" for column in zip(*counts, strict=True))
    shown.add_row("all", "", *sums, "", "", f"{sum(len(row.violations) for row in rows):,}", style="bold")
    return shown


def _answers(statuses: Sequence[int]) -> str:
    """Return the statuses in their order; consecutive equal statuses become one status with a count."""
    words = []
    for status, run in groupby(statuses):
        times, word = len(list(run)), str(status or "none")
        words.append(word if times == 1 else f"{times}x{'' if status else ' '}{word}")
    return ", ".join(words)


def _colour(*, wrong: bool) -> str:
    return "bold red" if wrong else "green"


def _line(rows: Sequence[Row], elapsed_s: float) -> str:
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    broken = sum(len(row.violations) for row in rows)
    return f"{elapsed_s:4.1f} s: {served:,} of {served + missed:,} allowed pages fetched, {broken} rules broken"
