"""How many scripts Redis runs for a turn: a start that cannot be used is not reserved again and again."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import Dialect, Gatekeeper, PacingOptions, PoliteQueue, Turn
from politesse.errors import ConfigurationError
from politesse.options import FleetOptions, Limit
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from politesse.verdict import NotYet, Verdict
from tests.support.pacing import HOST, Resolving, finish, wants
from tests.support.redis_servers import RedisServer, client_at, shared_server
from tests.support.sites import UA
from tests.wire.fleet.members import CountingWire, Members

pytestmark = pytest.mark.realtime

MOST: Final = 15  # scripts for a turn: two where all goes well, and two more for each start that came too late
NAMES: Final = ("a", "b", "c")
ALONE: Final = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
WIDE: Final = PacingOptions(min_delay_s=0.05, max_concurrent=4, adaptive_factor=0.0)
SCOPED: Final = PacingOptions(
    min_delay_s=0.1,
    adaptive_factor=0.0,
    address=Limit(min_delay_s=0.05, max_concurrent=2),
    domain=Limit(min_delay_s=0.1),
)


def gate_of(url: str, prefix: str, pacing: PacingOptions, robots: str | int = 404, **options: object) -> Gatekeeper:
    hosts = [f"{name}.example" for name in NAMES]
    return Gatekeeper(
        UA,
        fetcher=ScriptedFetcher({f"https://{host}": robots for host in hosts}),
        resolver=Resolving({host: ["192.0.2.1"] for host in hosts}),
        fleet=FleetOptions(url, prefix=prefix),
        pacing=pacing,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def server() -> RedisServer:
    """Return one server: which one it is does not matter to the number of scripts."""
    server = shared_server()
    time.sleep(max(0.0, 1.5 - server.age_s))
    return server


async def scripts(redis: Redis) -> int:
    statistics = await redis.info("commandstats")
    return sum(statistics.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


@asynccontextmanager
async def queue_of(gate: Gatekeeper, pages: int, *, workers: int = 3) -> AsyncIterator[list[str]]:
    """Crawl some pages of each host; the value lists those whose turns have ended."""
    queue: PoliteQueue[None] = PoliteQueue(gate)
    taken: list[str] = []
    for page in range(pages):
        for name in NAMES:
            await queue.put(f"https://{name}.example/{page}")

    async def work() -> None:
        with suppress(QueueClosed):
            while True:
                async with queue.turn() as turn:
                    turn.observe(200)
                taken.append(turn.url)

    working = [asyncio.create_task(work()) for _ in range(workers)]
    yield taken
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)


async def until_refused(gate: Gatekeeper) -> None:
    async with asyncio.timeout(20.0):
        while not gate.try_turn("https://a.example/"):
            await asyncio.sleep(0.01)


async def until(taken: list[str], number: int) -> None:
    async with asyncio.timeout(60.0):
        while len(taken) < number:
            await asyncio.sleep(0.01)


@pytest.mark.full
@pytest.mark.parametrize("pacing", [ALONE, WIDE, SCOPED], ids=["alone", "wide", "scoped"])
async def test_queues_of_a_fleet_take_few_scripts_for_a_turn(
    server: RedisServer, prefix: str, redis: Redis, pacing: PacingOptions
) -> None:
    scopes = 3 if pacing is SCOPED else 1
    async with gate_of(server.url, prefix, pacing) as one, gate_of(server.url, prefix, pacing) as other:
        before = await scripts(redis)
        async with queue_of(one, 10) as first, queue_of(other, 10) as second:
            await until(first, 8)
            await until(second, 8)
            taken = len(first) + len(second)
        assert await scripts(redis) - before <= MOST * scopes * taken


@pytest.mark.full
@pytest.mark.parametrize("closed_by", ["429", "visit-time"])
async def test_a_closed_host_takes_few_scripts(server: RedisServer, prefix: str, redis: Redis, closed_by: str) -> None:
    hour = time.gmtime().tm_hour
    robots: str | int = 404
    if closed_by == "visit-time":
        robots = f"User-agent: *\nVisit-time: {(hour + 4) % 24:02}00-{(hour + 5) % 24:02}00\n"
    options = {"dialect": Dialect.CONNER_2} if closed_by == "visit-time" else {}
    async with (
        gate_of(server.url, prefix, ALONE, robots, **options) as one,
        gate_of(server.url, prefix, ALONE) as other,
    ):
        if closed_by == "429":
            for name in NAMES:
                async with other.turn(f"https://{name}.example/", max_wait_s=20.0) as turn:
                    turn.observe(429, {"Retry-After": "600"})
        async with queue_of(one, 2) as taken:
            before = await scripts(redis)
            await asyncio.sleep(1.0)
            assert await scripts(redis) - before <= MOST * len(NAMES)
        assert taken == []


@pytest.mark.full
async def test_gates_that_try_many_turns_at_once_do_not_put_off_each_other_for_ever(
    server: RedisServer, prefix: str
) -> None:
    urls = [f"https://{name}.example/" for name in NAMES]

    async def try_until_had(gate: Gatekeeper) -> None:
        await gate.check_batch(urls)
        had = 0
        while had < 12:
            for answer in await gate.try_turns(urls):
                if isinstance(answer, Turn):
                    with answer as turn:
                        turn.observe(200)
                    had += 1
            await asyncio.sleep(0.003)

    async with gate_of(server.url, prefix, WIDE) as one, gate_of(server.url, prefix, WIDE) as other:
        async with asyncio.timeout(30.0):
            await asyncio.gather(try_until_had(one), try_until_had(other))


@pytest.mark.full
async def test_a_queue_with_several_scopes_raises_that_redis_refuses(own_server: RedisServer, prefix: str) -> None:
    async with gate_of(own_server.url, prefix, SCOPED, "User-agent: *\nCrawl-delay: 30\n") as gate:
        await gate.check("https://a.example/")  # its fetch counts for the pace: the host is not ready
        own_server.kill()
        own_server.start("--requirepass", "secret")
        with pytest.raises(ConfigurationError, match="refuses this client"):
            await until_refused(gate)
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put("https://a.example/2")
        with pytest.raises(ConfigurationError, match="refuses this client"):
            async with asyncio.timeout(10.0), queue.turn():
                pytest.fail("a turn without a pace")


# Queues and batches of a fleet on a real Redis.


async def test_a_worker_of_a_queue_finds_no_turn_before_its_time(server: RedisServer, prefix: str) -> None:
    fleet = FleetOptions(server.url, prefix=prefix)
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)
    site = ScriptedFetcher({f"https://{name}.example": 404 for name in "abc"})
    spans: dict[str, list[tuple[float, float]]] = {}
    async with Gatekeeper(UA, fetcher=site, fleet=fleet, pacing=pacing) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for page in range(4):
            for name in "abc":
                await queue.put(f"https://{name}.example/{page}")
        queue.close()
        with suppress(QueueClosed):
            while True:
                async with queue.turn() as turn:
                    began_mono = time.monotonic()
                    turn.observe(200)
                spans.setdefault(turn.url[:16], []).append((began_mono, time.monotonic()))
    assert [len(visits) for visits in spans.values()] == [4, 4, 4]
    for visits in spans.values():
        assert all(after[0] - before[1] >= 0.2 for before, after in pairwise(visits))


async def test_a_key_that_cannot_be_used_closes_its_host_and_ends_no_crawl(
    server: RedisServer, prefix: str, redis: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.link._UNUSABLE_S", 2.0)
    await redis.set(f"{prefix}host:{HOST}", "1")
    refused: list[str] = []
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), fleet=FleetOptions(server.url, prefix=prefix)) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda url, _: refused.append(url))
        for url in (f"https://{HOST}/", "https://other.example/"):
            await queue.put(url)
        async with asyncio.timeout(10.0), queue.turn() as turn:
            assert turn.url == "https://other.example/"
        closed_until = gate.hosts()[HOST].closed_until
        assert closed_until is not None
        assert 0.0 < closed_until - time.time() <= 2.0
        await redis.delete(f"{prefix}host:{HOST}")
        async with asyncio.timeout(30.0), queue.turn() as turn:
            assert turn.url == f"https://{HOST}/"
            assert time.time() >= closed_until
    assert refused == []
    assert caplog.text.count(f"the key '{prefix}host:{HOST}' at ") == 1


async def test_a_hundred_hosts_are_granted_in_one_round_trip(server: RedisServer, prefix: str, fleet: Members) -> None:
    wire = CountingWire(client_at(server.url))
    # However busy this machine is, no answer is late.
    options = FleetOptions(prefix=prefix, timeout_s=30.0, slack=1.0, max_slack_s=30.0)
    pacer = fleet.member(link=fleet.link_of(wire, options))
    await pacer.closed_until(HOST)  # it is connected
    wire.trips = 0
    answers = await pacer.try_starts([wants(host=f"host{number}.example") for number in range(100)])
    assert wire.trips == 1
    assert not any(isinstance(answer, NotYet) for answer in answers)
    for answer in answers:
        assert not isinstance(answer, NotYet)
        finish(answer, 200)


async def test_one_host_that_cannot_be_used_costs_no_other_its_turn(
    server: RedisServer, prefix: str, redis: Redis
) -> None:
    await redis.set(f"{prefix}host:b.example", "1")
    site = ScriptedFetcher({f"https://{name}.example": 404 for name in "abc"})
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    urls = [f"https://{name}.example/" for name in "abc"]
    async with Gatekeeper(UA, fetcher=site, pacing=pacing, fleet=FleetOptions(server.url, prefix=prefix)) as gate:
        await gate.check_batch(urls)
        first, second, third = await gate.try_turns(urls)
        assert isinstance(second, Verdict)
        assert second.not_before is not None  # the host is closed for a time
        for turn in (first, third):
            assert isinstance(turn, Turn)
            with turn:
                turn.observe(200)
