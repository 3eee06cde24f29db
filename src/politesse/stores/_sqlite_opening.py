"""Opening a politesse file: an SQLite database that only politesse writes, with the tables of one or more parts.

A file holds any set of parts: the records of a store, the journal of a queue. Each part has a name and a version of its
own, kept in the table ``parts``; the file as a whole has the version in ``user_version``. A file is recognised by its
``application_id``. Whatever is no politesse file is refused before a connection that could write is opened.

What is done here for safety:

- A new file is created by ``mknod``, with mode 0600 and never through a symbolic link. It is not opened for that:
  POSIX drops all locks of a process on a file when the process closes any descriptor of it, so nothing here opens the
  file but SQLite. SQLite gives ``-wal`` and ``-shm`` the mode of the file, and follows no link to them.
- SQLite follows a link to the database itself. So the name is checked before, and the name that SQLite resolved after.
- SQLite keeps its locks in the memory of the process, and a forked child inherits that memory but not the locks: a
  connection that the child opens to the same file would take no lock at all. So the child is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse.errors import StoreError
from politesse.stores._sqlite_errors import is_locked, sqlite3, store_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_APPLICATION_ID: Final = 0x706F6C69  # "poli"
_FILE_VERSION: Final = 1
_LOG_BYTES: Final = 16 * 1024 * 1024  # the log is cut to this after a checkpoint: it grows with the largest records
_PARTS: Final = "CREATE TABLE parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"

# The files that this process has open, or had open when it was forked: process, device, inode, connection.
_OPEN: Final[set[tuple[int, int, int, int]]] = set()


class Locked(Exception):
    """Another connection holds a lock that is needed; to be tried again."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tables of one purpose, and how they came about.

    Attributes:
        name: of the part, unique in a file.
        steps: the statements of each version, which lead to it from the version before; the first make the tables. A
            step that was released never changes: another one follows it.
    """

    name: str
    steps: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> int:
        """The version that the steps lead to."""
        return len(self.steps)


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
        """Return whether the file is still the one at its path: not deleted, moved or replaced."""
        try:
            return _identity(self._path) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        _OPEN.discard(self._registered)


def check_file(path: Path, parts: Sequence[Part]) -> None:
    """Check a path, and the file there if there is one, by a connection that cannot write.

    Raises:
        StoreError: the folder is missing or read-only; at the path is something but a regular file; the file is
            read-only, of another program, encrypted or damaged; or a newer politesse wrote it.
        Locked: to be tried again.
    """
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
            # take the transaction back; what is to be known before is in the file as it is.
            _check_content(path, parts, "mode=ro&immutable=1")


def _check_content(path: Path, parts: Sequence[Part], options: str) -> None:
    with contextlib.closing(_connect(path, options)) as connection:
        if _is_politesse(path, connection):
            _check_versions(path, connection, parts)


def open_file(path: Path, parts: Sequence[Part], *, busy_timeout_s: float) -> OpenFile:
    """Open the file, with the tables of ``parts``; create or migrate what is missing.

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

    Args:
        path: an absolute path.
        wait_s: how long to wait for another one that holds it.

    Returns:
        The connection that holds it; any thread may close it.

    Raises:
        StoreError: the file cannot be created or opened; or it is not empty, and so is no such file.
        Locked: another connection holds it.
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
    """Check what can be checked without opening the file.

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
    """Create an empty file unless there is one."""
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
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is written: later it has no effect
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StoreError(f"{path} lies on a file system without shared memory, which several processes need")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    if _is_politesse(path, connection) and not _missing(parts, _check_versions(path, connection, parts)):
        return  # without the lock that writes need
    connection.execute("BEGIN IMMEDIATE")  # from here on nobody else sets up the file
    if not _is_politesse(path, connection):
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_FILE_VERSION}")
        connection.execute(_PARTS)
    for part, version in _missing(parts, _check_versions(path, connection, parts)):
        for statement in itertools.chain(*part.steps[version:]):
            connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?)", (part.name, part.version))
    connection.execute("COMMIT")


def _missing(parts: Sequence[Part], versions: Mapping[str, int]) -> list[tuple[Part, int]]:
    """Return the parts of which the file has an older version or, as version 0, none; and that version."""
    found = [(part, versions.get(part.name, 0)) for part in parts]
    return [(part, version) for part, version in found if version < part.version]


def _is_politesse(path: Path, connection: sqlite3.Connection) -> bool:
    """Return whether the file is one of politesse; False for an empty one.

    Raises:
        StoreError: it is of another program.
    """
    with contextlib.nullcontext() if connection.in_transaction else _snapshot(connection):
        number = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if number == _APPLICATION_ID:
        return True
    if number == tables == 0:
        return False
    raise StoreError(f"{path} is an SQLite file of another program, and is left as it is: give another path")


@contextlib.contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the file, while others may be setting it up."""
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


def _check_versions(path: Path, connection: sqlite3.Connection, parts: Sequence[Part]) -> dict[str, int]:
    """Return the version of each part in the file.

    Raises:
        StoreError: a newer politesse wrote the file, or one of ``parts``; or a version is no number.
    """
    newer = f"{path} was written by a newer politesse, and is left as it is: upgrade politesse, or give another path"
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > _FILE_VERSION:
        raise StoreError(f"{newer} (file version {version}, known up to {_FILE_VERSION})")
    versions = dict(connection.execute("SELECT name, version FROM parts").fetchall())
    for part in parts:
        found = versions.get(part.name, 0)
        if not isinstance(found, int):
            raise StoreError(f"{path} is damaged: the version of {part.name} is {found!r:.100}")
        if found > part.version:
            raise StoreError(f"{newer} ({part.name} version {found}, known up to {part.version})")
    return versions


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
