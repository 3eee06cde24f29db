"""The crawl as it is watched: a table of the servers' logs that fills while it runs; and the last word."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from politesse.cli.demo.report import Kind, audit, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from politesse.cli.demo.crawl import Crawler
    from politesse.cli.demo.report import Row
    from politesse.cli.demo.server import LittleWeb

_LOOK_EVERY_S: Final = 0.1
_LINE_EVERY_S: Final = 1.0
_STALLED_S: Final = 20.0
_MOST_VIOLATIONS: Final = 10


async def watch(console: Console, crawl: asyncio.Task[None], web: LittleWeb) -> None:
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
                    live.update(_screen(audit(web.servers), now_mono - started_mono), refresh=True)
                elif now_mono - said_mono >= _LINE_EVERY_S:
                    said_mono = now_mono
                    console.print(_line(audit(web.servers), now_mono - started_mono))
        if crawl.cancelled():
            console.print(Text(f"The servers saw no request for {_STALLED_S:.0f} s: the crawl was ended.", style="red"))
        else:
            await crawl
    finally:
        crawl.cancel()
        await asyncio.gather(crawl, return_exceptions=True)


def introduce(console: Console, web: LittleWeb, tasks: int) -> None:
    """Tell what is about to happen."""
    pages = [page for server in web.servers for page in server.site.pages.values()]
    forbidden = sum(page.forbidden for page in pages)
    console.print(
        f"[bold]A little web on 127.0.0.1[/bold]: {len(web.servers)} origins, {len(pages):,} pages, "
        f"of which robots.txt forbids {forbidden:,}.\n"
        f"{tasks} tasks crawl it from the front pages, and ask the gate before each request.\n",
        highlight=False,
    )


def conclude(console: Console, rows: Sequence[Row], crawler: Crawler, elapsed_s: float) -> None:
    """Print the table, what was wrong if anything was, and the last word."""
    console.print(table(rows, finished=True))
    violations = [violation for row in rows for violation in row.violations]
    for violation in violations[:_MOST_VIOLATIONS]:
        console.print(Text(f"  {violation}", style="red"), soft_wrap=True)
    if len(violations) > _MOST_VIOLATIONS:
        console.print(Text(f"  and {len(violations) - _MOST_VIOLATIONS:,} more", style="red"))
    if violations:
        console.print()
    served, missed = sum(row.served for row in rows), sum(row.missed for row in rows)
    asked = sum(len(row.answers) for row in rows)
    console.print(
        f"In {elapsed_s:.1f} s the servers gave {served:,} pages and were asked for robots.txt {asked} times.\n"
        f"By its own count the crawler was refused {crawler.refused:,} links and {crawler.stopped:,} redirects, "
        f"put {crawler.postponed:,} requests\noff until robots.txt could be had, and gave {crawler.left:,} up.\n",
        highlight=False,
    )
    if exit_code(rows):
        words = f"{len(violations):,} violations, {missed:,} allowed pages not served"
        console.print(Text(f"✗ {words}", style="bold red"))
    else:
        words = "no forbidden page was requested, none before its robots.txt, and every allowed page was served"
        console.print(Text(f"✓ {words}", style="bold green"))


def table(rows: Sequence[Row], *, finished: bool) -> Table:
    """Return the logs as a table, one row for each origin."""
    shown = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_footer=True)
    shown.add_column("origin", "all", no_wrap=True, style="bold")
    shown.add_column("robots.txt\nfetches", no_wrap=True)
    shown.add_column("access\nresult", no_wrap=True)
    totals = [sum(column) for column in zip(*map(_numbers, rows), strict=True)]
    for header, total in zip(_NUMBERS, totals, strict=True):
        shown.add_column(header, f"{total:,}", justify="right", no_wrap=True)
    for row in rows:
        statuses = ", ".join("no answer" if status is None else str(status) for status in row.answers)
        shown.add_row(row.name, f"{len(row.answers)}: {statuses}", row.access, *_cells(row, finished=finished))
    shown.columns[1].footer = str(sum(len(row.answers) for row in rows))
    return shown


_NUMBERS: Final = (
    "allowed\noffered",
    "allowed\nserved",
    "allowed\nmissed",
    "forbidden\noffered",
    "forbidden\nrequested",
    "too\nearly",
    "viola-\ntions",
)


def _numbers(row: Row) -> tuple[int, ...]:
    return (
        row.offered,
        row.served,
        row.missed,
        row.forbidden_offered,
        row.count(Kind.FORBIDDEN),
        row.count(Kind.BEFORE_ROBOTS, Kind.WHILE_CLOSED),
        len(row.violations),
    )


def _cells(row: Row, *, finished: bool) -> list[Text]:
    offered, served, missed, forbidden, *wrong = _numbers(row)
    return [
        Text(f"{offered:,}"),
        Text(f"{served:,}"),
        Text(f"{missed:,}", style="dim" if not finished else "bold red" if missed else "green"),
        Text(f"{forbidden:,}"),
        *(Text(f"{number:,}", style="bold red" if number else "green") for number in wrong),
    ]


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
