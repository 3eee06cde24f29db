import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Row, entries


@pytest.mark.parametrize(
    "rows",
    entries(
        "koster-1996-3.2-records",
        "koster-1996-3.2.2-paths",
        "koster-1996-4-fict-org",
        "koster-1996-dialect",
    ),
)
def test_entry_of_a_table(rows: list[Row]) -> None:
    check(rows)
