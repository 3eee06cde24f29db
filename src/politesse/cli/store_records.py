"""What a record of a store says, as text and as JSON."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from politesse._cache.codec import decode
from politesse._cache.host_memory import decode_state
from politesse._constants import PACE_KEYS
from politesse._text import printable
from politesse.errors import StoreError
from politesse.verdict import utc

if TYPE_CHECKING:
    from politesse._cache.record import Copy, Trouble
    from politesse.stores import StoredRecord


@dataclass(frozen=True, slots=True)
class RecordReport:
    """What a record says.

    Attributes:
        record: as ``--json`` and ``export`` print it; with ``error`` if it cannot be read.
        body: the robots.txt; empty in all other records.
    """

    record: dict[str, Any]
    body: bytes = b""

    @classmethod
    def of(cls, stored: StoredRecord) -> RecordReport:
        r"""Read a record.

        ::

            key       the origin; or "pace/host/NAME", also with "address" or "domain" in place of "host"
            kind      "robots" or "host"
            stored    when it was stored
            error     why it cannot be read; then nothing follows

            robots    copy {result, status, final_url, fetched, fresh_until, etag, last_modified, bytes, fault}, the
                      last answer that settled something, or null; trouble {result, status, final_url, fault, since,
                      last, failures, retry}, the failures in a row since, or null
            host      noted; asked, when it was last asked, or null; under_way; closed_until and closed_by, or null;
                      backoff_s

        Times are ISO 8601 in UTC.
        """
        is_host = stored.key.startswith(PACE_KEYS)
        head = {"key": stored.key, "kind": "host" if is_host else "robots", "stored": utc(stored.stored_wall)}
        try:
            if is_host:
                return cls(head | _host(stored))
            record = decode(stored.record, stored.key)
        except StoreError as error:
            return cls(head | {"error": str(error)})
        body = b"" if record.copy is None else record.copy.body
        return cls(head | {"copy": _copy(record.copy), "trouble": _trouble(record.trouble)}, body)

    @property
    def exported(self) -> dict[str, Any]:
        """The record with the file: ``body`` as text, or ``body_base64`` where it is no UTF-8."""
        if not self.body:
            return self.record
        try:
            return self.record | {"body": self.body.decode()}
        except UnicodeDecodeError:
            return self.record | {"body_base64": base64.b64encode(self.body).decode()}

    def lines(self) -> list[str]:
        """Return the record as text, what comes from a server made printable."""
        record = self.record
        lines = [printable(record["key"]), f"  stored:  {record['stored']}"]
        if "error" in record:
            return [*lines, f"  cannot be read: {printable(record['error'])}"]
        if record["kind"] == "host":
            lines.append(f"  asked:   {'never' if record['asked'] is None else record['asked']}")
            if record["closed_until"] is not None:
                lines.append(f"  closed:  until {record['closed_until']}, by {record['closed_by']}")
            return lines
        if (copy := record["copy"]) is not None:
            fault = copy["fault"] and f", {printable(copy['fault'])}"
            lines.append(f"  answer:  {copy['result']}, status {copy['status']}, {copy['bytes']:,} bytes{fault}")
            lines.append(f"  from:    {printable(copy['final_url'])}")
            lines.append(f"  fetched: {copy['fetched']}, fresh until {copy['fresh_until']}")
        if (trouble := record["trouble"]) is not None:
            lines.append(
                f"  failing: since {trouble['since']}, {trouble['failures']} in a row, {printable(trouble['fault'])}; "
                f"fetched again after {trouble['retry']}"
            )
        return lines


def _host(stored: StoredRecord) -> dict[str, Any]:
    state = decode_state(stored.record, stored.key.removeprefix(PACE_KEYS).partition("/")[2])
    answers = state.answers
    is_closed = answers is not None and answers.closed_s > 0
    return {
        "noted": utc(state.wall),
        "asked": None if state.asked_s is None else utc(state.wall - state.asked_s),
        "under_way": state.under_way,
        "closed_until": utc(state.wall + answers.closed_s) if answers is not None and is_closed else None,
        "closed_by": answers.closed_by.value if answers is not None and is_closed else None,
        "backoff_s": 0.0 if answers is None else answers.backoff_s,
    }


def _copy(copy: Copy | None) -> dict[str, Any] | None:
    if copy is None:
        return None
    return {
        "result": copy.result.value,
        "status": copy.status,
        "final_url": copy.final_url,
        "fetched": utc(copy.confirmed_wall),
        "fresh_until": utc(copy.fresh_until_wall),
        "etag": copy.etag,
        "last_modified": copy.last_modified,
        "bytes": len(copy.body),
        "fault": copy.fault,
    }


def _trouble(trouble: Trouble | None) -> dict[str, Any] | None:
    if trouble is None:
        return None
    return {
        "result": trouble.result.value,
        "status": trouble.status,
        "final_url": trouble.final_url,
        "fault": trouble.fault,
        "since": utc(trouble.since_wall),
        "last": utc(trouble.last_wall),
        "failures": trouble.failures,
        "retry": utc(trouble.retry_wall),
    }
