"""What a fleet knows of its hosts, read from a real Redis."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import pytest
from redis.asyncio import Redis

from politesse._pacing.fleet.status import FleetHost, FleetReader, UnreadableKey
from politesse._pacing.fleet.wire import RedisWire
from politesse.errors import ConfigurationError
from politesse.options import FleetOptions, Limit, PacingOptions
from politesse.stores.redis import RedisStore
from politesse.verdict import Bound
from tests.integration.fleet.members import Members
from tests.support.pacing import finish, wants
from tests.support.redis_servers import EXECUTABLES, RedisServer, free_port, shared_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from politesse.ports import Pacer, TurnRequest

pytestmark = pytest.mark.realtime

SLOW: Final = PacingOptions(min_delay_s=0.5, adaptive_factor=0.0)


@pytest.fixture(scope="module", params=EXECUTABLES)
def server(request: pytest.FixtureRequest) -> RedisServer:
    """Return a server that is older than any interval here."""
    server = shared_server(request.param)
    time.sleep(1.0)
    return server


@pytest.fixture
def prefix() -> str:
    return f"{token_hex(4)}*[x]:"  # with characters that a pattern of SCAN has to escape


@pytest.fixture
async def fleet(server: RedisServer, prefix: str) -> AsyncIterator[Members]:
    members = Members(lambda: RedisWire.of_url(server.url), prefix)
    yield members
    await members.aclose()


@pytest.fixture
async def reader(server: RedisServer, prefix: str) -> AsyncIterator[FleetReader]:
    reader = FleetReader(FleetOptions(server.url, prefix=prefix))
    yield reader
    await reader.aclose()


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.remove()


async def scanned(reader: FleetReader) -> dict[str, FleetHost | UnreadableKey]:
    found: dict[str, FleetHost | UnreadableKey] = {}
    async for several in reader.scan():
        found |= {one.key if isinstance(one, UnreadableKey) else f"{one.scope}:{one.name}": one for one in several}
    return found


async def host_of(reader: FleetReader, name: str) -> FleetHost:
    [host] = await reader.find([name])
    assert isinstance(host, FleetHost)
    return host


def at(host: str, path: str) -> TurnRequest:
    return wants(host=host)._replace(url=f"https://{host}/{path}")


async def visit(pacer: Pacer) -> None:
    finish(await pacer.start(at("a.example", "2")), 200)


async def test_who_holds_a_host_and_who_waits_for_it(fleet: Members, reader: FleetReader) -> None:
    links = [fleet.link() for _ in range(3)]
    holder, *others = [fleet.member(SLOW, link) for link in links]
    permit = await holder.start(at("a.example", "1"), 10.0)
    waiting = [asyncio.create_task(visit(pacer)) for pacer in others]
    async with asyncio.timeout(10.0):
        while (host := await host_of(reader, "a.example")).waiting.total() < 2:
            await asyncio.sleep(0.01)
    [lease] = host.leases
    assert (lease.owner, lease.url) == (links[0].owner, "https://a.example/1")
    assert 5.0 < lease.left_s <= 10.0 + SLOW.min_delay_s
    assert host.waiting == {links[1].owner: 1, links[2].owner: 1}
    assert (host.scope, host.interval_s, host.closed_by) == ("host", 0.5, None)
    finish(permit, 200)
    await asyncio.gather(*waiting)
    async with asyncio.timeout(10.0):
        while (host := await host_of(reader, "a.example")).leases:
            await asyncio.sleep(0.01)
    assert not host.is_busy
    assert host.asked_wall is not None
    assert 0.0 <= host.read_wall - host.asked_wall < 10.0
    assert abs(host.read_wall - time.time()) < 5.0


async def test_host_that_is_closed(fleet: Members, reader: FleetReader) -> None:
    pacer = fleet.member(SLOW)
    until_wall = time.time() + 600.0
    pacer.close_host("a.example", until_wall, Bound.RETRY_AFTER)
    await pacer.closed_until("a.example")
    host = await host_of(reader, "a.example")
    assert (host.closed_by, host.is_busy, host.asked_wall) == (Bound.RETRY_AFTER, True, None)
    assert host.closed_until_wall == pytest.approx(until_wall, abs=5.0)


async def test_addresses_and_domains_are_hosts_of_their_scopes(fleet: Members, reader: FleetReader) -> None:
    options = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=Limit(min_delay_s=0.5))
    pacer = fleet.scoped_member(options, {"a.example": ["192.0.2.1"]})
    permit = await pacer.start(at("a.example", "1"), 10.0)
    found = await scanned(reader)
    assert set(found) == {"host:a.example", "address:192.0.2.1"}
    assert [host.scope for host in await reader.find(["192.0.2.1"]) if isinstance(host, FleetHost)] == ["address"]
    finish(permit, 200)


async def test_many_hosts_are_read_in_small_steps(
    fleet: Members, reader: FleetReader, server: RedisServer, redis: Redis
) -> None:
    pacer, count = fleet.member(SLOW), 2_000
    await pacer.closed_until("first.example")
    names = {f"host:{place}.example" for place in range(count)}
    for name in names:
        pacer.close_host(name.removeprefix("host:"), time.time() + 600.0, Bound.BACKOFF)
    await pacer.closed_until("last.example")
    await redis.config_resetstat()
    steps = [several async for several in reader.scan()]
    found = [f"{one.scope}:{one.name}" for several in steps for one in several if isinstance(one, FleetHost)]
    assert sorted(found) == sorted(names)
    assert max(map(len, steps)) <= 250
    used = await redis.info("commandstats")
    assert "cmdstat_keys" not in used
    assert used["cmdstat_scan"]["calls"] > 1


async def test_reading_changes_nothing(fleet: Members, reader: FleetReader, redis: Redis, prefix: str) -> None:
    permit = await fleet.member(SLOW).start(at("a.example", "1"), 10.0)
    before = await redis.hgetall(f"{prefix}host:a.example")
    expires_ms = await redis.pttl(f"{prefix}host:a.example")
    await asyncio.sleep(0.05)
    await scanned(reader)
    await reader.find(["a.example", "nobody.example"])
    assert await redis.hgetall(f"{prefix}host:a.example") == before
    assert 0 < await redis.pttl(f"{prefix}host:a.example") < expires_ms
    assert not await redis.exists(f"{prefix}host:nobody.example")
    finish(permit, 200)


async def test_foreign_keys_are_reported_among_the_hosts(
    fleet: Members, reader: FleetReader, server: RedisServer, redis: Redis, prefix: str
) -> None:
    permit = await fleet.member(SLOW).start(at("a.example", "1"), 10.0)
    await redis.set(f"{prefix}host:text.example", "x")
    await redis.hset(f"{prefix}host:hash.example", "colour", "red")
    await redis.hset(f"{prefix}host:nonsense.example", mapping={"format": "1", "closed": "soon"})
    await redis.set(f"{prefix}basket", "x")
    await redis.set("host:other.example", "x")
    store = RedisStore(server.url, prefix=prefix)
    await store.put("https://a.example", b"record")
    await store.aclose()
    found = await scanned(reader)
    foreign = {key.removeprefix(prefix): one.error for key, one in found.items() if isinstance(one, UnreadableKey)}
    assert set(foreign) == {"host:text.example", "host:hash.example", "host:nonsense.example", "basket"}
    assert "WRONGTYPE" in foreign["host:text.example"]
    assert foreign["host:hash.example"] == "the key holds a hash that is not of politesse"
    assert "nonsense in its field closed" in foreign["host:nonsense.example"]
    assert foreign["basket"] == "it is the key of no host"
    assert [name for name, one in found.items() if isinstance(one, FleetHost)] == ["host:a.example"]
    finish(permit, 200)


async def test_script_that_the_server_has_forgotten_is_loaded_again(
    fleet: Members, reader: FleetReader, redis: Redis
) -> None:
    finish(await fleet.member(SLOW).start(at("a.example", "1"), 10.0), 200)
    await host_of(reader, "a.example")
    await redis.script_flush()
    assert (await host_of(reader, "a.example")).name == "a.example"


async def test_redis_that_is_away_or_stands_still_is_an_error(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.status._TIMEOUT_S", 0.5)
    reader = FleetReader(FleetOptions(f"redis://:secret@127.0.0.1:{free_port()}/0"))
    with pytest.raises(ConnectionError, match=r"is away: .*ConnectionError") as raised:
        await scanned(reader)
    assert "secret" not in str(raised.value)
    await reader.aclose()
    reader = FleetReader(FleetOptions(own_server.url))
    own_server.stop()
    with pytest.raises(ConnectionError, match=r"is away: no answer within 0\.5 s"):
        await scanned(reader)
    own_server.go_on()
    await reader.aclose()


async def test_redis_that_refuses_is_an_error_without_the_password(own_server: RedisServer) -> None:
    async with Redis.from_url(own_server.url) as client:
        await client.config_set("requirepass", "right")
    reader = FleetReader(FleetOptions(own_server.url.replace("//", "//:guessed@")))
    with pytest.raises(ConfigurationError, match="refuses this client") as raised:
        await scanned(reader)
    assert "guessed" not in str(raised.value)
    await reader.aclose()
