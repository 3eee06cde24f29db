"""The thread that serves the calls of a politesse file; see ``_sqlite_file``."""

from __future__ import annotations

import asyncio
import itertools
import queue
import time
from typing import TYPE_CHECKING, Any, Final

from politesse.errors import StoreError
from politesse.stores._sqlite_opening import Locked, OpenFile, Part, is_locked, is_lost, open_file, sqlite3, store_error

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future as ThreadFuture
    from pathlib import Path

_MAX_TOGETHER: Final = 1_000  # calls in a transaction: other processes and its callers wait for its end
_LOCK_WAIT_S: Final = 0.05  # how long SQLite waits for a lock at a time; the other kind of calls waits meanwhile
_PAUSE_S: Final = 0.005  # between two tries: not every lock makes SQLite wait

ABANDONED: Final = object()


class SqliteCall:
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


_Outcome = tuple[SqliteCall, object, Exception | None]


class _Pending:
    """The pending reads or writes, in order."""

    def __init__(self, begin: str) -> None:
        self.begin: Final = begin
        self.calls: list[SqliteCall] = []
        self.locked_since: float | None = None

    def next(self) -> list[SqliteCall]:
        """Return the calls to try together."""
        if self.calls[0].alone:
            return self.calls[:1]
        return list(itertools.takewhile(lambda call: not call.alone, self.calls[:_MAX_TOGETHER]))


class SqliteWorker:
    """The work of the thread."""

    def __init__(
        self,
        path: Path,
        parts: Sequence[Part],
        busy_timeout_s: float,
        inbox: queue.SimpleQueue[SqliteCall | None],
        ended: ThreadFuture[None],
        door: threading.Lock,
    ) -> None:
        self._path = path
        self._parts = parts
        self._busy_timeout_s = busy_timeout_s
        self._inbox = inbox
        self._ended = ended
        self._door = door
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
            with self._door:
                self._ended.set_result(None)
            self._move_inbox(0.0)  # of calls that another thread made meanwhile
            calls = [*self._reads.calls, *self._writes.calls]
            _deliver((call, None, closed_error(self._path)) for call in calls)

    def _take(self) -> bool:
        """Take the waiting calls; return False if the file is being closed and no call is left."""
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
        taken += [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]  # no other thread takes any
        for call in taken:
            if call is None:
                self._closing = True
            else:
                (self._writes if call.writes else self._reads).calls.append(call)

    def _serve(self, pending: _Pending) -> None:
        calls = pending.next()
        taken = [(call, argument) for call in calls if (argument := call.argument) is not ABANDONED]
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

    def _transaction(self, begin: str, taken: Sequence[tuple[SqliteCall, object]]) -> list[_Outcome]:
        """Run the operations of calls, and commit.

        Raises:
            Locked: to be tried again.
            Exception: an operation or the transaction failed, and is rolled back.
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
        """Return the error for the callers, and whether the file failed."""
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


def closed_error(path: Path) -> StoreError:
    return StoreError(f"{path} is closed")
