"""Single flight: one task for each key, and one result for all its waiters.

The task belongs to the owner of the flights. Cancelling a waiter does not end it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from politesse.errors import ClosedError, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

Result = TypeVar("Result")


class Flight(Generic[Result]):
    """One piece of work and the waiters for its result. To be made in the event loop in which it is awaited.

    Attributes:
        task: the work; None until it has started.
    """

    __slots__ = ("_result", "_waiters", "task")

    def __init__(self) -> None:
        self._result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiters: dict[asyncio.Future[None], None] = {}
        self.task: asyncio.Task[None] | None = None

    async def wait(self) -> Result:
        """Return the result.

        Raises:
            ClosedError: if the owner was closed meanwhile.
            WrongEventLoop: if another event loop is running.
            Exception: what the work failed with.
        """
        loop = asyncio.get_running_loop()
        if self._result.get_loop() is not loop:
            raise WrongEventLoop
        if not self._result.done():
            # One for each waiter, as by asyncio.shield: a cancelled waiter does not cancel the others.
            waiter = loop.create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
        return self._result.result()

    def set_result(self, result: Result) -> None:
        """Return ``result`` to all waiters; no effect once there is a result or an error."""
        if not self._result.done():
            self._result.set_result(result)
            self._wake()

    def set_error(self, error: BaseException, *, expected: bool = True) -> None:
        """Raise ``error`` in all waiters; no effect once there is a result or an error.

        If there are no waiters, asyncio logs an error that is not ``expected``.
        """
        if not self._result.done():
            self._result.set_exception(error)
            if expected:
                self._result.exception()  # it counts as retrieved
            self._wake()

    def cancel(self) -> None:
        """Cancel all waiters; no effect once there is a result or an error."""
        if self._result.cancel():
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():  # else it was cancelled
                waiter.set_result(None)


FlightKind = TypeVar("FlightKind", bound=Flight[Any])


class Flights(Generic[FlightKind]):
    """The flights whose work is under way, by key."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, FlightKind] = {}

    def get(self, key: str) -> FlightKind | None:
        """Return the flight of ``key``, None if there is none."""
        return self._by_key.get(key)

    def start(self, key: str, flight: FlightKind, work: Coroutine[object, object, None], name: str) -> FlightKind:
        """Start ``work``, which sets the result of ``flight``; it is removed when the work ends, or by ``end``."""
        self._by_key[key] = flight

        def ended(task: asyncio.Task[None]) -> None:
            # Here and not in the task: one that is cancelled before its first step runs no code of its own.
            self.end(key, flight)
            error = None if task.cancelled() else task.exception()
            if error is None:
                flight.cancel()  # without a result, the event loop is being closed
            else:
                flight.set_error(error, expected=False)

        flight.task = asyncio.get_running_loop().create_task(work, name=name)
        flight.task.add_done_callback(ended)
        return flight

    def end(self, key: str, flight: FlightKind) -> None:
        """Remove ``flight``. To be called before its result is set: a waiter may ask again at once."""
        if self._by_key.get(key) is flight:
            del self._by_key[key]

    def close(self, message: str) -> list[asyncio.Task[None]]:
        """Raise ClosedError in all waiters, and cancel all work; return the tasks that are still to end."""
        tasks = []
        for flight in self._by_key.values():
            flight.set_error(ClosedError(message))
            if flight.task is not None:
                flight.task.cancel()
                tasks.append(flight.task)
        return tasks

    def __iter__(self) -> Iterator[FlightKind]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)
