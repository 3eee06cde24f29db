from __future__ import annotations

import hashlib
import json
import tracemalloc
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.codec import _DICTIONARY, decode, encode
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


def _sealed(version: bytes, content: bytes) -> bytes:
    return version + hashlib.blake2b(content, digest_size=16).digest() + content


def _of_version_1(head: object, compressed_body: bytes) -> bytes:
    octets = json.dumps(head).encode()
    return _sealed(b"politesse/1 ", len(octets).to_bytes(4, "big") + octets + compressed_body)


def _of_version_2(head: object, body: bytes, *, length: int | None = None) -> bytes:
    octets = json.dumps(head).encode()
    lengths = len(octets).to_bytes(4, "big") + (len(body) if length is None else length).to_bytes(4, "big")
    compressor = zlib.compressobj(zdict=_DICTIONARY)
    return _sealed(b"politesse/2 ", lengths + compressor.compress(octets + body) + compressor.flush())


def _head() -> dict[str, object]:
    """Return the head of the specimen."""
    copy, trouble = RECORD.copy, RECORD.trouble
    assert copy is not None
    assert trouble is not None
    parts: dict[str, object] = {"copy": asdict(copy), "trouble": asdict(trouble), "moment": None}
    del parts["copy"]["body"]  # type: ignore[attr-defined]
    return parts


def _body() -> bytes:
    assert RECORD.copy is not None
    return RECORD.copy.body


def _with_head(change: Callable[[dict[str, object]], object], version: int) -> bytes:
    """Return the specimen with another head, and all its lengths and its digest right."""
    head = _head()
    if version == 2:
        change(head)
        return _of_version_2(head, _body())
    head["body_bytes"] = len(_body())
    change(head)
    return _of_version_1(head, zlib.compress(_body()))


both_versions = pytest.mark.parametrize("version", [1, 2])


@given(_RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize("result", AccessResult)
def test_an_access_result_comes_back_as_such(result: AccessResult) -> None:
    copy = Copy(result, 200, URL, b"", "", "", 0.0, 0.0)
    back = decode(encode(Record(copy, None))).copy
    assert back is not None
    assert back.result is result


@both_versions
def test_a_record_of_either_version_is_readable(version: int) -> None:
    assert decode(_with_head(lambda head: None, version)) == RECORD


@both_versions
def test_a_record_of_an_older_version_has_no_moment(version: int) -> None:
    assert decode(_with_head(lambda head: head.pop("moment"), version)).moment is None


def test_what_most_records_have_in_common_takes_no_room() -> None:
    body = b"User-agent: *\nDisallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\n"
    copy = Copy(AccessResult.SUCCESSFUL, 200, URL, body, "", "", 1_800_000_000.123, 86_400.0)
    assert len(encode(Record(copy, None, Moment("0123456789abcdef", 1_800_000_000.123, 4711.123)))) < 200


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


@given(st.sampled_from([b"politesse/1 ", b"politesse/2 "]), st.binary(max_size=200))
def test_noise_behind_a_right_version_is_no_record(version: bytes, noise: bytes) -> None:
    with pytest.raises(StoreError):
        decode(version + noise)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON, st.binary(max_size=30))
def test_a_head_of_any_other_shape_is_damaged(head: object, body: bytes) -> None:
    for data in (_of_version_1(head, zlib.compress(body)), _of_version_2(head, body)):
        with pytest.raises(StoreError, match="damaged"):
            decode(data)


@pytest.mark.parametrize(
    "start",
    [
        b"politesse/3 ",
        b"politesse/0 ",
        b"politesse/22 ",
        b"politesse/2",
        b"POLITESSE/2 ",
        b"\x80\x04",
        b" politesse/2 ",
    ],
)
def test_another_version_is_named_as_such(start: bytes) -> None:
    with pytest.raises(StoreError, match="another version"):
        decode(start + DATA[len(b"politesse/2 ") :] if start != b"politesse/2" else start)


def test_a_message_about_another_version_does_not_repeat_the_record() -> None:
    with pytest.raises(StoreError) as caught:
        decode(b"x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("part", ["copy", "trouble"])
@pytest.mark.parametrize("change", ["missing", "text", "infinite", "result"])
@both_versions
def test_a_part_with_other_fields_is_damaged(part: str, change: str, version: int) -> None:
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
        decode(_with_head(spoil, version))


@pytest.mark.parametrize("length", [0, 1, 659, 661, 10**9, -2, 1.5, None, "660", [], {}])
def test_a_body_of_another_length_than_the_head_says_is_damaged(length: object) -> None:
    assert len(_body()) == 660
    with pytest.raises(StoreError):
        decode(_with_head(lambda head: head.update(body_bytes=length), version=1))
    if isinstance(length, int) and length >= 0:
        with pytest.raises(StoreError):
            decode(_of_version_2(_head(), _body(), length=length))


@pytest.mark.parametrize("claimed", [0, 100, 600_000])
def test_a_body_that_swells_beyond_what_the_head_says_is_bounded_in_memory(claimed: int) -> None:
    head = {"copy": None, "trouble": None, "moment": None}
    bomb = bytes(100_000_000)
    old = _of_version_1(head | {"body_bytes": claimed}, zlib.compress(bomb))
    for data in (old, _of_version_2(head, bomb, length=claimed)):
        tracemalloc.start()
        try:
            with pytest.raises(StoreError):
                decode(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 * (claimed + len(data)) + 200_000


@pytest.mark.parametrize("part", ["copy", "trouble", "head"])
@both_versions
def test_what_a_later_version_adds_is_ignored(part: str, version: int) -> None:
    def add(head: dict[str, object]) -> None:
        fields = head if part == "head" else head[part]
        assert isinstance(fields, dict)
        fields["mood"] = "good"

    assert decode(_with_head(add, version)) == RECORD


@pytest.mark.parametrize("name", ["status", "failures", "confirmed_wall", "etag"])
@pytest.mark.parametrize("value", [True, [], {}, "x", float("nan"), 10**400])
@both_versions
def test_a_field_of_another_kind_is_damaged(name: str, value: object, version: int) -> None:
    def spoil(head: dict[str, object]) -> None:
        fields = head["trouble" if name == "failures" else "copy"]
        assert isinstance(fields, dict)
        fields[name] = value

    if (name, value) == ("etag", "x") or (name in {"status", "failures"} and value == 10**400):
        assert isinstance(decode(_with_head(spoil, version)), Record)
    else:
        with pytest.raises(StoreError, match="damaged"):
            decode(_with_head(spoil, version))


def test_a_record_answers_for_its_own_key_only() -> None:
    kept = encode(RECORD, "https://a.example")
    assert decode(kept, "https://a.example") == RECORD
    for other in ("https://b.example", "http://a.example", "https://a.example:8443"):
        with pytest.raises(StoreError, match=other):
            decode(kept, other)


@pytest.mark.parametrize("key", [None, 1, [], "", "https://a.example/", {"https://a.example": 1}])
@both_versions
def test_a_record_with_another_kind_of_key_answers_for_none(key: object, version: int) -> None:
    with pytest.raises(StoreError):
        decode(_with_head(lambda head: head.update(key=key), version), "https://a.example")


@pytest.mark.parametrize("given", ["text", 1, None, [], object()])
def test_what_is_no_octets_is_no_record(given: object) -> None:
    with pytest.raises(StoreError, match="bytes"):
        decode(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_octets_of_any_type_are_read(kind: type) -> None:
    assert decode(kind(DATA)) == RECORD


@pytest.mark.parametrize("name", ["record-2", "record-1", "record-1-without-key", "record-1-without-moment"])
def test_a_record_of_an_earlier_version_is_read(name: str) -> None:
    record = decode((Path(__file__).parent / "data" / f"{name}.bin").read_bytes(), "https://example.com")
    assert (record.copy, record.trouble) == (RECORD.copy, RECORD.trouble)
    assert record.moment == (None if name.endswith("moment") else Moment("run", 1_800_000_100.5, 12.25))


@pytest.mark.parametrize("name", ["record-2", "record-1"])
def test_the_record_in_the_tree_names_its_key(name: str) -> None:
    data = (Path(__file__).parent / "data" / f"{name}.bin").read_bytes()
    with pytest.raises(StoreError, match="example"):
        decode(data, "https://other.example")
