"""A test that hangs ends at its time limit, and the run goes on or ends: it does not stall."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.realtime

HANGING: Final = Path(__file__).with_name("hanging.py")
ROOT: Final = HANGING.parents[2]
LIMIT_S: Final = 1.0
MAX_S: Final = 60.0


def start_pytest(names: Sequence[str], *options: str) -> subprocess.Popen[str]:
    """Run tests of hanging.py under this project's settings but the time limit."""
    outer = {name for name in os.environ if name.startswith("PYTEST_")}
    tests = [f"{HANGING}::{name}" for name in names]
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.Popen(  # noqa: S603 - this very interpreter
        [*pytest_command, "-o", f"timeout={LIMIT_S}", *options, *tests],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_a_test_or_teardown_that_hangs_fails_and_the_next_one_runs() -> None:
    process = start_pytest(["test_await", "test_call", "test_teardown", "test_that_is_next"])
    out, err = process.communicate(timeout=MAX_S)
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, err
    for name in ("test_await", "test_call"):
        assert f"FAILED tests/tools/hanging.py::{name} - Failed: Timeout (>{LIMIT_S}s)" in out
    assert f"ERROR tests/tools/hanging.py::test_teardown - Failed: Timeout (>{LIMIT_S}s)" in out
    assert "2 failed, 2 passed, 1 error" in out


@pytest.mark.full
def test_a_test_that_cannot_be_ended_ends_the_run_and_is_named() -> None:
    names = ["test_task_beside", "test_uvloop", "test_swallowed_cancellation", "test_thread"]
    # All at once: each waits for the most part.
    processes = {name: start_pytest([name], "-o", "timeout_grace=1") for name in names}
    for name, process in processes.items():
        out, err = process.communicate(timeout=MAX_S)
        assert process.returncode == 1, out
        assert f"tests/tools/hanging.py::{name} still runs after {LIMIT_S + 1:g} s; the run ends here" in err
        assert "Thread 0x" in err
        assert "1 failed in" not in out  # it had no end of its own


def test_the_ordinary_limit_is_two_minutes(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("timeout") == "120"
