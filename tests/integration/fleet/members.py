"""Members of a fleet in one process: each has a link of its own, as processes have."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse._pacing.scoped import ScopedPacer
from politesse.clock import SystemClock
from politesse.events import Publisher
from tests.support.pacing import Resolving, finish, wants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse._pacing.fleet.messages import FleetWire
    from politesse.events import Event
    from politesse.ports import Pacer


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

    def __init__(self, wire: Callable[[], FleetWire], prefix: str) -> None:
        self._wire = wire
        self._prefix = prefix
        self._clock = SystemClock()
        self._publisher = Publisher()
        self._made: list[FleetPacer | ScopedPacer] = []
        self.events: list[Event] = []
        self._publisher.subscribe(self.events.append)

    def link(self, url: str = "", prefix: str = "") -> FleetLink:
        return self.link_of(RedisWire.of_url(url) if url else self._wire(), prefix)

    def link_of(self, wire: FleetWire, prefix: str = "") -> FleetLink:
        options = FleetOptions(prefix=prefix or self._prefix, lease_s=10.0)
        return FleetLink(wire, options, clock=self._clock, publisher=self._publisher)

    def member(self, options: PacingOptions | None = None, link: FleetLink | None = None) -> FleetPacer:
        options = options or PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
        pacer = self._pacer(options, link or self.link())
        self._made.append(pacer)
        return pacer

    def scoped_member(self, options: PacingOptions, addresses: Mapping[str, Sequence[str]]) -> ScopedPacer:
        link, publisher = self.link(), self._publisher
        make = partial(self._pacer, link=link)
        pacer = ScopedPacer(options, make, clock=self._clock, resolver=Resolving(addresses), publisher=publisher)
        self._made.append(pacer)
        return pacer

    async def aclose(self) -> None:
        for pacer in self._made:
            await pacer.aclose()

    def _pacer(self, options: PacingOptions, link: FleetLink) -> FleetPacer:
        local = partial(LocalPacer, clock=self._clock, publisher=self._publisher)
        return FleetPacer(options, link, local, clock=self._clock, publisher=self._publisher)
