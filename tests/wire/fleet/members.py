"""Members of a fleet in one process: each has a link of its own, as processes have."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from politesse import PacingOptions
from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.messages import Reply, ScriptCall
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import FleetWire, RedisWire, wire_to
from politesse._pacing.local import LocalPacer
from politesse.clock import Clock, SystemClock
from politesse.events import Event, Publisher
from politesse.options import FleetOptions
from politesse.ports import Pacer
from tests.support.pacing import finish, wants
from tests.support.redis_servers import client_at

OTHER_TIME: Final = """
local server = redis
local redis = setmetatable({call = function(name, ...)
    if name == 'TIME' then
        local time = server.call('TIME')
        local micros = (time[1] * 1000000 + time[2]) %s
        return {math.floor(micros / 1000000), micros - math.floor(micros / 1000000) * 1000000}
    end
    return server.call(name, ...)
end}, {__index = server})
"""


class CountingWire(RedisWire):
    """Counts the round trips of scripts."""

    trips = 0

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        self.trips += 1
        return await super().exchange(calls, epochs)


class ShiftedWire(RedisWire):
    """Has scripts add to their time what a key holds, in seconds."""

    def __init__(self, url: str, shift_key: str) -> None:
        super().__init__(client_at(url))
        self._shift_key = shift_key

    def _source(self, script: Script) -> str:
        return OTHER_TIME % f"+ (server.call('GET', '{self._shift_key}') or 0) * 1000000" + super()._source(script)


class FastWire(RedisWire):
    """Has scripts read a clock that runs 2 % too fast."""

    def _source(self, script: Script) -> str:
        return OTHER_TIME % "* 1.02" + super()._source(script)


def pacer_of(options: PacingOptions, link: FleetLink, clock: Clock, publisher: Publisher) -> FleetPacer:
    make = partial(LocalPacer, clock=clock, publisher=publisher)
    return FleetPacer(options, link, make, clock=clock, publisher=publisher)


async def visit(pacer: Pacer, status: int | None = 200) -> float:
    """Make one request; return when it was permitted."""
    permit = await pacer.start(wants())
    started_mono = time.monotonic()
    finish(permit, status)
    return started_mono


class Members:
    """Makes members of a fleet, and closes them.

    Attributes:
        events: what they have published.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self._clock = SystemClock()
        self._publisher = Publisher()
        self._made: list[FleetPacer] = []
        self.events: list[Event] = []
        self._publisher.subscribe(self.events.append)

    def link(self, url: str = "", prefix: str = "", lease_s: float = 10.0) -> FleetLink:
        options = FleetOptions(prefix=prefix or self._prefix, lease_s=lease_s)
        return self.link_of(wire_to(url or self._url), options)

    def link_of(self, wire: FleetWire, options: FleetOptions | None = None) -> FleetLink:
        options = options or FleetOptions(prefix=self._prefix, lease_s=10.0)
        return FleetLink(wire, options, clock=self._clock, publisher=self._publisher)

    def member(self, options: PacingOptions | None = None, link: FleetLink | None = None) -> FleetPacer:
        options = options or PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
        pacer = pacer_of(options, link or self.link(), self._clock, self._publisher)
        self._made.append(pacer)
        return pacer

    async def aclose(self) -> None:
        for pacer in self._made:
            await pacer.aclose()
