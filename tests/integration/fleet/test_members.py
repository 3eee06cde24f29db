"""Members of a fleet on a real Redis.

Those marked ``slow`` need a Redis that is found again within seconds; run them with
``pytest -m slow tests/integration/fleet``.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel

from politesse._pacing.fleet import link as link_module
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.pace import Limit, PacingOptions
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.events import FleetAway, FleetBack, HostClosed
from politesse.verdict import Bound, NotYet
from tests.integration.fleet.members import visit
from tests.integration.fleet.switch import Switch
from tests.support.pacing import HOST, finish, wants
from tests.support.redis_servers import RedisServer, serving_by_tls
from tests.support.tasks import ended

if TYPE_CHECKING:
    from pathlib import Path

    from politesse.ports import Pacer
    from tests.integration.fleet.members import Members

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


async def test_a_member_that_waits_learns_who_holds_the_host(fleet: Members) -> None:
    one, other = fleet.member(), fleet.member()
    permit = await one.start(wants()._replace(url="http://example.com/held"))
    with pytest.raises(TooFar, match=r"held by http://example[.]com/held"):
        await other.start(wants(), 0.2)
    finish(permit, 200)
    await visit(other)


async def test_a_wait_that_is_known_to_be_too_long_raises_at_once(fleet: Members) -> None:
    one, other = [fleet.member(PacingOptions(min_delay_s=2.0)) for _ in range(2)]
    await visit(one)
    began_mono = time.monotonic()
    with pytest.raises(TooFar, match="by floor"):
        await other.start(wants(), 1.5)
    assert time.monotonic() - began_mono < 1.5


async def test_a_start_that_is_given_back_costs_the_fleet_nothing(fleet: Members) -> None:
    one, other = [fleet.member(PacingOptions(min_delay_s=2.0)) for _ in range(2)]
    (await one.start(wants())).give_back()
    finish(await other.start(wants(), 1.5), 200)


async def test_a_cancelled_reservation_frees_the_host_for_the_fleet(fleet: Members) -> None:
    one, other = fleet.member(), fleet.member()
    permit = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.2)
    waiting.cancel()
    await asyncio.sleep(0.1)
    finish(permit, 200)
    finish(await one.start(wants(), 5.0), 200)


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
        await ready.wait()
    answer = other.try_start(wants())
    assert not isinstance(answer, NotYet)
    finish(answer, 200)
    await visit(one)


async def test_a_refusal_closes_the_host_for_all(fleet: Members) -> None:
    one, other = fleet.member(), fleet.member()
    await visit(other)
    await visit(one, 429)
    closed_until = await other.closed_until(HOST)
    assert closed_until is not None
    assert 8.0 < closed_until - time.time() <= 11.5
    answer = other.try_start(wants())
    assert isinstance(answer, NotYet)
    assert answer.bound_by is Bound.BACKOFF
    with pytest.raises(TooFar, match="by backoff"):
        await other.start(wants(), 2.0)


async def test_a_backoff_doubles_whoever_is_refused(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, backoff_min_s=0.5, adaptive_factor=0.0)
    members = [fleet.member(options) for _ in range(2)]
    for place in range(3):
        await visit(members[place % 2], 429)
    closed_s = [event.closed_s for event in fleet.events if isinstance(event, HostClosed) and event.status == 429]
    assert [round(seconds / 0.5) for seconds in closed_s] == [1, 2, 4]


async def test_a_slow_host_is_slow_for_all(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.1, adaptive_factor=20.0)
    one, other = fleet.member(options), fleet.member(options)
    permit = await one.start(wants())
    await asyncio.sleep(0.5)
    finish(permit, 200)
    with pytest.raises(TooFar, match="by adaptive"):
        await other.start(wants(), 3.0)


async def test_who_asks_now_and_then_meets_a_start_in_the_end(fleet: Members) -> None:
    pacer = fleet.member()
    answers = []
    for _ in range(60):
        answers.append(pacer.try_start(wants()))
        if not isinstance(answers[-1], NotYet):
            break
        await asyncio.sleep(0.11)
    assert not isinstance(answers[-1], NotYet)


async def test_two_fleets_on_one_redis_know_nothing_of_each_other(fleet: Members) -> None:
    one = fleet.member(PacingOptions(min_delay_s=2.0))
    other = fleet.member(PacingOptions(min_delay_s=2.0), fleet.link(prefix=f"{token_hex(4)}:"))
    await visit(one)
    finish(await other.start(wants(), 1.5), 200)


async def test_hosts_at_one_address_share_a_pace_in_the_whole_fleet(fleet: Members) -> None:
    options = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=Limit(min_delay_s=0.2))
    hosts = [f"{name}.example" for name in "abcd"]
    addresses = {host: ["192.0.2.1"] for host in hosts}
    spans: list[tuple[float, float]] = []

    async def crawl(pacer: Pacer, host: str) -> None:
        for _ in range(2):
            permit = await pacer.start(wants(host=host))
            began_mono = time.monotonic()
            await asyncio.sleep(0.05)
            spans.append((began_mono, time.monotonic()))
            finish(permit, 200)

    members = [fleet.scoped_member(options, addresses) for _ in range(2)]
    await asyncio.gather(*(crawl(pacer, host) for pacer in members for host in hosts))
    spans.sort()
    assert len(spans) == 16
    assert all(other[0] - one[1] >= 0.2 for one, other in pairwise(spans)), spans


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


@pytest.mark.parametrize("is_hash", [False, True])
async def test_a_foreign_value_is_an_error_that_names_the_key(
    fleet: Members, redis: Redis, prefix: str, *, is_hash: bool
) -> None:
    key = f"{prefix}host:{HOST}"
    await (redis.hset(key, "a", "b") if is_hash else redis.set(key, "1"))
    with pytest.raises(ConfigurationError, match=rf"{key}.*another prefix"):
        await fleet.member().start(wants())


@pytest.mark.parametrize("own_server", [("--requirepass", "secret")], indirect=True)
@pytest.mark.parametrize("user", ["", ":wrong@"])
async def test_a_wrong_password_is_an_error(fleet: Members, own_server: RedisServer, user: str) -> None:
    pacer = fleet.member(link=fleet.link(own_server.url.replace("//", f"//{user}")))
    with pytest.raises(ConfigurationError, match="refuses this client") as raised:
        await pacer.start(wants())
    assert "wrong" not in str(raised.value).replace("WRONGPASS", "")
    with pytest.raises(ConfigurationError, match="refuses"):
        pacer.try_start(wants())


@pytest.mark.parametrize("own_server", [("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")], indirect=True)
async def test_a_redis_that_evicts_keys_is_an_error(fleet: Members, own_server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match=r"allkeys-lru.*noeviction"):
        await fleet.member(link=fleet.link(own_server.url)).start(wants())


@pytest.mark.parametrize("url", ["http://host", "nonsense", "redis:secret@host"])
async def test_a_url_that_is_no_redis_is_an_error(fleet: Members, url: str) -> None:
    with pytest.raises(ConfigurationError, match="redis://") as raised:
        fleet.link(url)
    assert "secret" not in str(raised.value)


async def test_a_redis_with_tls_and_a_password_serves_a_fleet(fleet: Members, tmp_path: Path) -> None:
    with serving_by_tls(tmp_path) as (url, ca):
        pacer = fleet.member(link=fleet.link(f"{url}?ssl_ca_certs={ca}"))
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1


async def test_a_sentinel_names_the_redis(fleet: Members, own_server: RedisServer) -> None:
    monitor = f"sentinel monitor fleet 127.0.0.1 {own_server.port} 1\n"
    sentinel = RedisServer("--sentinel", config=monitor)
    try:
        sentinels = Sentinel([("127.0.0.1", sentinel.port)])  # type: ignore[no-untyped-call] # redis-py gives it no types
        client = sentinels.master_for("fleet")
        pacer = fleet.member(link=fleet.link_of(RedisWire(client)))
        one_mono = await visit(pacer)
        assert await visit(pacer) - one_mono >= 0.1
        await fleet.aclose()
        async with asyncio.timeout(10.0), Redis.from_url(sentinel.url) as observer:
            while len(await observer.client_list()) > 1:  # the fleet's connection to the Sentinel is open
                await asyncio.sleep(0.02)
    finally:
        sentinel.remove()


async def test_a_young_redis_may_have_forgotten_the_last_interval(fleet: Members) -> None:
    server = RedisServer()
    try:
        pacer = fleet.member(PacingOptions(min_delay_s=4.0), fleet.link(server.url))
        with pytest.raises(TooFar, match="by fleet"):
            await pacer.start(wants(), 1.0)
        finish(await pacer.start(wants(), 30.0), 200)
    finally:
        server.remove()


async def test_a_redis_that_is_away_is_published_once_and_is_found_again(
    fleet: Members, own_server: RedisServer
) -> None:
    pacer = fleet.member(link=fleet.link(own_server.url))
    await visit(pacer)
    own_server.kill()
    with pytest.raises(TooFar, match="by fleet"):
        await pacer.start(wants(), 2.0)
    answer = pacer.try_start(wants())
    assert isinstance(answer, NotYet)
    own_server.start()
    await visit(pacer)
    assert [type(event) for event in fleet.events] == [FleetAway, FleetBack]


@pytest.mark.slow
async def test_a_redis_that_starts_empty_learns_again_which_hosts_are_closed(
    fleet: Members, own_server: RedisServer
) -> None:
    one, other = [fleet.member(link=fleet.link(own_server.url)) for _ in range(2)]
    await other.closed_until(HOST)
    await visit(one, 429)
    own_server.kill()
    own_server.start()
    await asyncio.sleep(2.0)
    with pytest.raises(TooFar, match="by backoff"):
        await other.start(wants(), 4.0)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_another_server_behind_a_proxy_is_noticed(
    fleet: Members, server: RedisServer, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_LOOK_S", 0.1)
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


async def test_closing_a_member_lets_the_others_go_on(fleet: Members) -> None:
    one, other = fleet.member(), fleet.member()
    permit = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.2)
    await other.aclose()
    with pytest.raises(ClosedError):
        await waiting
    finish(permit, 200)
    finish(await one.start(wants(), 5.0), 200)
