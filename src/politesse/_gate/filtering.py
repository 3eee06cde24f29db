"""Pairs each item of a source with its verdict, in the order in which verdicts become known.

Theory of operation. One task reads the source. An item whose verdict is known goes straight to the queue of answers;
any other waits behind its origin, for which one task fetches robots.txt once and then answers all items that wait for
it. The caller's generator takes from the queue of answers. Two bounds hold: ``max_pending`` items are read and not yet
yielded, and at most ``_READ_AHEAD`` answers wait for the caller, so a slow caller stops the reader. The last thing in
the queue is the error of the source, or None; it is put there when all items that were read have been answered. An
error of the gate is put there at once, and so is ClosedError when the gate closes: the source may yield nothing more.
The generator cancels all tasks when it ends, however it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from politesse._tasks import is_ended_from_outside
from politesse.origin import Origin

if TYPE_CHECKING:
    from politesse.errors import ClosedError
    from politesse.origin import StrOrURL
    from politesse.verdict import Verdict

Item = TypeVar("Item")

_READ_AHEAD: Final = 100


class ItemFilter(Generic[Item]):
    """The items of one source that were read and not yet yielded.

    Args:
        peek: returns the verdict on a URL, INVALID_URL included, if it is known now.
        check: returns the verdict on a URL, fetching robots.txt first if necessary.
        key: returns the URL of an item; None if the items are URLs.
        max_pending: how many items may be read and not yet yielded; positive.
        when_closed: see ``Agent.when_closed``.
    """

    def __init__(
        self,
        peek: Callable[[StrOrURL], Verdict | None],
        check: Callable[[StrOrURL], Awaitable[Verdict]],
        key: Callable[[Item], StrOrURL] | None,
        max_pending: int,
        when_closed: Callable[[Callable[[ClosedError], None]], None],
    ) -> None:
        self._peek = peek
        self._check = check
        self._key = key
        self._when_closed = when_closed
        self._room = asyncio.Semaphore(max_pending - 1)  # it is waited for after an item was read, for the next one
        self._waiting: dict[Origin, deque[tuple[Item, StrOrURL]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._answers: asyncio.Queue[tuple[Item, Verdict] | BaseException | None] = asyncio.Queue(_READ_AHEAD)
        self._is_cancelled = False

    async def run(self, source: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[tuple[Item, Verdict], None]:
        """Yield each item with its verdict; see ``AgentView.filter``."""
        reader = asyncio.get_running_loop().create_task(self._read_all(source))
        reader.add_done_callback(self._ended)
        self._when_closed(self._close)
        try:
            while isinstance(answer := await self._next(), tuple):
                self._room.release()
                yield answer
            if answer is not None:
                raise answer
        finally:
            tasks = [reader, *self._answering]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> tuple[Item, Verdict] | BaseException | None:
        if self._is_cancelled and self._answers.empty():
            raise asyncio.CancelledError
        return await self._answers.get()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Have the caller cancelled if somebody has cancelled a task: what it was to answer will not be answered."""
        self._answering.discard(task)
        if task.cancelled():
            self._is_cancelled = True
            if self._answers.empty():  # else the caller is not waiting
                self._answers.put_nowait(asyncio.CancelledError())

    async def _read_all(self, source: Iterable[Item] | AsyncIterable[Item]) -> None:
        failure = await _error_of(self._read(source))
        if self._answering:
            await asyncio.wait(self._answering)
        await self._answers.put(failure)

    async def _read(self, source: Iterable[Item] | AsyncIterable[Item]) -> None:
        if isinstance(source, AsyncIterable):
            async for item in source:
                await self._take_in(item)
        else:
            for item in source:
                await self._take_in(item)

    async def _take_in(self, item: Item) -> None:
        """Answer the item or let it wait for its robots.txt; return when there is room for the next one."""
        url = cast("StrOrURL", item) if self._key is None else self._key(item)
        verdict = self._peek(url)
        if verdict is not None:
            await self._answers.put((item, verdict))
        else:
            origin = Origin.of(url)
            if origin not in self._waiting:
                self._waiting[origin] = deque()
                self._start(self._answer_all(origin))
            self._waiting[origin].append((item, url))
            await asyncio.sleep(0)  # a source that never waits must not starve the loop
        await self._room.acquire()

    def _close(self, error: ClosedError) -> None:
        """Have ``error`` raised after all that was answered before; the queue of answers may be full."""
        self._start(self._answers.put(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._ended)

    async def _answer_all(self, origin: Origin) -> None:
        if (failure := await _error_of(self._answer(origin))) is not None:
            await self._answers.put(failure)

    async def _answer(self, origin: Origin) -> None:
        waiting = self._waiting[origin]
        while waiting:  # more items may come while robots.txt is fetched for the first
            item, url = waiting.popleft()
            await self._answers.put((item, await self._check(url)))
        del self._waiting[origin]


async def _error_of(work: Awaitable[None]) -> BaseException | None:
    """Wait for ``work`` and return the error that it raised, for another task; a cancellation of this task passes."""
    try:
        await work
    except BaseException as error:
        if is_ended_from_outside(error, asyncio.current_task()):
            raise
        return error
    return None
