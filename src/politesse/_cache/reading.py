"""Threads for reading large files, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from politesse.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_THREADS: Final = 2  # the largest file does not delay the next one


class ReadingThreads:
    """Threads of our own: those of the event loop may all wait for names that never resolve.

    None is started before there is something to read.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="politesse-reading")
        self._closed = False

    async def run(self, read: Callable[[], Result]) -> Result:
        """Return what ``read`` does; raises what it raises, and ClosedError."""
        if self._closed:
            raise ClosedError("a large file was to be read after the gatekeeper was closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    def close(self) -> None:
        """Accept nothing more. What is being read, or waits for it, is still read."""
        self._closed = True
        self._executor.shutdown(wait=False)
