import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Row, entries


@pytest.mark.parametrize(
    "rows",
    entries(
        "koster-2019-2.2.2-paths",
        "koster-2019-3-examples",
        "koster-2019-2.2-dialect",
    ),
)
def test_entry_of_a_table(rows: list[Row]) -> None:
    check(rows)
