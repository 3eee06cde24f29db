"""Turns errors of SQLite into StoreErrors that explain the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.errors import StoreError

try:
    import sqlite3 as sqlite3  # noqa: PLC0414 - the worker uses it too
except ImportError:
    sqlite3 = None  # type: ignore[assignment] # opening a file then raises ImportError

if TYPE_CHECKING:
    from pathlib import Path

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


def _primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code of an error; -1 for errors without a code."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF if isinstance(error, sqlite3.Error) else -1
