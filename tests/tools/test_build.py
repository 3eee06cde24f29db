"""The build from source: with the limited API, on a free-threaded Python, and without a compiler."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

ROOT: Final = Path(__file__).parents[2]

_BUILD: Final = """
import sys, sysconfig
from setuptools import build_meta

known = sysconfig.get_config_var
if sys.argv[1] == "free-threaded":
    sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
print(build_meta.build_wheel(sys.argv[2]))
"""


def built(tmp_path: Path, python: str, compiler: str | None) -> tuple[str, list[str]]:
    """Return the name of the wheel, and the files of the compiled core in it; ``python`` names the kind of Python."""
    copy = tmp_path / "politesse"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", _BUILD, python, str(tmp_path)],
        cwd=copy,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"} | ({} if compiler is None else {"CC": compiler}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    name = run.stdout.split()[-1]
    with ZipFile(tmp_path / name) as wheel:
        return name, [path for path in wheel.namelist() if "_core." in path and not path.endswith(".pyi")]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
@pytest.mark.full  # compiles twice
def test_only_a_free_threaded_python_gets_a_core_without_the_limited_api(tmp_path: Path) -> None:
    wheel, core = built(tmp_path / "usual", "usual", None)
    assert "-cp311-abi3-" in wheel
    assert core == ["politesse/_native/_core.abi3.so"]
    wheel, core = built(tmp_path / "other", "free-threaded", None)
    assert "abi3" not in wheel
    assert [path for path in core if "abi3" not in path] == core != []


@pytest.mark.parametrize("python", ["usual", "free-threaded"])
def test_build_goes_on_without_a_compiler(tmp_path: Path, python: str) -> None:
    _, core = built(tmp_path, python, "/bin/false")
    assert core == []
