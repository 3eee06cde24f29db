import pytest

from politesse.stores import MemoryStore
from tests.core.cache.caching import Bench


@pytest.fixture(params=["no store", "store"])
def _each_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with gates that have no store, and again with gates that have one, unless the test names a store."""
    if request.param == "store":
        monkeypatch.setattr(Bench, "usual_store", MemoryStore)
