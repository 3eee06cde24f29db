from __future__ import annotations

import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize("row", rows("http-guide-robots-txt"))
def test_robots_txt(row: Access) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("http-guide-table-9-3"))
def test_table_9_3(row: Access | PathMatch) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("http-guide-table-9-4"))
def test_table_9_4(row: Access) -> None:
    check(row)
