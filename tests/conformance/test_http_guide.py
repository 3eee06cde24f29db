import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Row, entries


@pytest.mark.parametrize(
    "rows",
    entries(
        "http-guide-robots-txt",
        "http-guide-table-9-3",
        "http-guide-table-9-4",
    ),
)
def test_entry_of_a_table(rows: list[Row]) -> None:
    check(rows)
