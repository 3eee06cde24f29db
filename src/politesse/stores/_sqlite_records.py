"""Defines the part of an SQLite file for the records of a store, and the operations on these records.

A record that is put again gets a new row. So the rows are in the order in which they were stored, and the oldest can be
found without an index by age. Triggers keep the sum of all bytes in a separate table.

Keys are stored as UTF-8 that keeps lone surrogates, so any str can be a key, and different keys stay different.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse.stores._sqlite_opening import Part

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

_ADD: Final = "UPDATE record_bytes SET total = total {0} length({1}.key) {0} length({1}.record)"

RECORDS: Final = Part(
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


class Put(NamedTuple):
    """A record to store, or a function from the earlier record (or None) to the new record."""

    key: str
    stored_wall: int
    record: bytes | Callable[[bytes | None], bytes]
    max_bytes: int


def get(connection: sqlite3.Connection, key: str) -> StoredRecord | None:
    """Return the record of a key, or None."""
    query = f"SELECT stored_wall, {_OCTETS} FROM records WHERE key = ?"  # noqa: S608 - a constant
    row = connection.execute(query, (_octets(key),)).fetchone()
    return None if row is None else StoredRecord(key, *row)


def put(connection: sqlite3.Connection, call: Put) -> None:
    """Store a record. A record that is larger than ``max_bytes`` only removes the earlier record."""
    key, stored_wall, record, max_bytes = call
    if callable(record):
        before = get(connection, key)
        record = record(None if before is None else before.record)
    delete(connection, key)
    name = _octets(key)
    if len(name) + len(record) <= max_bytes:
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (name, stored_wall, record))
    while evict(connection, max_bytes):
        pass


def delete(connection: sqlite3.Connection, key: str) -> None:
    """Delete the record of a key."""
    connection.execute("DELETE FROM records WHERE key = ?", (_octets(key),))


def records_after(connection: sqlite3.Connection, place: tuple[int, int]) -> list[tuple[int, StoredRecord]]:
    """Return some of the rows after a row number, in the order in which they were stored."""
    columns = f"rowid, key, stored_wall, {_OCTETS}"
    query = f"SELECT {columns} FROM records WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 - constants
    return [
        (number, StoredRecord(key.decode(errors="surrogatepass"), stored_wall, record))
        for number, key, stored_wall, record in connection.execute(query, place)
    ]


def statistics(connection: sqlite3.Connection, _: None) -> StoreStatistics:
    """Return the size of the table and of the file."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    query = (
        "SELECT (SELECT count(*) FROM records), total, ?, "
        "(SELECT stored_wall FROM records ORDER BY rowid LIMIT 1), "
        "(SELECT stored_wall FROM records ORDER BY rowid DESC LIMIT 1) FROM record_bytes"
    )
    return StoreStatistics(*connection.execute(query, (pages * page_bytes,)).fetchone())


def evict(connection: sqlite3.Connection, bound: int) -> int:
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


def expire(connection: sqlite3.Connection, time_wall: int) -> int:
    """Delete some of the records that were stored before a time; return how many were deleted."""
    old = "SELECT rowid FROM records WHERE stored_wall < ? ORDER BY rowid LIMIT ?"
    query = f"DELETE FROM records WHERE rowid IN ({old})"  # noqa: S608 - a constant
    return connection.execute(query, (time_wall, _STEP)).rowcount


def shrink(connection: sqlite3.Connection, _: None) -> bool:
    """Give some free pages back to the file system; return whether more free pages are left."""
    connection.execute(f"PRAGMA incremental_vacuum({_STEP})").fetchall()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(free)


def _octets(key: str) -> bytes:
    """Return a key in the form in which it is stored."""
    return key.encode(errors="surrogatepass")
