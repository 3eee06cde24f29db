"""One binary of the compiled core serves all versions of Python: whichever headers built it, wherever it is loaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import politesse
from politesse.robots import IMPLEMENTATION

PACKAGE: Final = Path(politesse.__file__).parent
COMPILER: Final = shutil.which("gcc") or shutil.which("cc")

compiled: Final = pytest.mark.skipif(
    IMPLEMENTATION == "python" or COMPILER is None, reason="there is no core, or no C compiler"
)

# Each call leaves the references of the objects that it returns as they were. Some versions of the headers take no
# reference of None, True and False, which die in Python 3.11 if they are released too often.
COUNTED: Final = r"""
import sys
from politesse.robots import IMPLEMENTATION, Dialect, RobotsTxt

assert IMPLEMENTATION == "native"
body = "User-agent: *\nDisallow: /a\nAllow: /é*b$\nSitemap: /s\nCrawl-delay: 5\nContent-Usage: train-ai=n\n"
shared = (None, True, False, "", (), body, Dialect.RFC9309)
for _ in range(3):
    before = list(map(sys.getrefcount, shared))
    for _ in range(5_000):
        robots = RobotsTxt.parse(body)
        rules = robots.rules_for("x")
        answers = rules.allowed("/a"), rules.allowed("/b"), rules.allowed("/./c"), rules.match("/a"), rules.rules
        answers = len(rules), rules.weight_bytes, robots.sitemaps, rules.match("/é/../éb"), robots.binding("x")
        del robots, rules, answers
    after = list(map(sys.getrefcount, shared))
assert all(abs(one - other) < 100 for one, other in zip(before, after)), (before, after)
print("ok")
"""

ISOLATED: Final = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = f"import sys; sys.path.insert(0, {sys.argv[1]!r}); from politesse._native import core; core.Dialect"
interpreters.run_string(interpreters.create(), code)
if sys.version_info >= (3, 13):
    problem = interpreters.run_string(interpreters.create("isolated"), code)
    assert problem is None, problem.formatted
print("ok")
"""


@cache
def newest_python() -> str:
    """Return the newest Python with headers that is on PATH or in pyenv, as .ci/other_pythons finds them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in (15, 14, 13, 12):
        on_path = [shutil.which(f"python3.{minor}", path=folder) for folder in os.get_exec_path()]
        for candidate in [*filter(None, on_path), *map(str, versions.glob(f"3.{minor}.*/bin/python"))]:
            if (headers(candidate) / "Python.h").exists():
                return candidate
    pytest.skip("no later Python is here")


def headers(python: str) -> Path:
    """Return the folder of the headers of a Python."""
    found = run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))", check=False)
    return Path(found.stdout.strip() or "nowhere")


def run(*command: str, check: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    ended = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 0 or not check, (ended.returncode, ended.stderr[-3_000:])
    return ended


def built(python: str, directory: Path) -> Path:
    """Build the core with the headers of a Python, in a copy of the package; return the folder of the copy."""
    copied = directory / "politesse"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    sources, binary = sorted(map(str, (copied / "_native").glob("*.c"))), copied / "_native" / "_core.abi3.so"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    # The headers of Python are included as those of the system: their own warnings are not ours.
    run(str(COMPILER), *strict, "-O2", "-shared", "-fPIC", f"-isystem{headers(python)}", *sources, "-o", str(binary))
    return directory


@compiled
@pytest.mark.full
def test_a_core_that_a_later_python_built_counts_the_references_of_this_one(tmp_path: Path) -> None:
    folder = built(newest_python(), tmp_path)
    assert run(sys.executable, "-c", COUNTED, PYTHONPATH=str(folder)).stdout == "ok\n"


@compiled
@pytest.mark.full
def test_a_core_loads_in_subinterpreters_with_a_gil_of_their_own(tmp_path: Path) -> None:
    folder = built(sys.executable, tmp_path)
    assert run(newest_python(), "-c", ISOLATED, str(folder)).stdout == "ok\n"
    assert run(sys.executable, "-c", ISOLATED, str(folder)).stdout == "ok\n"


def test_a_core_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "politesse", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "politesse" / "_native" / "_core.abi3.so").write_bytes(b"of another machine")
    show = "import politesse.robots; print(politesse.robots.IMPLEMENTATION)"
    ended = run(sys.executable, "-c", show, PYTHONPATH=str(tmp_path), POLITESSE_PURE="0")
    assert ended.stdout == "python\n"
    assert "RuntimeWarning: the rules of robots.txt are decided in Python, slowly: " in ended.stderr


@pytest.mark.parametrize("source", sorted(PACKAGE.glob("_native/*.c")), ids=lambda path: path.name)
def test_the_binding_counts_references_by_functions_only(source: Path) -> None:
    macros = re.findall(r"\bPy_(?:X?INCREF|X?DECREF|X?NewRef|CLEAR|X?SETREF|RETURN_\w+)\b", source.read_text("utf-8"))
    assert macros == []
