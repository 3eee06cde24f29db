from __future__ import annotations

import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize("row", rows("koster-2019-2.2.2-paths"))
def test_paths(row: PathMatch) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("koster-2019-3-examples"))
def test_examples(row: Access) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("koster-2019-2.2-dialect"))
def test_dialect(row: Access | PathMatch) -> None:
    check(row)
