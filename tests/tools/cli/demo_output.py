"""What the demo prints, read back."""

import re
from typing import NamedTuple

ORIGINS = [
    "wildcards", "not found", "forbidden", "recovers", "slow down", "redirects", "expires", "html", "black hole"
]  # fmt: skip
PACES = {"slow down": (40, "site"), "redirects": (25, "site")}
FLOOR = (15, "own")
# Of an origin: name, answers for robots.txt, pages, fetched, disallowed, given up, left, gap, pace, by whom, broken.
ROW = re.compile(
    rf"(?P<name>{'|'.join(ORIGINS)}|all) +(?P<answers>.*?) +(?P<pages>\d+) +(?P<fetched>\d+) +(?P<disallowed>\d+)"
    r" +(?P<given_up>\d+) +(?P<left>\d+)(?: +(?P<gap_ms>-?[\d.]+|-) (?P<pace_ms>[\d.]+) (?P<pace_by>own|site))?"
    r" +(?P<broken>\d+)"
)


class Line(NamedTuple):
    answers: str
    pages: int
    fetched: int
    disallowed: int
    given_up: int
    left: int
    gap_ms: float | None
    pace: tuple[float, str]
    broken: int


def table_of(out: str) -> dict[str, Line]:
    """The rows of the table by origin."""
    rows = filter(None, (ROW.fullmatch(line.replace(",", "").rstrip()) for line in out.splitlines()))
    return {
        row["name"]: Line(
            row["answers"],
            int(row["pages"]),
            int(row["fetched"]),
            int(row["disallowed"]),
            int(row["given_up"]),
            int(row["left"]),
            None if row["gap_ms"] in {None, "-"} else float(row["gap_ms"]),
            (float(row["pace_ms"] or 0), row["pace_by"] or ""),
            int(row["broken"]),
        )
        for row in rows
    }


def kinds_in(out: str) -> set[str]:
    """The kinds of violations that it reports."""
    return set(re.findall(r"^[\d,]+ x (.+)$", out, re.MULTILINE))
