"""Many items in, each out with its verdict as soon as that is known: bounded, unordered, one wait per origin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from politesse.origin import split

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator

    from politesse.verdict import Verdict

Item = TypeVar("Item")

_BREATHE_EVERY: Final = 100


class Gate(Protocol):
    """What the sieve needs of a gatekeeper."""

    def peek_or_invalid(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""

    async def check(self, url: str, /) -> Verdict:
        """Return the verdict."""


class _Sieve(Generic[Item]):
    """What waits, and what is answered; one task for each origin that is being asked."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._waiting: dict[str, deque[tuple[Item, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.answered: deque[tuple[Item, Verdict]] = deque()
        self.pending = 0
        self.changed = asyncio.Event()

    def add(self, item: Item, url: str) -> None:
        """Take in an item whose verdict is not known; its origin is asked once for all that wait for it."""
        self.pending += 1
        origin = str(split(url)[0])
        if origin in self._waiting:
            self._waiting[origin].append((item, url))
            return
        self._waiting[origin] = deque([(item, url)])
        task = asyncio.get_running_loop().create_task(self._ask(origin))
        self._tasks.add(task)
        task.add_done_callback(self.wake)

    def wake(self, _done: object) -> None:
        """Have whoever waits for a change look again."""
        self.changed.set()

    async def _ask(self, origin: str) -> None:
        waiting = self._waiting[origin]
        while waiting:  # more may come while the first is waited for
            item, url = waiting.popleft()
            self.answered.append((item, await self._gate.check(url)))
        del self._waiting[origin]

    async def change(self) -> None:
        """Wait until something was answered; raise what an origin's task raised."""
        await self.changed.wait()
        self.changed.clear()
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    async def aclose(self) -> None:
        """End what is still waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Source(Generic[Item]):
    """The next item of an iterable of either kind, without waiting for it longer than for an answer."""

    def __init__(
        self, source: Iterable[Item] | AsyncIterable[Item], url_of: Callable[[Item], str], sieve: _Sieve[Item]
    ) -> None:
        self._sieve = sieve
        self._url_of = url_of
        self._async = aiter(source) if isinstance(source, AsyncIterable) else None
        self._sync: Iterator[Item] = iter(()) if isinstance(source, AsyncIterable) else iter(source)
        self._next: asyncio.Future[Item] | None = None
        self.exhausted = False
        self.failure: Exception | None = None

    def pull(self) -> list[tuple[Item, str]]:
        """Return the next item with its URL, or none where it is not there yet or there is no more."""
        try:
            return [] if self.exhausted else [(item, self._url_of(item)) for item in self._pull()]
        except (StopIteration, StopAsyncIteration):
            self.exhausted = True
        except Exception as error:  # noqa: BLE001 - raised again when all that came before has been yielded
            self.exhausted = True
            self.failure = error
        return []

    def _pull(self) -> list[Item]:
        if self._async is None:
            return [next(self._sync)]
        if self._next is None:
            self._next = asyncio.ensure_future(_next_of(self._async))
            self._next.add_done_callback(self._sieve.wake)
        if not self._next.done():
            return []
        item, self._next = self._next, None
        return [item.result()]

    async def aclose(self) -> None:
        """End a pull that is under way."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)


async def _next_of(iterator: AsyncIterator[Item]) -> Item:
    return await anext(iterator)


async def sift(
    gate: Gate,
    source: Iterable[Item] | AsyncIterable[Item],
    key: Callable[[Item], str] | None,
    max_pending: int,
) -> AsyncGenerator[tuple[Item, Verdict], None]:
    """See ``AgentView.filter``."""
    sieve: _Sieve[Item] = _Sieve(gate)
    items = _Source(source, key or cast("Callable[[Item], str]", _itself), sieve)
    count = 0
    try:
        while not items.exhausted or sieve.pending:
            while sieve.answered:
                sieve.pending -= 1
                yield sieve.answered.popleft()
            pulled = items.pull() if sieve.pending < max_pending else []
            if not pulled:
                if sieve.pending or not items.exhausted:
                    await sieve.change()
                continue
            item, url = pulled[0]
            verdict = gate.peek_or_invalid(url)
            if verdict is not None:
                yield item, verdict
            else:
                sieve.add(item, url)
            count += 1
            if count % _BREATHE_EVERY == 0:
                await asyncio.sleep(0)  # a source that never waits must not starve the loop
        if items.failure is not None:
            raise items.failure
    finally:
        await items.aclose()
        await sieve.aclose()


def _itself(item: str) -> str:
    return item
