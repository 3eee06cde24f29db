import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse.errors import ConfigurationError
from politesse.stores.memory import MemoryStore


async def test_records_are_kept_within_their_bytes_keys_included() -> None:
    store = MemoryStore(max_bytes=100)
    for number in range(5):
        await store.put(f"key-{number}", bytes(19))  # 5 + 19 octets: four fit
    assert [await store.get(f"key-{number}") is not None for number in range(5)] == [False, True, True, True, True]
    assert len(store) == 4


async def test_the_least_recently_used_record_is_evicted_first() -> None:
    store = MemoryStore(max_bytes=30)
    for key in "abc":
        await store.put(key, bytes(9))
    assert await store.get("a") is not None
    await store.put("d", bytes(9))
    assert await store.get("b") is None
    assert await store.get("a") is not None
    assert await store.get("c") is not None
    assert await store.get("d") is not None


async def test_a_record_that_is_too_large_removes_the_record_that_it_replaces() -> None:
    store = MemoryStore(max_bytes=30)
    await store.put("a", b"old")
    await store.put("a", bytes(30))
    assert await store.get("a") is None
    assert len(store) == 0


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 40)), max_size=60))
async def test_no_sequence_of_uses_exceeds_the_bound_or_mixes_records(steps: list[tuple[str, int | None]]) -> None:
    store = MemoryStore(max_bytes=64)
    last: dict[str, bytes] = {}
    for number, (key, size) in enumerate(steps):
        if size is None:
            await store.delete(key)
            last.pop(key, None)
        else:
            last[key] = bytes([number]) * size
            await store.put(key, last[key])
    kept = {key: record for key in "abcdefgh" if (record := await store.get(key)) is not None}
    assert sum(1 + len(record) for record in kept.values()) <= 64
    assert kept.items() <= last.items()


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_store_without_room_is_a_configuration_error(max_bytes: int) -> None:
    with pytest.raises(ConfigurationError, match=f"max_bytes={max_bytes}"):
        MemoryStore(max_bytes=max_bytes)
