"""Tasks that wait for an event, woken one at a time in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class WaitingTasks:
    """A FIFO of tasks. A task that is cancelled after it was woken wakes the next one in its place."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def wait(self) -> None:
        """Wait to be woken."""
        woken = asyncio.get_running_loop().create_future()
        self._futures[woken] = None
        try:
            await woken
        except asyncio.CancelledError:
            self._futures.pop(woken, None)
            if not woken.cancelled():
                self.wake()
            raise

    def wake(self) -> None:
        """Wake the task that has waited for the longest time."""
        while self._futures:
            woken, _ = self._futures.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all tasks."""
        while self._futures:
            self.wake()

    def __len__(self) -> int:
        return len(self._futures)
