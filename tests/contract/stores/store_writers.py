"""Programs that use a SqliteStore in a process of their own, and the check of the records that they acknowledged.

python -m tests.contract.stores.store_writers write PATH NAME     put records, and print the number of each one kept
python -m tests.contract.stores.store_writers hasty PATH NAME     the same, but print it before it is kept
python -m tests.contract.stores.store_writers ask PATH NAME COUNT put and get so many records, and print the faults
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from typing import TYPE_CHECKING, Final

from politesse.stores import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_WRITERS: Final = 20  # tasks
_SHARED: Final = 100  # keys that all processes write


def key_of(name: str, number: int) -> str:
    return f"https://{name}-{number}.example"


def record_of(key: str, turn: int) -> bytes:
    """Return a record that states its key, and has a checksum."""
    content = f"{key} {turn} ".encode() + random.Random(f"{key} {turn}").randbytes(turn * 7919 % 5_000)
    return hashlib.blake2b(content).digest() + content


def is_whole(key: str, record: bytes) -> bool:
    digest, content = record[:64], record[64:]
    return hashlib.blake2b(content).digest() == digest and content.startswith(f"{key} ".encode())


async def missing(path: Path, name: str, acknowledged: Iterable[int]) -> list[int]:
    """Return the acknowledged records that the file lacks or has changed."""
    store = SqliteStore(path)
    lost = []
    for number in acknowledged:
        key = key_of(name, number)
        if await store.get(key) != record_of(key, number):
            lost.append(number)
    damaged = [one.key async for one in store.records() if not is_whole(one.key, one.record)]
    await store.aclose()
    assert damaged == []
    return lost


async def write(path: str, name: str, *, hasty: bool) -> None:
    """Write until the process is killed."""
    store = SqliteStore(path)
    numbers = iter(range(sys.maxsize))

    async def put(number: int) -> None:
        key = key_of(name, number)
        await store.put(key, record_of(key, number))

    async def writer() -> None:
        for number in numbers:
            if hasty:
                later = asyncio.create_task(put(number))
                await asyncio.sleep(0)
                print(number, flush=True)  # noqa: T201 - an acknowledgement
                await later
            else:
                await put(number)
                print(number, flush=True)  # noqa: T201 - an acknowledgement

    await asyncio.gather(*(writer() for _ in range(_WRITERS)))


async def ask(path: str, name: str, count: int) -> None:
    """Put and get records of its own, and some that all processes put."""
    store = SqliteStore(path, busy_timeout_s=60)  # a loaded machine may stop a process that holds the lock
    numbers = iter(range(count))

    async def asker() -> None:
        for number in numbers:
            own, shared = key_of(name, number), key_of("shared", number % _SHARED)
            record = record_of(own, number)
            await store.put(own, record)
            await store.put(shared, record_of(shared, number))
            if await store.get(own) != record:
                print(f"{own} is not what was put")  # noqa: T201 - reported to the test
            found = await store.get(shared)
            if found is None or not is_whole(shared, found):
                print(f"{shared} is damaged: {found!r:.100}")  # noqa: T201 - reported to the test

    await asyncio.gather(*(asker() for _ in range(_WRITERS)))
    await store.aclose()


def main() -> None:
    task, path, name, *count = sys.argv[1:]
    asyncio.run(ask(path, name, int(count[0])) if task == "ask" else write(path, name, hasty=task == "hasty"))


if __name__ == "__main__":
    main()
