"""The rows of a ledger: their content as canonical JSON, and the hash that chains them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from politesse.origin import MAX_URL_LENGTH, Origin
from politesse.usage.model import Preference, Purpose
from politesse.verdict import AccessResult, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN, OPEN, CLOSE, SEAL, DROPPED = "begin", "open", "close", "seal", "dropped"
SNAPSHOT, DECISION, TURN = "snapshot", "decision", "turn"

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


Record: TypeAlias = Snapshot | RecordedDecision | RecordedTurn
_KINDS: Final[dict[type[Record], str]] = {Snapshot: SNAPSHOT, RecordedDecision: DECISION, RecordedTurn: TURN}


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
