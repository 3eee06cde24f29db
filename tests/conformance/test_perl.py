import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Row, entries


@pytest.mark.parametrize("rows", entries("perl-robot-rules"))
def test_robot_rules(rows: list[Row]) -> None:
    check(rows)
