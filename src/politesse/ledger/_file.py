"""The files of a ledger: their names, their rows as canonical JSON, and the hash that chains the rows.

``ledger.db`` is followed by ``ledger.0002.db``, ``ledger.0003.db`` and so on. No file is ever renamed.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass, field
from glob import escape
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from politesse.errors import StoreError
from politesse.origin import MAX_URL_LENGTH, Origin
from politesse.stores._sqlite_file import Locked, OpenFile, Part, _Foreign, _Unwritten, open_for_reading, sqlite3
from politesse.usage.model import Preference, Purpose
from politesse.verdict import AccessResult, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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


def content_of(fields: Mapping[str, object]) -> str:
    """Return the content of a row, without the fields that are None, an empty text or an empty mapping."""
    return _encode({name: value for name, value in fields.items() if value not in _ABSENT})


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


def row_of(record: Record) -> tuple[str, dict[str, object]]:
    """Return the kind and the fields of the row of a record; the body of a snapshot is kept elsewhere."""
    return _KINDS[type(record)], {
        name: getattr(record, name) for name in record.__slots__ if name not in {"origin", "body"}
    }


def decision_of(verdict: Verdict) -> RecordedDecision:
    """Return the record of a decision."""
    source, rule = verdict.source, verdict.rule
    line, text = (None, "") if rule is None else (rule.line, f"{rule!s:.200}")
    answer = verdict.url[:MAX_URL_LENGTH], verdict.agent, verdict.allowed, verdict.reason, verdict.decided_wall
    copy = verdict.digest, None if source is None else source.fetched_wall
    return RecordedDecision(*answer, line, text, *copy, verdict.note, _stated(verdict))


def turn_of(verdict: Verdict, started_wall: float, ended_wall: float, status: int | None) -> RecordedTurn:
    """Return the record of a turn."""
    request = verdict.url, Origin.of(verdict.url).pacing_host, verdict.agent, started_wall, ended_wall, status
    exempt = verdict.note if verdict.reason is Reason.POLICY_EXEMPT else ""
    return RecordedTurn(*request, exempt, verdict.digest, _stated(verdict))


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


def read_snapshot(content: Mapping[str, Any], body: bytes) -> Snapshot:
    """Return the snapshot of a row's content; raises LookupError, TypeError or ValueError if it is damaged."""
    known = {**content, "origin": Origin.of(content["url"]), "result": AccessResult(content["result"])}
    return Snapshot(**{"status": None, **known, "body": body})


def read_decision(content: Mapping[str, Any]) -> RecordedDecision:
    """Return the decision of a row's content; raises the same errors as ``read_snapshot``."""
    return RecordedDecision(**{**content, "reason": Reason(content["reason"])})


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
