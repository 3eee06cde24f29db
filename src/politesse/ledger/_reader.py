"""Reads a ledger, also while a crawler writes to it, and checks its chain.

Theory of operation. Each row has the SHA-256 of the hash of the previous row, and of its own number, kind and content.
The first row of a file continues from the seal of the previous file. A snapshot names the SHA-256 of its body. So the
check finds the first row that was altered, removed, inserted or swapped, an altered or missing body, and a missing file
between two other files.

The chain does not prove that the end is complete: a person with write access can cut the last rows, or build the whole
chain anew. Note the last hash elsewhere from time to time, for example in a mail or a log on another machine. If a
ledger contains a noted hash, no row up to that hash has been changed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from politesse.errors import StoreError
from politesse.ledger._file import (
    BEGIN,
    CLOSE,
    DECISION,
    DROPPED,
    NOTE,
    OPEN,
    SEAL,
    SNAPSHOT,
    START,
    TURN,
    LedgerRow,
    RecordedDecision,
    RecordedNote,
    RecordedTurn,
    Snapshot,
    begin_of,
    content_read,
    hash_of,
    members,
    opened,
    read_decision,
    read_snapshot,
)
from politesse.stores._sqlite_file import sqlite3, store_error

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from politesse.origin import Origin
    from politesse.stores._sqlite_file import OpenFile

Record = TypeVar("Record")

_ALL: Final = (  # a damaged column may have another type
    "SELECT number, CAST(kind AS TEXT), CAST(content AS TEXT), CAST(hash AS BLOB) FROM ledger_rows "
    "WHERE ? = '' OR kind = ? ORDER BY number"
)


class LedgerReader:
    r"""Reads the files of a ledger in their order, without changing them. ``with`` or ``close`` closes them.

    >>> import asyncio, pathlib, tempfile
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> site = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
    >>> async def crawl(path):
    ...     async with Gatekeeper("ExampleBot/1.0", fetcher=site, ledger=path) as gate:
    ...         await gate.check("https://example.com/private/diary")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ledger.db")
    ...     asyncio.run(crawl(path))
    ...     with LedgerReader(path) as ledger:
    ...         [snapshot], [decision] = ledger.snapshots(), ledger.decisions()
    >>> decision.allowed, decision.rule, decision.digest == snapshot.digest
    (False, 'Disallow: /private', True)

    Args:
        path: the path of the ledger. With the path of a later file of the series, such as ``ledger.0003.db``, the
            earlier files are left out.

    Attributes:
        paths: maps the numbers of the files to their paths.

    Raises:
        StoreError: there is no such file; or another program or a newer politesse wrote a file, or a file cannot be
            read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.paths: dict[int, Path] = members(Path(path).absolute())
        if not self.paths:
            raise StoreError(f"there is no ledger at {path}")
        self._files: dict[int, OpenFile] = {}
        try:
            for number, name in self.paths.items():
                self._files[number] = opened(name)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def snapshots(self, origin: Origin | None = None, *, path: str | None = "/robots.txt") -> Iterator[Snapshot]:
        """Yield the copies of files in the order in which the gate began to use them.

        Args:
            origin: only the copies of this origin; by default, of all origins.
            path: only the copies of files at this path, or None for all files.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        for found in self._records(SNAPSHOT, self._snapshot):
            if origin in {None, found.origin} and path in {None, found.url[len(found.origin.text) :]}:
                yield found

    def decisions(self) -> Iterator[RecordedDecision]:
        """Yield the decisions in the order in which they were recorded.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return self._records(DECISION, lambda content, _: read_decision(content))

    def turns(self) -> Iterator[RecordedTurn]:
        """Yield the turns in the order in which they ended.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return self._records(TURN, lambda content, _: RecordedTurn(**content))

    def notes(self) -> Iterator[RecordedNote]:
        """Yield the notes in the order in which they were recorded.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return self._records(NOTE, lambda content, _: RecordedNote(**content))

    def rows(self, kind: str = "") -> Iterator[tuple[int, LedgerRow]]:
        """Yield the rows of all files, or only the rows of one kind, each with the number of its file."""
        for number in self.paths:
            for row in self._query(number, _ALL, kind, kind):
                yield number, LedgerRow(*row)

    def body(self, number: int, digest: str) -> bytes | None:
        """Return the body of a snapshot in the file of this number; None if it is missing."""
        query = "SELECT CAST(body AS BLOB) FROM ledger_bodies WHERE digest = ?"
        return next((body for (body,) in self._query(number, query, bytes.fromhex(digest))), None)

    def _query(self, number: int, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._files[number].connection.execute(query, values):  # noqa: UP028
                yield row  # "yield from" would close the cursor of an iterator that is dropped after ``close``
        except sqlite3.Error as error:
            raise store_error(self.paths[number], error) from error

    def _snapshot(self, content: dict[str, Any], number: int) -> Snapshot:
        digest = content.get("digest")
        body = b"" if digest is None else self.body(number, digest)
        if body is None:
            raise LookupError(f"the body {digest} is missing")
        return read_snapshot(content, body)

    def _records(self, kind: str, read: Callable[[dict[str, Any], int], Record]) -> Iterator[Record]:
        for number, row in self.rows(kind):
            with self.blaming(number, row.number):
                found = read(content_read(row), number)
            yield found

    @contextmanager
    def blaming(self, number: int, row: int) -> Iterator[None]:
        """Raise a StoreError that names a row of the file of this number, if its content cannot be used."""
        try:
            yield
        except (AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise StoreError(
                f"row {row} of {self.paths[number]} is damaged ({error!r:.200}): 'politesse ledger verify' "
                "names the first row that was changed"
            ) from error

    def __repr__(self) -> str:
        return f"<LedgerReader {', '.join(map(str, self.paths.values()))}>"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of ``verify``.

    >>> Verification(rows=3, problem="row 4 was altered").is_intact
    False

    Attributes:
        files: how many files were read.
        rows: how many rows are intact, from the first on.
        head: the hash of the last intact row, in hexadecimal digits.
        problem: the first problem, with its file and row; or empty.
        dropped: how many items the writers have dropped, by their own count.
        unclosed: how many writers did not close the ledger: they were killed, or still write.
    """

    files: int = 0
    rows: int = 0
    head: str = ""
    problem: str = ""
    dropped: int = 0
    unclosed: int = 0

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problem


def verify(path: str | os.PathLike[str], *, head: str = "") -> Verification:
    """Check every row of a ledger, up to the first problem; see the guide "Keep a ledger".

    Args:
        path: see LedgerReader.
        head: a hash that was noted earlier; one of the rows must have it. Empty for none.

    Raises:
        StoreError: there is no ledger, or another program or a newer politesse wrote the file.
    """
    with LedgerReader(path) as ledger:
        check = _Check(ledger)
        try:
            problem = check.problem(head)
        except (StoreError, ValueError) as error:  # SQLite cannot read the file
            problem = f"{error}, after row {check.last}"
        files, unclosed = len(ledger.paths), len(check.writers)
        return Verification(files, check.rows, check.hash.hex(), problem, check.dropped, unclosed)


class _Check:
    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger
        self._file = self.last = self.rows = self.dropped = 0
        self._kind, self.hash = "", START
        self.writers: set[object] = set()

    def problem(self, head: str) -> str:
        """Check all rows; return the first problem, or an empty text."""
        is_seen = not head
        for number, row in self._ledger.rows():
            with self._ledger.blaming(number, row.number):
                problem = "" if number == self._file else self._changed_file(number, row)
                problem = problem or self._changed(number, row)
            if problem:
                return problem
            self.last, self._kind, self.hash = row.number, row.kind, row.hash
            self.rows += 1
            is_seen = is_seen or row.hash.hex() == head
        return "" if is_seen else f"no row has the noted hash {head}: rows are missing at the end, or all was made anew"

    def _changed_file(self, number: int, row: LedgerRow) -> str:
        """Check whether the first row of a file continues the previous file."""
        name, (previous, _) = self._ledger.paths[number].name, begin_of(row.content)
        if self._file and (number != self._file + 1 or self._kind != SEAL):
            return f"rows are missing between row {self.last} of {self._ledger.paths[self._file].name} and {name}"
        if not self._file and number > 1:  # the reader was given a later file, or earlier files were moved away
            self.hash = previous
        elif row.kind == BEGIN and previous != self.hash:
            return f"{name} is no file of this series, or has another number"
        self._file, self.last = number, 0
        return ""

    def _changed(self, number: int, row: LedgerRow) -> str:
        """Return how a row differs from the chain, or an empty text."""
        name, expected = self._ledger.paths[number].name, self.last + 1
        if row.number != expected:
            return f"row {expected} of {name} is missing"
        if row.hash != hash_of(self.hash, row.number, row.kind, row.content):
            return f"row {row.number} of {name} was altered, or rows before it were removed or swapped"
        content = content_read(row)
        if row.kind == SNAPSHOT and (digest := content.get("digest")):
            body = self._ledger.body(number, digest)
            if body is None or sha256(body).hexdigest() != digest:
                return f"row {row.number} of {name}: the file {digest} is {'missing' if body is None else 'altered'}"
        elif row.kind == DROPPED:
            self.dropped += content["rows"]
        elif row.kind == OPEN:
            self.writers.add(content["writer"])
        elif row.kind == CLOSE:
            self.writers.discard(content["writer"])
        return ""
