"""A test that hangs ends at its time limit, and the run goes on or ends: it does not stall."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.realtime

HANGING: Final = Path(__file__).with_name("hanging.py")
ROOT: Final = HANGING.parents[2]
MAX_S: Final = 60.0


def run_pytest(names: Sequence[str], limit_s: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests of hanging.py under this project's settings but the time limit; raises TimeoutExpired."""
    outer = {name for name in os.environ if name.startswith("PYTEST_")}
    tests = [f"{HANGING}::{name}" for name in names]
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(  # noqa: S603 - this very interpreter
        [*pytest_command, "-o", f"timeout={limit_s}", *options, *tests],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )


@pytest.mark.parametrize("name", ["test_await", "test_call"])
def test_a_test_that_hangs_fails_and_the_next_one_runs(name: str) -> None:
    done = run_pytest([name, "test_that_is_next"], 3.0)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    assert f"FAILED tests/integration/hanging.py::{name} - Failed: Timeout (>3.0s)" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_teardown_that_hangs_is_an_error_and_the_next_test_runs() -> None:
    done = run_pytest(["test_teardown", "test_that_is_next"], 3.0)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    assert "ERROR tests/integration/hanging.py::test_teardown - Failed: Timeout (>3.0s)" in done.stdout
    assert "2 passed, 1 error" in done.stdout


@pytest.mark.parametrize("name", ["test_task_beside", "test_uvloop", "test_swallowed_cancellation", "test_thread"])
def test_a_test_that_cannot_be_ended_ends_the_run_and_is_named(name: str) -> None:
    done = run_pytest([name], 1.0, "-o", "timeout_grace=1")
    assert done.returncode == 1, done.stdout
    assert f"tests/integration/hanging.py::{name} still runs after 2 s; the run ends here" in done.stderr
    assert "Thread 0x" in done.stderr
    assert "1 failed in" not in done.stdout  # it had no end of its own


def test_the_ordinary_limit_is_two_minutes(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("timeout") == "120"
