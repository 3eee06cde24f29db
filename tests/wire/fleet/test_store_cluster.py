"""RedisStore on a Redis Cluster of three nodes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from politesse.errors import StoreError
from politesse.ports import Lease, LeaseHeld, VersionedRecord
from politesse.stores.redis import RedisStore
from tests.support.redis_servers import RedisServer
from tests.wire.fleet.test_cluster import nodes  # noqa: F401 - a fixture

pytestmark = pytest.mark.realtime

KEYS = ["", "}", "{", "}{", "{}", "a}b", "{a}", "\ud800", *(f"https://host{number}.example" for number in range(200))]


@pytest.fixture
async def store(nodes: list[RedisServer], prefix: str) -> AsyncIterator[RedisStore]:  # noqa: F811 - the fixture
    several = ",".join(node.url.removeprefix("redis://").removesuffix("/0") for node in nodes)
    store = RedisStore(f"redis+cluster://{several}", prefix=prefix, timeout_s=20.0, max_connections=4)
    yield store
    await store.aclose()


async def test_first_calls_at_once_find_the_nodes_together(
    nodes: list[RedisServer],  # noqa: F811 - the fixture
    prefix: str,
) -> None:
    for number in range(6):
        store = RedisStore(nodes[0].url.replace("redis://", "redis+cluster://"), prefix=f"{prefix}{number}:")
        leases = await asyncio.gather(*(store.get_or_lease(key, "") for key in KEYS[-24:]))
        assert {type(lease) for lease in leases} == {Lease}
        await store.aclose()


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
async def test_scripts_are_sent_again_to_a_node_that_has_lost_them(
    store: RedisStore,
    nodes: list[RedisServer],  # noqa: F811 - the fixture
) -> None:
    await asyncio.gather(*(store.put(key, b"one") for key in KEYS))
    for node in nodes:
        async with Redis.from_url(node.url) as client:
            await client.script_flush()
    await asyncio.gather(*(store.put(key, b"two") for key in KEYS))
    assert set(await asyncio.gather(*map(store.get, KEYS))) == {b"two"}


@pytest.mark.full
async def test_a_node_that_is_away_is_a_store_error_and_its_loss_leaves_nothing_open(
    store: RedisStore,
    nodes: list[RedisServer],  # noqa: F811 - the fixture
) -> None:
    keys = KEYS[-24:]
    await asyncio.gather(*(store.put(key, b"record") for key in keys))
    nodes[0].kill()
    found = await asyncio.gather(*map(store.get, keys), return_exceptions=True)
    assert {type(one) for one in found if one != b"record"} == {StoreError}
