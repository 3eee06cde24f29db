"""Work on a politesse file in a thread of its own: what waits is done together, in one transaction.

Theory of operation. A call puts an operation and its argument into the inbox and waits. The thread takes all calls that
wait, groups neighbours with the same operation, and runs each group within one transaction; so one commit serves them
all. Reads go before writes, in a transaction of their own: they see one state of the file, and never wait for the lock
that writes need. Results are handed over after the commit: what was acknowledged is in the file.

    a call fails            all of its transaction is rolled back, and each call is tried again in one of its own: a
                            call fails by its own fault only
    a lock is held          by another connection: the calls stay pending for ``busy_timeout_s``; meanwhile the thread
                            serves the other kind of calls
    the disk fails          or the file is damaged: the calls fail, and the file is opened again for the next ones
    the file is replaced    deleted or moved: all calls fail. It is not opened again: SQLite names its log after the
                            path, so two files of one name, both in use, would destroy each other
    a caller is cancelled   what did not begin is left out; what did is finished, and nobody is told
    the file is closed      calls made before are finished, later ones fail; the thread ends
    nobody closes it        the thread ends once the SqliteFile is collected, or with the process: it is a daemon

Acknowledged writes survive the end of the process, ``kill -9`` included: they are in the write-ahead log, in the hands
of the operating system. They are forced to the disk at checkpoints only (``synchronous=NORMAL``): a power failure may
lose the last ones, and leaves the file consistent.

Measured from 100 tasks at 100,000 keys (``python -m benchmarks stores``): a write takes 17 us of the processor, and a
read 13, against 36 and 41 with aiosqlite, which goes to its thread and back for each statement and commits each write.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
import time
import weakref
from concurrent.futures import Future as ThreadFuture
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse._checks import check_positive, wrong_type
from politesse.errors import ConfigurationError, StoreError
from politesse.stores._sqlite_errors import is_locked, is_lost, sqlite3, store_error
from politesse.stores._sqlite_opening import Locked, OpenFile, Part, check_file, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Part", "SqliteFile"]

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_MAX_TOGETHER: Final = 1_000  # calls of one transaction: other processes wait for its end, and so do its own callers
_LOCK_WAIT_S: Final = 0.05  # how long SQLite waits for a lock at a time; the other kind of calls waits meanwhile
_PAUSE_S: Final = 0.005  # between two tries: not every lock makes SQLite wait

_ABANDONED: Final = object()


class SqliteFile:
    """A politesse file, which is opened with the first call.

    >>> import asyncio, pathlib, tempfile
    >>> words = Part("words", (("CREATE TABLE words (word TEXT)",),))
    >>> def add(connection, given):
    ...     connection.executemany("INSERT INTO words VALUES (?)", [(word,) for word in given])
    ...     return given
    >>> async def use(folder):
    ...     file = SqliteFile(pathlib.Path(folder, "words.db"), [words])
    ...     print(await asyncio.gather(file.write(add, "polite"), file.write(add, "crawler")))
    ...     await file.aclose()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(use(folder))
    ['polite', 'crawler']

    An operation is a function of the connection and of the arguments of all calls that are served together, one or
    more; it returns a result for each, in order. It runs in the thread of the file, within a transaction that it
    neither begins nor ends, and may be run again after a rollback. Its sqlite3.Error is raised as a StoreError in the
    callers; any other exception as it is.

    Several files may be open at one path, in one process and in many. They may be of different parts.

    Args:
        path: of the file; relative to the current folder. It is created with mode 0600 if it is missing.
        parts: the tables that the calls use.
        busy_timeout_s: how many seconds to wait for a lock that another connection holds.

    Raises:
        ConfigurationError: the folder is missing; the file or its folder is read-only; the path is a symbolic link, or
            no regular file; the file is of another program, encrypted, or was written by a newer politesse.
    """

    def __init__(self, path: str | os.PathLike[str], parts: Sequence[Part], *, busy_timeout_s: float = 4.0) -> None:
        check_positive("busy_timeout_s", busy_timeout_s)
        self.path: Final = _absolute(path)
        self._parts = tuple(parts)
        self._busy_timeout_s = busy_timeout_s
        try:
            check_file(self.path, self._parts)
        except StoreError as error:
            raise ConfigurationError(str(error)) from error
        except Locked:
            pass  # it is checked again when it is opened
        self._inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended: ThreadFuture[None] = ThreadFuture()
        self._ended.set_running_or_notify_cancel()  # from here on a cancelled aclose() does not cancel it
        self._pid = os.getpid()
        self._closed = False

    async def read(
        self, operation: Callable[[sqlite3.Connection, Sequence[Argument]], Sequence[Result]], argument: Argument
    ) -> Result:
        """Return the result of an operation that changes nothing.

        Raises:
            StoreError: the file cannot be opened or read, or is closed.
        """
        result: Result = await self._call(_Call(operation, argument, writes=False))
        return result

    async def write(
        self, operation: Callable[[sqlite3.Connection, Sequence[Argument]], Sequence[Result]], argument: Argument
    ) -> Result:
        """Return the result of an operation, once what it wrote is committed.

        Raises:
            StoreError: the file cannot be opened or written, is locked for longer than ``busy_timeout_s``, or is
                closed. Nothing of this call was written.
        """
        result: Result = await self._call(_Call(operation, argument, writes=True))
        return result

    def begin_write(
        self, operation: Callable[[sqlite3.Connection, Sequence[Argument]], Sequence[Result]], argument: Argument
    ) -> asyncio.Future[Result]:
        """Return a future of what ``write`` returns or raises: no task has to live until then.

        Raises:
            StoreError: the file is closed.
        """
        return self._send(_Call(operation, argument, writes=True))

    async def aclose(self) -> None:
        """Finish the calls that wait, close the file and end its thread. Later calls raise StoreError."""
        if os.getpid() != self._pid:
            return  # the thread is in the other process
        if not self._closed:
            self._closed = True
            if self._thread is None:
                self._ended.set_result(None)
            self._inbox.put(None)
        await asyncio.wrap_future(self._ended)
        if self._thread is not None:
            self._thread.join()  # it has nothing left to do

    async def _call(self, call: _Call) -> Any:  # noqa: ANN401 - the result of any operation
        try:
            return await self._send(call)
        except asyncio.CancelledError:
            call.argument = _ABANDONED  # and its bytes are not kept while a disk hangs
            raise

    def _send(self, call: _Call) -> asyncio.Future[Any]:
        if self._closed or self._ended.done():
            raise _is_closed(self.path)
        if os.getpid() != self._pid:
            if self._thread is not None:
                raise StoreError(f"{self.path} was opened in process {self._pid}, before the fork: open it after")
            self._pid = os.getpid()
        if self._thread is None:
            self._start_thread()
        self._inbox.put(call)
        return call.future

    def _start_thread(self) -> None:
        worker = _Worker(self.path, self._parts, self._busy_timeout_s, self._inbox, self._ended)
        thread = threading.Thread(target=worker.run, name=f"politesse {self.path.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise StoreError(f"{self.path} cannot be opened: {error}") from error
        self._thread = thread
        # The thread does not refer to this object, so that it ends with it.
        weakref.finalize(self, self._inbox.put, None).atexit = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "unused" if self._thread is None else "open"
        return f"<SqliteFile {str(self.path)!r}: {state}, {self._inbox.qsize()} calls waiting>"


class _Call:
    """A call, which waits for its future."""

    __slots__ = ("alone", "argument", "future", "operation", "writes")

    def __init__(
        self, operation: Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]], argument: object, *, writes: bool
    ) -> None:
        self.operation = operation
        self.argument = argument
        self.writes = writes
        self.alone = False
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


_Outcome = tuple[_Call, object, Exception | None]


class _Pending:
    """The calls of one kind that the thread has taken, in order."""

    def __init__(self, begin: str) -> None:
        self.begin: Final = begin
        self.calls: list[_Call] = []
        self.locked_since: float | None = None

    def next(self) -> list[_Call]:
        """Return the calls to try together."""
        if self.calls[0].alone:
            return self.calls[:1]
        return list(itertools.takewhile(lambda call: not call.alone, self.calls[:_MAX_TOGETHER]))


class _Worker:
    """What runs in the thread."""

    def __init__(
        self,
        path: Path,
        parts: Sequence[Part],
        busy_timeout_s: float,
        inbox: queue.SimpleQueue[_Call | None],
        ended: ThreadFuture[None],
    ) -> None:
        self._path = path
        self._parts = parts
        self._busy_timeout_s = busy_timeout_s
        self._inbox = inbox
        self._ended = ended
        self._file: OpenFile | None = None
        self._reads = _Pending("BEGIN")
        self._writes = _Pending("BEGIN IMMEDIATE")  # a transaction that reads first could not always go on to write
        self._closing = False

    def run(self) -> None:
        """Serve calls until the file is closed."""
        try:
            while self._take():
                for pending in (self._reads, self._writes):
                    if pending.calls:
                        self._serve(pending)
        finally:
            self._drop()
            self._ended.set_result(None)
            self._move_inbox(0.0)  # of calls that another thread made meanwhile
            calls = [*self._reads.calls, *self._writes.calls]
            _deliver((call, None, _is_closed(self._path)) for call in calls)

    def _take(self) -> bool:
        """Take the calls that wait; return False once there are none and the file is being closed."""
        pending = (self._reads, self._writes)
        if any(kind.calls for kind in pending):
            locked = all(not kind.calls or kind.locked_since is not None for kind in pending)
            wait_s: float | None = _PAUSE_S if locked else 0.0
        elif self._closing:
            wait_s = 0.0
        else:
            wait_s = None
        self._move_inbox(wait_s)
        return not self._closing or any(kind.calls for kind in pending)

    def _move_inbox(self, wait_s: float | None) -> None:
        """Take all calls from the inbox; wait for a first one."""
        try:
            taken = [self._inbox.get(timeout=wait_s)]
        except queue.Empty:
            return
        taken += [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]  # nobody else takes any
        for call in taken:
            if call is None:
                self._closing = True
            else:
                (self._writes if call.writes else self._reads).calls.append(call)

    def _serve(self, pending: _Pending) -> None:
        calls = pending.next()
        taken = [(call, argument) for call in calls if (argument := call.argument) is not _ABANDONED]
        outcomes: list[_Outcome] = []
        try:
            if taken:
                outcomes = self._transaction(pending.begin, taken)
        except Locked as error:
            now = time.monotonic()
            pending.locked_since = pending.locked_since or now
            if now - pending.locked_since < self._busy_timeout_s:
                return
            held = StoreError(
                f"{self._path}: another connection holds its lock for longer than "
                f"busy_timeout_s={self._busy_timeout_s:g}"
            )
            held.__cause__ = error.__cause__
            outcomes = [(call, None, held) for call in calls]
        except Exception as error:  # noqa: BLE001 - raised in the callers
            failure, is_of_file = self._failure(error)
            if len(taken) > 1 and not is_of_file:
                for call in calls:
                    call.alone = True
                return
            outcomes = [(call, None, failure) for call in calls]
        pending.locked_since = None
        del pending.calls[: len(calls)]
        _deliver(outcomes)

    def _transaction(self, begin: str, taken: Sequence[tuple[_Call, object]]) -> list[_Outcome]:
        """Run the operations of calls, and commit.

        Raises:
            Locked: to be tried again.
            Exception: what an operation raised, or why the transaction failed; it is rolled back.
        """
        connection = self._opened().connection
        outcomes: list[_Outcome] = []
        try:
            connection.execute(begin)
            for operation, group in itertools.groupby(taken, lambda one: one[0].operation):
                calls, arguments = zip(*group, strict=True)
                results = operation(connection, arguments)
                outcomes += [(call, result, None) for call, result in zip(calls, results, strict=True)]
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection)
            if is_locked(error):
                raise Locked from error
            raise
        return outcomes

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

    def _failure(self, error: Exception) -> tuple[Exception, bool]:
        """Return what to raise in the callers, and whether it was the file that failed."""
        if not isinstance(error, sqlite3.Error):
            return error, isinstance(error, StoreError)  # of the opening
        if is_lost(error):
            self._drop()
        return store_error(self._path, error), is_lost(error)

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _deliver(outcomes: Iterable[_Outcome]) -> None:
    """Hand each outcome to its caller, in the event loop of the caller."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].future.get_loop(), []).append(outcome)
    for loop, its_outcomes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, its_outcomes)
        except RuntimeError:
            continue


def _settle(outcomes: Iterable[_Outcome]) -> None:
    for call, result, error in outcomes:
        if call.future.done():
            continue
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(error)


def _is_closed(path: Path) -> StoreError:
    return StoreError(f"{path} is closed")


def _absolute(path: object) -> Path:
    wanted = "the path of a file, as str or Path"
    if not isinstance(path, str | os.PathLike):
        raise wrong_type("path", path, wanted)
    text = os.fspath(path)
    if not isinstance(text, str):
        raise wrong_type("path", path, wanted)
    if not text or "\0" in text or text.startswith(":"):  # SQLite has names as :memory:, which are no files
        raise ConfigurationError(f"path={text!r:.200}: give {wanted}")
    return Path(os.path.abspath(text))  # noqa: PTH100 - unlike resolve(), it follows no link
