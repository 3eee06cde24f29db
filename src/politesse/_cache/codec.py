"""The form in which a record is kept: a version, a digest, two lengths; compressed together, a JSON head and the file.

Both begin with what nearly all records have in common: a dictionary that the compression knows beforehand takes a third
of a record away (1,060 to 710 octets, the mean of the corpus), at no cost.

The version changes only where older readers must not read on. What a newer writer adds to the head is ignored, and what
an older one did not write gets its default. So a record can be read by earlier and later versions of politesse.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import MISSING, fields
from math import isfinite
from struct import Struct
from typing import Any, Final, TypeVar

from politesse._cache.framing import framed, unframed
from politesse._cache.record import Copy, Moment, Record, Trouble
from politesse.errors import StoreError
from politesse.ports import MAX_BODY_BYTES
from politesse.verdict import AccessResult

Part = TypeVar("Part", Copy, Trouble, Moment)

_VERSION: Final = b"politesse/2 "
_VERSION_1: Final = b"politesse/1 "  # the head is not compressed, and holds the length of the file
_LENGTHS: Final = Struct(">II")  # octets of the head, and of the file
_MAX_HEAD_BYTES: Final = 1024 * 1024  # header fields are far shorter
_HEAD_LENGTH_BYTES: Final = 4  # of version 1

# What it holds is a matter of the version. The most usual stands last: near matches take fewer bits.
_DICTIONARY: Final = b"""\
# Robots User-agent: Googlebot
User-agent: GPTBot
User-agent: Bingbot
User-agent: AhrefsBot
User-agent: Twitterbot
User-agent: Mediapartners-Google
Crawl-delay: 10
Allow: /wp-admin/admin-ajax.php
Disallow: /wp-admin/
Disallow: /wp-content/plugins/
Disallow: /wp-includes/
Disallow: /cgi-bin/
Disallow: /includes/
Disallow: /scripts/
Disallow: /themes/
Disallow: /admin/
Disallow: /login/
Disallow: /user/login/
Disallow: /account/
Disallow: /cart
Disallow: /checkout
Disallow: /api/
Disallow: /*.php$
Disallow: /*.pdf$
Disallow: /*?*sort=
Disallow: /*?
Disallow: /search/
Disallow: /search?
User-Agent: *
Sitemap: https://www.example.com/sitemap_index.xml
Sitemap: https://www.example.com/sitemap.xml
User-agent: *
Allow: /
Disallow: /
{"copy": null, "trouble": {"result": "unreachable", "status": null, "final_url": "http://www.", "fault": "connect: ", \
"since_wall": 17, "last_wall": 17, "failures": 1, "retry_wall": 17, "last_modified": "Mon, 01 Jan 2024 00:00:00 GMT", \
{"copy": {"result": "unavailable", "status": 404, \
{"copy": {"result": "successful", "status": 200, "final_url": "https://www.example.com/robots.txt", "etag": "", \
"last_modified": "", "confirmed_wall": 17, "lifetime_s": 86400.0, "fault": ""}, "trouble": null, "moment": {"run": "", \
"wall": 17, "mono": """


def encode(record: Record, key: str = "") -> bytes:
    """Return ``record`` as octets, bound to the key under which it is kept; to any, if that is empty."""
    copy, trouble, moment = record.copy, record.trouble, record.moment
    parts: dict[str, object] = {
        "copy": None if copy is None else _copy_fields(copy),
        "trouble": None if trouble is None else _trouble_fields(trouble),
        "moment": None if moment is None else {"run": moment.run, "wall": moment.wall, "mono": moment.mono},
    }
    if key:
        parts["key"] = key
    head, body = json.dumps(parts).encode(), b"" if copy is None else copy.body
    compressor = zlib.compressobj(zlib.Z_BEST_SPEED, zdict=_DICTIONARY)
    compressed = compressor.compress(head) + compressor.compress(body) + compressor.flush()
    return framed(_VERSION, _LENGTHS.pack(len(head), len(body)) + compressed)


def decode(data: bytes, key: str = "") -> Record:
    """Return the record that ``data`` holds.

    Args:
        data: what ``encode`` has returned.
        key: where it was kept; empty if that does not matter. Records of older versions do not name their key.

    Raises:
        StoreError: if it is damaged, of another version, or bound to another key.
    """
    version, content = unframed((_VERSION, _VERSION_1), data)
    try:
        head, body = _parts(content) if version == _VERSION else _parts_1(content)
        if key and head.get("key", key) != key:
            raise StoreError(f"the record of {key} is one of {head['key']!r:.200}")
        copy = _part(Copy, head["copy"], body=body)
        return Record(copy, _part(Trouble, head["trouble"]), _part(Moment, head.get("moment")))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r:.200}") from error


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and file."""
    if len(content) < _LENGTHS.size:
        raise ValueError("a record without lengths")
    of_head, of_body = _LENGTHS.unpack_from(content)
    if of_head > _MAX_HEAD_BYTES:
        raise ValueError(f"a head of {of_head} bytes")
    _check_body_length(of_body)
    plain = _inflated(zlib.decompressobj(zdict=_DICTIONARY), content[_LENGTHS.size :], of_head + of_body)
    return json.loads(plain[:of_head]), plain[of_head:]


def _parts_1(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and file of a record of version 1."""
    end = _HEAD_LENGTH_BYTES + int.from_bytes(content[:_HEAD_LENGTH_BYTES], "big")
    head = json.loads(content[_HEAD_LENGTH_BYTES:end])
    length = head["body_bytes"]
    _check_body_length(length)
    return head, _inflated(zlib.decompressobj(), content[end:], length)


def _check_body_length(length: object) -> None:
    if not isinstance(length, int) or not 0 <= length <= MAX_BODY_BYTES:
        raise ValueError(f"a body of {length!r} bytes")


def _inflated(decoder: zlib._Decompress, compressed: bytes, length: int) -> bytes:
    plain = decoder.decompress(compressed, length + 1)  # one more than there may be; 0 would mean without bound
    if len(plain) != length or not decoder.eof:
        raise ValueError(f"{len(plain)} bytes instead of {length}")
    return plain


def _copy_fields(copy: Copy) -> dict[str, object]:
    return {
        "result": copy.result,
        "status": copy.status,
        "final_url": copy.final_url,
        "etag": copy.etag,
        "last_modified": copy.last_modified,
        "confirmed_wall": copy.confirmed_wall,
        "lifetime_s": copy.lifetime_s,
        "fault": copy.fault,
    }


def _trouble_fields(trouble: Trouble) -> dict[str, object]:
    return {
        "result": trouble.result,
        "status": trouble.status,
        "final_url": trouble.final_url,
        "fault": trouble.fault,
        "since_wall": trouble.since_wall,
        "last_wall": trouble.last_wall,
        "failures": trouble.failures,
        "retry_wall": trouble.retry_wall,
    }


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
