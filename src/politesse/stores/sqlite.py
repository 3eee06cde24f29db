"""A store in an SQLite file. The file outlives the process, and all processes of a machine may share it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from politesse._base.checks import check_least, check_positive
from politesse._base.text import public_text
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError
from politesse.stores import _sqlite_records
from politesse.stores._sqlite_file import ReadOnlyFile, SqliteFile
from politesse.stores._sqlite_records import RECORDS, Put, StoredRecord, StoreStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


_WANTED: Final = "give the path of a file, 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'"
_IN_MEMORY: Final = ("sqlite:", "sqlite://", "sqlite:///")  # the URLs of SQLAlchemy for a database in memory
_PAGE_OF_RECORDS: Final = 50  # this many records are read together; a record may have some hundred KB


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
        self._file = SqliteFile(path, [RECORDS], busy_timeout_s=busy_timeout_s)

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
        await self._file.write(_sqlite_records.put, Put(key, int(self._clock.wall()), record, self._max_bytes))

    async def delete(self, key: str, /) -> None:
        """Delete a record.

        Raises:
            StoreError: as for ``put``.
        """
        await self._file.write(_sqlite_records.delete, key)

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
        await self._file.write(_sqlite_records.put, Put(key, int(self._clock.wall()), change, self._max_bytes))

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
            while step := await self._file.write(_sqlite_records.expire, before_wall):
                deleted += step
        if max_bytes is not None:
            check_least("max_bytes", max_bytes, 0)
            while step := await self._file.write(_sqlite_records.evict, max_bytes):
                deleted += step
        while await self._file.write(_sqlite_records.shrink, None):
            pass
        return deleted

    async def stored(self, key: str) -> StoredRecord | None:
        """Return a record with the time at which it was stored, or None.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return await self._file.read(_sqlite_records.get, key)

    async def records(self) -> AsyncIterator[StoredRecord]:
        """Yield all records, the oldest first. A record that is put again meanwhile is yielded again.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        number = 0
        while rows := await self._file.read(_sqlite_records.records_after, (number, _PAGE_OF_RECORDS)):
            for number, record in rows:  # noqa: B007 - the last one counts
                yield record

    async def statistics(self) -> StoreStatistics:
        """Return the size of the store.

        Raises:
            StoreError: the file cannot be read, or the store is closed.
        """
        return await self._file.read(_sqlite_records.statistics, None)

    async def aclose(self) -> None:
        """Finish the calls under way, and close the file. Later calls raise StoreError."""
        await self._file.aclose()

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r}: at most {self._max_bytes} bytes of records>"


class StoreReader(SqliteStore):
    """The store in an existing file, which no call can change; a call raises StoreError for a file without a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = ReadOnlyFile(path, [RECORDS])


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
