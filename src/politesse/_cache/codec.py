"""The form in which a record is kept: a version, a digest, a JSON head, the file itself compressed."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import fields
from typing import Any, Final

from politesse._cache.record import Copy, Moment, Record, Trouble
from politesse.errors import StoreError
from politesse.ports import MAX_BODY_BYTES
from politesse.verdict import AccessResult

_VERSION: Final = b"politesse/1 "
_DIGEST_BYTES: Final = 16
_HEAD_LENGTH_BYTES: Final = 4


def encode(record: Record) -> bytes:
    """Return ``record`` as octets."""
    copy, trouble, moment = _fields(record.copy), _fields(record.trouble), _fields(record.moment)
    body = b"" if record.copy is None else record.copy.body
    if copy is not None:
        del copy["body"]
    head = json.dumps({"copy": copy, "trouble": trouble, "moment": moment, "body_bytes": len(body)}).encode()
    content = len(head).to_bytes(_HEAD_LENGTH_BYTES, "big") + head + zlib.compress(body, zlib.Z_BEST_SPEED)
    return _VERSION + _digest(content) + content


def decode(data: bytes) -> Record:
    """Return the record that ``data`` holds; raises StoreError if it is damaged or of another version."""
    if not data.startswith(_VERSION):
        raise StoreError(f"a stored record starts with {data[:16]!r}, not with {_VERSION!r}: another version wrote it")
    digest, content = data[len(_VERSION) :][:_DIGEST_BYTES], data[len(_VERSION) + _DIGEST_BYTES :]
    if digest != _digest(content):
        raise StoreError("a stored record is damaged: its digest is another")
    end = _HEAD_LENGTH_BYTES + int.from_bytes(content[:_HEAD_LENGTH_BYTES], "big")
    try:
        head = json.loads(content[_HEAD_LENGTH_BYTES:end])
        copy = _copy(head["copy"], _body(content[end:], head["body_bytes"]))
        trouble, moment = head["trouble"], head.get("moment")  # records of older versions have no moment
        return Record(copy, _trouble(trouble), None if moment is None else Moment(**moment))
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r:.200}") from error


def _fields(part: Copy | Trouble | Moment | None) -> dict[str, object] | None:
    """Return the fields of a part, which holds plain values: ``asdict`` would copy each of them."""
    return None if part is None else {field.name: getattr(part, field.name) for field in fields(part)}


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _body(compressed: bytes, length: object) -> bytes:
    if not isinstance(length, int) or not 0 <= length <= MAX_BODY_BYTES:
        raise ValueError(f"a body of {length!r} bytes")
    decoder = zlib.decompressobj()
    body = decoder.decompress(compressed, length + 1)  # one more than there may be; 0 would mean without bound
    if len(body) != length or not decoder.eof:
        raise ValueError(f"a body of {len(body)} bytes instead of {length}")
    return body


def _copy(stored: dict[str, Any] | None, body: bytes) -> Copy | None:
    if stored is None:
        return None
    return Copy(**stored | {"result": AccessResult(stored["result"]), "body": body})


def _trouble(stored: dict[str, Any] | None) -> Trouble | None:
    return None if stored is None else Trouble(**stored | {"result": AccessResult(stored["result"])})
