import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Row, entries


@pytest.mark.parametrize("rows", entries("koster-1994"))
def test_format(rows: list[Row]) -> None:
    check(rows)
