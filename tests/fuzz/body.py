"""The decoding of bodies.

Invariant: in every encoding, the result does not depend on how the octets of a body are cut into pieces. The result
is the file, cut after whole lines if it is longer than the limit; or a kind of fault. A valid encoding is decoded,
and the decoder never holds more than the limit and a few blocks.

Input: an octet each for the encoding, for the limit, for how the rest is made into a body, for the place where one
octet of that is changed, and for how it is cut into pieces; then the file, or the body itself.
"""

import gzip
import random
import zlib
from collections.abc import Callable, Iterable
from typing import Final

from politesse.fetch import BodyError, BoundedBody
from politesse.ports import FaultKind
from tests.fuzz.target import Target, choose, dictionary

ENCODINGS: Final = ("gzip", "deflate", "", "identity", "x-gzip", " GZip ", "br", "gzip, gzip")
LIMITS: Final = (64, 1, 2, 7, 20, 300, 1000, 0, 100_000)
_NO_LIMIT: Final = 1 << 24
_MOST_WAITING: Final = 600

Result = tuple[bytes, bool] | FaultKind


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _plain(data: bytes) -> bytes:
    return data


def _members(data: bytes) -> bytes:
    middle = len(data) // 2
    return _gzip(data[:middle]) + _gzip(b"") + _gzip(data[middle:])


MAKERS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    _gzip,
    zlib.compress,
    _raw_deflate,
    _plain,
    lambda data: zlib.compress(data, 0),
    _members,
    lambda data: _gzip(data) + bytes(900),
    lambda data: _gzip(data)[:-1],
    lambda data: _gzip(data * 50),
    lambda data: b"".join(map(_gzip, data.splitlines(keepends=True)[:50])),
)

_MADE_FOR: Final = {
    _gzip: ("gzip", "x-gzip", " GZip "),
    _members: ("gzip", "x-gzip", " GZip "),
    zlib.compress: ("deflate",),
    _raw_deflate: ("deflate",),
    _plain: ("", "identity"),
}


def check(octets: bytes) -> None:
    """Hold the decoder to the invariant."""
    encoding, limit = choose(octets[:1], ENCODINGS), choose(octets[1:2], LIMITS)
    maker, file = choose(octets[2:3], MAKERS), octets[5:]
    body = made = maker(file)
    if (place := octets[3:4]) > b"0" and body:  # otherwise it stays as it is
        where = place[0] % len(body)
        body = body[:where] + bytes([body[where] ^ 0x41]) + body[where + 1 :]
    came = [_read(encoding, limit, body, pieces) for pieces in _cuts(body, octets[4:5])]
    assert all(one == came[0] for one in came), f"it depends on the pieces: {[repr(one)[:80] for one in came]}"
    if body == made and encoding in _MADE_FOR.get(maker, ()) and len(body) <= 2 * limit and len(file) <= limit:
        assert came[0] == (file, False), f"what was encoded is not read: {came[0]!r:.80}"
    _check_kept(came[0], _read(encoding, _NO_LIMIT, body, [body]), limit)


def _read(encoding: str, limit: int, octets: bytes, pieces: Iterable[bytes]) -> Result:
    try:
        body = BoundedBody(encoding, limit)
        for piece in pieces:
            wanted = body.feed(piece)
            assert len(body._body) <= limit + 1, "it keeps more than it may"
            assert _waiting(body) <= _MOST_WAITING, "it holds on to what it was given"
            assert wanted is (len(body._body) <= limit)
            if not wanted:
                break
        return body.finish()
    except BodyError as error:
        return error.kind


def _waiting(body: BoundedBody) -> int:
    """Return how many octets are held that are not decoded."""
    decoder = body._decoder
    rest = 0 if decoder is None else len(decoder.unconsumed_tail) + len(decoder.unused_data)
    return len(body._pending) + rest


def _cuts(body: bytes, seed: bytes) -> Iterable[list[bytes]]:
    """Return the body in one piece, octet by octet, and in pieces of other lengths."""
    yield [body]
    yield [body[place : place + 1] for place in range(len(body))]
    lengths = random.Random(seed)
    pieces, place = [b""], 0
    while place < len(body):
        length = lengths.randrange(40)
        pieces.append(body[place : place + length])
        place += length
    yield pieces


def _check_kept(kept: Result, whole: Result, limit: int) -> None:
    if not isinstance(kept, tuple):
        return
    file, truncated = kept
    assert len(file) <= limit
    if not isinstance(whole, tuple):
        assert truncated, f"whole, though all of it is broken: {whole}"
        return
    assert not whole[1]
    assert truncated is (len(whole[0]) > limit)
    assert whole[0].startswith(file)
    if not truncated:
        assert file == whole[0]
        return
    rest = whole[0][len(file) :]
    assert not file or file.endswith((b"\n", b"\r")) or rest.startswith((b"\n", b"\r")), "half a line"
    beyond = whole[0][len(file) : limit]
    assert not beyond.strip(b"\r\n") or not any(octet in b"\r\n" for octet in beyond), "a whole line is missing"


TARGET: Final = Target("body", check, dictionary("body"), 1024)
