"""A connection to a politesse file, and the thread that serves its calls; see ``_sqlite_file``."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from politesse.errors import StoreError
from politesse.stores._sqlite_opening import Locked, OpenFile, Part, is_locked, is_lost, open_file, sqlite3, store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_LOCK_WAIT_S: Final = 0.05  # how long SQLite waits for a lock at a time
_MAX_TOGETHER: Final = 1_000  # calls in a transaction: other processes and its callers wait for its end
_PAUSE_S: Final = 0.005  # between two tries: not every lock makes SQLite wait


class SqliteCall(NamedTuple):
    """An operation, its argument, and the future that gets its result."""

    operation: Callable[[sqlite3.Connection, Any], Any]
    argument: Any
    future: Future[Any]


class SqliteWorker:
    """Serves calls, those that wait together in one transaction, in a thread that begins with the first call.

    Args:
        path: of the file.
        parts: the tables that the calls use.
        busy_timeout_s: how many seconds to wait for a lock that another connection holds.
        begin: the statement that begins a transaction.

    Attributes:
        inbox: the calls, and None at the end.
        thread: serves the calls, or None before the first call.
    """

    def __init__(self, path: Path, parts: Sequence[Part], busy_timeout_s: float, begin: str) -> None:
        self._path = path
        self._parts = parts
        self._busy_timeout_s = busy_timeout_s
        self._begin = begin
        self._file: OpenFile | None = None
        self.inbox: queue.SimpleQueue[SqliteCall | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()  # from here on a cancelled aclose() does not cancel it

    def submit(self, operation: Callable[[sqlite3.Connection, Any], Any], argument: object) -> Future[Any]:
        """Return the future result of an operation; raises StoreError if the system has no threads left."""
        if self.thread is None:
            thread = threading.Thread(target=self._run, name=f"politesse {self._path.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreError(f"{self._path} cannot be opened: {error}") from error
            self.thread = thread
        future: Future[Any] = Future()
        self.inbox.put(SqliteCall(operation, argument, future))
        return future

    async def joined(self) -> None:
        """Wait for the end of the thread, if it has begun."""
        if self.thread is not None:
            await asyncio.wrap_future(self._ended)
            self.thread.join()  # it has nothing left to do

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = [self.inbox.get()]
            taken += [self.inbox.get_nowait() for _ in range(min(self.inbox.qsize(), _MAX_TOGETHER))]
            is_open = None not in taken
            calls = [call for call in taken if call is not None and call.future.set_running_or_notify_cancel()]
            if calls:
                self._serve(calls)
            del taken, calls  # their bytes are not kept until the next call
        self._drop()
        self._ended.set_result(None)

    def _serve(self, calls: Sequence[SqliteCall]) -> None:
        """Run calls together; each of them alone if one of them fails, so that it fails by its own fault only."""
        try:
            results = self._transaction(calls)
        except BaseException as error:  # noqa: BLE001 - raised in the callers
            is_of_file = is_lost(error) or isinstance(error, StoreError)
            if is_lost(error):
                self._drop()
            if len(calls) > 1 and not is_of_file:
                for call in calls:
                    self._serve([call])
                return
            failure = store_error(self._path, error) if isinstance(error, sqlite3.Error) else error
            for call in calls:
                call.future.set_exception(failure)
        else:
            for call, result in zip(calls, results, strict=True):
                call.future.set_result(result)

    def _transaction(self, calls: Sequence[SqliteCall]) -> list[object]:
        """Run the operations of calls, and commit; try again while another connection holds a lock.

        Raises:
            StoreError: the file cannot be opened, or a lock is held for too long.
        """
        end_mono = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection = self._opened().connection
                try:
                    connection.execute(self._begin)
                    results = [operation(connection, argument) for operation, argument, _ in calls]
                    connection.execute("COMMIT")
                except BaseException as error:
                    self._roll_back(connection)
                    if is_locked(error):
                        raise Locked from error
                    raise
            except Locked as error:
                if time.monotonic() >= end_mono:
                    raise StoreError(
                        f"{self._path}: another connection holds its lock for longer than "
                        f"busy_timeout_s={self._busy_timeout_s:g}"
                    ) from error.__cause__
                time.sleep(_PAUSE_S)
            else:
                return results

    def _opened(self) -> OpenFile:
        """Return the open file; open it first."""
        if self._file is None:
            self._file = open_file(self._path, self._parts, busy_timeout_s=min(_LOCK_WAIT_S, self._busy_timeout_s))
        if not self._file.is_in_place():
            raise StoreError(f"{self._path} was deleted, moved or replaced while it was open, and is not used any more")
        return self._file

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:  # some errors have rolled back
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop()  # which rolls back, too

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
