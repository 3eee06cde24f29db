from __future__ import annotations

from math import inf

import pytest

from politesse._pacing.fleet.server_clock import ServerClock, ServerClocks

DAY_US = 86_400_000_000


def read(clock: ServerClock, at_s: float, sent_mono: float, received_mono: float) -> float:
    return clock.jump_s(DAY_US + round(at_s * 1e6), sent_mono, received_mono)


def test_a_clock_that_runs_as_ours_has_not_jumped_however_late_its_answers_come() -> None:
    clock = ServerClock()
    assert read(clock, 0.001, 0.0, 0.002) == 0.0
    assert read(clock, 5.0, 5.0, 65.0) == 0.0  # this process was stopped
    assert read(clock, 125.0, 65.0, 125.0) == 0.0  # the server was
    assert read(clock, 125.01, 125.0, 125.02) == 0.0


@pytest.mark.parametrize("by_s", [3600.0, 0.2, -0.2, -3600.0])
def test_a_jump_is_found_by_one_answer(by_s: float) -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    assert read(clock, 1.0 + by_s, 0.999, 1.001) == pytest.approx(by_s, abs=0.01)


def test_a_late_answer_does_not_widen_what_is_known() -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    read(clock, 1.0, 0.0, 60.0)
    assert read(clock, 62.0, 60.999, 61.001) == pytest.approx(1.0, abs=0.1)


def test_a_message_shows_a_jump_forward_only() -> None:
    clock = ServerClock()
    read(clock, 0.001, 0.0, 0.002)
    assert read(clock, 5.0, -inf, 65.0) == 0.0  # it was long on its way, or the clock was set back
    assert read(clock, 70.0, -inf, 66.0) == pytest.approx(4.0, abs=0.1)


def test_two_good_clocks_may_drift_apart() -> None:
    clock = ServerClock()
    assert [read(clock, at_s * 1.0004, at_s - 0.001, at_s + 0.001) for at_s in map(float, range(0, 86_400, 5))] == [
        0.0
    ] * 17_280


def test_a_clock_that_runs_too_fast_is_found() -> None:
    clock = ServerClock()
    jumps = [read(clock, at_s * 1.02, at_s - 0.001, at_s + 0.001) for at_s in map(float, range(20))]
    assert any(jump > 0.0 for jump in jumps)


def test_each_clock_is_one_of_its_own_and_all_can_be_forgotten() -> None:
    clocks = ServerClocks()
    assert clocks.jump_s(1, 0, 0.0, 0.0) == 0.0
    assert clocks.jump_s(2, DAY_US, 0.0, 0.0) == 0.0
    assert clocks.jump_s(1, DAY_US, 0.0, 0.0) > 0.0
    clocks.clear()
    assert clocks.jump_s(1, DAY_US, 0.0, 0.0) == 0.0
