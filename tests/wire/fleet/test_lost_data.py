"""A Redis that loses data, or is silent: nothing starts too early, and the fleet goes on soon."""

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse.errors import TooFar
from politesse.events import FleetAway
from politesse.ports import Pacer
from tests.support.pacing import HOST, finish, wants
from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.wire.fleet.crawls import Crawl, Host
from tests.wire.fleet.members import Members, visit
from tests.wire.fleet.site import ObservedSite
from tests.wire.fleet.slow_way import SlowWay
from tests.wire.fleet.switch import Switch

pytestmark = pytest.mark.realtime

SOON_S: Final = 6.0  # well below lease_s, on a loaded machine too


@pytest.fixture
def own_server(redis_server: RedisServer) -> RedisServer:
    return redis_server


@pytest.fixture
async def fleet(own_server: RedisServer) -> AsyncIterator[Members]:
    members = Members(own_server.url, "fleet:")
    yield members
    await members.aclose()


async def crawl(pacer: Pacer, spans: list[tuple[float, float]], requests: int) -> None:
    for _ in range(requests):
        permit = await pacer.start(wants(), 30.0)
        began_mono = time.monotonic()
        await asyncio.sleep(0.05)
        spans.append((began_mono, time.monotonic()))
        finish(permit, 200)


@asynccontextmanager
async def processes(url: str, site: ObservedSite, hosts: tuple[Host, ...], number: int) -> AsyncIterator[list[Process]]:
    crawl = Crawl(url, "fleet:", site.port, hosts, lease_s=8.0).to_json()
    workers = [await started("fleet.worker", crawl, str(place)) for place in range(number)]
    async with asyncio.timeout(60.0):
        while len({visit.worker for visit in site.visits}) < number:
            await asyncio.sleep(0.02)
    try:
        yield workers
    finally:
        for process in workers:
            process.kill()
            await process.wait()


@pytest.mark.full
async def test_a_stopped_process_is_waited_for_after_redis_starts_empty(own_server: RedisServer) -> None:
    hosts = tuple(Host(f"host{number}", 0.1, 2.5) for number in range(6))
    async with ObservedSite(hosts) as site, processes(own_server.url, site, hosts, 2) as started:
        async with asyncio.timeout(30.0):
            while len({visit.host for visit in site.visits if visit.worker == 0 and visit.end_mono > 1e9}) < 2:
                await asyncio.sleep(0.02)
        started[0].send_signal(signal.SIGSTOP)
        own_server.kill()
        own_server.start()
        await asyncio.sleep(3.0)
        started[0].send_signal(signal.SIGCONT)
        back_mono = time.monotonic()
        async with asyncio.timeout(20.0):
            while not site.since(back_mono):
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
    spans = sorted((visit.host, visit.start_mono, visit.end_mono) for visit in site.visits)
    overlaps = [(one, other) for one, other in pairwise(spans) if one[0] == other[0] and other[1] < one[2] + 0.1]
    assert overlaps == []


async def test_lost_keys_are_noticed_before_anything_starts(fleet: Members, own_server: RedisServer) -> None:
    members = [fleet.member(link=fleet.link(own_server.url)) for _ in range(2)]
    for pacer in members:
        await visit(pacer)
    held = await members[0].start(wants())
    async with Redis.from_url(own_server.url) as client:
        await client.flushall()
    with pytest.raises(TooFar):
        await members[1].start(wants(), 3.0)
    finish(held, 200)
    flushed_mono = time.monotonic()
    await visit(members[1])
    assert 0.1 <= time.monotonic() - flushed_mono <= SOON_S
    assert any("lost data" in event.error for event in fleet.events if isinstance(event, FleetAway))


@pytest.mark.full
async def test_a_redis_that_goes_on_from_an_older_snapshot_is_used_again_soon(
    fleet: Members, own_server: RedisServer
) -> None:
    members = [fleet.member(link=fleet.link(own_server.url)) for _ in range(2)]
    await visit(members[1])
    held = await members[0].start(wants())
    async with Redis.from_url(own_server.url) as client:
        await client.save()
    finish(held, 200)  # the snapshot has its lease
    await visit(members[1])
    own_server.kill()
    own_server.start()
    back_mono = time.monotonic()
    spans: list[tuple[float, float]] = []
    await asyncio.gather(*(crawl(pacer, spans, 2) for pacer in members))
    assert time.monotonic() - back_mono <= SOON_S
    assert all(later[0] - earlier[1] >= 0.1 for earlier, later in pairwise(sorted(spans))), spans


@pytest.mark.full
async def test_a_grant_that_arrives_after_its_connection_was_lost_holds_up_nobody(
    fleet: Members, own_server: RedisServer
) -> None:
    async with SlowWay(own_server.port, 0.0) as way:
        late, other = fleet.member(link=fleet.link(way.url)), fleet.member(link=fleet.link(own_server.url))
        await visit(late)
        await visit(other)
        way.trip_s = 5.0
        waiting = asyncio.create_task(late.start(wants()))
        await asyncio.sleep(0.5)
        way.trip_s = 0.0
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(2.5)
        asked_mono = time.monotonic()
        await visit(other)
        assert time.monotonic() - asked_mono <= SOON_S
        await fleet.aclose()


@pytest.mark.full
async def test_the_host_of_a_process_that_is_gone_goes_on_when_its_lease_ends(
    fleet: Members, own_server: RedisServer
) -> None:
    async with SlowWay(own_server.port, 0.0) as way:
        gone = fleet.member(link=fleet.link(way.url, lease_s=4.0))
        other = fleet.member(link=fleet.link(own_server.url, lease_s=4.0))
        await visit(other)
        held = await gone.start(wants())
        started_mono = time.monotonic()
        way.trip_s = 1000.0
        await asyncio.sleep(1.5)
        assert 3.9 <= await visit(other) - started_mono <= 4.0 + 1.0
        finish(held, 200)
        await fleet.aclose()


@pytest.mark.full
@pytest.mark.parametrize("trip_s", [0.4, 0.5])
async def test_a_redis_that_is_half_a_second_away_serves_a_fleet(
    fleet: Members, own_server: RedisServer, trip_s: float
) -> None:
    async with SlowWay(own_server.port, trip_s) as way:
        pacer = fleet.member(link=fleet.link(way.url))
        starts = [await visit(pacer) for _ in range(3)]
        assert all(later - earlier >= 0.1 for earlier, later in pairwise(starts))
        assert [event for event in fleet.events if isinstance(event, FleetAway)] == []
        await fleet.aclose()


@pytest.mark.full
async def test_a_silent_redis_is_noticed_soon_while_requests_are_under_way(
    fleet: Members, own_server: RedisServer
) -> None:
    async with Switch(own_server.port) as switch:
        pacer = fleet.member(PacingOptions(min_delay_s=0.1, max_concurrent=2), fleet.link(switch.url))
        held = await pacer.start(wants())
        switch.swallow()
        silent_mono = time.monotonic()
        async with asyncio.timeout(10.0):
            while not fleet.events:
                await asyncio.sleep(0.01)
        assert time.monotonic() - silent_mono <= 2.0  # 1.5 s by the guide
        finish(held, 200)
        await fleet.aclose()


@pytest.mark.full
async def test_a_host_is_named_that_waits_for_a_process_that_has_not_reported(
    fleet: Members, own_server: RedisServer
) -> None:
    async with Switch(own_server.port) as switch:
        gone, other = fleet.member(link=fleet.link(switch.url)), fleet.member(link=fleet.link(own_server.url))
        await visit(gone)
        await visit(other)
        switch.swallow()
        switch.backend_port = 1
        own_server.kill()
        own_server.start()
        with pytest.raises(TooFar, match="by fleet"):
            await other.start(wants(host=HOST), 4.0)
        assert any("until these processes have reported" in str(event) for event in fleet.events)
        await fleet.aclose()
