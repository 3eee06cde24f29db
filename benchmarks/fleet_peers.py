"""Ways for several processes to space their requests to a host by one Redis: politesse and its peers.

The peers limit a rate from start to start: each has a limit of one request an interval, and waits by its own interface.
Peers that are not installed are left out. They use a connection for each task, and redis-py opens 100 at most unless
the URL permits more.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.asyncio import Redis

from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.fleet.tickets import Tickets
from politesse._pacing.fleet.wire import wire_to
from politesse._pacing.hosts import Hosts, TurnRequest
from politesse._pacing.pace import PacingOptions
from politesse.clock import SystemClock
from politesse.events import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._pacing.fleet.wire import FleetWire
    from politesse._pacing.hosts import Permit


class SharedLine(Protocol):
    """Hosts that several processes share."""

    async def start(self, host: str) -> float:
        """Wait for leave to make a request; return when it was given."""

    def end(self, host: str) -> None:
        """End the request."""


def pacer_at(wire: FleetWire, interval_s: float, fleet: FleetOptions | None = None) -> Hosts:
    """Return the pacer of one process of a fleet; no site makes it slower than the interval."""
    clock, publisher = SystemClock(), Publisher()
    tickets = Tickets(wire, fleet or FleetOptions(), clock=clock, publisher=publisher)
    options = PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0)
    return Hosts(options, clock=clock, publisher=publisher, fleet=tickets)


class PolitesseFleet:
    """The pacer of a fleet."""

    def __init__(self, url: str, interval_s: float) -> None:
        self._pacer = pacer_at(wire_to(url), interval_s)
        self._permits: dict[str, Permit] = {}

    async def start(self, host: str) -> float:
        self._permits[host] = await self._pacer.start(TurnRequest(host, host, "ExampleBot"))
        return time.monotonic()

    def end(self, host: str) -> None:
        permit = self._permits.pop(host)
        permit.observe(200, {})
        permit.end()


class LimitsLine:
    """``limits``: a moving window for each host; whoever is refused sleeps until the window says."""

    def __init__(self, url: str, interval_s: float) -> None:
        from limits import RateLimitItemPerSecond  # noqa: PLC0415 - may be missing
        from limits.aio.storage import RedisStorage  # noqa: PLC0415
        from limits.aio.strategies import MovingWindowRateLimiter  # noqa: PLC0415

        storage = RedisStorage(f"async+{_roomy(url)}", implementation="redispy")
        self._limiter = MovingWindowRateLimiter(storage)
        self._item = RateLimitItemPerSecond(1, int(interval_s))

    async def start(self, host: str) -> float:
        while True:
            if await self._limiter.hit(self._item, host):
                return time.monotonic()
            stats = await self._limiter.get_window_stats(self._item, host)
            await asyncio.sleep(max(0.001, stats.reset_time - time.time()))

    def end(self, host: str) -> None:
        """Nothing counts from the end."""


class PyrateLine:
    """``pyrate-limiter``: a bucket for each host, and its own way to wait."""

    def __init__(self, url: str, interval_s: float) -> None:
        import pyrate_limiter  # noqa: PLC0415 - may be missing

        self._pyrate = pyrate_limiter
        self._redis = Redis.from_url(_roomy(url))
        self._rates = [pyrate_limiter.Rate(1, int(interval_s * 1000))]
        self._limiters: dict[str, asyncio.Task[Any]] = {}

    async def start(self, host: str) -> float:
        if host not in self._limiters:
            self._limiters[host] = asyncio.create_task(self._limiter(host))
        limiter = await self._limiters[host]
        await limiter.try_acquire_async(host)
        return time.monotonic()

    def end(self, host: str) -> None:
        """Nothing counts from the end."""

    async def _limiter(self, host: str) -> Any:  # noqa: ANN401 - it may have no types
        bucket = await self._pyrate.RedisBucket.init(self._rates, self._redis, f"pyrate:{host}")
        return self._pyrate.Limiter(bucket)


class ThrottledLine:
    """``throttled-py``: GCRA with a burst of one, and its own way to wait."""

    def __init__(self, url: str, interval_s: float) -> None:
        from throttled import asyncio as throttled  # noqa: PLC0415 - may be missing

        self._throttle = throttled.Throttled(
            using="gcra",
            quota=throttled.per_duration(timedelta(seconds=interval_s), 1, burst=1),
            store=throttled.RedisStore(server=_roomy(url)),
            timeout=3600,
        )

    async def start(self, host: str) -> float:
        await self._throttle.limit(host)
        return time.monotonic()

    def end(self, host: str) -> None:
        """Nothing counts from the end."""


def _roomy(url: str) -> str:
    return f"{url}?max_connections=10000"


POLITESSE: Final = "politesse, fleet"

LINES: Final[Mapping[str, Callable[[str, float], SharedLine]]] = {
    POLITESSE: PolitesseFleet,
    "throttled-py, gcra": ThrottledLine,
    "limits, moving window": LimitsLine,
    "pyrate-limiter, bucket a host": PyrateLine,
}
