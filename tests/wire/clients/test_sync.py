"""The gate for threads in whole programs: Ctrl-C, the end of the interpreter, and a fork."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.programs import ROOT, environment
from tests.support.tiers import first_of

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(sys.platform == "win32", reason="needs signals and fork")]

URL: Final = "https://example.com"
LONG_S: Final = 60.0


def started(*arguments: str) -> subprocess.Popen[str]:
    # An interrupted program drops its open response.
    warning = ["-W", "error", *(["-W", "ignore::ResourceWarning"] if "fetching" in arguments else [])]
    command = [sys.executable, *warning, "-m", "tests.wire.clients.sync_program", *arguments]
    return subprocess.Popen(  # noqa: S603 - our own program
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("moment", first_of(1, range(10)))
@pytest.mark.parametrize("kind", first_of(1, ["waiting", "fetching"]))
def test_ctrl_c_at_any_moment_loses_no_turn(kind: str, moment: int) -> None:
    process = started(kind, URL)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "turn\n"
    time.sleep(random.Random(moment).uniform(0.0, 0.01))
    process.send_signal(signal.SIGINT)
    told, complained = process.communicate(timeout=LONG_S)
    assert (told.splitlines()[-1], complained, process.returncode) == ("free", "", 0)


@pytest.mark.parametrize("kind", first_of(1, ["open", "dropped", "atexit"]))
def test_program_ends_with_a_gate_that_was_not_closed(kind: str, tmp_path: Path) -> None:
    process = started(kind, URL, str(tmp_path))
    told, complained = process.communicate(timeout=LONG_S)
    assert (complained, process.returncode) == ("", 0)
    assert kind == "dropped" or told == "end\nclosed\n"


@pytest.mark.full
def test_child_of_a_fork_gets_an_error_and_harms_nothing() -> None:
    process = started("fork", URL)
    told, complained = process.communicate(timeout=LONG_S)
    child, parent = told.splitlines()
    assert child.startswith("WrongEventLoop: this gate was made in process")
    assert "create one after it" in child
    assert (parent, complained, process.returncode) == ("True", "", 0)
