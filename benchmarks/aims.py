"""What is aimed at, and how the figures stand to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.figures import Figure


@dataclass(frozen=True, slots=True)
class Target:
    """Attributes:
    label: what the figure says.
    least: what must be reached.
    aim: what is aimed at; less than ``least`` where less is better.
    """

    label: str
    least: float
    aim: float

    def verdict(self, value: float) -> str:
        if self._reached(value, self.aim):
            return "aim met"
        return "met, aim missed" if self._reached(value, self.least) else "MISSED"

    def _reached(self, value: float, bound: float) -> bool:
        return value >= bound if self.aim > self.least else value <= bound


TARGETS: Final[Mapping[str, Target]] = {
    "decide/mixed": Target("rules.allowed, mixed URLs, x Protego", 3.5, 4.5),
    "decide/up to 10 rules": Target("rules.allowed, files of up to 10 rules, x Protego", 2.2, 3.0),
    "decide/with escapes or not ASCII": Target("rules.allowed, escapes, x Protego", 2.2, 3.0),
    "peek/mixed": Target("peek, x Protego behind a dict and urlsplit", 4.0, 5.0),
    "parse/all files": Target("parse and rules of one agent, corpus, x Protego", 1.8, 3.0),
    "parse/up to 1 kB": Target("parse and rules of one agent, up to 1 kB, x Protego", 1.3, 2.5),
    "turn/waiting": Target("gate.turn, 1,000 tasks, CPU against aiolimiter's permit", 1.0, 0.6),
    "session/added": Target("PoliteSession, CPU added to aiohttp, against what Protego behind a dict adds", 1.2, 0.8),
    "cold/GETs": Target("unseen origins a second, against bare GETs", 0.75, 0.9),
    "cold/Protego.parse": Target("unseen origins a second, against GETs with Protego.parse", 1.1, 1.3),
    "memory/origin": Target("memory a cached origin, explain working", 8.0, 5.0),
    "memory/held": Target("origins held by the default bound, before the first re-parse", 10_000, 20_000),
    "stores/origin": Target("bytes an origin in the file of a SqliteStore, kB", 1.2, 1.0),
    "stores/hit": Target("peek with a SqliteStore, against a MemoryStore", 1.05, 1.02),
    "fleet/rate": Target("permits a second of a fleet of 4, against what its spacing allows", 0.95, 0.98),
    "fleet/round trips": Target("round trips a permit of a fleet of 4, release included", 2.1, 1.5),
    "fleet/least gap": Target("least gap of a fleet of 4, against the interval", 1.0, 1.02),
    "stalls/longest": Target("longest stall of the loop, hostile file and URL", 5.0, 2.0),
}


def against_targets(figures: Iterable[Figure]) -> str | None:
    """Return the table of the figures that have a target, and those that miss it; None if there are none."""
    judged = [(TARGETS[figure.name], figure) for figure in figures if figure.name in TARGETS]
    if not judged:
        return None
    rows = [
        (
            target.label,
            figure.text,
            figure.spread,
            f"{target.least:,g}",
            f"{target.aim:,g}",
            target.verdict(figure.value),
        )
        for target, figure in judged
    ]
    missed = [target.label for target, figure in judged if target.verdict(figure.value) == "MISSED"]
    return "\n".join(
        [
            table("what it must show", ("", "median", "quartiles", "at least", "aim", ""), rows),
            f"missed: {'; '.join(missed) or 'none'}",
        ]
    )
