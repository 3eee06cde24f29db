from __future__ import annotations

import hashlib
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.codec import decode, encode
from politesse._cache.record import Copy, Moment, Record, Trouble
from politesse.errors import StoreError
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://example.com/robots.txt"
RECORD = Record(
    copy=Copy(
        result=AccessResult.SUCCESSFUL,
        status=200,
        final_url=URL,
        body=b"User-agent: *\nDisallow: /private\n" * 20,
        etag='W/"x"',
        last_modified="Sun, 06 Nov 1994 08:49:37 GMT",
        confirmed_wall=1_800_000_000.123,
        lifetime_s=3_600.5,
    ),
    trouble=Trouble(
        result=AccessResult.UNREACHABLE,
        status=None,
        final_url=URL,
        fault="connect: refused",
        since_wall=1_800_000_001.5,
        last_wall=1_800_000_100.5,
        failures=3,
        retry_wall=1_800_000_340.5,
    ),
)
DATA = encode(RECORD)

# What remote servers write: any character, and the lone surrogates that stand for octets that are no UTF-8.
_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=60)
_WALL = st.floats(0.0, 1e11)
_STATUS = st.none() | st.integers(100, 999)
_COPIES = st.builds(
    Copy,
    result=st.sampled_from(AccessResult),
    status=_STATUS,
    final_url=_TEXT,
    body=st.binary(max_size=2_000),
    etag=_TEXT,
    last_modified=_TEXT,
    confirmed_wall=_WALL,
    lifetime_s=_WALL,
    fault=_TEXT,
)
_TROUBLES = st.builds(
    Trouble,
    result=st.sampled_from(AccessResult),
    status=_STATUS,
    final_url=_TEXT,
    fault=_TEXT,
    since_wall=_WALL,
    last_wall=_WALL,
    failures=st.integers(1, 10**6),
    retry_wall=_WALL,
)
_RECORDS = st.builds(Record, _COPIES, st.none() | _TROUBLES) | st.builds(Record, st.none(), _TROUBLES)


def _outcome(data: bytes) -> Record | StoreError:
    """Decode; anything that is raised but StoreError fails the test."""
    try:
        return decode(data)
    except StoreError as error:
        return error


def _sealed(content: bytes) -> bytes:
    return b"politesse/1 " + hashlib.blake2b(content, digest_size=16).digest() + content


def _with_head(change: Callable[[dict[str, object]], None]) -> bytes:
    """Return the specimen with another head, and all its lengths and its digest right."""
    start = DATA.index(b'{"copy"')
    length = int.from_bytes(DATA[start - 4 : start], "big")
    head = json.loads(DATA[start : start + length])
    change(head)
    octets = json.dumps(head).encode()
    return _sealed(len(octets).to_bytes(4, "big") + octets + DATA[start + length :])


@given(_RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize("result", AccessResult)
def test_an_access_result_comes_back_as_such(result: AccessResult) -> None:
    copy = Copy(result, 200, URL, b"", "", "", 0.0, 0.0)
    back = decode(encode(Record(copy, None))).copy
    assert back is not None
    assert back.result is result


def test_undamaged_head_of_the_test_helper_is_readable() -> None:
    assert decode(_with_head(lambda head: None)) == RECORD


def test_a_file_is_kept_compressed() -> None:
    assert RECORD.copy is not None
    copy = Copy(AccessResult.SUCCESSFUL, 200, URL, b"Disallow: /private\n" * 10_000, "", "", 0.0, 0.0)
    assert len(encode(Record(copy, None))) < len(copy.body) / 20


@pytest.mark.parametrize("length", range(len(DATA) - 4))
def test_a_record_cut_off_anywhere_is_damaged(length: int) -> None:
    assert isinstance(_outcome(DATA[:length]), StoreError)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_flipped_octet_raises_nothing_but_store_error_and_never_changes_the_record(place: int, mask: int) -> None:
    damaged = bytearray(DATA)
    damaged[place] ^= mask
    outcome = _outcome(bytes(damaged))
    assert isinstance(outcome, StoreError) or outcome == RECORD


@given(
    st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 30), st.binary(max_size=30)), min_size=1, max_size=3)
)
def test_damage_in_several_places_raises_nothing_but_store_error(cuts: list[tuple[int, int, bytes]]) -> None:
    damaged = DATA
    for place, removed, inserted in cuts:
        damaged = damaged[:place] + inserted + damaged[place + removed :]
    outcome = _outcome(damaged)
    assert isinstance(outcome, StoreError) or outcome == RECORD


@given(st.binary(max_size=200))
def test_noise_is_no_record(noise: bytes) -> None:
    with pytest.raises(StoreError):
        decode(noise)


@given(st.binary(max_size=200))
def test_noise_behind_a_right_version_is_no_record(noise: bytes) -> None:
    with pytest.raises(StoreError):
        decode(b"politesse/1 " + noise)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON, st.binary(max_size=30))
def test_a_head_of_any_other_shape_is_damaged(head: object, body: bytes) -> None:
    octets = json.dumps(head).encode()
    with pytest.raises(StoreError):
        decode(_sealed(len(octets).to_bytes(4, "big") + octets + zlib.compress(body)))


@pytest.mark.parametrize(
    "start",
    [
        b"politesse/2 ",
        b"politesse/0 ",
        b"politesse/11 ",
        b"politesse/1",
        b"POLITESSE/1 ",
        b"\x80\x04",
        b" politesse/1 ",
    ],
)
def test_another_version_is_named_as_such(start: bytes) -> None:
    with pytest.raises(StoreError, match="another version"):
        decode(start + DATA[len(b"politesse/1 ") :] if start != b"politesse/1" else start)


def test_a_message_about_another_version_does_not_repeat_the_record() -> None:
    with pytest.raises(StoreError) as caught:
        decode(b"x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("part", ["copy", "trouble"])
@pytest.mark.parametrize("change", ["missing", "text", "infinite", "result"])
def test_a_part_with_other_fields_is_damaged(part: str, change: str) -> None:
    def spoil(head: dict[str, object]) -> None:
        fields = head[part]
        assert isinstance(fields, dict)
        if change == "missing":
            del fields["status"]
        elif change == "text":
            fields["final_url"] = 1
        elif change == "infinite":
            fields["confirmed_wall" if part == "copy" else "retry_wall"] = float("inf")
        else:
            fields["result"] = "allowed"

    with pytest.raises(StoreError, match="damaged"):
        decode(_with_head(spoil))


@pytest.mark.parametrize("length", [0, 1, 659, 661, 10**9, -2, 1.5, None, "660", [], {}])
def test_a_body_of_another_length_than_the_head_says_is_damaged(length: object) -> None:
    assert RECORD.copy is not None
    assert len(RECORD.copy.body) == 660
    with pytest.raises(StoreError):
        decode(_with_head(lambda head: head.update(body_bytes=length)))


@pytest.mark.parametrize("claimed", [0, 100, 600_000])
def test_a_body_that_swells_beyond_what_the_head_says_is_bounded_in_memory(claimed: int) -> None:
    bomb = zlib.compress(bytes(100_000_000))
    head = json.dumps({"copy": None, "trouble": None, "body_bytes": claimed}).encode()
    data = _sealed(len(head).to_bytes(4, "big") + head + bomb)
    tracemalloc.start()
    try:
        with pytest.raises(StoreError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * (claimed + len(data)) + 200_000


@pytest.mark.parametrize("part", ["copy", "trouble", "head"])
def test_what_a_later_version_adds_is_ignored(part: str) -> None:
    def add(head: dict[str, object]) -> None:
        fields = head if part == "head" else head[part]
        assert isinstance(fields, dict)
        fields["mood"] = "good"

    assert decode(_with_head(add)) == RECORD


@pytest.mark.parametrize("name", ["status", "failures", "confirmed_wall", "etag"])
@pytest.mark.parametrize("value", [True, [], {}, "x", float("nan"), 10**400])
def test_a_field_of_another_kind_is_damaged(name: str, value: object) -> None:
    def spoil(head: dict[str, object]) -> None:
        fields = head["trouble" if name == "failures" else "copy"]
        assert isinstance(fields, dict)
        fields[name] = value

    if (name, value) == ("etag", "x") or (name in {"status", "failures"} and value == 10**400):
        assert isinstance(decode(_with_head(spoil)), Record)
    else:
        with pytest.raises(StoreError, match="damaged"):
            decode(_with_head(spoil))


def test_a_record_answers_for_its_own_key_only() -> None:
    kept = encode(RECORD, "https://a.example")
    assert decode(kept, "https://a.example") == RECORD
    for other in ("https://b.example", "http://a.example", "https://a.example:8443"):
        with pytest.raises(StoreError, match=other):
            decode(kept, other)


@pytest.mark.parametrize("key", [None, 1, [], "", "https://a.example/", {"https://a.example": 1}])
def test_a_record_with_another_kind_of_key_answers_for_none(key: object) -> None:
    with pytest.raises(StoreError):
        decode(_with_head(lambda head: head.update(key=key)), "https://a.example")


@pytest.mark.parametrize("given", ["text", 1, None, [], object()])
def test_what_is_no_octets_is_no_record(given: object) -> None:
    with pytest.raises(StoreError, match="bytes"):
        decode(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_octets_of_any_type_are_read(kind: type) -> None:
    assert decode(kind(DATA)) == RECORD


@pytest.mark.parametrize("name", ["record-1", "record-1-without-key", "record-1-without-moment"])
def test_a_record_of_an_earlier_version_is_read(name: str) -> None:
    record = decode((Path(__file__).parent / "data" / f"{name}.bin").read_bytes(), "https://example.com")
    assert (record.copy, record.trouble) == (RECORD.copy, RECORD.trouble)
    assert record.moment == (None if name.endswith("moment") else Moment("run", 1_800_000_100.5, 12.25))


def test_the_record_in_the_tree_names_its_key() -> None:
    data = (Path(__file__).parent / "data" / "record-1.bin").read_bytes()
    with pytest.raises(StoreError, match="example"):
        decode(data, "https://other.example")
