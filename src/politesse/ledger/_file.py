"""The files of a ledger: their names, their tables, and the end of the chain in a file.

``ledger.db`` is followed by ``ledger.0002.db``, ``ledger.0003.db`` and so on. No file is ever renamed.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from glob import escape
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Final

from politesse.errors import StoreError
from politesse.ledger._rows import BEGIN, START, Record, Snapshot, content_of, hash_of, row_of
from politesse.stores._sqlite_opening import Locked, OpenFile, Part, _Foreign, _Unwritten, open_for_reading, sqlite3
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ROWS: Final = (
    "CREATE TABLE ledger_rows (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, content TEXT NOT NULL, "
    "hash BLOB NOT NULL)"
)
_BODIES: Final = "CREATE TABLE ledger_bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL)"

LEDGER: Final = Part("ledger", (_ROWS, _BODIES))
"""The tables of a ledger: rows as in LedgerRow, and the bodies of the snapshots by their SHA-256."""

# rows written in one call; while SQLite writes, other threads run, so several short calls shorten their waits
_TOGETHER: Final = 64
_READER_WAIT_S: Final = 4.0  # how long a reader waits while another process sets up the file
_NUMBERED: Final = re.compile(r"(.+)\.(\d{4,})")


def member(path: Path, number: int) -> Path:
    """Return the path of a file of the series that begins at ``path``."""
    return path if number == 1 else path.with_name(f"{path.stem}.{number:04}{path.suffix}")


def members(path: Path) -> dict[int, Path]:
    """Return the existing files of the series of ``path`` by number; if ``path`` is a later file, begin there.

    A name with a number may also be the name of another file: of a ledger that begins with it, as ``ledger.2026.db``,
    or of another program. Such a file counts only as the next file of the series, where its presence is an error. A
    last file without rows is left out.
    """
    first, numbered = 1, _NUMBERED.fullmatch(path.stem)
    if numbered is not None and path.exists() and _continued(path) not in {START, None}:
        path, first = path.with_name(numbered[1] + path.suffix), int(numbered[2])
    found = {1: path} if first == 1 and path.exists() else {}
    names: dict[int, Path] = {}
    for name in path.parent.glob(f"{escape(path.stem)}.*{escape(path.suffix)}"):
        match = _NUMBERED.fullmatch(name.name.removesuffix(path.suffix))
        if match is not None and match[1] == path.stem and int(match[2]) >= max(first, 2):
            names[int(match[2])] = name
    for number in sorted(names):
        previous = _continued(names[number])
        if previous is not None and (previous != START or number - 1 in found):
            found[number] = names[number]
    return found


def _continued(path: Path) -> bytes | None:
    """Return the hash from which a file continues; START if it continues no file, None if it has no rows yet."""
    try:
        with closing(opened(path)) as file:
            for (content,) in file.connection.execute("SELECT content FROM ledger_rows ORDER BY number LIMIT 1"):
                return begin_of(content)[0]
    except _Unwritten:
        pass
    except (_Foreign, sqlite3.Error):
        return START
    return None


def opened(path: Path) -> OpenFile:
    """Open a file to read it; raises StoreError."""
    try:
        file = open_for_reading(path, [LEDGER], busy_timeout_s=_READER_WAIT_S)
    except Locked as error:
        raise StoreError(f"{path} cannot be read: another process is just setting it up") from error
    # Damaged octets become escapes, so that their hash differs.
    file.connection.text_factory = lambda octets: octets.decode(errors="backslashreplace")
    return file


class Chain:
    """The end of the chain in a file, within a transaction that holds the lock for writing.

    Attributes:
        number: the number of the last row; 0 in a new file.
        kind: the kind of the last row; empty in a new file.
        hash: the hash of the last row.
        previous: the hash of the seal of the previous file; None in a new file.
        began_wall: the Unix time at which the file began.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._added: list[tuple[int, str, str, bytes]] = []
        query = "SELECT number, kind, hash FROM ledger_rows ORDER BY number DESC LIMIT 1"
        last: tuple[int, str, bytes] = connection.execute(query).fetchone() or (0, "", START)
        self.number, self.kind, self.hash = last
        self.previous: bytes | None = None
        self.began_wall = inf
        for (content,) in connection.execute("SELECT content FROM ledger_rows WHERE number = 1"):
            self.previous, self.began_wall = begin_of(content)

    def begin(self, previous: bytes, wall: float) -> None:
        """Add the first row of a file, which binds the file to the seal of the previous file."""
        self.began_wall, self.hash = wall, previous
        self.add(BEGIN, {"format": 1, "previous": previous.hex(), "wall": wall})

    def add(self, kind: str, fields: Mapping[str, object]) -> None:
        """Add a row. Call ``write`` afterwards, because some added rows may not have been written."""
        self.number += 1
        content = content_of(fields)
        self.kind, self.hash = kind, hash_of(self.hash, self.number, kind, content)
        self._added.append((self.number, kind, content, self.hash))
        if len(self._added) >= _TOGETHER:
            self.write()

    def write(self) -> None:
        """Write the rows that were added."""
        self._connection.executemany("INSERT INTO ledger_rows VALUES (?, ?, ?, ?)", self._added)
        self._added.clear()

    def add_record(self, record: Record) -> None:
        """Add the row of a record, and keep the body of a snapshot."""
        kind, fields = row_of(record)
        if isinstance(record, Snapshot) and record.result is AccessResult.SUCCESSFUL:
            digest = sha256(record.body)
            fields["digest"] = digest.hexdigest()
            kept = digest.digest(), record.body
            self._connection.execute("INSERT OR IGNORE INTO ledger_bodies VALUES (?, ?)", kept)
        self.add(kind, fields)


def begin_of(content: str) -> tuple[bytes, float]:
    """Return the hash from which a file continues, and the time of its first row; START and inf for a damaged row."""
    try:
        first = json.loads(content)
        return bytes.fromhex(first["previous"]), float(first["wall"])
    except (LookupError, TypeError, ValueError):
        return START, inf
