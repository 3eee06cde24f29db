import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize("row", rows("koster-1994"))
def test_format(row: Access | PathMatch) -> None:
    check(row)
