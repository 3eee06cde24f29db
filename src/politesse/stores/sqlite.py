"""A store in an SQLite file. The file outlives the process, and all processes of a machine may share it.

A record that is put again gets a new row. So the rows are in the order in which they were stored, and the oldest can be
found without an index by age. Triggers keep the sum of all bytes in a separate table.

Keys are stored as UTF-8 that keeps lone surrogates, so any str can be a key, and different keys stay different.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import check_least, check_positive
from politesse._base.text import public_text
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError
from politesse.stores._sqlite_file import Part, ReadOnlyFile, SqliteFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


_WANTED: Final = "give the path of a file, 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'"
_IN_MEMORY: Final = ("sqlite:", "sqlite://", "sqlite:///")  # the URLs of SQLAlchemy for a database in memory
_PAGE_OF_RECORDS: Final = 50  # this many records are read together; a record may have some hundred KB


_ADD: Final = "UPDATE record_bytes SET total = total {0} length({1}.key) {0} length({1}.record)"

_RECORDS: Final = Part(
    "records",
    (
        "CREATE TABLE records (key BLOB NOT NULL UNIQUE, stored_wall INTEGER NOT NULL, record BLOB NOT NULL)",
        "CREATE TABLE record_bytes (total INTEGER NOT NULL)",
        "INSERT INTO record_bytes VALUES (0)",
        f"CREATE TRIGGER record_added AFTER INSERT ON records BEGIN {_ADD.format('+', 'NEW')}; END",
        f"CREATE TRIGGER record_removed AFTER DELETE ON records BEGIN {_ADD.format('-', 'OLD')}; END",
    ),
)

_OCTETS: Final = "CAST(record AS BLOB)"  # a value of another type becomes bytes, and counts as a damaged record
_STEP: Final = 1_000  # limits the rows or pages of a transaction, because other writers wait for its end


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record, and the time at which it was stored.

    >>> StoredRecord("https://example.com", 1_800_000_000, b"record").key
    'https://example.com'

    Attributes:
        key: the key, as it was put.
        stored_wall: the Unix time at which the record was stored.
        record: the record, as it was put.
    """

    key: str
    stored_wall: int
    record: bytes


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The size of a SqliteStore at one moment.

    >>> StoreStatistics(records=0, record_bytes=0, file_bytes=24_576, oldest_wall=None, newest_wall=None).records
    0

    Attributes:
        records: number of records.
        record_bytes: bytes of all records, including keys.
        file_bytes: size of the file, including its other tables, but not its log.
        oldest_wall: the Unix time of the oldest record, which is deleted first; None without records.
        newest_wall: the Unix time of the newest record.
    """

    records: int
    record_bytes: int
    file_bytes: int
    oldest_wall: int | None
    newest_wall: int | None


class _Put(NamedTuple):
    """A record to store, or a function from the earlier record (or None) to the new record."""

    key: str
    stored_wall: int
    record: bytes | Callable[[bytes | None], bytes]
    max_bytes: int


def _get(connection: sqlite3.Connection, key: str) -> StoredRecord | None:
    """Return the record of a key, or None."""
    query = f"SELECT stored_wall, {_OCTETS} FROM records WHERE key = ?"  # noqa: S608 - a constant
    row = connection.execute(query, (_octets(key),)).fetchone()
    return None if row is None else StoredRecord(key, *row)


def _put(connection: sqlite3.Connection, call: _Put) -> None:
    """Store a record. A record that is larger than ``max_bytes`` only removes the earlier record."""
    key, stored_wall, record, max_bytes = call
    if callable(record):
        before = _get(connection, key)
        record = record(None if before is None else before.record)
    _delete(connection, key)
    name = _octets(key)
    if len(name) + len(record) <= max_bytes:
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (name, stored_wall, record))
    while _evict(connection, max_bytes):
        pass


def _delete(connection: sqlite3.Connection, key: str) -> None:
    """Delete the record of a key."""
    connection.execute("DELETE FROM records WHERE key = ?", (_octets(key),))


def _records_after(connection: sqlite3.Connection, place: tuple[int, int]) -> list[tuple[int, StoredRecord]]:
    """Return some of the rows after a row number, in the order in which they were stored."""
    columns = f"rowid, key, stored_wall, {_OCTETS}"
    query = f"SELECT {columns} FROM records WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 - constants
    return [
        (number, StoredRecord(key.decode(errors="surrogatepass"), stored_wall, record))
        for number, key, stored_wall, record in connection.execute(query, place)
    ]


def _statistics(connection: sqlite3.Connection, _: None) -> StoreStatistics:
    """Return the size of the table and of the file."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    query = (
        "SELECT (SELECT count(*) FROM records), total, ?, "
        "(SELECT stored_wall FROM records ORDER BY rowid LIMIT 1), "
        "(SELECT stored_wall FROM records ORDER BY rowid DESC LIMIT 1) FROM record_bytes"
    )
    return StoreStatistics(*connection.execute(query, (pages * page_bytes,)).fetchone())


def _evict(connection: sqlite3.Connection, bound: int) -> int:
    """Delete some of the oldest records if the table exceeds ``bound`` bytes; return how many were deleted."""
    deleted = 0
    while deleted < _STEP:
        (total,) = connection.execute("SELECT total FROM record_bytes").fetchone()
        if total <= bound:
            break
        if not connection.execute("DELETE FROM records WHERE rowid = (SELECT min(rowid) FROM records)").rowcount:
            connection.execute("UPDATE record_bytes SET total = 0")  # another program emptied the table
        deleted += 1
    return deleted


def _expire(connection: sqlite3.Connection, time_wall: int) -> int:
    """Delete some of the records that were stored before a time; return how many were deleted."""
    old = "SELECT rowid FROM records WHERE stored_wall < ? ORDER BY rowid LIMIT ?"
    query = f"DELETE FROM records WHERE rowid IN ({old})"  # noqa: S608 - a constant
    return connection.execute(query, (time_wall, _STEP)).rowcount


def _shrink(connection: sqlite3.Connection, _: None) -> bool:
    """Give some free pages back to the file system; return whether more free pages are left."""
    connection.execute(f"PRAGMA incremental_vacuum({_STEP})").fetchall()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(free)


def _octets(key: str) -> bytes:
    """Return a key in the form in which it is stored."""
    return key.encode(errors="surrogatepass")


class SqliteStore:
    """A Store in an SQLite file. Several stores and processes may share the file.

    A record that was put survives the end of the process, even by ``kill -9``. A power failure may lose the last
    records, but does not damage the file. Threads of the store read and write records, so a slow disk does not hold up
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

    The constructor checks an existing file, and raises ConfigurationError if it cannot be used. The file is created
    when the store is first used, readable for its owner only. While the file is open, SQLite has two more files beside
    it, ``-wal`` and ``-shm``. Copy and delete the three files together, and only while no process has them open. The
    files must be on a disk of this machine, because locks on network file systems are not reliable.

    A store that was used before a fork raises StoreError in the child: create the store after the fork.

    Args:
        path: the path of the file, in a folder that exists.
        max_bytes: how many bytes of records to keep, including keys; positive. The oldest records are deleted first.
            The file is about a fifth larger than its records.
        busy_timeout_s: how many seconds to wait while another process has the file locked. Give less than
            ``CacheOptions.store_timeout_s``, so that the error names the cause.
        clock: its wall clock dates the records.

    Raises:
        ConfigurationError: an argument is out of its range; the folder is missing; file or folder is read-only; the
            path is a symbolic link, or not a regular file; the file is encrypted; or another program or a newer
            politesse wrote it. The file is not changed.
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
        check_least("max_bytes", max_bytes, 1)
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._file = SqliteFile(path, [_RECORDS], busy_timeout_s=busy_timeout_s)

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._file.path

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        stored = await self.stored(key)
        return None if stored is None else stored.record

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, in place of an earlier record. A record that is larger than ``max_bytes`` is not kept.

        Raises:
            StoreError: the file cannot be written, is locked for longer than ``busy_timeout_s``, or the store is
                closed. The earlier record is still there.
        """
        await self._file.write(_put, _Put(key, int(self._clock.wall()), record, self._max_bytes))

    async def delete(self, key: str, /) -> None:
        """Delete a record.

        Raises:
            StoreError: as for ``put``.
        """
        await self._file.write(_delete, key)

    async def update(self, key: str, change: Callable[[bytes | None], bytes], /) -> None:
        """Replace a record by ``change(record)``, within one transaction; see UpdatingStore.

        Args:
            key: the key of the record.
            change: takes the record, or None, and returns the new record. A thread of the store calls ``change`` while
                the file is locked, and calls it again if the transaction has to be repeated.

        Raises:
            StoreError: as for ``put``.
            Exception: ``change`` failed. The earlier record is kept.
        """
        await self._file.write(_put, _Put(key, int(self._clock.wall()), change, self._max_bytes))

    async def prune(self, *, max_age_s: float | None = None, max_bytes: int | None = None) -> int:
        """Delete old records, and make the file smaller.

        Args:
            max_age_s: the age in seconds beyond which records are deleted.
            max_bytes: how many bytes of the newest records to keep, including keys.

        Returns:
            How many records were deleted.

        Raises:
            ConfigurationError: both arguments are missing, or an argument is out of its range.
            StoreError: as for ``put``. Some records may have been deleted.
        """
        if max_age_s is None and max_bytes is None:
            raise ConfigurationError("prune() needs max_age_s= or max_bytes=: it deletes nothing by itself")
        deleted = 0
        if max_age_s is not None:
            check_positive("max_age_s", max_age_s)
            before_wall = int(self._clock.wall() - max_age_s)
            while step := await self._file.write(_expire, before_wall):
                deleted += step
        if max_bytes is not None:
            check_least("max_bytes", max_bytes, 0)
            while step := await self._file.write(_evict, max_bytes):
                deleted += step
        while await self._file.write(_shrink, None):
            pass
        return deleted

    async def stored(self, key: str) -> StoredRecord | None:
        """Return a record with the time at which it was stored, or None.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return await self._file.read(_get, key)

    async def records(self) -> AsyncIterator[StoredRecord]:
        """Yield all records, the oldest first. A record that is put again meanwhile is yielded again.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        number = 0
        while rows := await self._file.read(_records_after, (number, _PAGE_OF_RECORDS)):
            for number, record in rows:  # noqa: B007 - the last one counts
                yield record

    async def statistics(self) -> StoreStatistics:
        """Return the size of the store.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return await self._file.read(_statistics, None)

    async def aclose(self) -> None:
        """Finish the calls under way, and close the file. Later calls raise StoreError."""
        await self._file.aclose()

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r}: at most {self._max_bytes} bytes of records>"


class StoreReader(SqliteStore):
    """The store in an existing file, which no call can change; a call raises StoreError for a file without a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = ReadOnlyFile(path, [_RECORDS])


def store_at(location: str | os.PathLike[str], *, clock: Clock) -> SqliteStore:
    """Return the store at a location.

    Args:
        location: the path of a file; or ``sqlite:///`` and a path, which is not percent-decoded.
        clock: dates the records.

    Raises:
        ConfigurationError: the location is invalid, has options or names no file, or the file cannot be used. The
            message names the argument ``store``.
        ImportError: this Python was built without the module sqlite3.
    """
    shown = public_text(f"store={os.fspath(location)!r:.200}")  # may be the URL of a Redis with its password
    if isinstance(location, str) and (location.endswith(":memory:") or location in _IN_MEMORY):
        raise ConfigurationError(f"{shown}: a store in memory is the default: leave store= out, or give a MemoryStore")
    try:
        return SqliteStore(path_at(location), clock=clock)
    except ConfigurationError as error:
        raise type(error)(f"{shown}: {error}") from error


def path_at(location: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of the file at a location; see ``store_at``.

    Raises:
        ConfigurationError: the location is a URL of another form than ``sqlite:///PATH``, or a URL with options.
    """
    if not isinstance(location, str):
        return location
    scheme, is_url, rest = location.partition(":")
    path = rest.removeprefix("///")
    if not is_url or (scheme != "sqlite" and not rest.startswith("//")):
        return location
    if scheme != "sqlite" or path == rest:
        raise ConfigurationError(f"no such kind of file; {_WANTED}")
    if "?" in path or "#" in path:
        raise ConfigurationError("options in the URL are not known: leave them out, or make a SqliteStore with them")
    return path
