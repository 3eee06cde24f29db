import ast
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import politesse
import politesse.audit
import politesse.fetch
import politesse.ledger
import politesse.options
import politesse.page
import politesse.queue
import politesse.robots
import politesse.signing
import politesse.sites
import politesse.stores
import politesse.testing
import politesse.usage
from tests.support.modules import MODULES
from tests.support.programs import run_code


@pytest.mark.parametrize(
    "package",
    [
        politesse,
        politesse.audit,
        politesse.fetch,
        politesse.ledger,
        politesse.options,
        politesse.page,
        politesse.queue,
        politesse.robots,
        politesse.signing,
        politesse.sites,
        politesse.stores,
        politesse.testing,
        politesse.usage,
    ],
)
def test_all_names_the_public_namespace(package: ModuleType) -> None:
    for name in package.__all__:
        getattr(package, name)  # the names of politesse are loaded when one is used
    public = {
        name
        for name, value in vars(package).items()
        if (not name.startswith("_") or name == "__version__") and not isinstance(value, ModuleType)
    }
    assert set(package.__all__) == public


def test_no_two_classes_share_a_name() -> None:
    twins = {"integrations/httpx.py", "integrations/httpx2.py"}  # the same classes for two libraries
    triplets = twins | {"integrations/requests.py"}  # their errors
    places: defaultdict[str, list[str]] = defaultdict(list)
    [root] = politesse.__path__
    for path in Path(root).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(root)))
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


def test_each_module_imports_alone() -> None:
    assert run_code(_IMPORT_EACH, *MODULES).stdout == ""


@pytest.mark.parametrize(
    ("package", "unneeded"),
    [("robots", ("aiohttp", "asyncio", "socket")), ("page", ("aiohttp", "asyncio", "selectolax"))],
)
def test_pure_package_needs_neither_aiohttp_nor_an_event_loop(package: str, unneeded: tuple[str, ...]) -> None:
    program = f"import sys, politesse.{package}; print([name for name in {unneeded} if name in sys.modules])"
    assert run_code(program).stdout == "[]\n"
