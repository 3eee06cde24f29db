"""Several processes are one polite crawler, whatever happens to them or to their Redis.

They need processors of their own for many seconds: run with ``pytest -m weekly tests/wire/fleet``.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import pytest
from redis.asyncio import Redis

from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.sites import until
from tests.wire.fleet.crawls import Crawl, Host, ObservedSite, violations
from tests.wire.fleet.proxies import SlowWay

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.wire.fleet.crawls import Visit

    Disturb = Callable[["Fleet", float], Awaitable[None]]

pytestmark = [pytest.mark.realtime, pytest.mark.weekly]

SMALL: Final = (
    *(Host(f"quick{number}", 0.1, 0.02) for number in range(6)),
    *(Host(f"slow{number}", 0.5, 0.7) for number in range(3)),
    *(Host(f"long{number}", 0.5, 2.5) for number in range(3)),
    *(Host(f"rare{number}", 2.0, 0.02) for number in range(2)),
    *(Host(f"wide{number}", 0.1, 0.25, max_concurrent=3) for number in range(6)),
    Host("refusing", 0.1, 0.02, refuses_every=5),
    *(Host(f"refusing-wide{number}", 0.1, 0.1, 3, refuses_every=7) for number in range(3)),
)


FULL: Final = (
    *(Host(f"quick{number:03}", 0.1, 0.02) for number in range(180)),
    *(Host(f"wide{number:03}", 0.1, 0.25, max_concurrent=3) for number in range(10)),
    *(Host(f"refusing{number:03}", 0.1, 0.02, refuses_every=9) for number in range(10)),
    *(Host(f"slow{number:03}", 0.5, 3.0) for number in range(10)),
    *(Host(f"long{number:03}", 0.5, 3.0) for number in range(10)),
    *(Host(f"rare{number:03}", 2.0, 0.02) for number in range(2)),
)


@dataclass
class Fleet:
    """A Redis, a site, and the workers that crawl it."""

    server: RedisServer
    site: ObservedSite
    crawl: Crawl
    way: SlowWay | None
    workers: list[Process] = field(default_factory=list)

    def violations(self) -> list[str]:
        return list(violations(self.site.visits, self.crawl.hosts, self.crawl.backoff_s))

    def kill(self) -> None:
        for worker in self.workers:
            if worker.returncode is None:
                worker.kill()


@asynccontextmanager
async def fleet_of(
    workers: int, hosts: tuple[Host, ...], trip_s: float = 0.0, *, is_blind: bool = False
) -> AsyncIterator[Fleet]:
    """Start a fleet; the wall clock of its first worker is an hour wrong. ``trip_s`` is added to each round trip."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer())
        site = await stack.enter_async_context(ObservedSite(hosts))
        way = await stack.enter_async_context(SlowWay(server.port, trip_s)) if trip_s else None
        url = server.url if way is None else way.url
        crawl = Crawl(url, f"{token_hex(4)}:", site.port, hosts, is_blind=is_blind)
        fleet = Fleet(server, site, crawl, way)
        stack.callback(fleet.kill)
        for number in range(workers):
            own = replace(crawl, wall_offset_s=0.0 if number else 3600.0).to_json()
            fleet.workers.append(await started("wire.fleet.worker", own, str(number)))
        async with asyncio.timeout(90.0):
            while {visit.worker for visit in site.visits} != set(range(workers)):
                await asyncio.sleep(0.05)
        yield fleet
        fleet.kill()
        for worker in fleet.workers:
            await worker.wait()


async def nothing(fleet: Fleet, scale: float) -> None:
    await asyncio.sleep(3.0 * scale)


async def redis_stops_for_two_seconds(fleet: Fleet, scale: float) -> None:
    await asyncio.sleep(scale)
    fleet.server.stop()
    await asyncio.sleep(2.0)
    fleet.server.go_on()
    await asyncio.sleep(2.5 * scale)


async def redis_is_killed_and_starts_empty(fleet: Fleet, scale: float) -> None:
    for _ in range(2):
        await asyncio.sleep(scale)
        fleet.server.kill()
        fleet.server.start()
        await asyncio.sleep(2.0)
    await asyncio.sleep(scale)


async def redis_is_lost_during_long_requests(fleet: Fleet, scale: float) -> None:
    await until(lambda: any(_is_at("long", visit) and visit.end_mono == inf for visit in _recent(fleet, "start_mono")))
    fleet.server.kill()
    fleet.server.start()
    await asyncio.sleep(3.0 * scale)


async def redis_is_lost_after_an_end(fleet: Fleet, scale: float) -> None:
    for host in ("slow", "rare", "slow"):
        await until(lambda host=host: any(_is_at(host, visit) for visit in _recent(fleet, "end_mono")))  # type: ignore[misc]
        fleet.server.kill()
        fleet.server.start()
        await asyncio.sleep(1.5 * scale)


def _is_at(host: str, visit: Visit) -> bool:
    return visit.host.startswith(host)


def _recent(fleet: Fleet, stamp: str) -> list[Visit]:
    """Return the requests that have begun, or ended, a moment ago."""
    return [visit for visit in fleet.site.visits if 0.0 <= time.monotonic() - getattr(visit, stamp) < 0.1]


async def a_worker_stops_for_two_seconds(fleet: Fleet, scale: float) -> None:
    for _ in range(2):
        await asyncio.sleep(0.5 * scale)
        fleet.workers[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        fleet.workers[0].send_signal(signal.SIGCONT)
        await asyncio.sleep(0.5 * scale)


async def a_worker_stops_again_and_again(fleet: Fleet, scale: float) -> None:
    for _ in range(6):
        await asyncio.sleep(0.3 * scale)
        fleet.workers[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.6)
        fleet.workers[0].send_signal(signal.SIGCONT)


async def a_worker_is_killed(fleet: Fleet, scale: float) -> None:
    await asyncio.sleep(scale)
    fleet.workers[0].kill()
    await asyncio.sleep(3.0 * scale)


DISTURBANCES: Final = (
    nothing,
    redis_stops_for_two_seconds,
    redis_is_killed_and_starts_empty,
    redis_is_lost_during_long_requests,
    redis_is_lost_after_an_end,
    a_worker_stops_for_two_seconds,
    a_worker_stops_again_and_again,
    a_worker_is_killed,
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("workers", "hosts", "scale"), [(2, SMALL, 1.0), (2, FULL, 6.0), (4, FULL, 6.0)], ids=["2-few", "2", "4"]
)
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda disturb: disturb.__name__)
async def test_processes_are_polite_whatever_happens(
    disturb: Disturb, workers: int, hosts: tuple[Host, ...], scale: float
) -> None:
    async with fleet_of(workers, hosts) as fleet:
        await disturb(fleet, scale)
        late = fleet.site.since(time.monotonic() - min(scale, 2.0))
    assert fleet.violations() == []
    assert late, "it goes on"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("workers", [2, 4])
async def test_processes_are_polite_though_redis_is_far_away(workers: int) -> None:
    async with fleet_of(workers, FULL, trip_s=0.02) as fleet:
        assert fleet.way is not None
        for trip_s in (0.02, 0.1, 0.0, 0.05) * 3:  # each change makes some answers late, and others early
            fleet.way.trip_s = trip_s
            await asyncio.sleep(1.5)
    assert fleet.violations() == []


STRESSED: Final = tuple(Host(f"host{number}", 0.5, 0.05) for number in range(50))


async def _stress(fleet: Fleet, visits: int) -> None:
    """Let one thing after the other happen until the site has seen so many requests."""
    client, random = Redis.from_url(fleet.server.url), Random(1)

    async def redis_starts_empty() -> None:
        fleet.server.kill()
        await asyncio.sleep(random.choice([0.0, 1.0]))
        fleet.server.start()
        await client.connection_pool.disconnect()

    async def a_worker_is_replaced() -> None:
        place = random.randrange(len(fleet.workers))
        fleet.workers[place].kill()
        await fleet.workers[place].wait()
        fleet.workers[place] = await started("wire.fleet.worker", fleet.crawl.to_json(), str(place))

    async def a_worker_stops() -> None:
        worker = random.choice(fleet.workers)
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(random.choice([0.5, 3.0, 7.0]))
        worker.send_signal(signal.SIGCONT)

    async def redis_stops() -> None:
        fleet.server.stop()
        await asyncio.sleep(random.choice([0.5, 3.0]))
        fleet.server.go_on()

    faults: list[Callable[[], Awaitable[object]]] = [
        client.flushall,
        client.script_flush,
        lambda: client.client_kill_filter(_type="normal", skipme=True),
        redis_starts_empty,
        redis_stops,
        a_worker_is_replaced,
        a_worker_stops,
    ]
    try:
        while len(fleet.site.visits) < visits:
            for fault in random.sample(faults, len(faults)):
                await asyncio.sleep(random.uniform(0.5, 3.0))
                await fault()
    finally:
        await client.aclose()


@pytest.mark.timeout(900)
async def test_processes_are_polite_though_everything_happens() -> None:
    async with fleet_of(4, STRESSED) as fleet:
        await _stress(fleet, 10_000)
    assert fleet.violations() == []


@pytest.mark.timeout(900)
async def test_the_stress_finds_processes_that_do_not_notice_lost_data() -> None:
    async with fleet_of(4, STRESSED, is_blind=True) as fleet:
        await _stress(fleet, 2_500)
    assert fleet.violations() != []


async def test_nothing_starts_without_redis() -> None:
    async with fleet_of(2, SMALL) as fleet:
        await asyncio.sleep(1.0)
        fleet.server.kill()
        await asyncio.sleep(0.5)
        gone_mono = time.monotonic()
        await asyncio.sleep(2.5)
    assert fleet.site.since(gone_mono) == []
    assert fleet.violations() == []
    assert fleet.site.visits
