"""The part of a politesse file that holds the records of a store, and the operations on it.

A record that is put again gets a new row: so the rows lie in the order in which they were stored, new ones fill whole
pages at the end, and the oldest are found and deleted at the start, without an index by age. The sum of the bytes is
kept in a row of its own, in the transaction that changes it.

Keys are octets, UTF-8 with lone surrogates passed through: any str is a key, and no two are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse.stores._sqlite_opening import Part

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

RECORDS: Final = Part(
    "records",
    (
        (
            "CREATE TABLE records (key BLOB NOT NULL UNIQUE, stored_wall INTEGER NOT NULL, record BLOB NOT NULL)",
            "CREATE TABLE record_bytes (total INTEGER NOT NULL)",
            "INSERT INTO record_bytes VALUES (0)",
        ),
    ),
)

_OCTETS: Final = "CAST(record AS BLOB)"  # whatever somebody else wrote there: to be found damaged, not of another type
_STEP_RECORDS: Final = 1_000  # of one transaction when many are deleted: other writers wait for its end
_STEP_PAGES: Final = 1_000


class DatedRow(NamedTuple):
    """A record to keep."""

    key: bytes
    stored_wall: int
    record: bytes


class RowUpdate(NamedTuple):
    """A record to replace by what ``change`` makes of it."""

    key: bytes
    stored_wall: int
    change: Callable[[bytes | None], bytes]


class NumberedRow(NamedTuple):
    """A record as it is kept, with the number of its row."""

    number: int
    key: bytes
    stored_wall: int
    record: bytes


class Sums(NamedTuple):
    """What the table and the file amount to; see StoreStatistics."""

    records: int
    record_bytes: int
    file_bytes: int
    oldest_wall: int | None
    newest_wall: int | None


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The operations of SqliteStore, each for the arguments of one or more calls.

    Attributes:
        max_bytes: how many bytes of keys and records ``put`` keeps; it deletes the oldest beyond.
    """

    max_bytes: int

    def get(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each key, or None."""
        query = f"SELECT {_OCTETS} FROM records WHERE key = ?"  # noqa: S608 - a constant
        found = [connection.execute(query, (key,)).fetchone() for key in keys]
        return [None if row is None else row[0] for row in found]

    def rows_of(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[NumberedRow | None]:
        """Return the row of each key, or None."""
        query = "SELECT rowid, key, stored_wall, record FROM records WHERE key = ?"
        found = [connection.execute(query, (key,)).fetchone() for key in keys]
        return [None if row is None else NumberedRow(*row) for row in found]

    def put(self, connection: sqlite3.Connection, rows: Sequence[DatedRow]) -> list[None]:
        """Keep each record; one that is larger than ``max_bytes`` only replaces what is there."""
        self._grow(connection, sum(self._replace(connection, row, _bytes_of(connection, row.key)) for row in rows))
        return [None] * len(rows)

    def update(self, connection: sqlite3.Connection, updates: Sequence[RowUpdate]) -> list[BaseException | None]:
        """Replace each record by what its ``change`` makes of it; return what that raised, or None."""
        query = f"SELECT {_OCTETS}, length(key) + length(record) FROM records WHERE key = ?"  # noqa: S608 - a constant
        errors: list[BaseException | None] = []
        growth = 0
        for key, stored_wall, change in updates:
            record, size = connection.execute(query, (key,)).fetchone() or (None, 0)
            try:
                changed = change(record)
            except BaseException as error:  # noqa: BLE001 - raised in its caller; it must not end the thread
                errors.append(error)
            else:
                growth += self._replace(connection, DatedRow(key, stored_wall, changed), size)
                errors.append(None)
        self._grow(connection, growth)
        return errors

    def _replace(self, connection: sqlite3.Connection, row: DatedRow, replaced_bytes: int) -> int:
        """Keep a record in place of one of so many bytes, unless it is too large; return how many bytes that adds."""
        size = len(row.key) + len(row.record)
        if size > self.max_bytes:
            connection.execute("DELETE FROM records WHERE key = ?", (row.key,))
            return -replaced_bytes
        connection.execute("INSERT OR REPLACE INTO records (key, stored_wall, record) VALUES (?, ?, ?)", row)
        return size - replaced_bytes

    def _grow(self, connection: sqlite3.Connection, growth: int) -> None:
        """Count bytes that were added, and delete the oldest records beyond ``max_bytes``."""
        _add_to_total(connection, growth)
        while _total(connection) > self.max_bytes:
            _evict(connection, self.max_bytes)

    def delete(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[None]:
        """Delete the record of each key, if there is one."""
        freed = 0
        for key in keys:
            freed += _bytes_of(connection, key)
            connection.execute("DELETE FROM records WHERE key = ?", (key,))
        _add_to_total(connection, -freed)
        return [None] * len(keys)

    def rows_after(self, connection: sqlite3.Connection, given: Sequence[tuple[int, int]]) -> list[list[NumberedRow]]:
        """Return, for each row number and count, the next rows in the order in which they were stored."""
        columns = f"rowid, key, stored_wall, {_OCTETS}"
        query = f"SELECT {columns} FROM records WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 - constants
        return [[NumberedRow(*row) for row in connection.execute(query, one)] for one in given]

    def sums(self, connection: sqlite3.Connection, given: Sequence[None]) -> list[Sums]:
        """Return what the table and the file amount to."""
        (records,) = connection.execute("SELECT count(*) FROM records").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        oldest = connection.execute("SELECT stored_wall FROM records ORDER BY rowid LIMIT 1").fetchone()
        newest = connection.execute("SELECT stored_wall FROM records ORDER BY rowid DESC LIMIT 1").fetchone()
        ends = (*(oldest or [None]), *(newest or [None]))
        return [Sums(records, _total(connection), pages * page_bytes, *ends)] * len(given)

    def evict_step(self, connection: sqlite3.Connection, bounds: Sequence[int]) -> list[int]:
        """Delete some of the oldest records, as far as all take more bytes than the bound; return how many, or 0."""
        return [_evict(connection, bound) if _total(connection) > bound else 0 for bound in bounds]

    def expire_step(self, connection: sqlite3.Connection, given: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Look at some rows behind a row number, and delete those stored before a wall time.

        Returns:
            How many were deleted, and the number of the last row that was looked at; 0 at the end.
        """
        return [_expire(connection, after, before_wall) for after, before_wall in given]

    def shrink_step(self, connection: sqlite3.Connection, given: Sequence[None]) -> list[bool]:
        """Give some free pages back to the file system; return whether any are left."""
        connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        return [free > 0] * len(given)


def _bytes_of(connection: sqlite3.Connection, key: bytes) -> int:
    # SQLite knows the length of a record without reading it.
    row = connection.execute("SELECT length(key) + length(record) FROM records WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])


def _total(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT total FROM record_bytes").fetchone()[0])


def _add_to_total(connection: sqlite3.Connection, change: int) -> None:
    if change:
        connection.execute("UPDATE record_bytes SET total = total + ?", (change,))


def _evict(connection: sqlite3.Connection, bound: int) -> int:
    """Delete the oldest records until all take ``bound`` bytes, or a step is done; return how many were deleted."""
    excess = _total(connection) - bound
    freed = deleted = last = 0
    query = "SELECT rowid, length(key) + length(record) FROM records ORDER BY rowid LIMIT ?"
    for number, size in connection.execute(query, (_STEP_RECORDS,)).fetchall():
        if freed >= excess:
            break
        last, freed, deleted = number, freed + size, deleted + 1
    connection.execute("DELETE FROM records WHERE rowid <= ?", (last,))
    if not deleted:
        freed = excess + bound  # the table is empty
    _add_to_total(connection, -freed)
    return deleted


def _expire(connection: sqlite3.Connection, after: int, before_wall: int) -> tuple[int, int]:
    query = (
        "SELECT rowid, stored_wall, length(key) + length(record) FROM records WHERE rowid > ? ORDER BY rowid LIMIT ?"
    )
    rows = connection.execute(query, (after, _STEP_RECORDS)).fetchall()
    old = [(number, size) for number, stored_wall, size in rows if stored_wall < before_wall]
    connection.executemany("DELETE FROM records WHERE rowid = ?", [(number,) for number, _ in old])
    _add_to_total(connection, -sum(size for _, size in old))
    return len(old), rows[-1][0] if rows else 0
