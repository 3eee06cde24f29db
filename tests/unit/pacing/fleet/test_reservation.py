import pytest

from politesse._pacing.fleet.messages import FleetAnswer, microseconds
from politesse._pacing.fleet.reservation import FleetHostState, Reservation
from politesse.verdict import Bound
from tests.support.pacing import wants


def answer(at_us: int, wait_s: float = 0.0, kind: str = "granted") -> FleetAnswer:
    return FleetAnswer(kind, "a.1", at_us, wait_s, 0, "interval", tolerance_s=0.01)


def test_lateness_counts_from_the_question() -> None:
    reservation = Reservation("a.1", wants(), FleetHostState())
    reservation.asked_mono, reservation.asked_at_us = 100.0, 5_000_000
    reservation.take(answer(5_000_000, 2.0), 100.3)
    assert reservation.starts_mono == pytest.approx(102.3)
    assert reservation.late_s(102.3, 1.0) == pytest.approx(0.3)


def test_lateness_of_a_message_counts_from_the_question_by_the_time_of_redis() -> None:
    reservation = Reservation("a.1", wants(), FleetHostState())
    reservation.asked_mono, reservation.asked_at_us = 100.0, 5_000_000
    reservation.take(answer(5_000_000, kind="queued"), 100.001)
    reservation.take(answer(8_000_000, 0.5), 107.0)  # sent 3 s after the question; read 4 s later
    assert reservation.late_s(107.5, 1.0) == pytest.approx(4.0)


def test_an_older_answer_does_not_replace_a_newer_message() -> None:
    reservation = Reservation("a.1", wants(), FleetHostState())
    newer = answer(6_000_000)
    reservation.take(newer, 101.0)
    reservation.take(answer(5_000_000, kind="queued"), 101.1)
    assert reservation.answer is newer


def test_without_an_answer_it_is_always_late() -> None:
    assert Reservation("a.1", wants(), FleetHostState()).late_s(0.0, 1.0) == float("inf")


def test_patience_doubles_and_halves_within_bounds() -> None:
    line = FleetHostState()
    for _ in range(50):
        line.was_late()
    assert line.patience == 4096.0
    for _ in range(50):
        line.was_in_time()
    assert line.patience == 1.0


@pytest.mark.parametrize(("seconds", "us"), [(0.0, 0), (1.0, 1_000_000), (0.1, 100_000), (1.0000004, 1_000_001)])
def test_microseconds_are_rounded_up(seconds: float, us: int) -> None:
    assert microseconds(seconds) == us


def test_an_answer_tells_what_binds() -> None:
    closed = FleetAnswer.of(["wait", "a.1", "7", "5000000", "3", "retry-after", "10", "2000000", "0", "0", "", ""])
    assert closed.closed_by is Bound.RETRY_AFTER
    assert (closed.wait_s, closed.backoff_s, closed.version) == (5.0, 2.0, 3)
    assert answer(0).closed_by is None
    assert answer(0).bound(Bound.CRAWL_DELAY) is Bound.CRAWL_DELAY
    assert answer(0)._replace(bound_by="adaptive").bound(Bound.FLOOR) is Bound.ADAPTIVE
