"""Starts that are reserved in the background: for ``try_start``, which never waits, and for what waits to be called."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from politesse.errors import PolitesseError
from politesse.verdict import NotYet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.fleet.permit import FleetPermit
    from politesse._pacing.fleet.reservation import Reservation
    from politesse._pacing.fleet.reserver import ProcessPacer, Reserver
    from politesse._pacing.scope_port import ScopePermit
    from politesse.clock import Clock, Timer
    from politesse.ports import TurnRequest


_HELD_S: Final = 0.1
_AGAIN_S: Final = 1.0  # after a reservation that was broken off, until it is tried again for what waits to be called


class HeldStart:
    """A start that is reserved in the background, for ``try_start`` to take.

    Attributes:
        request: for which.
        own: the permit of the pacer of this process.
        callbacks: to call once it is granted.
        is_watched: whether there were any.
        task: reserves it.
        granted: with what it was granted; None before that.
        error: why it cannot be; None if it can.
        timer: gives it back if nobody takes it in time.
    """

    __slots__ = ("callbacks", "error", "granted", "is_watched", "own", "request", "task", "timer")

    def __init__(self, request: TurnRequest, own: ScopePermit) -> None:
        self.is_watched = False
        self.request = request
        self.own = own
        self.callbacks: list[Callable[[], None]] = []
        self.task: asyncio.Task[None] | None = None
        self.granted: Reservation | None = None
        self.error: PolitesseError | None = None
        self.timer: Timer | None = None


class HeldStarts:
    """The starts that are reserved in the background, one for each host, origin and agent.

    A start is held for as long as it may be late, and then given back, so that other processes go on. If nobody was
    called, the next one may be later by twice as much: so a program that asks now and then meets one in the end.

    What waits to be called has its start reserved so long before its time as Redis mostly takes to answer.

    Args:
        reserver: reserves them.
        own: the pacer of this process.
        grant: makes the permit of a start that is taken.
        clock: the timer.
    """

    def __init__(
        self,
        reserver: Reserver,
        own: ProcessPacer,
        grant: Callable[[TurnRequest, ScopePermit, Reservation], FleetPermit],
        clock: Clock,
    ) -> None:
        self._reserver = reserver
        self._own = own
        self._grant = grant
        self._clock = clock
        self._by_request: dict[tuple[str, str, str], HeldStart] = {}
        self._broken_off: dict[HeldStart, Timer] = {}

    def get(self, request: TurnRequest) -> HeldStart | None:
        """Return the start that is held, or is being reserved, for a request; one for another pace is let go."""
        held = self._by_request.get(request[:3])
        if held is not None and request.pace not in {None, held.request.pace}:
            self._let_go(held)
            return None
        return held

    def when_ready(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when a start is held for a request."""
        held = self.get(request)
        if held is None or held.error is not None:
            self.reserve_for(request, callback)
        elif held.granted is None:
            held.callbacks.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def when_near(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when it is time to reserve a start, or one is held."""
        held = self.get(request)
        if held is not None and held.granted is None and held.error is None:
            held.callbacks.append(callback)
        else:
            self._own.when_ready(request, callback, ahead_s=self._reserver.ahead_s(request))

    async def aclose(self) -> None:
        """Give back all that is held, and let those that are being reserved end."""
        for held in list(self._broken_off):
            self._try_again(held)
        reserving = []
        for held in list(self._by_request.values()):
            if held.granted is not None:
                self._let_go(held)
            elif held.task is not None:
                reserving.append(held.task)
        await asyncio.gather(*reserving, return_exceptions=True)

    def hold(self, request: TurnRequest, own: ScopePermit) -> HeldStart:
        """Reserve a start for the next ``try_start``."""
        held = self._by_request[request[:3]] = HeldStart(request, own)
        held.task = asyncio.get_running_loop().create_task(self._fill(held), name=f"a start at {request.host}")
        held.task.add_done_callback(partial(self._ended, held))
        return held

    def reserve_for(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Reserve a start, and call back."""
        if self._reserver.is_closed:
            callback()
            return
        ahead_s = self._reserver.ahead_s(request)
        own = self._own.try_start(request, ahead_s=ahead_s)
        if isinstance(own, NotYet):
            self._own.when_ready(request, partial(self.reserve_for, request, callback), ahead_s=ahead_s)
        else:
            if (held := self._by_request.get(request[:3])) is not None:
                self._let_go(held)
            self.hold(request, own).callbacks.append(callback)

    async def _fill(self, held: HeldStart) -> None:
        request = held.request
        try:
            reservation = await self._reserver.reserve(request, held.own, None, None)
        except PolitesseError as error:  # ``try_start`` raises it
            held.error = error
            held.own.give_back()
            self._call(held)
            return
        if reservation is None:
            self.drop(held)
            held.own.give_back()
            for callback in held.callbacks:  # not ahead of its time once more: that might be refused again, at once
                self._own.when_ready(request, partial(self.reserve_for, request, callback))
            return
        held.granted = reservation
        line = self._reserver.line(request.host)
        line.users += 1
        answer = reservation.answer
        left_s = 0.0 if answer is None else answer.tolerance_s - reservation.late_s(self._clock.monotonic())
        if held.callbacks:  # what is called takes it soon, or not at all
            left_s = min(left_s, _HELD_S)
        held.timer = self._clock.call_later(max(left_s, 0.0), partial(self._let_go, held))
        if held.callbacks:
            self._call(held)

    def _ended(self, held: HeldStart, _: asyncio.Task[None]) -> None:
        """Give back what was not reserved: somebody cancelled the task, maybe before its first step, or it failed.

        asyncio logs the exception of a task that failed.
        """
        if self._by_request.get(held.request[:3]) is not held or held.granted is not None or held.error is not None:
            return
        self.drop(held)
        held.own.give_back()
        # A timer, because the event loop may be ending, with all its tasks: a new one would never run.
        self._broken_off[held] = self._clock.call_later(_AGAIN_S, partial(self._try_again, held))
        if self._reserver.is_closed:
            self._try_again(held)

    def _try_again(self, held: HeldStart) -> None:
        self._broken_off.pop(held).cancel()
        self._wait_again(held)

    def _wait_again(self, held: HeldStart) -> None:
        callbacks, held.callbacks = held.callbacks, []
        for callback in callbacks:
            self.when_ready(held.request, callback)

    def _call(self, held: HeldStart) -> None:
        """Call the first callback; the others wait again, because the first one may take the start."""
        callbacks, held.callbacks = held.callbacks, []
        held.is_watched = True
        for place, callback in enumerate(callbacks):
            if place and not self._reserver.is_closed:
                self.when_ready(held.request, callback)
            else:
                callback()

    def drop(self, held: HeldStart) -> None:
        """Forget a start."""
        if self._by_request.get(held.request[:3]) is held:
            del self._by_request[held.request[:3]]

    def take(self, held: HeldStart) -> FleetPermit | None:
        """Return the permit of a start that was reserved in the background; None if it is void by now."""
        reservation, request = held.granted, held.request
        if reservation is None:
            return None
        self.drop(held)
        held.granted = None
        if held.timer is not None:
            held.timer.cancel()
        line = self._reserver.line(request.host)
        line.users -= 1
        if (
            not self._reserver.is_void(line, reservation)
            and self._reserver.is_in_time(line, reservation)
            and held.own.renew()
        ):
            return self._grant(request, held.own, reservation)
        self._reserver.withdraw(request.host, reservation)
        held.own.give_back()
        return None

    def _let_go(self, held: HeldStart) -> None:
        """Give back a start that nobody has taken in time."""
        self.drop(held)
        reservation, held.granted = held.granted, None
        if held.error is not None:
            return
        if reservation is None:
            if held.task is not None and held.task is not asyncio.current_task():
                held.task.cancel()
                held.own.give_back()  # here, because a task that is cancelled before its first step does nothing
                self._wait_again(held)
            return
        if held.timer is not None:
            held.timer.cancel()
        line = self._reserver.line(held.request.host)
        line.users -= 1
        if not held.is_watched:
            line.was_late()
        self._reserver.withdraw(held.request.host, reservation)
        held.own.give_back()
