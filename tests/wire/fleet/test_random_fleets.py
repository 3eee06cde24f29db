"""Processes whose messages take any time: no start comes too soon.

Each process is a model: it sends a call, the script runs in Redis some time later, and its answer comes still later; so
do the messages that Redis publishes. All time is that of a heap of events, and Redis reads it in place of its clock.
"""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count
from random import Random
from secrets import token_hex
from typing import Final, NamedTuple

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from politesse._pacing.fleet.messages import FleetAnswer, ScriptCall
from politesse._pacing.fleet.reservation import FleetHostState, Reservation
from politesse._pacing.fleet.scripts import Script
from politesse.testing import ManualClock
from tests.contract.pacers.fleet_pacer import ManualWire
from tests.support.pacing import wants
from tests.support.redis_servers import RedisServer, client_at
from tests.support.tiers import first_of

INTERVAL_S: Final = 0.2
SLACK_S: Final = 0.02
VISITS: Final = 80
LEASE_S: Final = 1.0
SHORT_LEASE_S: Final = 0.31  # it may be over before the request
CLOSED_S: Final = 0.3
LONGEST_TRIP_S: Final = 0.08


class Visit(NamedTuple):
    """A request; it is unknown to Redis from the end of its lease on."""

    began: float
    ended: float
    known_until: float


class Fleet:
    """The events, the Redis, and what has happened.

    Attributes:
        random: makes up all that may be different.
        visits: the requests.
        closed_until: when the last closing ends.
        granted: who has which ticket.
    """

    def __init__(self, wire: ManualWire, clock: ManualClock, pubsub: PubSub, key: str, random: Random) -> None:
        self.random = random
        self.visits: list[Visit] = []
        self.closed_until = 0.0
        self.granted: dict[str, Process] = {}
        self._wire = wire
        self._clock = clock
        self._pubsub = pubsub
        self._key = key
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

    async def call(self, script: Script, *words: str | int) -> FleetAnswer | None:
        """Run a script now, and have what it publishes delivered; return its answer."""
        call = ScriptCall(script, self._key, (f"{self._key}:to:", 0, 0, *words))
        (reply,) = await self._wire.exchange([call], {})
        assert not isinstance(reply, Exception), reply
        await self._pubsub.ping()
        while (message := await self._pubsub.get_message(timeout=5.0)) is not None and message["type"] != "pong":
            if message["type"] == "pmessage":
                answer = FleetAnswer.of(message["data"].decode().split("\n")[1:])
                if answer.ticket:
                    self.at(self.now + self.trip(), partial(self.granted[answer.ticket].receive, answer))
        return FleetAnswer.of(reply) if script is Script.RESERVE else None


class Process:
    """Asks, waits, requests, reports the end, and so on."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self._name = name
        self._tickets = count(1)
        self._arrives = 0.0
        self._lease_s = LEASE_S
        self._reservation = Reservation("", wants(), FleetHostState())

    def _send(self, script: Script, *words: str | int) -> None:
        """Have a script run after those that were sent before."""
        self._arrives = max(self._arrives, self._fleet.now + self._fleet.trip())

        async def run() -> None:
            answer = await self._fleet.call(script, *words)
            if answer is not None:
                self._fleet.at(self._fleet.now + self._fleet.trip(), lambda: self.receive(answer))

        self._fleet.at(self._arrives, run)

    def ask(self) -> None:
        self._reservation = Reservation(f"{self._name}.{next(self._tickets)}", wants(), FleetHostState())
        self._fleet.granted[self._reservation.ticket] = self
        self._lease_s = self._fleet.random.choice([LEASE_S, LEASE_S, LEASE_S, SHORT_LEASE_S])
        times = [round(seconds * 1e6) for seconds in (INTERVAL_S, SLACK_S, SLACK_S)]
        lease_us = round(self._lease_s * 1e6)
        self._send(Script.RESERVE, self._reservation.ticket, *times, 1, lease_us, "", 60_000_000, f"{self._name} 1")

    def receive(self, answer: FleetAnswer) -> None:
        reservation, fleet = self._reservation, self._fleet
        if answer.ticket != reservation.ticket or answer.kind == "queued":
            return
        if answer.kind == "wait":
            fleet.at(fleet.now + answer.wait_s, self.ask)
            return
        reservation.take(answer, fleet.now)
        begin = self._give_back if fleet.random.random() < 0.2 else self._begin
        fleet.at(reservation.starts_mono, lambda: begin(reservation, answer.at_us / 1e6 - 1e9 + answer.wait_s))

    def _give_back(self, reservation: Reservation, _: float) -> None:
        self._send(Script.RELEASE, reservation.ticket, "back", 0, -1, 0, 0, 0, 0)
        self._fleet.at(self._fleet.now + self._fleet.random.uniform(0.0, 0.3), self.ask)

    def _begin(self, reservation: Reservation, due: float) -> None:
        fleet = self._fleet
        if fleet.now - due > SLACK_S or reservation.answer is None or self._is_closed(reservation.answer):
            self._give_back(reservation, due)
            return
        takes_s = fleet.random.choice([0.0, fleet.random.uniform(0.0, 0.5)])
        began = fleet.now
        fleet.at(began + takes_s, lambda: self._finish(reservation, began, due))

    def _is_closed(self, answer: FleetAnswer) -> bool:
        """Return whether a closing came after the grant; else the start is after every closing."""
        until = self._fleet.closed_until
        if answer.at_us / 1e6 - 1e9 >= until - CLOSED_S - 1e-6:
            assert self._fleet.now >= until - 1e-5, "a start while the host was closed"
            return False
        return True

    def _finish(self, reservation: Reservation, began: float, due: float) -> None:
        fleet = self._fleet
        fleet.visits.append(Visit(began, fleet.now, due + self._lease_s))
        self._send(Script.RELEASE, reservation.ticket, "end", 1, -1, 0, 0, 0, 0)
        chance = fleet.random.random()
        if chance < 0.05:
            self._send(Script.RELEASE, "", "end", 1, -1, 0, 0, 0, 0)
        elif chance < 0.1:
            self._arrives = max(self._arrives, fleet.now + fleet.trip())
            fleet.at(self._arrives, self._close)
        fleet.at(fleet.now + fleet.random.choice([0.0, 0.15, fleet.random.uniform(0.0, 0.5)]), self.ask)

    async def _close(self) -> None:
        self._fleet.closed_until = self._fleet.now + CLOSED_S
        await self._fleet.call(Script.CLOSE, self._name, round(CLOSED_S * 1e6), "backoff", 0, 0, 0)


@pytest.fixture
async def fleet(server: RedisServer, redis: Redis, seed: int) -> AsyncIterator[Fleet]:
    key, clock = token_hex(6), ManualClock()
    wire = ManualWire(client_at(server.url), clock)
    await wire.open(f"{key}:to:nobody")
    async with redis.pubsub() as pubsub:
        await pubsub.psubscribe(f"{key}:to:*")
        yield Fleet(wire, clock, pubsub, key, Random(seed))
    await wire.aclose()


@pytest.mark.parametrize("seed", first_of(2, range(6)))
async def test_no_start_comes_too_soon_however_long_messages_take(fleet: Fleet, seed: int) -> None:
    for number in range(1 + seed % 3):
        fleet.at(fleet.now + fleet.random.uniform(0.0, 0.3), Process(fleet, f"p{number}").ask)
    await fleet.run()
    visits = sorted(fleet.visits)
    assert len(visits) == VISITS
    for place, visit in enumerate(visits):
        for before in visits[:place]:
            if before.ended <= before.known_until:  # a lease that ran out hides its request, as it always did
                assert visit.began - before.ended >= INTERVAL_S - 1e-5, (before, visit)
