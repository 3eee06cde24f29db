"""The form in which a record is kept: a version, a JSON head, the file itself compressed."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any, Final

from politesse.access.outcome import Copy, Record, Trouble
from politesse.errors import StoreError
from politesse.verdict import AccessResult

_VERSION: Final = b"politesse/1 "
_HEAD_LENGTH_BYTES: Final = 4
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024


def encode(record: Record) -> bytes:
    """Return ``record`` as octets."""
    copy = None if record.copy is None else asdict(record.copy)
    body = b"" if copy is None else copy.pop("body")
    trouble = None if record.trouble is None else asdict(record.trouble)
    head = json.dumps({"copy": copy, "trouble": trouble, "body_bytes": len(body)}).encode()
    return _VERSION + len(head).to_bytes(_HEAD_LENGTH_BYTES, "big") + head + zlib.compress(body)


def decode(data: bytes) -> Record:
    """Return the record that ``data`` holds; raises StoreError for what is damaged or of another version."""
    if not data.startswith(_VERSION):
        raise StoreError(f"a stored record starts with {data[:16]!r}, not with {_VERSION!r}: another version wrote it")
    start = len(_VERSION) + _HEAD_LENGTH_BYTES
    end = start + int.from_bytes(data[len(_VERSION) : start], "big")
    try:
        head = json.loads(data[start:end])
        body = zlib.decompressobj().decompress(data[end:], min(head["body_bytes"], _MAX_BODY_BYTES) + 1)
        if len(body) != head["body_bytes"]:
            raise StoreError(f"a stored record holds {len(body)} bytes of a body of {head['body_bytes']}")
        return Record(_copy(head["copy"], body), _trouble(head["trouble"]))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r}") from error


def _copy(fields: dict[str, Any] | None, body: bytes) -> Copy | None:
    if fields is None:
        return None
    return Copy(**fields | {"result": AccessResult(fields["result"]), "body": body})


def _trouble(fields: dict[str, Any] | None) -> Trouble | None:
    return None if fields is None else Trouble(**fields | {"result": AccessResult(fields["result"])})
