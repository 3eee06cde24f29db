"""The budgets, and the table that compares the figures of a run with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.table import table
from politesse.robots import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.figures import Figure


@dataclass(frozen=True, slots=True)
class Budget:
    """Attributes:
    label: names the figure.
    bound: the largest figure that is within the budget; the smallest if ``more_is_better``.
    more_is_better: whether a larger figure is a better one.
    """

    label: str
    bound: float
    more_is_better: bool = False

    def share(self, value: float) -> float:
        """Return how far ``value`` is within the budget: 1 at its bound, more if it is better."""
        return value / self.bound if self.more_is_better else self.bound / value

    def is_kept(self, value: float) -> bool:
        return value >= self.bound if self.more_is_better else value <= self.bound

    def __str__(self) -> str:
        return f"at {'least' if self.more_is_better else 'most'} {self.bound:,g}"


def _by(native: float, python: float) -> float:
    """Return the bound for the implementation of the rules that runs."""
    return native if IMPLEMENTATION == "native" else python


BUDGETS: Final[Mapping[str, Budget]] = {
    "decide/mixed": Budget("rules.allowed, mixed URLs, x Protego", _by(12.0, 1.0), more_is_better=True),
    "parse/all files": Budget("parse and rules of one agent, x Protego", _by(15.0, 1.0), more_is_better=True),
    "peek/each": Budget("peek", 6.0),
    "peek/mixed": Budget("peek, x Protego behind a dict", _by(5.0, 2.0), more_is_better=True),
    "cold/GETs": Budget("unseen origins, against bare GETs", 0.6, more_is_better=True),
    "cold/Protego.parse": Budget("unseen origins, against GETs with Protego", 1.1, more_is_better=True),
    "turn/waiting": Budget("gate.turn, 1,000 tasks wait, against aiolimiter's permit", 1.5),
    "session/added": Budget("PoliteSession, added to aiohttp, against Protego behind a dict", 1.3),
    "session/crawl": Budget("queue.crawl, a page with 20 workers, against bare aiohttp", 1.6),
    "memory/origin": Budget("memory of a cached origin", _by(3.0, 8.0)),
    "stalls/longest": Budget("longest step on the event loop, hostile file and URL", _by(2.0, 5.0)),
    "ledger/caller": Budget("a ledger, added to a decision on its caller, us", 0.3),
    "watch/watched by three": Budget("a page of a crawl that three watch, against none", 1.02),
    "watch/longest step": Budget("longest step on the event loop, 10,000 hosts are watched, ms", 5.0),
    "fleet/rate": Budget("permits a second of a fleet of 4, against the ideal", 0.95, more_is_better=True),
    "fleet/queue": Budget("queue.turn in a fleet, Redis 20 ms away, against the pace", 0.95, more_is_better=True),
    "members/idle": Budget("1,000 idle processes of a fleet, share of a processor of Redis", 0.05),
    "fleet/least gap": Budget("least gap of a fleet of 4, against the interval", 1.0, more_is_better=True),
}


def against_budgets(figures: Iterable[Figure]) -> str | None:
    """Return a table of the figures that have a budget, and the list of the missed budgets; None without figures."""
    judged = [(BUDGETS[figure.name], figure) for figure in figures if figure.name in BUDGETS]
    if not judged:
        return None
    rows = [
        (budget.label, figure.text, figure.spread, str(budget), "met" if budget.is_kept(figure.value) else "MISSED")
        for budget, figure in judged
    ]
    missed = [budget.label for budget, figure in judged if not budget.is_kept(figure.value)]
    return "\n".join(
        [
            table("budgets", ("", "median", "quartiles", "budget", ""), rows),
            f"missed: {'; '.join(missed) or 'none'}",
        ]
    )
