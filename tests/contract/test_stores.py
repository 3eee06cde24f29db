"""What every Store promises. A new one is added to STORES and has to pass as it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse.origin import Origin
from politesse.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from politesse.ports import Store

STORES: dict[str, Callable[[], Store]] = {
    "memory": MemoryStore,
}

KEY = "https://example.com"


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = STORES[request.param]()
    yield made
    await made.aclose()


async def test_a_missing_record_is_none(store: Store) -> None:
    assert await store.get(KEY) is None


async def test_a_record_is_returned_as_it_was_put(store: Store) -> None:
    await store.put(KEY, b"record")
    assert await store.get(KEY) == b"record"


async def test_getting_a_record_does_not_remove_it(store: Store) -> None:
    await store.put(KEY, b"record")
    assert [await store.get(KEY) for _ in range(3)] == [b"record"] * 3


@pytest.mark.parametrize("second", [b"new", b"", b"a longer record than the one before"])
async def test_putting_a_record_replaces_the_earlier_one(store: Store, second: bytes) -> None:
    await store.put(KEY, b"the old one")
    await store.put(KEY, second)
    assert await store.get(KEY) == second


async def test_a_deleted_record_is_none_and_can_be_put_again(store: Store) -> None:
    await store.put(KEY, b"record")
    await store.delete(KEY)
    assert await store.get(KEY) is None
    await store.put(KEY, b"again")
    assert await store.get(KEY) == b"again"


async def test_deleting_a_missing_record_does_nothing(store: Store) -> None:
    await store.put("https://other.example", b"record")
    await store.delete(KEY)
    assert await store.get(KEY) is None
    assert await store.get("https://other.example") == b"record"


@pytest.mark.parametrize(
    "record",
    [b"", b"\x00", bytes(range(256)), b"\r\n\x1a\xff\xfe", b"politesse/1 ", b"x" * 1_000_000],
    ids=["empty", "NUL", "every octet", "line ends", "version", "a megabyte"],
)
async def test_any_octets_come_back_as_they_were(store: Store, record: bytes) -> None:
    await store.put(KEY, record)
    assert await store.get(KEY) == record


@pytest.mark.clause("RFC 9309 2.3")
async def test_records_of_different_origins_do_not_touch_each_other(store: Store) -> None:
    urls = [
        "https://example.com/",
        "http://example.com/",
        "https://example.com:8443/",
        "https://www.example.com/",
        "https://example.com./",
        "https://münchen.example/",
        "https://xn--e1afmkfd.example/",
        "https://[2001:db8::1]/",
        "https://[2001:db8::1]:8443/",
        "https://192.0.2.1/",
        "https://under_score.example/",
        "https://" + ".".join(["a" * 61] * 4) + "/",
    ]
    keys = [str(Origin.of(url)) for url in urls]
    assert len(set(keys)) == len(urls)
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number)
    assert [await store.get(key) for key in keys] == [b"%d" % number for number in range(len(keys))]
    await store.delete(keys[0])
    assert [await store.get(key) for key in keys] == [None, *(b"%d" % number for number in range(1, len(keys)))]


async def test_a_key_is_compared_as_a_whole_and_with_its_case(store: Store) -> None:
    await store.put(KEY, b"record")
    for key in (KEY[:-1], KEY + "/", KEY.upper(), "", "%", "*", "https://example_com", KEY + "\x00"):
        assert await store.get(key) is None, key


async def test_concurrent_tasks_each_get_their_own_record(store: Store) -> None:
    async def use(number: int) -> None:
        key = f"https://host{number}.example"
        for turn in range(10):
            record = b"%d %d" % (number, turn)
            await store.put(key, record)
            assert await store.get(key) == record
        await store.delete(key)
        assert await store.get(key) is None

    await asyncio.gather(*(use(number) for number in range(50)))


async def test_concurrent_writes_of_one_key_keep_one_whole_record(store: Store) -> None:
    records = [bytes([number]) * 10_000 for number in range(20)]
    await asyncio.gather(*(store.put(KEY, record) for record in records))
    assert await store.get(KEY) in records


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
async def test_an_unused_store_can_be_closed(make: Callable[[], Store]) -> None:
    await make().aclose()
