"""The URLs that a crawl loses: those that it gives up, and those that are left at a site that is closed at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from politesse._base.text import counted, printable, shortened
from politesse.origin import Origin
from politesse.verdict import WORDS, Bound, Reason, utc

if TYPE_CHECKING:
    from politesse.verdict import Verdict

MAX_LOSSES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Loss:
    """URLs of a site that a crawl has not requested because of the site, or of ``PoliteQueue.give_up``.

    Attributes:
        host: the paced host: its name without scheme and port.
        left: how many URLs were given up, or are left.
        reason: the Reason of the verdict by which the URLs were given up, or by which they wait for robots.txt; or the
            Bound that has closed the host, where the URLs are left.
        detail: more about the reason, for example an answer of the site; may be empty.
        since: the Unix time since which the site has made the crawl wait, or has been given up.

    Example:
        >>> print(Loss("a.example", 31, Reason.REFUSED, "refused 3 times in a row: 403", 1_800_000_000.0))
        a.example: 31 URLs, the site refuses this crawler: refused 3 times in a row: 403; since 2027-01-15T08:00:00Z
    """

    host: str
    left: int
    reason: Reason | Bound
    detail: str
    since: float

    @property
    def why(self) -> str:
        """The reason in words, with the detail and the time."""
        words = WORDS[self.reason] if isinstance(self.reason, Reason) else f"the host is closed, by {self.reason}"
        return printable(f"{words}{': ' if self.detail else ''}{self.detail}; since {utc(self.since)}")

    def __str__(self) -> str:
        return f"{printable(self.host)}: {counted(self.left, 'URL')}, {self.why}"


def lost_by(verdict: Verdict, since_wall: float, left: int = 1) -> Loss:
    """Return the loss of URLs that a verdict denies; ``since_wall`` counts unless the verdict knows the time."""
    source, detail = verdict.source, verdict.note
    if source is not None:
        since_wall = since_wall if source.failing_since_wall is None else source.failing_since_wall
        detail = detail or source.fault
    if verdict.reason is Reason.GIVEN_UP:
        since_wall = verdict.decided_wall
    return Loss(Origin.of(verdict.url).pacing_host, left, verdict.reason, shortened(detail), since_wall)


class Losses:
    """Adds up losses by host and reason.

    The rows of URLs that were given up are those of the first ``MAX_LOSSES`` hosts, because a crawl may leave millions
    of hosts behind. Each row is exact.

    Attributes:
        total: how many URLs, also without a row.
    """

    def __init__(self) -> None:
        self.total: int = 0
        self._given_up: dict[tuple[str, Reason | Bound], Loss] = {}
        self._left: list[Loss] = []

    def give_up(self, loss: Loss) -> None:
        """Add URLs that were given up."""
        self.total += loss.left
        key = loss.host, loss.reason
        row = self._given_up.get(key)
        if row is not None:
            self._given_up[key] = replace(row, left=row.left + loss.left)
        elif len(self._given_up) < MAX_LOSSES:
            self._given_up[key] = loss

    def leave(self, loss: Loss) -> None:
        """Add URLs that are left at the end."""
        self.total += loss.left
        self._left.append(loss)

    def rows(self) -> tuple[Loss, ...]:
        """Return at most ``MAX_LOSSES`` rows, those with the most URLs first."""
        return tuple(nlargest(MAX_LOSSES, [*self._given_up.values(), *self._left], key=attrgetter("left")))
