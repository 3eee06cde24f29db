"""The command in a process of its own, and origins on loopback for it to ask."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COMMAND = [sys.executable, "-W", "error", "-m", "politesse.cli"]


@dataclass
class Done:
    code: int
    out: str
    err: str


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
    """Run the command to its end; ``settings`` are environment variables."""
    process = await start(*arguments, **settings)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    done = Done(process.returncode, out.decode("utf-8", "surrogateescape"), err.decode())
    assert "Traceback" not in done.err
    return done


@dataclass
class Origin:
    """A server on loopback that writes down what it is asked; with the status None it never answers."""

    robots: str = "User-agent: *\nDisallow: /private/\n"
    status: int | None = 200
    headers: dict[str, str] = field(default_factory=dict)
    base: str = ""
    requests: list[web.BaseRequest] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.status is None:
            await asyncio.Event().wait()
        return web.Response(status=self.status or 200, text=self.robots, headers=self.headers)


@asynccontextmanager
async def serving(origin: Origin) -> AsyncIterator[Origin]:
    runner = web.ServerRunner(web.Server(origin.answer, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        origin.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield origin
    finally:
        await runner.cleanup()
