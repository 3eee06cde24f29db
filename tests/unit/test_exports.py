from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import politesse
import politesse.page
import politesse.robots

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(politesse.__path__, "politesse.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("package", [politesse, politesse.page, politesse.robots])
def test_all_names_the_public_namespace(package: ModuleType) -> None:
    public = {
        name
        for name, value in vars(package).items()
        if (not name.startswith("_") or name == "__version__") and not isinstance(value, ModuleType)
    }
    assert set(package.__all__) == public


def test_public_names_of_the_package_are_documented() -> None:
    undocumented = [
        name
        for name in politesse.__all__
        if name != "__version__" and not (getattr(politesse, name).__doc__ or "").strip()
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip()


# Whatever is imported, the package itself comes first: what it loads imports alone if the package does. Each other module
# is imported right behind it, in one process that forgets the rest.
_IMPORT_EACH = """
import importlib, sys
import politesse
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
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", _IMPORT_EACH, *MODULES], capture_output=True, check=True, text=True
    )
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("package", "unneeded"),
    [("robots", ("aiohttp", "asyncio", "socket")), ("page", ("aiohttp", "asyncio", "selectolax"))],
)
def test_pure_package_needs_neither_aiohttp_nor_an_event_loop(package: str, unneeded: tuple[str, ...]) -> None:
    program = (
        "import sys, types\n"
        "package = types.ModuleType('politesse'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['politesse'] = package\n"
        f"import politesse.{package}\n"
        f"print([name for name in {unneeded} if name in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, politesse.__path__[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
