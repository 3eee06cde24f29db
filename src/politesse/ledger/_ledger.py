"""A ledger, as a gatekeeper and a user see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._base.checks import check_types
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError
from politesse.ledger._options import LedgerOptions
from politesse.ledger._rows import EndedTurn, Snapshot
from politesse.ledger._writer import Writer
from politesse.origin import Origin
from politesse.stores._sqlite_file import absolute

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from politesse.errors import StoreError
    from politesse.verdict import Source, Verdict

_HEADERS: Final = (
    *("age", "cache-control", "content-type", "content-usage", "date", "etag", "expires", "last-modified"),
    "retry-after",
)
_MAX_HEADER: Final = 1_000


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """A snapshot of the counters of a ledger.

    >>> LedgerStatistics(written=10, queued=0, dropped=0).written
    10

    Attributes:
        written: how many decisions, turns and files have been written, or left out by the sample.
        queued: how many wait to be written.
        dropped: how many were dropped because too many waited, or because they could not be written before the close.
    """

    written: int
    queued: int
    dropped: int


class Ledger:
    """A record of decisions, turns and files; see the module ``politesse.ledger``. A gatekeeper writes and closes it.

    >>> import asyncio, pathlib, tempfile
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def crawl(ledger):
    ...     async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher(), ledger=ledger) as gate:
    ...         await gate.check("https://example.com/")
    ...         await ledger.flush()
    ...         return ledger.statistics()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(crawl(Ledger(pathlib.Path(folder, "ledger.db"))))
    LedgerStatistics(written=2, queued=0, dropped=0)

    The constructor checks an existing file. The first row creates the file, readable for its owner only. As for a
    SqliteStore, the file must be on a disk of this machine, and a power failure may lose the last rows. Several
    gatekeepers and processes may write to one path, each with a Ledger of its own. A ledger that was used before a fork
    records nothing in the child.

    Args:
        path: the path of the first file, in a folder that exists.
        options: see LedgerOptions.
        clock: its wall clock dates openings, seals and closes.

    Attributes:
        path: the absolute path of the first file.
        options: see LedgerOptions.
        record: records a verdict; never waits, and any thread may call it.

    Raises:
        ConfigurationError: the file cannot be used: it is no ledger, read-only or of a newer politesse, or its folder
            is missing.
    """

    def __init__(
        self, path: str | os.PathLike[str], options: LedgerOptions | None = None, *, clock: Clock | None = None
    ) -> None:
        check_types({"options": (options, LedgerOptions)})
        self.options: Final = options or LedgerOptions()
        try:
            self.path: Final = absolute(path)
            self._writer = Writer(self.path, self.options, clock or SystemClock())
        except ConfigurationError as error:
            raise type(error)(f"ledger: {error}") from error
        self.record: Callable[[Verdict], None] = self._writer.record

    def report_to(self, report: Callable[[StoreError], None]) -> None:
        """Call ``report``, in the thread of the ledger, when writing begins to fail."""
        self._writer.report = report

    def record_file(self, source: Source, body: bytes, headers: Mapping[str, str], wall: float) -> None:
        """Record a copy of a file that begins to serve, or the lack of the file; never waits."""
        relevant = {name: value[:_MAX_HEADER] for name in _HEADERS if (value := headers.get(name))}
        facts = source.result, source.status, source.final_url, source.fetched_wall
        url = source.robots_url
        self._writer.record_file(Snapshot(Origin.of(url), url, *facts, "", body, relevant, source.fault, wall))

    def record_turn(self, verdict: Verdict, started_wall: float, ended_wall: float, status: int | None) -> None:
        """Record a turn that has ended; never waits."""
        self._writer.record(EndedTurn(verdict, started_wall, ended_wall, status))

    async def flush(self) -> None:
        """Wait until all rows that were recorded before are in the file; they then survive even ``kill -9``.

        Raises:
            StoreError: the rows cannot be written now; they are written later if possible. Or the ledger is closed.
        """
        await self._writer.flush()

    async def aclose(self) -> None:
        """Write the rows that wait, and close the file. Rows that cannot be written now are reported and counted."""
        await self._writer.aclose()

    def statistics(self) -> LedgerStatistics:
        """Return a snapshot of the counters."""
        writer = self._writer
        return LedgerStatistics(writer.written, writer.queued, writer.dropped)

    def __repr__(self) -> str:
        return f"<Ledger {str(self.path)!r}: {self.statistics()}>"
