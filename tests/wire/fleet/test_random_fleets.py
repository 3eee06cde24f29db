"""Processes whose calls take any time: no start comes too soon.

Each process is a model: it sends a step, the script runs in Redis some time later, and its answer comes still later.
Some answers never come. All time is that of a heap of events, and Redis reads it in place of its clock.
"""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from random import Random
from secrets import token_hex
from typing import Final, NamedTuple

import pytest

from politesse._pacing.fleet.messages import FleetAnswer, Script, ScriptCall
from politesse.testing import ManualClock
from tests.contract.pacers.fleet_pacer import ManualWire
from tests.support.redis_servers import RedisServer, client_at
from tests.support.tiers import first_of

INTERVAL_S: Final = 0.2
AHEAD_S: Final = 0.25
VISITS: Final = 80
LEASE_S: Final = 1.0
SHORT_LEASE_S: Final = 0.31  # it may be over before the request
CLOSED_S: Final = 0.3
LONGEST_TRIP_S: Final = 0.08
GRACE_S: Final = 0.1


class Visit(NamedTuple):
    """A request, and when Redis has heard of its end. It is unknown to Redis from the end of its lease on."""

    began: float
    ended: float
    known_until: float
    heard: float


class Fleet:
    """The events, the Redis, and what has happened.

    Attributes:
        random: makes up all that may be different.
        visits: the requests.
        closed_until: when the last closing ends.
    """

    def __init__(self, wire: ManualWire, clock: ManualClock, random: Random) -> None:
        self.random = random
        self.visits: list[Visit] = []
        self.closed_until = 0.0
        self._wire = wire
        self._clock = clock
        self._key = token_hex(6)
        self._events: list[tuple[float, int, Callable[[], Awaitable[None] | None]]] = []
        self._numbers = count()

    @property
    def now(self) -> float:
        return self._clock.monotonic()

    def at(self, time: float, act: Callable[[], Awaitable[None] | None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), act))

    def trip(self) -> float:
        return self.random.choice([0.0, 0.001, self.random.uniform(0.0, LONGEST_TRIP_S)])

    async def run(self) -> None:
        while self._events and len(self.visits) < VISITS:
            time, _, act = heapq.heappop(self._events)
            self._clock.advance(max(time - self.now, 2e-6))  # no two scripts run in the same microsecond
            if (acting := act()) is not None:
                await acting

    async def call(self, *words: str | int) -> FleetAnswer:
        """Run a step now; return its answer."""
        (reply,) = await self._wire.exchange([ScriptCall(Script.STEP, (self._key,), words)], ())
        answer = FleetAnswer.of(reply)
        assert isinstance(answer, FleetAnswer), answer
        return answer


class Process:
    """Asks, waits, requests, reports the end, and so on."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self._name = name
        self._number = 0
        self._arrives = self._since = 0.0
        self._ended_mono = -1.0
        self._lease_s = LEASE_S
        self._ended: list[tuple[int, float, str]] = []

    def _send(self, wish: str = "", closing: str = "") -> None:
        """Have a step run after those that were sent before; it tells what has ended."""
        fleet = self._fleet
        self._arrives, sent = max(self._arrives, fleet.now + fleet.trip()), fleet.now
        ended = " ".join(f"{number} {int((sent - at) * 1e6)} {how}" for number, at, how in self._ended)
        self._ended.clear()
        known = (self._name, self._number, "", round(LEASE_S * 1e6), 0, ended, 1, "", closing, 0)
        words: tuple[str | int, ...] = (*known, *wish.split())
        number = self._number

        async def run() -> None:
            if closing:
                fleet.closed_until = fleet.now + CLOSED_S
            answer = await fleet.call(*words)
            if wish and fleet.random.random() < 0.05:  # the answer is lost
                self._ended.append((number, fleet.now, "back"))
                fleet.at(fleet.now + 0.5, self.ask)
            elif wish:
                fleet.at(fleet.now + fleet.trip(), lambda: self._receive(number, answer, sent))

        fleet.at(self._arrives, run)

    def ask(self) -> None:
        fleet = self._fleet
        self._number += 1
        self._lease_s = fleet.random.choice([LEASE_S, LEASE_S, LEASE_S, SHORT_LEASE_S])
        times = (INTERVAL_S, 0.0, 0.0)
        others = (self._lease_s, fleet.now - self._since, GRACE_S, AHEAD_S)
        first, second = (" ".join(str(round(each * 1e6)) for each in some) for some in (times, others))
        self._send(f"{self._number} {first} 1 {second} http://example.com/")

    def _receive(self, number: int, answer: FleetAnswer, sent: float) -> None:
        fleet = self._fleet
        if answer.kind == "wait":
            fleet.at(fleet.now + answer.wait_s, self.ask)
            return
        assert answer.kind == "granted"
        starts = self._ended_mono + INTERVAL_S if answer.is_own else fleet.now + answer.wait_s
        act = self._give_back if fleet.random.random() < 0.2 else self._begin
        fleet.at(starts, lambda: act(number, answer, sent + answer.wait_s))

    def _give_back(self, number: int, _: FleetAnswer, __: float) -> None:
        fleet = self._fleet
        self._ended.append((number, fleet.now, "back"))
        self._send()
        fleet.at(fleet.now + fleet.random.uniform(0.0, 0.3), self.ask)

    def _begin(self, number: int, answer: FleetAnswer, due: float) -> None:
        """Begin a request, unless so much of the lease is over that it may end first."""
        fleet, until = self._fleet, self._fleet.closed_until
        if fleet.now - due > 0.5 * self._lease_s:
            self._give_back(number, answer, due)
            return
        if answer.at_us / 1e6 - 1e9 >= until - CLOSED_S:
            assert fleet.now >= until - 1e-5, "a start that was granted while the host was closed"
        takes_s = fleet.random.choice([0.0, fleet.random.uniform(0.0, 0.5)])
        began = fleet.now
        fleet.at(began + takes_s, lambda: self._finish(number, began, due))

    def _finish(self, number: int, began: float, due: float) -> None:
        fleet = self._fleet
        ended, known_until = fleet.now, due + self._lease_s
        self._ended.append((number, ended, "used"))
        self._ended_mono = self._since = fleet.now
        chance = fleet.random.random()
        if chance < 0.05:
            self._ended.append((0, fleet.now, "asked"))  # a robots.txt
        pause_s = fleet.random.choice([0.0, 0.15, fleet.random.uniform(0.0, 0.5)])
        if 0.05 <= chance < 0.1:
            self._send(closing=f"{round(CLOSED_S * 1e6)} backoff")
        elif pause_s:
            self._send()
        if pause_s:
            fleet.at(fleet.now + pause_s, self.ask)
        else:
            self.ask()
        fleet.visits.append(Visit(began, ended, known_until, self._arrives))


@pytest.fixture
async def fleet(server: RedisServer, seed: int) -> AsyncIterator[Fleet]:
    clock = ManualClock()
    wire = ManualWire(client_at(server.url), clock)
    await wire.open()
    yield Fleet(wire, clock, Random(seed))
    await wire.aclose()


@pytest.mark.parametrize("seed", first_of(2, range(12)))
async def test_no_start_comes_too_soon_however_long_messages_take(fleet: Fleet, seed: int) -> None:
    for number in range(1 + seed % 3):
        fleet.at(fleet.now + fleet.random.uniform(0.0, 0.3), Process(fleet, f"p{number}").ask)
    await fleet.run()
    visits = sorted(fleet.visits)
    assert len(visits) == VISITS
    for place, visit in enumerate(visits):
        for before in visits[:place]:
            if before.heard <= before.known_until:  # a lease that ran out hides its request, as it always did
                assert visit.began - before.ended >= INTERVAL_S - 1e-5, (before, visit)
