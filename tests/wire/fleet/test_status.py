"""The keys of a fleet as ``politesse fleet status`` reads them; its other tests are in tests/tools/cli."""

import asyncio
import json
import time
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis

from politesse import Gatekeeper
from politesse.options import FleetOptions, Limit, PacingOptions
from politesse.stores.redis import RedisStore
from politesse.testing import ScriptedFetcher
from politesse.verdict import Bound
from tests.support.pacing import Resolving
from tests.support.redis_servers import RedisServer
from tests.tools.cli.command import Done, politesse
from tests.wire.fleet.members import Members

pytestmark = pytest.mark.realtime


@pytest.fixture
def prefix() -> str:
    return f"{token_hex(4)}*[x]:"  # with characters that a pattern of SCAN has to escape


async def status(server: RedisServer, prefix: str, *hosts: str) -> Done:
    return await politesse("fleet", "status", "--fleet", server.url, "--fleet-prefix", prefix, "--json", *hosts)


def records(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


async def test_each_kind_of_key_is_shown_as_what_it_is_and_stays_as_it_was(
    server: RedisServer, redis: Redis, prefix: str
) -> None:
    pacing = PacingOptions(min_delay_s=0.5, adaptive_factor=0.0, address=Limit(min_delay_s=0.5))
    store, fleet = RedisStore(server.url, prefix=prefix), FleetOptions(server.url, prefix=prefix)
    site, resolver = ScriptedFetcher({"https://a.example": 404}), Resolving({"a.example": ["192.0.2.1"]})
    await redis.set(f"{prefix}host:text.example", "x")
    await redis.hset(f"{prefix}host:hash.example", "colour", "red")
    await redis.hset(f"{prefix}host:nonsense.example", mapping={"format": "1", "closed": "soon"})
    await redis.set(f"{prefix}basket", "x")
    await redis.set("host:other.example", "x")
    async with (
        Gatekeeper("ExampleBot/1.0", fetcher=site, resolver=resolver, pacing=pacing, fleet=fleet, store=store) as gate,
        gate.turn("https://a.example/1", max_wait_s=20.0),
    ):
        before = await redis.hgetall(f"{prefix}host:a.example"), await redis.pttl(f"{prefix}host:a.example")
        await asyncio.sleep(0.05)
        *found, _ = records(await status(server, prefix))
        address, _ = records(await status(server, prefix, "192.0.2.1"))
        assert await redis.hgetall(f"{prefix}host:a.example") == before[0]
        assert 0 < await redis.pttl(f"{prefix}host:a.example") < before[1]
    hosts = {(host["scope"], host["host"]) for host in found if "host" in host}
    assert hosts == {("host", "a.example"), ("address", "192.0.2.1")}
    assert [lease["url"] for lease in address["leases"]] == ["https://a.example/1"]
    errors = {one["key"].removeprefix(prefix): one["error"] for one in found if "key" in one}
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
