from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import politesse
import politesse.robots

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(politesse.__path__, "politesse.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("package", [politesse, politesse.robots])
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


def test_each_module_imports_alone() -> None:
    program = "import importlib, sys\nimportlib.import_module(sys.argv[1])"
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", program, name], stderr=subprocess.PIPE)  # noqa: S603
        for name in MODULES
    ]
    failures = {name: process.communicate()[1].decode() for name, process in zip(MODULES, running, strict=True)}
    assert {name: failure for name, failure in failures.items() if failure} == {}


def test_robots_package_needs_neither_aiohttp_nor_an_event_loop() -> None:
    program = (
        "import sys, types\n"
        "package = types.ModuleType('politesse'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['politesse'] = package\n"
        "import politesse.robots\n"
        "print([name for name in ('aiohttp', 'asyncio', 'socket') if name in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, politesse.__path__[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
