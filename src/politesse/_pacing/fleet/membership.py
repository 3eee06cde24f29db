"""How a process joins a fleet: the wire to its Redis, and a pacer for each scope; needs the extra ``redis``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._pacing.fleet.cluster_wire import ClusterWire
from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.wire import RedisWire
from politesse._redis.clients import is_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.reserver import ProcessPacer
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.events import Publisher


class Membership:
    """What a gate needs to join a fleet. Nothing connects before the first turn.

    Args:
        fleet: see FleetOptions.
        clock: the clocks and the timer.

    Attributes:
        fleet: see FleetOptions.

    Raises:
        ConfigurationError: its URL is none.
    """

    def __init__(self, fleet: FleetOptions, clock: Clock) -> None:
        self.fleet = fleet
        self._clock = clock
        self._wire = (ClusterWire if is_cluster(fleet.url) else RedisWire).of_url(fleet.url)

    def join(
        self, make: Callable[[PacingOptions], ProcessPacer], publisher: Publisher
    ) -> Callable[[PacingOptions], FleetPacer]:
        """Return what makes the pacer of each scope; all of them share one link. Call it once.

        Args:
            make: makes the pacer of this process, for one scope.
            publisher: receives FleetAway, FleetBack and TurnExpired.
        """
        link = FleetLink(self._wire, self.fleet, clock=self._clock, publisher=publisher)

        def scope(options: PacingOptions) -> FleetPacer:
            return FleetPacer(options, link, make, clock=self._clock, publisher=publisher)

        return scope
