import asyncio
from typing import Any

import pytest

from politesse.errors import ConfigurationError, ConfigurationTypeError, StoreError
from politesse.ports import LeasingStore
from politesse.stores import MemoryStore
from politesse.stores.redis import RedisStore
from tests.support.ports import free_port

URL = "redis://:secret@192.0.2.1:7000/3"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://secret@example.com"}, r"url='http://\.\.\.': give a URL, as 'redis://host:6379/0'"),
        ({"url": "secret"}, "url=.*it is no URL"),
        ({"url": URL + "?pace=secret"}, "unexpected keyword argument 'pace'"),
        ({"prefix": ""}, "prefix=''"),
        ({"prefix": "a{b"}, "prefix='a{b'"),
        ({"prefix": "a\n"}, "prefix="),
        ({"max_age_s": 59.0}, "max_age_s=59.0: give 60 to"),
        ({"max_age_s": float("nan")}, "max_age_s=nan"),
        ({"lease_s": 0.05}, "lease_s=0.05: give 0.1 to 60"),
        ({"lease_s": 61}, "lease_s=61"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"max_connections": 0}, "max_connections=0"),
    ],
)
def test_an_argument_that_is_out_of_its_range_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        RedisStore(**{"url": URL, **given})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"url": None},
        {"url": b"redis://:secret@example.com"},
        {"prefix": b"a"},
        {"lease_s": "5"},
        {"max_connections": 1.5},
    ],
)
def test_an_argument_of_another_type_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationTypeError) as caught:
        RedisStore(**{"url": URL, **given})
    assert "secret" not in str(caught.value)


def test_its_repr_names_the_server_and_holds_no_password() -> None:
    assert repr(RedisStore(URL, prefix="crawl-2:")) == "<RedisStore at redis://192.0.2.1:7000/3: keys 'crawl-2:'>"


def test_it_leases_and_a_store_in_memory_does_not() -> None:
    assert isinstance(RedisStore(URL), LeasingStore)
    assert not isinstance(MemoryStore(), LeasingStore)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster"])
async def test_a_server_that_is_not_there_is_a_store_error(scheme: str) -> None:
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
