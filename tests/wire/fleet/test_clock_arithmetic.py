import re
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._pacing.fleet.server_clock import ServerClock, ServerClocks

DAY_US = 86_400_000_000


def read(clock: ServerClock, at_s: float, sent_mono: float, received_mono: float) -> str:
    return clock.fault(DAY_US + round(at_s * 1e6), sent_mono, received_mono)


def test_a_clock_that_runs_as_ours_is_never_faulty_however_late_its_answers_come() -> None:
    clock = ServerClock()
    assert read(clock, 0.001, 0.0, 0.002) == ""
    assert read(clock, 5.0, 5.0, 65.0) == ""  # this process was stopped
    assert read(clock, 125.0, 65.0, 125.0) == ""  # the server was
    assert read(clock, 125.01, 125.0, 125.02) == ""


@pytest.mark.parametrize(
    ("by_s", "said"),
    [(3600.0, "forward by 3600.0 s"), (0.2, "forward by 0.2 s"), (-0.2, "back by 0.2 s"), (-3600.0, "back by 3600.0")],
)
def test_a_clock_that_was_set_is_found_by_one_answer(by_s: float, said: str) -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    assert f"its clock was set {said}" in read(clock, 1.0 + by_s, 0.999, 1.001)


def test_a_late_answer_does_not_widen_the_bounds() -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    read(clock, 1.0, 0.0, 60.0)
    assert "forward by 8.9 s" in read(clock, 70.0, 60.999, 61.001)


def test_a_message_shows_a_clock_that_was_set_forward_only() -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    assert read(clock, 5.0, -inf, 65.0) == ""  # it was long on its way, or the clock was set back
    assert "forward by 13.9 s" in read(clock, 80.0, -inf, 66.0)


def test_two_good_clocks_may_drift_apart() -> None:
    clock = ServerClock()
    readings = [read(clock, at_s * 1.0004, at_s - 0.001, at_s + 0.001) for at_s in map(float, range(0, 86_400, 5))]
    assert set(readings) == {""}
    assert clock.stretch == 1.0


@pytest.mark.parametrize(
    ("rate", "word"), [(1.01, "1.0% too fast"), (0.99, "1.0% too slowly"), (1.05, "5.0% too fast")]
)
@pytest.mark.parametrize("pause_s", [0.1, 1.0, 5.0])
def test_a_clock_that_runs_too_fast_is_a_fault_once_and_intervals_are_stretched(
    rate: float, word: str, pause_s: float
) -> None:
    clock = ServerClock()
    times = [place * pause_s for place in range(round(300.0 / pause_s))]
    faults = [fault for at_s in times if (fault := read(clock, at_s * rate, at_s - 0.001, at_s + 0.001))]
    assert len(faults) <= 2
    assert faults[0].startswith("its clock runs ")
    assert word[-8:] in faults[0]
    assert clock.stretch >= rate


@pytest.mark.parametrize("late_s", [0.5, 1.0, 3.0])
def test_a_late_answer_makes_a_fast_clock_seem_no_faster_and_not_set(late_s: float) -> None:
    clock = ServerClock()
    read(clock, 0.0, 0.0, late_s)  # the server read its clock at once
    times = [late_s + 0.05 + place for place in range(60)]
    faults = [fault for at_s in times if (fault := read(clock, at_s * 1.02, at_s, at_s + 0.001))]
    assert [re.sub(r"[0-9.]+%", "N%", fault) for fault in faults] == ["its clock runs N% too fast"]
    assert 1.01 <= clock.stretch <= 1.03


@given(
    rate=st.floats(0.92, 1.08),
    delays=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 3), st.floats(0, 3)), min_size=2, max_size=30),
)
def test_delays_never_make_a_clock_seem_faster_than_it_is(
    rate: float, delays: list[tuple[float, float, float]]
) -> None:
    clock, now_mono = ServerClock(), 0.0
    for pause_s, there_s, back_s in delays:
        sent_mono = now_mono + pause_s
        at_mono = sent_mono + there_s
        now_mono = at_mono + back_s
        fault = read(clock, at_mono * rate, sent_mono, now_mono)
        assert "was set" not in fault
        assert clock.stretch <= max(1.0, 1.0 + 1.5 * (rate - 1.0) + 1e-6)


def test_each_clock_is_one_of_its_own_and_all_can_be_forgotten() -> None:
    clocks = ServerClocks()
    assert clocks.fault(1, 0, 0.0, 0.0) == ""
    assert clocks.fault(2, DAY_US, 0.0, 0.0) == ""
    assert clocks.fault(1, DAY_US, 0.0, 0.0) != ""
    clocks.forget()
    assert clocks.fault(1, DAY_US, 0.0, 0.0) == ""
