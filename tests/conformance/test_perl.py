import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, rows


@pytest.mark.parametrize("row", rows("perl-robot-rules"))
def test_robot_rules(row: Access) -> None:
    check(row)
