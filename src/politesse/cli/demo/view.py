"""The crawl as it is watched: a table of the servers' logs that fills while it runs; and what was shown."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from politesse.cli.demo.report import OWN_FLOOR, TICKS_S, Row, exit_code
from politesse.testing.answers import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.cli.demo.crawl import Crawler
    from politesse.cli.demo.server import LittleWeb

_LOOK_EVERY_S: Final = 0.1
_LINE_EVERY_S: Final = 1.0
_STALLED_S: Final = 20.0
_MOST_VIOLATIONS: Final = 10
_WHOLE_TABLE: Final = 80  # columns; a narrower terminal shows the counts of pages only
_WIDE_TABLE: Final = 110  # columns; a wider terminal shows which line of robots.txt states a pace
_BESIDE_BAR: Final = 48


async def watch(console: Console, crawl: asyncio.Task[None], web: LittleWeb, look: Callable[[], list[Row]]) -> None:
    """Show the crawl until it ends; end it if the servers see no request for long. Raises what it raised.

    In a terminal the table fills as the logs do; elsewhere a line is written every second.

    Args:
        console: shows it.
        crawl: runs.
        web: is crawled.
        look: returns the logs as they are now, summed up.
    """
    started_mono = said_mono = seen_mono = time.monotonic()
    requests = 0
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not crawl.done():
                await asyncio.wait({crawl}, timeout=_LOOK_EVERY_S)
                now_mono = time.monotonic()
                if web.requests != requests:
                    requests, seen_mono = web.requests, now_mono
                elif now_mono - seen_mono > _STALLED_S:
                    crawl.cancel()
                if console.is_terminal:
                    live.update(_screen(look(), now_mono - started_mono, console.width), refresh=True)
                elif now_mono - said_mono >= _LINE_EVERY_S:
                    said_mono = now_mono
                    console.print(_line(look(), now_mono - started_mono))
        if crawl.cancelled():
            console.print(Text(f"The servers saw no request for {_STALLED_S:.0f} s: the crawl was ended.", style="red"))
        else:
            await crawl
    finally:
        crawl.cancel()
        await asyncio.gather(crawl, return_exceptions=True)


def introduce(console: Console, web: LittleWeb, tasks: int, floor_s: float) -> None:
    """Print what is about to happen."""
    pages = [page for server in web.servers for page in server.site.pages.values()]
    may_not = sum(page.forbidden for page in pages)
    _say(
        console,
        f"A small web on this machine: {len(web.servers)} sites, each named for what its robots.txt does. "
        f"{len(pages) - may_not:,} of {len(pages):,} pages may be fetched. {tasks} tasks follow all links, one request "
        f"at a time to a host, at least {1000 * floor_s:g} ms between two; two sites ask for more.",
    )
    if web.sharing:
        _say(
            console,
            f"{web.sharing} of the sites share {LOOPBACK} with another, and its pace: so it takes longer.",
        )
    console.print()


def conclude(console: Console, rows: Sequence[Row], crawler: Crawler, elapsed_s: float) -> None:
    """Print the table, the rules that were broken if any were, and what was shown."""
    console.print(table(rows, console.width, finished=True))
    violations = [violation for row in rows for violation in row.violations]
    for kind, count in Counter(violation.kind for violation in violations).items():
        console.print(Text(f"{count:,} x {kind.value}", style="bold red"))
    for violation in violations[:_MOST_VIOLATIONS]:
        console.print(Text(f"  {violation}", style="red"), soft_wrap=True)
    if violations:
        console.print()
    _say(console, _sums(rows, elapsed_s))
    _say(console, f"Given up: robots.txt never answered. {crawler.repeated} requests answered with 429 were repeated.")
    if console.width >= _WHOLE_TABLE:
        _say(console, LEGEND)
    if not exit_code(rows):
        console.print()
        _say(console, f"✓ {SHOWN}", "bold green")
        return
    counted = f"{crawler.refused:,} disallowed, {crawler.left:,} given up, {crawler.failed:,} failed"
    _say(console, f"By the crawler's own count: {counted}.")
    missed = sum(row.missed for row in rows)
    console.print()
    _say(console, f"✗ {len(violations):,} rules broken, {missed:,} allowed pages not fetched", "bold red")


def _say(console: Console, words: str, style: str = "") -> None:
    """Print a paragraph, in lines that fit."""
    console.print(Text(textwrap.fill(words, min(console.width, _WHOLE_TABLE)), style))


SHOWN: Final = (
    "The servers' logs show: every page that robots.txt allows was fetched, no other page was requested, and no "
    "request came sooner than its site permits."
)


LEGEND: Final = "ms to keep: own = our floor, site = its robots.txt. 403 allows all (RFC 9309)."


def _sums(rows: Sequence[Row], elapsed_s: float) -> str:
    """Return how the pages add up."""
    parts = {
        "fetched": sum(row.served for row in rows),
        "disallowed": sum(row.disallowed for row in rows),
        "given up": sum(row.unreachable for row in rows),
        "left": sum(row.left for row in rows),
    }
    if not parts["left"]:
        del parts["left"]
    words = " + ".join(f"{count:,} {name}" for name, count in parts.items())
    return f"{words} = {sum(row.pages for row in rows):,} pages, in {elapsed_s:.1f} s."


def table(rows: Sequence[Row], width: int, *, finished: bool) -> Table:
    """Return the logs as a table, one row for each site, that fits into ``width`` columns from 60 on.

    The pages of a site are fetched, disallowed, given up or left. Those of a site whose robots.txt never answers are
    left while the crawl runs: it may answer yet.
    """
    whole = width >= _WHOLE_TABLE
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    shown.add_column("site", no_wrap=True, style="bold")
    if whole:
        shown.add_column("robots.txt\nanswers", no_wrap=True, min_width=10)
    for name in ("pages", "fetched", "disallowed", "given\nup", "left"):
        shown.add_column(name, justify="right", no_wrap=True, min_width=5)
    if whole:
        shown.add_column("least\ngap ms", justify="right", no_wrap=True, min_width=6)
        shown.add_column("ms to\nkeep", no_wrap=True, min_width=7)
    shown.add_column("rules\nbroken", justify="right", no_wrap=True)
    for row in rows:
        counts = _counts(row, finished=finished)
        left = Text(f"{counts[-1]:,}", style=_colour(wrong=finished and row.missed > 0))
        broken = Text(f"{len(row.violations):,}", style=_colour(wrong=len(row.violations) > 0))
        cells: list[str | Text] = [
            row.name,
            _answers(row.answers),
            *(f"{count:,}" for count in counts[:-1]),
            left,
            *_pause(row, width),
            broken,
        ]
        shown.add_row(*(cells if whole else _narrow(cells)))
    sums = [sum(column) for column in zip(*(_counts(row, finished=finished) for row in rows), strict=True)]
    cells = ["all", "", *(f"{count:,}" for count in sums), "", "", f"{sum(len(row.violations) for row in rows):,}"]
    shown.add_row(*(cells if whole else _narrow(cells)), style="bold")
    return shown


def _narrow(cells: list[str | Text]) -> list[str | Text]:
    """Return the cells of a narrow table: the site, its pages, and the rules broken."""
    return [cells[0], *cells[2:7], cells[-1]]


def _counts(row: Row, *, finished: bool) -> tuple[int, int, int, int, int]:
    """Return how many pages there are, and how many are fetched, disallowed, given up and left."""
    given_up = row.unreachable if finished else 0
    return row.pages, row.served, row.disallowed, given_up, row.left + row.unreachable - given_up


def _answers(statuses: Sequence[int | None]) -> str:
    """Return the statuses in their order, those that came several times in a row as such."""
    words = []
    for status, run in groupby(statuses):
        times, word = len(list(run)), "none" if status is None else str(status)
        words.append(word if times == 1 else f"{times}x{'' if status else ' '}{word}")
    return ", ".join(words)


def _pause(row: Row, width: int) -> tuple[Text, str]:
    """Return the least gap that the server saw, and the gap that has to be kept, with the party that sets it."""
    keep = f"{1000 * row.pace_s:g} {_pace_by(row, width)}"
    if row.least_gap_s is None:
        return Text("-"), keep
    return Text(f"{1000 * row.least_gap_s:.1f}", style=_colour(wrong=row.least_gap_s < row.pace_s - TICKS_S)), keep


def _pace_by(row: Row, width: int) -> str:
    """Return what sets the pace: own pause or site; where there is room, the field of the robots.txt of the site."""
    if width >= _WIDE_TABLE:
        return row.pace_by
    return "own" if row.pace_by == OWN_FLOOR else "site"


def _colour(*, wrong: bool) -> str:
    return "bold red" if wrong else "green"


def _screen(rows: Sequence[Row], elapsed_s: float, width: int) -> Group:
    line = Table.grid(padding=(0, 1))
    served, allowed = _progress(rows)
    bar = ProgressBar(total=allowed, completed=served, width=max(1, min(60, width - _BESIDE_BAR)))
    shown = f"{served:>{len(f'{allowed:,}')},} of {allowed:,} allowed pages fetched  {elapsed_s:4.1f} s"
    line.add_row(bar, Text(shown, no_wrap=True))
    return Group(line, Text(), table(rows, width, finished=False))


def _line(rows: Sequence[Row], elapsed_s: float) -> Text:
    served, allowed = _progress(rows)
    broken = sum(len(row.violations) for row in rows)
    return Text(f"{elapsed_s:4.1f} s: {served:,} of {allowed:,} allowed pages fetched, {broken} rules broken")


def _progress(rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many allowed pages are fetched, and how many there are."""
    served = sum(row.served for row in rows)
    return served, served + sum(row.missed for row in rows)
