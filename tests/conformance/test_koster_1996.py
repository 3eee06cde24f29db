from __future__ import annotations

import pytest

from tests.conformance.checks import check
from tests.conformance.tables import Access, PathMatch, rows


@pytest.mark.parametrize("row", rows("koster-1996-3.2-records"))
def test_records(row: Access) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("koster-1996-3.2.2-paths"))
def test_paths(row: PathMatch) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("koster-1996-4-fict-org"))
def test_fict_org(row: Access) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("koster-1996-dialect"))
def test_dialect(row: Access | PathMatch) -> None:
    check(row)
