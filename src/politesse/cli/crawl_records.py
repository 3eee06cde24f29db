"""``politesse crawl --out``: writes one JSON object for each URL of the crawl, as soon as the URL is finished."""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from politesse._base.text import printable
from politesse.cli.console import STANDARD, OutputWriter, descriptor, write_all
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiohttp import ClientResponse

    from politesse.integrations.warc import WarcFile

_RECENT: Final = 10


class RecordFile:
    """A file of records. Each record is written before the crawl continues, so a killed process loses no record."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def add(self, octets: bytes, /) -> None:
        """Write octets; raises OSError."""
        write_all(self._fd, octets)

    async def make_room(self) -> None:
        """Return at once, because no octets are pending."""

    flush = make_room


class CrawlRecords:
    """Writes and counts the records of ``queue.crawl``, and a record "left" for each remaining URL.

    Args:
        file: gets the records, or None.
        watched: the URLs that ``denied`` may list.

    Attributes:
        counts: the records by outcome.
        denied: the URLs of ``watched`` that were disallowed, given up or refused.
        refusals: maps each host that refuses this crawler to a note about the refusal.
        first_failure: the first URL that has failed, and why; empty if none has.
        recent: the last outcomes, the newest first, each as a word and a URL.
    """

    def __init__(self, file: RecordFile | OutputWriter | None, watched: Iterable[str] = ()) -> None:
        self._file = file
        self._watched = frozenset(watched)
        self._error: OSError | None = None  # the error of an earlier write to the archive
        self.counts: Counter[str] = Counter()
        self.denied: list[str] = []
        self.first_failure: str = ""
        self.refusals: dict[str, str] = {}
        self.recent: deque[tuple[str, str]] = deque(maxlen=_RECENT)

    async def make_room(self) -> None:
        """Wait for a slow reader of the records; raises OSError."""
        if self._file is not None:
            await self._file.make_room()

    async def flush(self) -> None:
        """Wait until everything is written; raises OSError."""
        if self._file is not None:
            await self._file.flush()

    async def add_to(self, archive: WarcFile, response: ClientResponse, body: bytes, *, truncated: bool) -> None:
        """Write a page to the archive. An OSError ends the crawl, like a record that cannot be written."""
        try:
            await archive.add(response, body, truncated=truncated)
        except OSError as error:
            self._error = error
            raise

    def add(self, record: dict[str, Any]) -> None:
        """Write and count a record; raises OSError, including an earlier error of the archive."""
        if self._error is not None:
            raise self._error
        if self._file is not None:
            self._file.add(json.dumps(record).encode() + b"\n")
        url, outcome = record["url"], record["outcome"]
        if outcome == "failed":
            self.first_failure = self.first_failure or f"{printable(url):.200} {record['error']}"
        if outcome == "refused":
            self.refusals[Origin.of(url).pacing_host] = record["note"]
        if "reason" in record and url in self._watched:
            self.denied.append(url)
        self.counts[outcome] += 1
        word = record["status"] if outcome in {"page", "redirect"} else outcome.replace("-", " ")
        self.recent.appendleft((str(word), url))


def archive_of(path: Path | None) -> AbstractAsyncContextManager[WarcFile | None]:
    """Return a context manager that yields the new archive of the pages, or None without a path.

    Raises:
        ConfigurationError: the file exists.
        ImportError: the extra ``warc`` is missing.
        OSError: the file cannot be created.
    """
    if path is None:
        return nullcontext()
    from politesse.integrations.warc import WarcFile  # noqa: PLC0415 - needs an extra

    return WarcFile(path)


@contextmanager
def opened(path: Path | None, *, append: bool = False) -> Generator[RecordFile | OutputWriter | None, None, None]:
    """Open the file of the records, or standard output for ``-``; empty the file unless ``append``. Raises OSError."""
    if path is None:
        yield None
    elif str(path) == STANDARD:
        writer = OutputWriter(descriptor(sys.stdout))
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("ab" if append else "wb", buffering=0) as file:
            yield RecordFile(file.fileno())
