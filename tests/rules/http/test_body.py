import gzip
import tracemalloc
import zlib
from collections.abc import Callable

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


def _plain(data: bytes) -> bytes:
    return data


CODECS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("", _plain),
    ("identity", _plain),
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", _raw_deflate),
]
CODEC_IDS = ["none", "identity", "gzip", "x-gzip", "zlib", "raw deflate"]
COMPRESSED = pytest.mark.parametrize(("encoding", "encode"), CODECS[2:], ids=CODEC_IDS[2:])
EVERY_CODEC = pytest.mark.parametrize(("encoding", "encode"), CODECS, ids=CODEC_IDS)


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


@pytest.mark.parametrize("encoding", ["GZIP", " gzip ", "GZip"])
def test_the_name_of_an_encoding_has_no_case_and_no_blanks(encoding: str) -> None:
    assert _read(encoding, gzip.compress(FILE)) == (FILE, False)


@EVERY_CODEC
def test_an_empty_body_is_empty_in_every_encoding(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    body = BoundedBody(encoding, LIMIT)
    assert body.feed(b"")
    assert body.finish() == (b"", False)


@pytest.mark.clause("RFC 1952 2.2")
@pytest.mark.parametrize("step", [1, 3, 1 << 16])
def test_consecutive_gzip_members_are_one_file(step: int) -> None:
    octets = gzip.compress(b"User-agent: *\n") + gzip.compress(b"") + gzip.compress(b"Disallow: /private\n")
    assert _read("gzip", octets, step=step) == (FILE, False)


@COMPRESSED
@pytest.mark.parametrize("step", [1, 1 << 16])
@pytest.mark.parametrize("padding", [b"\x00" * 500, b"\n", b"trailing words"])
def test_padding_after_the_last_member_is_dropped(
    encoding: str, encode: Callable[[bytes], bytes], padding: bytes, step: int
) -> None:
    assert _read(encoding, encode(FILE) + padding, step=step) == (FILE, False)


@pytest.mark.clause("RFC 9309 2.3.1.4")
@COMPRESSED
def test_a_body_that_ends_anywhere_before_its_end_is_truncated(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    octets = encode(FILE)
    for length in range(1, len(octets)):
        with pytest.raises(BodyError) as caught:
            _read(encoding, octets[:length])
        assert caught.value.kind is FaultKind.TRUNCATED, length


@pytest.mark.parametrize(
    ("encoding", "octets"),
    [
        ("gzip", FILE),
        ("gzip", zlib.compress(FILE)),
        ("deflate", gzip.compress(FILE)),
        ("deflate", b"\xff" * 50),
        ("gzip", gzip.compress(FILE)[:-8] + bytes(8)),
        ("deflate", zlib.compress(FILE)[:-4] + bytes(4)),
        ("gzip", gzip.compress(FILE)[:10] + b"\x07" + bytes(40)),  # RFC 1951 3.2.3: block type 3 is an error
    ],
    ids=[
        "plain text as gzip",
        "zlib as gzip",
        "gzip as deflate",
        "noise as deflate",
        "wrong gzip checksum",
        "wrong zlib checksum",
        "gzip broken inside",
    ],
)
@pytest.mark.parametrize("step", [1, 1 << 16])
def test_a_broken_body_is_an_encoding_fault(encoding: str, octets: bytes, step: int) -> None:
    with pytest.raises(BodyError, match="is broken") as caught:
        _read(encoding, octets, step=step)
    assert caught.value.kind is FaultKind.ENCODING


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


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "compress", "gzip, gzip", "gzip, br", "UTF-8, br", "br;q=1", '"br"']
)
def test_an_encoding_that_was_not_requested_is_a_fault(encoding: str) -> None:
    with pytest.raises(BodyError, match="not requested") as caught:
        BoundedBody(encoding, LIMIT)
    assert caught.value.kind is FaultKind.ENCODING


@pytest.mark.clause("RFC 9110 8.4")
@pytest.mark.parametrize(
    "encoding", ["UTF-8", "none", "8bit", "iso-8859-1", "text/plain", "utf-8, identity", "x", "\udcff", "*", ", ,"]
)
def test_a_token_that_names_no_registered_coding_is_ignored(encoding: str) -> None:
    assert _read(encoding, FILE) == (FILE, False)


@pytest.mark.parametrize("encoding", ["gzip,", "identity, gzip", "gzip, utf-8", "GZIP ;q=1", ' "gzip"'])
def test_the_only_registered_coding_counts(encoding: str) -> None:
    assert _read(encoding, gzip.compress(FILE)) == (FILE, False)


def _filled(rule: bytes, end: int) -> bytes:
    """Return a file in which ``rule``, without its line end, ends at octet number ``end``, counted from 1."""
    head = b"User-agent: *\n"
    comment = b"#" * (end - len(head) - 1 - len(rule)) + b"\n"
    return head + comment + rule


@pytest.mark.clause("RFC 9309 2.5")
@EVERY_CODEC
@pytest.mark.parametrize("behind", [b"", b"\n", b"\r\n", b"\nDisallow: /more\n"], ids=["end", "LF", "CRLF", "more"])
def test_a_rule_that_ends_at_octet_512000_is_effective(
    encoding: str, encode: Callable[[bytes], bytes], behind: bytes
) -> None:
    body, truncated = _read(encoding, encode(_filled(b"Disallow: /last", LIMIT) + behind))
    rules = RobotsTxt.parse(body).rules_for("ExampleBot")
    assert not rules.allowed("/last")
    assert truncated == bool(behind)
    assert rules.allowed("/more")


@EVERY_CODEC
def test_a_file_of_exactly_the_limit_is_whole(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    file = _filled(b"Disallow: /last\n", LIMIT)
    assert len(file) == LIMIT
    assert _read(encoding, encode(file)) == (file, False)


@EVERY_CODEC
@pytest.mark.parametrize("beyond", [1, 5, 14])
def test_a_rule_cut_by_the_limit_is_dropped_not_shortened(
    encoding: str, encode: Callable[[bytes], bytes], beyond: int
) -> None:
    file = _filled(b"Allow: /private\nDisallow: /private/x", LIMIT + beyond)
    body, truncated = _read(encoding, encode(file))
    assert truncated
    assert body.endswith(b"\nAllow: /private\n")
    assert RobotsTxt.parse(body).rules_for("ExampleBot").match("/private/x").allowed


@pytest.mark.parametrize(
    ("body", "limit", "kept"),
    [
        (b"ab\ncd\n", 2, b"ab"),
        (b"ab\ncd\n", 3, b"ab\n"),
        (b"ab\ncd\n", 4, b"ab\n"),
        (b"ab\ncd\n", 5, b"ab\ncd"),
        (b"ab\rcd\r", 4, b"ab\r"),
        (b"ab\r\ncd", 2, b"ab"),
        (b"ab\r\ncd", 3, b"ab\r"),
        (b"ab\r\ncd", 4, b"ab\r\n"),
        (b"ab\r\ncd", 5, b"ab\r\n"),
        (b"abcdef", 3, b""),
        (b"\nbcdef", 3, b"\n"),
    ],
)
def test_the_cut_falls_on_the_end_of_a_line(body: bytes, limit: int, kept: bytes) -> None:
    assert cut_at_line_end(body, limit) == kept


@COMPRESSED
@pytest.mark.parametrize("step", [64, 1 << 16])
def test_a_bomb_is_stopped_at_the_limit_with_bounded_memory(
    encoding: str, encode: Callable[[bytes], bytes], step: int
) -> None:
    bomb = encode(b"Disallow: /a\n" * 800_000)  # 10 MB
    tracemalloc.start()
    try:
        body, truncated = _read(encoding, bomb, step=step)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert truncated
    assert LIMIT - 13 < len(body) <= LIMIT
    assert peak < 6 * LIMIT


@COMPRESSED
def test_feed_stops_once_the_limit_is_passed(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    body = BoundedBody(encoding, LIMIT)
    assert body.feed(encode(b"Disallow: /a\n" * 1_000_000)) is False


def test_gzip_members_that_decode_to_nothing_are_bounded() -> None:
    empty_members = gzip.compress(b"") * 60_000  # 1.2 MB that stand for no octet
    with pytest.raises(BodyError, match="encoded octets") as caught:
        _read("gzip", empty_members)
    assert caught.value.kind is FaultKind.ENCODING


@pytest.mark.parametrize("step", [1, 3, 255, 256, 1 << 16])
def test_the_bound_on_encoded_octets_holds_after_the_limit_however_they_are_cut(step: int) -> None:
    octets = zlib.compress(b"a\n" * 400, 0)  # stored, so that more than twice the limit comes, but behind it
    assert len(octets) > 2 * 200
    assert _read("deflate", octets, limit=200, step=step) == (b"a\n" * 100, True)


@pytest.mark.parametrize("step", [1, 3, 255, 256, 1 << 16])
def test_a_fault_just_after_the_limit_is_a_fault_however_it_is_cut(step: int) -> None:
    stored = b"\x00\x15\x00\xea\xff" + b"a" * 21  # RFC 1951 3.2.4
    reserved = b"\x07"  # 3.2.3: a block of a type that is none
    with pytest.raises(BodyError) as caught:
        _read("deflate", stored + reserved, limit=20, step=step)
    assert caught.value.kind is FaultKind.ENCODING


@pytest.mark.parametrize(("encoding", "encode"), CODECS[2:], ids=CODEC_IDS[2:])
def test_octets_after_the_end_are_not_kept(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    body = BoundedBody(encoding, LIMIT)
    body.feed(encode(FILE))
    tracemalloc.start()
    try:
        for _ in range(1_000):
            assert body.feed(bytes(900))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000  # the decoder itself, and no octet of its input
    assert body.finish() == (FILE, False)
