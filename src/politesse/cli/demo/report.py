"""Sums up the log of each origin's server, and judges the crawl from these logs.

``politesse.testing.assert_polite`` uses the same judge. The sites state their forbidden pages and their pace. This
module never calls the gate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf, ulp
from typing import TYPE_CHECKING, Final

from politesse._judge import Kind, Promises, TraceJudge, Violation
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.cli.demo.sites import Page, Site
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
