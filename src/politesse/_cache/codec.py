"""The form in which a record is kept: a version, a digest, a JSON head, the file itself compressed.

The version changes only where older readers must not read on. What a newer writer adds to the head is ignored, and what
an older one did not write gets its default. So a record can be read by earlier and later versions of politesse.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import MISSING, fields
from math import isfinite
from typing import Any, Final, TypeVar

from politesse._cache.framing import framed, unframed
from politesse._cache.record import Copy, Moment, Record, Trouble
from politesse.errors import StoreError
from politesse.ports import MAX_BODY_BYTES
from politesse.verdict import AccessResult

Part = TypeVar("Part", Copy, Trouble, Moment)

_VERSION: Final = b"politesse/1 "
_HEAD_LENGTH_BYTES: Final = 4


def encode(record: Record, key: str = "") -> bytes:
    """Return ``record`` as octets, bound to the key under which it is kept; to any, if that is empty."""
    copy, trouble, moment = _fields(record.copy), _fields(record.trouble), _fields(record.moment)
    body = b"" if record.copy is None else record.copy.body
    if copy is not None:
        del copy["body"]
    head: dict[str, object] = {"copy": copy, "trouble": trouble, "moment": moment, "body_bytes": len(body)}
    if key:
        head["key"] = key
    octets = json.dumps(head).encode()
    return framed(
        _VERSION,
        len(octets).to_bytes(_HEAD_LENGTH_BYTES, "big") + octets + zlib.compress(body, zlib.Z_BEST_SPEED),
    )


def decode(data: bytes, key: str = "") -> Record:
    """Return the record that ``data`` holds.

    Args:
        data: what ``encode`` has returned.
        key: where it was kept; empty if that does not matter. Records of older versions do not name their key.

    Raises:
        StoreError: if it is damaged, of another version, or bound to another key.
    """
    content = unframed(_VERSION, data)
    end = _HEAD_LENGTH_BYTES + int.from_bytes(content[:_HEAD_LENGTH_BYTES], "big")
    try:
        head = json.loads(content[_HEAD_LENGTH_BYTES:end])
        if key and head.get("key", key) != key:
            raise StoreError(f"the record of {key} is one of {head['key']!r:.200}")
        body = _body(content[end:], head["body_bytes"])
        copy = _part(Copy, head["copy"], body=body)
        return Record(copy, _part(Trouble, head["trouble"]), _part(Moment, head.get("moment")))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r:.200}") from error


def _fields(part: Copy | Trouble | Moment | None) -> dict[str, object] | None:
    """Return the fields of a part, which holds plain values: ``asdict`` would copy each of them."""
    return None if part is None else {field.name: getattr(part, field.name) for field in fields(part)}


def _body(compressed: bytes, length: object) -> bytes:
    if not isinstance(length, int) or not 0 <= length <= MAX_BODY_BYTES:
        raise ValueError(f"a body of {length!r} bytes")
    decoder = zlib.decompressobj()
    body = decoder.decompress(compressed, length + 1)  # one more than there may be; 0 would mean without bound
    if len(body) != length or not decoder.eof:
        raise ValueError(f"a body of {len(body)} bytes instead of {length}")
    return body


def _part(kind: type[Part], stored: dict[str, Any] | None, **given: bytes) -> Part | None:
    """Return a part, of those fields that it has; ``given`` are not stored with the others."""
    if stored is None:
        return None
    values: dict[str, Any] = dict(given)
    for field in fields(kind):
        if field.name in given:
            continue
        if field.name in stored:
            values[field.name] = _checked(str(field.type), stored[field.name])
        elif field.default is MISSING:
            raise ValueError(f"{kind.__name__} without {field.name}")
    return kind(**values)


def _checked(kind: str, value: object) -> object:
    """Return a stored value, if it is of the kind that a field has."""
    if kind == "AccessResult":
        return AccessResult(str(value))
    if kind == "str":
        right = isinstance(value, str)
    elif kind == "float":
        right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    else:  # "int", or "int | None"
        right = (isinstance(value, int) and not isinstance(value, bool)) or (value is None and "None" in kind)
    if not right:
        raise TypeError(f"{value!r:.100} instead of {kind}")
    return value
