"""Permits that are waited for in the background: for a pacer of several scopes that has to ask a server.

``try_start`` cannot wait, and the scopes grant their permits one after the other: what one of them has reserved would
be given back before the next one has answered. So a task waits in line for all of them, as ``start`` does, and the
permit is kept for a moment. Who does not take it then has it given back, so that others go on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from politesse._pacing.scope_port import ScopePermit
from politesse.errors import PolitesseError, TooFar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.clock import Clock, Timer
    from politesse.ports import TurnRequest

P = TypeVar("P", bound=ScopePermit)

_KEPT_S: Final = 0.05
_AGAIN_S: Final = 1.0  # after a wait that was broken off, until it begins again for what waits to be called
_LONGEST_WAIT_S: Final = 30.0  # the next question then reports what binds, such as a closure that came meanwhile


class _Waiting(Generic[P]):
    """A permit that is waited for, or kept."""

    __slots__ = ("callbacks", "error", "permit", "task", "timer")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.task: asyncio.Task[None] | None = None
        self.permit: P | None = None
        self.error: PolitesseError | None = None
        self.timer: Timer | None = None


class BackgroundStarts(Generic[P]):
    """The permits that are waited for in the background, one for each host, origin and agent.

    Args:
        start: waits for a permit, for so many seconds at the most.
        clock: the timer.
    """

    def __init__(self, start: Callable[[TurnRequest, float], Awaitable[P]], clock: Clock) -> None:
        self._start = start
        self._clock = clock
        self._waiting: dict[tuple[str, str, str], _Waiting[P]] = {}
        self._broken_off: dict[_Waiting[P], Timer] = {}

    def __contains__(self, request: TurnRequest) -> bool:
        """Return whether a permit for a request is waited for, or kept."""
        return request[:3] in self._waiting

    def take(self, request: TurnRequest) -> P | None:
        """Return the permit that is kept for a request, if it still holds.

        Raises:
            ClosedError: it will not be granted, because the pacer is closed; or another error of ``start``.
        """
        waiting = self._waiting.get(request[:3])
        if waiting is None or (waiting.permit is None and waiting.error is None):
            return None
        permit, waiting.permit = waiting.permit, None
        self._forget(request, waiting)
        if waiting.error is not None:
            raise waiting.error
        if permit is None or permit.renew():
            return permit
        permit.give_back()
        return None

    def begin(self, request: TurnRequest, callback: Callable[[], None] | None = None) -> None:
        """Wait for a permit, unless one is waited for or kept; then call ``callback``."""
        waiting = self._waiting.get(request[:3])
        if waiting is None:
            waiting = self._waiting[request[:3]] = _Waiting()
            name = f"a start at {request.host}"
            waiting.task = asyncio.get_running_loop().create_task(self._wait(request, waiting), name=name)
            waiting.task.add_done_callback(lambda _: self._ended(request, waiting))
        if callback is None:
            return
        if waiting.permit is None and waiting.error is None:
            waiting.callbacks.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    async def aclose(self) -> None:
        """Wait for the end of all tasks, in which the close of the pacers is raised, and give back what is kept.

        What still waits to be called is called.
        """
        tasks = [waiting.task for waiting in self._waiting.values() if waiting.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiting in list(self._waiting.values()):
            self._give_back(waiting)
        self._waiting.clear()
        for waiting in list(self._broken_off):
            self._call_again(waiting)

    async def _wait(self, request: TurnRequest, waiting: _Waiting[P]) -> None:
        try:
            waiting.permit = await self._start(request, _LONGEST_WAIT_S)
        except PolitesseError as error:  # raised at the next question; after TooFar that waits again
            if isinstance(error, TooFar):
                self._forget(request, waiting)
            else:
                waiting.error = error
        else:
            waiting.timer = self._clock.call_later(_KEPT_S, lambda: self._let_go(request, waiting))
        self._call(waiting)

    def _ended(self, request: TurnRequest, waiting: _Waiting[P]) -> None:
        """Forget a wait that was broken off: somebody cancelled the task, maybe before its first step, or it failed.

        asyncio logs the exception of a task that failed.
        """
        if self._waiting.get(request[:3]) is waiting and waiting.permit is None and waiting.error is None:
            self._forget(request, waiting)
            # A timer, because the event loop may be ending, with all its tasks: a new one would never run.
            self._broken_off[waiting] = self._clock.call_later(_AGAIN_S, partial(self._call_again, waiting))

    def _call_again(self, waiting: _Waiting[P]) -> None:
        """Call what waited for a permit that will not come: it asks again."""
        self._broken_off.pop(waiting).cancel()
        self._call(waiting)

    def _call(self, waiting: _Waiting[P]) -> None:
        callbacks, waiting.callbacks = waiting.callbacks, []
        for callback in callbacks:
            callback()

    def _let_go(self, request: TurnRequest, waiting: _Waiting[P]) -> None:
        self._forget(request, waiting)
        self._give_back(waiting)

    def _give_back(self, waiting: _Waiting[P]) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        permit, waiting.permit = waiting.permit, None
        if permit is not None:
            permit.give_back()

    def _forget(self, request: TurnRequest, waiting: _Waiting[P]) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        if self._waiting.get(request[:3]) is waiting:
            del self._waiting[request[:3]]
