"""The calls of one process to Redis, in batches: those that wait, and those that were sent and are not answered yet.

Theory of operation. Calls go in batches, so that many hosts share a round trip. The first batch goes at once. While
batches are under way, the next one does not wait for their answers, but gathers calls for half a round trip, by what
those before it have taken. So a call waits for a quarter of a round trip on average, instead of half of one, and there
are about two batches to a round trip, however long that is. Where Redis is near, a batch is answered before the next
may go, and there is one at a time. Batches are sent, and their replies are taken, in their order; each has a task of
its own for its exchange.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from politesse._pacing.fleet.messages import Reply
    from politesse._pacing.fleet.scripts import Script

_MOST_CALLS: Final = 500  # under way at once: with a cluster each may take a connection
_MOST_BATCHES: Final = 4  # under way at once, where answers come later than they mostly do
_APART: Final = (
    0.5  # of a round trip; a quarter costs 40 % more batches and gains less than 1 % of the permits at 20 ms
)
_LEAST_APART_S: Final = 0.002  # between the sending of two batches, while any is under way
_SMOOTHED: Final = 8.0  # so many batches make up what a round trip mostly takes


class Sent:
    """A call that has not been answered; ``answered`` is None if nobody waits for that."""

    __slots__ = ("answered", "args", "key", "posted_mono", "script")

    def __init__(
        self,
        script: Script,
        key: str,
        args: tuple[str | int, ...],
        posted_mono: float,
        answered: asyncio.Future[Reply] | None = None,
    ) -> None:
        self.script = script
        self.key = key
        self.args = args
        self.posted_mono = posted_mono
        self.answered = answered


class _Batch(NamedTuple):
    calls: list[Sent]
    replies: asyncio.Task[list[Reply | Exception]]
    sent_at: float
    is_last: bool  # nothing waited any more when it was sent


class Batches:
    """The calls that are not answered.

    Args:
        exchange: runs the scripts of a batch.
        wake: called when ``take`` or ``send`` is to be called.
    """

    def __init__(
        self,
        exchange: Callable[[list[Sent]], Coroutine[object, object, list[Reply | Exception]]],
        wake: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._wake = wake
        self._waiting: deque[Sent] = deque()
        self._under_way: deque[_Batch] = deque()
        self._sent = 0  # calls that are under way
        self._trip_s = 0.0
        self._gathering: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many calls wait to be sent."""
        return len(self._waiting)

    @property
    def are_under_way(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._under_way)

    def put(self, sent: Sent) -> None:
        """Have a call sent, after those that wait."""
        self._waiting.append(sent)
        self._wake()

    def drop_first(self) -> None:
        """Drop the call that has waited for longest."""
        self._waiting.popleft()

    def take_waiting(self) -> Iterable[Sent]:
        """Remove the calls that wait, and return them."""
        waiting, self._waiting = self._waiting, deque()
        return waiting

    def send(self) -> None:
        """Send what waits, unless enough is under way; a moment later if a batch was sent just now."""
        loop = asyncio.get_running_loop()
        if self._under_way:
            if len(self._under_way) == _MOST_BATCHES or self._sent == _MOST_CALLS:
                return
            due = self._under_way[-1].sent_at + max(_LEAST_APART_S, _APART * self._trip_s)
            if loop.time() < due:
                if self._gathering is None:
                    self._gathering = loop.call_at(due, self._gathered)
                return
        calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_CALLS - self._sent))]
        self._sent += len(calls)
        batch = _Batch(calls, loop.create_task(self._exchange(calls)), loop.time(), is_last=not self._waiting)
        batch.replies.add_done_callback(self._replied)
        self._under_way.append(batch)

    def take(self) -> Iterator[tuple[list[Sent], list[Reply | Exception], bool]]:
        """Remove the batches that are answered, in order; yield their calls, replies, and whether they sent all.

        Raises:
            Exception: what the exchange of one raised.
        """
        while self._under_way and self._under_way[0].replies.done():
            batch = self._under_way[0]
            replies = batch.replies.result()  # before it is removed: what it raises makes it lost
            self._under_way.popleft()
            self._sent -= len(batch.calls)
            took_s = asyncio.get_running_loop().time() - batch.sent_at
            self._trip_s += (took_s - self._trip_s) / _SMOOTHED if self._trip_s else took_s
            yield batch.calls, replies, batch.is_last

    def lose(self, error: Exception) -> None:
        """Raise ``error`` in all that wait for answers, and let the other calls wait to be sent again, in order."""
        # What was under way may have been done or not: what is posted can be done twice.
        again = [sent for sent in self._all() if sent.answered is None]
        self.fail(error)
        self._under_way.clear()
        self._sent = 0
        self._waiting = deque(again)

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all that wait for answers."""
        for sent in self._all():
            if sent.answered is not None and not sent.answered.done():
                sent.answered.set_exception(error)
                sent.answered.exception()  # its waiter may be gone: then nobody retrieves it

    def cancel(self) -> Iterable[asyncio.Task[list[Reply | Exception]]]:
        """Break off what is under way; return the tasks that are still to end."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        tasks = [batch.replies for batch in self._under_way]
        for task in tasks:
            task.cancel()
        return tasks

    def _all(self) -> Iterator[Sent]:
        for batch in self._under_way:
            yield from batch.calls
        yield from self._waiting

    def _gathered(self) -> None:
        self._gathering = None
        self._wake()

    def _replied(self, _: object) -> None:
        self._wake()
