"""The public names of the package: exported, documented with examples that run, and in modules that import alone."""

import doctest
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, get_origin

import pytest

import politesse
from politesse.clock import SystemClock
from tests.support.modules import HOMES, MODULES
from tests.support.programs import run_code

LOOSE: Final = {"errors", "events", "metrics", "status", "stores.redis", "sync", "verdict"}
"""The modules that have other names, too, beside those in ``__all__``."""


def test_all_names_the_public_namespace() -> None:
    for package in map(importlib.import_module, sorted(set(HOMES) - {f"politesse.{name}" for name in LOOSE})):
        for name in package.__all__:
            getattr(package, name)  # the names of politesse are loaded when one is used
        assert set(package.__all__) == {
            name
            for name, value in vars(package).items()
            if (not name.startswith("_") or name == "__version__") and not isinstance(value, ModuleType)
        }


def test_no_two_classes_share_a_name() -> None:
    twins = {"integrations/httpx.py", "integrations/httpx2.py"}  # the same classes for two libraries
    triplets = twins | {"integrations/requests.py"}  # their errors
    places: defaultdict[str, list[str]] = defaultdict(list)
    [root] = politesse.__path__
    for path in Path(root).rglob("*.py"):
        for name in re.findall(r"^ *class (\w+)[(:]", path.read_text(), re.MULTILINE):
            places[name].append(str(path.relative_to(root)))
    shared = {name: where for name, where in places.items() if len(where) > 1 and set(where) not in (twins, triplets)}
    assert shared == {}


# What the names of the package load imports alone if they do. Each other module is imported right behind them, in
# one process that forgets the rest.
_IMPORT_EACH = """
import importlib, sys
from politesse import *
loaded = dict(sys.modules)
for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.partition('.')[0] == 'politesse' and known not in loaded]:
        parent, _, child = known.rpartition('.')
        if parent in loaded:
            vars(sys.modules[parent]).pop(child, None)
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(name, repr(error))
"""


@pytest.mark.full  # two seconds
def test_each_module_imports_alone() -> None:
    assert run_code(_IMPORT_EACH, *MODULES).stdout == ""


def test_pure_packages_need_neither_aiohttp_nor_an_event_loop() -> None:
    program = """if True:
        import sys, politesse.robots
        print(sys.modules.keys() & {"aiohttp", "asyncio", "socket"})
        import politesse.page
        print(sys.modules.keys() & {"aiohttp", "asyncio", "selectolax"})
    """
    assert run_code(program).stdout == "set()\nset()\n"


def test_a_parser_loads_no_library_that_it_needs_seldom() -> None:
    seldom = {"yarl", "idna", "multidict", "ipaddress", "urllib.parse", "hashlib", "datetime", "politesse.usage"}
    program = f"""if True:
        import sys, politesse.robots as robots
        rules = robots.RobotsTxt.parse("User-agent: *\\nDisallow: /a*b\\nCrawl-delay: 5").rules_for("examplebot")
        assert not rules.allowed("https://example.com/axb") and rules.match("/%41?b").allowed
        print(sys.modules.keys() & {seldom | {"aiohttp", "asyncio", "logging", "socket", "urllib.request"}!r})
    """
    assert run_code(program).stdout == "set()\n"


def test_each_module_has_a_docstring() -> None:
    assert [name for name in MODULES if not (importlib.import_module(name).__doc__ or "").strip()] == []


def test_examples_print_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: dict[str, str] = {}
    for name in ["politesse", *MODULES]:
        module = importlib.import_module(name)
        source = inspect.getsourcefile(module)  # that of C has none
        if source is None or ">>> " not in Path(source).read_text():
            continue
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        lines: list[str] = []
        for examples in doctest.DocTestFinder(exclude_empty=True).find(module, name):
            monkeypatch.setattr(SystemClock, "run", examples.name)  # each example is a process of its own
            runner.run(examples, out=lines.append)
        if runner.failures:
            printed[name] = "".join(lines)
    assert printed == {}


def test_the_map_of_the_package_names_each_public_room() -> None:
    head = (politesse.__doc__ or "").split("_base/")[0]
    rooms = {name.split(".")[1] for name in MODULES if "._" not in name} - {"guides"}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", head)} == set()


NAMES: Final = [(module, name) for module in map(importlib.import_module, HOMES) for name in module.__all__]

# A constant has no docstring of its own, and neither has a Literal, which is callable.
PUBLIC: Final = {
    f"{module.__name__}.{name}": value
    for module, name in NAMES
    if callable(value := getattr(module, name)) and get_origin(value) is not Literal
}

# A protocol is what others write: no example of it can run alone.
CLASSES: Final = [
    name for name, value in PUBLIC.items() if isinstance(value, type) and not getattr(value, "_is_protocol", False)
]


def test_public_names_are_documented() -> None:
    assert [name for name, value in PUBLIC.items() if not (value.__doc__ or "").strip()] == []


def test_each_public_class_has_an_example() -> None:
    assert [name for name in CLASSES if ">>> " not in (PUBLIC[name].__doc__ or "")] == []
