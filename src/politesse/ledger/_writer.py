"""Writes rows into the files of a ledger, in a thread.

Theory of operation. A caller appends an item to a queue and goes on. The threads of an SqliteFile do the rest::

    idle         the first item starts the gathering
    gathering    more items come for 20 ms; the thread that reads the file waits, and holds no lock
    writing      one transaction makes rows of all items that wait, up to a limit; then again, until the queue is empty
    failed       the rows are kept, and written again after a second; the first failure in a row is reported

``flush`` and ``aclose`` write at once. If the queue is full, an item is dropped and counted; the count becomes a row of
the chain. Several processes may write to one ledger: each transaction holds SQLite's lock, and reads the end of the
chain first. If the end is a seal, the next file of the series begins.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from weakref import WeakMethod
from zlib import crc32

from politesse._base.text import described
from politesse._log import GATE
from politesse.errors import ConfigurationError, StoreError
from politesse.ledger import _rows as rows
from politesse.ledger._file import LEDGER, Chain, check_series, member, members
from politesse.stores._sqlite_file import SqliteFile
from politesse.verdict import AccessResult, Reason, Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from politesse.clock import Clock
    from politesse.ledger._options import LedgerOptions

Item: TypeAlias = "Verdict | rows.EndedTurn | rows.Snapshot"

_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_MAX_TOGETHER: Final = 1_000  # limits the rows of a transaction, because other processes wait for its end
_EACH: Final = 2**32


class _Written(NamedTuple):
    """The result of a transaction.

    Attributes:
        is_sealed: whether the file was sealed before, so that no row was written.
        dropped: how many dropped items the chain has counted.
        is_last: whether the ledger has been closed.
    """

    is_sealed: bool
    dropped: int = 0
    is_last: bool = False


class Writer:
    """Writes the rows of a ledger; see the module.

    Args:
        path: the absolute path of the first file.
        options: see LedgerOptions.
        clock: dates the rows that are no items.

    Attributes:
        report: called in a thread with the first failure in a row; or None.
        written: how many items have been written.
        dropped: how many items have been dropped.

    Raises:
        ConfigurationError: the last file of the series cannot be used.
    """

    def __init__(self, path: Path, options: LedgerOptions, clock: Clock) -> None:
        self._base, self._options, self._clock = path, options, clock
        self.report: Callable[[StoreError], None] | None = None
        self.written = self.dropped = 0
        self._queue: deque[Item] = deque()
        self._limit = options.max_queued_rows
        self._lock = threading.RLock()  # reentrant, because the garbage collector may end a turn at any moment
        self._pending: list[Item] = []  # taken from the queue, and not yet committed
        self._body_bytes = self._dropped_before = 0
        self._flight: Future[_Written] | None = None  # the transaction under way
        self._room = 0  # the limit while a write is due; 0 if idle
        self._is_closing = False
        self._failure: StoreError | None = None  # of the last transaction
        self._is_watching = self._has_told = self._has_opened = self._has_closed = False
        self._problem = ""  # why all items are dropped
        self._name, self._series, self._previous = token_hex(8), "", rows.START
        self._number = max(members(path), default=1)
        self._file = SqliteFile(member(path, self._number), [LEDGER])

    @property
    def queued(self) -> int:
        """How many items wait."""
        with self._lock:
            return len(self._queue) + len(self._pending)

    def record(self, item: Item) -> None:
        """Queue an item, or drop it if the queue is full. Any thread may call this; it never waits."""
        queue = self._queue
        if len(queue) < self._room:  # one test for the usual case, because each decision pays for it
            queue.append(item)
        elif len(queue) < self._limit:
            queue.append(item)
            self._write_soon(_GATHER_S)
        else:
            self._drop(1)

    def record_file(self, snapshot: rows.Snapshot) -> None:
        """Queue a snapshot, unless the bodies that wait are too large together."""
        with self._lock:
            fits = self._body_bytes + len(snapshot.body) <= self._options.max_queued_bytes
            self._body_bytes += len(snapshot.body) if fits else 0
        if fits:
            self.record(snapshot)
        else:
            self._drop(1)

    async def flush(self) -> None:
        """Wait until all earlier items are written; raises the StoreError of the attempt."""
        with self._lock:
            goal = self.written + self.queued
        while self.written < goal or self._problem:
            await self._attempt()

    async def aclose(self) -> None:
        """Write the items that wait, and close the file. Items that cannot be written are dropped."""
        self._limit = self._room = 0
        self._is_closing = True
        is_used = self._has_opened or self.queued > 0
        with suppress(StoreError):  # it was reported
            while is_used and not (self._has_closed or self._problem):
                await self._attempt()
        self._problem = self._problem or "is closed"
        self._drop(self._clear() + len(self._queue))
        self._queue.clear()
        await self._file.aclose()

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

    def _write_now(self) -> Future[_Written]:
        """Return the transaction under way, or begin one."""
        with self._lock:
            if self._problem:
                raise StoreError(f"the ledger {self._base} {self._problem}")
            if self._flight is None:
                self._room = self._limit
                self._flight = flight = self._file.submit(self._write, None)
                flight.add_done_callback(self._wrote)
                return flight
            return self._flight

    def _wrote(self, flight: Future[_Written]) -> None:
        """Note the end of a transaction, and go on."""
        error = flight.exception()
        if error is None and flight.result().is_sealed:
            try:
                self._file = SqliteFile(member(self._base, self._number + 1), [LEDGER])
                self._number += 1
            except ConfigurationError as refused:
                error = refused
        with self._lock:
            self._flight = None
            if error is None and not flight.result().is_sealed:
                self._failure, self._has_opened = None, True
                _, self._dropped_before, self._has_closed = flight.result()
                self.written += self._clear()
        if error is not None:
            self._failed(error)
        elif not self._has_closed:
            self._room = 0  # from here on, an item that comes starts the gathering
            if self._queue or self._pending:
                self._write_later(None)

    def _failed(self, error: BaseException) -> None:
        failure = error if isinstance(error, StoreError) else StoreError(f"{self._base}: {described(error)}")
        if self._failure is None and self.report is not None:
            self.report(failure)
        self._failure = failure
        if not self._is_closing:
            self._write_soon(_RETRY_S)

    def _write(self, connection: sqlite3.Connection, _: None) -> _Written:
        """Write the pending items, and the rows about this writer and about the file."""
        chain, wall, writer = Chain(connection), self._clock.wall(), {"writer": self._name}
        if chain.kind == rows.SEAL:
            self._series, self._previous = chain.series, chain.hash
            return _Written(is_sealed=True)
        if self._series:
            check_series(self._file.path, chain, self._series)
        if not chain.number:
            chain.begin(self._series or token_hex(16), self._number, self._previous, wall)
        with self._lock:
            while self._queue and len(self._pending) < _MAX_TOGETHER:
                self._pending.append(self._queue.popleft())
        if not self._has_opened:
            chain.add(rows.OPEN, {"wall": wall, **writer, "process": os.getpid()})
        for item in self._pending:
            self._add(chain, item)
        dropped, is_last = self.dropped, self._is_closing and not self._queue
        if dropped > self._dropped_before:
            chain.add(rows.DROPPED, {"wall": wall, **writer, "rows": dropped - self._dropped_before})
            self._tell("drops rows, because too many wait to be written: it counts them")
        if is_last:
            chain.add(rows.CLOSE, {"wall": wall, **writer, "dropped": dropped})
        if self._is_full(connection, chain, wall):
            chain.add(rows.SEAL, {"wall": wall, "next": member(self._base, self._number + 1).name})
        chain.write()
        return _Written(is_sealed=False, dropped=dropped, is_last=is_last)

    def _add(self, chain: Chain, item: Item) -> None:
        if isinstance(item, Verdict):
            match = item.match
            if not match.allowed or match.reason is Reason.POLICY_EXEMPT or self._samples(item.url):
                chain.add(rows.DECISION, rows.fields_of_decision(item))
        elif isinstance(item, rows.EndedTurn):
            if item.exempt or self._samples(item.verdict.url):
                chain.add(rows.TURN, rows.fields_of_turn(item))
        else:
            digest = chain.keep(item.body) if item.result is AccessResult.SUCCESSFUL else ""
            chain.add(rows.SNAPSHOT, rows.fields_of_snapshot(replace(item, digest=digest)))

    def _samples(self, url: str) -> bool:
        sample = self._options.sample
        return sample >= 1.0 or crc32(url.encode(errors="surrogatepass")) < sample * _EACH

    def _is_full(self, connection: sqlite3.Connection, chain: Chain, wall: float) -> bool:
        """Return whether the file is to be sealed."""
        [size] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
        return bool(size >= self._options.max_file_bytes or wall - chain.began_wall >= self._options.max_file_age_s)

    def _clear(self) -> int:
        """Drop the pending items; return how many these were."""
        items, self._pending = self._pending, []
        with self._lock:
            self._body_bytes -= sum(len(item.body) for item in items if isinstance(item, rows.Snapshot))
        return len(items)

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items
        if items and self._problem and not self._is_closing:
            self._tell(self._problem)

    def _tell(self, problem: str) -> None:
        if not self._has_told:
            self._has_told = True
            GATE.warning("The ledger %s %s", self._base, problem)

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
