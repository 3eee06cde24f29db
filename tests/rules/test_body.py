import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse.fetch import BodyError, BoundedBody
from politesse.ports import FaultKind
from politesse.robots import RobotsTxt
from politesse.robots.lexer import cut_at_line_end

LIMIT = 512_000  # RFC 9309 2.5: 500 KiB
FILE = b"User-agent: *\nDisallow: /private\n"


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


COMPRESSED: Final[list[tuple[str, Callable[[bytes], bytes]]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", _raw_deflate),
]
CODECS: Final = [("", bytes), ("identity", bytes), *COMPRESSED]


def _read(encoding: str, octets: bytes, *, limit: int = LIMIT, step: int = 1 << 16) -> tuple[bytes, bool]:
    """Feed ``octets`` as they would come off the wire, ``step`` at a time, for as long as they are wanted."""
    body = BoundedBody(encoding, limit)
    for start in range(0, len(octets), step):
        if not body.feed(octets[start : start + step]):
            break
    return body.finish()


@given(st.sampled_from(CODECS), st.lists(st.binary(max_size=200), max_size=4), st.integers(1, 300))
def test_decoding_returns_the_octets_that_were_encoded(
    codec: tuple[str, Callable[[bytes], bytes]], parts: list[bytes], step: int
) -> None:
    encoding, encode = codec
    data = b"".join(parts)
    assert _read(encoding, encode(data), step=step) == (data, False)


def test_the_name_of_an_encoding_has_no_case_and_no_blanks() -> None:
    assert [_read(name, gzip.compress(FILE)) for name in ("GZIP", " gzip ", "GZip")] == [(FILE, False)] * 3


def test_an_empty_body_is_empty_in_every_encoding() -> None:
    for encoding, _ in CODECS:
        body = BoundedBody(encoding, LIMIT)
        assert body.feed(b"")
        assert body.finish() == (b"", False), encoding


@pytest.mark.clause("RFC 1952 2.2")
def test_consecutive_gzip_members_are_one_file() -> None:
    octets = gzip.compress(b"User-agent: *\n") + gzip.compress(b"") + gzip.compress(b"Disallow: /private\n")
    for step in (1, 3, 1 << 16):
        assert _read("gzip", octets, step=step) == (FILE, False), step


def test_padding_after_the_last_member_is_dropped() -> None:
    for encoding, encode in COMPRESSED:
        for padding in (b"\x00" * 500, b"\n", b"trailing words"):
            for step in (1, 1 << 16):
                assert _read(encoding, encode(FILE) + padding, step=step) == (FILE, False), (encoding, padding, step)


@pytest.mark.clause("RFC 9309 2.3.1.4")
def test_a_body_that_ends_anywhere_before_its_end_is_truncated() -> None:
    for encoding, encode in COMPRESSED:
        octets = encode(FILE)
        for length in range(1, len(octets)):
            assert _fault(encoding, octets[:length])[0] is FaultKind.TRUNCATED, (encoding, length)


def test_a_broken_body_is_an_encoding_fault() -> None:
    broken = {
        "plain text as gzip": ("gzip", FILE),
        "zlib as gzip": ("gzip", zlib.compress(FILE)),
        "gzip as deflate": ("deflate", gzip.compress(FILE)),
        "noise as deflate": ("deflate", b"\xff" * 50),
        "wrong gzip checksum": ("gzip", gzip.compress(FILE)[:-8] + bytes(8)),
        "wrong zlib checksum": ("deflate", zlib.compress(FILE)[:-4] + bytes(4)),
        "block type 3, RFC 1951 3.2.3": ("gzip", gzip.compress(FILE)[:10] + b"\x07" + bytes(40)),
    }
    for name, (encoding, octets) in broken.items():
        for step in (1, 1 << 16):
            kind, message = _fault(encoding, octets, step=step)
            assert (kind, "is broken" in message) == (FaultKind.ENCODING, True), (name, step)


@given(st.sampled_from(["gzip", "x-gzip", "deflate"]), st.binary(max_size=400), st.integers(1, 64))
def test_no_octets_raise_anything_but_a_body_error(encoding: str, octets: bytes, step: int) -> None:
    body, truncated, kind = b"", False, None
    try:
        body, truncated = _read(encoding, octets, step=step)
    except BodyError as error:
        kind = error.kind
    assert kind in {None, FaultKind.ENCODING, FaultKind.TRUNCATED}
    assert len(body) <= LIMIT
    assert not truncated


def test_an_encoding_that_was_not_requested_is_a_fault() -> None:
    for encoding in ("br", "zstd", "compress", "gzip, gzip", "gzip, br", "UTF-8, br", "br;q=1", '"br"'):
        kind, message = _fault(encoding, b"")
        assert (kind, "not requested" in message) == (FaultKind.ENCODING, True), encoding


@pytest.mark.clause("RFC 9110 8.4")
def test_a_token_that_names_no_registered_coding_is_ignored() -> None:
    tokens = ["UTF-8", "none", "8bit", "iso-8859-1", "text/plain", "utf-8, identity", "x", "\udcff", "*", ", ,"]
    assert [token for token in tokens if _read(token, FILE) != (FILE, False)] == []
    of_gzip = ["gzip,", "identity, gzip", "gzip, utf-8", "GZIP ;q=1", ' "gzip"']  # the only registered coding counts
    assert [token for token in of_gzip if _read(token, gzip.compress(FILE)) != (FILE, False)] == []


def _fault(encoding: str, octets: bytes, *, limit: int = LIMIT, step: int = 1 << 16) -> tuple[FaultKind, str]:
    """Return what is wrong with a body that cannot be read, and its message."""
    with pytest.raises(BodyError) as caught:
        _read(encoding, octets, limit=limit, step=step)
    return caught.value.kind, str(caught.value)


def _filled(rule: bytes, end: int) -> bytes:
    """Return a file in which ``rule``, without its line end, ends at octet number ``end``, counted from 1."""
    head = b"User-agent: *\n"
    comment = b"#" * (end - len(head) - 1 - len(rule)) + b"\n"
    return head + comment + rule


@pytest.mark.clause("RFC 9309 2.5")
def test_a_rule_that_ends_at_octet_512000_is_effective() -> None:
    for encoding, encode in CODECS:
        for behind in (b"", b"\n", b"\r\n", b"\nDisallow: /more\n"):
            body, truncated = _read(encoding, encode(_filled(b"Disallow: /last", LIMIT) + behind))
            rules = RobotsTxt.parse(body).rules_for("ExampleBot")
            assert [rules.allowed(path) for path in ("/last", "/more")] == [False, True], (encoding, behind)
            assert truncated == bool(behind), (encoding, behind)


def test_a_file_of_exactly_the_limit_is_whole() -> None:
    file = _filled(b"Disallow: /last\n", LIMIT)
    assert len(file) == LIMIT
    assert [_read(encoding, encode(file)) == (file, False) for encoding, encode in CODECS] == [True] * len(CODECS)


def test_a_rule_cut_by_the_limit_is_dropped_not_shortened() -> None:
    for encoding, encode in CODECS:
        for beyond in (1, 5, 14):
            file = _filled(b"Allow: /private\nDisallow: /private/x", LIMIT + beyond)
            body, truncated = _read(encoding, encode(file))
            assert truncated, (encoding, beyond)
            assert body.endswith(b"\nAllow: /private\n"), (encoding, beyond)


def test_the_cut_falls_on_the_end_of_a_line() -> None:
    kept = {
        (b"ab\ncd\n", 2): b"ab",
        (b"ab\ncd\n", 3): b"ab\n",
        (b"ab\ncd\n", 4): b"ab\n",
        (b"ab\ncd\n", 5): b"ab\ncd",
        (b"ab\rcd\r", 4): b"ab\r",
        (b"ab\r\ncd", 2): b"ab",
        (b"ab\r\ncd", 3): b"ab\r",
        (b"ab\r\ncd", 4): b"ab\r\n",
        (b"ab\r\ncd", 5): b"ab\r\n",
        (b"abcdef", 3): b"",
        (b"\nbcdef", 3): b"\n",
    }
    assert {row: cut_at_line_end(*row) for row in kept} == kept


def test_a_bomb_is_stopped_at_the_limit_with_bounded_memory() -> None:
    for encoding, encode in COMPRESSED:
        bomb = encode(b"Disallow: /a\n" * 800_000)  # 10 MB
        assert BoundedBody(encoding, LIMIT).feed(bomb) is False  # no more is wanted
        for step in (64, 1 << 16):
            tracemalloc.start()
            try:
                body, truncated = _read(encoding, bomb, step=step)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert truncated
            assert LIMIT - 13 < len(body) <= LIMIT
            assert peak < 6 * LIMIT, (encoding, step)


def test_gzip_members_that_decode_to_nothing_are_bounded() -> None:
    kind, message = _fault("gzip", gzip.compress(b"") * 60_000)  # 1.2 MB that stand for no octet
    assert (kind, "encoded octets" in message) == (FaultKind.ENCODING, True)


def test_the_bound_on_encoded_octets_holds_after_the_limit_however_they_are_cut() -> None:
    octets = zlib.compress(b"a\n" * 400, 0)  # stored, so that more than twice the limit comes, but behind it
    assert len(octets) > 2 * 200
    for step in (1, 3, 255, 256, 1 << 16):
        assert _read("deflate", octets, limit=200, step=step) == (b"a\n" * 100, True), step


def test_a_fault_just_after_the_limit_is_a_fault_however_it_is_cut() -> None:
    stored = b"\x00\x15\x00\xea\xff" + b"a" * 21  # RFC 1951 3.2.4
    reserved = b"\x07"  # 3.2.3: a block of a type that is none
    for step in (1, 3, 255, 256, 1 << 16):
        assert _fault("deflate", stored + reserved, limit=20, step=step)[0] is FaultKind.ENCODING, step


def test_octets_after_the_end_are_not_kept() -> None:
    for encoding, encode in COMPRESSED:
        body = BoundedBody(encoding, LIMIT)
        body.feed(encode(FILE))
        tracemalloc.start()
        try:
            for _ in range(1_000):
                assert body.feed(bytes(900))
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 100_000, encoding  # the decoder itself, and no octet of its input
        assert body.finish() == (FILE, False)
