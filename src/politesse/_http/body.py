"""A response body, decoded incrementally, with a bound on its decoded size. Pure."""

from __future__ import annotations

import zlib
from typing import Final

from politesse.ports import FaultKind
from politesse.robots.lexer import cut_at_line_end

# The codings in IANA's Content Coding registry, except for identity. RFC 9110 8.4.1.3: x-gzip is gzip.
_REGISTERED: Final = frozenset(
    {
        *("aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip"),
        *("x-compress", "x-gzip", "zstd"),
    }
)
_DECODED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BLOCK: Final = 256  # the octets that are decoded in one step


class BodyError(Exception):
    """The body cannot be decoded, or is incomplete.

    >>> from politesse.fetch import BoundedBody
    >>> BoundedBody("br", 1024)
    Traceback (most recent call last):
    politesse._http.body.BodyError: the content encoding 'br', which was not requested

    Attributes:
        kind: the kind of the fault.
        detail: the fault, as a phrase.
    """

    def __init__(self, kind: FaultKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class BoundedBody:
    """Decodes a body incrementally and keeps at most ``limit`` decoded octets.

    A kilobyte of gzip may decode to a gigabyte, so the decoder stops one octet after the limit. The encoded octets are
    limited as well, because they may decode to nothing. The decoder works on blocks of equal size, so the result does
    not depend on how the body is split. A fault that comes after the limit is not reported, because the decoder does
    not reach it.

    >>> import gzip
    >>> body = BoundedBody("gzip", limit=1024)
    >>> body.feed(gzip.compress(b"User-agent: *"))
    True
    >>> body.finish()
    (b'User-agent: *', False)

    Args:
        content_encoding: the value of the Content-Encoding header.
        limit: how many decoded octets to keep.

    Raises:
        BodyError: the field names a registered coding other than identity, gzip and deflate, or several codings. Other
            tokens, such as ``Content-Encoding: UTF-8``, are ignored.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        self._encoding = encoding = _registered(content_encoding) if content_encoding else ""
        self._is_encoded = bool(encoding)
        if self._is_encoded and encoding not in _DECODED:
            raise BodyError(FaultKind.ENCODING, f"the content encoding {encoding!r:.50}, which was not requested")
        self._wants = limit + 1  # one octet after the limit shows whether a line ends at the limit
        self._limit = limit
        self._encoded = 0
        self._pending = bytearray()  # the octets after the last whole block
        self._ended = False
        self._body = bytearray()
        self._decoder = zlib.decompressobj(_GZIP) if encoding.endswith("gzip") else None

    def feed(self, octets: bytes) -> bool:
        """Process ``octets``; return whether more octets are needed.

        Raises:
            BodyError: the octets cannot be decoded.
        """
        if not self._is_encoded:
            self._body += octets[: self._wants - len(self._body)]
        else:
            self._pending += octets
            whole = len(self._pending) - len(self._pending) % _BLOCK
            for start in range(0, whole, _BLOCK):
                self._decode_block(bytes(self._pending[start : start + _BLOCK]))
            del self._pending[:whole]
        return len(self._body) < self._wants

    def finish(self) -> tuple[bytes, bool]:
        """Return the decoded octets, and whether the limit cut them; if so, they end with a complete line.

        Raises:
            BodyError: the encoded body is incomplete.
        """
        if self._pending:
            self._decode_block(bytes(self._pending))
            self._pending.clear()
        if len(self._body) > self._limit:
            return cut_at_line_end(bytes(self._body), self._limit), True
        if self._encoded and (self._decoder is None or not self._decoder.eof):
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
            # "deflate" is the zlib format by RFC 9110 8.4.1.2, but some servers send raw deflate.
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
        """Return the octets of the next member of a gzip file (RFC 1952 2.2); drop octets after the last member."""
        if not self._encoding.endswith("gzip") or not _GZIP_MAGIC.startswith(octets[: len(_GZIP_MAGIC)]):
            self._ended = True
        elif len(octets) >= len(_GZIP_MAGIC):
            self._decoder = zlib.decompressobj(_GZIP)
            return octets
        return b""  # the octets may be the start of a magic number, so the decoder keeps them


def _registered(content_encoding: str) -> str:
    """Return the registered codings of a Content-Encoding field."""
    tokens = [item.partition(";")[0].strip(' \t"').lower() for item in content_encoding.split(",")]
    return ", ".join([token for token in tokens if token in _REGISTERED])
