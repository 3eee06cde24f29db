"""What a restart and a failover of Redis cost a fleet, with persistence and without, by the public interface."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import Bound, Gatekeeper, PacingOptions, TooFar
from politesse.options import FleetOptions, SharedPacer
from politesse.stores import MemoryStore
from politesse.testing import ScriptedFetcher
from tests.support.redis_servers import RedisServer
from tests.support.sites import UA

pytestmark = pytest.mark.realtime

PAGE: Final = "https://example.com/page"
QUICK: Final = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
KEEPING: Final = ("--appendonly", "yes")


def gate_at(url: str) -> Gatekeeper:
    """Return a gate of a fleet that learns from nothing but Redis what hosts have asked for."""
    site = ScriptedFetcher({"https://example.com": 404})
    pacer = SharedPacer(QUICK, fleet=FleetOptions(url))  # not the pacer of this process
    return Gatekeeper(UA, fetcher=site, pacer=pacer, store=MemoryStore())


async def visit(gate: Gatekeeper, status: int = 200) -> None:
    async with gate.turn(PAGE, max_wait_s=20.0, exempt="a test") as turn:
        turn.observe(status, {"Retry-After": "600"} if status == 429 else {})


@pytest.fixture(params=[(), KEEPING], ids=["without", "with-aof"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer(*request.param) as server:
        yield server


async def closed_host(server: RedisServer) -> bool:
    """Return whether a process that is new finds the host closed."""
    async with gate_at(server.url) as gate:
        try:
            await visit(gate)
        except TooFar as error:
            if error.not_yet.bound_by is not Bound.RETRY_AFTER:
                raise
            return True
    return False


@pytest.mark.full
async def test_what_no_process_remembers_outlives_a_restart_only_if_redis_writes_it(
    server: RedisServer, request: pytest.FixtureRequest
) -> None:
    async with gate_at(server.url) as gate:
        await visit(gate, 429)
    assert await closed_host(server)
    server.kill()
    server.start()
    assert await closed_host(server) == ("with-aof" in request.node.name)


@pytest.mark.full
async def test_what_a_process_remembers_outlives_a_restart(server: RedisServer) -> None:
    async with gate_at(server.url) as gate:
        await visit(gate, 429)
        server.kill()
        server.start()
        await asyncio.sleep(2.0)  # it has connected again before a new process may start anything
        assert await closed_host(server)


@pytest.mark.full
async def test_replica_that_is_promoted_knows_what_had_arrived() -> None:
    with RedisServer() as primary, RedisServer("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        async with gate_at(primary.url) as gate:
            await visit(gate, 429)
        async with Redis(port=replica.port) as client:
            async with asyncio.timeout(30.0):
                while await client.hget("politesse:host:example.com", "closed") is None:
                    await asyncio.sleep(0.1)
            primary.kill()
            await client.replicaof("NO", "ONE")
        assert await closed_host(replica)
