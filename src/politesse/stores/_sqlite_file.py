"""Opens, reads and writes an SQLite file of politesse, in two threads: one for reading and one for writing.

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

A file has one or several parts, each with its tables, for example the records of a store and the journal of a queue.
The table ``parts`` has the name and version of each part; ``user_version`` is the version of the whole file. The
``application_id`` identifies a file of politesse. Other files are refused before a writing connection is opened.

Precautions:

- A new file is created by ``mknod``, with mode 0600 and never through a symbolic link. ``open`` is not used:
  POSIX drops all locks of a process on a file when the process closes any descriptor of it, so only SQLite opens the
  file. SQLite gives ``-wal`` and ``-shm`` the mode of the file, and follows no link to them.
- SQLite follows a link to the database. So this module checks the path before SQLite opens it, and then checks which
  file SQLite has opened.
- SQLite keeps its locks in the memory of the process, and a forked child inherits that memory but not the locks. A
  connection that the child opens to the same file would take no locks. So the child gets an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from politesse._base.checks import check_positive, wrong_type
from politesse.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


try:
    import sqlite3 as sqlite3  # noqa: PLC0414 - the worker uses it too
except ImportError:
    sqlite3 = None  # type: ignore[assignment] # ``_errors_of`` then raises ImportError

_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _PROTOCOL = 5, 6, 8, 10, 11, 13, 14, 15
_TOOBIG, _NOTADB = 18, 26
_MEANINGS: Final = {
    _BUSY: "another connection holds its lock",
    _LOCKED: "another connection holds its lock",
    _FULL: "the disk is full; what was acknowledged is kept",
    _READONLY: "the file, its folder or its disk is read-only, or it was moved",
    _CANTOPEN: "the file, or the files -wal and -shm beside it, cannot be opened: permissions, or a link",
    _CORRUPT: "the file is damaged",
    _NOTADB: "no politesse file: it is encrypted, damaged or of another program, and is left as it is",
    _IOERR: "the disk failed",
    _TOOBIG: "the record is larger than SQLite can keep",
}
_LOST: Final = frozenset({_CANTOPEN, _CORRUPT, _IOERR, _NOTADB, _PROTOCOL, _READONLY})


class Locked(Exception):
    """Another connection holds a required lock; the caller may try again."""


class _Foreign(StoreError):
    """The file has no tables of the parts that were asked for, but others."""


class _Unwritten(StoreError):
    """Nothing was written to the file yet: it is being set up, or its process was killed then."""


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return a StoreError that explains an error of SQLite, which is its ``__cause__``."""
    failure = StoreError(f"{path}: {_MEANINGS.get(_primary_code(error), 'SQLite failed')} ({error})")
    failure.__cause__ = error
    return failure


def is_locked(error: BaseException) -> bool:
    """Return whether another connection holds a required lock."""
    return _primary_code(error) in {_BUSY, _LOCKED}


def is_lost(error: BaseException) -> bool:
    """Return whether the whole file failed, not only a statement, so that the connection must be closed."""
    return _primary_code(error) in _LOST


def _code(error: BaseException) -> int:
    """Return SQLite's result code of an error; -1 for errors without a code, as those of sqlite3 itself."""
    return int(getattr(error, "sqlite_errorcode", -1))


def _primary_code(error: BaseException) -> int:
    return _code(error) & 0xFF if isinstance(error, sqlite3.Error) else -1


_APPLICATION_ID: Final = 0x706F6C69  # "poli" in ASCII
_FILE_VERSION: Final = 1
_LOG_BYTES: Final = 16 * 1024 * 1024  # after a checkpoint the log is cut to this length; large records make it grow
_PARTS: Final = "CREATE TABLE parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_ALONE: Final = "ledger"  # the part whose file has no other part; here, so that it is guarded whichever part opens it

_NO_SQLITE: Final = (
    "a file needs the standard module sqlite3, and this Python was built without it: "
    "install the package of your system that holds it, or another Python"
)

# The open connections, including connections of the parent process: pid, device, inode, and ``id`` of the connection.
_OPEN: Final[set[tuple[int, int, int, int]]] = set()


@dataclass(frozen=True, slots=True)
class Part:
    """The tables for one purpose.

    Attributes:
        name: the name of the part, unique in a file.
        statements: the statements that create the tables.
        version: the version of the tables.
    """

    name: str
    statements: tuple[str, ...]
    version: int = 1


class OpenFile:
    """An open connection to an SQLite file of politesse, for one thread.

    Attributes:
        connection: the connection, in autocommit mode; its user begins and ends transactions.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self.connection = connection
        self._identity = _identity(path)
        self._registered = (os.getpid(), *self._identity, id(connection))
        _OPEN.add(self._registered)

    def is_in_place(self) -> bool:
        """Return whether the file is still at its path, not deleted, moved or replaced."""
        try:
            return _identity(self._path) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        _OPEN.discard(self._registered)


def check_file(path: Path, parts: Sequence[Part]) -> None:
    """Check a path, and then check the file at the path over a read-only connection.

    Raises:
        StoreError: the folder is missing or read-only; the path is not a regular file; the file is read-only, encrypted
            or damaged; or another program or a newer politesse wrote it.
        Locked: another connection holds a required lock; try again.
    """
    with _errors_of(path):
        _check_path(path)
        _check_fork(path)
        size = path.stat().st_size if path.exists() else 0
        if size == 0:
            return
        if size == 1:  # SQLite takes it for an empty file, and would write over it
            raise StoreError(f"{path} is no SQLite file, and is left as it is: give another path")
        try:
            _check_content(path, parts, "mode=ro")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            # A process was killed during the first transaction, which creates the file; later transactions need no
            # rollback. A writing connection will roll back this transaction. Reading the versions works without that.
            _check_content(path, parts, "mode=ro&immutable=1")


def _check_content(path: Path, parts: Sequence[Part], options: str) -> None:
    with contextlib.closing(_connect(path, options)) as connection:
        if _is_politesse(path, connection):
            _missing(path, connection, parts)


def open_file(path: Path, parts: Sequence[Part], *, busy_timeout_s: float) -> OpenFile:
    """Open the file, with the tables of ``parts``; create missing tables.

    Args:
        path: an absolute path.
        parts: the required tables. The tables of other parts do not change.
        busy_timeout_s: how long a statement on the connection waits for locks.

    Raises:
        StoreError: as for ``check_file``, and if the disk is full or fails.
        Locked: another connection holds a required lock; try again.
    """
    check_file(path, parts)
    with _errors_of(path):
        _create(path)
        with _connected(path, "mode=rw", busy_timeout_s) as connection:
            _check_followed_no_link(path, connection)
            _set_up(path, connection, parts)
            return OpenFile(path, connection)


def open_for_reading(path: Path, parts: Sequence[Part], *, busy_timeout_s: float) -> OpenFile:
    """Open an existing file, which must have the tables of ``parts``; the connection can only read.

    Args:
        path: an absolute path.
        parts: the required tables.
        busy_timeout_s: how long a statement on the connection waits for locks.

    Raises:
        StoreError: as for ``check_file``, or if the file lacks the tables; a read-only file is no error.
        Locked: another connection holds a required lock; try again.
    """
    with _errors_of(path):
        if not stat.S_ISREG(path.stat().st_mode):  # SQLite would wait for the writer of a named pipe
            raise StoreError(f"{path} is not a regular file: give the path of a file")
        _check_fork(path)
        # In a read-only folder, SQLite cannot make the file for shared memory. SQLite needs no such file if no process
        # can write.
        is_fixed = not os.access(path.parent, os.W_OK | os.X_OK) and not path.with_name(f"{path.name}-wal").exists()
        options = "mode=ro&immutable=1" if is_fixed else "mode=ro"
        with _connected(path, options, busy_timeout_s) as connection:
            if not _is_politesse(path, connection):
                raise _Unwritten(f"{path} is not set up yet")
            if missing := _missing(path, connection, parts):
                raise _Foreign(f"{path} has no {missing[0].name}")
            return OpenFile(path, connection)


def held_file(path: Path, *, wait_s: float) -> sqlite3.Connection:
    """Lock an empty file until the connection is closed or the process ends; create the file if it is missing.

    Returns:
        The connection that holds the lock; any thread may close it.

    Raises:
        StoreError: the file cannot be created or opened, or is not empty.
        Locked: another connection has held the lock for ``wait_s``.
    """
    _check_path(path)
    _create(path)
    if path.stat().st_size:
        raise StoreError(f"{path} is not empty, so it is no lock of politesse, and is left as it is")
    with _errors_of(path), _connected(path, "mode=rw", wait_s) as connection:
        _check_followed_no_link(path, connection)
        connection.execute("BEGIN EXCLUSIVE")
        return connection


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    if sqlite3 is None:
        raise ImportError(_NO_SQLITE, name="sqlite3")
    try:
        yield
    except sqlite3.Error as error:
        if is_locked(error):
            raise Locked from error
        if _code(error) == sqlite3.SQLITE_READONLY_ROLLBACK:  # see ``check_file``
            raise _Unwritten(f"{path} is not set up yet") from error
        raise store_error(path, error) from error
    except UnicodeDecodeError as error:  # the message of SQLite's error quotes the file
        raise StoreError(f"{path}: {_MEANINGS[_CORRUPT]} ({error})") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error


def _check_path(path: Path) -> None:
    """Check a path without opening the file.

    Raises:
        StoreError: the folder is missing or read-only; or the path is not a regular file, or is a read-only file.
    """
    if not path.parent.is_dir():
        raise StoreError(f"{path} cannot be opened: there is no folder {path.parent}; create it first")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and stat.S_ISLNK(mode):
        raise StoreError(f"{path} is a symbolic link, which is not followed: give the path of the file itself")
    if mode is not None and not stat.S_ISREG(mode):
        raise StoreError(f"{path} is not a regular file: give the path of a file")
    if mode is not None and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path} is read-only for this process: a file that keeps something must be writable")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreError(f"the folder {path.parent} is read-only for this process: SQLite writes files beside {path}")


def _connect(path: Path, options: str, busy_timeout_s: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,  # only one thread at a time uses the connection
    )


@contextlib.contextmanager
def _connected(path: Path, options: str, busy_timeout_s: float) -> Iterator[sqlite3.Connection]:
    """Connect; if the block raises an error, close the connection."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(contextlib.closing(_connect(path, options, busy_timeout_s)))
        stack.pop_all()


def _create(path: Path) -> None:
    """Create an empty file unless the path exists."""
    try:
        if sys.platform == "linux":
            os.mknod(path, 0o600 | stat.S_IFREG)
        else:  # on other systems only root may call mknod
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except FileExistsError:
        return


def _check_fork(path: Path) -> None:
    try:
        identity = _identity(path)
    except FileNotFoundError:
        return
    if any(entry[0] != os.getpid() and entry[1:3] == identity for entry in tuple(_OPEN)):
        raise StoreError(
            f"{path} was open when this process was forked, so SQLite cannot lock it here: start processes by "
            "'spawn' or 'forkserver', or open the file after the fork"
        )


def _check_followed_no_link(path: Path, connection: sqlite3.Connection) -> None:
    """Check that SQLite opened ``path`` itself; a link may have replaced the file since ``_check_path``."""
    # As octets: sqlite3 cannot decode a path that is not UTF-8.
    octets = connection.execute("SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    folder, name = os.path.split(os.fsdecode(octets))
    if name != path.name or not path.parent.samefile(folder):
        raise StoreError(f"{path} is a symbolic link, which is not followed: give the path of the file itself")


def _set_up(path: Path, connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    if not _is_politesse(path, connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only before the first write
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StoreError(f"{path} lies on a file system without shared memory, which several processes need")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    if _is_politesse(path, connection) and not _missing(path, connection, parts):
        return  # no tables are missing, so the lock for writing is not needed
    connection.execute("BEGIN IMMEDIATE")  # now no other process can set up the file
    if not _is_politesse(path, connection):
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_FILE_VERSION}")
        connection.execute(_PARTS)
    for part in _missing(path, connection, parts):
        for statement in part.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO parts VALUES (?, ?)", (part.name, part.version))
    connection.execute("COMMIT")


def _is_politesse(path: Path, connection: sqlite3.Connection) -> bool:
    """Return whether politesse wrote the file; False for an empty file.

    Raises:
        StoreError: another program wrote the file.
    """
    # One statement sees one state of the file, even while another process sets up the file.
    query = "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
    number, tables = connection.execute(query).fetchone()
    if number == _APPLICATION_ID:
        return True
    if number == tables == 0:
        return False
    raise _Foreign(f"{path} is an SQLite file of another program, and is left as it is: give another path")


def _missing(path: Path, connection: sqlite3.Connection, parts: Sequence[Part]) -> list[Part]:
    """Return the parts that the file does not have.

    Raises:
        StoreError: a newer politesse wrote the file; another version of politesse wrote one of ``parts``; or a version
            is not a number.
    """
    newer = f"{path} was written by a newer politesse, and is left as it is: upgrade politesse, or give another path"
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > _FILE_VERSION:
        raise StoreError(f"{newer} (file version {version}, known up to {_FILE_VERSION})")
    versions = dict(connection.execute("SELECT name, version FROM parts").fetchall())
    names = versions.keys() | {part.name for part in parts}
    if _ALONE in names and len(names) > 1:
        has = f"{path} has {', '.join(sorted(versions))}"
        raise _Foreign(f"{has}, and a ledger needs a file of its own: give another path")
    for part in parts:
        found = versions.get(part.name, part.version)
        if not isinstance(found, int):
            raise StoreError(f"{path} is damaged: the version of {part.name} is {found!r:.100}")
        if found > part.version:
            raise StoreError(f"{newer} ({part.name} version {found}, known up to {part.version})")
        if found < part.version:
            older = f"{path} was written by an older politesse, and is left as it is: give another path"
            raise StoreError(f"{older} ({part.name} version {found}, {part.version} is needed)")
    return [part for part in parts if part.name not in versions]


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


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
