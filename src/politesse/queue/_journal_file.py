"""The tables of a journal in an SQLite file, and the lock that reserves the file for one queue.

Theory of operation. SQLite's own locks end with each transaction. So a queue locks a second file, such as
``crawl.db.lock``, with an exclusive transaction that it never ends. This file stays empty, and the system frees the
lock however the process ends. But a user may remove the lock file. So each queue also writes its own mark into the
journal, and each write checks the mark. If two queues use the file, only the later queue can write.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import check_priority
from politesse._base.text import shortened
from politesse.errors import InvalidURL, StoreError
from politesse.origin import Origin
from politesse.queue._hosts import SitemapMark, Trail
from politesse.stores._sqlite_errors import Locked
from politesse.stores._sqlite_file import Part
from politesse.stores._sqlite_opening import held_file

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

_LOCK_WAIT_S: Final = 0.5  # wait for a queue that is just closing, or a process that is just ending

_QUEUED: Final = (
    "CREATE TABLE queued (number INTEGER PRIMARY KEY, url TEXT NOT NULL, item TEXT, priority NOT NULL, hops TEXT, "
    "attempt INTEGER NOT NULL, depth INTEGER NOT NULL, sitemap TEXT)"
)
_SEEN_TABLE: Final = "CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID"
_OWNER: Final = "CREATE TABLE journal_owner (only INTEGER PRIMARY KEY CHECK (only = 1), process INTEGER, mark TEXT)"

JOURNAL: Final = Part("journal", (_QUEUED, _SEEN_TABLE, _OWNER), version=2)
"""The tables of a journal.

``queued`` has the URLs that have not ended, with the fields of JournalRow and Trail; ``item``, ``hops`` and
``sitemap`` are JSON. A URL that has failed stays, with 0 in ``attempt``. ``seen`` has the digests of the normal forms
of all URLs that were put. ``journal_owner`` has the process and the mark of the last queue.
"""

ADD: Final = "INSERT INTO queued VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
MOVE: Final = "UPDATE queued SET number = ?, url = ?, hops = ?, attempt = ? WHERE number = ?"
FAIL: Final = "UPDATE queued SET attempt = 0 WHERE number = ?"
END: Final = "DELETE FROM queued WHERE number = ?"
_SEEN: Final = "INSERT OR IGNORE INTO seen VALUES (?)"


class Change(NamedTuple):
    """A change of the file: ADD, MOVE, FAIL or END, its values, and the digest of the URL that was put."""

    statement: str
    values: tuple[object, ...]
    digest: bytes | None = None


class JournalRow(NamedTuple):
    """A URL that is left from an earlier run, or has failed there."""

    number: int
    url: str
    item: object
    priority: float
    trail: Trail


class Contents(NamedTuple):
    """The URLs of a journal, those that failed, the digests of all, the faults of its rows, and the last number."""

    rows: deque[JournalRow]
    failed: list[JournalRow]
    seen: set[int]
    damages: list[str]
    last: int


def held_lock(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return the lock of a journal; raises StoreError if another queue holds it."""
    try:
        return held_file(path.with_name(f"{path.name}.lock"), wait_s=_LOCK_WAIT_S)
    except Locked:
        whose = _owner(connection)[1]
        raise StoreError(f"{whose} uses it, and a journal serves one queue at a time") from None


def write_mark(connection: sqlite3.Connection, mark: str) -> None:
    """Write the mark of the queue that now uses the journal."""
    connection.execute("INSERT OR REPLACE INTO journal_owner VALUES (1, ?, ?)", (os.getpid(), mark))


def check_mark(connection: sqlite3.Connection, mark: str) -> None:
    """Raise StoreError if another queue has replaced the mark."""
    found, process = _owner(connection)
    if found != mark:
        raise StoreError(f"{process} has taken it over")


def apply_changes(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Write changes into the tables, in their order."""
    for statement, group in itertools.groupby(changes, itemgetter(0)):
        connection.executemany(statement, [change.values for change in group])
    connection.executemany(_SEEN, [(change.digest,) for change in changes if change.digest is not None])


def _owner(connection: sqlite3.Connection) -> tuple[str, str]:
    """Return the mark of the last queue that opened the journal, and a description of its process."""
    mark, process = connection.execute("SELECT mark, process FROM journal_owner").fetchone() or ("", None)
    return mark, "another queue of this process" if process == os.getpid() else f"process {process}"


def read_contents(connection: sqlite3.Connection, _: None) -> Contents:
    """Read the file; a row that cannot be queued is described, and stays in the file."""
    rows, failed, damages, last = deque[JournalRow](), [], [], 0
    for number, *values in connection.execute("SELECT * FROM queued ORDER BY number"):
        last = number
        try:
            row = _row(number, *values)
            if row.trail.attempt:
                rows.append(row)
            else:
                failed.append(row._replace(trail=row.trail._replace(attempt=1)))
        except (InvalidURL, TypeError, ValueError, RecursionError) as error:
            damages.append(f"number {number}: {shortened(str(error))}")
    seen = {int.from_bytes(digest) for (digest,) in connection.execute("SELECT digest FROM seen")}
    return Contents(rows, failed, seen, damages, last)


def _row(number: int, url: str, item: str | None, priority: float, hops: str | None, *more: object) -> JournalRow:
    """Return a row of ``queued``; raises TypeError, ValueError or RecursionError if its values are damaged."""
    past = json.loads(hops or "[]")
    attempt, depth, mark = *more[:2], json.loads(str(more[2] or "null"))
    is_text = isinstance(past, list) and all(isinstance(text, str) for text in (url, *past))
    if not (is_text and isinstance(attempt, int) and isinstance(depth, int)):
        raise TypeError(f"url={url!r}, hops={past!r}, attempt={attempt!r}, depth={depth!r}")
    check_priority(priority)
    Origin.of(url)
    trail = Trail(tuple(past), attempt, depth, None if mark is None else _mark(*mark))
    return JournalRow(number, url, None if item is None else json.loads(item), priority, trail)


def _mark(listed_by: object, is_in_index: object, since_wall: object, is_guess: object) -> SitemapMark:
    are_bool = isinstance(is_in_index, bool) and isinstance(is_guess, bool)
    if not (isinstance(listed_by, str) and are_bool and isinstance(since_wall, float | None)):
        raise TypeError(f"sitemap={listed_by!r}, {is_in_index!r}, {since_wall!r}, {is_guess!r}")
    return SitemapMark(listed_by, bool(is_in_index), since_wall, bool(is_guess))
