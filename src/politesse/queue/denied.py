"""Finds queued URLs that are denied, so that they are refused at once and not when their host is ready.

Theory of operation. A URL is judged when it is put, if the rules are known, and again when a robots.txt becomes known.
One that is denied is withdrawn from its host: it waits here, and a worker refuses it without the pacer. The URLs of an
origin are sorted by workers that have nothing better to do: ten thousand of them take some 100 ms. So the workers sort
and refuse in a slice of time, which all of them share: twenty workers block the event loop no longer than one does.

This is a short cut and decides nothing: whatever is refused is judged again in that moment, and so is whatever is
handed out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from politesse.origin import Origin
    from politesse.queue.hosts import OriginQueue, QueuedUrl

Item = TypeVar("Item")

_SLICE_S: Final = 0.002


class TimeSlice:
    """The time that all workers together may take in one round of the event loop."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def is_open(self) -> bool:
        """Whether there is time left in this round; the first call of a round begins it."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + _SLICE_S  # the work counts, not the clock of the gate
            loop.call_soon(self._end_round)
        return loop.time() < self._until

    def _end_round(self) -> None:
        self._until = None


class DeniedUrls(Generic[Item]):
    """The URLs that are denied, and the origins whose URLs are still to be sorted.

    Args:
        denial: returns the verdict for which a URL is refused; None if it is not.
        time_slice: how long they are sorted in one round of the event loop.

    Attributes:
        urls: those that were found.
    """

    def __init__(self, denial: Callable[[QueuedUrl[Item]], object | None], time_slice: TimeSlice) -> None:
        self._denial = denial
        self._time_slice = time_slice
        self._counts: Counter[Origin] = Counter()
        self.urls: deque[QueuedUrl[Item]] = deque()
        self._unsorted: deque[tuple[OriginQueue[Item], Iterator[QueuedUrl[Item]]]] = deque()

    def __bool__(self) -> bool:
        return bool(self.urls or self._unsorted)

    def add(self, queued: QueuedUrl[Item]) -> None:
        """Add a URL that was withdrawn from its host."""
        self.urls.append(queued)
        self._counts[queued.origin_queue.origin] += 1

    def pop(self) -> QueuedUrl[Item]:
        """Return the first of ``urls``, and remove it."""
        queued = self.urls.popleft()
        origin = queued.origin_queue.origin
        self._counts[origin] -= 1
        if not self._counts[origin]:
            del self._counts[origin]
        return queued

    def of_origin(self, queued: QueuedUrl[Item]) -> int:
        """Return how many URLs of the origin of ``queued`` wait, here or at their host, this one included."""
        host, origin = queued.origin_queue.host, queued.origin_queue.origin
        competing = sum(not other.withdrawn for other in host.origin_queue(origin).urls)
        return self._counts[origin] + competing + queued.withdrawn

    def sort(self, origin_queue: OriginQueue[Item]) -> None:
        """Have the URLs of an origin sorted."""
        self._unsorted.append((origin_queue, _each_of(origin_queue)))

    def sort_some(self) -> None:
        """Sort as many URLs as the slice of time allows."""
        while self._unsorted and self._time_slice.is_open():
            origin_queue, rest = self._unsorted[0]
            for queued in rest:
                if origin_queue.blocked:  # sorted again when it is known
                    break
                if not queued.withdrawn and self._denial(queued) is not None:
                    origin_queue.host.withdraw(queued)
                    self.add(queued)
                if not self._time_slice.is_open():
                    return
            self._unsorted.popleft()


def _each_of(origin_queue: OriginQueue[Item]) -> Iterator[QueuedUrl[Item]]:
    """Yield the URLs that an origin has at the first step: one that is handed out before that is not kept."""
    yield from origin_queue.urls.copy()
