"""Pairs each item of a source with its verdict, in the order in which verdicts become known.

Theory of operation. One task reads the source. An item with a cached verdict goes straight to the queue of answers.
Any other item waits for its origin: one task fetches robots.txt once and then answers all waiting items of the origin.
The caller's generator takes from the queue of answers. At most ``max_pending`` items have been read but not yet
yielded. At most ``_READ_AHEAD`` answers wait for the caller, so a slow caller stops the reader. When all items are
answered, the reader puts the error of the source into the queue, or None if there was no error. An error of the gate,
such as the ClosedError when the gate closes, goes into the queue at once: the reader may be waiting for a source that
never yields again. The generator cancels all tasks when it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from politesse._base.tasks import is_ended_from_outside
from politesse.origin import Origin, StrOrURL

if TYPE_CHECKING:
    from politesse.errors import ClosedError
    from politesse.verdict import Verdict

Item = TypeVar("Item")

_READ_AHEAD: Final = 100


class Checker(Protocol):
    """Who gives the verdicts: an agent of the gate."""

    def peek_or_invalid(self, url: StrOrURL) -> Verdict | None:
        """Return the verdict on a URL, or None if its robots.txt has to be fetched."""

    async def check(self, url: StrOrURL) -> Verdict:
        """Return the verdict on a URL; fetch its robots.txt if necessary."""


class ItemFilter(Generic[Item]):
    """The items of a source that were read and not yet yielded.

    Args:
        checker: judges the URLs.
        when_closed: calls a function with the error when the gate closes.
        key: a function that returns the URL of an item; None if the items are URLs.
        max_pending: the largest number of items that have been read but not yet yielded; positive.
    """

    def __init__(
        self,
        checker: Checker,
        when_closed: Callable[[Callable[[ClosedError], None]], None],
        key: Callable[[Item], StrOrURL] | None,
        max_pending: int,
    ) -> None:
        self._checker = checker
        self._when_closed = when_closed
        self._key = key
        self._room = asyncio.Semaphore(max_pending - 1)  # one less: the reader reads an item first, then waits
        self._waiting: dict[Origin, deque[tuple[Item, StrOrURL]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: asyncio.Queue[tuple[Item, Verdict] | BaseException | None] = asyncio.Queue(_READ_AHEAD)
        self._is_cancelled = False

    async def run(self, source: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[tuple[Item, Verdict], None]:
        """Yield each item with its verdict; see ``AgentView.filter``."""
        self._start(self._read_all(source))
        self._when_closed(self._close)
        try:
            while isinstance(answer := await self._next(), tuple):
                self._room.release()
                yield answer
            if answer is not None:
                raise answer
        finally:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> tuple[Item, Verdict] | BaseException | None:
        if self._is_cancelled and self._answers.empty():
            raise asyncio.CancelledError
        return await self._answers.get()

    async def _read_all(self, source: Iterable[Item] | AsyncIterable[Item]) -> None:
        failure = await _error_of(self._read(source))
        if answering := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(answering)
        await self._answers.put(failure)

    async def _read(self, source: Iterable[Item] | AsyncIterable[Item]) -> None:
        if isinstance(source, AsyncIterable):
            async for item in source:
                await self._take_in(item)
        else:
            for item in source:
                await self._take_in(item)

    async def _take_in(self, item: Item) -> None:
        """Answer the item, or let it wait for its robots.txt; return when the next item may be read."""
        url = cast("StrOrURL", item) if self._key is None else self._key(item)
        verdict = self._checker.peek_or_invalid(url)
        if verdict is not None:
            await self._answers.put((item, verdict))
        else:
            origin = Origin.of(url)
            if origin not in self._waiting:
                self._waiting[origin] = deque()
                self._start(self._answer_all(origin))
            self._waiting[origin].append((item, url))
            await asyncio.sleep(0)  # lets other tasks run, even if the source never waits
        await self._room.acquire()

    async def _answer_all(self, origin: Origin) -> None:
        if (failure := await _error_of(self._answer(origin))) is not None:
            await self._answers.put(failure)

    async def _answer(self, origin: Origin) -> None:
        waiting = self._waiting[origin]
        while waiting:  # more items may come during the fetch for the first item
            item, url = waiting.popleft()
            await self._answers.put((item, await self._checker.check(url)))
        del self._waiting[origin]

    def _close(self, error: ClosedError) -> None:
        """Let the caller raise ``error`` after all earlier answers; a task does this, because the queue may be full."""
        self._start(self._answers.put(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Cancel the caller if ``task`` was cancelled, because the items of this task will never be answered."""
        self._tasks.discard(task)
        if task.cancelled():
            self._is_cancelled = True
            if self._answers.empty():  # if answers are left, the caller is not waiting
                self._answers.put_nowait(asyncio.CancelledError())


async def _error_of(work: Awaitable[None]) -> BaseException | None:
    """Wait for ``work``, and return its error for another task to raise; raise a cancellation of this task."""
    try:
        await work
    except BaseException as error:
        if is_ended_from_outside(error, asyncio.current_task()):
            raise
        return error
    return None
