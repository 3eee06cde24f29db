"""Permits that are kept for callbacks by the pacer of a fleet, whose ``try_start`` cannot get a permit at once.

Theory of operation. ``try_start`` cannot wait, and the pacer of a fleet has to ask Redis. So a task calls ``start``,
and waits in line in place of the callback. When the task has the permit, it calls the callback, whose ``try_start``
takes the permit. An unused permit is given back after OFFER_S.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from politesse._pacing.hosts import OFFER_S
from politesse._pacing.pace import longest_stated_s
from politesse.errors import PolitesseError
from politesse.verdict import NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from politesse._pacing.fleet.reservation import FleetPermit
    from politesse._pacing.requests import TurnRequest
    from politesse.clock import Clock, Timer

_AGAIN_S: Final = 1.0  # if a task was cancelled, its callback is called after this time, and may ask for a start again


@dataclass(slots=True, eq=False)
class _Offer:
    """A permit for one callback. A task waits for the permit, which is then kept until the callback takes it."""

    request: TurnRequest
    callback: Callable[[], None] | None
    permit: FleetPermit | None = None
    timer: Timer | None = None


class Offers:
    """The permits that are kept for callbacks.

    Args:
        start: the method ``start`` of the pacer, which waits in line for a permit.
        clock: makes the timers after which unused permits are given back.
    """

    def __init__(self, start: Callable[[TurnRequest], Coroutine[object, object, FleetPermit]], clock: Clock) -> None:
        self._start = start
        self._clock = clock
        self._kept: dict[tuple[str, str], deque[_Offer]] = {}  # key: host and agent
        self._tasks: dict[asyncio.Task[None], _Offer] = {}
        self._closed = False

    def take(self, request: TurnRequest) -> FleetPermit | None:
        """Return the oldest valid permit that is kept for the host and the agent of a request, or None.

        The callback may have waited for another origin of the host. A permit that ignores the pace of this request is
        given back.
        """
        key = request.host, request.agent
        kept = self._kept.get(key)
        while kept:
            is_paced = _is_paced_for(request, kept[0].request)
            permit = self._drop(key, kept[0])
            if permit is not None and is_paced and permit.renew():
                return permit
            if permit is not None:
                permit.give_back()
        return None

    def wait(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Wait in line for a permit, and call ``callback`` when the permit is granted, or when the pacer closes."""
        offer: _Offer = _Offer(request, callback)
        name = f"a start at {request.host}"
        task = asyncio.get_running_loop().create_task(self._wait(request, offer), name=name)
        self._tasks[task] = offer
        task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Wait until the closed pacer has ended all tasks by ClosedError, and give back the kept permits."""
        self._closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.give_back_all()

    def give_back_all(self) -> None:
        """Give back the kept permits."""
        for key, kept in list(self._kept.items()):
            for offer in list(kept):
                self._lapse(key, offer)

    async def _wait(self, request: TurnRequest, offer: _Offer) -> None:
        try:
            offer.permit = await self._start(request)
        except PolitesseError:
            self._call(offer)  # the callback asks again, and gets the error
            return
        key = request.host, request.agent
        self._kept.setdefault(key, deque()).append(offer)
        offer.timer = self._clock.call_later(OFFER_S, partial(self._lapse, key, offer))
        self._call(offer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """If the task has failed or was cancelled, perhaps before its first step, call its callback later."""
        offer = self._tasks.pop(task)
        if self._closed:
            self._call(offer)
        elif offer.callback is not None:
            # A timer, not a task: if the event loop is ending, all tasks are cancelled, and a new task never runs.
            self._clock.call_later(_AGAIN_S, partial(self._call, offer))

    def _call(self, offer: _Offer) -> None:
        callback, offer.callback = offer.callback, None
        if callback is not None:
            callback()

    def _lapse(self, key: tuple[str, str], offer: _Offer) -> None:
        permit = self._drop(key, offer)
        if permit is not None:
            permit.give_back()

    def _drop(self, key: tuple[str, str], offer: _Offer) -> FleetPermit | None:
        """Stop keeping a permit, and return it."""
        kept = self._kept[key]
        kept.remove(offer)
        if not kept:
            del self._kept[key]
        if offer.timer is not None:
            offer.timer.cancel()
        return offer.permit


def _is_paced_for(request: TurnRequest, granted: TurnRequest) -> bool:
    """Return whether the permit of the request ``granted`` keeps the pace of another request to the same host."""
    pace, floor_s = request.pace, granted.min_delay_s
    if pace is None or pace is granted.pace:
        return request.min_delay_s <= floor_s
    return not pace.timetable.is_timed and max(longest_stated_s([pace]), request.min_delay_s) <= floor_s


async def try_all(
    try_one: Callable[[TurnRequest], Coroutine[object, object, FleetPermit | NotYet]], requests: Sequence[TurnRequest]
) -> list[FleetPermit | NotYet]:
    """Try several requests at once. If the caller is cancelled or a try raises, give all permits back."""
    trying = [asyncio.ensure_future(try_one(request)) for request in requests]
    try:
        return [await answer for answer in trying]
    except BaseException:
        for answer in trying:
            answer.cancel()
            answer.add_done_callback(_give_back)
        raise


def _give_back(answer: asyncio.Future[FleetPermit | NotYet]) -> None:
    """Give back the permit of a request whose caller is gone."""
    if not answer.cancelled() and answer.exception() is None and not isinstance(permit := answer.result(), NotYet):
        permit.give_back()
