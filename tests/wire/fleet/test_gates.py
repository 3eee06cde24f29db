"""Gates of a fleet, by the public interface and a real Redis alone."""

import asyncio
import gc
import logging
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import Bound, CacheOptions, Gatekeeper, NotYet, PacingOptions, PoliteSession, TooFar
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import Event, FleetAway, FleetBack
from politesse.options import FleetOptions, Limit, SharedPacer
from politesse.queue import PoliteQueue, QueueClosed
from politesse.stores import MemoryStore
from politesse.testing import ScriptedFetcher
from tests.support.pacing import Resolving
from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.sites import UA, Server, Site
from tests.support.tiers import first_of
from tests.wire.fleet.slow_way import SlowWay

pytestmark = pytest.mark.realtime

PAGE: Final = "https://example.com/page"
SLOW_S: Final = 2.5
QUICK: Final = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Return a server that is older than SLOW: a young one may have forgotten when a host was asked."""
    with RedisServer() as server:
        time.sleep(SLOW_S + 0.5)
        yield server


@pytest.fixture
def fleet(server: RedisServer, prefix: str) -> FleetOptions:
    return FleetOptions(server.url, prefix=prefix)


def gate_of(fleet: FleetOptions | str | None, pacing: PacingOptions | None = QUICK, **options: object) -> Gatekeeper:
    """Return a gate as it would be in a process of its own: the gates of one event loop share a pacer by default."""
    site = ScriptedFetcher({"https://example.com": 404, "https://example.org": 404})
    if isinstance(fleet, FleetOptions):
        options, fleet = {"pacer": SharedPacer(pacing, fleet=fleet), **options}, None
    return Gatekeeper(UA, fetcher=site, fleet=fleet, pacing=pacing, **options)  # type: ignore[arg-type]


async def visit(gate: Gatekeeper, url: str = PAGE) -> None:
    async with gate.turn(url, max_wait_s=20.0) as turn:
        turn.observe(200)


async def visit_now(gate: Gatekeeper, url: str = PAGE) -> None:
    """Make a request that waits for no robots.txt, whose fetch would count as a request to the host."""
    async with gate.turn(url, max_wait_s=1.0, exempt="a test") as turn:
        turn.observe(200)


async def connections(redis: Redis) -> int:
    """Return how many connections the server has beside the one that asks."""
    return len(await redis.client_list()) - 1


# One pace


@pytest.mark.parametrize("kinds", first_of(1, [("gate", "session"), ("gate", "gate"), ("crawlee", "crawlee")]))
async def test_two_processes_keep_one_pace(server: RedisServer, site: Site, kinds: tuple[str, str]) -> None:
    async with Redis.from_url(server.url) as client:
        await client.flushdb()
    programs = [
        await started("fleet.gate_program", kind, server.url, f"{site.base}/{place}", "3", stderr=PIPE)
        for place, kind in enumerate(kinds)
    ]
    reports = [(await program.communicate())[1].decode() for program in programs]
    assert reports == ["", ""]
    assert [program.returncode for program in programs] == [0, 0]
    assert sorted(site.pages) == ["/0", "/0", "/0", "/1", "/1", "/1"]
    pages = sorted((one for one in site.seen if one.path != "/robots.txt"), key=lambda one: one.started)
    # The server stamps the end of an answer before the client has it, and its start after the client has sent it.
    assert min(after.started - before.ended for before, after in pairwise(pages)) >= 1.0


async def test_gates_of_a_fleet_share_what_a_host_has_asked_for(fleet: FleetOptions) -> None:
    async with gate_of(fleet) as one, gate_of(fleet) as other:
        assert (await other.check(PAGE)).allowed  # it could not be fetched later
        async with one.turn(PAGE, max_wait_s=20.0) as turn:
            turn.observe(429, {"Retry-After": "600"})
        with pytest.raises(TooFar, match="retry-after"):
            await visit(other)
        status = other.hosts()["example.com"]
        assert status.closed_by is Bound.RETRY_AFTER
        assert status.closed_until is not None


@pytest.mark.full
async def test_closing_outlives_all_processes_and_is_kept_by_the_pace_alone(fleet: FleetOptions, redis: Redis) -> None:
    async with gate_of(fleet) as gate, gate.turn(PAGE, max_wait_s=20.0) as turn:
        turn.observe(429, {"Retry-After": "3600"})
    keys = {key.decode().removeprefix(fleet.prefix) async for key in redis.scan_iter(f"{fleet.prefix}*example.com*")}
    assert keys == {"host:example.com", "{record:https://example.com}"}
    async with gate_of(fleet) as gate:
        with pytest.raises(TooFar) as far:
            await visit(gate)
        assert far.value.not_yet.bound_by is Bound.RETRY_AFTER


async def test_hosts_of_one_address_share_its_limit_in_the_fleet(fleet: FleetOptions) -> None:
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=Limit(min_delay_s=SLOW_S))
    resolver = Resolving({"example.com": ["192.0.2.1"], "example.org": ["192.0.2.1"]})
    async with gate_of(fleet, pacing, resolver=resolver) as one, gate_of(fleet, pacing, resolver=resolver) as other:
        await visit_now(one)
        with pytest.raises(TooFar, match=r"no turn at 192\.0\.2\.1 within 1 s: .* by floor"):
            await visit_now(other, "https://example.org/page")


@pytest.mark.full
async def test_gates_of_one_pacer_share_their_connections(fleet: FleetOptions, redis: Redis) -> None:
    before = await connections(redis)
    pacer = SharedPacer(QUICK, fleet=fleet)
    async with gate_of(None, None, store=MemoryStore(), pacer=pacer) as one:
        await visit(one)
        alone = await connections(redis)
        async with gate_of(None, None, store=MemoryStore(), pacer=pacer) as other:
            await visit(other)
            assert await connections(redis) == alone > before
        await visit(one)


# What is shown


@pytest.mark.full
async def test_request_of_another_gate_that_is_waited_for_is_named(fleet: FleetOptions) -> None:
    async with gate_of(fleet) as one, gate_of(fleet) as other:
        async with one.turn(f"{PAGE}/1", max_wait_s=20.0):
            assert one.hosts()["example.com"].fleet_wait is None
            waiting = asyncio.create_task(visit(other))
            async with asyncio.timeout(20.0):
                while not (known := other.hosts()) or known["example.com"].fleet_wait is None:
                    await asyncio.sleep(0.01)
            status = other.hosts()["example.com"]
            assert status.fleet_wait is not None
            assert (status.fleet_wait.bound_by, status.fleet_wait.held_by) == (Bound.IN_FLIGHT, f"{PAGE}/1")
            assert (status.waiting, status.in_flight, status.held_by) == (1, 0, "")
            assert f"1 waiting, in the fleet {status.fleet_wait}" in repr(status)
            assert f"by in-flight, held by {PAGE}/1" in repr(status)
        await waiting
        assert other.hosts()["example.com"].fleet_wait is None


# Without its Redis


async def test_without_its_redis_a_gate_answers_from_its_cache_and_starts_nothing(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    async with gate_of(own_server.url) as gate:
        gate.subscribe(events.append)
        await visit(gate)
        own_server.kill()
        with pytest.raises(TooFar, match=r"no turn at example\.com within 0\.5 s: .* by fleet \(its Redis is away"):
            async with gate.turn(PAGE, max_wait_s=0.5):
                pass
        assert (await gate.check(PAGE)).allowed
        verdict = gate.peek(PAGE)
        assert verdict is not None
        assert verdict.allowed
        assert (await gate.check("https://example.org/unknown")).allowed
        answer = gate.try_turn(PAGE)
        assert isinstance(answer, NotYet)
        assert answer.bound_by is Bound.FLEET
        waiting = asyncio.create_task(visit(gate))
        await asyncio.sleep(0.1)
        wait = gate.hosts()["example.com"].fleet_wait
        assert wait is not None
        assert wait.bound_by is Bound.FLEET
        assert repr(gate).endswith("waiting for the Redis of the fleet>")
        own_server.start()
        await waiting
    met = [type(event) for event in events if isinstance(event, FleetAway | FleetBack)]
    assert met == [FleetAway, FleetBack]
    address = own_server.url
    logged = [record.getMessage() for record in caplog.records if record.name == "politesse.pacing"]
    assert [line[: len(address) + 8] for line in logged] == [f"{address} is away", f"{address} is back"]


@pytest.mark.full
async def test_loss_is_logged_once_for_all_gates_of_a_pacer_and_reaches_each(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    pacer = SharedPacer(QUICK, fleet=own_server.url)
    events: list[list[Event]] = [[], []]
    async with gate_of(None, None, pacer=pacer) as one, gate_of(None, None, pacer=pacer) as other:
        one.subscribe(events[0].append)
        other.subscribe(events[1].append)
        await visit(one)
        await visit(other)
        own_server.kill()
        for gate in (one, other):
            with pytest.raises(TooFar, match="by fleet"):
                async with gate.turn(PAGE, max_wait_s=0.2):
                    pass
    assert [len([event for event in several if isinstance(event, FleetAway)]) for several in events] == [1, 1]
    assert len([record for record in caplog.records if "is away" in record.getMessage()]) == 1


@pytest.mark.full
async def test_gate_whose_redis_is_away_from_the_start_says_so_when_a_turn_is_wanted(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.kill()
    async with gate_of(own_server.url) as gate:
        assert caplog.records == []
        with pytest.raises(TooFar, match="by fleet"):
            async with gate.turn(PAGE, max_wait_s=0.2):
                pass
        own_server.start()
        await visit(gate)
    assert [record.levelno for record in caplog.records if "is away" in record.getMessage()] == [logging.WARNING]


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_wrong_password_is_an_error_without_the_password(own_server: RedisServer, password: str) -> None:
    async with Redis.from_url(own_server.url) as client:
        await client.config_set("requirepass", "s3cret")
    url = own_server.url.replace("//", f"//:{password}@" if password else "//")
    async with gate_of(url) as gate:
        with pytest.raises(ConfigurationError, match="refuses this client") as raised:
            await visit(gate)
        assert "wrong" not in str(raised.value).replace("WRONGPASS", "")


# The end


@pytest.mark.parametrize("kind", ["gate", "session"])
async def test_close_ends_all_tasks_and_connections(fleet: FleetOptions, redis: Redis, kind: str, site: Server) -> None:
    tasks, before = asyncio.all_tasks(), await connections(redis)
    if kind == "gate":
        async with gate_of(fleet, PacingOptions(min_delay_s=0.1)) as gate:
            await visit(gate)
            assert await connections(redis) > before
    else:
        async with PoliteSession(UA, fleet=fleet) as web:
            async with web.get(f"{site.base}/page") as response:
                await response.read()
            assert await connections(redis) > before
    gc.collect()
    assert asyncio.all_tasks() == tasks
    async with asyncio.timeout(5.0):  # the server notes the end of a connection a little later
        while await connections(redis) > before:
            await asyncio.sleep(0.01)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["turn", "try_turn", "try_turns"])
async def test_start_that_is_granted_during_the_close_holds_nobody_up(
    server: RedisServer, redis: Redis, fleet: FleetOptions, kind: str
) -> None:
    async with SlowWay(server.port, 0.0) as way:
        gate = gate_of(replace(fleet, url=way.url))
        await visit(gate)
        await asyncio.sleep(0.2)  # the interval is over
        way.trip_s = 0.3
        if kind == "try_turn":
            gate.try_turn(PAGE)
            asking = asyncio.create_task(asyncio.sleep(0.0))
        else:
            asking = asyncio.create_task(visit(gate) if kind == "turn" else gate.try_turns([PAGE]))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)  # what reserves the start is on its way to Redis
        await gate.aclose()
        await asyncio.gather(asking, return_exceptions=True)
    assert [field for field in await redis.hkeys(f"{fleet.prefix}host:example.com") if b"lease" in field] == []


async def test_cancelled_turns_put_off_nobody(fleet: FleetOptions) -> None:
    wide = PacingOptions(min_delay_s=2.0, max_concurrent=4, adaptive_factor=0.0)

    async def visit_later(gate: Gatekeeper) -> None:
        async with gate.turn(PAGE, max_wait_s=20.0, exempt="a test") as turn:
            turn.observe(200)

    async with gate_of(fleet, wide) as before, gate_of(fleet, wide) as one, gate_of(fleet, wide) as other:
        await visit_later(before)
        began_mono = time.monotonic()
        for_one = asyncio.create_task(visit_later(one))
        await asyncio.sleep(0.5)
        for_other = asyncio.create_task(visit_later(other))
        await asyncio.sleep(0.5)
        for task in (for_one, for_other):  # in the order in which their starts were granted
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.2)
        await visit_later(other)
        assert time.monotonic() - began_mono < 3.9


@pytest.mark.full
async def test_turn_that_is_waited_for_ends_with_the_gate_while_redis_stands_still(own_server: RedisServer) -> None:
    gate = gate_of(own_server.url)
    async with gate.turn(PAGE, max_wait_s=20.0):
        pass
    own_server.stop()
    try:
        waiting = asyncio.create_task(visit(gate, PAGE))
        await asyncio.sleep(0.3)  # it has asked
        async with asyncio.timeout(10.0):
            await gate.aclose()
            with pytest.raises(ClosedError):
                await waiting
    finally:
        own_server.go_on()


async def test_gate_that_was_never_used_is_closed_without_its_redis(own_server: RedisServer) -> None:
    own_server.kill()
    tasks = asyncio.all_tasks()
    async with gate_of(own_server.url):
        pass
    assert asyncio.all_tasks() == tasks


async def test_fleet_of_a_session_that_has_a_gate_is_an_error(fleet: FleetOptions) -> None:
    async with gate_of(fleet) as gate:
        with pytest.raises(ConfigurationError, match="fleet=: give it to the Gatekeeper"):
            PoliteSession(gate, fleet=fleet)


async def test_many_queues_whose_files_evict_each_other_all_go_on(fleet: FleetOptions) -> None:
    sites = [f"https://h{number}.example" for number in range(20)]
    fetcher = ScriptedFetcher({site: f"User-agent: *\nDisallow: /{number}\n" for number, site in enumerate(sites)})
    turns: list[str] = []

    async def work(gate: Gatekeeper, site: str) -> None:
        queue = PoliteQueue[str](gate)
        await queue.put(f"{site}/page")
        await queue.put(f"{site}/next")
        queue.close()
        with suppress(QueueClosed):
            while True:
                async with queue.turn() as turn:
                    turns.append(turn.url)

    cache = CacheOptions(max_entries_bytes=1)
    async with Gatekeeper(UA, fetcher=fetcher, fleet=fleet, pacing=QUICK, cache=cache) as gate, asyncio.timeout(30):
        await asyncio.gather(*(work(gate, site) for site in sites))
    assert sorted(turns) == sorted(f"{site}/{path}" for site in sites for path in ("page", "next"))
