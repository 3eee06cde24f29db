import io

import pytest
from rich.console import Console

from politesse.cli.demo.report import Row
from politesse.cli.demo.view import table

ROWS = [
    Row("wildcards", (200,), 1_900, served=1_100, missed=400, disallowed=300, pace_s=0.015, least_gap_s=0.0157),
    Row("recovers", (503, 503, 200), 300, served=210, disallowed=90, pace_s=0.025, pace_by="Request-rate"),
    Row("black hole", (0,) * 7, pages=25, unreachable=25, pace_s=0.015),
]


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_fits_nothing_is_cut_and_its_rows_add_up(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width).print(table(ROWS))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3 + len(ROWS) + 1
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert "25 site" in lines[4]
    place = lines[1].index("pages")
    for line in lines[3:]:
        pages, fetched, disallowed, given_up, left, *_, broken = line[place:].replace(",", "").split()
        assert int(pages) == sum(map(int, (fetched, disallowed, given_up, left)))
        assert broken == "0"
