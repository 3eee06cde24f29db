"""Names that left the top level of the package: old imports go on, and say where the name is today."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_type

import pytest

import politesse

if TYPE_CHECKING:
    # These three imports and the function below are for mypy: it accepts an old name as what it is, and no other name.
    from politesse import Event as FormerEvent
    from politesse import MemoryStore as FormerStore
    from politesse import NoSuchName  # type: ignore[attr-defined]
    from politesse.events import Event
    from politesse.stores import MemoryStore

    def former_types(event: FormerEvent, store: FormerStore, unknown: NoSuchName) -> None:
        assert_type(event, Event)
        assert_type(store, MemoryStore)


# KEPT and HOMES are politesse.__all__ as it was before it became short: frozen until 1.0.
KEPT: Final = {
    "AgentView",
    "Bound",
    "CacheOptions",
    "ClosedError",
    "ConfigurationError",
    "Dialect",
    "Disallowed",
    "FetchOptions",
    "Gatekeeper",
    "HostPolicy",
    "InvalidURL",
    "NotYet",
    "Origin",
    "PacingOptions",
    "PoliteQueue",
    "PoliteSession",
    "PolitesseError",
    "QueueClosed",
    "Reason",
    "RobotsTxt",
    "TooFar",
    "Turn",
    "Verdict",
    "__version__",
}

HOMES: Final = {
    "AccessResult": "politesse.verdict",
    "AddressNotFound": "politesse.events",
    "AiohttpFetcher": "politesse.fetch",
    "ComponentFailed": "politesse.events",
    "DataRecord": "politesse.sites",
    "DataTxt": "politesse.sites",
    "DataTxtAnswer": "politesse.sites",
    "Decided": "politesse.events",
    "Event": "politesse.events",
    "FileOutcome": "politesse.sites",
    "HeaderOverruled": "politesse.events",
    "Limit": "politesse.options",
    "LongDelay": "politesse.events",
    "Match": "politesse.verdict",
    "MatchingBounded": "politesse.events",
    "MemoryStore": "politesse.stores",
    "PolitesseWarning": "politesse.errors",
    "Preference": "politesse.usage",
    "PublicResolver": "politesse.fetch",
    "Purpose": "politesse.usage",
    "QueueStatistics": "politesse.queue",
    "QueuedTurn": "politesse.queue",
    "RejectedSitemap": "politesse.robots",
    "RobotsFetched": "politesse.events",
    "Rule": "politesse.verdict",
    "SiteFile": "politesse.sites",
    "SiteFileFetched": "politesse.events",
    "Sitemaps": "politesse.sites",
    "Source": "politesse.verdict",
    "Statistics": "politesse.status",
    "StoreError": "politesse.errors",
    "Usage": "politesse.usage",
    "WrongEventLoop": "politesse.errors",
}


def test_top_level_has_two_dozen_names_at_most() -> None:
    assert len(set(politesse.__all__) - {"__version__"}) <= 24


def test_names_that_stayed_at_the_top_stay() -> None:
    assert set(politesse.__all__) >= KEPT


@pytest.mark.parametrize(("name", "home"), HOMES.items())
def test_former_name_is_the_same_object_with_a_warning_that_names_home_and_importer(
    name: str, home: str, tmp_path: Path
) -> None:
    importer = tmp_path / "importer.py"
    importer.write_text(f"\nfrom politesse import {name} as found\n")
    namespace: dict[str, object] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        exec(compile(importer.read_text(), importer, "exec"), namespace)  # noqa: S102
    module = importlib.import_module(home)
    assert name in module.__all__
    assert namespace["found"] is getattr(module, name)
    [warning] = caught
    assert warning.category is DeprecationWarning
    assert str(warning.message) == (
        f"politesse.{name} is deprecated until 1.0, which removes it: import {name} from {home}"
    )
    assert (warning.filename, warning.lineno) == (str(importer), 2)


def test_former_name_as_an_attribute_warns_each_place() -> None:
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=r"import Event from politesse\.events") as caught:
            assert getattr(politesse, "Event") is importlib.import_module("politesse.events").Event  # noqa: B009
        assert caught[0].filename == __file__


def test_unknown_name_is_an_attribute_error_and_no_import() -> None:
    with pytest.raises(AttributeError, match=r"module 'politesse' has no attribute 'NoSuchName'") as caught:
        getattr(politesse, "NoSuchName")  # noqa: B009
    assert caught.value.name == "NoSuchName"
    with pytest.raises(ImportError, match="cannot import name 'NoSuchName'"):
        exec("from politesse import NoSuchName")  # noqa: S102


def test_names_and_submodules_of_today_import_without_a_warning() -> None:
    homes = sorted(set(HOMES.values()))
    program = (
        "from politesse import *\n"
        "import politesse\n"
        "dir(politesse)\n"
        "from politesse import events, stores\n"
        "politesse.errors, politesse.fetch, politesse.queue, politesse.robots, politesse.usage, politesse.verdict\n"
        + "".join(f"from {home} import *\n" for home in homes)
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_type_checkers_read_each_former_name_from_its_home() -> None:
    assert politesse.__file__ is not None
    package = ast.parse(Path(politesse.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in package.body if isinstance(node, ast.If)]
    found = {
        alias.asname: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert found == HOMES
