"""What is wrong with a Redis: an error that says so, or a wait, and never a start."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from politesse import PacingOptions
from politesse.errors import ConfigurationError, TooFar
from politesse.events import FleetAway, FleetBack
from tests.support.pacing import HOST, Pacer, finish, wants
from tests.support.redis_servers import RedisServer, text_of
from tests.wire.fleet.members import Members, Span, crawl, least_gap_s, visit

pytestmark = pytest.mark.realtime

FAR: Final = "8999999999999999"


async def nothing_starts(pacer: Pacer, seconds: float = 1.0) -> None:
    with pytest.raises(TooFar, match="by fleet"):
        await pacer.start(wants(), seconds)


@asynccontextmanager
async def client_of(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client


async def command(client: Redis, *words: str | int) -> object:
    answer: object = await client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py gives it no types
    return answer


# Keys and messages of somebody else


NONSENSE: Final[tuple[dict[str, str], ...]] = (
    *({"before": value} for value in ("abc", "nan", "inf", "-1", "0x10", "1e15", "9" * 400, FAR, "")),
    {"late": "nan"},
    {"late": "nan"},
    {"closed": "nan", "why": "backoff"},
    {"closed": FAR, "why": "backoff"},
    {"why": "a whim", "closed": "1"},
    *({"version": value} for value in ("inf", FAR)),
    {"backoff": "nan"},
    {"fetch": "-7"},
    {"longest": "nan"},
    {"pace": "nan"},
    *({"seen": value} for value in ("nan", FAR)),
    *({"lease:a.1": f"{value} 0 0"} for value in ("soon", "nan", FAR)),
    *({"lease:a.1": f"0 {value} 0"} for value in ("-5", FAR)),
    *({"claim": value} for value in ("a nonsense", "a 1 nan", "1 1")),
)


async def test_nonsense_in_a_key_closes_the_host_and_the_error_names_its_field(
    fleet: Members, redis: Redis, prefix: str
) -> None:
    pacer = fleet.member()
    for number, fields in enumerate(NONSENSE):
        host, name = f"host{number}.example", next(iter(fields)).partition(":")[0]
        key = f"{prefix}2:host:{host}"
        await redis.hset(key, mapping={**dict[Any, Any](fields), "format": "2"})
        with pytest.raises(TooFar, match="backoff"):
            await pacer.start(wants(host=host), 30.0)
        assert re.search(rf"{key}.*nonsense in its field {name}.*another prefix", fleet.failures[-1]), fields
        assert {text_of(name) for name in await redis.hkeys(key)} == {"format", *fields}, "it is left alone"
    assert len(fleet.failures) == len(NONSENSE)


async def test_value_of_another_type_closes_the_host_and_the_error_names_the_key(
    fleet: Members, redis: Redis, prefix: str
) -> None:
    pacer = fleet.member()
    for host, add in {"a": ("RPUSH", "a"), "b": ("SADD", "a"), "c": ("XADD", "*", "a", "b")}.items():
        key = f"{prefix}2:host:{host}"
        await command(redis, add[0], key, *add[1:])
        with pytest.raises(TooFar, match="backoff"):
            await pacer.start(wants(host=host), 30.0)
        assert re.search(rf"{key}.*WRONGTYPE.*another prefix", fleet.failures[-1])


async def test_key_that_is_overwritten_is_reported_once_and_only_its_host_waits(
    fleet: Members, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse._pacing.fleet.tickets._UNUSABLE_S", 1.2)
    pacer = fleet.member(PacingOptions(min_delay_s=0.05, max_concurrent=3, adaptive_factor=0.0))
    permits = [await pacer.start(wants()) for _ in range(3)]
    await redis.set(f"{prefix}2:host:{HOST}", "1")
    for permit in permits:
        finish(permit, 200)
    finish(await pacer.start(wants(host="other.example")), 200)
    with pytest.raises(TooFar, match="backoff"):
        await pacer.start(wants(), 0.1)
    assert len(fleet.failures) == 1
    await redis.delete(f"{prefix}2:host:{HOST}")
    await visit(pacer)


async def lease_of(redis: Redis, key: str) -> str:
    """Return the field of the only request that is under way."""
    (field,) = [name for name in map(text_of, await redis.hkeys(key)) if name.startswith("lease:")]
    return field


# Servers that refuse, or cannot serve


@pytest.mark.full
async def test_user_without_a_permission_is_an_error_that_names_it(
    fleet: Members, redis: Redis, server: RedisServer
) -> None:
    rows = {f"~* &* +@all -{name}": name for name in ("evalsha", "script", "info")}
    rows |= {f"~* &* +@all -{name}": f"(can't run this|'{name}') command" for name in ("zadd", "hset")}
    rows |= {"~other:* &* +@all": "keys?"}
    for rules, missing in rows.items():
        await command(redis, "ACL", "SETUSER", "bob", "reset", "on", ">secret", *rules.split())
        pacer = fleet.member(url=server.url.replace("//", "//bob:secret@"))
        with pytest.raises(ConfigurationError, match=rf":{server.port}/0 refuses this client: .*{missing}") as raised:
            await pacer.start(wants())
        assert "secret" not in str(raised.value)


@pytest.mark.full
async def test_permission_that_is_taken_away_is_an_error(fleet: Members, redis: Redis, server: RedisServer) -> None:
    await command(redis, "ACL", "SETUSER", "eve", "reset", "on", ">secret", "~*", "&*", "+@all")
    pacer = fleet.member(url=server.url.replace("//", "//eve:secret@"))
    await visit(pacer)
    await command(redis, "ACL", "SETUSER", "eve", "-evalsha")
    with pytest.raises(ConfigurationError, match="refuses this client"):
        await pacer.start(wants())
    await command(redis, "ACL", "SETUSER", "eve", "+evalsha")
    visited = False
    async with asyncio.timeout(10.0):
        while not visited:
            with suppress(ConfigurationError):
                visited = bool(await visit(pacer))
            await asyncio.sleep(0.1)
    assert len(fleet.aways) == 1


async def test_user_needs_no_more_than_the_permissions_that_are_listed(
    fleet: Members, redis: Redis, server: RedisServer, prefix: str
) -> None:
    commands = ["evalsha", "script|load", "info", "time", "hmget", "hgetall", "hset", "hdel", "pexpire", "pttl"]
    commands += ["type", "del", "zadd", "zscore", "zrem", "zrangebyscore"]
    rules = [f"~{prefix}2:*", "resetchannels", *(f"+{name}" for name in commands)]
    await command(redis, "ACL", "SETUSER", "least", "reset", "on", ">secret", *rules)
    one, other = [fleet.member(url=server.url.replace("//", "//least:secret@")) for _ in range(2)]
    held = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.2)
    finish(held, 200)
    finish(await asyncio.wait_for(waiting, 30.0), 200)
    assert fleet.aways == []


@pytest.mark.full
@pytest.mark.usefixtures("quick_looks")
async def test_eviction_policy_that_is_set_later_is_an_error(fleet: Members, own_server: RedisServer) -> None:
    pacer = fleet.member(url=own_server.url)
    await visit(pacer)
    async with client_of(own_server) as client:
        await client.config_set("maxmemory-policy", "volatile-ttl")
        await client.config_set("maxmemory", "100mb")
        await asyncio.sleep(0.6)
        with pytest.raises(ConfigurationError, match=r"volatile-ttl.*noeviction"):
            await pacer.start(wants())
        await client.config_set("maxmemory-policy", "noeviction")
        await asyncio.sleep(1.5)
    await visit(pacer)
    assert len(fleet.aways) == 1


@pytest.mark.full
async def test_redis_without_memory_lets_nothing_start_and_is_reported_once(
    fleet: Members, own_server: RedisServer
) -> None:
    one, other = [fleet.member(url=own_server.url) for _ in range(2)]
    await visit(one)
    held = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.3)
    async with client_of(own_server) as client:
        await client.config_set("maxmemory", "1")
        finish(held, 200)  # its script must not grant the host to the other one, and then fail to write that
        await nothing_starts(one, 2.0)
        assert not waiting.done()
        assert len(fleet.aways) == 2, "each member says so once"
        assert all("used memory > 'maxmemory'" in error for error in fleet.aways)
        await client.config_set("maxmemory", "0")
    finish(await waiting, 200)
    await visit(one)
    assert [type(event) for event in fleet.events] == [FleetAway, FleetAway, FleetBack, FleetBack]


@pytest.mark.full
async def test_replica_lets_nothing_start_and_is_reported_once(fleet: Members, own_server: RedisServer) -> None:
    with RedisServer() as primary:
        async with client_of(own_server) as client:
            await client.replicaof("127.0.0.1", primary.port)
            pacer = fleet.member(url=own_server.url)
            await nothing_starts(pacer, 2.0)
            (error,) = fleet.aways
            assert "read only replica" in error
            await client.replicaof("NO", "ONE")
        await visit(pacer)


@pytest.mark.full
@pytest.mark.parametrize("own_server", [("--lua-time-limit", "50")], indirect=True)
async def test_redis_that_is_busy_with_a_script_lets_nothing_start(fleet: Members, own_server: RedisServer) -> None:
    pacer = fleet.member(url=own_server.url)
    await visit(pacer)
    async with client_of(own_server) as blocked, client_of(own_server) as client:
        loop = asyncio.ensure_future(command(blocked, "EVAL", "while true do end", 0))
        await asyncio.sleep(0.3)
        await nothing_starts(pacer)
        await client.script_kill()
        with pytest.raises(RedisError):
            await loop
    await visit(pacer)
    assert len(fleet.aways) == 1


@pytest.mark.full
async def test_node_of_a_cluster_and_a_sentinel_are_errors_that_say_which_url_to_give(fleet: Members) -> None:
    node = RedisServer("--cluster-enabled", "yes")
    sentinel = RedisServer("--sentinel")
    try:
        for server, scheme in ((node, "cluster"), (sentinel, "sentinel")):
            with pytest.raises(ConfigurationError, match=rf"{server.port}.*redis\+{scheme}://"):
                await fleet.member(url=server.url).start(wants())
    finally:
        node.remove()
        sentinel.remove()


@pytest.mark.full
async def test_server_that_is_no_redis_lets_nothing_start(fleet: Members) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        pacer = fleet.member(url=f"redis://127.0.0.1:{port}/0")
        await nothing_starts(pacer)
        assert len(fleet.aways) == 1
        await fleet.aclose()


# Connections


@pytest.mark.full
async def test_connection_that_redis_closes_is_a_loss(fleet: Members, own_server: RedisServer) -> None:
    pacer = fleet.member(url=own_server.url)
    before_mono = await visit(pacer)
    async with client_of(own_server) as client:
        await command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await visit(pacer) - before_mono >= 0.1
    assert len(fleet.aways) == 1


@pytest.mark.full
async def test_redis_with_too_many_clients_lets_nothing_start_until_one_has_left(
    fleet: Members, own_server: RedisServer
) -> None:
    async with client_of(own_server) as client:
        await client.config_set("maxclients", "1")
        pacer = fleet.member(url=own_server.url)
        await nothing_starts(pacer, 2.0)
        (error,) = fleet.aways
        assert "max number of clients reached" in error
        await client.config_set("maxclients", "2")
        await visit(pacer)


@pytest.mark.full
async def test_request_that_outlives_its_lease_still_counts(fleet: Members, redis: Redis, prefix: str) -> None:
    one, other, third = [fleet.member() for _ in range(3)]
    outlives = await one.start(wants())
    key = f"{prefix}2:host:{HOST}"
    await redis.hdel(key, await lease_of(redis, key))
    held = await other.start(wants(), 5.0)
    finish(outlives, 200)
    with pytest.raises(TooFar, match="in-flight"):
        await third.start(wants(), 0.3)
    ended_mono = time.monotonic()
    finish(held, 200)
    assert await visit(third) - ended_mono >= 0.1


@pytest.mark.weekly
@pytest.mark.timeout(120)
async def test_failover_of_sentinels_keeps_the_pace_and_goes_on(fleet: Members, own_server: RedisServer) -> None:
    replica = RedisServer("--replicaof", "127.0.0.1", str(own_server.port), executable=own_server.executable)
    monitor = f"""
sentinel monitor fleet 127.0.0.1 {own_server.port} 1
sentinel down-after-milliseconds fleet 1000
sentinel failover-timeout fleet 6000
"""
    sentinel = RedisServer("--sentinel", config=monitor, executable=own_server.executable)
    spans: list[Span] = []
    try:
        async with client_of(sentinel) as observer, asyncio.timeout(60.0):
            while not (await observer.info("sentinel"))["master0"]["slaves"]:
                await asyncio.sleep(0.2)
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/fleet/0"
        members = [fleet.member(url=url) for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            crawls = [group.create_task(crawl(pacer, spans)) for pacer in members]
            await asyncio.sleep(4.0)
            own_server.kill()
            at_loss = len(spans)
            async with asyncio.timeout(60.0):
                while len(spans) < at_loss + 10:
                    await asyncio.sleep(0.2)
            for task in crawls:
                task.cancel()
        assert at_loss > 0
        assert least_gap_s(spans) >= 0.1
        assert len(fleet.aways) <= 4, "each member reports the loss, and not each attempt"
        await fleet.aclose()
    finally:
        sentinel.remove()
        replica.remove()
