"""Members of a fleet on a real Redis.

Those marked ``weekly`` need a Redis that is found again within seconds; run them with
``pytest -m weekly tests/wire/fleet``.
"""

import asyncio
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse.errors import ConfigurationError, TooFar
from politesse.events import FleetAway, HostClosed
from politesse.ports import Pacer
from politesse.verdict import NotYet, Refusal
from tests.support.pacing import HOST, finish, wants
from tests.support.redis_servers import RedisServer, serving_by_tls
from tests.support.tasks import ended
from tests.wire.fleet.members import Members, visit
from tests.wire.fleet.switch import Switch

pytestmark = pytest.mark.realtime


# One pace


async def test_members_take_turns_in_the_order_in_which_they_came(fleet: Members) -> None:
    order: list[str] = []

    async def crawl(name: str, pacer: Pacer) -> None:
        for _ in range(4):
            permit = await pacer.start(wants())
            order.append(name)
            finish(permit, 200)

    members = [fleet.member() for _ in range(3)]
    await asyncio.gather(*(crawl(str(place), pacer) for place, pacer in enumerate(members) for _ in range(2)))
    counts = [[order[:end].count(str(place)) for place in range(3)] for end in range(3, 24)]
    assert all(max(count) - min(count) <= 2 for count in counts), order


async def test_several_may_be_under_way_in_the_whole_fleet_and_no_more(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.05, max_concurrent=2, adaptive_factor=0.0)
    members = [fleet.member(options) for _ in range(2)]
    first, second = [await pacer.start(wants()) for pacer in members]
    with pytest.raises(TooFar, match="in-flight"):
        await members[0].start(wants(), 0.3)
    finish(first, 200)
    third = await members[1].start(wants(), 5.0)
    for permit in (second, third):
        finish(permit, 200)


async def test_a_start_that_is_given_back_costs_the_fleet_nothing(fleet: Members) -> None:
    one, other = [fleet.member(PacingOptions(min_delay_s=2.0)) for _ in range(2)]
    (await one.start(wants())).give_back()
    finish(await other.start(wants(), 1.5), 200)


async def test_fleets_in_two_databases_of_a_server_do_not_hear_each_other(fleet: Members, server: RedisServer) -> None:
    address = server.url.rpartition("/")[0]
    first = fleet.member(link=fleet.link(f"{address}/0"))
    finish(await first.start(wants(), 5.0), 200)
    other = fleet.member(link=fleet.link(f"{address}/1"))  # it joins a roster of another epoch, and says so
    finish(await other.start(wants(), 5.0), 200)
    finish(await first.start(wants(), 5.0), 200)
    assert fleet.events == []


@pytest.mark.full
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
async def test_a_member_whose_tasks_are_cancelled_by_others_goes_on(fleet: Members, pause_s: float) -> None:
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


@pytest.mark.full
async def test_a_backoff_doubles_whoever_is_refused(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, backoff_min_s=0.5, adaptive_factor=0.0)
    members = [fleet.member(options) for _ in range(2)]
    for place in range(3):
        await visit(members[place % 2], 429)
    closed_s = [event.closed_s for event in fleet.events if isinstance(event, HostClosed) and event.status == 429]
    assert [round(seconds / 0.5) for seconds in closed_s] == [1, 2, 4]


async def test_a_refusal_closes_a_host_for_all_and_each_denial_after_it_for_longer(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.05, refused_min_s=0.5, refused_after=3, adaptive_factor=0.0)
    one, other = fleet.member(options), fleet.member(options)
    for _ in range(3):
        await visit(one, 403)
    with pytest.raises(TooFar, match="by refused"):
        await other.start(wants(), 0.2)
    await visit(other, 403)  # after the closing; its first denial in this process
    refusal = other.hosts()[HOST].refusal
    assert refusal == Refusal(2, "403")
    with pytest.raises(TooFar, match="by refused"):
        await one.start(wants(), 0.6)


@pytest.mark.full
async def test_a_slow_host_is_slow_for_all(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, adaptive_factor=20.0)
    one, other = fleet.member(options), fleet.member(options)
    permit = await one.start(wants())
    await asyncio.sleep(0.5)
    finish(permit, 200)
    with pytest.raises(TooFar, match="by adaptive"):
        await other.start(wants(), 3.0)


# Redis


async def test_keys_expire_by_themselves(fleet: Members, redis: Redis, prefix: str) -> None:
    pacer = fleet.member()
    await visit(pacer)
    await pacer.closed_until(HOST)  # its answer comes after that of the end
    assert 590_000 < await redis.pttl(f"{prefix}host:{HOST}") <= 600_000


async def test_scripts_that_redis_has_forgotten_are_loaded_again(fleet: Members, redis: Redis) -> None:
    pacer = fleet.member()
    await visit(pacer)
    await redis.script_flush()
    one_mono = await visit(pacer)
    assert await visit(pacer) - one_mono >= 0.1


@pytest.mark.parametrize("own_server", [("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")], indirect=True)
async def test_a_redis_that_evicts_keys_is_an_error(fleet: Members, own_server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match=r"allkeys-lru.*noeviction"):
        await fleet.member(link=fleet.link(own_server.url)).start(wants())


async def test_a_redis_with_tls_and_a_password_serves_a_fleet(fleet: Members, tmp_path: Path) -> None:
    with serving_by_tls(tmp_path) as (url, ca):
        pacer = fleet.member(link=fleet.link(f"{url}?ssl_ca_certs={ca}"))
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1


async def test_a_sentinel_names_the_redis(fleet: Members, own_server: RedisServer) -> None:
    monitor = f"sentinel monitor fleet 127.0.0.1 {own_server.port} 1\n"
    with RedisServer("--sentinel", config=monitor) as sentinel:
        pacer = fleet.member(link=fleet.link(f"redis+sentinel://127.0.0.1:{sentinel.port}/fleet/0"))
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1
        await fleet.aclose()
        async with asyncio.timeout(10.0), Redis.from_url(sentinel.url) as observer:
            while len(await observer.client_list()) > 1:  # the fleet's connection to the Sentinel is open
                await asyncio.sleep(0.02)


@pytest.mark.full
async def test_a_young_redis_may_have_forgotten_the_last_interval(fleet: Members) -> None:
    with RedisServer() as server:
        pacer = fleet.member(PacingOptions(min_delay_s=4.0), fleet.link(server.url))
        with pytest.raises(TooFar, match="by fleet"):
            await pacer.start(wants(), 1.0)
        finish(await pacer.start(wants(), 30.0), 200)


@pytest.mark.weekly
async def test_a_redis_that_starts_empty_learns_again_which_hosts_are_slow(
    fleet: Members, own_server: RedisServer
) -> None:
    options = PacingOptions(min_delay_s=0.1, adaptive_factor=20.0)
    one, other = [fleet.member(options, fleet.link(own_server.url)) for _ in range(2)]
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


@pytest.mark.weekly
@pytest.mark.usefixtures("quick_looks")
async def test_another_server_behind_a_proxy_is_noticed(
    fleet: Members, server: RedisServer, own_server: RedisServer
) -> None:
    await asyncio.sleep(2.0)  # so that it is no young server
    async with Switch(own_server.port) as switch:
        pacer = fleet.member(PacingOptions(min_delay_s=2.0), fleet.link(switch.url))
        other = fleet.member(PacingOptions(min_delay_s=2.0), fleet.link(switch.url))
        await other.closed_until(HOST)
        began_mono = await visit(pacer)
        await switch.move(server.port)
        await asyncio.sleep(0.5)
        finish(await other.start(wants(), 30.0), 200)
        assert time.monotonic() - began_mono >= 2.0
        assert any(isinstance(event, FleetAway) and "taken its place" in event.error for event in fleet.events)
        await fleet.aclose()
