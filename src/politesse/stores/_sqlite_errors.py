"""The module sqlite3, which not every Python has, and what its errors mean to the user of a politesse file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.errors import StoreError

try:
    import sqlite3
except ImportError as error:
    raise ImportError(
        "what is kept in a file needs the standard module sqlite3, and this Python was built without it: "
        f"install the package of your system that holds it, or another Python ({error})",
        name="sqlite3",
    ) from error

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_locked", "is_lost", "sqlite3", "store_error"]

_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: "another connection holds its lock",
    sqlite3.SQLITE_LOCKED: "another connection holds its lock",
    sqlite3.SQLITE_FULL: "the disk is full; what was acknowledged is kept",
    sqlite3.SQLITE_READONLY: "the file, its folder or its disk is read-only, or it was moved",
    sqlite3.SQLITE_CANTOPEN: "the file, or the files -wal and -shm beside it, cannot be opened: permissions, or a link",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "no politesse file: it is encrypted, damaged or of another program, and is left as it is",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_TOOBIG: "the record is larger than SQLite can keep",
}
_LOST: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return what an error of SQLite means; ``__cause__`` is that error."""
    failure = StoreError(f"{path}: {_MEANINGS.get(_primary_code(error), 'SQLite failed')} ({error})")
    failure.__cause__ = error
    return failure


def is_locked(error: BaseException) -> bool:
    """Return whether another connection holds a lock that was needed."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_lost(error: BaseException) -> bool:
    """Return whether the file failed, so that its connection is no longer trusted: not just one statement."""
    return _primary_code(error) in _LOST


def _primary_code(error: BaseException) -> int:
    """Return the primary result code of SQLite; -1 for any other error."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF if isinstance(error, sqlite3.Error) else -1
