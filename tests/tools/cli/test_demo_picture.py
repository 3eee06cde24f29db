"""README's picture of the demo has the form of what the demo prints now: ``python .docs/demo.py`` draws it."""

import io
import re
import runpy
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from xml.etree import ElementTree as ET

from rich.console import Console

from politesse.cli.demo import PACING, TASKS
from politesse.cli.demo.report import OWN_FLOOR, Row, conclude, introduce
from politesse.cli.demo.web import LittleWeb
from tests.tools.cli.test_demo import ORIGINS, Line, table_of

DOCS: Final = Path(__file__).parents[3] / ".docs"
PROGRAM: Final = runpy.run_path(str(DOCS / "demo.py"))
PICTURE: Final = (DOCS / "pages/demo.svg").read_text(encoding="utf-8")
COLUMN: Final = 12.2  # the width of a character
TICK: Final = r" *\d+\.\d s: [\d,]+ of 2,343 allowed pages fetched, 0 rules broken"


def lines_of(picture: str) -> list[str]:
    """The lines of a picture, without blank lines."""
    lines: dict[float, str] = defaultdict(str)
    for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):  # noqa: S314 - our own picture
        place = round(float(text.attrib["x"]) / COLUMN)
        height = float(text.attrib["y"])
        lines[height] = lines[height].ljust(place) + (text.text or "").replace("\xa0", " ")
    return [line.rstrip() for _, line in sorted(lines.items())]


def row(name: str, line: Line) -> Row:
    """The sums that a line of the table shows."""
    answers: list[int] = []
    for times, status in re.findall(r"(?:(\d+)x ?)?(\d+|none)", line.answers):
        answers += [0 if status == "none" else int(status)] * int(times or 1)
    pace_ms, pace_by = line.pace
    return Row(
        name,
        tuple(answers),
        line.pages,
        served=line.fetched,
        disallowed=line.disallowed,
        unreachable=line.given_up,
        pace_s=pace_ms / 1000,
        pace_by=OWN_FLOOR if pace_by == "own" else pace_by,
        least_gap_s=None if line.gap_ms is None else line.gap_ms / 1000,
    )


async def test_picture_shows_what_the_demo_prints_for_the_figures_in_it() -> None:
    lines = lines_of(PICTURE)
    table = table_of("\n".join(lines))
    [(elapsed_s, retried)] = re.findall(r"^In ([\d.]+) s\. (\d+) requests", "\n".join(lines), re.MULTILINE)
    out = io.StringIO()
    console = Console(file=out, width=80)
    async with LittleWeb(pages=3_000) as web:
        introduce(console, web, TASKS, PACING.min_delay_s)
    before = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    report: Any = SimpleNamespace(retried=int(retried))
    out.truncate(out.seek(0))
    conclude(console, [row(name, table[name]) for name in ORIGINS], report, float(elapsed_s))
    after = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    command, ticks = lines[0], lines[1 + len(before) : -len(after)]
    assert (command, lines[1 : 1 + len(before)], lines[-len(after) :]) == (PROGRAM["COMMAND"], before, after)
    assert [line for line in ticks if not re.fullmatch(TICK, line)] == [PROGRAM["GAP"]]
    assert len(ticks) == 4


def test_picture_has_colours_for_light_and_dark_and_loads_nothing() -> None:
    light, dark = PICTURE.split("@media (prefers-color-scheme: dark)")
    classes = {text.attrib["class"] for text in ET.fromstring(PICTURE).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314 - our own picture
    assert {name: (f".{name} {{" in light, f".{name} {{" in dark) for name in classes} == dict.fromkeys(
        classes, (True, True)
    )
    assert re.findall(r"url\(|href|@import|@font-face", PICTURE) == []


def test_program_draws_what_the_demo_prints_and_leaves_out_lines_of_the_crawl() -> None:
    ticks = [f" {second}.0 s: 1 of 2,343 allowed pages fetched, 0 rules broken" for second in range(1, 8)]
    printed = "\n".join(["A small web", "", *ticks, "\x1b[1mall\x1b[0m  \x1b[32m0\x1b[0m"])
    shown = [PROGRAM["COMMAND"], "A small web", *ticks[:2], PROGRAM["GAP"], ticks[-1], "all  0"]
    assert lines_of(PROGRAM["drawn"](printed)) == shown
