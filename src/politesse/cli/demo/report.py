"""What the logs of the servers say about the crawl, origin by origin; and whether it was a good one.

Nothing here has met the gate: the pace that an origin asks for, and whether a page is forbidden, were settled when they
were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

from politesse.cli.demo.server import ROBOTS_TXT
from politesse.cli.demo.violations import OK, Kind, Violation, gaps_s, violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.cli.demo.pages import Page
    from politesse.cli.demo.server import SiteServer

_SERVED: Final = frozenset({OK, 302})
_TOO_MANY_REQUESTS: Final = 429
OWN_FLOOR: Final = "own floor"


@dataclass(frozen=True, slots=True)
class Row:
    """The log of one origin, summed up.

    Attributes:
        name: of the origin.
        answers: the statuses that answered robots.txt, None for no answer.
        served: how many different allowed pages were served.
        missed: how many allowed pages were not served.
        forbidden_offered: how many forbidden pages were linked from pages that were served anywhere.
        told_to_wait: how many page requests were answered with 429.
        pace_s: the pause that has to be kept between two requests, in seconds.
        pace_by: who says so: the field in robots.txt, or OWN_FLOOR.
        least_gap_s: the shortest pause before a page request that the server saw, in seconds, negative where it saw two
            at once; None where there were no two requests.
        violations: what was wrong.
    """

    name: str
    answers: tuple[int | None, ...]
    served: int
    missed: int
    forbidden_offered: int
    told_to_wait: int
    pace_s: float
    pace_by: str
    least_gap_s: float | None
    violations: tuple[Violation, ...]

    def count(self, *kinds: Kind) -> int:
        """Return how many violations are of one of ``kinds``."""
        return sum(violation.kind in kinds for violation in self.violations)


def audit(servers: Sequence[SiteServer], floor_s: float) -> list[Row]:
    """Sum up the logs as they are now.

    Args:
        servers: all of them.
        floor_s: the pause that the crawler promises to keep wherever no longer one is asked for, in seconds.
    """
    offered = {server.site.front for server in servers}
    for server in servers:
        for hit in server.log:
            if hit.page is not None and hit.status == OK:
                offered.update(hit.page.links)
    return [_row(server, offered, floor_s) for server in servers]


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 if no server saw what it should not have, and every allowed page was served; else 1."""
    return 1 if any(row.violations or row.missed for row in rows) else 0


def _row(server: SiteServer, offered: set[Page], floor_s: float) -> Row:
    site, log, blueprint = server.site, server.log, server.site.blueprint
    served = {hit.page for hit in log if hit.page is not None and hit.status in _SERVED}
    allowed = {page for page in site.pages.values() if not page.forbidden}
    asks_more = blueprint.asks_s > floor_s
    pace_s = blueprint.asks_s if asks_more else floor_s
    seen_s = [gap_s for gap_s in gaps_s(log).values() if isfinite(gap_s)]
    return Row(
        name=blueprint.name,
        answers=tuple(hit.status for hit in log if hit.target == ROBOTS_TXT),
        served=len(served & allowed),
        missed=len(allowed - served),
        forbidden_offered=sum(page.site is site and page.forbidden for page in offered),
        told_to_wait=sum(hit.page is not None and hit.status == _TOO_MANY_REQUESTS for hit in log),
        pace_s=pace_s,
        pace_by=blueprint.asks.partition(":")[0] if asks_more else OWN_FLOOR,
        least_gap_s=min(seen_s, default=None),
        violations=tuple(violations(log, site.address, pace_s)),
    )
