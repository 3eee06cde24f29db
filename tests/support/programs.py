"""Programs of the tests, each in a process of its own."""

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """Return an environment in which a program imports what this process imports."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


async def started(
    program: str,
    *arguments: str,
    options: Sequence[str] = ("-W", "error"),
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Process:
    """Start a module of ``tests``, as "wire.fleet.worker"; ``options`` are those of Python."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *options, "-m", f"tests.{program}", *arguments),
        cwd=ROOT,
        env=environment(),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


async def numbers_until_killed(process: Process, after: int) -> list[int]:
    """Kill a program once it has printed so many numbers; return all that it printed."""
    assert process.stdout is not None
    numbers = [int(await process.stdout.readline()) for _ in range(after)]
    process.kill()
    rest, _ = await process.communicate()
    return numbers + [int(line) for line in rest.split(b"\n")[:-1]]  # what has no line end was not said


def run_code(
    code: str,
    *arguments: str,
    check: bool = True,
    warnings: str = "error",
    cwd: Path | None = None,
    settings: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code to its end; ``settings`` are more environment variables."""
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", warnings, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | (settings or {}),
        capture_output=True,
        text=True,
        check=check,
        timeout=60,
    )
