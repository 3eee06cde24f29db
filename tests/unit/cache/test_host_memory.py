from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._cache.framing import framed
from politesse._cache.host_memory import decode_state, encode_state
from politesse._pacing.backoff import Answers
from politesse._pacing.host_state import HostState, joined
from politesse.errors import StoreError
from politesse.verdict import Bound

HOST = "example.com"
_S = st.floats(0.0, 1e6)
_ANSWERS = st.builds(
    Answers,
    closed_s=st.floats(-1e6, 1e6),
    closed_by=st.sampled_from([Bound.RETRY_AFTER, Bound.BACKOFF, Bound.RATE_LIMIT]),
    backoff_s=_S,
    fetch_backoff_s=_S,
    refused_s=st.floats(-1e10, 0.0),
    latency_s=_S,
    retrieval_s=_S,
    answered=st.booleans(),
    quota_interval_s=_S,
    quota_s=st.floats(-1e6, 1e6),
)
_STATES = st.builds(
    HostState,
    noted_by=st.text(max_size=16),
    run=st.text(max_size=16),
    wall=st.floats(0.0, 1e11),
    mono=_S,
    asked_s=st.none() | _S,
    under_way=st.booleans(),
    answers=st.none() | _ANSWERS,
    answers_s=_S,
)
STATE = HostState(
    "pacer",
    "run",
    1_800_000_000.5,
    12.5,
    3.0,
    answers=Answers(
        closed_s=9.0,
        closed_by=Bound.BACKOFF,
        backoff_s=10.0,
        fetch_backoff_s=0.0,
        refused_s=-1.0,
        latency_s=0.5,
        retrieval_s=0.5,
        answered=True,
        quota_interval_s=0.0,
        quota_s=0.0,
    ),
    answers_s=20.0,
)
DATA = encode_state(STATE, HOST)


def _outcome(data: object) -> HostState | StoreError:
    """Decode; anything that is raised but StoreError fails the test."""
    try:
        return decode_state(data, HOST)
    except StoreError as error:
        return error


@given(_STATES, st.text(max_size=60))
def test_a_state_comes_back_as_it_was(state: HostState, host: str) -> None:
    assert decode_state(encode_state(state, host), host) == state


@given(
    st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 30), st.binary(max_size=30)), min_size=1, max_size=3)
)
def test_damage_raises_nothing_but_store_error_and_never_changes_a_state(cuts: list[tuple[int, int, bytes]]) -> None:
    damaged = DATA
    for place, removed, inserted in cuts:
        damaged = damaged[:place] + inserted + damaged[place + removed :]
    outcome = _outcome(damaged)
    assert isinstance(outcome, StoreError) or outcome == STATE


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON)
def test_content_of_any_other_shape_is_no_state(content: object) -> None:
    assert isinstance(_outcome(framed(b"politesse-pace/1 ", json.dumps(content).encode())), StoreError)


@given(st.sampled_from([*json.loads(DATA[33:])]), _JSON)
def test_field_of_any_other_kind_raises_nothing_but_store_error(name: str, value: object) -> None:
    content = json.loads(DATA[33:]) | {name: value}
    outcome = _outcome(framed(b"politesse-pace/1 ", json.dumps(content).encode()))
    assert isinstance(outcome, StoreError | HostState)


def test_octets_that_are_no_text_are_no_state() -> None:
    assert isinstance(_outcome(framed(b"politesse-pace/1 ", b"\xff\xfe{}")), StoreError)


@pytest.mark.parametrize("given_", ["text", 7, None, [], b"", b"politesse/1 "])
def test_what_is_no_octets_of_this_version_is_no_state(given_: object) -> None:
    assert isinstance(_outcome(given_), StoreError)


@given(_STATES, _STATES, _S)
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
