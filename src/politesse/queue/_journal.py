"""Keeps the URLs of a queue in a file until they are done, so that a later run continues with them.

Theory of operation. Each event of a URL is noted as a change, in order:

    ADD     the URL was put
    MOVE    it is queued again: unchanged, as a further attempt, or as the target of its redirect
    FAIL    it was requested, and has failed; its row stays, for a run with ``retry_failed``
    END     it was requested or refused, and is done

At most one write is under way. A write commits, in one transaction, all changes that were noted before the write. So
the file always holds the state of one moment of the run. A page is done only after its links were put. So after a
crash, either the file has the links or the page is requested again. ``put`` waits until its change is committed; all
other changes are written in the background. If a write fails, the queue writes no more changes and hands out no more
URLs. The file then holds an earlier state, with all URLs whose ``put`` has returned.

A row of the file has the number of the queued URL. Numbers grow: a run continues from the largest number in the file.
MOVE changes the number of a row, so that an END of the old number removes no row.

The file also holds the digest of each URL that was ever put. A restarted program puts its first URLs again, so a
``put`` of a URL of an earlier run is ignored. But if a worker puts a URL that this run has handed out, the ``put`` is a
retry, and is not ignored. The crawl of a queue with a journal takes these digests as its ``seen``.

The first call that uses the queue reads the journal, and queues its URLs in batches. All other calls wait until the
journal has been read. If the first call is cancelled, the next call continues the reading.

SQLite's own locks end with each transaction. So a queue locks a second file, such as ``crawl.db.lock``, with an
exclusive transaction that it never ends. This file stays empty, and the system frees the lock however the process ends.
But a user may remove the lock file. So each queue also writes its own mark into the journal, and each write checks the
mark. If two queues use the file, only the later queue can write.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import reprlib
from collections import deque
from dataclasses import InitVar, dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from politesse._base.checks import check_priority
from politesse._base.text import counted, described, shortened
from politesse.errors import ConfigurationError, InvalidURL, StoreError
from politesse.origin import Origin
from politesse.queue._hosts import LOGGER, SitemapMark, Trail
from politesse.queue._web import DIGEST_OCTETS, SeenUrls, digest_of, normal_form
from politesse.stores._sqlite_file import Locked, Part, SqliteFile, held_file
from politesse.stores.sqlite import path_at

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from politesse.queue._hosts import QueuedUrl
    from politesse.queue._results import Item

    # A URL that is left from an earlier run: its number, the URL, its item, its priority and its trail.
    Row: TypeAlias = tuple[int, str, Any, float, Trail]

_ROWS: Final = 100  # resumed URLs are queued in batches of this many rows; a batch takes 2 ms
_MAX_BEHIND: Final = 10_000  # with this many unwritten changes, no URL is handed out until they are written
_MAX_INTEGER: Final = 2**63  # all integers of SQLite are smaller
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))  # json.dumps would make an encoder each time
_LOCK_WAIT_S: Final = 0.5  # wait for a queue that is just closing, or a process that is just ending

_QUEUED: Final = (
    "CREATE TABLE queued (number INTEGER PRIMARY KEY, url TEXT NOT NULL, item TEXT, priority NOT NULL, hops TEXT, "
    "attempt INTEGER NOT NULL, depth INTEGER NOT NULL, sitemap TEXT)"
)
_SEEN_TABLE: Final = "CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID"
_OWNER: Final = "CREATE TABLE journal_owner (only INTEGER PRIMARY KEY CHECK (only = 1), process INTEGER, mark TEXT)"

JOURNAL: Final = Part("journal", (_QUEUED, _SEEN_TABLE, _OWNER), version=2)
"""The tables of a journal.

``queued`` has the URLs that have not ended, with the fields of QueuedUrl and Trail; ``item``, ``hops`` and
``sitemap`` are JSON. A URL that has failed stays, with 0 in ``attempt``. ``seen`` has the digests of the normal forms
of all URLs that were put. ``journal_owner`` has the process and the mark of the last queue.
"""

# Texts as octets: sqlite3 would read no further row after a text that is not UTF-8.
_LEFT: Final = (
    "SELECT number, CAST(url AS BLOB), CAST(item AS BLOB), priority, CAST(hops AS BLOB), attempt, depth, "
    "CAST(sitemap AS BLOB) FROM queued ORDER BY number"
)
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


@dataclass(eq=False, repr=False)
class Journal:
    """The journal of a queue, in an SQLite file of politesse, which may also have the tables of a store.

    Args:
        journal: the path, or ``"sqlite:///"`` and the path.
        retry_failed: whether to queue the URLs that have failed in earlier runs.
        resume: called with rows of an earlier run, to queue them, and with the largest number in the file.
        fail: called with the StoreError after which no change is written.

    Attributes:
        is_open: whether the file has been read completely.
        resumed: how many URLs were resumed.
        seen: the URLs that this run and earlier runs have put; a crawl uses them as its ``seen``.

    Raises:
        ConfigurationError: see SqliteFile, and ``path_at``.
    """

    journal: InitVar[str | os.PathLike[str]]
    _retry_failed: bool
    _resume: Callable[[Sequence[Row], int], None]
    _fail: Callable[[StoreError], None]
    is_open: bool = field(default=False, init=False)
    resumed: int = field(default=0, init=False)
    seen: SeenUrls = field(default_factory=SeenUrls, init=False)
    _file: SqliteFile = field(init=False)
    _mark: str = field(default="", init=False)
    _lock: sqlite3.Connection | None = field(default=None, init=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _rows: deque[Row] | None = field(default=None, init=False)  # not resumed yet; None before the file was read
    _failed: int = field(default=0, init=False)  # how many URLs have failed, and are not requested again
    _last: int = field(default=0, init=False)  # the largest number in the file
    _handed: set[int] = field(default_factory=set, init=False)  # digests of resumed URLs that this run has handed out
    # By digest: the numbers of the rows that outlive the turn of their URL.
    _kept: dict[int, int] = field(default_factory=dict, init=False)
    _changes: list[Change] = field(default_factory=list, init=False)
    _writing: asyncio.Future[None] | None = field(default=None, init=False)  # the write under way
    # How many changes were noted, how many of them when that write began, and how many are written.
    _noted: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    _written: int = field(default=0, init=False)
    _failure: StoreError | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self, journal: str | os.PathLike[str]) -> None:
        self._file = SqliteFile(path_at(journal), [JOURNAL])
        self._name = repr(str(self._file.path))

    async def ready(self) -> None:
        """Read the URLs of an earlier run, before the first use; wait while many changes are still to be written.

        Raises:
            StoreError: the file cannot be read or written, or another queue uses it.
        """
        if not self.is_open:
            async with self._reading:
                await self._read()
        if len(self._changes) >= _MAX_BEHIND:
            await self.flush()

    async def _read(self) -> None:
        if self.is_open:
            return
        if self._rows is None:
            self._mark = uuid4().hex  # the mark is made here, because a queue may be created before a fork
            try:
                await self._file.write(self._take_over, None)
            except StoreError as error:
                raise StoreError(f"the journal {self._name} cannot be opened: {error}") from error
            contents = await self._file.read(self._contents, None)
            self._rows, self._failed, self.seen.earlier, damages, self._last = contents
            self._resume((), self._last)  # new URLs get later numbers, even if no row is resumed
            for damage in damages:
                LOGGER.warning("the journal %s has a damaged row, which is left as it is: %s", self._name, damage)
        while self._rows:
            batch = [self._rows.popleft() for _ in range(min(_ROWS, len(self._rows)))]
            self._resume(batch, self._last)
            self.resumed += len(batch)
            await asyncio.sleep(0)
        self.is_open = True
        seen = counted(len(self.seen.earlier), "URL")
        if self.resumed:
            resumed = counted(self.resumed, "URL")
            LOGGER.info("the journal %s goes on with %s of the %s that were put", self._name, resumed, seen)
        elif self.seen.earlier:
            LOGGER.warning(
                "the journal %s has nothing left of the %s that were put, and ignores them if they are put again; "
                "to request them again, remove the file%s",
                self._name,
                seen,
                f"; retry_failed=True requests {counted(self._failed, 'URL')} that failed" if self._failed else "",
            )

    def _take_over(self, connection: sqlite3.Connection, _: None) -> None:
        """Take the lock, and write the mark; raises StoreError if another queue holds the lock."""
        if self._lock is None:  # if the transaction is repeated, the lock is already held
            path = self._file.path
            try:
                self._lock = held_file(path.with_name(f"{path.name}.lock"), wait_s=_LOCK_WAIT_S)
            except Locked:
                whose = _owner(connection)[1]
                raise StoreError(f"{whose} uses it, and a journal serves one queue at a time") from None
        connection.execute("INSERT OR REPLACE INTO journal_owner VALUES (1, ?, ?)", (os.getpid(), self._mark))

    def _contents(self, connection: sqlite3.Connection, _: None) -> tuple[deque[Row], int, set[int], list[str], int]:
        """Read the file: its URLs, how many others have failed, the digests of all, the damages, and the last number.

        A row that cannot be queued is described, and stays in the file.
        """
        rows: deque[Row] = deque()
        failed, damages, last = 0, [], 0
        for number, *values in connection.execute(_LEFT):
            last = number
            try:
                row = _row(number, *values)
            except (InvalidURL, TypeError, ValueError, RecursionError) as error:
                damages.append(f"number {number}: {shortened(str(error))}")
                continue
            if values[4] or self._retry_failed:  # the attempt
                rows.append(row)
            else:
                failed += 1
        digests = connection.execute("SELECT CAST(digest AS BLOB) FROM seen")
        seen = {int.from_bytes(digest) for (digest,) in digests}
        return rows, failed, seen, damages, last

    def check_open(self) -> None:
        """Raise ConfigurationError if the journal was not read yet, because the URLs of earlier runs are unknown."""
        if not self.is_open:
            raise ConfigurationError(
                f"put_nowait before the journal {self._name} was read: use `await queue.put(...)`, or open the "
                "queue with `async with`"
            )

    @staticmethod
    def check(item: object, priority: float) -> None:
        """Check that an item and a priority can be kept.

        Raises:
            TypeError: JSON cannot hold the item, or changes it, for example a tuple to a list.
            ValueError: the priority is an integer that takes more than 64 bits.
        """
        if isinstance(priority, int) and not -_MAX_INTEGER <= priority < _MAX_INTEGER:
            raise ValueError(f"priority={priority!r:.100}: with a journal, an integer takes at most 64 bits")
        try:
            problem = "" if json.loads(_ENCODER.encode(item)) == item else "JSON returns another value for it"
        except (TypeError, ValueError, RecursionError) as error:
            problem = described(error)
        if problem:
            raise TypeError(
                f"item={reprlib.repr(item):.100}: with a journal, give None, a str, a number, a bool, or a list "
                f"or a dict with str as keys of such values ({problem})"
            )

    def ignores(self, url: str, *, by_worker: bool) -> bool:
        """Return whether an earlier run has put ``url``, so that this ``put`` is ignored.

        Args:
            url: the URL, as it was put.
            by_worker: whether the caller has taken a turn; it may then repeat a URL that this run has handed out.
        """
        if not self.seen.earlier:
            return False
        digest = _digest(url)
        return digest in self.seen.earlier and not (by_worker and digest in self._handed)

    def added(self, queued: QueuedUrl[Item], instead_of: QueuedUrl[Item] | None) -> None:
        """Record that a URL was queued; the URL takes over the row of ``instead_of``, if that is given."""
        number, url, trail, digest = queued.number, queued.url, queued.trail, _digest(queued.url)
        octets = digest.to_bytes(DIGEST_OCTETS)
        hops = json.dumps(trail.hops) if trail.hops else None
        if instead_of is not None:
            self._note(Change(MOVE, (number, url, hops, trail.attempt, instead_of.number), octets))
            return
        item = None if queued.item is None else _ENCODER.encode(queued.item)
        sitemap = None if trail.sitemap is None else _ENCODER.encode(trail.sitemap)
        values = (number, url, item, queued.priority, hops, trail.attempt, trail.depth, sitemap)
        self._note(Change(ADD, values, octets))
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self._note(Change(END, (kept,)))

    def handed_out(self, queued: QueuedUrl[Item]) -> None:
        """Record that a URL was handed out."""
        if self.is_resumed(queued):
            self._handed.add(_digest(queued.url))

    def is_resumed(self, queued: QueuedUrl[Item]) -> bool:
        """Return whether the URL is left from an earlier run and was not put again since."""
        return queued.number <= self._last

    def keep(self, queued: QueuedUrl[Item], *, as_failed: bool = False) -> None:
        """Keep the row of a URL although its turn ends: the next run repeats the URL, or may do so if it has failed."""
        self._kept[_digest(queued.url)] = queued.number
        if as_failed:
            self._note(Change(FAIL, (queued.number,)))

    def ended(self, queued: QueuedUrl[Item]) -> None:
        """Record that a URL is done, unless its row is kept."""
        if not self._kept or self._kept.get(_digest(queued.url)) != queued.number:
            self._note(Change(END, (queued.number,)))

    async def flush(self) -> None:
        """Wait until all changes are committed; raises StoreError."""
        noted = self._noted
        while self._written < noted:
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            await asyncio.sleep(0)  # until ``_write`` was called, with all changes of this step
            # A KeyboardInterrupt may have come in place of that call, and may come in place of the call of ``_wrote``.
            self._write()
            if self._writing is not None:
                await asyncio.wait([writing := self._writing])
                self._wrote(writing)

    async def aclose(self) -> None:
        """Write all changes, close the file, and free the lock."""
        async with self._reading:
            if self._closed:
                return
            try:
                await self.flush()
            except StoreError:
                pass  # the error was logged, and the queue raises it
            finally:
                self._closed = True
                await self._file.aclose()
                lock, self._lock = self._lock, None
                if lock is not None:
                    lock.close()

    def _note(self, change: Change) -> None:
        if self._failure is not None or self._closed:
            return  # no change is written after a failure or a close, so the next run repeats some URLs
        self._changes.append(change)
        self._noted += 1
        if self._writing is None and len(self._changes) == 1:
            asyncio.get_running_loop().call_soon(self._write)  # one write for all changes of this step of the loop

    def _write(self) -> None:
        """Begin to write the changes, unless a write is under way: its end begins the next one."""
        if self._writing is None and self._changes:
            self._writing, self._begun = self.commit(self._changes), self._noted
            self._changes = []
            self._writing.add_done_callback(self._wrote)

    def commit(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Write changes in one transaction; return a future that is done after the commit."""
        return self._file.begin_write(self._apply, changes)

    def _apply(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
        found, process = _owner(connection)
        if found != self._mark:
            raise StoreError(f"{process} has taken it over")
        for statement, group in itertools.groupby(changes, itemgetter(0)):
            connection.executemany(statement, [change.values for change in group])
        connection.executemany(_SEEN, [(change.digest,) for change in changes if change.digest is not None])

    def _wrote(self, writing: asyncio.Future[None]) -> None:
        if writing is not self._writing:
            return  # a flush was sooner
        error = asyncio.CancelledError("the write was cancelled") if writing.cancelled() else writing.exception()
        if error is not None:
            self._stop(error)
        else:
            self._written = self._begun
        self._writing = None
        self._write()

    def _stop(self, error: BaseException) -> None:
        """Stop writing, so that the file never has a later change without the earlier changes."""
        self._changes.clear()
        cause = str(error) if isinstance(error, StoreError) else described(error)
        self._failure = failure = StoreError(f"the journal {self._name} cannot be written: {cause}")
        failure.__cause__ = error
        LOGGER.error("%s; no more URLs are handed out, and a later run goes on", failure)
        self._fail(failure)


def _owner(connection: sqlite3.Connection) -> tuple[str, str]:
    """Return the mark of the last queue that opened the journal, and a description of its process."""
    mark, process = connection.execute("SELECT mark, process FROM journal_owner").fetchone() or ("", None)
    return mark, "another queue of this process" if process == os.getpid() else f"process {process}"


def _row(number: int, octets: bytes, item: bytes | None, priority: float, hops: bytes | None, *more: object) -> Row:
    """Return a row of ``_LEFT``; a URL that has failed has another first attempt.

    Raises:
        TypeError, ValueError, RecursionError: the values are damaged.
    """
    attempt, depth, sitemap = more
    url, past = octets.decode(), json.loads((hops or b"[]").decode())
    mark = json.loads(sitemap.decode()) if isinstance(sitemap, bytes) else None
    is_text = isinstance(past, list) and all(isinstance(text, str) for text in past)
    if not (is_text and isinstance(attempt, int) and isinstance(depth, int)):
        raise TypeError(f"url={url!r}, hops={past!r}, attempt={attempt!r}, depth={depth!r}")
    check_priority(priority)
    Origin.of(url)
    trail = Trail(tuple(past), attempt or 1, depth, None if mark is None else _mark(*mark))
    return number, url, None if item is None else json.loads(item.decode()), priority, trail


def _mark(listed_by: object, is_in_index: object, since_wall: object, is_guess: object) -> SitemapMark:
    are_bool = isinstance(is_in_index, bool) and isinstance(is_guess, bool)
    if not (isinstance(listed_by, str) and are_bool and isinstance(since_wall, float | None)):
        raise TypeError(f"sitemap={listed_by!r}, {is_in_index!r}, {since_wall!r}, {is_guess!r}")
    return SitemapMark(listed_by, bool(is_in_index), since_wall, bool(is_guess))


def _digest(url: str) -> int:
    return digest_of(normal_form(url))
