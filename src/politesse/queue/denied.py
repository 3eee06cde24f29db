"""Finds queued URLs that are denied, so that they are refused at once and not when their host is ready.

Theory of operation. A URL is judged when it is put, if the rules are known, and again when a robots.txt becomes known.
One that is denied is withdrawn from its host: it waits here, and a worker refuses it without the pacer. The URLs of an
origin are sorted in slices of time, by workers that have nothing better to do: ten thousand of them take some 100 ms.

This is a short cut and decides nothing: whatever is refused is judged again in that moment, and so is whatever is
handed out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from politesse.queue.hosts import OriginQueue, QueuedUrl

Item = TypeVar("Item")

_SLICE_S: Final = 0.002


class DeniedUrls(Generic[Item]):
    """The URLs that are denied, and the origins whose URLs are still to be sorted.

    Args:
        is_denied: judges a URL.

    Attributes:
        urls: those that were found.
    """

    def __init__(self, is_denied: Callable[[QueuedUrl[Item]], bool]) -> None:
        self._is_denied = is_denied
        self.urls: deque[QueuedUrl[Item]] = deque()
        self._unsorted: deque[tuple[OriginQueue[Item], Iterator[QueuedUrl[Item]]]] = deque()

    def __bool__(self) -> bool:
        return bool(self.urls or self._unsorted)

    def sort(self, origin_queue: OriginQueue[Item]) -> None:
        """Have the URLs of an origin sorted."""
        self._unsorted.append((origin_queue, iter(origin_queue.urls.copy())))

    def sort_some(self) -> None:
        """Sort as many URLs as a slice of time allows."""
        time = asyncio.get_running_loop().time  # the work counts, not the clock of the gate
        until = time() + _SLICE_S
        while self._unsorted:
            origin_queue, rest = self._unsorted[0]
            for queued in rest:
                if origin_queue.blocked:  # sorted again when it is known
                    break
                if not queued.withdrawn and self._is_denied(queued):
                    origin_queue.host.withdraw(queued)
                    self.urls.append(queued)
                if time() >= until:
                    return
            self._unsorted.popleft()
