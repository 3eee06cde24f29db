from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from politesse.cli.demo.report import OWN_FLOOR, Row
from politesse.cli.demo.view import table


def _row(name: str, answers: tuple[int | None, ...], **values: Any) -> Row:
    counts: dict[str, Any] = {"served": 0, "missed": 0, "forbidden_offered": 0, "told_to_wait": 0}
    paced: dict[str, Any] = {"pace_s": 0.015, "pace_by": OWN_FLOOR, "least_gap_s": None, "violations": ()}
    return Row(name, answers, **{"answers_robots": True} | counts | paced | values)


ROWS = [
    _row("wildcards", (200,), pages=1_900, served=1_100, missed=400, forbidden_offered=300, least_gap_s=0.0157),
    _row(
        "recovers", (503, 503, 200), pages=300, served=210, forbidden_offered=90, pace_s=0.025, pace_by="Request-rate"
    ),
    _row("black hole", (None,) * 7, pages=25, forbidden_offered=25, answers_robots=False),
]


def _shown(width: int, *, finished: bool) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(table(ROWS, width, finished=finished))
    return out.getvalue().splitlines()


def _numbers(line: str) -> list[int]:
    return [int(word.replace(",", "")) for word in line.split() if word.replace(",", "").isdigit()]


@pytest.mark.parametrize("width", [60, 79, 80, 109, 110, 120, 200])
def test_the_table_fits_and_nothing_is_cut(width: int) -> None:
    lines = _shown(width, finished=True)
    assert len(lines) == 3 + len(ROWS) + 1
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("finished", [False, True])
def test_the_pages_of_each_row_add_up(*, finished: bool) -> None:
    for line in _shown(60, finished=finished)[3:]:
        pages, fetched, disallowed, given_up, left, broken = _numbers(line)
        assert pages == fetched + disallowed + given_up + left
        assert broken == 0


def test_pages_are_given_up_when_the_crawl_has_ended() -> None:
    assert _numbers(_shown(60, finished=False)[5])[3:5] == [0, 25]
    assert _numbers(_shown(60, finished=True)[5])[3:5] == [25, 0]


def test_the_columns_of_the_running_and_the_final_table_are_the_same() -> None:
    assert _shown(80, finished=False)[:3] == _shown(80, finished=True)[:3]


@pytest.mark.parametrize(("width", "named"), [(80, "25 site"), (120, "25 Request-rate")])
def test_the_pace_is_shown_with_what_sets_it(width: int, named: str) -> None:
    assert named in _shown(width, finished=True)[4]
