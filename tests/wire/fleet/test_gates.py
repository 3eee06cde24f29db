"""Gates, queues and commands of a fleet, by the public interface and a real Redis alone."""

import asyncio
import gc
import json
import logging
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from secrets import token_hex
from typing import Any, Final

import pytest
from redis.asyncio import Redis
from yarl import URL

from politesse import Bound, CacheOptions, Dialect, Gatekeeper, NotYet, PacingOptions, PoliteSession, TooFar, Turn
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import Event, FleetAway, FleetBack
from politesse.options import FleetOptions, Limit, SharedPacer
from politesse.queue import PoliteQueue, QueueClosed
from politesse.stores import MemoryStore
from politesse.stores.redis import RedisStore
from politesse.testing import ScriptedFetcher
from politesse.verdict import Verdict
from tests.support.pacing import HOST, Resolving
from tests.support.programs import run_code, started
from tests.support.redis_servers import RedisServer, begin_round
from tests.support.sites import UA, Seen, Site, serving, until
from tests.support.tiers import first_of
from tests.tools.cli.command import Done, politesse
from tests.wire.fleet.gate_program import DELAY_S, THREADS
from tests.wire.fleet.members import Members
from tests.wire.fleet.proxies import SlowWay

pytestmark = pytest.mark.realtime

PAGE: Final = "https://example.com/page"
QUICK: Final = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
NAMES: Final = ("a", "b", "c")


@pytest.fixture
def options(server: RedisServer, prefix: str) -> FleetOptions:
    begin_round(server.url, prefix)
    return FleetOptions(server.url, prefix=prefix)


def gate_of(
    fleet: FleetOptions | str | None,
    pacing: PacingOptions | None = QUICK,
    robots: Mapping[str, str | int] | None = None,
    **given: Any,
) -> Gatekeeper:
    """Return a gate as it would be in a process of its own: the gates of one event loop share a pacer by default."""
    hosts = ["example.com", "example.org", *(f"{name}.example" for name in NAMES)]
    site = ScriptedFetcher({**dict.fromkeys((f"https://{host}" for host in hosts), 404), **(robots or {})})
    if isinstance(fleet, FleetOptions):
        given, fleet, pacing = {"pacer": SharedPacer(pacing, fleet=fleet), **given}, None, None
    return Gatekeeper(UA, fetcher=site, fleet=fleet, pacing=pacing, **given)


async def visit(gate: Gatekeeper, url: str = PAGE, **given: Any) -> None:
    async with gate.turn(url, **{"max_wait_s": 20.0, **given}) as turn:
        turn.observe(200)


async def connections(redis: Redis) -> int:
    """Return how many connections the server has beside the one that asks."""
    return len(await redis.client_list()) - 1


# One pace


@pytest.mark.full
@pytest.mark.parametrize("kinds", first_of(2, [("gate", "session"), ("gate", "gate"), ("crawlee", "crawlee")]))
async def test_two_processes_keep_one_pace(options: FleetOptions, site: Site, kinds: tuple[str, str]) -> None:
    programs = [
        await started(
            "wire.fleet.gate_program", kind, options.url, options.prefix, "3", f"{site.base}/{place}", stderr=PIPE
        )
        for place, kind in enumerate(kinds)
    ]
    assert [(await program.communicate())[1].decode() for program in programs] == ["", ""]
    assert [program.returncode for program in programs] == [0, 0]
    assert sorted(site.pages) == ["/0", "/0", "/0", "/1", "/1", "/1"]
    assert least_gap_s(site.seen) >= 1.0


def least_gap_s(seen: list[Seen]) -> float:
    """Return the least time between two pages of a host."""
    pages = sorted((one for one in seen if one.path != "/robots.txt"), key=lambda one: one.started)
    # The server stamps the end of an answer before the client has it, and its start after the client has sent it.
    return min(after.started - before.ended for before, after in pairwise(pages))


@pytest.fixture
async def everywhere() -> AsyncIterator[Site]:
    """Return a site at all addresses of this machine, each of which is another host."""
    async for running in serving(Site(), address="0.0.0.0"):  # noqa: S104 - 127.0.0.1 to 127.0.0.20
        yield running


@pytest.mark.full
async def test_threads_of_two_processes_keep_one_pace(options: FleetOptions, everywhere: Site) -> None:
    urls = [f"http://127.0.0.{place}:{URL(everywhere.base).port}" for place in range(1, 21)]
    arguments = ("threads", options.url, options.prefix, "1", *urls)
    programs = [await started("wire.fleet.gate_program", *arguments, stderr=PIPE) for _ in range(2)]
    assert [(await program.communicate())[1].decode() for program in programs] == ["", ""]
    by_host: defaultdict[str, list[Seen]] = defaultdict(list)
    for seen in everywhere.seen:
        by_host[seen.headers["Host"]].append(seen)
    assert {len(requests) for requests in by_host.values()} == {1 + 2 * THREADS // 5}  # robots.txt once
    assert len(by_host) == len(urls)
    assert min(map(least_gap_s, by_host.values())) >= DELAY_S


async def test_gates_of_a_fleet_share_what_a_host_has_asked_for(options: FleetOptions) -> None:
    async with gate_of(options) as one, gate_of(options) as other:
        assert (await other.check(PAGE)).allowed  # it could not be fetched later
        async with one.turn(PAGE, max_wait_s=20.0) as turn:
            turn.observe(429, {"Retry-After": "600"})
        with pytest.raises(TooFar, match="retry-after"):
            await visit(other)
        status = other.hosts()["example.com"]
        assert status.closed_by is Bound.RETRY_AFTER
        assert status.closed_until is not None


@pytest.mark.full
async def test_closing_is_kept_by_the_pace_alone(options: FleetOptions, redis: Redis) -> None:
    async with gate_of(options) as gate, gate.turn(PAGE, max_wait_s=20.0) as turn:
        turn.observe(429, {"Retry-After": "3600"})
    keys = {
        key.decode().removeprefix(options.prefix) async for key in redis.scan_iter(f"{options.prefix}*example.com*")
    }
    assert keys == {"2:host:example.com", "{record:https://example.com}"}


async def test_hosts_of_one_address_share_its_limit_in_the_fleet(options: FleetOptions) -> None:
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=Limit(min_delay_s=2.0))
    resolver = Resolving({"example.com": ["192.0.2.1"], "example.org": ["192.0.2.1"]})
    async with gate_of(options, pacing, resolver=resolver) as one, gate_of(options, pacing, resolver=resolver) as other:
        await visit(one, exempt="a test")  # it waits for no robots.txt, whose fetch would count
        with pytest.raises(TooFar, match=r"no turn at example\.org within 1 s: .* by floor"):
            await visit(other, "https://example.org/page", max_wait_s=1.0, exempt="a test")


@pytest.mark.full
async def test_gates_of_one_pacer_share_their_connections(options: FleetOptions, redis: Redis) -> None:
    before = await connections(redis)
    pacer = SharedPacer(QUICK, fleet=options)
    async with gate_of(None, None, store=MemoryStore(), pacer=pacer) as one:
        await visit(one)
        alone = await connections(redis)
        async with gate_of(None, None, store=MemoryStore(), pacer=pacer) as other:
            await visit(other)
            assert await connections(redis) == alone > before
        await visit(one)


# What is shown


@pytest.mark.full
async def test_request_of_another_gate_that_is_waited_for_is_named(options: FleetOptions) -> None:
    async with gate_of(options) as one, gate_of(options) as other:
        async with one.turn(f"{PAGE}/1", max_wait_s=20.0):
            assert one.hosts()["example.com"].fleet_wait is None
            waiting = asyncio.create_task(visit(other))
            await until(
                lambda: any(host.fleet_wait is not None and host.fleet_wait.held_by for host in other.hosts().values())
            )
            status = other.hosts()["example.com"]
            assert status.fleet_wait is not None
            assert (status.fleet_wait.bound_by, status.fleet_wait.held_by) == (Bound.IN_FLIGHT, f"{PAGE}/1")
            assert (status.waiting, status.in_flight, status.held_by) == (1, 0, "")
            assert f"1 waiting, in the fleet {status.fleet_wait}" in repr(status)
            assert f"by in-flight, held by {PAGE}/1" in repr(status)
        await waiting
        assert other.hosts()["example.com"].fleet_wait is None


# Without its Redis


@pytest.mark.usefixtures("short_holds")
async def test_without_its_redis_a_gate_answers_from_its_cache_and_starts_nothing(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    async with gate_of(own_server.url) as gate:
        gate.subscribe(events.append)
        await visit(gate)
        own_server.kill()
        with pytest.raises(TooFar, match=r"no turn at example\.com within 0\.2 s: .* by fleet \(its Redis is away"):
            await visit(gate, max_wait_s=0.2)
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
                await visit(gate, max_wait_s=0.2)
    assert [len([event for event in several if isinstance(event, FleetAway)]) for several in events] == [1, 1]
    assert len([record for record in caplog.records if "is away" in record.getMessage()]) == 1


async def test_wrong_password_is_an_error_without_the_password(own_server: RedisServer) -> None:
    async with Redis.from_url(own_server.url) as client:
        await client.config_set("requirepass", "s3cret")
    for password in (":wrong@", ""):
        async with gate_of(own_server.url.replace("//", f"//{password}")) as gate:
            with pytest.raises(ConfigurationError, match="refuses this client") as raised:
                await visit(gate)
            assert "wrong" not in str(raised.value).replace("WRONGPASS", "")


# The end


@pytest.mark.parametrize("kind", ["gate", "session"])
async def test_close_ends_all_tasks_and_connections(options: FleetOptions, redis: Redis, kind: str, site: Site) -> None:
    tasks, before = asyncio.all_tasks(), await connections(redis)
    if kind == "gate":
        async with gate_of(options, PacingOptions(min_delay_s=0.1)) as gate:
            await visit(gate)
            assert await connections(redis) > before
    else:
        async with PoliteSession(UA, fleet=options, pacing=QUICK) as web:
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
    server: RedisServer, redis: Redis, options: FleetOptions, kind: str
) -> None:
    async with SlowWay(server.port, 0.0) as way:
        gate = gate_of(replace(options, url=way.url))
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
    assert [field for field in await redis.hkeys(f"{options.prefix}2:host:example.com") if b"lease" in field] == []


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


@pytest.mark.usefixtures("short_holds")
async def test_gate_whose_redis_is_away_from_the_start_says_so_when_a_turn_is_wanted(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.kill()
    tasks = asyncio.all_tasks()
    async with gate_of(own_server.url):
        pass
    assert asyncio.all_tasks() == tasks
    assert caplog.records == []
    async with gate_of(own_server.url) as gate:
        with pytest.raises(TooFar, match="by fleet"):
            await visit(gate, max_wait_s=0.2, exempt="a test")
        own_server.start()
        await visit(gate, exempt="a test")
    assert [record.levelno for record in caplog.records if "is away" in record.getMessage()] == [logging.WARNING]


async def test_fleet_of_a_session_that_has_a_gate_is_an_error(options: FleetOptions) -> None:
    async with gate_of(options) as gate:
        with pytest.raises(ConfigurationError, match="fleet=: give it to the Gatekeeper"):
            PoliteSession(gate, fleet=options)


# Queues, and batches of turns

MOST: Final = 15  # scripts for a turn: two where all goes well, and two more for each start that came too late
WIDE: Final = PacingOptions(min_delay_s=0.05, max_concurrent=4, adaptive_factor=0.0)
SCOPED: Final = PacingOptions(
    min_delay_s=0.1,
    adaptive_factor=0.0,
    address=Limit(min_delay_s=0.05, max_concurrent=2),
    domain=Limit(min_delay_s=0.1),
)
SAME: Final = Resolving({f"{name}.example": ["192.0.2.1"] for name in NAMES})


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


@pytest.mark.full
@pytest.mark.parametrize("pacing", [QUICK, WIDE, SCOPED], ids=["alone", "wide", "scoped"])
async def test_queues_of_a_fleet_take_few_scripts_for_a_turn(
    options: FleetOptions, redis: Redis, pacing: PacingOptions
) -> None:
    scopes = 3 if pacing is SCOPED else 1
    async with gate_of(options, pacing, resolver=SAME) as one, gate_of(options, pacing, resolver=SAME) as other:
        before = await scripts(redis)
        async with queue_of(one, 10) as first, queue_of(other, 10) as second:
            await until(lambda: len(first) >= 8 and len(second) >= 8)
            taken = len(first) + len(second)
        assert await scripts(redis) - before <= MOST * scopes * taken


@pytest.mark.full
@pytest.mark.parametrize("closed_by", ["429", "visit-time"])
async def test_closed_host_takes_few_scripts(options: FleetOptions, redis: Redis, closed_by: str) -> None:
    hour, urls = time.gmtime().tm_hour, [f"https://{name}.example" for name in NAMES]
    robots = f"User-agent: *\nVisit-time: {(hour + 4) % 24:02}00-{(hour + 5) % 24:02}00\n"
    window = dict.fromkeys(urls, robots) if closed_by == "visit-time" else {}
    async with gate_of(options, robots=window, dialect=Dialect.CONNER_2) as one, gate_of(options) as other:
        if closed_by == "429":
            for url in urls:
                async with other.turn(f"{url}/", max_wait_s=20.0) as turn:
                    turn.observe(429, {"Retry-After": "600"})
        async with queue_of(one, 2) as taken:
            before = await scripts(redis)
            await asyncio.sleep(1.0)
            assert await scripts(redis) - before <= MOST * len(NAMES)
        assert taken == []


@pytest.mark.full
async def test_gates_that_try_many_turns_at_once_do_not_put_off_each_other_for_ever(
    options: FleetOptions,
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

    async with gate_of(options, WIDE) as one, gate_of(options, WIDE) as other:
        async with asyncio.timeout(30.0):
            await asyncio.gather(try_until_had(one), try_until_had(other))


@pytest.mark.full
async def test_queue_with_several_scopes_raises_that_redis_refuses(own_server: RedisServer, prefix: str) -> None:
    slow = {"https://a.example": "User-agent: *\nCrawl-delay: 30\n"}
    async with gate_of(FleetOptions(own_server.url, prefix=prefix), SCOPED, slow, resolver=SAME) as gate:
        await gate.check("https://a.example/")  # its fetch counts for the pace: the host is not ready
        own_server.kill()
        own_server.start("--requirepass", "secret")
        with pytest.raises(ConfigurationError, match="refuses this client"):
            await until(lambda: bool(gate.try_turn("https://a.example/")))
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put("https://a.example/2")
        with pytest.raises(ConfigurationError, match="refuses this client"):
            async with asyncio.timeout(10.0), queue.turn():
                pytest.fail("a turn without a pace")


async def test_gate_names_a_closure_that_it_knows_without_a_question_to_redis(own_server: RedisServer) -> None:
    async with gate_of(own_server.url) as gate:
        async with gate.turn(PAGE) as turn:
            turn.observe(503, {"Retry-After": "600"})
        answer = gate.try_turn(PAGE)
        assert isinstance(answer, NotYet)
        assert answer.bound_by is Bound.RETRY_AFTER
        assert answer.not_before == pytest.approx(time.time() + 600.0, abs=5.0)
        (same,) = await gate.try_turns([PAGE])
        assert isinstance(same, NotYet)
        assert same.bound_by is Bound.RETRY_AFTER


_LEFT_OPEN: Final = """
import asyncio, sys
from politesse import Gatekeeper
from politesse.testing import ScriptedFetcher

async def main():
    gate = Gatekeeper(
        "ExampleBot/1.0 (+https://example.com/bot)",
        fetcher=ScriptedFetcher({"https://example.com": 404}),
        fleet=sys.argv[1],
    )
    under_way = asyncio.Event()
    async def crawl():
        async with gate.turn("https://example.com/"):
            under_way.set()
            await asyncio.Future()
    crawling = asyncio.create_task(crawl())
    await under_way.wait()
    crawling.cancel()  # the end of its turn is being sent when the event loop ends
    await asyncio.wait([crawling])

asyncio.run(main())
"""


async def test_process_whose_gate_was_left_open_ends_with_its_event_loop(own_server: RedisServer) -> None:
    await asyncio.to_thread(run_code, _LEFT_OPEN, own_server.url, warnings="ignore")  # raises if it does not end


async def test_key_that_cannot_be_used_closes_its_host_and_ends_no_crawl(
    options: FleetOptions, redis: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.tickets._UNUSABLE_S", 1.2)
    await redis.set(f"{options.prefix}2:host:{HOST}", "1")
    refused: list[str] = []
    async with gate_of(options) as gate, asyncio.timeout(30.0):
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda url, _: refused.append(url))
        for url in (f"https://{HOST}/", "https://example.org/"):
            await queue.put(url)
        async with queue.turn() as turn:
            assert turn.url == "https://example.org/"
        closed_until = gate.hosts()[HOST].closed_until
        assert closed_until is not None
        assert 0.0 < closed_until - time.time() <= 1.2
        await redis.delete(f"{options.prefix}2:host:{HOST}")
        async with queue.turn() as turn:
            assert turn.url == f"https://{HOST}/"
            assert time.time() >= closed_until
    assert refused == []
    assert caplog.text.count(f"the key '{options.prefix}2:host:{HOST}' at ") == 1


async def test_host_that_cannot_be_used_costs_no_other_its_turn(options: FleetOptions, redis: Redis) -> None:
    await redis.set(f"{options.prefix}2:host:b.example", "1")
    urls = [f"https://{name}.example/" for name in NAMES]
    async with gate_of(options, PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)) as gate:
        await gate.check_batch(urls)
        first, second, third = await gate.try_turns(urls)
        assert isinstance(second, Verdict)
        assert second.not_before is not None  # the host is closed for a time
        for turn in (first, third):
            assert isinstance(turn, Turn)
            with turn:
                turn.observe(200)


async def test_many_queues_whose_files_evict_each_other_all_go_on(options: FleetOptions) -> None:
    sites = [f"https://h{number}.example" for number in range(10)]
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
    async with Gatekeeper(UA, fetcher=fetcher, fleet=options, pacing=QUICK, cache=cache) as gate, asyncio.timeout(30):
        await asyncio.gather(*(work(gate, site) for site in sites))
    assert sorted(turns) == sorted(f"{site}/{path}" for site in sites for path in ("page", "next"))


# The keys of a fleet, as ``politesse fleet status`` reads them; its other tests are in tests/tools/cli


async def status(server: RedisServer, prefix: str, *hosts: str) -> Done:
    return await politesse("fleet", "status", "--fleet", server.url, "--fleet-prefix", prefix, "--json", *hosts)


def records(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


async def test_each_kind_of_key_is_shown_as_what_it_is_and_stays_as_it_was(server: RedisServer, redis: Redis) -> None:
    prefix = f"{token_hex(4)}*[x]:"  # with characters that a pattern of SCAN has to escape
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0, address=Limit(min_delay_s=0.2))
    store, fleet = RedisStore(server.url, prefix=prefix), FleetOptions(server.url, prefix=prefix)
    await redis.set(f"{prefix}2:host:text.example", "x")
    await redis.hset(f"{prefix}2:host:hash.example", "colour", "red")
    await redis.hset(f"{prefix}2:host:nonsense.example", mapping={"format": "2", "closed": "soon"})
    await redis.set(f"{prefix}2:basket", "x")
    await redis.set("host:other.example", "x")
    async with (
        gate_of(fleet, pacing, resolver=SAME, store=store) as gate,
        gate.turn("https://a.example/1", max_wait_s=20.0),
    ):
        before = await redis.hgetall(f"{prefix}2:host:a.example"), await redis.pttl(f"{prefix}2:host:a.example")
        await asyncio.sleep(0.05)
        *found, _ = records(await status(server, prefix))
        address, _ = records(await status(server, prefix, "192.0.2.1"))
        assert await redis.hgetall(f"{prefix}2:host:a.example") == before[0]
        assert 0 < await redis.pttl(f"{prefix}2:host:a.example") < before[1]
    hosts = {(host["scope"], host["host"]) for host in found if "host" in host}
    assert hosts == {("host", "a.example"), ("address", "192.0.2.1")}
    assert [lease["url"] for lease in address["leases"]] == ["https://a.example/1"]
    errors = {one["key"].removeprefix(f"{prefix}2:"): one["error"] for one in found if "key" in one}
    assert "WRONGTYPE" in errors.pop("host:text.example")
    assert "nonsense in its field closed" in errors.pop("host:nonsense.example")
    assert errors == {
        "host:hash.example": "the key holds a hash that is not of politesse",
        "basket": "it is the key of no host",
    }


@pytest.mark.full
async def test_many_hosts_are_read_in_small_steps(
    fleet: Members, server: RedisServer, redis: Redis, prefix: str
) -> None:
    pacer, names = fleet.member(), {f"{place}.example" for place in range(2_000)}
    await pacer.closed_until("first.example")
    for name in names:
        pacer.close_host(name, time.time() + 600.0, Bound.BACKOFF)
    await pacer.closed_until("last.example")
    await redis.config_resetstat()
    *found, totals = records(await status(server, prefix))
    assert {host["host"] for host in found} == names
    assert totals["totals"]["closed"] == 2_000
    used = await redis.info("commandstats")
    assert "cmdstat_keys" not in used
    assert used["cmdstat_scan"]["calls"] > 1


@pytest.mark.full
async def test_redis_that_stands_still_is_an_error(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.status._TIMEOUT_S", 0.5)
    own_server.stop()
    done = await status(own_server, "politesse:")
    own_server.go_on()
    assert (done.code, done.out) == (2, "")
    assert "is away: no answer within 0.5 s" in done.err
