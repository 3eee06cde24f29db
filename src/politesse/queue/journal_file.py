"""The tables of a journal in a politesse file, and the lock that keeps the file to one queue.

Theory of operation. SQLite's own locks end with each transaction, so a queue holds another file beside the journal,
``crawl.db.lock``, by an exclusive transaction that it never ends. The file stays empty; the system frees the lock when
the process ends, however it ends. As a second line of defence, should somebody remove that file, each queue writes a
mark of its own into the journal, and each write checks it: of two queues only the later one writes.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from politesse._checks import check_priority
from politesse._text import shortened
from politesse.errors import InvalidURL, StoreError
from politesse.origin import Origin
from politesse.queue.journal import Added, Ended, JournalRow, Moved
from politesse.stores._location import path_at
from politesse.stores._sqlite_file import Part, SqliteFile
from politesse.stores._sqlite_opening import Locked, held_file

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Sequence

    from politesse.queue.journal import Change

_MAX_SHOWN: Final = 200  # characters of a damaged value
_LOCK_WAIT_S: Final = 0.5  # a queue that was closed a moment ago, or a process that is just being killed

_QUEUED: Final = (
    "CREATE TABLE queued (number INTEGER PRIMARY KEY, url TEXT NOT NULL, item TEXT, priority NOT NULL, hops TEXT, "
    "attempt INTEGER NOT NULL)"
)
_SEEN_TABLE: Final = "CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID"
_OWNER: Final = "CREATE TABLE journal_owner (only INTEGER PRIMARY KEY CHECK (only = 1), process INTEGER, mark TEXT)"

JOURNAL: Final = Part("journal", ((_QUEUED, _SEEN_TABLE, _OWNER),))
"""The tables of a journal.

``queued`` has the URLs that have not ended, with the fields of JournalRow, ``item`` and ``hops`` as JSON; ``seen`` the
digests of the normal forms of all that were put; ``journal_owner`` the process and the mark of the last queue.
"""

_ADD: Final = "INSERT INTO queued VALUES (?, ?, ?, ?, ?, ?)"
_MOVE: Final = "UPDATE queued SET number = ?, url = ?, hops = ?, attempt = ? WHERE number = ?"
_END: Final = "DELETE FROM queued WHERE number = ?"
_SEEN: Final = "INSERT OR IGNORE INTO seen VALUES (?)"


class SqliteJournal:
    """A JournalFile in a politesse file, which may have other parts.

    Args:
        journal: the path, or ``"sqlite:///"`` and the path.

    Raises:
        ConfigurationError: see SqliteFile, and ``path_at``.
    """

    def __init__(self, journal: str | os.PathLike[str]) -> None:
        self._file = SqliteFile(path_at(journal), [JOURNAL])
        self.name = repr(str(self._file.path))
        self._mark = uuid4().hex
        self._lock: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Take the lock, and write the mark; raises StoreError."""
        try:
            await self._file.write(self._take_over, None)
        except StoreError as error:
            raise StoreError(f"the journal {self.name} cannot be opened: {error}") from error

    def _take_over(self, connection: sqlite3.Connection, arguments: Sequence[None]) -> Sequence[None]:
        path = self._file.path
        if self._lock is None:  # it is kept if the transaction is tried again
            try:
                self._lock = held_file(path.with_name(f"{path.name}.lock"), wait_s=_LOCK_WAIT_S)
            except Locked:
                whose = _owner(connection)[1]
                raise StoreError(f"{whose} uses it, and a journal serves one queue at a time") from None
        connection.execute("INSERT OR REPLACE INTO journal_owner VALUES (1, ?, ?)", (os.getpid(), self._mark))
        return [None] * len(arguments)

    async def rows(self, after: int, limit: int) -> tuple[Sequence[JournalRow], Sequence[str], int | None]:
        """Return the next rows by number, what is wrong with damaged ones, and the last number; None for no more."""
        return await self._file.read(_rows, (after, limit))

    async def digests(self, after: bytes, limit: int) -> Sequence[bytes]:
        """Return the next digests in their order."""
        return await self._file.read(_digests, (after, limit))

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Write changes in one transaction; done when it is committed."""
        return self._file.begin_write(self._apply, changes)

    def _apply(self, connection: sqlite3.Connection, batches: Sequence[Sequence[Change]]) -> Sequence[None]:
        mark, process = _owner(connection)
        if mark != self._mark:
            raise StoreError(f"{process} has taken it over")
        for batch in batches:
            apply_changes(connection, batch)
        return [None] * len(batches)

    async def aclose(self) -> None:
        """Close the file, and free the lock."""
        await self._file.aclose()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()


def _owner(connection: sqlite3.Connection) -> tuple[str, str]:
    """Return the mark of the last queue that opened the journal, and words for its process."""
    owner = connection.execute("SELECT mark, process FROM journal_owner").fetchone()
    if owner is None:
        return "", "another process"
    mark, process = owner
    return mark, "another queue of this process" if process == os.getpid() else f"process {process}"


def apply_changes(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Write changes into the tables, in their order."""
    for kind, group in itertools.groupby(changes, type):
        if kind is Added:
            connection.executemany(_ADD, (change[:6] for change in group))
        elif kind is Moved:
            moves = (change for change in group if isinstance(change, Moved))
            connection.executemany(_MOVE, ((one.number, one.url, one.hops, one.attempt, one.old) for one in moves))
        else:
            connection.executemany(_END, group)
    connection.executemany(_SEEN, ((change.digest,) for change in changes if not isinstance(change, Ended)))


def _rows(
    connection: sqlite3.Connection, arguments: Sequence[tuple[int, int]]
) -> Sequence[tuple[Sequence[JournalRow], Sequence[str], int | None]]:
    results = []
    for argument in arguments:
        found = connection.execute("SELECT * FROM queued WHERE number > ? ORDER BY number LIMIT ?", argument).fetchall()
        rows, damages = [], []
        for fields in found:
            try:
                rows.append(_checked_row(fields))
            except (InvalidURL, TypeError, ValueError, RecursionError) as error:
                damages.append(f"number {fields[0]}: {shortened(str(error), _MAX_SHOWN)}")
        results.append((rows, damages, found[-1][0] if found else None))
    return results


def _checked_row(fields: tuple[object, ...]) -> JournalRow:
    """Return a row of ``queued``; raises TypeError, ValueError or RecursionError if it cannot be queued."""
    number, url, item, priority, hops, attempt = fields
    if not isinstance(number, int) or not isinstance(attempt, int):
        raise TypeError(f"attempt={attempt!r}: not an int")
    check_priority(priority)
    Origin.of(_text("url", url))
    past = [] if hops is None else json.loads(_text("hops", hops))
    if not isinstance(past, list) or not isinstance(priority, int | float):
        raise TypeError(f"hops={past!r}: not a list")
    value = None if item is None else json.loads(_text("item", item))
    return JournalRow(number, _text("url", url), value, priority, tuple(_text("hops", hop) for hop in past), attempt)


def _text(name: str, value: object) -> str:
    """Return a value that must be a str; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: not a str")
    return value


def _digests(connection: sqlite3.Connection, arguments: Sequence[tuple[bytes, int]]) -> Sequence[Sequence[bytes]]:
    query = "SELECT digest FROM seen WHERE digest > ? ORDER BY digest LIMIT ?"
    return [[digest for (digest,) in connection.execute(query, argument)] for argument in arguments]
