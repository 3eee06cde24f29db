"""Single flight: one task for each key, and all who wait for it.

The task belongs to whoever keeps the flights. A waiter that is cancelled leaves it as it is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from politesse.errors import ClosedError, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


class Flight(Generic[Result]):
    """One request, and those who wait for it. Made in the event loop that it is waited for in.

    Attributes:
        task: the work; None until it has taken off.
    """

    __slots__ = ("_landed", "task")

    def __init__(self) -> None:
        self._landed: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    async def wait(self) -> Result:
        """Return what it comes to; raises what it failed with, ClosedError, WrongEventLoop."""
        if self._landed.get_loop() is not asyncio.get_running_loop():
            raise WrongEventLoop
        # Shielded: the flight is not the waiter's, and one that gives up takes nobody down with it.
        return await asyncio.shield(self._landed)

    def land(self, result: Result) -> None:
        """Tell ``result`` to all who wait."""
        if not self._landed.done():
            self._landed.set_result(result)

    def fail(self, error: Exception) -> None:
        """Raise ``error`` to all who wait."""
        if not self._landed.done():
            self._landed.set_exception(error)
            self._landed.exception()  # there may be nobody who waits, and then nobody is to be warned

    def abandon(self) -> None:
        """Let nobody wait for ever; no effect if it has landed."""
        self._landed.cancel()


FlightKind = TypeVar("FlightKind", bound=Flight[Any])


class Flights(Generic[FlightKind]):
    """The flights that are under way, by key."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, FlightKind] = {}

    def get(self, key: str) -> FlightKind | None:
        """Return the flight of ``key``, None if there is none."""
        return self._by_key.get(key)

    def take_off(self, key: str, flight: FlightKind, work: Coroutine[object, object, None], name: str) -> FlightKind:
        """Start ``work``, which is to land ``flight``; it is over when the work is done, or by ``end``."""
        self._by_key[key] = flight

        def ended(_: asyncio.Task[None]) -> None:
            # Here and not in the task: one that is cancelled before its first step runs no code of its own.
            self.end(key, flight)
            flight.abandon()  # if it did not land, the loop is being torn down

        flight.task = asyncio.get_running_loop().create_task(work, name=name)
        flight.task.add_done_callback(ended)
        return flight

    def end(self, key: str, flight: FlightKind) -> None:
        """Have the next question of ``key`` take off again; to be called before whoever waited may ask again."""
        if self._by_key.get(key) is flight:
            del self._by_key[key]

    def close(self, message: str) -> list[asyncio.Task[None]]:
        """Raise ClosedError to all who wait, and cancel all work; returns the tasks that are to be waited for."""
        tasks = []
        for flight in self._by_key.values():
            flight.fail(ClosedError(message))
            if flight.task is not None:
                flight.task.cancel()
                tasks.append(flight.task)
        return tasks

    def __len__(self) -> int:
        return len(self._by_key)
