"""The crawl as it is watched: a table of the servers' logs that fills while it runs; and the last word."""

from __future__ import annotations

import asyncio
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

from politesse.cli.demo.report import TICKS_S, Row, audit, exit_code
from politesse.testing.answers import LOOPBACK
from politesse.testing.violations import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.cli.demo.crawl import Crawler
    from politesse.cli.demo.server import LittleWeb

_LOOK_EVERY_S: Final = 0.1
_LINE_EVERY_S: Final = 1.0
_STALLED_S: Final = 20.0
_MOST_VIOLATIONS: Final = 10


async def watch(console: Console, crawl: asyncio.Task[None], web: LittleWeb, floor_s: float) -> None:
    """Show the crawl until it ends; end it if the servers see no request for long. Raises what it raised.

    In a terminal the table fills as the logs do; elsewhere a line is written every second.
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
                    live.update(_screen(audit(web.servers, floor_s), now_mono - started_mono), refresh=True)
                elif now_mono - said_mono >= _LINE_EVERY_S:
                    said_mono = now_mono
                    console.print(_line(audit(web.servers, floor_s), now_mono - started_mono))
        if crawl.cancelled():
            console.print(Text(f"The servers saw no request for {_STALLED_S:.0f} s: the crawl was ended.", style="red"))
        else:
            await crawl
    finally:
        crawl.cancel()
        await asyncio.gather(crawl, return_exceptions=True)


def introduce(console: Console, web: LittleWeb, tasks: int) -> None:
    """Print what is about to happen."""
    pages = [page for server in web.servers for page in server.site.pages.values()]
    forbidden = sum(page.forbidden for page in pages)
    console.print(
        f"[bold]A little web on loopback[/bold]: {len(web.servers)} origins, {len(pages):,} pages, "
        f"{forbidden:,} of them forbidden.\n"
        f"{tasks} tasks crawl it from the front pages, and take a turn for each request.",
        highlight=False,
    )
    if web.sharing:
        console.print(
            f"{web.sharing} of the origins share {LOOPBACK} with another, and its pace: so it takes longer.",
            highlight=False,
        )
    console.print()


def conclude(console: Console, rows: Sequence[Row], crawler: Crawler, elapsed_s: float) -> None:
    """Print the table, what was wrong if anything was, and the last word."""
    console.print(table(rows, finished=True))
    violations = [violation for row in rows for violation in row.violations]
    for kind, count in Counter(violation.kind for violation in violations).items():
        console.print(Text(f"{count:,} x {kind.value}", style="bold red"))
    for violation in violations[:_MOST_VIOLATIONS]:
        console.print(Text(f"  {violation}", style="red"), soft_wrap=True)
    if violations:
        console.print()
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    asked, told_to_wait = sum(len(row.answers) for row in rows), sum(row.told_to_wait for row in rows)
    console.print(
        f"In {elapsed_s:.1f} s the servers gave {served:,} pages, said 429 to {told_to_wait} requests for one,\n"
        f"and saw {asked} requests for robots.txt. By its own count the crawler was refused\n"
        f"{crawler.refused:,} URLs, left {crawler.left:,} whose robots.txt could not be had, "
        f"and came again to {crawler.repeated}.\n",
        highlight=False,
    )
    if exit_code(rows):
        words = f"{len(violations):,} violations, {missed:,} allowed pages not served"
        console.print(Text(f"✗ {words}", style="bold red"))
    else:
        words = "nothing forbidden, nothing too soon, and every allowed page was served"
        console.print(Text(f"✓ {words}", style="bold green"))


def table(rows: Sequence[Row], *, finished: bool) -> Table:
    """Return the logs as a table, one row for each origin; it fits into 80 columns."""
    shown = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_footer=True)
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    requested, offered = sum(row.count(Kind.FORBIDDEN) for row in rows), sum(row.forbidden_offered for row in rows)
    wrong = sum(len(row.violations) for row in rows)
    shown.add_column("origin", "all", no_wrap=True, style="bold")
    shown.add_column("robots.txt\nanswers", str(sum(len(row.answers) for row in rows)), no_wrap=True)
    shown.add_column("pages\nserved", f"{served:,}", justify="right", no_wrap=True)
    shown.add_column("pages\nmissed", f"{missed:,}", justify="right", no_wrap=True)
    shown.add_column("forbidden\nrequested", f"{requested:,} of {offered:,}", justify="right", no_wrap=True)
    shown.add_column("least\ngap, ms", justify="right", no_wrap=True)
    shown.add_column("pace to\nkeep, ms", no_wrap=True)
    shown.add_column("wrong", f"{wrong:,}", justify="right", no_wrap=True)
    for row in rows:
        bad = row.count(Kind.FORBIDDEN)
        shown.add_row(
            row.name,
            _answers(row.answers),
            f"{row.served:,}",
            Text(f"{row.missed:,}", style="dim" if not finished else _colour(wrong=row.missed > 0)),
            Text(f"{bad:,} of {row.forbidden_offered:,}", style=_colour(wrong=bad > 0)),
            _gap(row),
            f"{1000 * row.pace_s:g} {row.pace_by}",
            Text(f"{len(row.violations):,}", style=_colour(wrong=len(row.violations) > 0)),
        )
    return shown


def _answers(statuses: Sequence[int | None]) -> str:
    """Return the statuses in their order, those that came several times in a row as such."""
    words = []
    for status, run in groupby(statuses):
        times, word = len(list(run)), "none" if status is None else str(status)
        words.append(word if times == 1 else f"{times} x {word}")
    return ", ".join(words)


def _gap(row: Row) -> Text:
    if row.least_gap_s is None:
        return Text("-")
    return Text(f"{1000 * row.least_gap_s:.1f}", style=_colour(wrong=row.least_gap_s < row.pace_s - TICKS_S))


def _colour(*, wrong: bool) -> str:
    return "bold red" if wrong else "green"


def _screen(rows: Sequence[Row], elapsed_s: float) -> Group:
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    bar = ProgressBar(total=served + missed, completed=served, width=60)
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, f"{served:,} of {served + missed:,} allowed pages", f"{elapsed_s:.1f} s")
    return Group(line, table(rows, finished=False))


def _line(rows: Sequence[Row], elapsed_s: float) -> Text:
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    violations = sum(len(row.violations) for row in rows)
    return Text(f"{elapsed_s:4.1f} s: {served:,} of {served + missed:,} allowed pages served, {violations} violations")
