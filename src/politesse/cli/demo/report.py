"""What the logs of the servers say about the crawl, origin by origin; and whether it was a good one.

The judge is that of ``politesse.testing.assert_polite``. What it expects was settled when the pages were made: the pace
that an origin states, and whether a page is forbidden. Nothing here has met the gate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

from politesse._constants import ROBOTS_TXT
from politesse.origin import Origin
from politesse.testing import Exchange
from politesse.testing.violations import Kind, Promises, TraceJudge, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.cli.demo.pages import Page, Site
    from politesse.cli.demo.server import Hit, SiteServer

# A reading is behind by less than a tick, so a pause is wrong by less than that, once where the crawler keeps it and
# once where the server measures it.
TICKS_S: Final = 2 * time.get_clock_info("monotonic").resolution
# A Retry-After is waited for by the wall clock, which may be slewed meanwhile; the servers have a monotonic one.
WALL_SLACK_S: Final = 0.05
RETRY_MIN_S: Final = 1.0
"""How long the crawler of the demo waits at least before it fetches a robots.txt again."""

MIN_LIFETIME_S: Final = 1.0
"""How long the crawler of the demo uses a copy at least, whatever its headers say."""
_LATE_S: Final = 1.5  # a request may reach the server that long after it was permitted, on a machine that is busy

_OK: Final = 200
_SERVED: Final = frozenset({_OK, 302})
_TOO_MANY_REQUESTS: Final = 429
OWN_FLOOR: Final = "own floor"


@dataclass(frozen=True, slots=True)
class Row:
    """The log of one origin, summed up.

    Attributes:
        name: of the origin.
        answers: the statuses that answered robots.txt, None for no answer.
        pages: how many pages it has.
        served: how many different allowed pages were served.
        missed: how many allowed pages were not served.
        forbidden_offered: how many forbidden pages were linked from pages that were served anywhere.
        answers_robots: whether it ever answers robots.txt; otherwise all its pages are forbidden.
        told_to_wait: how many page requests were answered with 429.
        pace_s: the pause that has to be kept between two requests, in seconds.
        pace_by: its source: the field in robots.txt, or OWN_FLOOR.
        least_gap_s: the shortest pause before a page request that the server saw, in seconds, negative where it saw two
            at once; None where there were no two requests.
        violations: what was wrong.
    """

    name: str
    answers: tuple[int | None, ...]
    pages: int
    served: int
    missed: int
    forbidden_offered: int
    answers_robots: bool
    told_to_wait: int
    pace_s: float
    pace_by: str
    least_gap_s: float | None
    violations: tuple[Violation, ...]

    @property
    def disallowed(self) -> int:
        """How many of its pages a link has named that robots.txt disallows."""
        return self.forbidden_offered if self.answers_robots else 0

    @property
    def unreachable(self) -> int:
        """How many pages it has if its robots.txt never answers: none may be requested (RFC 9309 2.3.1.4)."""
        return 0 if self.answers_robots else self.pages

    @property
    def left(self) -> int:
        """How many pages are neither fetched nor known to be disallowed or unreachable."""
        return self.pages - self.served - self.disallowed - self.unreachable

    def count(self, *kinds: Kind) -> int:
        """Return how many violations are of one of ``kinds``."""
        return sum(violation.kind in kinds for violation in self.violations)


def audit(servers: Sequence[SiteServer], floor_s: float, min_lifetime_s: float = 60.0) -> list[Row]:
    """Sum up the logs as they are now.

    Args:
        servers: all of them.
        floor_s: the pause that the crawler promises to keep where no site states a longer one, in seconds.
        min_lifetime_s: for how long the crawler may use a robots.txt even if the site states a shorter time, in
            seconds.
    """
    offered = {server.site.front for server in servers}
    for server in servers:
        for hit in server.log:
            if hit.page is not None and hit.status == _OK:
                offered.update(hit.page.links)
    files = [(server, hit) for server in servers for hit in server.log if hit.target in server.site.blueprint.files]
    return [_row(server, offered, _judged(server, files, floor_s), min_lifetime_s, floor_s) for server in servers]


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 if no server saw what it should not have, and every allowed page was served; else 1."""
    return 1 if any(row.violations or row.missed for row in rows) else 0


def _row(server: SiteServer, offered: set[Page], judge: TraceJudge, min_lifetime_s: float, floor_s: float) -> Row:
    site, log, blueprint = server.site, server.log, server.site.blueprint
    served = {hit.page for hit in log if hit.page is not None and hit.status in _SERVED}
    allowed = {page for page in site.pages.values() if not page.forbidden}
    asks_more = blueprint.asks_s > floor_s
    pace_s = blueprint.asks_s if asks_more else floor_s
    return Row(
        name=blueprint.name,
        answers=tuple(hit.status for hit in log if hit.target == ROBOTS_TXT),
        pages=len(site.pages),
        served=len(served & allowed),
        missed=len(allowed - served),
        forbidden_offered=sum(page.site is site and page.forbidden for page in offered),
        answers_robots=bool(blueprint.robots),
        told_to_wait=sum(hit.page is not None and hit.status == _TOO_MANY_REQUESTS for hit in log),
        pace_s=pace_s,
        pace_by=blueprint.asks.partition(":")[0] if asks_more else OWN_FLOOR,
        least_gap_s=min(filter(isfinite, judge.gaps_s), default=None),
        violations=(*judge.violations, *_unknown(server), *_stale(server, min_lifetime_s)),
    )


@dataclass(frozen=True, slots=True)
class _Labels:
    """What a site expects, as its pages are labelled."""

    site: Site

    def against(self, target: str) -> str | None:
        page = self.site.pages[target]
        return page.rule if page.forbidden else None

    def interval(self, wall: float) -> tuple[float, str]:  # noqa: ARG002 - it is the same at any time
        return self.site.blueprint.asks_s, self.site.blueprint.asks.partition(":")[0]

    def open_at(self, wall: float) -> bool:  # noqa: ARG002 - the same
        return True


def _judged(server: SiteServer, files: Sequence[tuple[SiteServer, Hit]], floor_s: float) -> TraceJudge:
    """Return the judge after the trace of a site: its pages, its robots.txt, and the files that this redirects to."""
    promises = Promises(min_delay_s=floor_s, min_refetch_s=RETRY_MIN_S, slack_s=TICKS_S, wall_slack_s=WALL_SLACK_S)
    address = server.site.address
    judge = TraceJudge({Origin.of(address): _Labels(server.site)}, promises)
    targets = {hit.location for hit in server.log if hit.target == ROBOTS_TXT and hit.location}
    # Any other file here is the robots.txt of another origin, by a redirect: it is no part of the pace here.
    trace = [_exchange(hit, address) for hit in server.log if hit.page is not None or hit.target == ROBOTS_TXT]
    for other, hit in files:
        if other.site.address + hit.target in targets:
            trace.append(_exchange(hit, other.site.address))
    judge.judge(trace)
    return judge


def _exchange(hit: Hit, address: str) -> Exchange:
    """Return a hit as an exchange; when a page request without an answer was given up, the server cannot know."""
    given_up = hit.page is not None and hit.status is None
    ended_mono = hit.started_mono if given_up else float("inf") if hit.ended_mono is None else hit.ended_mono
    url, location = address + hit.target, hit.location or None
    return Exchange(url, hit.started_mono, ended_mono, hit.status or 0, hit.retry_after_s, location=location)


def _stale(server: SiteServer, min_lifetime_s: float) -> Iterator[Violation]:
    """Yield the page requests with a robots.txt that was older than its max-age permits."""
    max_age_s = server.site.blueprint.max_age_s
    if max_age_s is None:
        return
    oldest_s = max(max_age_s, min_lifetime_s) + _LATE_S
    fetched_mono = [
        hit.ended_mono for hit in server.log if hit.target == ROBOTS_TXT and hit.status == _OK and hit.ended_mono
    ]
    for hit in server.log:
        age_s = hit.started_mono - max((at for at in fetched_mono if at <= hit.started_mono), default=hit.started_mono)
        if hit.page is not None and age_s > oldest_s:
            url = server.site.address + hit.target
            yield Violation(Kind.STALE, url, f"{age_s:.1f} s old, max-age={max_age_s}")


def _unknown(server: SiteServer) -> list[Violation]:
    """Return the requests for files that the site does not have."""
    return [
        Violation(Kind.UNKNOWN, server.site.address + hit.target)
        for hit in server.log
        if hit.page is None
        and hit.status != _OK
        and hit.target != ROBOTS_TXT
        and hit.target not in server.site.blueprint.files
    ]
