"""Records the decisions, the turns and the files of a gatekeeper.

Theory of operation. A caller appends an item to a queue and goes on. The threads of an SqliteFile write the items::

    idle         the first item starts the gathering
    gathering    more items come for 20 ms; the thread that reads the file waits, and holds no lock
    writing      one transaction makes rows of all items that wait, up to a limit; then again, until the queue is empty
    failed       the rows are kept, and written again after a second; the first of consecutive failures is reported

``flush`` and ``aclose`` do not wait for more items, but write at once. If the queue is full, an item is dropped and
counted; the count becomes a row of the chain. Several processes may write to one ledger: each transaction holds
SQLite's lock, and reads the end of the chain first. If the end is a seal, the next file of the series begins. A process
that is killed at that moment may leave the next file empty. A later process leaves it out, and so begins with the seal
in the previous file.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakMethod
from zlib import crc32

from politesse._base.checks import check_ranges, check_types, checked_names
from politesse._base.text import described
from politesse._log import GATE
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError, StoreError
from politesse.ledger._file import (
    CLOSE,
    DROPPED,
    LEDGER,
    OPEN,
    SEAL,
    START,
    Chain,
    Record,
    RecordedNote,
    RecordedTurn,
    Snapshot,
    decision_of,
    member,
    members,
    turn_of,
)
from politesse.origin import Origin
from politesse.stores._sqlite_file import SqliteFile, absolute
from politesse.verdict import Reason, Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from politesse.verdict import Source

    Commit: TypeAlias = Callable[[], None]
    """Notes a transaction in the ledger, after its commit."""

_HEADERS: Final = (
    *("age", "cache-control", "content-type", "content-usage", "date", "etag", "expires", "last-modified"),
    "retry-after",
)
_MAX_HEADER: Final = 1_000
_MAX_BODIES: Final = 64 * 1024 * 1024  # how many bytes of files may wait
_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_MAX_TOGETHER: Final = 1_000  # limits the rows of a transaction, because other processes wait for its end
_EACH: Final = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Options of a ledger.

    >>> LedgerOptions(sample=0.01, files=["/llms.txt"]).max_file_bytes
    1073741824

    Attributes:
        sample: the share of the URLs whose allowed decisions and turns are recorded, 0 to 1. Denials and exemptions are
            always recorded. A checksum of the URL decides, so that the ledger has both the decision and the turn for a
            URL, or neither.
        files: the paths of files to record beside robots.txt, such as ``/llms.txt``. The gate requests each of them
            like a page, when it gets the robots.txt of an origin, and at most once a day. Files that the gate needs
            itself, such as tdmrep.json, are always recorded.
        max_queued_rows: how many rows may wait to be written; further rows are dropped and counted. A file is also
            dropped and counted if the waiting files would exceed 64 MiB.
        max_file_bytes: the size in bytes at which a file of the ledger is sealed, and the next file begins.
        max_file_age_s: the age in seconds at which a file of the ledger is sealed; infinite by default.

    Raises:
        ConfigurationError: a number is out of its range, or a path does not begin with ``/``.
    """

    sample: float = 1.0
    files: tuple[str, ...] | list[str] = ()
    max_queued_rows: int = 10_000
    max_file_bytes: int = 1024 * 1024 * 1024
    max_file_age_s: float = inf

    def __post_init__(self) -> None:
        ranges = {"sample": (0.0, 1.0), "max_queued_rows": (1, inf), "max_file_bytes": (1, inf)}
        check_ranges(self, {**ranges, "max_file_age_s": (1.0, inf)})
        for path in checked_names("files", self.files):
            if not path.startswith("/"):
                raise ConfigurationError(f"files={path!r:.100}: give paths, as '/llms.txt'")


class Ledger:
    """A record of decisions, turns and files; see the module ``politesse.ledger``. A gatekeeper writes and closes it.

    >>> import asyncio, pathlib, tempfile
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def crawl(ledger):
    ...     async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher(), ledger=ledger) as gate:
    ...         await gate.check("https://example.com/")
    ...         await ledger.flush()
    ...         return ledger.written, ledger.queued, ledger.dropped
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(crawl(Ledger(pathlib.Path(folder, "ledger.db"))))
    (2, 0, 0)

    The constructor checks an existing file. The first row creates the file, readable for its owner only. As for a
    SqliteStore, the file must be on a disk of this machine, and a power failure may lose the last rows. Several
    gatekeepers and processes may write to one path, each with a Ledger of its own. A ledger that was used before a fork
    records nothing in the child.

    Args:
        path: the path of the first file, in a folder that exists.
        options: see LedgerOptions.
        clock: its wall clock dates openings, seals and closes.

    Attributes:
        path: the absolute path of the first file.
        options: see LedgerOptions.
        report: called with the error, in a thread of the ledger, when writing begins to fail; set by the gatekeeper.
        written: how many decisions, turns and files have been written, or were left out because of ``sample``.
        dropped: how many items were dropped, because too many waited, or they could not be written before the close.

    Raises:
        ConfigurationError: the file cannot be used: it is not a ledger, it is read-only, a newer politesse wrote it, or
            its folder is missing.
    """

    def __init__(
        self, path: str | os.PathLike[str], options: LedgerOptions | None = None, *, clock: Clock | None = None
    ) -> None:
        check_types({"options": (options, LedgerOptions)})
        self.options: Final = options or LedgerOptions()
        try:
            self.path: Final = absolute(path)
            found = members(self.path)
            self._number = max(found, default=1)
            self._file = SqliteFile(member(self.path, self._number), [LEDGER])
        except ConfigurationError as error:
            raise type(error)(f"ledger: {error}") from error
        except StoreError as error:
            raise ConfigurationError(f"ledger: {error}") from error
        if 1 not in found and self.path.exists():
            raise ConfigurationError(f"ledger: {self.path} continues another file: give the first file of the ledger")
        self.report: Callable[[StoreError], None] | None = None
        self.written: int = 0
        self.dropped: int = 0
        self._clock = clock or SystemClock()
        self._queue: deque[Verdict | Record] = deque()
        self._limit = self.options.max_queued_rows
        self._room = 0  # the limit of the queue while a write is scheduled, otherwise 0
        self._lock = threading.RLock()  # reentrant, because the garbage collector may end a turn at any moment
        # the items that were taken from the queue, and are not yet committed
        self._pending: list[Verdict | Record] = []
        self._body_bytes = 0  # the size of the files that wait
        self._flight: Future[Commit] | None = None  # the transaction under way
        self._failure: StoreError | None = None  # the failure of the last transaction
        self._problem = ""  # the reason why all items are dropped
        self._dropped_before = 0  # how many dropped items the chain has counted
        self._is_watching = self._is_closing = self._has_told = self._has_opened = self._has_closed = False
        self._name = token_hex(8)
        # the hash from which the file continues: known of the first file, and after the move from the previous file
        self._previous = START if self._number == 1 else None

    @property
    def queued(self) -> int:
        """How many decisions, turns and files wait to be written."""
        with self._lock:
            return len(self._queue) + len(self._pending)

    def record(self, item: Verdict | Record) -> None:
        """Record a verdict; never waits, and any thread may call it."""
        queue = self._queue
        if len(queue) < self._room:  # called for each decision; usually this is the only comparison
            queue.append(item)
        elif len(queue) < self._limit:
            queue.append(item)
            self._write_soon(_GATHER_S)
        else:
            self._drop(1)

    def record_file(self, source: Source, body: bytes, headers: Mapping[str, str], wall: float) -> None:
        """Record a copy of a file that the gate begins to use, or that the file is missing; never waits."""
        with self._lock:
            if self._body_bytes + len(body) > _MAX_BODIES or len(self._queue) >= self._limit:
                self._drop(1)
                return
            self._body_bytes += len(body)
        relevant = {name: value[:_MAX_HEADER] for name in _HEADERS if (value := headers.get(name))}
        facts = source.result, source.status, source.final_url, source.fetched_wall
        url = source.robots_url
        self.record(Snapshot(Origin.of(url), url, *facts, "", body, relevant, source.fault, wall))

    def record_turn(self, verdict: Verdict, started_wall: float, ended_wall: float, status: int | None) -> None:
        """Record a turn that has ended; never waits."""
        self.record(turn_of(verdict, started_wall, ended_wall, status))

    def note(self, text: str, wall: float) -> None:
        """Record a note of this Unix time; never waits."""
        self.record(RecordedNote(text, wall))

    async def flush(self) -> None:
        """Wait until all rows that were recorded before are in the file; they then survive even ``kill -9``.

        Raises:
            StoreError: the ledger is closed, or the rows cannot be written now; they are written later if possible.
        """
        with self._lock:
            goal = self.written + self.queued
        while self.written < goal or self._problem:
            await self._attempt()

    async def aclose(self) -> None:
        """Write the rows that wait, and close the file. Rows that cannot be written now are reported and counted."""
        self._limit = self._room = 0
        self._is_closing = True
        is_used = self._has_opened or self.queued > 0
        with suppress(StoreError):  # the error was reported
            while is_used and not (self._has_closed or self._problem):
                await self._attempt()
        self._problem = self._problem or "is closed"
        self._drop(self.queued)
        self._queue.clear()
        self._pending.clear()
        await self._file.aclose()

    def __repr__(self) -> str:
        return f"<Ledger {str(self.path)!r}: written={self.written}, queued={self.queued}, dropped={self.dropped}>"

    async def _attempt(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._write_now()))
        if self._failure is not None:
            raise self._failure

    def _write_soon(self, delay_s: float) -> None:
        self._room = self._limit
        if not self._is_watching:
            self._is_watching = True
            os.register_at_fork(after_in_child=partial(_refuse_in_child, WeakMethod(self._refuse)))
        try:
            waiting = self._file.submit(_pause, delay_s, writes=False)
        except StoreError as error:  # the system has no threads left
            self._refuse(f"records nothing: {error}")
        else:
            waiting.add_done_callback(self._write_later)

    def _write_later(self, _: object) -> None:
        if not self._is_closing:
            with suppress(StoreError):  # another thread is just closing the ledger
                self._write_now()

    def _write_now(self) -> Future[Commit]:
        """Return the transaction under way, or begin one."""
        with self._lock:
            if self._problem:
                raise StoreError(f"the ledger {self.path} {self._problem}")
            if self._flight is None:
                self._room = self._limit
                self._flight = flight = self._file.submit(self._write, None)
                flight.add_done_callback(self._wrote)
                return flight
            return self._flight

    def _wrote(self, flight: Future[Commit]) -> None:
        """Record the result of a transaction, and schedule the next transaction if items wait."""
        try:
            with self._lock:
                self._flight = None
                flight.result()()
        except BaseException as error:  # noqa: BLE001 - reported
            failure = error if isinstance(error, StoreError) else StoreError(f"{self.path}: {described(error)}")
            if self._failure is None and self.report is not None:
                self.report(failure)
            self._failure = failure
            if not self._is_closing:
                self._write_soon(_RETRY_S)
            return
        if not self._has_closed:
            self._room = 0  # so the next item schedules a write
            if self._queue or self._pending:
                self._write_later(None)

    def _write(self, connection: sqlite3.Connection, _: None) -> Commit:
        """Write the pending items, and the rows about this writer and this file; return the work after the commit."""
        chain, wall, writer = Chain(connection), self._clock.wall(), {"writer": self._name}
        self._continue(chain, wall)
        if chain.kind == SEAL:
            return partial(self._move, chain.hash)
        with self._lock:
            while self._queue and len(self._pending) < _MAX_TOGETHER:
                self._pending.append(self._queue.popleft())
        if not self._has_opened:
            chain.add(OPEN, {"wall": wall, **writer, "process": os.getpid()})
        for item in self._pending:
            if self._is_kept(item):
                chain.add_record(decision_of(item) if isinstance(item, Verdict) else item)
        dropped, is_last = self.dropped, self._is_closing and not self._queue
        if dropped > self._dropped_before:
            chain.add(DROPPED, {"wall": wall, **writer, "rows": dropped - self._dropped_before})
            self._tell("drops rows, because too many wait to be written: it counts them")
        if is_last:
            chain.add(CLOSE, {"wall": wall, **writer, "dropped": dropped})
        [size] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
        if size >= self.options.max_file_bytes or wall - chain.began_wall >= self.options.max_file_age_s:
            chain.add(SEAL, {"wall": wall, "next": member(self.path, self._number + 1).name})
        chain.write()
        return partial(self._commit, dropped, is_last=is_last)

    def _continue(self, chain: Chain, wall: float) -> None:
        """Begin an empty file; raises StoreError for the file of another ledger."""
        if chain.previous is None:
            chain.begin(self._previous or START, wall)
        elif self._previous not in {None, chain.previous} or (chain.previous == START and self._number > 1):
            path = self._file.path
            raise StoreError(f"{path} belongs to another ledger, and is left as it is: move it, or give another path")

    def _move(self, previous: bytes) -> None:
        """Go on with the next file."""
        self._file = SqliteFile(member(self.path, self._number + 1), [LEDGER])
        self._number, self._previous = self._number + 1, previous

    def _commit(self, dropped: int, *, is_last: bool) -> None:
        self._failure, self._has_opened, self._has_closed = None, True, is_last
        self._dropped_before = dropped
        self.written += len(self._pending)
        self._body_bytes -= sum([len(item.body) for item in self._pending if isinstance(item, Snapshot)])
        self._pending.clear()

    def _is_kept(self, item: Verdict | Record) -> bool:
        """Return whether the sample includes an item."""
        if isinstance(item, RecordedNote):
            return True
        if isinstance(item, Verdict):
            is_sampled = item.match.allowed and item.match.reason is not Reason.POLICY_EXEMPT
        else:
            is_sampled = isinstance(item, RecordedTurn) and not item.exempt
        sample = self.options.sample
        return not is_sampled or sample >= 1.0 or crc32(item.url.encode(errors="surrogatepass")) < sample * _EACH

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items
        if items and self._problem and not self._is_closing:
            self._tell(self._problem)

    def _tell(self, problem: str) -> None:
        if not self._has_told:
            self._has_told = True
            GATE.warning("The ledger %s %s", self.path, problem)

    def _refuse(self, problem: str) -> None:
        """Drop all items from now on."""
        self._limit = self._room = 0
        self._problem, self._lock = problem, threading.RLock()
        self._queue.clear()


def _pause(_: sqlite3.Connection, seconds: float) -> None:
    time.sleep(seconds)


def _refuse_in_child(refuse: WeakMethod[Callable[[str], None]]) -> None:
    method = refuse()
    if method is not None:
        method("was opened before a fork, so this process records nothing: make the gatekeeper after the fork")
