import json
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.outcome import DefiniteAnswer, Moment, Record, Trouble
from politesse._cache.records import decode, decode_state, encode, encode_state, framed
from politesse._pacing.host_state import BackoffRecord, HostState, joined
from politesse.errors import StoreError
from politesse.ports import MAX_BODY_BYTES
from politesse.verdict import CLOSINGS, AccessResult, Bound

URL = "https://example.com/robots.txt"
RECORD = Record(
    answer=DefiniteAnswer(
        result=AccessResult.SUCCESSFUL,
        status=200,
        final_url=URL,
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
    body=b"User-agent: *\nDisallow: /private\n" * 20,
)
KEY = "https://example.com"
VERSION = b"politesse/3 "
STATE_VERSION = b"politesse-pace/1 "
DATA = encode(RECORD, KEY)

# What remote servers write: any character, and the lone surrogates that stand for octets that are no UTF-8.
_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=60)
_WALL = st.floats(0.0, 1e11)
_STATUS = st.none() | st.integers(100, 999)
_DEFINITE = st.builds(
    DefiniteAnswer,
    result=st.sampled_from(AccessResult),
    status=_STATUS,
    final_url=_TEXT,
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
_MOMENTS = st.none() | st.builds(Moment, run=_TEXT, wall=_WALL, mono=st.floats(0.0, 1e11))
_RECORDS = st.builds(Record, _DEFINITE, st.none() | _TROUBLES, _MOMENTS, st.binary(max_size=2_000))
_RECORDS |= st.builds(Record, st.none(), _TROUBLES, _MOMENTS)


HOST = "example.com"
_SECONDS = st.floats(0.0, 1e6)
_ANSWERS = st.builds(
    BackoffRecord,
    closed_s=st.floats(-1e6, 1e6),
    closed_by=st.sampled_from(sorted(CLOSINGS)),
    backoff_s=_SECONDS,
    fetch_backoff_s=_SECONDS,
    refused_s=st.floats(-1e10, 0.0),
    latency_s=_SECONDS,
    answered=st.booleans(),
    quota_interval_s=_SECONDS,
    quota_s=st.floats(-1e6, 1e6),
    refusal_s=_SECONDS,
)
_STATES = st.builds(
    HostState,
    noted_by=st.text(max_size=16),
    run=st.text(max_size=16),
    wall=st.floats(0.0, 1e11),
    mono=_SECONDS,
    asked_s=st.none() | _SECONDS,
    under_way=st.booleans(),
    answers=st.none() | _ANSWERS,
    answers_s=_SECONDS,
)
STATE = HostState(
    "pacer",
    "run",
    1_800_000_000.5,
    12.5,
    3.0,
    answers=BackoffRecord(
        closed_s=9.0,
        closed_by=Bound.BACKOFF,
        backoff_s=10.0,
        fetch_backoff_s=0.0,
        refused_s=-1.0,
        latency_s=0.5,
        answered=True,
        quota_interval_s=0.0,
        quota_s=0.0,
    ),
    answers_s=20.0,
)
STATE_DATA = encode_state(STATE, HOST)

CONTENT = json.loads(STATE_DATA[len(framed(STATE_VERSION, b"")) :])

Read: TypeAlias = "Callable[[object], Record | HostState]"


def _read_state(data: object) -> HostState:
    return decode_state(data, HOST)


def _read_record(data: object) -> Record:
    return decode(data, KEY)


KINDS: list[tuple[Read, bytes, object]] = [(_read_record, DATA, RECORD), (_read_state, STATE_DATA, STATE)]


def _outcome(read: Read, data: object) -> object:
    """Decode; anything that is raised but StoreError fails the test."""
    try:
        return read(data)
    except StoreError as error:
        return error


def _with_head(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the specimen with a changed head and a right digest."""
    answer, trouble = RECORD.answer, RECORD.trouble
    assert answer is not None
    assert trouble is not None
    head: dict[str, Any] = {"key": KEY, "copy": asdict(answer), "trouble": asdict(trouble), "moment": None}
    change(head)
    return _sealed(json.dumps(head).encode() + b"\n" + RECORD.body)


def _sealed(plain: bytes) -> bytes:
    return framed(VERSION, zlib.compress(plain))


@given(_RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(encode(record, KEY), KEY) == record


def test_a_head_has_no_field_with_its_default() -> None:
    answer = DefiniteAnswer(AccessResult.SUCCESSFUL, 200, URL, "", "", 0.0, 0.0, cut_bytes=9)
    data = encode(Record(answer, None), KEY)
    head = json.loads(zlib.decompress(data.removeprefix(VERSION)[16:]).partition(b"\n")[0])
    assert set(head["copy"]) - {"status", "result", "final_url", "etag", "last_modified"} == {
        "confirmed_wall",
        "lifetime_s",
        "cut_bytes",
    }


def test_a_file_is_stored_compressed() -> None:
    answer, body = DefiniteAnswer(AccessResult.SUCCESSFUL, 200, URL, "", "", 0.0, 0.0), b"Disallow: /private\n" * 10_000
    assert len(encode(Record(answer, None, body=body), KEY)) < len(body) / 20


@given(_STATES, st.text(max_size=60))
def test_a_state_comes_back_as_it_was(state: HostState, host: str) -> None:
    assert decode_state(encode_state(state, host), host) == state


def test_octets_cut_off_anywhere_are_damaged() -> None:
    for read, data, kept in KINDS:
        assert read(data) == kept
        assert all(isinstance(_outcome(read, data[:length]), StoreError) for length in range(len(data)))


_CUTS = st.tuples(st.integers(0, len(DATA)), st.integers(0, 30), st.binary(max_size=30))


@given(st.lists(_CUTS, min_size=1, max_size=3))
def test_damage_raises_nothing_but_store_error(cuts: list[tuple[int, int, bytes]]) -> None:
    for read, data, kept in KINDS:
        damaged = data
        for place, removed, inserted in cuts:
            damaged = damaged[:place] + inserted + damaged[place + removed :]
        outcome = _outcome(read, damaged)
        assert isinstance(outcome, StoreError) or outcome == kept


@given(st.sampled_from([b"", VERSION, STATE_VERSION]), st.binary(max_size=200))
def test_noise_is_damaged(start: bytes, noise: bytes) -> None:
    for read, *_ in KINDS:
        assert isinstance(_outcome(read, start + noise), StoreError)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON, st.binary(max_size=30))
def test_content_of_any_other_shape_is_damaged(content: object, body: bytes) -> None:
    with pytest.raises(StoreError, match="damaged"):
        decode(_sealed(json.dumps(content).encode() + b"\n" + body), KEY)
    assert isinstance(_outcome(_read_state, framed(STATE_VERSION, json.dumps(content).encode())), StoreError)


@given(st.sampled_from([*CONTENT]), _JSON)
def test_field_of_any_other_kind_raises_nothing_but_store_error(name: str, value: object) -> None:
    outcome = _outcome(_read_state, framed(STATE_VERSION, json.dumps(CONTENT | {name: value}).encode()))
    assert isinstance(outcome, StoreError | HostState)


def test_another_version_is_named_as_such_and_the_record_not_quoted() -> None:
    assert "another version" in str(_outcome(_read_state, STATE_DATA.replace(b"/1 ", b"/2 ", 1)))
    for start in (b"politesse/2 ", b"politesse/33 ", b"POLITESSE/3 ", b"\x80\x04", b" politesse/3 "):
        with pytest.raises(StoreError, match="another version") as caught:
            decode(start + b"x" * 100_000, KEY)
        assert len(str(caught.value)) < 200


def test_a_field_of_another_type_or_none_at_all_is_damaged() -> None:
    wrong: list[tuple[str, str, object]] = [
        ("copy", "result", "allowed"),
        ("copy", "final_url", 1),
        ("copy", "etag", None),
        ("copy", "cut_bytes", "x"),
        ("copy", "confirmed_wall", float("inf")),
        ("copy", "confirmed_wall", 10**400),
        ("trouble", "retry_wall", float("nan")),
        ("trouble", "failures", None),
        ("trouble", "failures", True),
    ]
    for part, name, value in wrong:
        with pytest.raises(StoreError, match="damaged"):
            decode(_with_head(lambda head, p=part, n=name, v=value: head[p].update({n: v})), KEY)  # type: ignore[misc]
    for part in ("copy", "trouble"):
        with pytest.raises(StoreError, match="damaged"):
            decode(_with_head(lambda head, p=part: head[p].pop("status")), KEY)  # type: ignore[misc]


def test_what_a_later_version_adds_is_ignored_and_what_it_adds_now_has_a_default() -> None:
    def change(head: dict[str, Any]) -> None:
        for part in (head, head["copy"], head["trouble"]):
            part["mood"] = "good"
        del head["copy"]["cut_bytes"]

    assert decode(_with_head(change), KEY) == RECORD
    assert _read_state(framed(STATE_VERSION, json.dumps(CONTENT | {"mood": "good"}).encode())) == STATE


def test_a_body_that_swells_is_bounded_in_memory() -> None:
    packer = zlib.compressobj()
    head = packer.compress(b"{}\n") + packer.flush(zlib.Z_FULL_FLUSH)
    megabyte = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    data = framed(VERSION, head + megabyte * 200)
    tracemalloc.start()
    try:
        assert isinstance(_outcome(_read_record, data), StoreError)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MAX_BODY_BYTES


def test_a_record_answers_for_its_own_key_only() -> None:
    for key in ("https://b.example", "http://example.com", "https://example.com:8443", ""):
        with pytest.raises(StoreError, match="is one of"):
            decode(DATA, key)
    others: list[object] = [None, 1, [], "", {KEY: 1}]
    for wrong in others:
        with pytest.raises(StoreError):
            decode(_with_head(lambda head, key=wrong: head.update(key=key)), KEY)  # type: ignore[misc]


def test_octets_of_any_type_are_read_and_what_is_none_is_damaged() -> None:
    assert decode(bytearray(DATA), KEY) == decode(memoryview(DATA), KEY) == RECORD
    for (read, *_), given_ in product(KINDS, ("text", 1, None, [], object())):
        with pytest.raises(StoreError, match="bytes"):
            read(given_)


@given(_STATES, _STATES, _SECONDS)
def test_joining_loses_nothing_that_binds(ours: HostState, theirs: HostState, passed_s: float) -> None:
    both = joined(ours, theirs, passed_s)
    for state, ago_s in ((ours, 0.0), (theirs, passed_s)):
        answers = state.answers if state is ours else state.answers_after(passed_s)
        if answers is not None and answers.closed_s > 0.0:
            assert both.answers is not None
            assert both.answers.closed_s >= answers.closed_s
            assert both.answers.backoff_s >= answers.backoff_s
        if state.asked_s is not None:
            assert both.asked_s is not None
            assert both.asked_s <= state.asked_s + ago_s
