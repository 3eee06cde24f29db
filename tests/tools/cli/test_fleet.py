"""``--fleet``, and ``politesse fleet``: commands share the state in a Redis, and show it."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from politesse import Gatekeeper, PacingOptions
from politesse.options import FleetOptions, SharedPacer
from politesse.testing import ScriptedFetcher
from tests.support.ports import free_port
from tests.support.redis_servers import RedisServer
from tests.support.scripted import UA
from tests.tools.cli.command import Done, Origin, politesse, run_process, serving

pytestmark = pytest.mark.realtime

NONE = {"busy": 0, "idle": 0, "foreign": 0, "closed": 0, "leases": 0, "waiting": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        time.sleep(1.5)  # a young one may have forgotten when a host was asked
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()
        yield client


@pytest.fixture
async def gate(server: RedisServer, client: redis.Redis) -> AsyncIterator[Gatekeeper]:
    """Return a gate of the fleet; the database is empty."""
    del client
    site = ScriptedFetcher({"https://a.example": 404, "https://b.example": 404})
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)
    async with Gatekeeper(UA, fetcher=site, fleet=server.url, pacing=pacing) as gate:
        yield gate


async def status(server: RedisServer, *arguments: str) -> Done:
    return await politesse("fleet", "status", "--fleet", server.url, *arguments)


async def test_status_shows_who_holds_what(server: RedisServer, gate: Gatekeeper) -> None:
    async with gate.turn("https://b.example/", max_wait_s=20.0) as turn:
        turn.observe(429, {"Retry-After": "600"})
    async with gate.turn("https://a.example/page", max_wait_s=20.0):
        done = await status(server)
        of_one = await status(server, "A.example.", "https://b.example:8443/page")
    assert (done.code, done.err) == (0, "")
    shown = done.out.splitlines()
    places = sorted(shown.index(f"host: {name}.example") for name in "ab")
    facts = {shown[at]: shown[at + 1 : to] for at, to in zip(places, [places[1], -1], strict=True)}
    a, b = facts["host: a.example"], facts["host: b.example"]
    assert "  interval_s: 0.2" in a
    assert a[a.index("  leases:") + 1].startswith("    owner: ")
    assert "    url: https://a.example/page" in a
    assert any(line.startswith("  closed_until: 20") for line in b)
    assert "  closed_by: retry-after" in b
    assert shown[-1] == "2 hosts busy, 1 of them closed, 0 idle; 1 request under way, 0 waiting"
    named = [line for line in of_one.out.splitlines() if line.startswith("host: ")]
    assert named == ["host: a.example", "host: b.example"]


async def test_status_as_json_has_its_documented_keys(server: RedisServer, gate: Gatekeeper) -> None:
    async with gate.turn("https://a.example/page", max_wait_s=20.0):
        done = await status(server, "--json")
    host, totals = done.records
    keys = "host scope asked closed_until closed_by interval_s adaptive_s leases waiting"
    assert list(host) == keys.split()
    assert (host["host"], host["scope"], host["interval_s"], host["waiting"]) == ("a.example", "host", 0.2, {})
    [lease] = host["leases"]
    assert list(lease) == ["owner", "url", "left_s"]
    assert (lease["url"], 0 < lease["left_s"] < 61) == ("https://a.example/page", True)
    assert totals == {"totals": NONE | {"busy": 1, "leases": 1}}


async def test_requests_that_wait_are_counted_for_their_processes(server: RedisServer, gate: Gatekeeper) -> None:
    site = ScriptedFetcher({"https://a.example": 404})

    async def visit(other: Gatekeeper) -> None:
        async with other.turn("https://a.example/2", max_wait_s=20.0):
            pass

    async with Gatekeeper(UA, fetcher=site, pacer=SharedPacer(fleet=server.url)) as other:  # as in another process
        async with gate.turn("https://a.example/1", max_wait_s=20.0):
            waiting = asyncio.create_task(visit(other))
            async with asyncio.timeout(20.0):
                while not (known := other.hosts()) or known["a.example"].fleet_wait is None:
                    await asyncio.sleep(0.01)
            done = await status(server)
        assert re.search(r"^  waiting:\n    \S+: 1$", done.out, re.MULTILINE)
        assert done.out.splitlines()[-1].endswith("; 1 request under way, 1 waiting")
        await waiting


async def test_idle_hosts_are_counted_and_shown_by_name_only(server: RedisServer, gate: Gatekeeper) -> None:
    async with gate.turn("https://a.example/page", max_wait_s=20.0):
        pass
    async with asyncio.timeout(20.0):  # the end is reported a little later
        while (done := await status(server, "--json")).out.count("\n") > 1:
            await asyncio.sleep(0.05)
    assert done.records == [{"totals": NONE | {"idle": 1}}]
    named = await status(server, "a.example")
    assert named.out.startswith("host: a.example\n")


async def test_unknown_host_has_an_exit_code(server: RedisServer, gate: Gatekeeper) -> None:
    done = await status(server, "nobody.example", "2001:db8::1", "--json")
    assert (done.code, done.records) == (1, [{"totals": NONE}])
    assert done.err == "nothing is known of nobody.example\nnothing is known of 2001:db8::1\n"
    assert (await status(server, "no host")).code == 2


async def test_foreign_key_is_reported_and_the_rest_is_shown(
    server: RedisServer, gate: Gatekeeper, client: redis.Redis
) -> None:
    client.set("politesse:2:host:evil\x1b[2J.example", "x")
    async with gate.turn("https://a.example/page", max_wait_s=20.0):
        done, as_json = await status(server), await status(server, "--json")
    assert done.code == as_json.code == 0
    assert "politesse:2:host:evil\\x1b[2J.example: WRONGTYPE" in done.out
    assert "host: a.example" in done.out
    assert done.out.endswith("1 key of something else\n")
    [foreign] = [record for record in as_json.records if "key" in record]
    assert list(foreign) == ["key", "error"]


async def test_redis_that_is_away_or_refuses_is_one_line_without_the_password(server: RedisServer) -> None:
    url = f"redis://crawler:secret@127.0.0.1:{free_port()}/0"
    away = await politesse("fleet", "status", "--fleet", url)
    refused = await politesse("fleet", "status", "--fleet", server.url.replace("//", "//crawler:secret@"))
    invalid = await politesse("fleet", "status", "--fleet", "redis:secret")
    for done, problem in ((away, "is away"), (refused, "refuses this client"), (invalid, "give a URL")):
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert (problem in done.err, "secret" in done.err) == (True, False)
    done = await politesse("check", "--fleet", "http://:secret@127.0.0.1/0", "https://example.com/")
    assert (done.code, "fleet='http://...'" in done.err, "secret" in done.err) == (2, True, False)


async def test_commands_of_a_fleet_fetch_a_robots_txt_once(server: RedisServer, client: redis.Redis) -> None:
    del client
    async with serving(Origin()) as origin:
        checked = await politesse("check", "--fleet", server.url, f"{origin.base}/private/")
        filtered = await politesse("filter", "--fleet", server.url, stdin=f"{origin.base}/page".encode())
        crawled = await politesse("crawl", "--fleet", server.url, "--same-host", f"{origin.base}/")
        paths = origin.paths
    assert (checked.code, filtered.code, crawled.code) == (1, 0, 0)
    assert paths == ["/robots.txt", "/"]


@pytest.mark.full
async def test_crawl_keeps_the_pace_of_its_fleet(server: RedisServer, client: redis.Redis) -> None:
    del client
    fleet = FleetOptions(server.url, prefix="crawl-2:")
    async with serving(Origin()) as origin:
        async with Gatekeeper(UA, fleet=fleet) as gate, gate.turn(f"{origin.base}/1", max_wait_s=20.0):
            options = ("--fleet", server.url, "--fleet-prefix", "crawl-2:", "--same-host")
            crawl = asyncio.create_task(run_process("crawl", *options, f"{origin.base}/"))
            async with asyncio.timeout(60.0):
                while " 1 waiting" not in (await status(server, "--fleet-prefix", "crawl-2:")).out:
                    await asyncio.sleep(0.05)
            assert origin.paths == ["/robots.txt"]
        done = await crawl
        assert origin.paths == ["/robots.txt", "/"]
    assert done.code == 0


@pytest.mark.full
async def test_commands_whose_redis_refuses_end_with_its_reason(server: RedisServer) -> None:
    url = server.url.replace("//", "//crawler:secret@")
    async with serving(Origin()) as origin:
        crawled = await run_process("crawl", "--fleet", url, "--same-host", f"{origin.base}/")
        checked = await run_process("check", "--page", "--fleet", url, f"{origin.base}/")
        assert set(origin.paths) == {"/robots.txt"}
    for done in (crawled, checked):
        assert done.code == 2
        assert "refuses this client" in done.err
        assert "secret" not in done.err


@pytest.mark.full
async def test_command_whose_redis_is_away_says_so_and_goes_on_when_it_is_back() -> None:
    with RedisServer() as own:
        own.kill()
        async with serving(Origin()) as origin:
            verdict = await run_process("check", "--fleet", own.url, f"{origin.base}/")
            assert (verdict.code, verdict.out.partition("\n")[0]) == (0, f"allowed: {origin.base}/")
            waiting = asyncio.create_task(run_process("check", "--page", "--fleet", own.url, f"{origin.base}/"))
            async with asyncio.timeout(60.0):
                while len(origin.requests) < 2:  # it asks Redis before it fetches robots.txt
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            assert origin.paths == ["/robots.txt"] * 2
            own.start()
            done = await waiting
        assert done.code == 0
        assert f"{own.url} is away: no request starts until it is back" in done.err
        assert f"{own.url} is back after " in done.err
