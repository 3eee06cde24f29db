"""Reads a ledger, also while a crawler writes to it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from politesse.errors import StoreError
from politesse.ledger import _rows
from politesse.ledger._file import members, opened
from politesse.stores._sqlite_opening import sqlite3, store_error

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from politesse.origin import Origin
    from politesse.stores._sqlite_opening import OpenFile

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

    def snapshots(self, origin: Origin | None = None, *, path: str | None = "/robots.txt") -> Iterator[_rows.Snapshot]:
        """Yield the copies of files in the order in which the gate began to use them.

        Args:
            origin: only the copies of this origin; by default, of all origins.
            path: only the copies of files at this path, or None for all files.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        for found in self._records(_rows.SNAPSHOT, self._snapshot):
            if origin in {None, found.origin} and path in {None, found.url[len(found.origin.text) :]}:
                yield found

    def decisions(self) -> Iterator[_rows.RecordedDecision]:
        """Yield the decisions in the order in which they were recorded.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return self._records(_rows.DECISION, lambda content, _: _rows.read_decision(content))

    def turns(self) -> Iterator[_rows.RecordedTurn]:
        """Yield the turns in the order in which they ended.

        Raises:
            StoreError: a file cannot be read, or is damaged.
        """
        return self._records(_rows.TURN, lambda content, _: _rows.RecordedTurn(**content))

    def rows(self, kind: str = "") -> Iterator[tuple[int, _rows.LedgerRow]]:
        """Yield the rows of all files, or only the rows of one kind, each with the number of its file."""
        for number in self.paths:
            for row in self._query(number, _ALL, kind, kind):
                yield number, _rows.LedgerRow(*row)

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

    def _snapshot(self, content: dict[str, Any], number: int) -> _rows.Snapshot:
        digest = content.get("digest")
        body = b"" if digest is None else self.body(number, digest)
        if body is None:
            raise LookupError(f"the body {digest} is missing")
        return _rows.read_snapshot(content, body)

    def _records(self, kind: str, read: Callable[[dict[str, Any], int], Record]) -> Iterator[Record]:
        for number, row in self.rows(kind):
            with self.blaming(number, row.number):
                found = read(_rows.content_read(row), number)
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
