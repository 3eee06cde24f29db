import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize(
    "row",
    rows(
        "koster-2019-2.2.2-paths",
        "koster-2019-3-examples",
        "koster-2019-2.2-dialect",
    ),
)
def test_row_of_a_table(row: Access | PathMatch) -> None:
    check(row)
