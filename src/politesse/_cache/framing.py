"""The frame of what is kept in a store: a version, a digest of the content, the content."""

from __future__ import annotations

import hashlib
from typing import Final

from politesse.errors import StoreError

_DIGEST_BYTES: Final = 16


def framed(version: bytes, content: bytes) -> bytes:
    """Return ``content`` with its version and its digest before it."""
    return version + _digest(content) + content


def unframed(versions: tuple[bytes, ...], data: object) -> tuple[bytes, bytes]:
    """Return the version and the content of ``data``, which a store has returned.

    Args:
        versions: that can be read, the present one first.
        data: what was returned.

    Raises:
        StoreError: if it is no octets, damaged, or of another version.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StoreError(f"a stored record is {data!r:.100}: a store returns bytes, or None")
    octets = bytes(data)
    version = next((version for version in versions if octets.startswith(version)), None)
    if version is None:
        problem = f"starts with {octets[:16]!r}, not with {versions[0]!r}"
        raise StoreError(f"a stored record {problem}: another version wrote it")
    digest, content = octets[len(version) :][:_DIGEST_BYTES], octets[len(version) + _DIGEST_BYTES :]
    if digest != _digest(content):
        raise StoreError("a stored record is damaged: its digest is another")
    return version, content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
