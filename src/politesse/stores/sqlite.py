"""A store in an SQLite file: it outlives the process, and the processes of one machine share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._checks import check_least, check_positive
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

_PAGE_OF_RECORDS: Final = 50  # read at a time; each may be some hundred KB


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and when it was stored.

    >>> StoredRecord("https://example.com", 1_800_000_000, b"record").key
    'https://example.com'

    Attributes:
        key: as it was put.
        stored_wall: when, in Unix time.
        record: as it was put.
    """

    key: str
    stored_wall: int
    record: bytes


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a SqliteStore keeps, at one moment.

    >>> StoreStatistics(records=0, record_bytes=0, file_bytes=24_576, oldest_wall=None, newest_wall=None).records
    0

    Attributes:
        records: how many.
        record_bytes: the bytes of all records, keys included.
        file_bytes: the size of the file, without its log, and with what else is in it.
        oldest_wall: when the record was stored that is deleted first, in Unix time; None without records.
        newest_wall: when the last record was stored.
    """

    records: int
    record_bytes: int
    file_bytes: int
    oldest_wall: int | None
    newest_wall: int | None


class SqliteStore:
    """A Store in a file, with what the standard library has. Several stores and processes may share the file.

    A record that was put survives the end of the process, ``kill -9`` included; a power failure may lose the last ones,
    and leaves the file whole. Records are read and written in a thread of the store, so a slow disk does not hold up
    the event loop.

    >>> import asyncio, pathlib, tempfile
    >>> async def restart(path):
    ...     store = SqliteStore(path)
    ...     await store.put("https://example.com", b"record")
    ...     await store.aclose()
    ...     store = SqliteStore(path)
    ...     print(await store.get("https://example.com"))
    ...     await store.aclose()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(restart(pathlib.Path(folder, "robots.db")))
    b'record'

    Making a store looks at the file, if there is one, and raises for what is wrong with it. The file is created when
    the store is first used, readable for its owner only. Beside it SQLite keeps ``-wal`` and ``-shm`` while it is open:
    they belong to it, so copy and delete the three together, and only while no process has it open. It must lie on a
    disk of this machine: network file systems do not lock well enough.

    A store that was used before its process was forked raises StoreError in the child: create it after the fork.

    Args:
        path: of the file. Its folder must exist.
        max_bytes: how many bytes of records to keep, including keys; positive. The records stored longest ago are
            deleted first. The file is larger by a fifth or so.
        busy_timeout_s: how many seconds to wait while another process has the file locked. It should be less than
            ``CacheOptions.store_timeout_s``, so that the error says what happened.
        clock: its wall clock dates the records.

    Raises:
        ConfigurationError: an argument is out of its range; the folder is missing; file or folder is read-only; the
            path is a symbolic link, or no regular file; or the file is of another program, encrypted, or was written
            by a newer politesse. It is left as it is.
        ImportError: this Python was built without the module sqlite3.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 1024 * 1024 * 1024,
        busy_timeout_s: float = 4.0,
        clock: Clock | None = None,
    ) -> None:
        # Here, because not every Python has sqlite3, and most programs do not use it.
        from politesse.stores._sqlite_file import SqliteFile  # noqa: PLC0415
        from politesse.stores._sqlite_records import RECORDS, DatedRow, RecordTable, RowUpdate  # noqa: PLC0415

        check_least("max_bytes", max_bytes, 1)
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._file = SqliteFile(path, [RECORDS], busy_timeout_s=busy_timeout_s)
        self._table = RecordTable(max_bytes)
        self._row = DatedRow
        self._update = RowUpdate

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._file.path

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return await self._file.read(self._table.get, _octets(key))

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, replacing an earlier one. A record that is larger than ``max_bytes`` is not kept.

        Raises:
            StoreError: the file cannot be written, is locked for longer than ``busy_timeout_s``, or the store is
                closed. The earlier record is still there.
        """
        await self._file.write(self._table.put, self._row(_octets(key), int(self._clock.wall()), record))

    async def delete(self, key: str, /) -> None:
        """Delete a record if there is one.

        Raises:
            StoreError: as for ``put``.
        """
        await self._file.write(self._table.delete, _octets(key))

    async def update(self, key: str, change: Callable[[bytes | None], bytes], /) -> None:
        """Replace a record by what ``change`` makes of it, within one transaction; see UpdatingStore.

        Args:
            key: of the record.
            change: is given the record, None for none. It is called in the thread of the store, while that holds the
                lock of the file, and again if the transaction has to be tried again.

        Raises:
            StoreError: as for ``put``.
            Exception: what ``change`` raises. The earlier record is still there.
        """
        update = self._update(_octets(key), int(self._clock.wall()), change)
        error = await self._file.write(self._table.update, update)
        if error is not None:
            raise error

    async def prune(self, *, max_age_s: float | None = None, max_bytes: int | None = None) -> int:
        """Delete old records, and make the file smaller.

        Args:
            max_age_s: how many seconds ago the records to keep were stored at most.
            max_bytes: how many bytes of records to keep, including keys: those stored last.

        Returns:
            How many records were deleted.

        Raises:
            ConfigurationError: neither is given, or one is out of its range.
            StoreError: as for ``put``. Some records may have been deleted.
        """
        if max_age_s is None and max_bytes is None:
            raise ConfigurationError("prune() needs max_age_s= or max_bytes=: it deletes nothing by itself")
        deleted = 0
        if max_age_s is not None:
            check_positive("max_age_s", max_age_s)
            deleted += await self._expire(int(self._clock.wall() - max_age_s))
        if max_bytes is not None:
            check_least("max_bytes", max_bytes, 0)
            while step := await self._file.write(self._table.evict_step, max_bytes):
                deleted += step
        while await self._file.write(self._table.shrink_step, None):
            pass
        return deleted

    async def stored(self, key: str) -> StoredRecord | None:
        """Return a record and when it was stored, or None.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        row = await self._file.read(self._table.rows_of, _octets(key))
        return None if row is None else StoredRecord(key, row.stored_wall, row.record)

    async def records(self) -> AsyncIterator[StoredRecord]:
        """Yield all records, the oldest first. One that is stored again meanwhile is yielded again.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        number = 0
        while rows := await self._file.read(self._table.rows_after, (number, _PAGE_OF_RECORDS)):
            for row in rows:
                yield StoredRecord(row.key.decode(errors="surrogatepass"), row.stored_wall, row.record)
            number = rows[-1].number

    async def statistics(self) -> StoreStatistics:
        """Return how much is kept.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return StoreStatistics(*await self._file.read(self._table.sums, None))

    async def aclose(self) -> None:
        """Finish the calls under way, and close the file. Later calls raise StoreError."""
        await self._file.aclose()

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r}: at most {self._max_bytes} bytes of records>"

    async def _expire(self, before_wall: int) -> int:
        deleted = number = 0
        while True:
            step, number = await self._file.write(self._table.expire_step, (number, before_wall))
            deleted += step
            if not number:
                return deleted


def _octets(key: str) -> bytes:
    return key.encode(errors="surrogatepass")
