"""A test that hangs ends at its time limit, and the run goes on or ends: it does not stall."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import uvloop

pytestmark = pytest.mark.realtime

LIMIT_S: Final = 1.0
MAX_S: Final = 60.0


def start_pytest(names: Sequence[str], *options: str) -> subprocess.Popen[str]:
    """Run hang_* functions of this file as tests, under this project's settings but the time limit."""
    outer = {name for name in os.environ if name.startswith("PYTEST_")}
    tests = [f"{__file__}::hang_{name}" for name in names]
    settings = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "python_functions=hang"]
    return subprocess.Popen(  # noqa: S603 - this very interpreter
        [sys.executable, "-m", "pytest", *settings, "-o", f"timeout={LIMIT_S}", *options, *tests],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name not in outer},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_a_test_or_teardown_that_hangs_fails_and_the_next_one_runs() -> None:
    process = start_pytest(["await", "call", "teardown", "nothing"])
    out, err = process.communicate(timeout=MAX_S)
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, err
    for name in ("await", "call"):
        assert f"FAILED tests/tools/test_time_limit.py::hang_{name} - Failed: Timeout (>{LIMIT_S}s)" in out
    assert f"ERROR tests/tools/test_time_limit.py::hang_teardown - Failed: Timeout (>{LIMIT_S}s)" in out
    assert "2 failed, 2 passed, 1 error" in out


@pytest.mark.full
def test_a_test_that_cannot_be_ended_ends_the_run_and_is_named() -> None:
    names = ["task_beside", "uvloop", "swallowed_cancellation", "thread"]
    # All at once: each waits for the most part.
    processes = {name: start_pytest([name], "-o", "timeout_grace=1") for name in names}
    for name, process in processes.items():
        out, err = process.communicate(timeout=MAX_S)
        assert process.returncode == 1, out
        assert (
            f"tests/tools/test_time_limit.py::hang_{name} still runs after {LIMIT_S + 1:g} s; the run ends here" in err
        )
        assert "Thread 0x" in err
        assert "1 failed in" not in out  # it had no end of its own


def test_the_ordinary_limit_is_two_minutes(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("timeout") == "120"


# Tests that hang, each in its own way; run by the tests above alone.


async def hang_await() -> None:
    await asyncio.Event().wait()


async def hang_call() -> None:
    threading.Event().wait()


def hang_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.Event().wait())


@pytest.fixture
async def never_torn_down() -> AsyncIterator[None]:
    yield
    await asyncio.Event().wait()


@pytest.mark.usefixtures("never_torn_down")
async def hang_teardown() -> None:
    pass


async def hang_task_beside() -> None:
    async def block() -> None:
        threading.Event().wait()

    blocking = asyncio.create_task(block())
    await asyncio.Event().wait()
    blocking.cancel()


async def hang_swallowed_cancellation() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def hang_thread() -> None:
    await asyncio.to_thread(threading.Event().wait)


def hang_nothing() -> None:
    pass
