"""Keeps the URLs of a queue in a file until they have ended, so that a later run goes on with them.

Theory of operation. What happens to a URL is noted as a change, in the order in which it happens:

    Added       it was put
    Moved       it is queued again: as it was, as a further attempt, or as the target of its redirect
    Ended       it was requested, or refused: nothing is left to be done for it

All changes pass through one FIFO, and one write is under way at a time, which commits all that came before it in one
transaction. So the file always holds what was true at some moment of the run. A page puts its links before it ends:
after a crash, either the links are there or the page is requested again. ``put`` waits until its change is committed;
all else is written behind. If a write fails, nothing more is written and the queue hands out nothing more: the file
then holds what was true before, and what was acknowledged is in it.

A row of the file has the number of the queued URL. Numbers grow; a run begins with those that the file holds, and goes
on from the largest. A Moved changes the number of a row, so that an Ended of the old number finds nothing to remove.

The file also holds the digest of each URL that was ever put. A program that is started again puts its first URLs again:
a ``put`` of what an earlier run has put is ignored. An exception is a worker that puts what this run has handed out:
that is a retry. The crawl of a queue with a journal takes these digests as its ``seen``.

The journal is read in batches, by the first call that uses the queue. All other calls wait until everything is read. If
that first call is cancelled, the next call reads the rest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import reprlib
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from politesse._text import counted, described
from politesse.errors import ConfigurationError, StoreError
from politesse.queue.links import DIGEST_OCTETS, digest_of, normal_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.queue.hosts import QueuedUrl

Item = TypeVar("Item")

logger = logging.getLogger("politesse.queue")

_ROWS: Final = 100  # resumed at a time: 2 ms
_DIGESTS: Final = 2_000  # read at a time: 1 ms
_MAX_BEHIND: Final = 10_000  # changes that wait to be written; then no URL is handed out
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))  # json.dumps would make one each time
_MAX_INTEGER: Final = 2**63  # and beyond: no integer of SQLite


class Added(NamedTuple):
    """A URL was put; the fields are those of a row, and the digest of the normal form."""

    number: int
    url: str
    item: str | None
    priority: float
    hops: str | None
    attempt: int
    digest: bytes


class Moved(NamedTuple):
    """A URL is queued again, in place of the one with the number ``old``."""

    number: int
    url: str
    hops: str | None
    attempt: int
    digest: bytes
    old: int


class Ended(NamedTuple):
    """Nothing is left to be done for a URL."""

    number: int


Change = Added | Moved | Ended


class JournalRow(NamedTuple):
    """A URL that an earlier run has left."""

    number: int
    url: str
    item: object
    priority: float
    hops: tuple[str, ...]
    attempt: int


class JournalFile(Protocol):
    """The file behind a journal."""

    name: str

    async def open(self) -> None:
        """Open the file for one journal at a time; raises StoreError."""

    async def rows(self, after: int, limit: int) -> tuple[Sequence[JournalRow], Sequence[str], int | None]:
        """Return the next rows by number, what is wrong with damaged ones, and the last number; None for no more."""

    async def digests(self, after: bytes, limit: int) -> Sequence[bytes]:
        """Return the next digests in their order."""

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Write changes in one transaction; done when it is committed."""

    async def aclose(self) -> None:
        """Close the file."""


class JournalSeen:
    """The URLs that this run and earlier ones have put: the ``seen`` of a crawl.

    Attributes:
        earlier: the digests of those of earlier runs.
    """

    __slots__ = ("_digests", "earlier")

    def __init__(self) -> None:
        self.earlier: set[int] = set()
        self._digests: set[int] = set()

    def __contains__(self, url: object, /) -> bool:
        if not isinstance(url, str):
            return False
        digest = digest_of(url)
        return digest in self._digests or digest in self.earlier

    def add(self, url: str, /) -> None:
        """Add a URL in its normal form; the file gets it with its row."""
        self._digests.add(digest_of(url))


class Journal:
    """The journal of one queue.

    Args:
        file: see JournalFile.
        resume: queues rows of an earlier run; new URLs get numbers larger than the one that it is given.
        fail: called with the StoreError after which nothing more is written.

    Attributes:
        is_open: whether all was read.
        resumed: how many URLs were resumed.
        seen: see JournalSeen.
    """

    def __init__(
        self,
        file: JournalFile,
        resume: Callable[[Sequence[JournalRow], int], None],
        fail: Callable[[StoreError], None],
    ) -> None:
        self._file = file
        self._resume = resume
        self._fail = fail
        self.is_open = False
        self.resumed = 0
        self.seen = JournalSeen()
        self._reading = asyncio.Lock()
        self._is_file_open = False
        self._read_digest: bytes | None = b""
        self._read_number: int | None = 0
        self._last_resumed = 0
        self._handed: set[int] = set()  # of what was resumed
        self._broken_off: dict[int, int] = {}  # numbers of rows that stay, by digest
        self._changes: list[Change] = []
        self._is_writing = False
        self._noted = 0
        self._written = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: StoreError | None = None
        self._closed = False

    async def ready(self) -> None:
        """Read what an earlier run has left, before the first use; wait while many changes are still to be written.

        Raises:
            StoreError: the file cannot be read or written, or another queue uses it.
        """
        if not self.is_open:
            async with self._reading:
                await self._read()
        if len(self._changes) >= _MAX_BEHIND:
            await self.flush()

    async def _read(self) -> None:
        if self.is_open or self._closed:
            return
        if not self._is_file_open:
            await self._file.open()
            self._is_file_open = True
        while self._read_digest is not None:
            digests = await self._file.digests(self._read_digest, _DIGESTS)
            self.seen.earlier.update(int.from_bytes(digest) for digest in digests)
            self._read_digest = digests[-1] if digests else None
        while self._read_number is not None:
            rows, damages, last = await self._file.rows(self._read_number, _ROWS)
            for damage in damages:
                logger.warning("the journal %s has a damaged row, which is left as it is: %s", self._file.name, damage)
            if last is not None:
                self._resume(rows, last)
                self.resumed += len(rows)
                self._last_resumed = last
            self._read_number = last
        self.is_open = True
        self._log_start()

    def _log_start(self) -> None:
        seen = counted(len(self.seen.earlier), "URL")
        if self.resumed:
            resumed = counted(self.resumed, "URL")
            logger.info("the journal %s goes on with %s of the %s that were put", self._file.name, resumed, seen)
        elif self.seen.earlier:
            logger.warning(
                "the journal %s has nothing left of the %s that were put, and ignores them if they are put again; "
                "to request them again, remove the file",
                self._file.name,
                seen,
            )

    def check_open(self) -> None:
        """Raise ConfigurationError if the journal was not read yet: what an earlier run has put is not known."""
        if not self.is_open:
            raise ConfigurationError(
                f"put_nowait before the journal {self._file.name} was read: use `await queue.put(...)`, or open the "
                "queue with `async with`"
            )

    @staticmethod
    def check(item: object, priority: float) -> None:
        """Check that an item and a priority can be kept.

        Raises:
            TypeError: JSON cannot hold the item, or returns another value, as a list for a tuple.
            ValueError: the priority is an integer that takes more than 64 bits.
        """
        if isinstance(priority, int) and not -_MAX_INTEGER <= priority < _MAX_INTEGER:
            raise ValueError(f"priority={priority!r:.100}: with a journal, an integer takes at most 64 bits")
        if item is None:
            return
        try:
            problem = "" if json.loads(_encoded(item)) == item else "JSON returns another value for it"
        except (TypeError, ValueError, RecursionError) as error:
            problem = described(error)
        if problem:
            raise TypeError(
                f"item={reprlib.repr(item):.100}: with a journal, give None, a str, a number, a bool, or a list "
                f"or a dict with str as keys of such values ({problem})"
            )

    def ignores(self, url: str, *, by_worker: bool) -> bool:
        """Return whether a put of ``url`` is one that an earlier run has made.

        Args:
            url: as it was put.
            by_worker: whether the caller has taken a turn: it may request again what this run has handed out.
        """
        if not self.seen.earlier:
            return False
        digest = _digest(url)
        return digest in self.seen.earlier and not (by_worker and digest in self._handed)

    def added(self, queued: QueuedUrl[Item], instead_of: QueuedUrl[Item] | None) -> None:
        """Note that a URL was queued, or queued again in place of one that has not ended."""
        digest = _digest(queued.url)
        octets = digest.to_bytes(DIGEST_OCTETS)
        hops = json.dumps(queued.hops) if queued.hops else None
        if instead_of is not None:
            self._note(Moved(queued.number, queued.url, hops, queued.attempt, octets, instead_of.number))
            return
        item = None if queued.item is None else _encoded(queued.item)
        self._note(Added(queued.number, queued.url, item, queued.priority, hops, queued.attempt, octets))
        broken_off = self._broken_off.pop(digest, None)
        if broken_off is not None:
            self._note(Ended(broken_off))

    def handed_out(self, queued: QueuedUrl[Item]) -> None:
        """Note that a URL was handed out."""
        if self.is_resumed(queued):
            self._handed.add(_digest(queued.url))

    def is_resumed(self, queued: QueuedUrl[Item]) -> bool:
        """Return whether an earlier run has left the URL, and it was not put again since."""
        return queued.number <= self._last_resumed

    def ended(self, queued: QueuedUrl[Item]) -> None:
        """Note that a URL has ended."""
        self._note(Ended(queued.number))

    def broken_off(self, queued: QueuedUrl[Item]) -> None:
        """Note that the turn of a URL was broken off by the end of its task: the next run hands it out again."""
        self._broken_off[_digest(queued.url)] = queued.number

    async def flush(self) -> None:
        """Wait until all that was noted is committed; raises StoreError."""
        noted = self._noted
        while self._written < noted:
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            written = asyncio.get_running_loop().create_future()
            self._waiting.append((noted, written))
            await written

    async def aclose(self) -> None:
        """Write what was noted, and close the file."""
        async with self._reading:
            if self._closed:
                return
            try:
                while self._written < self._noted and self._failure is None:
                    await self.flush()
            except StoreError:
                pass  # logged, and raised by the queue
            finally:
                self._closed = True
                await self._file.aclose()

    def _note(self, change: Change) -> None:
        if self._failure is not None or self._closed:
            return  # the next run repeats what has happened since
        self._changes.append(change)
        self._noted += 1
        if not self._is_writing:
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._write)  # with all that this step notes

    def _write(self) -> None:
        changes, self._changes = self._changes, []
        writing = self._file.write(changes)
        writing.add_done_callback(lambda done: self._wrote(done, len(changes)))

    def _wrote(self, writing: asyncio.Future[None], number: int) -> None:
        error = asyncio.CancelledError("the write was cancelled") if writing.cancelled() else writing.exception()
        if error is None:
            self._written += number
            if self._changes:
                self._write()
            else:
                self._is_writing = False
        else:
            self._stop(error)
        while self._waiting and (self._failure is not None or self._waiting[0][0] <= self._written):
            _, written = self._waiting.popleft()
            if not written.done():
                written.set_result(None)

    def _stop(self, error: BaseException) -> None:
        """Write nothing more, so that no later change is in the file without an earlier one."""
        self._changes.clear()
        cause = str(error) if isinstance(error, StoreError) else described(error)
        self._failure = failure = StoreError(f"the journal {self._file.name} cannot be written: {cause}")
        failure.__cause__ = error
        logger.error("%s; no more URLs are handed out, and a later run goes on", failure)
        self._fail(failure)


def _digest(url: str) -> int:
    return digest_of(normal_form(url))


def _encoded(item: object) -> str:
    return _ENCODER.encode(item)
