"""Stores: reads and writes a second from 100 tasks, and bytes an origin; beside two usual alternatives.

The peers are a plain table behind aiosqlite, which goes to its thread and back for each statement, and diskcache, which
knows no asyncio, in threads. All keep a log and force it to the disk at checkpoints only, so all are as safe. The
records are the records of a gate for the corpus, and each has an origin as its key; each read is compared with the
record that was written.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import aiosqlite
import diskcache

from benchmarks.agreement import Disagreement
from benchmarks.corpus import describe, load
from benchmarks.engines import AGENT
from benchmarks.figures import figure
from benchmarks.origins import Bodies, NumberedFetcher, url_of
from benchmarks.table import table
from benchmarks.timing import Contender, Samples, Task, interleave
from politesse import Gatekeeper
from politesse.stores import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from politesse.ports import Store

_TASKS: Final = 100
_SQLITE: Final = "SqliteStore"
_AIOSQLITE: Final = "a table behind aiosqlite"
_DISKCACHE: Final = "diskcache in threads"
_USER_AGENT: Final = "ExampleBot/1.0 (+https://example.com/bot)"


class Keeps(Protocol):
    """A store that is measured."""

    async def get(self, key: str, /) -> bytes | None: ...

    async def put(self, key: str, record: bytes, /) -> None: ...

    async def aclose(self) -> None: ...


class AiosqliteTable:
    """A table of keys and records."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path) -> Self:
        connection = await aiosqlite.connect(path, isolation_level=None)
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute("PRAGMA synchronous = NORMAL")
        await connection.execute("CREATE TABLE records (key TEXT PRIMARY KEY, record BLOB)")
        return cls(connection)

    async def get(self, key: str, /) -> bytes | None:
        async with self._connection.execute("SELECT record FROM records WHERE key = ?", (key,)) as cursor:
            row = await cursor.fetchone()
        return None if row is None else row[0]

    async def put(self, key: str, record: bytes, /) -> None:
        await self._connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (key, record))

    async def aclose(self) -> None:
        await self._connection.close()


class DiskcacheInThreads:
    """A diskcache that evicts nothing."""

    def __init__(self, path: Path) -> None:
        self._cache = diskcache.Cache(str(path), eviction_policy="none")

    async def get(self, key: str, /) -> bytes | None:
        found: bytes | None = await asyncio.to_thread(self._cache.get, key)
        return found

    async def put(self, key: str, record: bytes, /) -> None:
        await asyncio.to_thread(self._cache.set, key, record)

    async def aclose(self) -> None:
        self._cache.close()


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    files = load(settings)
    yield f"stores: {describe(files, settings.corpus)}"
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        work = _Work(runner, runner.run(_records(Bodies(files), settings.size(6_000, 200))), Path(folder))
        runner.run(work.open())
        try:
            yield from _rates(work, settings)
        finally:
            runner.run(work.aclose())
        yield from _sizes(work)


class _Work:
    """The stores, and their reads and writes.

    Attributes:
        written: how many origins each store holds.
    """

    def __init__(self, runner: asyncio.Runner, records: Sequence[bytes], folder: Path) -> None:
        self._runner = runner
        self._records = records
        self._folder = folder
        self.stores: dict[str, Keeps] = {}
        self.written: dict[str, int] = {}

    async def open(self) -> None:
        paths = [self._folder / name for name in ("ours", "aiosqlite", "diskcache")]
        for path in paths:
            path.mkdir()
        self.stores = {
            _SQLITE: SqliteStore(paths[0] / "robots.db"),
            _AIOSQLITE: await AiosqliteTable.open(paths[1] / "records.db"),
            _DISKCACHE: DiskcacheInThreads(paths[2]),
        }
        self.written = dict.fromkeys(self.stores, 0)

    async def aclose(self) -> None:
        for store in self.stores.values():
            await store.aclose()

    def writing(self, name: str, count: int) -> Callable[[int], Task]:
        """Write origins that the store does not hold yet."""

        async def put(number: int) -> None:
            await self.stores[name].put(url_of(number, ""), self._record(number))

        def prepare(_: int) -> Task:
            start = self.written[name]
            self.written[name] += count
            return Task(lambda: self._runner.run(_by_tasks(put, range(start, start + count))), count)

        return prepare

    def reading(self, name: str, count: int, seed: int) -> Callable[[int], Task]:
        """Read origins drawn by lot."""

        async def get(number: int) -> None:
            if await self.stores[name].get(url_of(number, "")) != self._record(number):
                raise Disagreement(f"{name} does not hold {url_of(number, '')} as it was written")

        def prepare(turn: int) -> Task:
            numbers = random.Random(f"{seed} {turn}").choices(range(self.written[name]), k=count)
            return Task(lambda: self._runner.run(_by_tasks(get, numbers)), count)

        return prepare

    def file_bytes(self, name: str) -> int:
        folder = self._folder / {_SQLITE: "ours", _AIOSQLITE: "aiosqlite", _DISKCACHE: "diskcache"}[name]
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    def record_bytes(self, name: str) -> int:
        count = self.written[name]
        return sum(len(self._record(number)) + len(url_of(number, "")) for number in range(count))

    def _record(self, number: int) -> bytes:
        return self._records[number % len(self._records)]


async def _records(bodies: Bodies, count: int) -> list[bytes]:
    """Return the records that a gate makes of origins."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "robots.db")
        async with _gate(bodies, store) as gate:
            await gate.check_batch(map(url_of, range(count)))
            by_key = {kept.key: kept.record async for kept in store.records()}
    return [by_key[url_of(number, "")] for number in range(count)]


def _gate(bodies: Bodies, store: Store) -> Gatekeeper:
    return Gatekeeper(_USER_AGENT, token=AGENT, fetcher=NumberedFetcher(bodies), store=store)


async def _by_tasks(use: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    left = iter(numbers)

    async def one_after_the_other() -> None:
        for number in left:
            await use(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_TASKS):
            group.create_task(one_after_the_other())


def _rates(work: _Work, settings: Settings) -> Iterator[Reported]:
    chunk = settings.size(100_000, 400) // (settings.rounds + 1)  # the first round only warms up
    clock = _Clock()
    names = list(work.stores)
    writes = interleave([clock.timed(name, work.writing(name, chunk)) for name in names], settings.rounds)
    yield _rate_table("writes", writes, clock, max(work.written.values()))
    yield figure("stores/writes", writes.ratios(_AIOSQLITE, _SQLITE))
    clock = _Clock()
    readers = [clock.timed(name, work.reading(name, chunk, settings.seed)) for name in names]
    reads = interleave(readers, settings.rounds)
    yield _rate_table("reads", reads, clock, max(work.written.values()))
    yield figure("stores/reads", reads.ratios(_AIOSQLITE, _SQLITE))


class _Clock:
    """Times the tasks of ``interleave`` by the clock as well: a store may wait for the disk.

    Attributes:
        elapsed: seconds of one operation, by contender.
    """

    def __init__(self) -> None:
        self.elapsed = Samples()

    def timed(self, name: str, prepare: Callable[[int], Task]) -> Contender:
        def prepared(number: int) -> Task:
            task = prepare(number)

            def run_timed() -> None:
                start = time.perf_counter()
                task.run()
                if number:
                    self.elapsed.add(name, (time.perf_counter() - start) / task.operations)

            return Task(run_timed, task.operations)

        return Contender(name, prepared)


def _rate_table(kind: str, samples: Samples, clock: _Clock, origins: int) -> str:
    rows = [
        (
            name,
            f"{1e6 / samples.median_us(name):,.0f}",
            f"{1e6 / clock.elapsed.median_us(name):,.0f}",
            f"{samples.ratio(name, _SQLITE):.2f}",
        )
        for name in samples.seconds
    ]
    header = ("", "a second of\nthe processor", "a second by\nthe clock", "times the\nprocessor time")
    return table(f"stores: {kind} from {_TASKS} tasks, up to {origins:,} origins", header, rows)


def _sizes(work: _Work) -> Iterator[Reported]:
    count = {name: work.written[name] for name in work.stores}
    rows = [
        (name, f"{work.file_bytes(name) / count[name]:,.0f}", f"{work.record_bytes(name) / count[name]:,.0f}")
        for name in work.stores
    ]
    header = ("", "bytes on disk\nan origin", "of these\nrecord and key")
    yield table(f"stores: {count[_SQLITE]:,} origins of the corpus", header, rows)
    yield figure("stores/origin", [work.file_bytes(_SQLITE) / count[_SQLITE] / 1e3], "kB")
