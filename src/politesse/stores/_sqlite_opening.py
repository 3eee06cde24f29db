"""Opening a politesse file: an SQLite database that only politesse writes, with the tables of its parts.

A file holds any set of parts: the records of a store, the journal of a queue. Each part has a name and a version,
kept in the table ``parts``; the file as a whole has the version in ``user_version``. A file is recognised by its
``application_id``. Other files are refused before a connection that could write is opened.

For safety:

- A new file is created by ``mknod``, with mode 0600 and never through a symbolic link. ``open`` is not used:
  POSIX drops all locks of a process on a file when the process closes any descriptor of it, so only SQLite opens the
  file. SQLite gives ``-wal`` and ``-shm`` the mode of the file, and follows no link to them.
- SQLite follows a link to the database itself. So the name is checked before, and the name that SQLite resolved after.
- SQLite keeps its locks in the memory of the process, and a forked child inherits that memory but not the locks: a
  connection that the child opens to the same file would take no lock at all. So the child is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse.errors import StoreError

try:
    import sqlite3 as sqlite3  # noqa: PLC0414 - the worker uses it too
except ImportError:
    sqlite3 = None  # type: ignore[assignment] # ``check_file`` says so

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_APPLICATION_ID: Final = 0x706F6C69  # "poli"
_FILE_VERSION: Final = 1
_LOG_BYTES: Final = 16 * 1024 * 1024  # the log is cut to this after a checkpoint: it grows with the largest records
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
_PARTS: Final = "CREATE TABLE parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"

# The open files, of the process before a fork too: process, device, inode, connection.
_OPEN: Final[set[tuple[int, int, int, int]]] = set()


class Locked(Exception):
    """Another connection holds a lock that is needed; to be tried again."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tables of a purpose.

    Attributes:
        name: of the part, unique in a file.
        statements: make the tables.
        version: of the tables.
    """

    name: str
    statements: tuple[str, ...]
    version: int = 1


class OpenFile:
    """An open connection to a politesse file, used by one thread.

    Attributes:
        connection: in autocommit mode: who uses it begins and ends transactions.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self.connection = connection
        self._identity = _identity(path)
        self._registered = (os.getpid(), *self._identity, id(connection))
        _OPEN.add(self._registered)

    def is_in_place(self) -> bool:
        """Return whether the file is still at its path: not deleted, moved or replaced."""
        try:
            return _identity(self._path) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        _OPEN.discard(self._registered)


def check_file(path: Path, parts: Sequence[Part]) -> None:
    """Check a path, and a file at the path by a connection that cannot write.

    Raises:
        StoreError: the folder is missing or read-only; at the path is something but a regular file; the file is
            read-only, of another program, encrypted or damaged; or a newer politesse wrote it.
        Locked: to be tried again.
    """
    if sqlite3 is None:
        raise ImportError(
            "a file needs the standard module sqlite3, and this Python was built without it: "
            "install the package of your system that holds it, or another Python",
            name="sqlite3",
        )
    with _errors_of(path):
        _check_path(path)
        _check_fork(path)
        if not path.exists() or path.stat().st_size == 0:
            return
        try:
            _check_content(path, parts, "mode=ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            # A process was killed in a transaction, ours only as it created the file. A connection that can write will
            # take the transaction back; the versions are in the file as it is.
            _check_content(path, parts, "mode=ro&immutable=1")


def _check_content(path: Path, parts: Sequence[Part], options: str) -> None:
    with contextlib.closing(_connect(path, options)) as connection:
        if _is_politesse(path, connection):
            _missing(path, connection, parts)


def open_file(path: Path, parts: Sequence[Part], *, busy_timeout_s: float) -> OpenFile:
    """Open the file, with the tables of ``parts``; create missing tables.

    Args:
        path: an absolute path.
        parts: the tables that must be there. Those of other parts stay as they are.
        busy_timeout_s: how long a statement on the connection waits for locks.

    Raises:
        StoreError: as for ``check_file``, and if the disk is full or fails.
        Locked: to be tried again.
    """
    check_file(path, parts)
    with _errors_of(path):
        _create(path)
        connection = _connect(path, "mode=rw", busy_timeout_s)
        try:
            _check_followed_no_link(path, connection)
            _set_up(path, connection, parts)
            return OpenFile(path, connection)
        except BaseException:
            connection.close()
            raise


def held_file(path: Path, *, wait_s: float) -> sqlite3.Connection:
    """Hold an empty file, which is created if it is missing, until the connection is closed or the process ends.

    Returns:
        The connection that holds it; any thread may close it.

    Raises:
        StoreError: the file cannot be created or opened; or it is not empty, and so is no such file.
        Locked: another connection has held it for ``wait_s``.
    """
    _check_path(path)
    _create(path)
    if path.stat().st_size:
        raise StoreError(f"{path} is not empty, so it is no lock of politesse, and is left as it is")
    with _errors_of(path):
        connection = _connect(path, "mode=rw", wait_s)
        try:
            _check_followed_no_link(path, connection)
            connection.execute("BEGIN EXCLUSIVE")
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if is_locked(error):
            raise Locked from error
        raise store_error(path, error) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error


def _check_path(path: Path) -> None:
    """Check a path without opening the file.

    Raises:
        StoreError: the folder is missing or cannot be written to; at the path is something but a regular file, or a
            file that cannot be written to.
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
        check_same_thread=False,  # used by one thread at a time
    )


def _create(path: Path) -> None:
    """Create an empty file unless the path exists."""
    try:
        if sys.platform == "linux":
            os.mknod(path, 0o600 | stat.S_IFREG)
        else:  # elsewhere only root may
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
    """Check that SQLite opened the file of this name; a link may have taken its place since ``_check_path``."""
    folder, name = os.path.split(connection.execute("PRAGMA database_list").fetchone()[2])
    if name != path.name or not path.parent.samefile(folder):
        raise StoreError(f"{path} is a symbolic link, which is not followed: give the path of the file itself")


def _set_up(path: Path, connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    if not _is_politesse(path, connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect after the first write
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StoreError(f"{path} lies on a file system without shared memory, which several processes need")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    if _is_politesse(path, connection) and not _missing(path, connection, parts):
        return  # without the lock that writes need
    connection.execute("BEGIN IMMEDIATE")  # from here on no other process sets up the file
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
    """Return whether the file is one of politesse; False for an empty one.

    Raises:
        StoreError: it is of another program.
    """
    # One statement sees one state of the file, while others may be setting it up.
    query = "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
    number, tables = connection.execute(query).fetchone()
    if number == _APPLICATION_ID:
        return True
    if number == tables == 0:
        return False
    raise StoreError(f"{path} is an SQLite file of another program, and is left as it is: give another path")


def _missing(path: Path, connection: sqlite3.Connection, parts: Sequence[Part]) -> list[Part]:
    """Return the parts that the file does not have.

    Raises:
        StoreError: a newer politesse wrote the file, or one of ``parts``; or a version is no number.
    """
    newer = f"{path} was written by a newer politesse, and is left as it is: upgrade politesse, or give another path"
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > _FILE_VERSION:
        raise StoreError(f"{newer} (file version {version}, known up to {_FILE_VERSION})")
    versions = dict(connection.execute("SELECT name, version FROM parts").fetchall())
    for part in parts:
        found = versions.get(part.name, part.version)
        if not isinstance(found, int):
            raise StoreError(f"{path} is damaged: the version of {part.name} is {found!r:.100}")
        if found > part.version:
            raise StoreError(f"{newer} ({part.name} version {found}, known up to {part.version})")
    return [part for part in parts if part.name not in versions]


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return a StoreError with the meaning of an error of SQLite, which is its ``__cause__``."""
    failure = StoreError(f"{path}: {_MEANINGS.get(_primary_code(error), 'SQLite failed')} ({error})")
    failure.__cause__ = error
    return failure


def is_locked(error: BaseException) -> bool:
    """Return whether another connection holds a lock that was needed."""
    return _primary_code(error) in {_BUSY, _LOCKED}


def is_lost(error: BaseException) -> bool:
    """Return whether the file failed, so that its connection is no longer trusted: not just one statement."""
    return _primary_code(error) in _LOST


def _primary_code(error: BaseException) -> int:
    """Return the primary result code of SQLite; -1 for any other error."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF if isinstance(error, sqlite3.Error) else -1
