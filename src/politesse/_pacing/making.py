"""Makes the pacer for the options: Hosts, or for a fleet a FleetPacer; with scopes, a FleetPacer for each scope."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from politesse._base.text import needing
from politesse._pacing.hosts import Hosts
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.pacer import FleetPacer
    from politesse._pacing.fleet.scoped import ScopedPacer
    from politesse._pacing.fleet.wire import FleetWire
    from politesse._pacing.marks import Marks
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ports import Resolver


def make_pacer(
    options: PacingOptions,
    *,
    clock: Clock,
    publisher: Publisher,
    marks: Callable[[str], Marks],
    resolver: Resolver | None = None,
    jitter: Callable[[], float] = random.random,
    fleet: tuple[FleetOptions, FleetWire] | None = None,
) -> Hosts | ScopedPacer | FleetPacer:
    """Return a new pacer.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        publisher: receives the events of the pacer.
        marks: returns the marks that earlier pacers have left in a scope: host, address or domain.
        resolver: finds the addresses of hosts; needed if ``options.is_scoped``.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        fleet: the fleet that shares the pace, and the wire to its Redis, or None for this process alone.
    """

    def local(options: PacingOptions) -> Hosts:
        return Hosts(options, clock=clock, jitter=jitter, publisher=publisher, marks=marks)

    if fleet is None:
        return Hosts(options, clock=clock, jitter=jitter, publisher=publisher, marks=marks, resolver=resolver)
    from politesse._pacing.fleet.link import FleetLink  # noqa: PLC0415 - only a fleet needs these
    from politesse._pacing.fleet.pacer import FleetPacer  # noqa: PLC0415
    from politesse._pacing.fleet.scoped import ScopedPacer  # noqa: PLC0415

    options_of_fleet, wire = fleet
    link = FleetLink(wire, options_of_fleet, clock=clock, publisher=publisher)
    member = partial(FleetPacer, link=link, make=local, clock=clock, publisher=publisher)
    if resolver is not None and options.is_scoped:
        return ScopedPacer(options, member, clock=clock, resolver=resolver, publisher=publisher)
    return member(options)


def fleet_wire(fleet: FleetOptions) -> tuple[FleetOptions, FleetWire]:
    """Return a fleet and a new wire to its Redis; the wire is not connected yet.

    Raises:
        ConfigurationError: the URL of the fleet is not a URL of Redis, or the extra ``redis`` is missing.
    """
    with needing(f"fleet={fleet!r}: pacing by a fleet", "redis", ConfigurationError):
        from politesse._pacing.fleet.wire import wire_to  # noqa: PLC0415 - an extra
    return fleet, wire_to(fleet.url)
