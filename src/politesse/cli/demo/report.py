"""What the logs of the servers say about the crawl; and whether it was a good one.

Nothing here has met the gate: the access result is read off the answers that the server remembers, and whether a page
is forbidden was settled when it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from politesse.cli.demo.server import ROBOTS_TXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.cli.demo.pages import Page
    from politesse.cli.demo.server import Hit, SiteServer

_CLOCK_SLACK_S: Final = 0.05  # two clocks take part: the server's monotonic one and the crawler's wall clock
_OK: Final = 200
_ACCESS: Final = {
    None: "unreachable",
    200: "successful",
    301: "redirect",
    403: "unavailable",
    404: "unavailable",
    429: "deferred",
    503: "unreachable",
}
_CLOSING: Final = frozenset({None, 429, 503})


class Kind(StrEnum):
    """What can be wrong about a request."""

    FORBIDDEN = "forbidden page requested"
    BEFORE_ROBOTS = "page requested before robots.txt was asked for"
    WHILE_CLOSED = "page requested before robots.txt was got"
    RETRIED_EARLY = "robots.txt asked for before its Retry-After was over"
    UNKNOWN = "requested, though nothing links to it"


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that should not have been made.

    Attributes:
        kind: what is wrong about it.
        url: what was requested.
        rule: the rule that forbids it, where it is one that does.
    """

    kind: Kind
    url: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url}{self.rule and f' ({self.rule})'}"


@dataclass(frozen=True, slots=True)
class Row:
    """The log of one origin, summed up.

    Attributes:
        name: of the origin.
        answers: the statuses that answered robots.txt, None for no answer.
        offered: how many allowed pages were linked from pages that were served anywhere, the front page included.
        served: how many different allowed pages were served.
        missed: how many allowed pages were not served.
        forbidden_offered: how many forbidden pages were linked from pages that were served anywhere.
        violations: every request that should not have been made.
    """

    name: str
    answers: tuple[int | None, ...]
    offered: int
    served: int
    missed: int
    forbidden_offered: int
    violations: tuple[Violation, ...]

    @property
    def access(self) -> str:
        """What the last answer for robots.txt came to."""
        return _ACCESS[self.answers[-1]] if self.answers else "not asked"

    def count(self, *kinds: Kind) -> int:
        """Return how many violations are of one of ``kinds``."""
        return sum(violation.kind in kinds for violation in self.violations)


def audit(servers: Sequence[SiteServer]) -> list[Row]:
    """Sum up the logs as they are now."""
    offered = {server.site.front for server in servers}
    for server in servers:
        for hit in server.log:
            if hit.page is not None and hit.status == _OK:
                offered.update(hit.page.links)
    return [_row(server, offered) for server in servers]


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 if no server saw what it should not have, and every allowed page was served; else 1."""
    return 1 if any(row.violations or row.missed for row in rows) else 0


def _row(server: SiteServer, offered: set[Page]) -> Row:
    site, log = server.site, server.log
    served = {hit.page for hit in log if hit.page is not None and hit.status is not None}
    allowed = {page for page in site.pages.values() if not page.forbidden}
    here = {page for page in offered if page.site is site}
    return Row(
        name=site.blueprint.name,
        answers=tuple(hit.status for hit in log if hit.target == ROBOTS_TXT),
        offered=len(here & allowed),
        served=len(served & allowed),
        missed=len(allowed - served),
        forbidden_offered=len(here - allowed),
        violations=tuple(_violations(log, site.address)),
    )


def _violations(log: Sequence[Hit], address: str) -> Iterator[Violation]:
    """Yield what is wrong about the requests of one log, in their order; a request may be wrong in two ways."""
    asked = opened = False
    not_before_mono = 0.0
    for hit in log:
        url = address + hit.target
        if hit.target == ROBOTS_TXT:
            if hit.at_mono < not_before_mono - _CLOCK_SLACK_S:
                yield Violation(Kind.RETRIED_EARLY, url)
            asked = True
            opened = opened or hit.status not in _CLOSING
            not_before_mono = hit.at_mono + (hit.retry_after_s or 0)
        elif hit.page is not None:
            if not opened:
                yield Violation(Kind.WHILE_CLOSED if asked else Kind.BEFORE_ROBOTS, url)
            if hit.page.forbidden:
                yield Violation(Kind.FORBIDDEN, url, hit.page.rule)
        elif hit.status != _OK:
            yield Violation(Kind.UNKNOWN, url)
