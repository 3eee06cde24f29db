"""Sums up the log of each origin's server, judges the crawl from these logs, and shows both.

``politesse.testing.assert_polite`` uses the same judge. The sites state their forbidden pages and their pace. This
module never calls the gate. The output is a line each second, then a table of the logs, and a summary.
"""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf, ulp
from typing import TYPE_CHECKING, Final

from rich import box
from rich.table import Table
from rich.text import Text

from politesse._judge import Kind, Promises, TraceJudge, Violation
from politesse.cli.console import say
from politesse.origin import Origin
from politesse.testing.hostile import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from politesse.cli.demo.sites import Page, Site
    from politesse.cli.demo.web import LittleWeb
    from politesse.queue import CrawlReport
    from politesse.testing import Exchange

    Logs = Sequence[tuple[Site, Sequence[Exchange]]]

# The error of a clock reading is less than one tick of the clock, or the last bit of a Unix time as a float. The error
# counts twice, because the crawler and the server each read a clock.
TICKS_S: Final = 2 * max(time.get_clock_info("monotonic").resolution, ulp(time.time()))
# The crawler waits for a Retry-After by the wall clock, which may be adjusted meanwhile; the logs use the monotonic
# clock.
_WALL_SLACK_S: Final = 0.05
RETRY_MIN_S: Final = 1.0
"""The least time before the crawler of the demo fetches a robots.txt again."""

MIN_LIFETIME_S: Final = 1.0
"""The least time for which the crawler of the demo uses a copy, even if the headers state less."""
_LATE_S: Final = 1.5  # on a busy machine, a request may reach the server this long after its permission

_OK: Final = 200
_SERVED: Final = frozenset({_OK, 302})
OWN_FLOOR: Final = "own floor"


@dataclass(frozen=True, slots=True)
class Row:
    """The sums of the log of an origin.

    Attributes:
        name: the name of the origin.
        answers: the statuses of the answers for robots.txt, 0 for no answer.
        pages: how many pages the origin has.
        served: how many different allowed pages were served.
        missed: how many allowed pages were not served.
        disallowed: how many disallowed pages of the origin were the target of a link.
        unreachable: the number of pages if robots.txt never answers, so that no page may be requested (RFC 9309
            2.3.1.4); else 0.
        pace_s: the required pause between two requests, in seconds.
        pace_by: the source of this pause: the field in robots.txt, or OWN_FLOOR.
        least_gap_s: the shortest pause before a page request in the log, in seconds; negative if two requests
            overlapped, None without a second request.
        violations: the rules that were broken.
    """

    name: str
    answers: tuple[int, ...]
    pages: int
    served: int = 0
    missed: int = 0
    disallowed: int = 0
    unreachable: int = 0
    pace_s: float = 0.0
    pace_by: str = OWN_FLOOR
    least_gap_s: float | None = None
    violations: tuple[Violation, ...] = ()

    @property
    def left(self) -> int:
        """How many pages were neither fetched nor found to be disallowed or unreachable."""
        return self.pages - self.served - self.disallowed - self.unreachable


def audit(logs: Logs, floor_s: float, min_lifetime_s: float = 60.0) -> list[Row]:
    """Sum up the present logs.

    Args:
        logs: the logs of all sites.
        floor_s: the shortest pause that the crawler promises, in seconds.
        min_lifetime_s: how long the crawler may use a robots.txt even if the site states a shorter time, in seconds.
    """
    offered = {site.front for site, _ in logs}
    for site, log in logs:
        for one in log:
            page = site.page_at(one.url)
            if page is not None and one.status == _OK:
                offered.update(page.links)
    return [_row(site, log, logs, offered, floor_s, min_lifetime_s) for site, log in logs]


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 if no rule was broken and every allowed page was served, otherwise 1."""
    return 1 if any(row.violations or row.missed for row in rows) else 0


def _row(
    site: Site, log: Sequence[Exchange], logs: Logs, offered: set[Page], floor_s: float, min_lifetime_s: float
) -> Row:
    served = {page for one in log if one.status in _SERVED and (page := site.page_at(one.url)) is not None}
    allowed = {page for page in site.pages.values() if not page.forbidden}
    answers = bool(site.blueprint.robots)
    pace_s, pace_by = max((floor_s, OWN_FLOOR), site.interval(0.0), key=lambda stated: stated[0])
    promises = Promises(min_delay_s=floor_s, min_refetch_s=RETRY_MIN_S, slack_s=TICKS_S, wall_slack_s=_WALL_SLACK_S)
    judge = TraceJudge({Origin.of(site.address): site}.get, promises)
    trace = sorted(_trace(site, log, logs), key=lambda exchange: exchange.started)
    violations = [violation for exchange in trace for violation in judge.judge(exchange)]
    return Row(
        name=site.blueprint.name,
        answers=tuple(one.status for one in log if one.url == site.robots_url),
        pages=len(site.pages),
        served=len(served & allowed),
        missed=len(allowed - served),
        disallowed=sum(page.site is site and page.forbidden for page in offered) if answers else 0,
        unreachable=0 if answers else len(site.pages),
        pace_s=pace_s,
        pace_by=pace_by,
        least_gap_s=judge.least_gap_s,
        violations=(*violations, *_stale(site, log, min_lifetime_s)),
    )


def _trace(site: Site, log: Sequence[Exchange], logs: Logs) -> list[Exchange]:
    """Return the requests for the pages and the robots.txt of a site, and for the targets of robots.txt's redirects."""
    targets = {one.location for one in log if one.url == site.robots_url}
    files = [one for _, others in logs for one in others if one.url in targets]
    # Other origins redirect their robots.txt to files of this server. Requests for these files do not count for the
    # pace of this site.
    own = [one for one in log if one.url.removeprefix(site.address) not in site.blueprint.files]
    return [_ended(one, site) for one in [*own, *files]]


def _ended(exchange: Exchange, site: Site) -> Exchange:
    """Return the exchange, with an assumed end if it has no answer: the server cannot know when the client gave up."""
    if exchange.status:
        return exchange
    return replace(exchange, ended=inf if exchange.url == site.robots_url else exchange.started)


def _stale(site: Site, log: Sequence[Exchange], min_lifetime_s: float) -> Iterator[Violation]:
    """Yield the page requests that used a robots.txt beyond its max-age.

    The judge does not get max-age. With max-age, the judge would restart the pace whenever a copy replaces an expired
    copy.
    """
    max_age_s = site.blueprint.max_age_s
    if max_age_s is None:
        return
    oldest_s = max(max_age_s, min_lifetime_s) + _LATE_S
    fetched = [one.ended for one in log if one.url == site.robots_url and one.status == _OK]
    for one in log:
        age_s = one.started - max((at for at in fetched if at <= one.started), default=one.started)
        if site.page_at(one.url) is not None and age_s > oldest_s:
            yield Violation(Kind.STALE, one.url, f"{age_s:.1f} s old, max-age={max_age_s}")


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
