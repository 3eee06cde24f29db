"""What is RedisStore's own: its arguments, and real servers that refuse and fail, with several clients at once."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from politesse.errors import ConfigurationError, ConfigurationTypeError, StoreError
from politesse.ports import Lease, LeaseHeld, VersionedRecord
from politesse.stores.redis import RedisStore
from tests.support.ports import free_port
from tests.support.redis_servers import EXECUTABLES, RedisServer, serving_by_tls, shared_server
from tests.support.stores import KEY, leased
from tests.support.tiers import first_of

DAY_S: Final = 86_400
Opened = Callable[..., RedisStore]
URL: Final = "redis://:secret@192.0.2.1:7000/3"


@pytest.fixture(params=first_of(1, EXECUTABLES))
def url(request: pytest.FixtureRequest) -> str:
    return shared_server(request.param).url


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Open stores, and close them at the end."""
    stores: list[RedisStore] = []

    def open_store(url: str, **options: Any) -> RedisStore:
        stores.append(RedisStore(url, **options))
        return stores[-1]

    yield open_store
    for store in stores:
        await store.aclose()


@pytest.fixture
def store(url: str, prefix: str, opened: Opened) -> RedisStore:
    return opened(url, prefix=prefix)


@pytest.fixture
async def client(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url) as client:
        yield client


@pytest.fixture(params=first_of(1, EXECUTABLES))
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Return a server of its own, which a test may stop and set."""
    with RedisServer(executable=EXECUTABLES[request.param]) as server:
        yield server


async def command(client: Redis, *words: str | int | bytes) -> Any:
    return await client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py gives it no types


# Its arguments, and what is no server


def test_an_argument_that_is_out_of_its_range_is_refused_without_its_secrets() -> None:
    wrong: list[tuple[type[ConfigurationError], dict[str, Any], str]] = [
        (ConfigurationError, {"url": "http://secret@example.com"}, r"url='http://...': give a URL, as 'redis://"),
        (ConfigurationError, {"url": "secret"}, "url=.*it is no URL"),
        (ConfigurationError, {"url": URL + "?pace=secret"}, "unexpected keyword argument 'pace'"),
        (ConfigurationError, {"prefix": ""}, "prefix=''"),
        (ConfigurationError, {"prefix": "a{b"}, "prefix='a{b'"),
        (ConfigurationError, {"prefix": "a\n"}, "prefix="),
        (ConfigurationError, {"max_age_s": 59.0}, "max_age_s=59.0: give 60 to"),
        (ConfigurationError, {"max_age_s": float("nan")}, "max_age_s=nan"),
        (ConfigurationError, {"lease_s": 0.05}, "lease_s=0.05: give 0.1 to 60"),
        (ConfigurationError, {"lease_s": 61}, "lease_s=61"),
        (ConfigurationError, {"timeout_s": 0}, "timeout_s=0"),
        (ConfigurationError, {"max_connections": 0}, "max_connections=0"),
        (ConfigurationTypeError, {"url": None}, "url="),
        (ConfigurationTypeError, {"url": b"redis://:secret@example.com"}, "url="),
        (ConfigurationTypeError, {"prefix": b"a"}, "prefix="),
        (ConfigurationTypeError, {"lease_s": "5"}, "lease_s="),
        (ConfigurationTypeError, {"max_connections": 1.5}, "max_connections="),
    ]
    for error, given, message in wrong:
        with pytest.raises(error, match=message) as caught:
            RedisStore(**{"url": URL, **given})
        assert "secret" not in str(caught.value)
    assert repr(RedisStore(URL, prefix="crawl-2:")) == "<RedisStore at redis://192.0.2.1:7000/3: keys 'crawl-2:'>"


async def test_a_server_that_is_not_there_is_a_store_error() -> None:
    for scheme in ("redis", "rediss", "redis+cluster"):
        store = RedisStore(f"{scheme}://:secret@127.0.0.1:{free_port()}/0")
        for call in (store.get("key"), store.put("key", b"record"), store.delete("key"), store.get_or_lease("key", "")):
            with pytest.raises(StoreError, match=r"^Redis at redis://127\.0\.0\.1:[0-9]+") as caught:
                await call
            assert "secret" not in str(caught.value)
            assert caught.value.__cause__ is not None
        await store.aclose()


async def test_what_is_no_redis_is_a_store_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    store = RedisStore(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=1.0)
    with pytest.raises(StoreError, match="Redis at"):
        await store.get("key")
    await store.aclose()
    server.close()


# What expires


async def test_records_expire_when_they_can_serve_no_longer(store: RedisStore, client: Redis, prefix: str) -> None:
    kept = {KEY: 31, "pace/host/example.com": 2, "pace/address/192.0.2.1": 2, "pace": 31}
    for key, days in kept.items():
        await store.put(key, b"record")
        left_s = await client.pttl(f"{prefix}{{record:{key}}}") / 1000
        assert days * DAY_S - 60 < left_s <= days * DAY_S


# Leases


@pytest.mark.realtime  # the server counts its own seconds
async def test_a_lease_is_kept_by_renewal_and_void_once_it_has_ended(opened: Opened, url: str, prefix: str) -> None:
    store = opened(url, prefix=prefix, lease_s=0.3)
    old = await leased(store)
    for _ in range(5):
        await asyncio.sleep(0.1)
        await store.renew({KEY: old})
    assert isinstance(await store.get_or_lease(KEY, ""), LeaseHeld)
    await asyncio.sleep(0.35)
    new = await leased(store)
    assert not await store.put_leased(KEY, b"old", old)
    assert await store.get(KEY) is None
    await store.renew({KEY: old})
    await store.release(KEY, old)
    assert isinstance(await store.get_or_lease(KEY, ""), LeaseHeld)
    assert await store.put_leased(KEY, b"new", new)
    assert not await store.put_leased(KEY, b"old", old)
    assert await store.get(KEY) == b"new"


async def test_leases_are_renewed_together(store: RedisStore, client: Redis, prefix: str) -> None:
    keys = [f"https://host{number}.example" for number in range(1_100)]
    leases = dict(zip(keys, await asyncio.gather(*(leased(store, key) for key in keys)), strict=True))
    names = [f"{prefix}{{record:{key}}}lease" for key in keys]
    calls = client.pipeline(transaction=False)
    for name in names:
        calls.pexpire(name, 100_000)
    assert all(await calls.execute())
    await command(client, "SCRIPT", "FLUSH")
    await store.renew(leases)
    for name in names:
        calls.pttl(name)
    assert all(0 < left_ms <= 5_000 for left_ms in await calls.execute())


async def test_versions_go_on_if_the_clock_of_redis_was_set_back(store: RedisStore, client: Redis, prefix: str) -> None:
    ahead = "3000000000000000"
    await client.set(f"{prefix}{{record:{KEY}}}", f"politesse-record/1 {ahead} record")
    lease = await leased(store, KEY, ahead)
    assert lease.token == "3000000000000001"
    assert await store.put_leased(KEY, b"next", lease)
    await store.put(KEY, b"last")
    found = await store.get_or_lease(KEY, "")
    assert found == VersionedRecord("3000000000000002", b"last")


async def test_two_fleets_on_one_redis_do_not_see_each_other(opened: Opened, url: str, prefix: str) -> None:
    one, other = opened(url, prefix=f"{prefix}1:"), opened(url, prefix=f"{prefix}2:")
    await one.put(KEY, b"record")
    assert await other.get(KEY) is None
    await leased(other)
    await other.delete(KEY)
    assert await one.get(KEY) == b"record"


# What is not ours


async def test_what_is_no_record_is_a_store_error_and_stays(store: RedisStore, client: Redis, prefix: str) -> None:
    name = f"{prefix}{{record:{KEY}}}"
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.get(KEY),
        lambda: store.put(KEY, b"r"),
        lambda: store.delete(KEY),
        lambda: store.update(KEY, lambda _: b"r"),
        lambda: store.get_or_lease(KEY, ""),
        lambda: store.put_leased(KEY, b"r", Lease("1", 5.0)),
    ]
    for word, *values in (
        ("SET", "x"),
        ("SET", "politesse-record/1 "),
        ("SET", "politesse-record/1 12345678901234x6 record"),
        ("SET", "politesse-record/2 1234567890123456 record"),
        ("LPUSH", "x"),
        ("SADD", "x"),
        ("HSET", "politesse", "x"),
    ):
        await client.delete(name)
        await command(client, word, name, *values)
        before = await client.dump(name)
        for call in calls:
            with pytest.raises(StoreError, match=r"^the key '.*record:https://example\.com}' .* holds no record"):
                await call()
        assert await client.dump(name) == before


# Servers that refuse, fail and come back


async def test_a_wrong_password_is_a_store_error_without_the_password(opened: Opened, server: RedisServer) -> None:
    async with Redis.from_url(server.url) as client:
        await client.config_set("requirepass", "right")
    for credentials in ("", ":wr0ng@", "user:wr0ng@"):
        store = opened(server.url.replace("//", f"//{credentials}"))
        with pytest.raises(StoreError, match=rf"Redis at {server.url} refuses this client") as caught:
            await store.get(KEY)
        assert "wr0ng" not in str(caught.value)
    store = opened(server.url.replace("//", "//:right@"))
    await store.put(KEY, b"record")
    assert await store.get(KEY) == b"record"


async def test_a_server_without_memory_and_a_replica_keep_what_they_have(opened: Opened, server: RedisServer) -> None:
    store = opened(server.url)
    await store.put(KEY, b"record")
    async with Redis.from_url(server.url) as client:
        await client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="maxmemory"):
            await store.put(KEY, b"another")
        await client.config_set("maxmemory", 0)
        await command(client, "REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(StoreError, match=r"ReadOnly|replica"):
        await store.put(KEY, b"another")
    assert await store.get(KEY) == b"record"


async def test_a_server_that_was_restarted_is_found_again(opened: Opened, server: RedisServer) -> None:
    store = opened(server.url)
    await asyncio.gather(*(store.put(f"key-{number}", b"record") for number in range(50)))
    server.kill()
    with pytest.raises(StoreError, match="Redis at"):
        await store.get("key-1")
    server.start()
    assert [await store.get(f"key-{number}") for number in range(50)] == [None] * 50
    await asyncio.gather(*(store.put(f"key-{number}", b"again") for number in range(50)))
    assert await store.get("key-1") == b"again"


@pytest.mark.realtime  # the server counts its own seconds
async def test_a_server_that_stands_still_is_late_and_then_harmless(opened: Opened, server: RedisServer) -> None:
    store = opened(server.url, timeout_s=0.3, max_connections=4)
    await asyncio.gather(*(store.put(f"key-{number}", b"%d" % number) for number in range(20)))
    server.stop()
    late = await asyncio.gather(*(store.get(f"key-{number}") for number in range(4)), return_exceptions=True)
    server.go_on()
    assert {str(error) for error in late} == {f"Redis at {server.url}: no answer within 0.3 s"}
    assert {type(error) for error in late} == {StoreError}
    assert [await store.get(f"key-{number}") for number in range(20)] == [b"%d" % number for number in range(20)]


# Many calls, and calls that end early


async def test_a_thousand_calls_at_once_share_a_few_connections_which_are_closed_with_the_store(
    opened: Opened, server: RedisServer
) -> None:
    store = opened(server.url, max_connections=4, timeout_s=60)
    await asyncio.gather(*(store.put(f"key-{number}", b"%d" % number) for number in range(1_000)))
    found = await asyncio.gather(*(store.get(f"key-{number}") for number in range(1_000)))
    assert found == [b"%d" % number for number in range(1_000)]
    async with Redis.from_url(server.url) as client:
        assert len(await client.client_list()) <= 5
        await store.aclose()
        while len(await client.client_list()) > 1:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", first_of(1, [40, 300]))
async def test_a_call_that_is_cancelled_in_mid_reply_leaves_no_reply_to_another(
    opened: Opened, server: RedisServer, turns: int
) -> None:
    store = opened(server.url, max_connections=2)
    keys = {f"key-{number}": bytes([number]) * 300_000 for number in range(8)}
    for key, record in keys.items():
        await store.put(key, record)
    cancelled = 0
    for turn in range(turns):
        tasks = {key: asyncio.create_task(store.get(key)) for key in keys}
        for _ in range(turn % 40):
            await asyncio.sleep(0)
        for key in list(keys)[turn % 3 :: 3]:
            tasks[key].cancel()
        for key, task in tasks.items():
            try:
                assert await task == keys[key]
            except asyncio.CancelledError:
                cancelled += 1
    assert cancelled > turns / 10  # those of the first steps, however quick the server is
    async with Redis.from_url(server.url) as client:
        assert len(await client.client_list()) <= 3  # each has its connection back
    assert await asyncio.gather(*map(store.get, keys)) == list(keys.values())


# Event loops and processes


def test_a_store_serves_several_event_loops_at_once(url: str, prefix: str) -> None:
    store = RedisStore(url, prefix=prefix)
    wrong: list[str] = []

    async def use(name: str) -> None:
        for turn in range(100):
            await store.put(f"key-{name}", f"{name} {turn}".encode())
            if await store.get(f"key-{name}") != f"{name} {turn}".encode():
                wrong.append(name)

    threads = [threading.Thread(target=asyncio.run, args=(use(str(number)),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    asyncio.run(store.aclose())


async def test_after_a_fork_it_raises_a_store_error(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put(KEY, b"record")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreError, match="before the fork"):
            await store.get(KEY)
        await store.aclose()  # the connections are of the other process
    with pytest.raises(StoreError, match="closed"):
        await store.get(KEY)


# Other ways to a server


async def test_options_of_the_url_do_not_change_what_is_kept(opened: Opened, url: str, prefix: str) -> None:
    for query in ("decode_responses=true", "protocol=2", "protocol=3", "encoding=latin-1"):
        store = opened(f"{url}?{query}", prefix=f"{prefix}{query}:")
        await store.put(KEY, bytes(range(256)))
        assert await store.get(KEY) == bytes(range(256))
        found = await store.get_or_lease(KEY, "")
        assert isinstance(found, VersionedRecord)
        assert found.record == bytes(range(256))
        lease = await leased(store, KEY, found.version)
        await store.renew({KEY: lease})
        await store.release(KEY, lease)


async def test_tls_and_a_password_by_url(opened: Opened, tmp_path: Path) -> None:
    with serving_by_tls(tmp_path) as (url, ca):
        store = opened(f"{url}?ssl_ca_certs={ca}")
        await store.put(KEY, b"record")
        assert await store.get(KEY) == b"record"
        store = opened(url)  # the authority is unknown
        with pytest.raises(StoreError, match="certificate verify failed"):
            await store.get(KEY)


async def test_a_sentinel_names_the_server(opened: Opened, server: RedisServer) -> None:
    sentinel = RedisServer("--sentinel", config=f"sentinel monitor crawl 127.0.0.1 {server.port} 1\n")
    try:
        store = opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/crawl/0")
        await store.put(KEY, b"record")
        assert await store.get(KEY) == b"record"
        await store.renew({KEY: Lease("1", 5.0)})
        await store.aclose()
        async with Redis.from_url(sentinel.url) as observer:
            while len(await observer.client_list()) > 1:  # the store's connection to the Sentinel is open
                await asyncio.sleep(0.02)
        store = opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/other/0")
        with pytest.raises(StoreError, match="No master found for 'other'"):
            await store.get(KEY)
    finally:
        sentinel.remove()
