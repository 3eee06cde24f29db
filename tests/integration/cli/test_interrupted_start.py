"""Ctrl-C while the command is still being imported."""

from __future__ import annotations

import asyncio
import signal
import sys
import tomllib
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def entry_point() -> str:
    module, _, function = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]["politesse"].partition(":")
    return f"import sys; from {module} import {function}; sys.exit({function}())"


@pytest.mark.parametrize(
    "imported", ["politesse._text", "yarl", "aiohttp", "politesse._gate.judge", "typer", "rich.live"]
)
async def test_ctrl_c_during_the_imports_exits_130_and_prints_nothing(imported: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-c", entry_point(), "check", "http://127.0.0.1:1/"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    printed = []
    async for line in process.stderr:
        if not line.startswith(b"import time:"):
            printed.append(line)
        elif line.rpartition(b"|")[2].strip() == imported.encode():
            process.send_signal(signal.SIGINT)
    assert await process.stdout.read() == b""
    assert printed == []
    assert await process.wait() == 130
