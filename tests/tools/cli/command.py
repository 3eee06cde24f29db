"""The command, within this process or in one of its own, and origins on loopback for it to request."""

import asyncio
import functools
import io
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any
from unittest import mock

import pytest
import typer.main
from aiohttp import web

from politesse.cli import main
from politesse.clock import SystemClock

built = functools.cache(typer.main.get_command)
"""Four fifths of the time of a short command is that in which typer builds all commands."""

COMMAND = [sys.executable, "-W", "error", "-m", "politesse.cli"]


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        """The lines of standard output, which are JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def problem(self) -> str:
        """Standard error on one line, without the frame that typer draws."""
        return " ".join(self.err.replace("│", " ").split())


async def start(*arguments: str, **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | settings,
    )


async def politesse(*arguments: str, stdin: bytes = b"", **settings: str) -> Done:
    """Run the command to its end in a thread of this process; ``settings`` are environment variables."""
    return await asyncio.to_thread(_run, arguments, stdin, settings)


async def run_process(*arguments: str, stdin: bytes = b"", **settings: str) -> Done:
    """Run the command to its end in a process of its own; ``settings`` are environment variables."""
    running = await start(*arguments, **settings)
    out, err = await running.communicate(stdin)
    assert running.returncode is not None
    done = Done(running.returncode, _text(out), err.decode())
    assert "Traceback" not in done.err
    return done


def read_terminal(fd: int, shown: bytearray) -> bytes:
    """Read a terminal until its other side is closed; ``shown`` grows meanwhile."""
    with open(fd, "rb", buffering=0) as terminal:
        try:
            while octets := terminal.read(65_536):
                shown += octets
        except OSError:
            pass  # how Linux ends a terminal whose other side is closed
    return bytes(shown)


def _run(arguments: tuple[str, ...], stdin: bytes, settings: dict[str, str]) -> Done:
    # Files and not buffers: `filter` reads and writes the descriptors of the standard streams.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        streams = {
            name: io.TextIOWrapper(file, encoding=settings.get("PYTHONIOENCODING", "utf-8"))
            for name, file in {"stdin": given, "stdout": out, "stderr": err}.items()
        }
        with ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, settings))
            stack.enter_context(mock.patch.object(sys, "argv", ["politesse", *arguments]))
            stack.enter_context(mock.patch.object(typer.main, "get_command", built))
            stack.enter_context(mock.patch.object(SystemClock, "run", token_hex(8)))  # as in a process of its own
            for name, stream in streams.items():
                stack.enter_context(mock.patch.object(sys, name, stream))
            code = _exit_code()
        for stream in streams.values():
            stream.flush()
        out.seek(0)
        err.seek(0)
        return Done(code, _text(out.read()), err.read().decode())


def _exit_code() -> int:
    with pytest.raises(SystemExit) as ended:
        main()
    return 0 if ended.value.code is None else int(ended.value.code)


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


@dataclass
class Origin:
    """A server on loopback that logs its requests; with the status None it never answers."""

    robots: str = "User-agent: *\nDisallow: /private/\n"
    status: int | None = 200
    headers: dict[str, str] = field(default_factory=dict)
    base: str = ""
    requests: list[web.BaseRequest] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.status is None:
            await asyncio.Event().wait()
        return web.Response(status=self.status or 200, text=self.robots, headers=self.headers)


@asynccontextmanager
async def serving(origin: Origin, host: str = "127.0.0.1") -> AsyncIterator[Origin]:
    runner = web.ServerRunner(web.Server(origin.answer, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        origin.base = f"http://{host}:{runner.addresses[0][1]}"
        yield origin
    finally:
        await runner.cleanup()
