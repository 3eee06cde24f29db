"""Reads a ledger, also while a crawler writes to it."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from politesse.errors import StoreError
from politesse.ledger import _rows
from politesse.ledger._file import LEDGER, members
from politesse.stores._sqlite_opening import Locked, open_for_reading, sqlite3, store_error

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from politesse.origin import Origin

Content = TypeVar("Content")

_COLUMNS: Final = "SELECT number, kind, content, hash FROM ledger_rows"


class LedgerReader:
    r"""Reads the files of a ledger, the first file first, without changing them. ``with`` or ``close`` closes them.

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
        path: the path of the ledger. The path of a later file of its series, such as ``ledger.0003.db``, leaves out the
            earlier files.

    Attributes:
        paths: maps the numbers of the files to their paths.

    Raises:
        StoreError: there is no such file; or a file is of another program, was written by a newer politesse, or cannot
            be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.paths = members(Path(path).absolute())
        if not self.paths:
            raise StoreError(f"there is no ledger at {path}")
        self._connections: dict[int, sqlite3.Connection] = {}
        try:
            for number, name in self.paths.items():
                self._connections[number] = connection = _opened(name)
                connection.text_factory = bytes  # a damaged row may be no text
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for connection in self._connections.values():
            connection.close()

    def snapshots(self, origin: Origin | None = None, *, path: str | None = "/robots.txt") -> Iterator[_rows.Snapshot]:
        """Yield the copies of files in the order in which they began to serve.

        Args:
            origin: only the copies of this origin; by default, of all origins.
            path: only the copies of files at this path, or None for all files.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        for number, row in self.rows(_rows.SNAPSHOT):
            found = self._decoded(number, row, partial(self._snapshot, number))
            if origin in {None, found.origin} and path in {None, found.url[len(found.origin.text) :]}:
                yield found

    def decisions(self) -> Iterator[_rows.RecordedDecision]:
        """Yield the decisions in the order in which they were recorded.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return (self._decoded(number, row, _rows.decision_of) for number, row in self.rows(_rows.DECISION))

    def turns(self) -> Iterator[_rows.RecordedTurn]:
        """Yield the turns in the order in which they ended.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return (self._decoded(number, row, _rows.turn_of) for number, row in self.rows(_rows.TURN))

    def rows(self, kind: str = "") -> Iterator[tuple[int, _rows.LedgerRow]]:
        """Yield the rows of all files, or those of a kind, each with the number of its file."""
        query = f"{_COLUMNS} WHERE kind = '{kind}' ORDER BY number" if kind else f"{_COLUMNS} ORDER BY number"
        for number in self.paths:
            with self.errors_of(number), contextlib.closing(self._connections[number].execute(query)) as cursor:
                for at, found, content, digest in cursor:
                    yield number, _rows.LedgerRow(at, _text(found), _text(content), digest)

    def body(self, number: int, digest: str) -> bytes | None:
        """Return a body from a file of this number or an earlier file; None if it is missing."""
        for at in sorted((at for at in self.paths if at <= number), reverse=True):
            with self.errors_of(at):
                query = "SELECT body FROM ledger_bodies WHERE digest = ?"
                found = self._connections[at].execute(query, (bytes.fromhex(digest),)).fetchone()
            if found is not None:
                return bytes(found[0])
        return None

    @contextlib.contextmanager
    def errors_of(self, number: int) -> Iterator[None]:
        """Raise an error of SQLite as a StoreError that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self.paths[number], error) from error

    def broken(self, number: int) -> str:
        """Return a problem of the structure of a file, which SQLite names; or an empty text."""
        with self.errors_of(number):
            found: bytes = self._connections[number].execute("PRAGMA integrity_check(1)").fetchone()[0]
        return "" if found == b"ok" else f"{self.paths[number].name} is damaged: {found.decode(errors='replace')}"

    def _snapshot(self, number: int, content: dict[str, Any]) -> _rows.Snapshot:
        digest = content.get("digest")
        body = b"" if digest is None else self.body(number, digest)
        if body is None:
            raise LookupError(f"the body {digest} is missing")
        return _rows.snapshot_of(content, body)

    def _decoded(self, number: int, row: _rows.LedgerRow, decode: Callable[[dict[str, Any]], Content]) -> Content:
        try:
            return decode(json.loads(row.content))
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"row {row.number} of {self.paths[number]} is damaged ({error!r:.200}): 'politesse ledger verify' "
                "names the first row that was changed"
            ) from error

    def __repr__(self) -> str:
        return f"<LedgerReader {', '.join(map(str, self.paths.values()))}>"


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return open_for_reading(path, LEDGER)
    except Locked as error:
        raise StoreError(f"{path} cannot be read: another process is just setting it up") from error


def _text(value: object) -> str:
    """Return the text of a column; damaged octets are kept as escapes, so that their hash differs."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)
