import pytest

from tests.rules.conformance.checks import check
from tests.rules.conformance.tables import DATA, Row, entries

ANSWERED_IN_PERL = "robot-rules-vectors"
TABLES = sorted(path.stem for path in DATA.glob("*.toml") if path.stem != ANSWERED_IN_PERL)


@pytest.mark.parametrize("rows", entries(*TABLES))
def test_entry_of_a_table(rows: list[Row]) -> None:
    check(rows)
