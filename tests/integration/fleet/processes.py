"""Starts the programs of these tests, each in a process of its own."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from pathlib import Path


async def started(
    program: str, *arguments: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> Process:
    """Start a module of this package."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", f"tests.integration.fleet.{program}", *arguments),
        cwd=Path(__file__).parents[3],
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
