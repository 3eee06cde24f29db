"""A pacer of a fleet on a real Redis whose clock the test moves, so that it keeps the time of a ManualClock.

Time stands still while a message travels: so nothing is late, and the slack is the least there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from secrets import token_hex
from typing import Final
from weakref import WeakSet

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse._base.constants import DAY_S
from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.messages import Reply, ScriptCall, Server
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.scripts import Script
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

    def __init__(self, client: Redis, clock: Clock) -> None:
        super().__init__(client)
        self._clock = clock
        self.busy = self.works = 0
        _WIRES.add(self)

    async def open(self, *channels: str) -> Server:
        with self._at_work():
            return (await super().open(*channels))._replace(uptime_s=10 * DAY_S)

    async def server(self) -> Server:
        with self._at_work():
            return (await super().server())._replace(uptime_s=10 * DAY_S)

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        with self._at_work():
            return await super().exchange(calls, epochs)

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
) -> FleetPacer:
    """Return a member of the fleet of a prefix; the only one if there is none."""
    wire = wire_type(client_at(shared_server().url), clock)
    fleet = FleetOptions(prefix=prefix or f"{token_hex(6)}:", lease_s=DAY_S, timeout_s=10.0, max_slack_s=0.001)
    link = FleetLink(wire, fleet, clock=clock, publisher=publisher)
    make = partial(Hosts, clock=clock, jitter=lambda: 0.0, publisher=publisher, resolver=Resolving({}))
    return FleetPacer(options, link, make, clock=clock, publisher=publisher)


def scoped_fleet_pacer(options: PacingOptions, clock: Clock, publisher: Publisher) -> FleetPacer:
    """Return the only member of a fleet, with a wider scope that never binds."""
    return fleet_pacer(replace(options, domain=Limit(min_delay_s=0.0, max_concurrent=10_000)), clock, publisher)
