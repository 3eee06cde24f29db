"""Members of a fleet in one process: each has a link of its own, as processes have."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Final

from politesse import PacingOptions
from politesse._pacing.fleet.messages import Reply, Script, ScriptCall, WireLost
from politesse._pacing.fleet.tickets import Tickets
from politesse._pacing.fleet.wire import FleetWire, RedisWire, wire_to
from politesse._pacing.hosts import Hosts
from politesse.clock import SystemClock
from politesse.events import ComponentFailed, Event, FleetAway, Publisher
from politesse.options import FleetOptions
from politesse.testing import ManualClock
from tests.contract.pacers.fleet_pacer import ManualWire
from tests.support.pacing import Pacer, finish, wants
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

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        self.trips += 1
        return await super().exchange(calls, rosters)


class HeldWire(CountingWire):
    """Sends no round trip from number ``held_from`` on until ``open_to`` is set."""

    def __init__(self, url: str) -> None:
        super().__init__(client_at(url))
        self.open_to = asyncio.Event()
        self.held_from = inf

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        if self.trips >= self.held_from:
            await self.open_to.wait()
        return await super().exchange(calls, rosters)


class OtherTimeWire(RedisWire):
    """Has scripts read another clock: ``change`` is what Lua adds to the time, in microseconds."""

    def __init__(self, url: str, change: str) -> None:
        super().__init__(client_at(url))
        self._change = change

    def _source(self, script: Script) -> str:
        return OTHER_TIME % self._change + super()._source(script)


MakeMember = Callable[..., Hosts]


class SlowProcess(ManualWire):
    """Its process comes to each answer about a start a quarter of a second late."""

    reserved = 0

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        replies = await super().exchange(calls, rosters)
        if any(call.script is Script.STEP and len(call.args) > 10 for call in calls):
            assert isinstance(self._clock, ManualClock)
            self._clock.advance(0.25)
            type(self).reserved += 1
        return replies


class CutWire(ManualWire):
    """A wire that breaks once ``cut`` is true."""

    cut = False

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        if self.cut:
            raise WireLost("cut")
        return await super().exchange(calls, rosters)


async def visit(pacer: Pacer, status: int | None = 200) -> float:
    """Make one request; return when it was permitted."""
    permit = await pacer.start(wants())
    started_mono = time.monotonic()
    finish(permit, status)
    return started_mono


Span = tuple[float, float]


async def crawl(pacer: Pacer, spans: list[Span], times: int = 1_000_000) -> None:
    """Make requests of 50 ms, one after the other."""
    for _ in range(times):
        permit = await pacer.start(wants())
        began_mono = time.monotonic()
        await asyncio.sleep(0.05)
        spans.append((began_mono, time.monotonic()))
        finish(permit, 200)


def least_gap_s(spans: list[Span]) -> float:
    return min(later[0] - earlier[1] for earlier, later in pairwise(sorted(spans)))


class Members:
    """Makes members of a fleet, and closes them.

    Attributes:
        events: what they have published.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._options = FleetOptions(prefix=prefix, lease_s=10.0)
        self._publisher = Publisher()
        self._made: list[Hosts] = []
        self.events: list[Event] = []
        self._publisher.subscribe(self.events.append)

    @property
    def aways(self) -> list[str]:
        """Why Redis was away, each time."""
        return [event.error for event in self.events if isinstance(event, FleetAway)]

    @property
    def failures(self) -> list[str]:
        return [str(event.error) for event in self.events if isinstance(event, ComponentFailed)]

    def member(
        self,
        options: PacingOptions | None = None,
        *,
        url: str = "",
        wire: FleetWire | None = None,
        fleet: FleetOptions | None = None,
    ) -> Hosts:
        clock, publisher = SystemClock(), self._publisher
        wire, fleet = wire or wire_to(url or self._url), fleet or self._options
        tickets = Tickets(wire, fleet, clock=clock, publisher=publisher)
        options = options or PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
        self._made.append(Hosts(options, clock=clock, publisher=publisher, fleet=tickets))
        return self._made[-1]

    async def aclose(self) -> None:
        for pacer in self._made:
            await pacer.aclose()
