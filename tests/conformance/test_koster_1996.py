import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize(
    "row",
    rows(
        "koster-1996-3.2-records",
        "koster-1996-3.2.2-paths",
        "koster-1996-4-fict-org",
        "koster-1996-dialect",
    ),
)
def test_row_of_a_table(row: Access | PathMatch) -> None:
    check(row)
