"""Reads and writes an SQLite file of politesse in two threads, one for reading and one for writing.

Theory of operation. A call puts an operation and its argument into the inbox of a thread, and waits. The thread takes
all waiting calls, and runs them within one transaction, so that one commit serves them all. Each thread has its own
connection. So a read sees one state of the file, and never waits for the lock that writes need. Callers get their
results after the commit, so acknowledged writes are in the file.

    a call fails            the transaction is rolled back, and each call is tried again in a separate transaction, so
                            that it fails only by its own fault
    a lock is held          the calls are tried again for up to ``busy_timeout_s``
    the disk fails          the calls fail, also for a damaged file; the file is opened again for the next calls
    the file is replaced    all calls fail, also for a deleted or moved file. The file is not opened again, because
                            SQLite names its log after the path, so two open files of one name would destroy each other
    a caller is cancelled   a call that has not begun is left out; other calls are finished
    the file is closed      earlier calls are finished, later calls fail; the threads end
    the file is not closed  the threads end when the SqliteFile is garbage collected, or with the process

Acknowledged writes survive the end of the process, even by ``kill -9``: they are in the write-ahead log, which the
operating system holds. The log is forced to the disk only at checkpoints (``synchronous=NORMAL``), so a power failure
may lose the last writes, but leaves the file consistent.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from politesse._base.checks import check_positive, wrong_type
from politesse.errors import ConfigurationError, StoreError
from politesse.stores._sqlite_opening import (
    Locked,
    OpenFile,
    Part,
    check_file,
    is_locked,
    is_lost,
    open_file,
    open_for_reading,
    sqlite3,
    store_error,
)

__all__ = ["Part", "ReadOnlyFile", "SqliteFile"]

_LOCK_WAIT_S: Final = 0.05  # how long SQLite waits for a lock in one attempt
_PAUSE_S: Final = 0.005  # the pause between two attempts, because SQLite does not wait for every lock
_MAX_TOGETHER: Final = 1_000  # limits the calls of a transaction, because other processes wait for its end

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class SqliteFile:
    """An SQLite file of politesse, which the first call opens.

    >>> import asyncio, pathlib, tempfile
    >>> words = Part("words", ("CREATE TABLE words (word TEXT)",))
    >>> def add(connection, word):
    ...     connection.execute("INSERT INTO words VALUES (?)", (word,))
    ...     return word
    >>> async def use(folder):
    ...     file = SqliteFile(pathlib.Path(folder, "words.db"), [words])
    ...     print(await asyncio.gather(file.write(add, "polite"), file.write(add, "crawler")))
    ...     await file.aclose()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(use(folder))
    ['polite', 'crawler']

    An operation is a function of the connection and of the argument of a call. The operation runs in a thread of the
    file, within a transaction that it must neither begin nor end, and may run again after a rollback. The caller gets a
    sqlite3.Error of the operation as a StoreError, and any other exception unchanged.

    Several SqliteFiles may be open at one path, in one process or in several, also with different parts.

    Args:
        path: the path of the file, relative to the current folder. A missing file is created with mode 0600.
        parts: the tables that the calls use.
        busy_timeout_s: how many seconds to wait for a lock that another connection holds.

    Raises:
        ConfigurationError: the folder is missing; the file or its folder is read-only; the path is a symbolic link, or
            not a regular file; the file is encrypted; or another program or a newer politesse wrote it.
    """

    _open = staticmethod(open_file)

    def __init__(self, path: str | os.PathLike[str], parts: Sequence[Part], *, busy_timeout_s: float = 4.0) -> None:
        check_positive("busy_timeout_s", busy_timeout_s)
        self.path: Final = absolute(path)
        try:
            check_file(self.path, parts)
        except StoreError as error:
            raise ConfigurationError(str(error)) from error
        except Locked:
            pass  # the file is checked again when it is opened
        closing = threading.Lock()
        opening = partial(self._open, self.path, parts, busy_timeout_s=min(_LOCK_WAIT_S, busy_timeout_s))
        self._reader = _Worker(self.path, opening, busy_timeout_s, "BEGIN", closing)
        # BEGIN IMMEDIATE, because a transaction that begins with a read cannot always get the lock for writing later.
        self._writer = _Worker(self.path, opening, busy_timeout_s, "BEGIN IMMEDIATE", closing)
        for worker in (self._reader, self._writer):
            # The thread has no reference to this object, so the collection of the object can end the thread.
            weakref.finalize(self, worker.inbox.put, None).atexit = False
        self._door = threading.Lock()  # a lock, so that no call is submitted after the close
        self._pid = os.getpid()
        self._closed = False

    async def read(self, operation: Callable[[sqlite3.Connection, Argument], Result], argument: Argument) -> Result:
        """Return the result of an operation that does not change the file.

        Raises:
            StoreError: the file cannot be opened or read, or is closed.
        """
        return await asyncio.wrap_future(self.submit(operation, argument, writes=False))

    async def write(self, operation: Callable[[sqlite3.Connection, Argument], Result], argument: Argument) -> Result:
        """Return the result of an operation after the commit.

        Raises:
            StoreError: the file cannot be opened or written, is locked for longer than ``busy_timeout_s``, or is
                closed. The call has written no data.
        """
        return await self.begin_write(operation, argument)

    def begin_write(
        self, operation: Callable[[sqlite3.Connection, Argument], Result], argument: Argument
    ) -> asyncio.Future[Result]:
        """Do the same as ``write``, but return a future, so that no task has to wait.

        Raises:
            StoreError: the file is closed.
        """
        return asyncio.wrap_future(self.submit(operation, argument))

    def submit(
        self, operation: Callable[[sqlite3.Connection, Argument], Result], argument: Argument, *, writes: bool = True
    ) -> Future[Result]:
        """Do the same as ``write``, or as ``read`` if ``writes`` is false; works in any thread, without an event loop.

        Raises:
            StoreError: the file is closed.
        """
        if os.getpid() != self._pid:
            if self._used:
                raise StoreError(f"{self.path} was opened in process {self._pid}, before the fork: open it after")
            self._pid, self._door = os.getpid(), threading.Lock()  # another thread may have held the lock at the fork
        with self._door:
            if self._closed:
                raise StoreError(f"{self.path} is closed")
            return (self._writer if writes else self._reader).submit(operation, argument)

    async def aclose(self) -> None:
        """Finish the waiting calls, close the file and end its threads. Later calls raise StoreError."""
        if os.getpid() != self._pid:
            return  # after a fork, only the parent has the threads
        with self._door:
            if not self._closed:
                self._closed = True
                for worker in self._used:
                    worker.inbox.put(None)
        for worker in self._used:
            await worker.joined()

    @property
    def _used(self) -> list[_Worker]:
        return [worker for worker in (self._reader, self._writer) if worker.thread is not None]

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._used else "unused"
        return f"<SqliteFile {str(self.path)!r}: {state}>"


class ReadOnlyFile(SqliteFile):
    """An existing SQLite file of politesse, which must have the tables of all parts. No call can change it."""

    _open = staticmethod(open_for_reading)


class _Call(NamedTuple):
    """An operation, its argument, and the future that gets its result."""

    operation: Callable[[sqlite3.Connection, Any], Any]
    argument: Any
    future: Future[Any]


class _Worker:
    """Serves calls in a thread that begins with the first call; waiting calls share a transaction.

    Args:
        path: the path of the file.
        opening: opens the file.
        busy_timeout_s: how many seconds to wait for a lock that another connection holds.
        begin: the statement that begins a transaction.
        closing: lets one connection close at a time. If two connections close at once, neither is the last, and SQLite
            does not delete its log.

    Attributes:
        inbox: the calls, and None at the end.
        thread: serves the calls, or None before the first call.
    """

    def __init__(
        self, path: Path, opening: Callable[[], OpenFile], busy_timeout_s: float, begin: str, closing: threading.Lock
    ) -> None:
        self._path = path
        self._opening = opening
        self._busy_timeout_s = busy_timeout_s
        self._begin = begin
        self._closing = closing
        self._file: OpenFile | None = None
        self.inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()  # a cancelled aclose() cannot cancel the future from here on

    def submit(self, operation: Callable[[sqlite3.Connection, Any], Any], argument: object) -> Future[Any]:
        """Return a future for the result of an operation; raises StoreError if the system has no threads left."""
        if self.thread is None:
            thread = threading.Thread(target=self._run, name=f"politesse {self._path.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreError(f"{self._path} cannot be opened: {error}") from error
            self.thread = thread
        future: Future[Any] = Future()
        self.inbox.put(_Call(operation, argument, future))
        return future

    async def joined(self) -> None:
        """Wait for the end of the thread, if there is a thread."""
        if self.thread is not None:
            await asyncio.wrap_future(self._ended)
            self.thread.join()  # the thread has no more work, so this is quick

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = [self.inbox.get()]
            taken += [self.inbox.get_nowait() for _ in range(min(self.inbox.qsize(), _MAX_TOGETHER))]
            is_open = None not in taken
            calls = [call for call in taken if call is not None and call.future.set_running_or_notify_cancel()]
            if calls:
                self._serve(calls)
            del taken, calls  # frees the arguments of the calls before the wait for the next call
        with self._closing:
            self._drop()
        self._ended.set_result(None)

    def _serve(self, calls: Sequence[_Call]) -> None:
        """Run calls together; if a call fails, run each call alone, so that it fails only by its own fault."""
        try:
            results = self._transaction(calls)
        except BaseException as error:  # noqa: BLE001 - raised in the callers
            is_of_file = is_lost(error) or isinstance(error, Locked)
            if is_lost(error):
                self._drop()
            if len(calls) > 1 and not is_of_file:
                for call in calls:
                    self._serve([call])
                return
            failure = store_error(self._path, error) if isinstance(error, sqlite3.Error) else error
            if isinstance(error, Locked):
                failure = StoreError(
                    f"{self._path}: another connection holds its lock for longer than "
                    f"busy_timeout_s={self._busy_timeout_s:g}"
                )
                failure.__cause__ = error.__cause__
            for call in calls:
                call.future.set_exception(failure)
        else:
            for call, result in zip(calls, results, strict=True):
                call.future.set_result(result)

    def _transaction(self, calls: Sequence[_Call]) -> list[object]:
        """Run the operations of calls, and commit; try again while another connection holds a lock.

        Raises:
            StoreError: the file cannot be opened.
            Locked: a lock is held for too long.
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
            except Locked:
                if time.monotonic() >= end_mono:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return results

    def _opened(self) -> OpenFile:
        """Return the open file; open it first."""
        if self._file is None:
            self._file = self._opening()
        if not self._file.is_in_place():
            raise StoreError(f"{self._path} was deleted, moved or replaced while it was open, and is not used any more")
        return self._file

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:  # some errors have already rolled it back
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop()  # closing rolls back, too

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def absolute(path: object) -> Path:
    """Return an absolute path; raises ConfigurationError if it is not the path of a file."""
    wanted = "the path of a file, as str or Path"
    if not isinstance(path, str | os.PathLike):
        raise wrong_type("path", path, wanted)
    text = os.fspath(path)
    if not isinstance(text, str):
        raise wrong_type("path", path, wanted)
    if not text or "\0" in text or text.startswith(":"):  # :memory:, for example, is not a file
        raise ConfigurationError(f"path={text!r:.200}: give {wanted}")
    return Path(os.path.abspath(text))  # noqa: PTH100 - unlike resolve(), it follows no link
