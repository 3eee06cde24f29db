"""A fleet on a Redis Cluster of three nodes; run with ``pytest -m slow tests/integration/fleet``."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import pytest
from redis.asyncio import Redis

from politesse import Gatekeeper
from politesse._pacing.fleet.cluster_wire import ClusterWire
from politesse._pacing.fleet.status import FleetHost, FleetReader
from politesse._pacing.pace import PacingOptions
from politesse.errors import TooFar
from politesse.events import FleetAway
from politesse.options import FleetOptions
from politesse.testing import ScriptedFetcher
from tests.integration.fleet.members import Members
from tests.support.pacing import finish, wants
from tests.support.redis_servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from politesse.ports import Pacer

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

_SLOTS: Final = 16_384


@pytest.fixture
async def nodes() -> AsyncIterator[list[RedisServer]]:
    """Return three nodes that share the slots."""
    nodes = [RedisServer("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(3)]
    clients = [Redis.from_url(node.url) for node in nodes]
    try:
        for place, client in enumerate(clients):
            first, last = place * _SLOTS // 3, (place + 1) * _SLOTS // 3
            await _command(client, "CLUSTER", "ADDSLOTS", *range(first, last))
            if place:
                await _command(client, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        async with asyncio.timeout(30.0):
            for client in clients:
                while not {b"cluster_state:ok", b"cluster_known_nodes:3"} <= await _state(client):
                    await asyncio.sleep(0.1)
        yield nodes
    finally:
        for client in clients:
            await client.aclose()
        for node in nodes:
            node.remove()


@pytest.fixture
async def fleet(nodes: list[RedisServer]) -> AsyncIterator[Members]:
    members = Members(lambda: ClusterWire.of_url(nodes[0].url), f"{token_hex(4)}:")
    await asyncio.sleep(2.0)  # so that they are not young
    yield members
    await members.aclose()


async def _command(client: Redis, *words: str | int) -> bytes:
    answer: bytes = await client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py gives it no types
    return answer


async def _state(client: Redis) -> set[bytes]:
    return set((await _command(client, "CLUSTER", "INFO")).split())


async def test_the_hosts_of_all_nodes_keep_their_intervals(fleet: Members) -> None:
    hosts = [f"host{number}.example" for number in range(9)]
    starts: dict[str, list[float]] = {host: [] for host in hosts}

    async def crawl(pacer: Pacer, host: str) -> None:
        for _ in range(4):
            permit = await pacer.start(wants(host=host), 30.0)
            starts[host].append(time.monotonic())
            finish(permit, 200)

    members = [fleet.member(PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)) for _ in range(2)]
    await asyncio.gather(*(crawl(pacer, host) for pacer in members for host in hosts))
    assert [len(stamps) for stamps in starts.values()] == [8] * 9
    assert all(later - earlier >= 0.2 for stamps in starts.values() for earlier, later in pairwise(stamps))


async def test_scripts_that_a_node_has_forgotten_are_loaded_again(fleet: Members, nodes: list[RedisServer]) -> None:
    pacer = fleet.member()
    finish(await pacer.start(wants()), 200)
    for node in nodes:
        async with Redis.from_url(node.url) as client:
            await client.script_flush()
    finish(await pacer.start(wants(), 10.0), 200)


async def test_nothing_starts_while_a_node_is_away(fleet: Members, nodes: list[RedisServer]) -> None:
    pacer = fleet.member()
    hosts = [f"host{number}.example" for number in range(9)]
    for host in hosts:
        finish(await pacer.start(wants(host=host), 10.0), 200)
    nodes[2].kill()
    found = await asyncio.gather(*(pacer.start(wants(host=host), 2.0) for host in hosts), return_exceptions=True)
    assert any(isinstance(answer, TooFar) for answer in found)
    for answer in await asyncio.gather(*(pacer.start(wants(host=host), 1.0) for host in hosts), return_exceptions=True):
        assert isinstance(answer, TooFar)
    assert any(isinstance(event, FleetAway) for event in fleet.events)


async def test_gates_by_the_url_of_a_cluster_keep_one_pace_and_show_who_holds_what(nodes: list[RedisServer]) -> None:
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes[:2])
    fleet = FleetOptions(url, prefix=f"{token_hex(4)}:")
    hosts = [f"{name}.example" for name in "abcdef"]  # in the slots of all nodes
    site = ScriptedFetcher(dict.fromkeys((f"https://{host}" for host in hosts), 404))
    pacing = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
    async with AsyncExitStack() as turns:
        one, other = [
            await turns.enter_async_context(Gatekeeper("ExampleBot/1.0", fetcher=site, fleet=fleet, pacing=pacing))
            for _ in range(2)
        ]
        for host in hosts:
            await turns.enter_async_context(one.turn(f"https://{host}/1", max_wait_s=30.0))
        with pytest.raises(TooFar, match=r"held by https://a\.example/1"):
            async with other.turn("https://a.example/2", max_wait_s=1.0):
                pass
        reader = FleetReader(fleet)
        found = [one async for several in reader.scan() for one in several]
        named = await reader.find(["a.example", "nobody.example"])
        await reader.aclose()
    assert sorted(host.name for host in found if isinstance(host, FleetHost) and host.leases) == hosts
    assert len(found) == len(hosts)
    assert [host.name for host in named if isinstance(host, FleetHost)] == ["a.example"]
