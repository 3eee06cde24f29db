"""Reservations of starts: what their answers mean; and a process that is slow, closed or cut off, on a real Redis."""

import asyncio
from collections.abc import Mapping, Sequence
from secrets import token_hex

import pytest

from politesse import PacingOptions
from politesse._pacing.fleet.messages import FleetAnswer, Reply, ScriptCall, WireLost, microseconds
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.reservation import FleetHostState, Reservation
from politesse._pacing.fleet.scripts import Script
from politesse.errors import ClosedError
from politesse.events import Publisher
from politesse.testing import ManualClock
from politesse.verdict import Bound
from tests.contract.pacers.fleet_pacer import ManualWire, fleet_pacer, settle
from tests.support.pacing import HOST, MIDNIGHT, finish, wants


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


# A process and its Redis


class SlowProcess(ManualWire):
    """Its process comes to each answer about a start a quarter of a second late."""

    reserved = 0

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        replies = await super().exchange(calls, epochs)
        if any(call.script is Script.RESERVE for call in calls):
            assert isinstance(self._clock, ManualClock)
            self._clock.advance(0.25)
            type(self).reserved += 1
        return replies


class Cut(ManualWire):
    """A wire that breaks once ``cut`` is true."""

    cut = False

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        if self.cut:
            raise WireLost("cut")
        return await super().exchange(calls, epochs)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT)


def member(clock: ManualClock, prefix: str, wire_type: type[ManualWire] = ManualWire) -> FleetPacer:
    return fleet_pacer(PacingOptions(min_delay_s=60.0, adaptive_factor=0.0), clock, Publisher(), prefix, wire_type)


async def test_a_process_that_is_always_late_becomes_patient_and_starts(clock: ManualClock) -> None:
    pacer = member(clock, f"{token_hex(6)}:", SlowProcess)
    async with asyncio.timeout(10):
        permit = await pacer.start(wants())
    assert 1 < SlowProcess.reserved < 20
    finish(permit, 200)
    await pacer.aclose()


async def test_the_close_ends_the_wait_for_another_process_at_once(clock: ManualClock) -> None:
    prefix = f"{token_hex(6)}:"
    other, pacer = member(clock, prefix), member(clock, prefix)
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    assert pacer.waiting == 1
    await pacer.aclose()
    await settle()
    assert waiting.done()
    with pytest.raises(ClosedError):
        await waiting
    await other.aclose()


async def test_who_waits_for_another_process_is_told_at_once_that_redis_is_away(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"{token_hex(6)}:"
    other, pacer = member(clock, prefix), member(clock, prefix, Cut)
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    before = pacer.hosts()[HOST].fleet_wait
    monkeypatch.setattr(Cut, "cut", True)
    pacer.close_host("elsewhere.example", MIDNIGHT + 9, Bound.BACKOFF)  # the next call finds that Redis is away
    await settle()
    after = pacer.hosts()[HOST].fleet_wait
    assert before is not None
    assert after is not None
    assert (before.bound_by, after.bound_by) == (Bound.FLOOR, Bound.FLEET)
    waiting.cancel()
    await pacer.aclose()
    await other.aclose()
