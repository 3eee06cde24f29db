"""A Redis that loses data, is silent, or whose clock is set: nothing starts too early, and the fleet goes on soon.

The sleeps are real: leases and closures end by the clock of Redis, which is a process.
"""

import asyncio
import re
import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import Bound, Gatekeeper, PacingOptions
from politesse.errors import TooFar
from politesse.options import FleetOptions, SharedPacer
from politesse.stores import MemoryStore
from politesse.testing import ScriptedFetcher
from politesse.verdict import NotYet
from tests.support.pacing import HOST, Pacer, finish, wants
from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.sites import UA, until
from tests.wire.fleet.crawls import Crawl, Host, ObservedSite, Visit, violations
from tests.wire.fleet.members import Members, OtherTimeWire, Span, crawl, least_gap_s, visit
from tests.wire.fleet.proxies import SlowWay, Switch

pytestmark = pytest.mark.realtime

SOON_S: Final = 6.0  # well below lease_s, on a loaded machine too
HOUR_S: Final = 3_600


def test_the_observer_of_crawls_finds_whatever_is_impolite() -> None:
    alone, wide = Host("alone", 0.1, 0.0), Host("wide", 0.1, 0.0, max_concurrent=2)
    rows = {
        "": [Visit("alone", 0, 0.0, 0.0, 1.0), Visit("alone", 1, 1.1, 1.2, 2.0), Visit("wide", 1, 0.0, 0.0, 9.0)],
        "overlap at alone: -0.5000 s": [Visit("alone", 0, 0.0, 0.0, 1.0), Visit("alone", 1, 0.5, 0.5, 1.5)],
        "gap at alone: 0.0500 s": [Visit("alone", 0, 0.0, 0.0, 1.0), Visit("alone", 1, 1.1, 1.05, 2.0)],
        "gap at wide: 0.0500 s": [Visit("wide", 0, 0.0, 0.0, 1.0), Visit("wide", 1, 0.05, 0.3, 2.0)],
        "3 at once at wide": [Visit("wide", 0, sent_mono, sent_mono, 9.0) for sent_mono in (0.0, 1.0, 2.0)],
        "alone was asked 0.5000 s": [Visit("alone", 0, 0.0, 0.0, 1.0, refused=True), Visit("alone", 1, 1.5, 1.5, 2.0)],
        "wide was asked 0.5000 s": [
            Visit("wide", 0, 0.0, 0.0, 1.0, refused=True, noted_mono=1.2),
            Visit("wide", 1, 1.5, 1.5, 2.0),
        ],
    }
    found = {said: list(violations(visits, (alone, wide), 1.0)) for said, visits in rows.items()}
    assert found.pop("") == []
    assert [said for said, several in found.items() if not any(one.startswith(said) for one in several)] == []


@pytest.mark.full
async def test_stopped_process_is_waited_for_after_redis_starts_empty(own_server: RedisServer) -> None:
    hosts = tuple(Host(f"host{number}", 0.1, 2.5) for number in range(6))
    async with ObservedSite(hosts) as site:
        crawl = Crawl(own_server.url, "fleet:", site.port, hosts, lease_s=8.0).to_json()
        workers = [await started("wire.fleet.worker", crawl, str(place)) for place in range(2)]
        try:
            await until(lambda: {visit.worker for visit in site.visits} == {0, 1})
            await until(lambda: len({one.host for one in site.visits if one.worker == 0 and one.end_mono > 1e9}) >= 2)
            workers[0].send_signal(signal.SIGSTOP)
            own_server.kill()
            own_server.start()
            await asyncio.sleep(3.0)  # the other worker is a process: it goes on without the one that is stopped
            workers[0].send_signal(signal.SIGCONT)
            back_mono = time.monotonic()
            await until(lambda: bool(site.since(back_mono)))
            await asyncio.sleep(1.0)  # time for both processes to break the pace, if they do
        finally:
            for process in workers:
                process.kill()
                await process.wait()
    spans = sorted((visit.host, visit.start_mono, visit.end_mono) for visit in site.visits)
    overlaps = [(one, other) for one, other in pairwise(spans) if one[0] == other[0] and other[1] < one[2] + 0.1]
    assert overlaps == []


@pytest.mark.full
async def test_redis_that_goes_on_from_an_older_snapshot_is_used_again_soon(
    fleet: Members, own_server: RedisServer
) -> None:
    members = [fleet.member(url=own_server.url) for _ in range(2)]
    await visit(members[1])
    held = await members[0].start(wants())
    async with Redis.from_url(own_server.url) as client:
        await client.save()
    finish(held, 200)  # the snapshot has its lease
    await visit(members[1])
    own_server.kill()
    own_server.start()
    back_mono = time.monotonic()
    spans: list[Span] = []
    await asyncio.gather(*(crawl(pacer, spans, 2) for pacer in members))
    assert time.monotonic() - back_mono <= SOON_S
    assert least_gap_s(spans) >= 0.1


@pytest.mark.full
async def test_grant_that_arrives_after_its_connection_was_lost_holds_up_nobody(
    fleet: Members, own_server: RedisServer
) -> None:
    async with SlowWay(own_server.port, 0.0) as way:
        late, other = fleet.member(url=way.url), fleet.member(url=own_server.url)
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
async def test_host_of_a_process_that_is_gone_goes_on_when_its_lease_ends(
    fleet: Members, own_server: RedisServer, prefix: str
) -> None:
    async with SlowWay(own_server.port, 0.0) as way:
        options = FleetOptions(prefix=prefix, lease_s=4.0)
        gone, other = [fleet.member(url=url, fleet=options) for url in (way.url, own_server.url)]
        await visit(other)
        held = await gone.start(wants())
        started_mono = time.monotonic()
        way.trip_s = 1000.0
        await asyncio.sleep(1.5)
        assert 3.9 <= await visit(other) - started_mono <= 4.0 + 1.0
        finish(held, 200)
        await fleet.aclose()


@pytest.mark.full
async def test_redis_that_is_half_a_second_away_serves_a_fleet(fleet: Members, own_server: RedisServer) -> None:
    async with SlowWay(own_server.port, 0.5) as way:
        pacer = fleet.member(url=way.url)
        starts = [await visit(pacer) for _ in range(3)]
        assert all(later - earlier >= 0.1 for earlier, later in pairwise(starts))
        assert fleet.aways == []
        await fleet.aclose()


@pytest.mark.full
async def test_silent_redis_is_noticed_soon_while_requests_are_under_way(
    fleet: Members, own_server: RedisServer
) -> None:
    async with Switch(own_server.port) as switch:
        pacer = fleet.member(PacingOptions(min_delay_s=0.1, max_concurrent=2), url=switch.url)
        held = await pacer.start(wants())
        switch.swallow()
        silent_mono = time.monotonic()
        await until(lambda: bool(fleet.events))
        assert time.monotonic() - silent_mono <= 2.0  # 1.5 s by the guide
        finish(held, 200)
        await fleet.aclose()


@pytest.mark.full
async def test_host_is_named_that_waits_for_a_process_that_has_not_reported(
    fleet: Members, own_server: RedisServer
) -> None:
    async with Switch(own_server.port) as switch:
        gone, other = fleet.member(url=switch.url), fleet.member(url=own_server.url)
        await visit(gone)
        await visit(other)
        switch.swallow()
        switch.backend_port = 1
        own_server.kill()
        own_server.start()
        with pytest.raises(TooFar, match="by fleet"):
            await other.start(wants(host=HOST), 4.0)
        assert any("for 1 report of other processes" in str(event) for event in fleet.events)
        await fleet.aclose()


# The clock of Redis is set while a fleet is at work


@pytest.fixture
async def members(
    fleet: Members, server: RedisServer, prefix: str, request: pytest.FixtureRequest, quick_looks: None
) -> Sequence[Pacer]:
    """Return two pacers that are connected."""
    shift = f"+ (server.call('GET', '{prefix}shift') or 0) * 1000000"
    options = PacingOptions(adaptive_factor=0.0, **getattr(request, "param", {"min_delay_s": 0.1}))
    pacers = [fleet.member(options, wire=OtherTimeWire(server.url, shift)) for _ in range(2)]
    async with asyncio.timeout(20.0):
        for pacer in pacers:
            await pacer.closed_until(HOST)
    return pacers


async def set_clock(redis: Redis, prefix: str, by_s: int) -> None:
    await redis.set(f"{prefix}shift", by_s)


async def test_clock_that_is_right_is_never_reported(fleet: Members, members: Sequence[Pacer]) -> None:
    for _ in range(4):
        for pacer in members:
            await visit(pacer)
    await asyncio.sleep(0.3)
    assert fleet.events == []


@pytest.mark.full
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S, *(pytest.param(s, marks=pytest.mark.weekly) for s in (1, -1))])
@pytest.mark.parametrize("members", [{"min_delay_s": 3.0}], indirect=True)
async def test_interval_is_kept(fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int) -> None:
    one, other = members
    await visit(one)
    ended_mono = time.monotonic()
    await set_clock(redis, prefix, by_s)
    finish(await other.start(wants(), 15.0), 200)
    assert time.monotonic() - ended_mono >= 3.0
    assert any(f"its clock was set {'forward' if by_s > 0 else 'back'} by" in error for error in fleet.aways)


@pytest.mark.full
@pytest.mark.parametrize("by_s", [HOUR_S, pytest.param(-HOUR_S, marks=pytest.mark.weekly)])
async def test_request_under_way_keeps_the_others_away(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int
) -> None:
    one, other = members
    held = await one.start(wants())
    await set_clock(redis, prefix, by_s)
    with pytest.raises(TooFar):  # its process looks, and renews its lease, before the other one may start
        await other.start(wants(), 6.0)
    finish(held, 200)
    finish(await other.start(wants(), 5.0), 200)


@pytest.mark.weekly
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("members", [{"min_delay_s": 0.1, "backoff_min_s": 6.0}], indirect=True)
async def test_closed_host_stays_closed_and_no_longer_than_that(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int
) -> None:
    one, other = members
    await visit(one, 429)
    refused_mono = time.monotonic()
    await set_clock(redis, prefix, by_s)
    finish(await other.start(wants(), 30.0), 200)
    assert 5.9 <= time.monotonic() - refused_mono <= 25.0


@pytest.mark.full
async def test_who_waits_in_line_is_served_after_the_clock_was_set_back(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    one, other = members
    held = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.2)
    await set_clock(redis, prefix, -HOUR_S)
    await asyncio.sleep(0.2)
    finish(held, 200)
    ended_mono = time.monotonic()
    finish(await asyncio.wait_for(waiting, 20.0), 200)
    assert time.monotonic() - ended_mono >= 0.1


@pytest.mark.full
async def test_fleet_that_starts_after_the_clock_was_set_back_waits_no_longer_than_an_interval(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    await set_clock(redis, prefix, HOUR_S)
    one, other = members
    await visit(one)
    await one.aclose()
    await set_clock(redis, prefix, 0)
    finish(await other.start(wants(), 5.0), 200)


@pytest.mark.full
@pytest.mark.parametrize("members", [{"min_delay_s": 0.1, "max_concurrent": 2, "backoff_min_s": 0.5}], indirect=True)
async def test_process_that_knows_of_a_closing_by_the_clock_before_goes_on(
    members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    one, other = members
    held = await one.start(wants())  # so that this process remembers the closing
    await visit(other, 429)
    await one.closed_until(HOST)
    await set_clock(redis, prefix, -HOUR_S)
    async with asyncio.timeout(15.0):
        while isinstance(answer := (await one.try_starts([wants()]))[0], NotYet):
            await asyncio.sleep(0.01)
    finish(answer, 200)
    finish(held, 200)


@pytest.mark.full
@pytest.mark.usefixtures("quick_looks")
async def test_clock_that_runs_too_fast_is_reported_and_the_fleet_goes_on(fleet: Members, server: RedisServer) -> None:
    options = PacingOptions(min_delay_s=0.5, adaptive_factor=0.0)
    pacer = fleet.member(options, wire=OtherTimeWire(server.url, "* 1.02"))
    starts = [await visit(pacer) for _ in range(14)]
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(starts)), starts
    said = [re.search(r"its clock runs ([0-9.]+)% too fast", error) for error in fleet.aways]
    assert said
    assert all(said), fleet.aways
    # The delays of a busy machine make a measured rate lower, never higher. Each further report allows for more.
    rates = [float(found[1]) for found in said if found]
    assert all(0.0 < rate <= 2.0 for rate in rates), rates
    assert all(later > earlier for earlier, later in pairwise(rates)), rates


# What a restart and a failover cost a fleet, by the public interface


def gate_at(url: str) -> Gatekeeper:
    """Return a gate of a fleet that learns from nothing but Redis what hosts have asked for."""
    site = ScriptedFetcher({"https://example.com": 404})
    pacing = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
    pacer = SharedPacer(pacing, fleet=FleetOptions(url))  # not the pacer of this process
    return Gatekeeper(UA, fetcher=site, pacer=pacer, store=MemoryStore())


async def request(gate: Gatekeeper, status: int = 200) -> None:
    async with gate.turn("https://example.com/page", max_wait_s=20.0, exempt="a test") as turn:
        turn.observe(status, {"Retry-After": "600"} if status == 429 else {})


async def closed_host(server: RedisServer) -> bool:
    """Return whether a process that is new finds the host closed."""
    async with gate_at(server.url) as gate:
        try:
            await request(gate)
        except TooFar as error:
            if error.not_yet.bound_by is not Bound.RETRY_AFTER:
                raise
            return True
    return False


KEEPING: Final = ("--appendonly", "yes")


@pytest.mark.full
@pytest.mark.parametrize(("own_server", "is_kept"), [((), False), (KEEPING, True)], indirect=["own_server"])
async def test_what_no_process_remembers_outlives_a_restart_only_if_redis_writes_it(
    own_server: RedisServer, *, is_kept: bool
) -> None:
    async with gate_at(own_server.url) as gate:
        await request(gate, 429)
    assert await closed_host(own_server)
    own_server.kill()
    own_server.start()
    assert await closed_host(own_server) == is_kept


@pytest.mark.full
@pytest.mark.parametrize("own_server", [(), KEEPING], indirect=True)
async def test_what_a_process_remembers_outlives_a_restart(own_server: RedisServer) -> None:
    async with gate_at(own_server.url) as gate:
        await request(gate, 429)
        own_server.kill()
        own_server.start()
        await asyncio.sleep(2.0)  # it has connected again before a new process may start anything
        assert await closed_host(own_server)


@pytest.mark.full
@pytest.mark.usefixtures("quick_looks")
async def test_a_process_without_other_news_tells_a_redis_that_lost_its_data_which_hosts_are_closed(
    own_server: RedisServer,
) -> None:
    async with gate_at(own_server.url) as gate:
        await request(gate, 429)
        await asyncio.sleep(0.5)  # Redis has heard all by then
        own_server.kill()
        own_server.start()
        await asyncio.sleep(2.0)  # the process has looked again; to ask Redis meanwhile would be other news
        assert await closed_host(own_server)


@pytest.mark.full
async def test_replica_that_is_promoted_knows_what_had_arrived() -> None:
    with RedisServer() as primary, RedisServer("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        async with gate_at(primary.url) as gate:
            await request(gate, 429)
        async with Redis(port=replica.port) as client:
            async with asyncio.timeout(30.0):
                while await client.hget("politesse:2:host:example.com", "closed") is None:
                    await asyncio.sleep(0.1)
            primary.kill()
            await client.replicaof("NO", "ONE")
        assert await closed_host(replica)
