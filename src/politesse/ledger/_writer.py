"""Writes rows into the files of a ledger, in a thread.

Theory of operation. A caller appends an item to a queue and goes on. The thread takes the items that wait, makes rows
of them, and commits the rows in one transaction::

    the queue is empty      the thread sleeps; the next item wakes it
    an item came            the thread waits 20 ms for more, then writes all items; ``flush`` and ``stop`` cut the wait
    the queue is full       the item is dropped and counted; the count becomes a row of the chain
    a write fails           the rows are kept, and written again after a second; the first failure in a row is reported
    the file is sealed      by this or another process: the next file of the series begins
    a flush is committed    its caller gets the result, after all rows that were recorded before

Several processes may write to one ledger: each transaction holds SQLite's lock, and reads the end of the chain first.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakMethod
from zlib import crc32

from politesse._base.text import described
from politesse._log import GATE
from politesse.errors import StoreError
from politesse.ledger._file import LEDGER, Chain, check_series, member, members
from politesse.ledger._rows import (
    CLOSE,
    DECISION,
    DROPPED,
    OPEN,
    SEAL,
    SNAPSHOT,
    START,
    TURN,
    EndedTurn,
    Snapshot,
    content_of,
    content_of_decision,
    content_of_snapshot,
    content_of_turn,
)
from politesse.stores._sqlite_opening import Locked, OpenFile, is_lost, open_file, sqlite3, store_error
from politesse.verdict import AccessResult, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from politesse.clock import Clock
    from politesse.ledger._options import LedgerOptions

Item: TypeAlias = "Verdict | EndedTurn | Snapshot | Future[None]"

_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_LOCK_WAIT_S: Final = 4.0
_MAX_TOGETHER: Final = 1_000  # limits the rows of a transaction, because other processes wait for its end
_EACH: Final = 2**32


class Writer:
    """Writes the rows of a ledger; see the module.

    Args:
        path: the absolute path of the first file.
        options: see LedgerOptions.
        clock: dates the rows that are no items.

    Attributes:
        report: called in the thread with the first failure in a row; or None.
        written: how many items have been written.
        dropped: how many items have been dropped.
        ended: the future end of the thread.
        thread: the thread, or None before the first item.
    """

    def __init__(self, path: Path, options: LedgerOptions, clock: Clock) -> None:
        self._base = path
        self._options = options
        self._clock = clock
        self.report: Callable[[StoreError], None] | None = None
        self.written: int = 0
        self.dropped: int = 0
        self.ended: Future[None] = Future()
        self.thread: threading.Thread | None = None
        self._queue: deque[Item] = deque()
        self._limit = options.max_queued_rows
        self._body_bytes = 0
        self._lock = threading.RLock()  # reentrant, because the garbage collector may end a turn at any moment
        self._asleep = True
        self._bell, self._hurry = threading.Event(), threading.Event()
        self._ending = False
        self._pending: list[Item] = []  # taken from the queue, and not yet written
        self._failing = self._has_told = self._is_refused = False
        self._written_dropped = 0
        self._name = token_hex(8)
        self._has_opened = False
        self._file: OpenFile | None = None
        self._number = max(members(path), default=1)
        self._series, self._previous = "", START

    @property
    def queued(self) -> int:
        """How many items wait."""
        return len(self._queue) + len(self._pending)

    def record(self, item: Verdict | EndedTurn | Snapshot) -> None:
        """Queue an item, or drop it if the queue is full. Any thread may call this; it never waits."""
        if len(self._queue) < self._limit:
            self._queue.append(item)
            if self._asleep:
                self._wake()
        else:
            self._drop(1)

    def record_file(self, snapshot: Snapshot) -> None:
        """Queue a snapshot, unless the bodies that wait are too large together."""
        with self._lock:
            fits = self._body_bytes + len(snapshot.body) <= self._options.max_queued_bytes
            if fits:
                self._body_bytes += len(snapshot.body)
        if fits:
            self.record(snapshot)
        else:
            self._drop(1)

    def flush(self) -> Future[None]:
        """Return a future that ends when all earlier items have been written, or with the StoreError of the attempt."""
        flushed: Future[None] = Future()
        flushed.set_running_or_notify_cancel()  # from here on a cancelled waiter cannot cancel the future
        if not self._limit:
            flushed.set_exception(StoreError(f"the ledger {self._base} is closed, or was opened before a fork"))
        else:
            self._queue.append(flushed)
            self._wake()
            self._hurry.set()
        return flushed

    def stop(self) -> None:
        """Accept no more items. The thread writes the items that wait, closes the file and ends."""
        self._limit, self._ending = 0, True
        if self.thread is None:
            if not self.ended.done():
                self.ended.set_result(None)
        else:
            self._bell.set()
            self._hurry.set()

    def _wake(self) -> None:
        self._asleep = False
        with self._lock:
            if self.thread is None and self._limit:
                thread = threading.Thread(target=self._run, name=f"politesse {self._base.name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system has no threads left, or the interpreter ends
                    self._asleep = True
                    self._tell(f"is not written: {error}")
                    return
                self.thread = thread
                os.register_at_fork(after_in_child=partial(_refuse_in_child, WeakMethod(self._refuse)))
        self._bell.set()

    def _refuse(self) -> None:
        """In the child of a fork, which has no thread and must not use the connection, drop all items."""
        self._limit, self.thread, self._lock = 0, None, threading.RLock()
        self._queue.clear()
        self._is_refused = True

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items
        if self._is_refused:
            self._tell("was opened before a fork, so this process records nothing: make the gatekeeper after the fork")

    def _tell(self, problem: str) -> None:
        if not self._has_told:
            self._has_told = True
            GATE.warning("The ledger %s %s", self._base, problem)

    def _run(self) -> None:
        has_ended = False
        while not has_ended:
            self._asleep = True
            if not self._queue:
                self._bell.wait()
            self._asleep = False
            self._bell.clear()
            self._hurry.wait(_GATHER_S)
            self._hurry.clear()
            has_ended = self._drain()
        if self._file is not None:
            self._file.close()
        self.ended.set_result(None)

    def _drain(self) -> bool:
        """Write all items that wait; return whether the thread has to end. At the end, give up after a failure."""
        while True:
            is_ending = self._ending
            while self._queue and len(self._pending) < _MAX_TOGETHER:
                self._pending.append(self._queue.popleft())
            is_last = is_ending and not self._queue
            if not self._pending and not is_last:
                return False
            if self.dropped:
                self._tell("drops rows, because too many wait to be written: it counts them")
            try:
                self._write(is_last=is_last)
            except Exception as error:  # noqa: BLE001 - reported, and the rows are counted
                if self._gives_up(error, is_ending=is_ending):
                    return True
            else:
                self._failing, flushes = False, self._take_flushes()
                self.written += self._clear()
                for flush in flushes:
                    flush.set_result(None)
                if is_last:
                    return True

    def _gives_up(self, error: Exception, *, is_ending: bool) -> bool:
        """Wait after a failure, and return False; at the end of the thread, count the items as dropped."""
        if is_ending:
            self._pending += self._queue
        self._failed(error)
        if is_ending or not isinstance(error, StoreError | Locked | sqlite3.Error):
            self._drop(self._clear())  # such items cannot be written later either
        if not is_ending:
            self._hurry.wait(_RETRY_S)
            self._hurry.clear()
        return is_ending

    def _take_flushes(self) -> list[Future[None]]:
        """Take the flushes from the pending items."""
        flushes = [item for item in self._pending if isinstance(item, Future)]
        self._pending = [item for item in self._pending if not isinstance(item, Future)]
        return flushes

    def _clear(self) -> int:
        """Drop the pending items; return how many these were."""
        items, self._pending = self._pending, []
        with self._lock:
            self._body_bytes -= sum(len(item.body) for item in items if isinstance(item, Snapshot))
        return len(items)

    def _failed(self, error: Exception) -> None:
        """Roll back, and report the first failure in a row."""
        path = member(self._base, self._number)
        if self._file is not None:
            with suppress(sqlite3.Error):
                if self._file.connection.in_transaction:  # some errors have already rolled back
                    self._file.connection.execute("ROLLBACK")
            if is_lost(error):
                self._file.close()
                self._file = None
        if isinstance(error, sqlite3.Error):
            failure = store_error(path, error)
        elif isinstance(error, StoreError):
            failure = error
        else:
            why = "another connection holds its lock" if isinstance(error, Locked) else described(error)
            failure = StoreError(f"{path} cannot be written: {why}")
        for flush in self._take_flushes():
            flush.set_exception(failure)
        if not self._failing and self.report is not None:
            self.report(failure)
        self._failing = True

    def _write(self, *, is_last: bool) -> None:
        """Write the pending items in one transaction, and the rows about this writer and about the file."""
        connection, chain = self._begin()
        wall, dropped, writer = self._clock.wall(), self.dropped, {"writer": self._name}
        if not self._has_opened:
            chain.add(OPEN, content_of({"wall": wall, **writer, "process": os.getpid()}))
        for item in self._pending:
            self._add(chain, item)
        if dropped > self._written_dropped:
            chain.add(DROPPED, content_of({"wall": wall, **writer, "rows": dropped - self._written_dropped}))
        if is_last:
            chain.add(CLOSE, content_of({"wall": wall, **writer, "dropped": dropped}))
        if self._is_full(connection, chain, wall):
            chain.add(SEAL, content_of({"wall": wall, "next": member(self._base, self._number + 1).name}))
        chain.write()
        connection.execute("COMMIT")
        self._has_opened, self._written_dropped = True, dropped

    def _begin(self) -> tuple[sqlite3.Connection, Chain]:
        """Begin a transaction in the last file of the series, and return the end of its chain."""
        while True:
            path = member(self._base, self._number)
            if self._file is None:
                self._file = open_file(path, [LEDGER], busy_timeout_s=_LOCK_WAIT_S)
            if not self._file.is_in_place():
                raise StoreError(f"{path} was deleted, moved or replaced while it was open, and is not used any more")
            connection = self._file.connection
            connection.execute("BEGIN IMMEDIATE")
            chain = Chain(connection)
            if chain.kind != SEAL:
                break
            connection.execute("ROLLBACK")
            self._file.close()
            self._file, self._number = None, self._number + 1
            self._series, self._previous = chain.series, chain.hash
        if self._series:
            check_series(path, chain, self._series)
        if not chain.number:
            chain.begin(self._series or token_hex(16), self._number, self._previous, self._clock.wall())
        return connection, chain

    def _add(self, chain: Chain, item: Item) -> None:
        if isinstance(item, Verdict):
            match = item.match
            if not match.allowed or match.reason is Reason.POLICY_EXEMPT or self._samples(item.url):
                chain.add(DECISION, content_of_decision(item))
        elif isinstance(item, EndedTurn):
            if item.exempt or self._samples(item.verdict.url):
                chain.add(TURN, content_of_turn(item))
        elif isinstance(item, Snapshot):
            digest = chain.keep(item.body) if item.result is AccessResult.SUCCESSFUL else ""
            chain.add(SNAPSHOT, content_of_snapshot(replace(item, digest=digest)))

    def _samples(self, url: str) -> bool:
        sample = self._options.sample
        return sample >= 1.0 or crc32(url.encode(errors="surrogatepass")) < sample * _EACH

    def _is_full(self, connection: sqlite3.Connection, chain: Chain, wall: float) -> bool:
        """Return whether the file is to be sealed."""
        [size] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
        return bool(size >= self._options.max_file_bytes or wall - chain.began_wall >= self._options.max_file_age_s)


def _refuse_in_child(refuse: WeakMethod[Callable[[], None]]) -> None:
    method = refuse()
    if method is not None:
        method()
