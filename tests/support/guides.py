"""Runs a guide as its reader does, and reports each block that deviates from the guide.

Theory of operation
-------------------
A guide is Markdown; the language of a block says where it runs:

    sh      in a shell, in a folder of its own. A block that starts ``http.server 8000`` or ``redis-server --port 6379``
            runs first and until the end, with a free port in place of that port. So does a block that starts the worker
            of a job queue, after the servers. ``pip install`` is skipped.
    python  with ``asyncio.run(``, ``process.start()`` of Scrapy or ``if __name__``: a program, saved to a file and run
            with warnings as errors. A program that reads sys.argv gets the URL of the server.
    python  otherwise: pasted into ``python -m asyncio``, block after block, in one session for the whole guide.
    py      a part of another program: it must compile.
    json    data, one document a line: it must parse.
    text    the output of the block before it, errors included, as in a terminal. Only a shell block may lack it.
            ``...`` matches the rest of a word or line; times, ages and the port may differ.

A python or py block whose first line is a comment such as ``# server.py`` is a file of that name. It is saved before
any block runs, so the other blocks can import or start it.

In a paste, a comment after an expression that the console echoes is the echoed value, also as ``value: why`` or
``value, why``. The text block then does not repeat the value.

Programs and consoles live four times as fast as the machine (``hurried``): they pause for less, and their output is
the same. With Redis they live as fast as the machine.

The console reads all lines from a pipe, so no line waits for an answer, as in a paste. It writes a prompt for each line
that it reads, and its prompts are unmistakable: the text between two prompts is the output of the line between them. So
an error, a warning or a hang is reported with its own line.
"""

import ast
import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.ports import free_port

WIDEST: Final = 76
"""Columns of a line of code, so that `politesse guide` shows it whole in a terminal of 80."""

_FENCE = re.compile(r"^```(\S*)$")
_PROGRAM = re.compile(r"asyncio\.run\(|\bprocess\.start\(|^if __name__ ==", re.MULTILINE)
_REDIS: Final = 6379
_SERVERS: Final = {"http.server 8000": 8000, f"redis-server --port {_REDIS}": _REDIS}  # each with its port in the guide
_FILE = re.compile(r"# (\w+\.py)\n")
_WORKER = re.compile(r"^(arq|celery) ", re.MULTILINE)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"\b\d+(\.\d+)? s old")
_ERROR = re.compile(r'^(Traceback \(most recent call last\)|  File "<)', re.MULTILINE)
_PROMPTS = re.compile("[\x1e\x1f]")
_PRELUDE: Final = 'import sys; sys.ps1, sys.ps2 = "\\x1e", "\\x1f"; del sys\n'
# From 3.13 on, `python -m asyncio` reads statements of several lines from a terminal only: with the console of 3.12
# they can be piped, too. That console is the stricter one about blank lines.
_PIPED: Final = """\
import code, runpy, _pyrepl.console
_pyrepl.console.InteractiveColoredConsole = code.InteractiveConsole
runpy.run_module("asyncio", run_name="__main__")
"""
_CONSOLE: Final = ("-m", "asyncio") if sys.version_info < (3, 13) else ("-c", _PIPED)
# Warnings that programs with a library cannot avoid.
_FOREIGN_WARNINGS: Final = {
    "scrapy_redis": "ignore:Passing a 'spider' argument to StatsCollector",
    "from arq": "ignore:Call to:DeprecationWarning",
}
_HURRY: Final = {
    "PYTHONPATH": str(Path(__file__).parent / "hurried"),
    "HURRIED_RATE": "4",
    "HURRIED_WALL": str(time.time()),
    "HURRIED_MONO": str(time.monotonic()),
}
_RUNS: Final = {"sh", "python"}
_LANGUAGES: Final = _RUNS | {"py", "json", "text"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its code, where its first line stands, and the text block that follows."""

    language: str
    code: str
    name: str
    line: int
    text: str | None = None

    def place(self, line: int = 1) -> str:
        """Return the place of a line of the block, from 1, as ``pacing.md:12``."""
        return f"{self.name}:{self.line + line - 1}"

    @property
    def server_port(self) -> int | None:
        """The port of the server that it starts; None for a block that starts none."""
        ports = (port for command, port in _SERVERS.items() if self.language == "sh" and command in self.code)
        return next(ports, None)

    @property
    def is_server(self) -> bool:
        """Whether it starts a server of the guide."""
        return self.server_port is not None

    @property
    def is_worker(self) -> bool:
        """Whether it starts the worker of a job queue."""
        return self.language == "sh" and bool(_WORKER.search(self.code))

    @property
    def file(self) -> str | None:
        """The name of the file that its reader saves it as; None if the guide names none."""
        named = _FILE.match(self.code) if self.language in {"python", "py"} else None
        return named and named[1]

    @property
    def is_program(self) -> bool:
        """Whether it is saved to a file and run."""
        return self.language == "python" and bool(_PROGRAM.search(self.code))

    @property
    def is_paste(self) -> bool:
        """Whether it is pasted into the console."""
        return self.language == "python" and not self.is_program

    @property
    def is_command(self) -> bool:
        """Whether it is run in a shell, to its end."""
        return self.language == "sh" and not self.is_server and not self.is_worker and "pip install" not in self.code


def blocks_of(name: str, markdown: str) -> list[Block]:
    """Return the fenced blocks of a guide, in order, each with the text block that comes next."""
    found: list[Block] = []
    lines = iter(enumerate(markdown.splitlines(), 1))
    for number, line in lines:
        if fence := _FENCE.match(line):
            body: list[str] = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            found.append(Block(fence[1], "".join(f"{one}\n" for one in body), name, number + 1))
    following = [*found[1:], None]
    return [
        Block(block.language, block.code, name, block.line, after.code if after and after.language == "text" else None)
        for block, after in zip(found, following, strict=True)
    ]


async def findings(name: str, markdown: str, folder: Path, *, patience_s: float = 30.0) -> list[str]:
    """Run a guide in a folder, and return its faults, each with its place.

    Args:
        name: the name of its file, for the places
        markdown: its text
        folder: an empty folder
        patience_s: how long a program, a command, or one line of a paste may take
    """
    blocks = blocks_of(name, markdown)
    found = list(_wrong_forms(blocks))
    servers = [block for block in blocks if block.is_server]
    run = _Run(folder, patience_s, redis=any(block.server_port == _REDIS for block in servers))
    run.save(blocks)
    async with run.running(servers, [block for block in blocks if block.is_worker]) as failed:
        found += failed
        for block in blocks:
            if block.is_program:
                found += await run.program(block)
            elif block.is_command:
                found += await run.command(block)
        found += await run.paste([block for block in blocks if block.is_paste])
    return found


def _wrong_forms(blocks: Sequence[Block]) -> Iterable[str]:
    for before, block in zip([None, *blocks[:-1]], blocks, strict=True):
        if block.language not in _LANGUAGES:
            yield f"{block.place()}: a block of the language {block.language!r}"
        elif block.language == "text" and (before is None or before.language not in _RUNS):
            yield f"{block.place()}: text that no block prints"
        elif block.language in {"py", "json"}:
            yield from _unparsable(block)
        if block.language in {"python", "py", "sh"}:
            for number, line in enumerate(block.code.splitlines(), 1):
                if len(line) > WIDEST:
                    yield f"{block.place(number)}: {len(line)} columns, more than {WIDEST}"


def _unparsable(block: Block) -> Iterable[str]:
    try:
        if block.language == "py":
            ast.parse(block.code)
    except SyntaxError as error:
        yield f"{block.place(error.lineno or 1)}: {error.msg}"
    for number, line in enumerate(block.code.splitlines() if block.language == "json" else (), 1):
        try:
            json.loads(line)
        except ValueError as error:
            yield f"{block.place(number)}: {error}"


class _Run:
    """One guide's folder, ports and patience."""

    def __init__(self, folder: Path, patience_s: float, *, redis: bool) -> None:
        self._folder = folder
        self._ports = {port: free_port() for port in _SERVERS.values()}
        self._patience_s = patience_s
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONSTARTUP"},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DASK_LOGGING__DISTRIBUTED": "critical",  # a worker of Dask may log that its scheduler has ended first
            "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",  # output and errors in the order of a terminal
            "PYTHONUTF8": "1",
            "NO_COLOR": "1",
        }
        if not redis:  # its clock cannot be hurried
            self._environment |= _HURRY

    def save(self, blocks: Sequence[Block]) -> None:
        """Save the blocks that are files."""
        for block in blocks:
            if block.file is not None:
                (self._folder / block.file).write_text(self._local(block.code))

    @contextlib.asynccontextmanager
    async def running(self, servers: Sequence[Block], workers: Sequence[Block]) -> AsyncIterator[list[str]]:
        """Run the blocks that start servers or workers until the end; yield the faults of the servers."""
        found, processes, ports = [], list[asyncio.subprocess.Process](), set[int | None]()
        try:
            for block in [*servers, *workers]:
                port = block.server_port
                if port in ports - {None}:
                    found.append(f"{block.place()}: a second server")
                    continue
                ports.add(port)
                path = self._folder / f"block_{block.line}.log"
                with path.open("wb") as log:
                    processes.append(await self._start(["sh", "-c", self._local(block.code)], log.fileno()))
                if port is not None and not await self._answers(self._ports[port]):
                    found.append(f"{block.place()}: the server does not answer: {path.read_text()}")
            yield found
        finally:
            for process in processes:
                await _end(process)

    async def program(self, block: Block) -> list[str]:
        """Run a program; return its faults."""
        path = self._folder / (block.file or f"program_{block.line}.py")
        path.write_text(self._local(block.code))
        arguments = [self._local("http://localhost:8000/")] if "sys.argv" in block.code else []
        ignored = [f"-W{text}" for library, text in _FOREIGN_WARNINGS.items() if library in block.code]
        return await self._finish(block, [sys.executable, "-W", "error", *ignored, str(path), *arguments], {0})

    async def command(self, block: Block) -> list[str]:
        """Run a block of shell commands, and return its faults; the last may end with 1, as `politesse check` does."""
        return await self._finish(block, ["sh", "-c", self._local(block.code)], {0, 1})

    async def paste(self, blocks: Sequence[Block]) -> list[str]:
        """Paste blocks into one console; return the faults of its output."""
        if not blocks:
            return []
        lines = [(block, number, line) for block in blocks for number, line in _pasted(block)]
        text = _PRELUDE + "".join(f"{self._local(line)}\n" for _, _, line in lines)
        process = await self._start([sys.executable, "-W", "error", *_CONSOLE], asyncio.subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(text.encode())
        process.stdin.write_eof()
        try:
            printed, ended = await self._read(process)
        finally:
            await _end(process)
        [_, *outputs] = _PROMPTS.split(self._public(printed))
        for (block, number, _), output in zip(lines, outputs, strict=False):
            if _ERROR.search(output):
                return [f"{block.place(number)}: {output}"]
        if not ended:
            block, number, _ = lines[min(len(outputs), len(lines)) - 1]
            return [f"{block.place(number)}: it hangs"]
        if len(outputs) != len(lines) + 1 or _ERROR.search(outputs[-1]):
            return [f"{blocks[-1].place()}: the console ended with {outputs[-1]}"]
        by_block: dict[Block, dict[int, str]] = {block: {} for block in blocks}
        for (block, number, _), output in zip(lines, outputs, strict=False):
            by_block[block][number] = output
        return [fault for block, printed_at in by_block.items() for fault in _compare_paste(block, printed_at)]

    async def _finish(self, block: Block, command: Sequence[str], codes: set[int]) -> list[str]:
        process = await self._start(command, asyncio.subprocess.PIPE)
        try:
            printed, ended = await self._read(process)
        finally:
            await _end(process)
        printed = self._public(printed)
        if not ended:
            return [f"{block.place()}: it hangs after {printed}"]
        if process.returncode not in codes:
            return [f"{block.place()}: it ends with {process.returncode} and {printed}"]
        return _compare(block, printed)

    async def _start(self, command: Sequence[str], output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,  # it ends with all that it started
        )

    async def _read(self, process: asyncio.subprocess.Process) -> tuple[str, bool]:
        """Return the output of a process, and whether it has ended; a silent process is given up after the patience."""
        assert process.stdout is not None
        printed = bytearray()
        try:
            while octets := await asyncio.wait_for(process.stdout.read(65_536), self._patience_s):
                printed += octets
            await asyncio.wait_for(process.wait(), self._patience_s)
        except TimeoutError:
            return printed.decode(errors="replace"), False
        return printed.decode(errors="replace"), True

    async def _answers(self, port: int) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while loop.time() < until:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("localhost", port)
                writer.close()
                await writer.wait_closed()
                return True
            await asyncio.sleep(0.05)
        return False

    def _local(self, code: str) -> str:
        for public, own in self._ports.items():
            code = re.sub(rf"(?<!\d){public}(?!\d)", str(own), code)
        return code

    def _public(self, printed: str) -> str:
        for public, own in self._ports.items():
            printed = re.sub(rf"(?<!\d){own}(?!\d)", str(public), printed)
        return printed


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _pasted(block: Block) -> Iterable[tuple[int, str]]:
    """Return the lines of a block, numbered, and the Enter after a paste that ends a compound statement."""
    return enumerate([*block.code.splitlines(), ""], 1)


def _compare_paste(block: Block, outputs: dict[int, str]) -> list[str]:
    """Compare the output of each line with its comment, and the rest with the text block."""
    found = []
    for line, comment, is_print in _commented_expressions(block.code):
        if outputs[line] and not (is_print and block.text is not None):
            if not _value_matches(comment, outputs[line]):
                found.append(f"{block.place(line)}: the comment says {comment!r}, the console {outputs[line]!r}")
            del outputs[line]
    return found + _compare(block, "".join(outputs.values()))


def _commented_expressions(code: str) -> Iterable[tuple[int, str, bool]]:
    """Return for each expression statement with a comment: its last line, the comment, whether it is a print."""
    lines = code.splitlines()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Expr) and node.end_lineno and node.end_col_offset is not None:
            rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
            if comment := re.match(r"\s*#\s*(.*)", rest):
                call = node.value
                is_print = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
                yield node.end_lineno, comment[1].rstrip(), is_print


def _value_matches(comment: str, printed: str) -> bool:
    value = _usual(printed)
    given = _usual(comment)
    return bool(_pattern(given).fullmatch(value)) or given.startswith((f"{value}: ", f"{value}, ", f"{value}; "))


def _compare(block: Block, printed: str) -> list[str]:
    if block.text is None and block.language == "python" and printed.strip():
        return [f"{block.place()}: the guide does not show that it prints\n{printed}"]
    if block.text is None or _pattern(_usual(block.text)).fullmatch(_usual(printed)):
        return []
    return [f"{block.place()}: the guide shows\n{block.text}and it prints\n{printed}"]


def _usual(text: str) -> str:
    """Return a text without times and ages, and without spaces at the ends of its lines."""
    return "\n".join(map(str.rstrip, _AGE.sub("N s old", _MOMENT.sub("T", text)).strip("\n").splitlines()))


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(r"[^\n]*".join(map(re.escape, shown.split("..."))))
