"""Input and output of the commands: text, JSON, and octets that are read and written while an event loop runs.

Daemon threads read and write these octets with blocking calls. asyncio joins the threads of its executor at the end of
the program, so a thread that reads a terminal would delay Ctrl-C; daemon threads are not joined. A daemon thread that
holds the lock of a buffered stream when the interpreter ends causes a fatal error. So the daemon threads call the
operating system directly.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TextIO, TypeVar

from rich.console import Console
from rich.text import Text

from politesse._base.text import printable
from politesse.origin import Origin
from politesse.verdict import utc

T = TypeVar("T")

MAX_LINE_BYTES: Final = 16 * 1024
"""No server accepts a longer URL. Longer lines are cut off, so that memory stays bounded."""

STANDARD: Final = "-"
"""Stands for standard input or output in place of a file."""

_BLOCK_BYTES: Final = 64 * 1024
_PIPE_WIDTH: Final = 100  # by default, rich folds the lines of a pipe at 80 columns
_UNIX_TIMES: Final = frozenset({"closed_until", "next_fetch", "not_before", "since"})
BROKEN_PIPE = 141
"""The exit code that a shell shows for a program that ended because its output was closed: 128 and SIGPIPE."""


class _PipeConsole(Console):
    """A console that ends the program quietly when the reader closes the output."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        if not self.is_terminal:
            self.width = _PIPE_WIDTH

    def on_broken_pipe(self) -> None:
        """Exit without a message."""
        self.quiet = True
        abandon_output()
        sys.exit(BROKEN_PIPE)


def output() -> Console:
    """Return a console on standard output."""
    return _PipeConsole()


def errors() -> Console:
    """Return a console on standard error."""
    return _PipeConsole(stderr=True)


def say(console: Console, text: str | Text, style: str = "") -> None:
    """Print text literally, without folding its lines."""
    console.print(Text(text, style=style) if isinstance(text, str) else text, soft_wrap=True)


def say_json(console: Console, record: dict[str, Any]) -> None:
    """Print a record as one line of JSON, in ASCII."""
    say(console, json.dumps(record))


def say_record(console: Console, record: dict[str, Any], *, as_json: bool) -> None:
    """Print a record as a line of JSON, or as lines of text."""
    say(console, json.dumps(record) if as_json else "\n".join(as_lines(record)))


def record_of(source: object, names: str) -> dict[str, Any]:
    """Return the attributes with these names as ``--json`` prints them.

    Unix times become ISO 8601 in UTC, under names without ``_wall``. Numbers keep three decimals.
    """
    found: dict[str, Any] = {}
    for name in names.split():
        value = getattr(source, name)
        if value is not None and (name.endswith("_wall") or name in _UNIX_TIMES):
            value = utc(value)
        elif isinstance(value, float):
            value = round(value, 3)
        elif isinstance(value, Origin):
            value = str(value)
        found[name.removesuffix("_wall")] = value
    return found


def as_lines(record: Mapping[str, Any]) -> list[str]:
    """Return a record of ``--json`` as printable text: an indented line for each value that is not empty."""
    lines: list[str] = []
    for name, value in record.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and one:
                lines += [f"  {name}:", *(f"  {line}" for line in as_lines(one))]
            elif one not in (None, "", {}):
                lines.append(f"  {name}: {printable(str(one))}")
    return lines


def as_text(body: bytes) -> dict[str, str]:
    """Return the member of a ``--json`` record for a file: ``body`` (text), or ``body_base64`` if it is not UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def abandon_output() -> None:
    """Drop the buffered output that could not be written: a second failure at exit would change the exit code."""
    sys.stdout = io.StringIO()


async def _in_thread(function: Callable[[], T]) -> T:
    """Return the result of a blocking call; a cancelled caller does not wait for the end of the call."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised in the caller
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


async def lines(fd: int) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file descriptor, stripped, without empty lines.

    A line of more than MAX_LINE_BYTES is cut to its first MAX_LINE_BYTES + 1 octets. Raises OSError.
    """
    rest = b""
    cut = False  # whether ``rest`` belongs to a line that was already yielded
    while block := await _in_thread(partial(os.read, fd, _BLOCK_BYTES)):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole[cut:]:
            if stripped := line.strip():
                yield stripped[: MAX_LINE_BYTES + 1]
        cut = cut and not whole
        if cut:
            rest = b""
        elif len(rest) > MAX_LINE_BYTES:
            yield rest[: MAX_LINE_BYTES + 1]
            rest, cut = b"", True
    if not cut and (stripped := rest.strip()):
        yield stripped


async def read_start(name: str, limit: int) -> bytes:
    """Return the first ``limit`` octets of a file, or of standard input if ``name`` is ``-``; raises OSError."""

    def read() -> bytes:
        octets = bytearray()
        file_or_fd = descriptor(sys.stdin) if name == STANDARD else name
        with open(file_or_fd, "rb", buffering=0, closefd=name != STANDARD) as file:
            while block := file.read(min(_BLOCK_BYTES, limit - len(octets))):
                octets += block
        return bytes(octets)

    return await _in_thread(read)


class OutputWriter:
    """Writes to a file descriptor in a thread, and buffers octets meanwhile.

    A slow reader delays only the callers of ``write``, not the event loop.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._drain: asyncio.Task[None] | None = None

    def add(self, octets: bytes) -> None:
        """Add octets, even if many are pending. Raises the OSError of an earlier write."""
        if self._drain is not None and self._drain.done():
            self._drain.result()
        self._waiting += octets
        if self._drain is None or self._drain.done():
            self._drain = asyncio.get_running_loop().create_task(self._write_all())

    async def write(self, octets: bytes) -> None:
        """Add octets; wait while too many are pending. Raises the OSError of an earlier write."""
        self.add(octets)
        await self.make_room()

    async def make_room(self) -> None:
        """Wait while too many octets are pending; raises the OSError of an earlier write."""
        if len(self._waiting) >= _BLOCK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything is written; raises OSError."""
        if self._drain is not None:
            # The write is shielded, so that a cancelled caller does not cancel it.
            await asyncio.shield(self._drain)

    def close(self) -> None:
        """Stop writing; octets that were not flushed may be lost, and errors of the last write are dropped."""
        if self._drain is not None and not self._drain.cancel() and not self._drain.cancelled():
            self._drain.exception()

    async def _write_all(self) -> None:
        while self._waiting:
            octets, self._waiting = bytes(self._waiting), bytearray()
            await _in_thread(partial(write_all, self._fd, octets))


def write_all(fd: int, octets: bytes) -> None:
    """Write all octets to a descriptor, in several calls if necessary; raises OSError."""
    left = memoryview(octets)
    while left:
        left = left[os.write(fd, left) :]


def descriptor(stream: TextIO | None) -> int:
    """Return the descriptor of a standard stream; raises OSError if the program was started without it.

    The stream itself is not used, because a daemon thread must not hold the lock of its buffer (see the module). If the
    stream is None, its usual number (0, 1 or 2) may now belong to a connection, so that number is not used.
    """
    if stream is None:
        raise OSError(errno.EBADF, "a standard stream is closed")
    return stream.fileno()
