"""Members of a fleet on a real Redis.

Those marked ``weekly`` need a Redis that is found again within seconds; run them with
``pytest -m weekly tests/wire/fleet``.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.events import Event, FleetAway, FleetBack, HostClosed, Publisher
from politesse.options import FleetOptions
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet, Refusal
from tests.contract.pacers.fleet_pacer import ManualWire, fleet_pacer, settle
from tests.support.pacing import HOST, MIDNIGHT, Pacer, finish, wants
from tests.support.redis_servers import RedisServer, begin_round, client_at, serving_by_tls, shared_server
from tests.support.sites import until
from tests.support.tasks import ended
from tests.wire.fleet.members import CountingWire, CutWire, HeldWire, MakeMember, Members, SlowProcess, visit
from tests.wire.fleet.proxies import Switch

pytestmark = pytest.mark.realtime


# One pace


def never_late(prefix: str) -> FleetOptions:
    """Return options by which no answer is late, however busy this machine is."""
    return FleetOptions(prefix=prefix, timeout_s=30.0, slack=1.0, max_slack_s=30.0)


async def test_members_that_always_want_the_same_host_take_turns(fleet: Members, prefix: str) -> None:
    order: list[int] = []

    async def crawl(place: int, pacer: Pacer) -> None:
        while len(order) < 60:
            permit = await pacer.start(wants())
            order.append(place)
            finish(permit, 200)

    options = PacingOptions(min_delay_s=0.02, adaptive_factor=0.0)
    members = [fleet.member(options, fleet=never_late(prefix)) for _ in range(3)]
    await asyncio.gather(*(crawl(place, pacer) for place, pacer in enumerate(members) for _ in range(2)))
    assert min(map(order.count, range(3))) >= 0.8 * len(order) / 3, order


async def test_several_may_be_under_way_in_the_whole_fleet_and_no_more(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.05, max_concurrent=2, adaptive_factor=0.0)
    members = [fleet.member(options) for _ in range(2)]
    first, second = [await pacer.start(wants()) for pacer in members]
    with pytest.raises(TooFar, match="in-flight"):
        await members[0].start(wants(), 0.2)
    finish(first, 200)
    third = await members[1].start(wants(), 5.0)
    for permit in (second, third):
        finish(permit, 200)


async def test_start_that_is_given_back_costs_the_fleet_nothing(fleet: Members) -> None:
    one, other = [fleet.member(PacingOptions(min_delay_s=2.0)) for _ in range(2)]
    (await one.start(wants())).give_back()
    finish(await other.start(wants(), 1.5), 200)


async def test_hundred_hosts_are_granted_in_one_round_trip(fleet: Members, server: RedisServer, prefix: str) -> None:
    wire = CountingWire(client_at(server.url))
    pacer = fleet.member(wire=wire, fleet=never_late(prefix))
    await pacer.closed_until(HOST)  # it is connected
    wire.trips = 0
    answers = await pacer.try_starts([wants(host=f"host{number}.example") for number in range(100)])
    assert wire.trips == 1
    for answer in answers:
        assert not isinstance(answer, NotYet)
        finish(answer, 200)


@pytest.mark.parametrize("steps", range(5))
async def test_tries_that_are_cancelled_twice_leave_no_request_open(
    fleet: Members, server: RedisServer, prefix: str, steps: int
) -> None:
    wire = HeldWire(server.url)
    pacer = fleet.member(PacingOptions(min_delay_s=0.0, max_concurrent=2), wire=wire, fleet=never_late(prefix))
    await pacer.closed_until(HOST)  # it is connected
    wire.held_from = wire.trips + 1
    asked = [wants(host="other.example"), wants(), wants()]
    trying = asyncio.create_task(pacer.try_starts(asked))
    await until(lambda: pacer.in_flight == 2)
    await asyncio.sleep(0.05)  # the second request to HOST waits for its answer
    trying.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert pacer.in_flight == 0
    wire.open_to.set()


async def test_fleets_in_two_databases_of_a_server_do_not_hear_each_other(fleet: Members, server: RedisServer) -> None:
    first, other = [fleet.member(url=f"{server.url.rpartition('/')[0]}/{database}") for database in (0, 1)]
    for pacer in (first, other, first):  # the other one joins a roster of another epoch, and says so
        finish(await pacer.start(wants(), 5.0), 200)
    assert fleet.events == []


async def test_two_prefixes_of_which_one_begins_with_the_other_are_two_fleets(
    fleet: Members, server: RedisServer, prefix: str
) -> None:
    options = PacingOptions(min_delay_s=2.0)
    begin_round(server.url, f"{prefix}host:")
    one, other = fleet.member(options), fleet.member(options, fleet=FleetOptions(prefix=f"{prefix}host:"))
    await visit(one, 429)
    finish(await other.start(wants(), 1.5), 200)
    assert await other.closed_until(HOST) is None


async def test_refusal_closes_a_host_for_all_and_each_denial_after_it_for_longer(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.02, refused_min_s=0.5, refused_after=3, adaptive_factor=0.0)
    one, other = fleet.member(options), fleet.member(options)
    for _ in range(3):
        await visit(one, 403)
    with pytest.raises(TooFar, match="by refused"):
        await other.start(wants(), 0.2)
    await visit(other, 403)  # after the closing; its first denial in this process
    assert other.hosts()[HOST].refusal == Refusal(2, "403")
    with pytest.raises(TooFar, match="by refused"):
        await one.start(wants(), 0.6)


async def test_refusal_of_one_of_several_requests_keeps_the_next_start_of_all_others(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.6, max_concurrent=2, adaptive_factor=0.0)
    one, other = fleet.member(options), fleet.member(options)
    permit = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants(), 5.0))
    await asyncio.sleep(0)
    assert await other.closed_until(HOST) is None  # Redis has told the other process to wait
    finish(permit, 429)
    with pytest.raises(TooFar, match="by backoff"):
        await waiting


@pytest.mark.full
async def test_backoff_doubles_whoever_is_refused(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, backoff_min_s=0.5, adaptive_factor=0.0)
    members = [fleet.member(options) for _ in range(2)]
    for place in range(3):
        await visit(members[place % 2], 429)
    closed_s = [event.closed_s for event in fleet.events if isinstance(event, HostClosed) and event.status == 429]
    assert [round(seconds / 0.5) for seconds in closed_s] == [1, 2, 4]


@pytest.mark.full
async def test_slow_host_is_slow_for_all(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, adaptive_factor=20.0)
    one, other = fleet.member(options), fleet.member(options)
    permit = await one.start(wants())
    await asyncio.sleep(0.5)
    finish(permit, 200)
    with pytest.raises(TooFar, match="by adaptive"):
        await other.start(wants(), 3.0)


@pytest.mark.full
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
async def test_member_whose_tasks_are_cancelled_by_others_goes_on(fleet: Members, pause_s: float) -> None:
    others = asyncio.all_tasks()
    one, other = fleet.member(), fleet.member()
    permit = await one.start(wants())
    ready = asyncio.Event()
    other.when_ready(wants(), ready.set)
    await asyncio.sleep(pause_s)  # without it, most tasks are cancelled before they have begun
    await ended(asyncio.all_tasks() - others)
    finish(permit, 200)
    async with asyncio.timeout(10.0):
        await ready.wait()  # it was called without a permit, to ask again
        ready.clear()
        other.when_ready(wants(), ready.set)
        await ready.wait()
    answer = other.try_start(wants())
    assert not isinstance(answer, NotYet)
    finish(answer, 200)
    await visit(one)


# In the time of a clock that the test moves


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def member(clock: ManualClock, prefix: str, events: list[Event]) -> AsyncIterator[MakeMember]:
    """Make members whose hosts have an interval of a minute."""
    made, publisher = [], Publisher()
    publisher.subscribe(events.append)

    def make(wire_type: type[ManualWire] = ManualWire, max_concurrent: int = 1) -> Any:
        options = PacingOptions(min_delay_s=60.0, max_concurrent=max_concurrent, adaptive_factor=0.0)
        made.append(fleet_pacer(options, clock, publisher, prefix, wire_type))
        return made[-1]

    yield make
    for pacer in made:
        await pacer.aclose()


async def test_process_that_is_always_late_becomes_patient_and_starts(member: MakeMember) -> None:
    async with asyncio.timeout(10):
        permit = await member(SlowProcess, max_concurrent=2).start(wants())
    assert 1 < SlowProcess.reserved < 20
    finish(permit, 200)


async def test_close_ends_the_wait_for_another_process_at_once(member: MakeMember) -> None:
    other, pacer = member(), member()
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    assert pacer.waiting == 1
    await pacer.aclose()
    await settle()
    assert waiting.done()
    with pytest.raises(ClosedError):
        await waiting


async def test_who_waits_for_another_process_is_told_at_once_that_redis_is_away(
    member: MakeMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, pacer = member(), member(CutWire)
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    before = pacer.hosts()[HOST].fleet_wait
    monkeypatch.setattr(CutWire, "cut", True)
    pacer.close_host("elsewhere.example", MIDNIGHT + 9, Bound.BACKOFF)  # the next call finds that Redis is away
    await settle()
    after = pacer.hosts()[HOST].fleet_wait
    assert before is not None
    assert after is not None
    assert (before.bound_by, after.bound_by) == (Bound.FLOOR, Bound.FLEET)
    waiting.cancel()


async def test_cancelled_starts_put_off_nobody(member: MakeMember, clock: ManualClock) -> None:
    before, one, other = [member(max_concurrent=4) for _ in range(3)]
    finish(await before.start(wants()), 200)
    tasks = []
    for pacer in (one, other):
        tasks.append(asyncio.create_task(pacer.start(wants())))
        await settle()
        clock.advance(10.0)
    for task in tasks:  # in the order in which their starts were granted
        await ended([task])
        await settle()
    starting = asyncio.create_task(other.start(wants()))
    await settle()
    clock.advance(39.0)
    await settle()
    assert not starting.done()
    clock.advance(1.1)
    await settle()
    assert starting.done()
    finish(await starting, 200)


@pytest.mark.usefixtures("quick_looks")
async def test_lost_keys_are_noticed_before_anything_starts(
    member: MakeMember, events: list[Event], clock: ManualClock, prefix: str
) -> None:
    holder, other = member(), member()
    held = await holder.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await settle()
    async with client_at(shared_server().url) as redis:
        await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}*")])
    clock.advance(1.0)
    holder.close_host("elsewhere.example", MIDNIGHT + 9, Bound.BACKOFF)  # the next call finds that Redis is empty
    await until(lambda: sum(isinstance(event, FleetAway) for event in events) == 2)  # the other one looks, too
    clock.advance(1.1)
    await until(lambda: sum(isinstance(event, FleetBack) for event in events) == 2)
    assert ["lost data" in event.error for event in events if isinstance(event, FleetAway)] == [True, True]
    clock.advance(120.0)
    await settle()
    assert not waiting.done()
    finish(held, 200)
    await settle()
    clock.advance(59.0)
    await settle()
    assert not waiting.done()
    clock.advance(1.1)
    finish(await waiting, 200)


# Redis


async def test_keys_expire_by_themselves(fleet: Members, redis: Redis, prefix: str) -> None:
    pacer = fleet.member()
    await visit(pacer)
    await pacer.closed_until(HOST)  # its answer comes after that of the end
    assert 590_000 < await redis.pttl(f"{prefix}2:host:{HOST}") <= 600_000


@pytest.mark.usefixtures("short_holds")
async def test_scripts_that_redis_has_forgotten_are_loaded_again(fleet: Members, redis: Redis) -> None:
    pacer = fleet.member()
    await visit(pacer)
    await redis.script_flush()
    one_mono = await visit(pacer)
    assert await visit(pacer) - one_mono >= 0.1


@pytest.mark.parametrize("own_server", [("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")], indirect=True)
async def test_redis_that_evicts_keys_is_an_error(fleet: Members, own_server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match=r"allkeys-lru.*noeviction"):
        await fleet.member(url=own_server.url).start(wants())


@pytest.mark.usefixtures("short_holds")
async def test_redis_with_tls_and_a_password_serves_a_fleet(fleet: Members, tmp_path: Path) -> None:
    with serving_by_tls(tmp_path) as (url, ca):
        pacer = fleet.member(url=f"{url}?ssl_ca_certs={ca}")
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1


@pytest.mark.usefixtures("short_holds")
async def test_sentinel_names_the_redis(fleet: Members, own_server: RedisServer) -> None:
    monitor = f"sentinel monitor fleet 127.0.0.1 {own_server.port} 1\n"
    with RedisServer("--sentinel", config=monitor) as sentinel:
        pacer = fleet.member(url=f"redis+sentinel://127.0.0.1:{sentinel.port}/fleet/0")
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1
        await fleet.aclose()
        async with asyncio.timeout(10.0), Redis.from_url(sentinel.url) as observer:
            while len(await observer.client_list()) > 1:  # the fleet's connection to the Sentinel is open
                await asyncio.sleep(0.02)


@pytest.mark.full
async def test_young_redis_may_have_forgotten_the_last_interval(fleet: Members, own_server: RedisServer) -> None:
    pacer = fleet.member(PacingOptions(min_delay_s=4.0), url=own_server.url)
    with pytest.raises(TooFar, match="by fleet"):
        await pacer.start(wants(), 1.0)
    finish(await pacer.start(wants(), 30.0), 200)


@pytest.mark.weekly
async def test_redis_that_starts_empty_learns_again_which_hosts_are_slow(
    fleet: Members, own_server: RedisServer
) -> None:
    options = PacingOptions(min_delay_s=0.1, adaptive_factor=20.0)
    one, other = [fleet.member(options, url=own_server.url) for _ in range(2)]
    await other.closed_until(HOST)
    permit = await one.start(wants())
    await asyncio.sleep(0.5)
    finish(permit, 200)
    await one.closed_until(HOST)  # its answer comes after that of the end, which is not sent again
    own_server.kill()
    own_server.start()
    await asyncio.sleep(2.0)
    with pytest.raises(TooFar, match="by adaptive"):
        await other.start(wants(), 4.0)


@pytest.mark.full
@pytest.mark.usefixtures("quick_looks")
async def test_another_server_behind_a_proxy_is_noticed(
    fleet: Members, server: RedisServer, own_server: RedisServer
) -> None:
    await asyncio.sleep(2.0)  # so that it is no young server
    async with Switch(own_server.port) as switch:
        pacer, other = [fleet.member(PacingOptions(min_delay_s=2.0), url=switch.url) for _ in range(2)]
        await other.closed_until(HOST)
        began_mono = await visit(pacer)
        await switch.move(server.port)
        await asyncio.sleep(0.5)
        finish(await other.start(wants(), 30.0), 200)
        assert time.monotonic() - began_mono >= 2.0
        assert any("taken its place" in error for error in fleet.aways)
        await fleet.aclose()
