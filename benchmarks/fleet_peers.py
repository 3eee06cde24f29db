"""Ways for several processes to space their requests to a host by one Redis: politesse's, and those of the peers.

The peers limit a rate from start to start; each is asked for one request an interval, and waits as its own interface
offers. Those that are not installed are left out.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.asyncio import Redis

from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse.clock import SystemClock
from politesse.events import Publisher
from politesse.ports import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse._pacing.fleet.messages import Reply, ScriptCall
    from politesse.ports import Permit


class SharedLine(Protocol):
    """Hosts that several processes share."""

    calls: int

    async def start(self, host: str) -> float:
        """Wait for leave to make a request; return when it was given."""

    def end(self, host: str) -> None:
        """End the request."""


class _CountingWire(RedisWire):
    """Counts the scripts that are run."""

    calls = 0

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        self.calls += len(calls)
        return await super().exchange(calls)


class PolitesseFleet:
    """The pacer of a fleet."""

    def __init__(self, url: str, interval_s: float) -> None:
        clock, publisher = SystemClock(), Publisher()
        self._wire = _CountingWire.of_url(url)
        link = FleetLink(self._wire, FleetOptions(), clock=clock, publisher=publisher)
        make = partial(LocalPacer, clock=clock)
        options = PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0)
        self._pacer = FleetPacer(options, link, make, clock=clock, publisher=publisher)
        self._permits: dict[str, Permit] = {}

    @property
    def calls(self) -> int:
        return self._wire.calls

    @calls.setter
    def calls(self, calls: int) -> None:
        self._wire.calls = calls

    async def start(self, host: str) -> float:
        self._permits[host] = await self._pacer.start(TurnRequest(host, host, "ExampleBot"))
        return time.monotonic()

    def end(self, host: str) -> None:
        permit = self._permits[host]
        permit.observe(200, {})
        permit.end()


class LimitsLine:
    """``limits``: a moving window for each host; whoever is refused sleeps until the window says."""

    def __init__(self, url: str, interval_s: float) -> None:
        from limits import RateLimitItemPerSecond  # noqa: PLC0415 - may be missing
        from limits.aio.storage import RedisStorage  # noqa: PLC0415
        from limits.aio.strategies import MovingWindowRateLimiter  # noqa: PLC0415

        storage = RedisStorage(f"async+{url}", implementation="redispy")
        self._limiter = MovingWindowRateLimiter(storage)
        self._item = RateLimitItemPerSecond(1, int(interval_s))
        self.calls = 0

    async def start(self, host: str) -> float:
        while True:
            self.calls += 1
            if await self._limiter.hit(self._item, host):
                return time.monotonic()
            self.calls += 1
            stats = await self._limiter.get_window_stats(self._item, host)
            await asyncio.sleep(max(0.001, stats.reset_time - time.time()))

    def end(self, host: str) -> None:
        """Nothing counts from the end."""


class PyrateLine:
    """``pyrate-limiter``: a bucket for each host, and its own way to wait."""

    def __init__(self, url: str, interval_s: float) -> None:
        import pyrate_limiter  # noqa: PLC0415 - may be missing

        self._pyrate = pyrate_limiter
        self._redis = Redis.from_url(url)
        self._rates = [pyrate_limiter.Rate(1, int(interval_s * 1000))]
        self._limiters: dict[str, asyncio.Task[Any]] = {}
        self.calls = 0

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
            store=throttled.RedisStore(server=url),
            timeout=3600,
        )
        self.calls = 0

    async def start(self, host: str) -> float:
        await self._throttle.limit(host)
        return time.monotonic()

    def end(self, host: str) -> None:
        """Nothing counts from the end."""


POLITESSE: Final = "politesse, FleetPacer"

LINES: Final[Mapping[str, Callable[[str, float], SharedLine]]] = {
    POLITESSE: PolitesseFleet,
    "throttled-py, gcra": ThrottledLine,
    "limits, moving window": LimitsLine,
    "pyrate-limiter, bucket a host": PyrateLine,
}
