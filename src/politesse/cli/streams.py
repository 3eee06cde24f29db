"""Standard input and output beside an event loop: blocking calls in daemon threads.

The threads of asyncio's executor are joined when the program ends: one that waits for a terminal would delay Ctrl-C.
Daemon threads are not. They call the operating system directly, because a daemon thread that holds the lock of a
buffered stream while the interpreter ends is a fatal error.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")

MAX_LINE_BYTES: Final = 16 * 1024
"""No server accepts a longer URL; lines are cut off there, so that memory stays bounded."""

_BLOCK_BYTES: Final = 64 * 1024


class DaemonWorker:
    """A daemon thread that makes blocking calls, one after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        """Return the result of ``function``; a cancelled caller does not wait for its end."""
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread after the calls it already has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - raised in the caller
                future.set_exception(error)


async def lines(fd: int) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file descriptor, stripped, without empty ones.

    A line of more than MAX_LINE_BYTES is cut to its first MAX_LINE_BYTES + 1 octets. Raises OSError.
    """
    worker = DaemonWorker("politesse input")
    rest = b""
    cut = False  # whether the rest belongs to a line that was yielded already
    try:
        while block := await worker.call(partial(os.read, fd, _BLOCK_BYTES)):
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
        worker.close()


class OutputWriter:
    """Writes to a file descriptor in a thread, and collects octets meanwhile.

    A slow reader delays the callers of ``write``, and nothing else in the event loop.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._worker = DaemonWorker("politesse output")
        self._waiting = bytearray()
        self._drain: asyncio.Task[None] | None = None

    def add(self, octets: bytes) -> None:
        """Add octets, however many are pending. Raises the OSError of an earlier write."""
        if self._drain is not None and self._drain.done():
            self._drain.result()
        self._waiting += octets
        if self._drain is None or self._drain.done():
            self._drain = asyncio.get_running_loop().create_task(self._write_all())

    async def write(self, octets: bytes) -> None:
        """Add octets; waits while too many are pending. Raises the OSError of an earlier write."""
        self.add(octets)
        await self.make_room()

    async def make_room(self) -> None:
        """Wait while too many octets are pending; raises the OSError of an earlier write."""
        if len(self._waiting) >= _BLOCK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything is written; raises OSError."""
        if self._drain is not None:
            # Shielded: a cancelled caller does not cancel the write.
            await asyncio.shield(self._drain)

    def close(self) -> None:
        """End the thread; octets that were not flushed may be lost, and errors of the last write are dropped."""
        if self._drain is not None and not self._drain.cancel() and not self._drain.cancelled():
            self._drain.exception()
        self._worker.close()

    async def _write_all(self) -> None:
        while self._waiting:
            octets, self._waiting = bytes(self._waiting), bytearray()
            await self._worker.call(partial(write_all, self._fd, octets))


def write_all(fd: int, octets: bytes) -> None:
    """Write octets to a descriptor, however many it takes at once; raises OSError."""
    left = memoryview(octets)
    while left:
        left = left[os.write(fd, left) :]


def descriptor(stream: TextIO | None) -> int:
    """Return the descriptor of a standard stream; raises OSError if the program was started without it.

    The stream itself is not used: a daemon thread must not hold the lock of its buffer (see above). If the stream
    is None, its usual number may by now be the descriptor of a connection.
    """
    if stream is None:
        raise OSError(errno.EBADF, "a standard stream is closed")
    return stream.fileno()
