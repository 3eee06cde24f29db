import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize(
    "row",
    rows(
        "http-guide-robots-txt",
        "http-guide-table-9-3",
        "http-guide-table-9-4",
    ),
)
def test_row_of_a_table(row: Access | PathMatch) -> None:
    check(row)
