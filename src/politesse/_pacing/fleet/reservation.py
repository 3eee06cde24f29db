"""One reservation of a start at Redis, from the question to the moment at which the request starts."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse.clock import Clock
    from politesse.verdict import NotYet

_PATIENCE: Final = 2.0
_MOST_PATIENCE: Final = 4096.0
_FIRST_TRIP_S: Final = 0.001  # before anything is known
_LONGEST_TRIP_S: Final = 0.25


class FleetLine:
    """What this process knows of a host at Redis.

    Attributes:
        version: when the host was closed last, by the time of Redis, as far as this process has heard.
        patience: how many times its slack a start may be late; doubled each time that one was later.
        users: how many reservations and requests of this process it has.
        turn: held by the one reservation that is at the head.
        reservations: those that wait, by ticket.
        used: the tickets of requests that have started, or may start, until their end.
    """

    __slots__ = ("patience", "reservations", "turn", "used", "users", "version")

    def __init__(self) -> None:
        self.version = 0
        self.patience = 1.0
        self.users = 0
        self.turn = asyncio.Lock()
        self.reservations: dict[str, Reservation] = {}
        self.used: set[str] = set()

    def was_late(self) -> None:
        """Let starts be later, and be spaced by as much more."""
        self.patience = min(self.patience * _PATIENCE, _MOST_PATIENCE)

    def was_in_time(self) -> None:
        """Let starts be less late again."""
        self.patience = max(self.patience / _PATIENCE, 1.0)


class Trip:
    """How long Redis takes to answer, smoothed as the round trip of TCP is (RFC 6298 2).

    Attributes:
        most_s: what an answer hardly ever takes longer than, in seconds; positive.
    """

    __slots__ = ("_mean_s", "_spread_s", "most_s")

    def __init__(self) -> None:
        self._mean_s = self._spread_s = 0.0
        self.most_s = _FIRST_TRIP_S

    def took(self, seconds: float) -> None:
        """Take another one into account. One that took very long counts as ``_LONGEST_TRIP_S``."""
        seconds = min(seconds, _LONGEST_TRIP_S)
        if self._mean_s:
            self._spread_s += (abs(seconds - self._mean_s) - self._spread_s) / 4.0
            self._mean_s += (seconds - self._mean_s) / 8.0
        else:
            self._mean_s, self._spread_s = seconds, seconds / 2.0
        self.most_s = max(_FIRST_TRIP_S, self._mean_s + 2.0 * self._spread_s)


class Reservation:
    """A ticket, and what Redis has answered to it last.

    Attributes:
        ticket: its name at Redis.
        url: what is to be requested.
        answer: the last answer; None before the first, and after it was void.
        asked_mono: when the last question was sent.
        asked_at_us: the time of Redis at the answer to it.
        starts_mono: from when on the request may start, by an answer that it may.
        losses: how often the connection had been lost when the question was sent.
        not_yet: what it waits for; None before it has waited.
        is_known: whether Redis may know of the ticket.
        has_waited: whether it had to wait for more than the answer.
    """

    __slots__ = (
        "_woken",
        "answer",
        "asked_at_us",
        "asked_mono",
        "has_waited",
        "is_known",
        "losses",
        "not_yet",
        "starts_mono",
        "ticket",
        "url",
    )

    def __init__(self, ticket: str, url: str) -> None:
        self.ticket = ticket
        self.url = url
        self.answer: FleetAnswer | None = None
        self.asked_mono = 0.0
        self.asked_at_us = 0
        self.starts_mono = 0.0
        self.losses = -1
        self.not_yet: NotYet | None = None
        self.is_known = False
        self.has_waited = False
        self._woken: asyncio.Future[None] | None = None

    def take(self, answer: FleetAnswer, now_mono: float, end_mono: float = inf) -> None:
        """Take an answer, or a message that grants it; they come by two connections, in any order.

        Args:
            answer: what has come.
            now_mono: the time.
            end_mono: when the request ``answer.ended`` ended, if this process made it; see ``__init__``.
        """
        if self.answer is None or answer.at_us >= self.answer.at_us:
            self.answer = answer
            self.starts_mono = min(now_mono + answer.wait_s, end_mono + answer.after_s)

    def wake(self) -> None:
        """Have it look at once."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def pause(self, clock: Clock, wait_s: float | None) -> None:
        """Wait until it is woken, for ``wait_s`` seconds at the most; None for no limit."""
        self._woken = asyncio.get_running_loop().create_future()
        timer = None if wait_s is None else clock.call_later(max(wait_s, 0.0), self.wake)
        try:
            await self._woken
        finally:
            self._woken = None
            if timer is not None:
                timer.cancel()

    def late_s(self, now_mono: float) -> float:
        """Return by how much a start now would be late, at the most.

        The question was sent before Redis read its clock, so no more time has passed there since that reading than here
        since the question.
        """
        answer = self.answer
        if answer is None:
            return inf
        passed_there_s = (answer.at_us - self.asked_at_us) / 1e6 + answer.wait_s
        return now_mono - self.asked_mono - passed_there_s
