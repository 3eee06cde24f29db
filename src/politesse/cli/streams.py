"""Standard input and output beside an event loop: blocking calls in threads that nobody has to wait for.

The threads of asyncio's executor are joined when the program ends, so that one which waits for a terminal would hold
up Ctrl-C. These are daemons. They call the operating system directly, because a daemon that holds the lock of a
buffered stream while the interpreter ends is a fatal error.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")

MAX_LINE_BYTES: Final = 16 * 1024
"""What is longer is no URL that any server takes; lines are cut off there, so that memory stays bounded."""

_BLOCK_BYTES: Final = 64 * 1024


class Aside:
    """One daemon thread that makes blocking calls, one after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns; a caller that is cancelled does not wait for its end."""
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the thread end after what it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - it is raised in the caller
                future.set_exception(error)


async def lines(fd: int) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file descriptor without blanks around them, and none that are empty.

    A line of more than MAX_LINE_BYTES comes as its first MAX_LINE_BYTES + 1 octets. Raises OSError.
    """
    aside = Aside("politesse input")
    rest = b""
    cut = False  # whether the rest belongs to a line of which enough was yielded
    try:
        while block := await aside.call(partial(os.read, fd, _BLOCK_BYTES)):
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
    finally:
        aside.close()


class Outlet:
    """Octets on their way to a file descriptor: written by a thread, while more are collected here.

    A reader that is slow holds up who writes here, and nothing else in the event loop.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._aside = Aside("politesse output")
        self._waiting = bytearray()
        self._drain: asyncio.Task[None] | None = None

    async def write(self, octets: bytes) -> None:
        """Take octets; waits while too many are waiting already. Raises the OSError of an earlier write."""
        self._waiting += octets
        if self._drain is None or self._drain.done():
            await self.flush()
            self._drain = asyncio.get_running_loop().create_task(self._write_all())
        elif len(self._waiting) >= _BLOCK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until all is written; raises OSError."""
        if self._drain is not None:
            # Shielded: who gives up waiting does not take back what is being written.
            await asyncio.shield(self._drain)

    def close(self) -> None:
        """Let go of the thread; what was not flushed may be lost, and why it was not is not told."""
        if self._drain is not None and not self._drain.cancel() and not self._drain.cancelled():
            self._drain.exception()
        self._aside.close()

    async def _write_all(self) -> None:
        while self._waiting:
            octets, self._waiting = bytes(self._waiting), bytearray()
            await self._aside.call(partial(_write, self._fd, octets))


def _write(fd: int, octets: bytes) -> None:
    left = memoryview(octets)
    while left:
        left = left[os.write(fd, left) :]
