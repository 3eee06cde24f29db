"""A ledger: its files, the writer that a gatekeeper feeds, the reader, and the check of its chain.

The files. ``ledger.db`` is followed by ``ledger.0002.db``, ``ledger.0003.db`` and so on. No file is ever renamed. Rows
are canonical JSON. Each row has the SHA-256 of the hash of the previous row, and of its own number, kind and content.
The first row of a file continues from the seal of the previous file. A snapshot names the SHA-256 of its body. So the
check finds the first row that was altered, removed, inserted or swapped, an altered or missing body, and a missing file
between two other files.

The chain does not prove that the end is complete: a person with write access can cut the last rows, or build the whole
chain anew. Note the last hash elsewhere from time to time, for example in a mail or a log on another machine. If a
ledger contains a noted hash, no row up to that hash has been changed.

The writer. A caller appends an item to a queue and goes on. The threads of an SqliteFile write the items::

    idle         the first item starts the gathering
    gathering    more items come for 20 ms; the thread that reads the file waits, and holds no lock
    writing      one transaction makes rows of all items that wait, up to a limit; then again, until the queue is empty
    failed       the rows are kept, and written again after a second; the first of consecutive failures is reported

``flush`` and ``aclose`` do not wait for more items, but write at once. If the queue is full, an item is dropped and
counted; the count becomes a row of the chain. Several processes may write to one ledger: each transaction holds
SQLite's lock, and reads the end of the chain first. If the end is a seal, the next file of the series begins. A process
that is killed at that moment may leave the next file empty. A later process leaves it out, and so begins with the seal
in the previous file.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections import deque
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from hashlib import sha256
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar
from weakref import WeakMethod
from zlib import crc32

from politesse._base.checks import check_ranges, check_types, checked_names
from politesse._base.text import described
from politesse._log import GATE
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError, StoreError
from politesse.origin import MAX_URL_LENGTH, Origin
from politesse.stores._sqlite_file import (
    Locked,
    OpenFile,
    Part,
    SqliteFile,
    _Foreign,
    _Unwritten,
    absolute,
    open_for_reading,
    sqlite3,
    store_error,
)
from politesse.usage.model import Preference, Purpose
from politesse.verdict import AccessResult, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from politesse.verdict import Source

    Commit: TypeAlias = Callable[[], None]
    """Notes a transaction in the ledger, after its commit."""

Read = TypeVar("Read")

BEGIN, OPEN, CLOSE, SEAL, DROPPED = "begin", "open", "close", "seal", "dropped"
SNAPSHOT, DECISION, TURN, NOTE = "snapshot", "decision", "turn", "note"

START: Final = bytes(32)
"""Stands for the hash before the first row of a series."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class LedgerRow(NamedTuple):
    """A row as it is stored.

    Attributes:
        number: the number of the row in its file, from 1.
        kind: the kind of the row.
        content: JSON in ASCII: an object without blanks.
        hash: see ``hash_of``.
    """

    number: int
    kind: str
    content: str
    hash: bytes


def hash_of(previous: bytes, number: int, kind: str, content: str) -> bytes:
    """Return the SHA-256 of the previous row's hash and of ``NUMBER KIND CONTENT`` in ASCII."""
    return sha256(b"%b%d %b %b" % (previous, number, kind.encode(), content.encode())).digest()


_ABSENT: Final[tuple[object, ...]] = (None, "", {})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a file, recorded when a gate began to use the copy; or a record that there is no file.

    >>> from politesse import Origin
    >>> url = "https://example.com/robots.txt"
    >>> Snapshot(Origin.of(url), url, AccessResult.UNAVAILABLE, 404, url, 1_800_000_000.0).body
    b''

    Attributes:
        origin: the origin of the file.
        url: the URL of the file.
        result: the result of the fetch.
        status: the HTTP status, or None without an answer.
        final_url: the URL that answered, after redirects.
        fetched_wall: the Unix time of the answer, or of the 304 that last confirmed it.
        digest: the SHA-256 of the body in hexadecimal digits; empty if there is no file.
        body: the file, decoded from its content encoding; empty if there is no file.
        headers: the relevant headers of the answer, names in lower case. A copy from a store has fewer headers.
        fault: the failure, as a phrase; else empty. With a SUCCESSFUL result, the reason why an older copy is used.
        recorded_wall: the Unix time at which the process that recorded the copy began to use it.
    """

    origin: Origin
    url: str
    result: AccessResult
    status: int | None
    final_url: str
    fetched_wall: float
    digest: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    recorded_wall: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision: may this URL be requested?

    >>> RecordedDecision("https://example.com/a", "examplebot", True, Reason.NO_RULE, 1_800_000_000.0).line is None
    True

    Attributes:
        url: the URL in question.
        agent: the product tokens that selected the groups.
        allowed: the answer.
        reason: the reason.
        decided_wall: the Unix time of the decision.
        line: the number of the line that decided, or None.
        rule: the first 200 characters of that line, or empty; the copy has the rest.
        digest: the digest of the copy on which the decision rests, as in Snapshot; empty without a file.
        fetched_wall: the ``fetched_wall`` of that copy or failure, or None if no copy was needed.
        note: the reason of a host policy, of an exemption or of a refusal, or empty.
        usage: the preferences of that copy about the use of the page; maps purposes, such as ``"ai-train"``, to
            ``"allowed"`` or ``"disallowed"``.
    """

    url: str
    agent: str
    allowed: bool
    reason: Reason
    decided_wall: float
    line: int | None = None
    rule: str = ""
    digest: str = ""
    fetched_wall: float | None = None
    note: str = ""
    usage: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn that was used: one request.

    >>> RecordedTurn("https://example.com/a", "example.com", "examplebot", 1_800_000_000.0, 1_800_000_000.5, 200).status
    200

    Attributes:
        url: the URL that was requested.
        host: the paced host.
        agent: the product tokens of the agent.
        started_wall: the Unix time at which the turn was granted.
        ended_wall: the Unix time at which the turn ended.
        status: the HTTP status that was observed, or None.
        exempt: the reason of an exemption from robots.txt, or empty.
        digest: see RecordedDecision.
        usage: see RecordedDecision.
    """

    url: str
    host: str
    agent: str
    started_wall: float
    ended_wall: float
    status: int | None = None
    exempt: str = ""
    digest: str = ""
    usage: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedNote:
    """An event that is neither a decision nor a turn: what an operator has ordered, and why.

    >>> RecordedNote("example.com: denied, because its operator has asked us", 1_800_000_000.0).noted_wall
    1800000000.0

    Attributes:
        text: the note.
        noted_wall: the Unix time of the note.
    """

    text: str
    noted_wall: float


Record: TypeAlias = Snapshot | RecordedDecision | RecordedTurn | RecordedNote
_KINDS: Final[dict[type[Record], str]] = {
    Snapshot: SNAPSHOT,
    RecordedDecision: DECISION,
    RecordedTurn: TURN,
    RecordedNote: NOTE,
}


def decision_of(verdict: Verdict) -> RecordedDecision:
    """Return the record of a decision."""
    source, rule = verdict.source, verdict.rule
    line, text = (None, "") if rule is None else (rule.line, f"{rule!s:.200}")
    answer = verdict.url[:MAX_URL_LENGTH], verdict.agent, verdict.allowed, verdict.reason, verdict.decided_wall
    copy = verdict.digest, None if source is None else source.fetched_wall
    return RecordedDecision(*answer, line, text, *copy, verdict.note, _stated(verdict))


def _stated(verdict: Verdict) -> dict[str, str]:
    """Map each purpose to the preference that the copy states for the URL; empty if the URL may not be requested."""
    usage = None if verdict.site_usage is None else verdict.usage
    found = {} if usage is None or not usage.applied else {one.value: usage.preference(one) for one in Purpose}
    return {purpose: preference.value for purpose, preference in found.items() if preference is not Preference.UNSTATED}


def content_read(row: LedgerRow) -> dict[str, Any]:
    """Return the content of a row; raises ValueError, TypeError or RecursionError if it is damaged."""
    content: dict[str, Any] = json.loads(row.content)
    for name, value in content.items():
        is_number = name.endswith("_wall") or name in {"allowed", "line", "status"}
        wanted = (int, float) if is_number else dict if name in {"headers", "usage"} else str
        if row.kind in _KINDS.values() and not isinstance(value, wanted):
            raise TypeError(f"{name} is {value!r:.100}")
    return content


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
        """Add a row without the fields that are None, an empty text or an empty mapping.

        Call ``write`` afterwards, because some added rows may not have been written.
        """
        self.number += 1
        content = _encode({name: value for name, value in fields.items() if value not in _ABSENT})
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
        fields = {name: getattr(record, name) for name in record.__slots__ if name not in {"origin", "body"}}
        if isinstance(record, Snapshot) and record.result is AccessResult.SUCCESSFUL:
            digest = sha256(record.body)
            fields["digest"] = digest.hexdigest()
            kept = digest.digest(), record.body
            self._connection.execute("INSERT OR IGNORE INTO ledger_bodies VALUES (?, ?)", kept)
        self.add(_KINDS[type(record)], fields)


def begin_of(content: str) -> tuple[bytes, float]:
    """Return the hash from which a file continues, and the time of its first row; START and inf for a damaged row."""
    try:
        first = json.loads(content)
        return bytes.fromhex(first["previous"]), float(first["wall"])
    except (LookupError, TypeError, ValueError):
        return START, inf


_HEADERS: Final = (
    *("age", "cache-control", "content-type", "content-usage", "date", "etag", "expires", "last-modified"),
    "retry-after",
)
_MAX_HEADER: Final = 1_000
_MAX_BODIES: Final = 64 * 1024 * 1024  # how many bytes of files may wait
_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_MAX_TOGETHER: Final = 1_000  # limits the rows of a transaction, because other processes wait for its end
_EACH: Final = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Options of a ledger.

    >>> LedgerOptions(sample=0.01, files=["/llms.txt"]).max_file_bytes
    1073741824

    Attributes:
        sample: the share of the URLs whose allowed decisions and turns are recorded, 0 to 1. Denials and exemptions are
            always recorded. A checksum of the URL decides, so that the ledger has both the decision and the turn for a
            URL, or neither.
        files: the paths of files to record beside robots.txt, such as ``/llms.txt``. The gate requests each of them
            like a page, when it gets the robots.txt of an origin, and at most once a day. Files that the gate needs
            itself, such as tdmrep.json, are always recorded.
        max_queued_rows: how many rows may wait to be written; further rows are dropped and counted. A file is also
            dropped and counted if the waiting files would exceed 64 MiB.
        max_file_bytes: the size in bytes at which a file of the ledger is sealed, and the next file begins.
        max_file_age_s: the age in seconds at which a file of the ledger is sealed; infinite by default.

    Raises:
        ConfigurationError: a number is out of its range, or a path does not begin with ``/``.
    """

    sample: float = 1.0
    files: tuple[str, ...] | list[str] = ()
    max_queued_rows: int = 10_000
    max_file_bytes: int = 1024 * 1024 * 1024
    max_file_age_s: float = inf

    def __post_init__(self) -> None:
        ranges = {"sample": (0.0, 1.0), "max_queued_rows": (1, inf), "max_file_bytes": (1, inf)}
        check_ranges(self, {**ranges, "max_file_age_s": (1.0, inf)})
        for path in checked_names("files", self.files):
            if not path.startswith("/"):
                raise ConfigurationError(f"files={path!r:.100}: give paths, as '/llms.txt'")


class Ledger:
    """A record of decisions, turns and files; see the module ``politesse.ledger``. A gatekeeper writes and closes it.

    >>> import asyncio, pathlib, tempfile
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def crawl(ledger):
    ...     async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher(), ledger=ledger) as gate:
    ...         await gate.check("https://example.com/")
    ...         await ledger.flush()
    ...         return ledger.written, ledger.queued, ledger.dropped
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(crawl(Ledger(pathlib.Path(folder, "ledger.db"))))
    (2, 0, 0)

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
        report: called with the error, in a thread of the ledger, when writing begins to fail; set by the gatekeeper.
        written: how many decisions, turns and files have been written, or were left out because of ``sample``.
        dropped: how many items were dropped, because too many waited, or they could not be written before the close.

    Raises:
        ConfigurationError: the file cannot be used: it is not a ledger, it is read-only, a newer politesse wrote it, or
            its folder is missing.
    """

    def __init__(
        self, path: str | os.PathLike[str], options: LedgerOptions | None = None, *, clock: Clock | None = None
    ) -> None:
        check_types({"options": (options, LedgerOptions)})
        self.options: Final = options or LedgerOptions()
        try:
            self.path: Final = absolute(path)
            found = members(self.path)
            self._number = max(found, default=1)
            self._file = SqliteFile(member(self.path, self._number), [LEDGER])
        except ConfigurationError as error:
            raise type(error)(f"ledger: {error}") from error
        except StoreError as error:
            raise ConfigurationError(f"ledger: {error}") from error
        if 1 not in found and self.path.exists():
            raise ConfigurationError(f"ledger: {self.path} continues another file: give the first file of the ledger")
        self.report: Callable[[StoreError], None] | None = None
        self.written: int = 0
        self.dropped: int = 0
        self._clock = clock or SystemClock()
        self._queue: deque[Verdict | Record] = deque()
        self._limit = self.options.max_queued_rows
        self._room = 0  # the limit of the queue while a write is scheduled, otherwise 0
        self._lock = threading.RLock()  # reentrant, because the garbage collector may end a turn at any moment
        # the items that were taken from the queue, and are not yet committed
        self._pending: list[Verdict | Record] = []
        self._body_bytes = 0  # the size of the files that wait
        self._flight: Future[Commit] | None = None  # the transaction under way
        self._failure: StoreError | None = None  # the failure of the last transaction
        self._problem = ""  # the reason why all items are dropped
        self._dropped_before = 0  # how many dropped items the chain has counted
        self._is_watching = self._is_closing = self._has_told = self._has_opened = self._has_closed = False
        self._name = token_hex(8)
        # the hash from which the file continues: known of the first file, and after the move from the previous file
        self._previous = START if self._number == 1 else None

    @property
    def queued(self) -> int:
        """How many decisions, turns and files wait to be written."""
        with self._lock:
            return len(self._queue) + len(self._pending)

    def record(self, item: Verdict | Record) -> None:
        """Record a verdict; never waits, and any thread may call it."""
        queue = self._queue
        if len(queue) < self._room:  # called for each decision; usually this is the only comparison
            queue.append(item)
        elif len(queue) < self._limit:
            queue.append(item)
            self._write_soon(_GATHER_S)
        else:
            self._drop(1)

    def record_file(self, source: Source, body: bytes, headers: Mapping[str, str], wall: float) -> None:
        """Record a copy of a file that the gate begins to use, or that the file is missing; never waits."""
        with self._lock:
            if self._body_bytes + len(body) > _MAX_BODIES or len(self._queue) >= self._limit:
                self._drop(1)
                return
            self._body_bytes += len(body)
        relevant = {name: value[:_MAX_HEADER] for name in _HEADERS if (value := headers.get(name))}
        facts = source.result, source.status, source.final_url, source.fetched_wall
        url = source.robots_url
        self.record(Snapshot(Origin.of(url), url, *facts, "", body, relevant, source.fault, wall))

    def record_turn(self, verdict: Verdict, started_wall: float, ended_wall: float, status: int | None) -> None:
        """Record a turn that has ended; never waits."""
        request = verdict.url, Origin.of(verdict.url).pacing_host, verdict.agent, started_wall, ended_wall, status
        exempt = verdict.note if verdict.reason is Reason.POLICY_EXEMPT else ""
        self.record(RecordedTurn(*request, exempt, verdict.digest, _stated(verdict)))

    def note(self, text: str, wall: float) -> None:
        """Record a note of this Unix time; never waits."""
        self.record(RecordedNote(text, wall))

    async def flush(self) -> None:
        """Wait until all rows that were recorded before are in the file; they then survive even ``kill -9``.

        Raises:
            StoreError: the ledger is closed, or the rows cannot be written now; they are written later if possible.
        """
        with self._lock:
            goal = self.written + self.queued
        while self.written < goal or self._problem:
            await self._attempt()

    async def aclose(self) -> None:
        """Write the rows that wait, and close the file. Rows that cannot be written now are reported and counted."""
        self._limit = self._room = 0
        self._is_closing = True
        is_used = self._has_opened or self.queued > 0
        with suppress(StoreError):  # the error was reported
            while is_used and not (self._has_closed or self._problem):
                await self._attempt()
        self._problem = self._problem or "is closed"
        self._drop(self.queued)
        self._queue.clear()
        self._pending.clear()
        await self._file.aclose()

    def __repr__(self) -> str:
        return f"<Ledger {str(self.path)!r}: written={self.written}, queued={self.queued}, dropped={self.dropped}>"

    async def _attempt(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._write_now()))
        if self._failure is not None:
            raise self._failure

    def _write_soon(self, delay_s: float) -> None:
        self._room = self._limit
        if not self._is_watching:
            self._is_watching = True
            os.register_at_fork(after_in_child=partial(_refuse_in_child, WeakMethod(self._refuse)))
        try:
            waiting = self._file.submit(_pause, delay_s, writes=False)
        except StoreError as error:  # the system has no threads left
            self._refuse(f"records nothing: {error}")
        else:
            waiting.add_done_callback(self._write_later)

    def _write_later(self, _: object) -> None:
        if not self._is_closing:
            with suppress(StoreError):  # another thread is just closing the ledger
                self._write_now()

    def _write_now(self) -> Future[Commit]:
        """Return the transaction under way, or begin one."""
        with self._lock:
            if self._problem:
                raise StoreError(f"the ledger {self.path} {self._problem}")
            if self._flight is None:
                self._room = self._limit
                self._flight = flight = self._file.submit(self._write, None)
                flight.add_done_callback(self._wrote)
                return flight
            return self._flight

    def _wrote(self, flight: Future[Commit]) -> None:
        """Record the result of a transaction, and schedule the next transaction if items wait."""
        try:
            with self._lock:
                self._flight = None
                flight.result()()
        except BaseException as error:  # noqa: BLE001 - reported
            failure = error if isinstance(error, StoreError) else StoreError(f"{self.path}: {described(error)}")
            if self._failure is None and self.report is not None:
                self.report(failure)
            self._failure = failure
            if not self._is_closing:
                self._write_soon(_RETRY_S)
            return
        if not self._has_closed:
            self._room = 0  # so the next item schedules a write
            if self._queue or self._pending:
                self._write_later(None)

    def _write(self, connection: sqlite3.Connection, _: None) -> Commit:
        """Write the pending items, and the rows about this writer and this file; return the work after the commit."""
        chain, wall, writer = Chain(connection), self._clock.wall(), {"writer": self._name}
        self._continue(chain, wall)
        if chain.kind == SEAL:
            return partial(self._move, chain.hash)
        with self._lock:
            while self._queue and len(self._pending) < _MAX_TOGETHER:
                self._pending.append(self._queue.popleft())
        if not self._has_opened:
            chain.add(OPEN, {"wall": wall, **writer, "process": os.getpid()})
        for item in self._pending:
            if self._is_kept(item):
                chain.add_record(decision_of(item) if isinstance(item, Verdict) else item)
        dropped, is_last = self.dropped, self._is_closing and not self._queue
        if dropped > self._dropped_before:
            chain.add(DROPPED, {"wall": wall, **writer, "rows": dropped - self._dropped_before})
            self._tell("drops rows, because too many wait to be written: it counts them")
        if is_last:
            chain.add(CLOSE, {"wall": wall, **writer, "dropped": dropped})
        [size] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
        if size >= self.options.max_file_bytes or wall - chain.began_wall >= self.options.max_file_age_s:
            chain.add(SEAL, {"wall": wall, "next": member(self.path, self._number + 1).name})
        chain.write()
        return partial(self._commit, dropped, is_last=is_last)

    def _continue(self, chain: Chain, wall: float) -> None:
        """Begin an empty file; raises StoreError for the file of another ledger."""
        if chain.previous is None:
            chain.begin(self._previous or START, wall)
        elif self._previous not in {None, chain.previous} or (chain.previous == START and self._number > 1):
            path = self._file.path
            raise StoreError(f"{path} belongs to another ledger, and is left as it is: move it, or give another path")

    def _move(self, previous: bytes) -> None:
        """Go on with the next file."""
        self._file = SqliteFile(member(self.path, self._number + 1), [LEDGER])
        self._number, self._previous = self._number + 1, previous

    def _commit(self, dropped: int, *, is_last: bool) -> None:
        self._failure, self._has_opened, self._has_closed = None, True, is_last
        self._dropped_before = dropped
        self.written += len(self._pending)
        self._body_bytes -= sum([len(item.body) for item in self._pending if isinstance(item, Snapshot)])
        self._pending.clear()

    def _is_kept(self, item: Verdict | Record) -> bool:
        """Return whether the sample includes an item."""
        if isinstance(item, RecordedNote):
            return True
        if isinstance(item, Verdict):
            is_sampled = item.match.allowed and item.match.reason is not Reason.POLICY_EXEMPT
        else:
            is_sampled = isinstance(item, RecordedTurn) and not item.exempt
        sample = self.options.sample
        return not is_sampled or sample >= 1.0 or crc32(item.url.encode(errors="surrogatepass")) < sample * _EACH

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items
        if items and self._problem and not self._is_closing:
            self._tell(self._problem)

    def _tell(self, problem: str) -> None:
        if not self._has_told:
            self._has_told = True
            GATE.warning("The ledger %s %s", self.path, problem)

    def _refuse(self, problem: str) -> None:
        """Drop all items from now on."""
        self._limit = self._room = 0
        self._problem, self._lock = problem, threading.RLock()
        self._queue.clear()


def _pause(_: sqlite3.Connection, seconds: float) -> None:
    time.sleep(seconds)


def _refuse_in_child(refuse: WeakMethod[Callable[[str], None]]) -> None:
    method = refuse()
    if method is not None:
        method("was opened before a fork, so this process records nothing: make the gatekeeper after the fork")


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
        return self._records(
            DECISION, lambda content, _: RecordedDecision(**{**content, "reason": Reason(content["reason"])})
        )

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
        known = {**content, "origin": Origin.of(content["url"]), "result": AccessResult(content["result"])}
        return Snapshot(**{"status": None, **known, "body": body})

    def _records(self, kind: str, read: Callable[[dict[str, Any], int], Read]) -> Iterator[Read]:
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
