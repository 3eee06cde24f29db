"""The format of all values in a store: a version, a digest of the content, the content.

The content of a file's record is compressed: a JSON head, a line feed, and the file. The content of a host's state is
JSON. The version changes when earlier releases of politesse must not read the new content. A reader ignores unknown
fields, which a later version has added. A missing field gets its default value. The field is missing if an earlier
version did not know the field, or if the writer left out the default value.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields
from math import isfinite
from typing import Any, Final, TypeVar

from politesse._cache.outcome import DefiniteAnswer, Moment, Record, Trouble
from politesse._pacing.host_state import BackoffRecord, HostState
from politesse.errors import StoreError
from politesse.ports import MAX_BODY_BYTES
from politesse.verdict import AccessResult, Bound

Part = TypeVar("Part", DefiniteAnswer, Trouble, Moment, HostState, BackoffRecord)

_RECORD: Final = b"politesse/3 "
_STATE: Final = b"politesse-pace/1 "
_DIGEST_BYTES: Final = 16
_MAX_HEAD_BYTES: Final = 1024 * 1024  # real heads are far shorter
_ENUMS: Final = {"AccessResult": AccessResult, "Bound": Bound}
_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def encode(record: Record, key: str) -> bytes:
    """Return ``record`` as octets that contain its key, so that ``decode`` rejects them under any other key."""
    answer, trouble, moment, body = record
    head = {"copy": _stored(answer), "trouble": _stored(trouble), "moment": _stored(moment), "key": key}
    return framed(_RECORD, zlib.compress(b"%b\n%b" % (_JSON.encode(head).encode(), body), zlib.Z_BEST_SPEED))


def decode(data: object, key: str) -> Record:
    """Return the record in ``data``, the value of ``key`` in a store.

    Raises:
        StoreError: ``data`` is damaged, has another version, or contains another key.
    """
    with _damage():
        decoder = zlib.decompressobj()
        plain = decoder.decompress(_unframed(_RECORD, data), _MAX_HEAD_BYTES + MAX_BODY_BYTES)
        if not decoder.eof:
            raise ValueError("the content is cut off, or too long")
        text, _, body = plain.partition(b"\n")
        head = _head(text, key)
        answer = _part(DefiniteAnswer, head["copy"])
        return Record(answer, _part(Trouble, head["trouble"]), _part(Moment, head["moment"]), body)


def encode_state(state: HostState, key: str) -> bytes:
    """Return ``state`` as octets that contain its key, so that ``decode_state`` rejects them under any other key."""
    return framed(_STATE, json.dumps(asdict(state) | {"key": key}).encode())


def decode_state(data: object, key: str) -> HostState:
    """Return the state in ``data``, the value of the host ``key`` in a store.

    Raises:
        StoreError: ``data`` is damaged, has another version, or belongs to another host.
    """
    with _damage():
        head = _head(_unframed(_STATE, data), key)
        state = _part(HostState, head, answers=_part(BackoffRecord, head.get("answers")))
        if state is None:
            raise ValueError("no state")
        return state


def framed(version: bytes, content: bytes) -> bytes:
    """Return the version, the digest of ``content``, and ``content``, joined."""
    return version + _digest(content) + content


def _unframed(version: bytes, data: object) -> bytes:
    """Return the content of ``data``, without version and digest.

    Raises:
        StoreError: ``data`` is not bytes, is damaged, or has another version.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StoreError(f"a stored record is {data!r:.100}: a store returns bytes, or None")
    octets = bytes(data)
    if not octets.startswith(version):
        problem = f"starts with {octets[:16]!r}, not with {version!r}"
        raise StoreError(f"a stored record {problem}: another version wrote it")
    digest, content = octets[len(version) :][:_DIGEST_BYTES], octets[len(version) + _DIGEST_BYTES :]
    if digest != _digest(content):
        raise StoreError("a stored record is damaged: its digest is another")
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


@contextmanager
def _damage() -> Iterator[None]:
    """Raise a StoreError for content that cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r:.200}") from error


def _head(text: bytes, key: str) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(text)
    if head["key"] != key:
        raise StoreError(f"the record of {key} is one of {head['key']!r:.200}")
    return head


def _stored(part: DefiniteAnswer | Trouble | Moment | None) -> dict[str, object] | None:
    """Return those fields of ``part`` that do not have their default values."""
    if part is None:
        return None
    return {field.name: value for field in fields(part) if (value := getattr(part, field.name)) is not field.default}


def _part(kind: type[Part], stored: dict[str, Any] | None, **given: object) -> Part | None:
    """Return a part of a record, from its stored fields and the ``given`` fields."""
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
    """Return a stored value if it has the type of its field."""
    if (enum := _ENUMS.get(kind)) is not None:
        return enum(str(value))
    of, _, optional = kind.partition(" | ")
    right = optional == "None" if value is None else type(value).__name__ in {of, "int" if of == "float" else of}
    if not right or (isinstance(value, int | float) and not isfinite(value)):
        raise TypeError(f"{value!r:.100} instead of {kind}")
    return value
