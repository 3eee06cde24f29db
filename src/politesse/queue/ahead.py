"""Reserves starts ahead, where the pacer has to ask a server for them, so that no worker waits for its answer.

Theory of operation. Where a fleet shares a pace, a host that is ready here may be tried only once a start was reserved
for it. That takes a round trip, and a reserved start keeps the host from all other processes until it is used or given
back. So starts are reserved for as many hosts as workers will take soon, and for no more:

    near     its time has come, or will have when the server has answered; in the order in which that happened
    reserved the pacer calls when the start is granted and due; then the host is ready, and a worker is woken

There is room for one start for each worker that waits, and for those workers that will come while a start is being
reserved: the time that takes, times the rate of turns (Little's law), both smoothed. Where all workers are busy for
long that is none: the next worker waits for one round trip, and no host is kept for nothing.

A start that is not granted after some time waits for a request of another process. It takes no room any more, because
others can be granted meanwhile.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import exp
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from politesse.errors import PolitesseError

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from politesse._gate.agent import Agent
    from politesse.queue.hosts import HostQueue

Item = TypeVar("Item")

_FIRST_S: Final = 0.05  # that a reservation takes, as long as nothing is known: mostly the slack of an interval
_QUEUED_AFTER: Final = 4.0  # of these times it waits for another process
_LEAST_QUEUED_S: Final = 0.1
_RATE_S: Final = 0.5  # over which turns are counted
_SMOOTHED: Final = 8.0  # as RFC 6298 smoothes a round trip


class StartsAhead(Generic[Item]):
    """The hosts whose starts are to be reserved; its length is their number.

    Args:
        agent: knows the pacer.
        workers: the tasks that wait for a turn.
        ready: the hosts that are ready.
        look: enters a host as ready.
    """

    def __init__(self, agent: Agent, workers: Sized, ready: Sized, look: Callable[[HostQueue[Item]], None]) -> None:
        self._agent = agent
        self._workers = workers
        self._ready = ready
        self._look = look
        self._near: deque[HostQueue[Item]] = deque()
        self._reserving: dict[HostQueue[Item], float] = {}  # since when, in this order
        self._took_s = _FIRST_S
        self._turns = 0.0  # of the last ``_RATE_S`` seconds, those long ago counting less
        self._turns_mono = 0.0

    def __len__(self) -> int:
        return len(self._near)

    @property
    def is_needed(self) -> bool:
        """Whether the pacer asks a server."""
        return self._agent.pacer.reserving_s > 0.0

    def add(self, host: HostQueue[Item]) -> None:
        """Have the start of a host reserved when it is its turn."""
        if not host.near and not host.ready and host.has_head():
            host.near = True
            self._near.append(host)
            self.reserve()

    def note_turn(self) -> None:
        """Count a turn that was taken, and reserve the start that takes its place."""
        now_mono = self._agent.clock.monotonic()
        self._turns = 1.0 + self._turns * exp((self._turns_mono - now_mono) / _RATE_S)
        self._turns_mono = now_mono
        self.reserve()

    def reserve(self, *, more: int = 0) -> None:
        """Reserve starts as far as there is room; ``more`` workers are about to wait."""
        if not self._near:
            return
        now_mono = self._agent.clock.monotonic()
        self._forget_queued(now_mono)
        room = len(self._workers) + more + self._expected(now_mono) - len(self._reserving) - len(self._ready)
        while room > 0 and self._near:
            host = self._near.popleft()
            host.near = False
            if not host.ready and not host.watched and host.has_head():
                self._reserve_for(host, now_mono)
                room -= 1

    def _reserve_for(self, host: HostQueue[Item], now_mono: float) -> None:
        head = host.head()
        try:
            verdict = self._agent.judged(head.url)
            if verdict is not None and verdict.allowed:
                self._agent.when_ready(head.origin_queue.origin, partial(self._granted, host))
                host.watched = True
                self._reserving[host] = now_mono
                return
        except PolitesseError:
            pass  # a worker that tries it raises it as well
        self._look(host)  # it is no start that it needs

    def _granted(self, host: HostQueue[Item]) -> None:
        since_mono = self._reserving.pop(host, None)
        if since_mono is not None:
            self._took_s += (self._agent.clock.monotonic() - since_mono - self._took_s) / _SMOOTHED
        host.watched = False
        self._look(host)

    def _expected(self, now_mono: float) -> int:
        """Return how many workers will come while a start is being reserved."""
        turns_a_second = self._turns * exp((self._turns_mono - now_mono) / _RATE_S) / _RATE_S
        return int(turns_a_second * self._took_s)

    def _forget_queued(self, now_mono: float) -> None:
        since_mono = now_mono - max(_QUEUED_AFTER * self._took_s, _LEAST_QUEUED_S)
        while self._reserving and (first := next(iter(self._reserving.items())))[1] < since_mono:
            del self._reserving[first[0]]
