"""Runs one crawler against one fault, and reads its requests from the server's log."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fault_crawls.task import PAGE, PRIVATE, READY, Said, Task
from politesse.testing import HostileServer
from politesse.testing.hostile import LOOPBACK, PUBLIC_NAME, authority_pem

if TYPE_CHECKING:
    from politesse.testing import Fault

START_S: Final = 120.0
"""How long a crawler may take for its imports, on a busy machine."""

_ERRORS_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The requests of a crawler.

    Attributes:
        page: whether it tried to request the page.
        private: whether it tried to request the private page.
        seen: the targets of the server's requests, without robots.txt and the targets of the fault's redirects.
        deferred: whether it said that it may ask later.
        robots_requests: how often it asked for robots.txt.
        elapsed_s: how long the crawl took; None if the crawler had to be killed.
        grown_mib: by how much its peak memory grew; 0 if the crawl did not end.
        died: whether the process ended before the crawl.
        errors: the end of its standard error.
    """

    page: bool
    private: bool
    seen: frozenset[str]
    deferred: bool
    robots_requests: int
    elapsed_s: float | None
    grown_mib: float
    died: bool
    errors: str

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return self.elapsed_s is not None

    @property
    def opened(self) -> tuple[bool, bool]:
        """Whether page and private page were open to it."""
        return self.page, self.private


async def outcome(module: str, fault: Fault, timeout_s: float, limit_s: float) -> Outcome:
    """Let a crawler loose on a server with this fault, and kill it if it has not ended after ``limit_s`` seconds."""
    async with HostileServer(fault) as server:
        names = {PUBLIC_NAME: LOOPBACK}
        authority = authority_pem().decode() if fault.certificate else ""
        lines, ended, errors = await _crawl(module, Task(server.origin, timeout_s, names, authority), limit_s)
        seen = frozenset(server.pages)
    said = {line["url"].removeprefix(server.origin): line["said"] for line in lines if "url" in line}
    done: dict[str, Any] = next((line for line in lines if "elapsed_s" in line), {})
    return Outcome(
        page=PAGE in seen or said.get(PAGE) == Said.REQUESTED,
        private=PRIVATE in seen or said.get(PRIVATE) == Said.REQUESTED,
        seen=seen,
        deferred=Said.DEFERRED in said.values(),
        robots_requests=server.robots_requests,
        elapsed_s=done.get("elapsed_s"),
        grown_mib=done.get("grown_mib", 0.0),
        died=ended and not done,
        errors=errors,
    )


async def _crawl(module: str, task: Task, limit_s: float) -> tuple[list[dict[str, Any]], bool, str]:
    """Return the output of a crawler, whether it ended by itself, and the end of its standard error."""
    pipe = asyncio.subprocess.PIPE
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module),
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            cwd=directory,  # whatever it leaves behind goes with it
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        given, told = process.stdin, process.stdout
        if given is None or told is None:
            raise TypeError("a process whose pipes were asked for has none")
        try:
            given.write(json.dumps(asdict(task)).encode())
            given.close()
            async with asyncio.timeout(START_S):
                lines.append(await _line(told))
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    while line := await _line(told):
                        lines.append(line)
                    await process.wait()
        finally:
            ended = process.returncode is not None
            if not ended:
                process.kill()
                await process.wait()
        errors.seek(0)
        text = errors.read().decode(errors="replace")[-_ERRORS_SHOWN:]
    if READY not in lines[0]:
        raise RuntimeError(f"{module} did not start:\n{text}")
    return lines, ended, text


async def _line(reader: asyncio.StreamReader) -> dict[str, Any]:
    line = await reader.readline()
    found: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
    return found
