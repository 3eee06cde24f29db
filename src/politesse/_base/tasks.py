"""The origin of a cancellation, and the tasks and signal handlers of the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

running_loop = asyncio._get_running_loop  # noqa: SLF001 - as in Python 3.11 to 3.14
"""Returns the running event loop, or None. The public function raises an error if none is running."""


def signal_handlers(loop: asyncio.AbstractEventLoop) -> dict[int, Any]:
    """Return the dict of the handlers that ``loop.add_signal_handler`` has set; empty for uvloop, which hides them.

    No public function reads them. The attribute is the same in Python 3.11 to 3.14; on Windows, there is none.
    """
    handlers: dict[int, Any] = getattr(loop, "_signal_handlers", {})
    return handlers


def is_ended_from_outside(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` ends ``task``, because the task was cancelled or its coroutine was closed.

    Otherwise a component raised ``error`` itself, for example its own CancelledError, and ``task`` was not cancelled.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return running_loop() is None or asyncio.current_task() is not task
    return False


def is_anything_left() -> bool:
    """Return whether the running event loop has a task that is not being cancelled.

    If there is no such task, the loop is ending: ``asyncio.run`` has cancelled all tasks. It waits for them, but not
    for tasks that start later.
    """
    return any(not task.cancelling() for task in asyncio.all_tasks())


def is_ended_with_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` was sent to ``task`` from outside to end it, or ends the whole process."""
    return is_ended_from_outside(error, task) or isinstance(error, KeyboardInterrupt | SystemExit)


def current_task() -> asyncio.Task[object] | None:
    """Return the current task; None outside of a task."""
    loop = running_loop()
    return None if loop is None else asyncio.current_task(loop)


class WaitingTasks(OrderedDict[asyncio.Future[None], None]):
    """A FIFO of tasks. If a woken task is cancelled, the FIFO wakes the next task."""

    async def wait(self) -> None:
        """Wait to be woken."""
        woken = asyncio.get_running_loop().create_future()
        self[woken] = None
        try:
            await woken
        except asyncio.CancelledError:
            self.pop(woken, None)
            if not woken.cancelled():
                self.wake()
            raise

    def wake(self) -> None:
        """Wake the task that has waited for the longest time."""
        while self:
            woken, _ = self.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all tasks."""
        while self:
            self.wake()
