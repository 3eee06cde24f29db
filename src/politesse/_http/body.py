"""A response body, decoded as it comes, bounded in what it may grow to. Pure."""

from __future__ import annotations

import zlib
from typing import Final

from politesse.ports import FaultKind
from politesse.robots.lexer import cut_at_line_end

_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BLOCK: Final = 256  # octets that are decoded at once


class BodyError(Exception):
    """The body is of no use."""

    def __init__(self, kind: FaultKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class BoundedBody:
    """Takes the octets of a body off the wire and keeps at most ``limit`` decoded ones.

    A kilobyte of gzip may stand for a gigabyte: the decoder is never asked for more than fits. Octets that decode to
    nothing are bounded too. What comes of a body does not depend on the pieces in which it comes: it is decoded in
    blocks of one size, so that the limit and a fault behind it are met in the same order always.

    Args:
        content_encoding: the header's value.
        limit: how many decoded octets to keep.

    Raises:
        BodyError: for an encoding that was not asked for.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        encoding = content_encoding.strip().lower()
        if encoding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise BodyError(FaultKind.ENCODING, f"the content encoding {encoding!r:.50}, which was not asked for")
        self._encoding = encoding
        self._wants = limit + 1  # one more, to know whether the limit falls on the end of a line
        self._limit = limit
        self._encoded = 0
        self._pending = bytearray()  # less than a block, between two calls
        self._ended = False
        self._body = bytearray()
        self._decoder = zlib.decompressobj(_GZIP) if encoding.endswith("gzip") else None

    def feed(self, octets: bytes) -> bool:
        """Take in ``octets``; return whether more are wanted. Raises BodyError if they cannot be decoded."""
        if self._encoding in {"", "identity"}:
            self._body += octets[: self._wants - len(self._body)]
        else:
            self._pending += octets
            whole = len(self._pending) - len(self._pending) % _BLOCK
            for start in range(0, whole, _BLOCK):
                self._decode_block(bytes(self._pending[start : start + _BLOCK]))
            del self._pending[:whole]
        return len(self._body) < self._wants

    def finish(self) -> tuple[bytes, bool]:
        """Return what was kept, and whether there was more than the limit: then without its unfinished last line.

        Raises BodyError if the encoding says that there is more to come, and it did not.
        """
        self._decode_block(bytes(self._pending))
        self._pending.clear()
        if len(self._body) > self._limit:
            return cut_at_line_end(bytes(self._body), self._limit), True
        if self._encoding not in {"", "identity"} and (self._decoder is None or not self._decoder.eof):
            raise BodyError(FaultKind.TRUNCATED, f"the {self._encoding} body ends before its end")
        return bytes(self._body), False

    def _decode_block(self, octets: bytes) -> None:
        bound = 2 * self._limit
        self._decode(octets[: max(bound - self._encoded, 0)])
        self._encoded += len(octets)
        if self._encoded > bound and len(self._body) < self._wants:
            raise BodyError(FaultKind.ENCODING, f"{self._encoded} encoded octets that decode to {len(self._body)}")

    def _decode(self, octets: bytes) -> None:
        if self._decoder is None and octets:
            # "deflate" is zlib by RFC 9110 8.4.1.2 and raw in the field: the first octets tell.
            is_zlib = octets[0] & 0x0F == zlib.DEFLATED
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else _RAW)
        try:
            while octets and self._decoder is not None and not self._ended and len(self._body) < self._wants:
                self._body += self._decoder.decompress(octets, self._wants - len(self._body))
                octets = self._decoder.unconsumed_tail
                if self._decoder.eof:
                    octets = self._next_member(self._decoder.unused_data)
        except zlib.error as error:
            raise BodyError(FaultKind.ENCODING, f"the {self._encoding} body is broken: {error}") from error

    def _next_member(self, octets: bytes) -> bytes:
        """RFC 1952 2.2: a gzip file may be several, one behind the other; padding behind the last is dropped."""
        if not self._encoding.endswith("gzip") or not _GZIP_MAGIC.startswith(octets[: len(_GZIP_MAGIC)]):
            self._ended = True
        elif len(octets) >= len(_GZIP_MAGIC):
            self._decoder = zlib.decompressobj(_GZIP)
            return octets
        return b""  # half of the mark is kept by the decoder
