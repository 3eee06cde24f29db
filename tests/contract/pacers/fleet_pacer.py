"""A pacer of a fleet on a real Redis whose clock the test moves, so that it keeps the time of a ManualClock.

Time stands still while a message travels: so nothing is late, and the slack is the least there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from secrets import token_hex
from typing import Final
from weakref import WeakSet

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse._base.constants import DAY_S
from politesse._pacing.fleet.messages import Reply, Script, ScriptCall
from politesse._pacing.fleet.tickets import Tickets
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.hosts import Hosts
from politesse.clock import Clock
from politesse.events import Publisher
from politesse.options import FleetOptions, Limit
from tests.support.pacing import Resolving
from tests.support.redis_servers import client_at, shared_server

_MANUAL_TIME: Final = """
local server, manual = redis, tonumber(table.remove(ARGV))
local redis = setmetatable({call = function(name, ...)
    if name == 'TIME' then
        return {math.floor(manual / 1000000), manual % 1000000}
    end
    return server.call(name, ...)
end}, {__index = server})
"""


_WIRES: Final[WeakSet[ManualWire]] = WeakSet()


class ManualWire(RedisWire):
    """Adds the time of a clock to each call, for the scripts to read in place of TIME."""

    def __init__(self, client: Redis, clock: Clock, prefix: str = "") -> None:
        super().__init__(client)
        self._clock = clock
        self._roster = f"{prefix}2:{{members}}"
        self.busy = self.works = 0
        _WIRES.add(self)

    async def open(self) -> str:
        with self._at_work():
            run_id = await super().open()
            await self._join_long_ago(run_id)
            return run_id

    async def run_id(self) -> str:
        with self._at_work():
            return await super().run_id()

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        with self._at_work():
            return await super().exchange(calls, rosters)

    async def _join_long_ago(self, run_id: str) -> None:
        """Let the round be old, so that no host has to wait for its begin."""
        if self._roster and self._connection is not None:
            words = (1, "report", run_id, "", 0, "0", "0", "0", 1, 1)
            call = ScriptCall(Script.MEMBER, (self._roster, f"{self._roster}:all"), words)
            command = super()._command_of(call)
            began_us = int((self._clock.monotonic() + 1e9 - 10 * DAY_S) * 1e6)
            for at_us in (began_us, began_us + 2):
                await self._send([(*command, at_us)])

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self.busy += 1
        self.works += 1
        try:
            yield
        finally:
            self.busy -= 1

    def _source(self, script: Script) -> str:
        return _MANUAL_TIME + super()._source(script)

    def _command_of(self, call: ScriptCall) -> tuple[str | int, ...]:
        return (*super()._command_of(call), int((self._clock.monotonic() + 1e9) * 1e6))


@cache
def _redis() -> SyncRedis:
    return SyncRedis.from_url(shared_server().url)


async def settle() -> None:
    """Let every task run as far as it can without time passing, and every question to a Redis be answered."""
    works = -1
    while works != (works := sum(wire.works for wire in _WIRES)):
        if works:
            _redis().ping()  # the answer comes after all that Redis has published, as it answers in turn
        for _ in range(20):  # what Redis has published comes by a socket, though all tasks wait
            await asyncio.sleep(0)
        while any(wire.busy for wire in _WIRES):
            await asyncio.sleep(0.0002)
            works = -1


def fleet_pacer(
    options: PacingOptions,
    clock: Clock,
    publisher: Publisher,
    prefix: str = "",
    wire_type: type[ManualWire] = ManualWire,
) -> Hosts:
    """Return a member of the fleet of a prefix; the only one if there is none."""
    prefix = prefix or f"{token_hex(6)}:"
    wire = wire_type(client_at(shared_server().url), clock, prefix)
    fleet = FleetOptions(prefix=prefix, lease_s=DAY_S, timeout_s=10.0, max_slack_s=0.001)
    tickets = Tickets(wire, fleet, clock=clock, publisher=publisher)
    tickets.first_lease_s = DAY_S  # the link renews leases by real time
    resolver = Resolving({})
    return Hosts(options, clock=clock, jitter=lambda: 0.0, publisher=publisher, resolver=resolver, fleet=tickets)


def scoped_fleet_pacer(options: PacingOptions, clock: Clock, publisher: Publisher) -> Hosts:
    """Return the only member of a fleet, with a wider scope that never binds."""
    return fleet_pacer(replace(options, domain=Limit(min_delay_s=0.0, max_concurrent=10_000)), clock, publisher)
