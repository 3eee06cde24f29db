import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of conformance names the clause that it holds, so that what is covered can be listed."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]) and item.get_closest_marker("clause") is None:
            raise pytest.UsageError(f"{item.nodeid} names no clause")
