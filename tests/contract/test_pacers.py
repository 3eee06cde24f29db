"""What every pacer promises. A new one is added to PACERS and has to pass as it is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import Limit, PacingOptions
from politesse._pacing.scoped import Pacer, ScopedPacer
from politesse._pacing.slot import Permit
from politesse.errors import ClosedError
from politesse.events import Publisher
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet, TooFar
from tests.unit.pacing.pacing import HOST, MIDNIGHT, ORIGIN, Resolving, at, rules, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from politesse.robots import RuleSet


def _local(options: PacingOptions, clock: ManualClock) -> LocalPacer:
    return LocalPacer(options, clock=clock, jitter=lambda: 0.0)


def _scoped(options: PacingOptions, clock: ManualClock) -> ScopedPacer:
    """One with a wider scope that never binds."""
    options = replace(options, domain=Limit(min_delay_s=0.0, max_concurrent=10_000))
    return ScopedPacer(options, clock=clock, resolver=Resolving({}), publisher=Publisher(), jitter=lambda: 0.0)


PACERS: dict[str, Callable[[PacingOptions, ManualClock], Pacer]] = {
    "local": _local,
    "scoped": _scoped,
}


class Desk:
    """A pacer, its clock, and who was granted what in which order."""

    def __init__(self, make: Callable[[PacingOptions, ManualClock], Pacer], options: PacingOptions) -> None:
        self.clock = ManualClock(MIDNIGHT)
        self.pacer = make(options, self.clock)
        self.granted: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[Permit]] = []

    def ask(
        self, name: str, *, host: str = HOST, rules: RuleSet | None = None, max_wait_s: float | None = None
    ) -> asyncio.Task[Permit]:
        async def start() -> Permit:
            permit = await self.pacer.start(host, f"https://{host}", rules, max_wait_s)
            self.granted.append((name, permit.started_mono))
            return permit

        task = asyncio.get_running_loop().create_task(start())
        self.tasks.append(task)
        return task

    async def pass_time(self, seconds: float) -> None:
        """In steps, so that whoever is woken acts before the clock goes on."""
        end = self.clock.monotonic() + seconds
        await settle()
        while (left := end - self.clock.monotonic()) > 1e-9:
            self.clock.advance(min(left, 0.01))
            await settle()

    def now(self, rules: RuleSet | None = None, host: str = HOST) -> Permit | NotYet:
        return self.pacer.try_start(host, f"https://{host}", rules)

    def take(self, rules: RuleSet | None = None, host: str = HOST) -> Permit:
        permit = self.now(rules, host)
        assert isinstance(permit, Permit), permit
        return permit

    def refused(self, rules: RuleSet | None = None, host: str = HOST) -> tuple[float, Bound]:
        """How many seconds from now on, and what binds."""
        answer = self.now(rules, host)
        assert isinstance(answer, NotYet)
        return round(answer.not_before - self.clock.wall(), 3), answer.bound_by

    async def aclose(self) -> None:
        await self.pacer.aclose()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture(params=PACERS)
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    made = Desk(PACERS[request.param], PacingOptions(min_delay_s=1.0))
    yield made
    await made.aclose()


@pytest.fixture(params=PACERS)
async def wide(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """With up to three requests under way to a host."""
    made = Desk(PACERS[request.param], PacingOptions(min_delay_s=1.0, max_concurrent=3))
    yield made
    await made.aclose()


# Spacing


async def test_the_first_request_to_a_host_starts_at_once(desk: Desk) -> None:
    permit = await desk.pacer.start(HOST, ORIGIN, None)
    assert (permit.key, permit.started_mono, permit.waited) == (HOST, 0.0, False)


async def test_the_next_starts_an_interval_after_the_end(desk: Desk) -> None:
    permit = desk.take()
    await desk.pass_time(3.0)
    desk.pacer.finish(permit, 404)
    second = desk.ask("second")
    await desk.pass_time(2.99)
    assert not second.done()  # three seconds for an answer are an adaptive delay of as many
    await desk.pass_time(0.02)
    assert (await second).started_mono == pytest.approx(6.0, abs=0.01)
    assert second.result().waited


async def test_one_request_at_a_time(desk: Desk) -> None:
    permit = desk.take()
    waiting = desk.ask("second")
    await desk.pass_time(100.0)
    assert not waiting.done()
    assert desk.refused()[1] in {Bound.IN_FLIGHT, Bound.QUEUE}
    desk.pacer.finish(permit)
    await desk.pass_time(200.0)
    assert waiting.done()


async def test_hosts_do_not_wait_for_each_other(desk: Desk) -> None:
    for number in range(20):
        desk.take(host=f"host{number}.example")
    assert desk.pacer.in_flight == 20


async def test_no_interval_where_none_is_asked_for(desk: Desk) -> None:
    desk.pacer.set_options(HOST, PacingOptions(min_delay_s=0.0))
    for _ in range(5):
        desk.pacer.finish(desk.take(), 200)


async def test_whoever_came_first_is_first(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    for number in range(6):
        desk.ask(str(number))
        await settle()
    for number in range(6):
        await desk.pass_time(1.01)
        assert [name for name, _ in desk.granted] == [str(earlier) for earlier in range(number + 1)]
        desk.pacer.finish(desk.tasks[number].result(), 200)
    stamps = [stamp for _, stamp in desk.granted]
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(stamps))


async def test_a_newcomer_does_not_pass_those_who_wait(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    first = desk.ask("first")
    await settle()
    desk.clock.advance(1.5)  # the first is woken, and has not run yet
    assert desk.refused() == (0.0, Bound.QUEUE)
    newcomer = desk.ask("newcomer")
    await settle()
    assert first.done()
    assert not newcomer.done()


async def test_ending_a_permit_twice_has_no_effect(desk: Desk) -> None:
    permit = desk.take()
    desk.pacer.finish(permit, 200)
    desk.pacer.finish(permit, 429)
    desk.pacer.give_back(permit)
    assert desk.pacer.in_flight == 0
    assert desk.refused() == (1.0, Bound.FLOOR)


# Several at once


async def test_several_may_be_under_way_an_interval_from_start_to_start(wide: Desk) -> None:
    for number in range(5):
        wide.ask(str(number))
    await wide.pass_time(10.0)
    stamps = [stamp for _, stamp in wide.granted]
    assert len(stamps) == 3
    assert stamps == pytest.approx([0.0, 1.0, 2.0], abs=0.05)
    assert stamps[1] - stamps[0] >= 1.0
    assert stamps[2] - stamps[1] >= 1.0
    wide.pacer.finish(wide.tasks[1].result(), 200)
    wide.pacer.finish(wide.tasks[0].result(), 200)
    await wide.pass_time(20.0)
    assert [name for name, _ in wide.granted] == list("01234")
    assert wide.granted[4][1] - wide.granted[3][1] >= 1.0


async def test_more_at_once_counts_from_the_start_of_what_is_under_way(desk: Desk) -> None:
    desk.pacer.set_options(HOST, PacingOptions(min_delay_s=10.0))
    desk.take()
    await desk.pass_time(1.0)
    desk.pacer.set_options(HOST, PacingOptions(min_delay_s=10.0, max_concurrent=2))
    assert desk.refused() == (9.0, Bound.FLOOR)


async def test_fewer_at_once_binds_as_soon_as_they_end(wide: Desk) -> None:
    first = wide.take()
    await wide.pass_time(1.1)
    second = wide.take()
    wide.pacer.set_options(HOST, PacingOptions(min_delay_s=1.0))
    await wide.pass_time(1.1)
    assert wide.refused()[1] is Bound.IN_FLIGHT
    wide.pacer.finish(first, 404)
    assert wide.refused()[1] is not Bound.QUEUE
    await wide.pass_time(1.5)
    wide.pacer.finish(second, 404)
    waiting = wide.ask("third")
    end = wide.clock.monotonic()
    await wide.pass_time(30.0)
    assert (await waiting).started_mono >= end + 1.0


# What is said while others wait


async def test_a_new_crawl_delay_binds_those_who_wait(desk: Desk) -> None:
    desk.pacer.finish(desk.take(rules()), 200)
    waiting = [desk.ask("first", rules=rules()), desk.ask("second", rules=rules("Crawl-delay: 30"))]
    await desk.pass_time(29.9)
    assert not any(task.done() for task in waiting)
    await desk.pass_time(0.2)
    assert [name for name, _ in desk.granted] == ["first"]


async def test_a_shorter_crawl_delay_frees_those_who_wait(desk: Desk) -> None:
    slow = rules("Crawl-delay: 1000")
    desk.pacer.finish(desk.take(slow), 200)
    first = desk.ask("first", rules=slow)
    await settle()
    desk.ask("second", rules=rules("Crawl-delay: 5"))
    await desk.pass_time(5.1)
    assert first.done()


async def test_the_slowest_origin_of_a_host_binds(desk: Desk) -> None:
    desk.pacer.finish(desk.take(rules("Crawl-delay: 20")), 200)
    assert isinstance(desk.pacer.try_start(HOST, "http://example.com:8080", rules("Crawl-delay: 2")), NotYet)
    assert desk.refused(rules("Crawl-delay: 3")) == (3.0, Bound.CRAWL_DELAY)


async def test_a_closing_binds_those_who_wait(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    waiting = desk.ask("first")
    await desk.pass_time(0.5)
    desk.pacer.close(HOST, desk.clock.wall() + 60.0, Bound.RETRY_AFTER)
    assert desk.refused() == (60.0, Bound.RETRY_AFTER)
    await desk.pass_time(59.9)
    assert not waiting.done()
    await desk.pass_time(0.2)
    assert waiting.done()


async def test_a_closing_binds_one_who_was_woken_already(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    waiting = desk.ask("first")
    await settle()
    desk.clock.advance(1.5)
    desk.pacer.close(HOST, desk.clock.wall() + 60.0, Bound.BACKOFF)
    await desk.pass_time(59.9)
    assert not waiting.done()
    await desk.pass_time(0.2)
    assert waiting.done()


async def test_429_closes_the_host_however_fast_it_comes(desk: Desk) -> None:
    closed_s = []
    for _ in range(4):
        permit = desk.take()
        desk.clock.advance(0.002)
        desk.pacer.finish(permit, 429)
        wait_s, bound_by = desk.refused()
        assert bound_by is Bound.BACKOFF
        closed_s.append(wait_s)
        desk.clock.advance(wait_s + 0.001)
    assert closed_s == [60.0, 120.0, 240.0, 480.0]


async def test_a_429_of_one_request_binds_what_runs_beside_it(wide: Desk) -> None:
    first = wide.take()
    await wide.pass_time(1.1)
    second = wide.take()
    wide.pacer.finish(first, 429, {"retry-after": "90"})
    wide.pacer.finish(second, 200)
    assert wide.refused() == (90.0, Bound.RETRY_AFTER)


@pytest.mark.parametrize("value", ["-1", "99999999999", "soon", "0", "Thu, 01 Jan 1970 00:00:00 GMT", "\x00"])
async def test_no_retry_after_leaves_a_host_open_or_closed_for_good(desk: Desk, value: str) -> None:
    desk.pacer.finish(desk.take(), 503, {"retry-after": value})
    wait_s, _ = desk.refused()
    assert 1.0 <= wait_s <= 86_400.0


async def test_closed_until_tells_the_closing_and_only_that(desk: Desk) -> None:
    assert await desk.pacer.closed_until(HOST) is None
    desk.pacer.finish(desk.take(rules("Crawl-delay: 100")), 200)
    assert await desk.pacer.closed_until(HOST) is None
    desk.pacer.close(HOST, MIDNIGHT + 30.0, Bound.BACKOFF)
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 30.0
    desk.pacer.close(HOST, MIDNIGHT + 20.0, Bound.BACKOFF)
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 30.0
    await desk.pass_time(30.001)
    assert await desk.pacer.closed_until(HOST) is None


async def test_what_was_spent_without_a_turn_counts(desk: Desk) -> None:
    desk.pacer.spend(HOST)
    assert desk.refused(rules("Crawl-delay: 5")) == (5.0, Bound.CRAWL_DELAY)
    waiting = desk.ask("first")
    await desk.pass_time(3.0)
    desk.pacer.spend(HOST)
    await desk.pass_time(4.9)
    assert not waiting.done()
    await desk.pass_time(0.2)
    assert waiting.done()


async def test_options_of_one_host_are_its_own_and_bind_those_who_wait(desk: Desk) -> None:
    for host in (HOST, "other.example"):
        desk.pacer.finish(desk.take(host=host), 200)
    waiting = desk.ask("first")
    await settle()
    desk.pacer.set_options(HOST, PacingOptions(min_delay_s=10.0))
    assert desk.refused() == (10.0, Bound.FLOOR)
    assert desk.refused(host="other.example") == (1.0, Bound.FLOOR)
    desk.pacer.set_options("new.example", PacingOptions(min_delay_s=7.0))
    desk.pacer.finish(desk.take(host="new.example"), 200)
    assert desk.refused(host="new.example") == (7.0, Bound.FLOOR)
    await desk.pass_time(5.0)
    assert not waiting.done()
    desk.pacer.set_options(HOST, None)
    await desk.pass_time(0.1)
    assert waiting.done()


# Times of day


async def test_visit_time_opens_the_queue(desk: Desk) -> None:
    night = rules("Visit-time: 0100-0130")
    assert desk.refused(night) == (3600.0, Bound.VISIT_TIME)
    waiting = desk.ask("first", rules=night)
    await settle()
    desk.clock.advance(3599.9)
    await settle()
    assert not waiting.done()
    await desk.pass_time(0.2)
    permit = await waiting
    assert at("0100") <= MIDNIGHT + permit.started_mono < at("0100", 0.1)


async def test_visit_time_past_midnight(desk: Desk) -> None:
    night = rules("Visit-time: 2300-0059")
    desk.pacer.finish(desk.take(night), 200)
    desk.clock.advance(3600.0 - 0.5)
    desk.pacer.finish(desk.take(night), 200)
    # The interval ends when the window has been closed for half a second.
    assert desk.refused(night) == (22 * 3600.0 + 0.5, Bound.VISIT_TIME)


async def test_windows_that_never_meet_leave_nobody_in(desk: Desk) -> None:
    desk.now(rules("Visit-time: 0100-0200"))
    for _ in range(60):
        answer = desk.pacer.try_start(HOST, "http://example.com", rules("Visit-time: 0300-0400"))
        assert isinstance(answer, NotYet)
        assert answer.not_before > desk.clock.wall()
        desk.clock.advance(answer.not_before - desk.clock.wall())


async def test_a_rate_binds_inside_its_window_and_no_longer(desk: Desk) -> None:
    hourly = rules("Request-rate: 1/1d 0100-0159")
    desk.clock.advance(3600.0)
    desk.pacer.finish(desk.take(hourly), 200)
    waiting = desk.ask("first", rules=hourly)
    await settle()
    desk.clock.advance(3599.0)
    await settle()
    assert not waiting.done()
    await desk.pass_time(1.1)
    assert waiting.done()


# Leaving


async def test_what_is_given_back_has_cost_nothing(desk: Desk) -> None:
    desk.pacer.give_back(desk.take())
    permit = desk.take()
    desk.pacer.finish(permit, 200)
    await desk.pass_time(1.1)
    desk.pacer.give_back(desk.take())
    desk.pacer.give_back(desk.take())
    assert desk.pacer.in_flight == 0


async def test_what_is_given_back_goes_to_the_next(desk: Desk) -> None:
    permit = desk.take()
    waiting = desk.ask("next")
    await desk.pass_time(5.0)
    desk.pacer.give_back(permit)
    await desk.pass_time(0.05)
    assert waiting.done()


async def test_giving_back_takes_back_nothing_that_came_after(wide: Desk) -> None:
    first = wide.take()
    wide.pacer.spend(HOST)  # at the same instant
    wide.pacer.give_back(first)
    assert wide.refused() == (1.0, Bound.FLOOR)


async def test_giving_back_among_several_frees_its_place(wide: Desk) -> None:
    wide.pacer.give_back(wide.take())
    wide.take()
    assert wide.refused() == (1.0, Bound.FLOOR)


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_a_cancelled_waiter_loses_nobody_a_slot(desk: Desk, cancelled: int) -> None:
    desk.pacer.finish(desk.take(), 200)
    tasks = [desk.ask(str(number)) for number in range(3)]
    await desk.pass_time(0.5)
    tasks[cancelled].cancel()
    await desk.pass_time(0.6)
    left = [task for number, task in enumerate(tasks) if number != cancelled]
    assert left[0].done()
    assert not left[1].done()
    desk.pacer.finish(left[0].result(), 200)
    await desk.pass_time(1.1)
    assert left[1].done()
    assert desk.pacer.waiting == 0


async def test_a_waiter_cancelled_after_it_was_woken_loses_nobody_a_slot(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    first, second = desk.ask("first"), desk.ask("second")
    await settle()
    desk.clock.advance(1.5)  # wakes the first, which has not run yet
    first.cancel()
    await desk.pass_time(0.05)
    assert first.cancelled()
    assert second.done()


async def test_all_waiters_cancelled_at_once_leave_nothing(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    tasks = [desk.ask(str(number)) for number in range(10)]
    await settle()
    desk.clock.advance(1.5)
    for task in tasks:
        task.cancel()
    await settle()
    assert desk.pacer.waiting == 0
    desk.take()


async def test_too_far_at_once_where_it_is_known(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 429, {"retry-after": "600"})
    with pytest.raises(TooFar, match="within 10 s") as raised:
        await desk.pacer.start(HOST, ORIGIN, None, 10.0)
    assert raised.value.not_yet.not_before == MIDNIGHT + 600.0
    assert raised.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert desk.clock.monotonic() == 0.0
    assert desk.pacer.waiting == 0


async def test_too_far_after_waiting_where_it_was_not(desk: Desk) -> None:
    permit = desk.take()
    patient, hurried = desk.ask("patient"), desk.ask("hurried", max_wait_s=5.0)
    await desk.pass_time(4.9)
    assert not hurried.done()
    await desk.pass_time(0.2)
    with pytest.raises(TooFar) as raised:
        await hurried
    assert raised.value.not_yet.bound_by is Bound.IN_FLIGHT
    desk.pacer.finish(permit, 404)
    await desk.pass_time(10.0)
    assert patient.done()


async def test_who_does_not_want_to_wait_does_not(desk: Desk) -> None:
    permit = await desk.pacer.start(HOST, ORIGIN, None, 0.0)
    desk.pacer.finish(permit, 200)
    with pytest.raises(TooFar):
        await desk.pacer.start(HOST, ORIGIN, None, 0.0)


async def test_too_far_holds_for_one_who_was_woken_in_vain(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    hurried = desk.ask("hurried", max_wait_s=1.5)
    await settle()
    desk.clock.advance(1.5)  # wakes it for its slot, then for its time
    desk.pacer.close(HOST, desk.clock.wall() + 600.0, Bound.BACKOFF)
    await settle()
    with pytest.raises(TooFar):
        await asyncio.wait_for(hurried, 1)


async def test_one_whose_time_is_up_does_not_pass_the_head(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    head, hurried = desk.ask("head"), desk.ask("hurried", max_wait_s=1.2)
    await settle()
    desk.clock.advance(1.5)
    await settle()
    assert head.done()
    with pytest.raises(TooFar):
        await hurried


# The end


async def test_closing_tells_everybody_who_waits(desk: Desk) -> None:
    permit = desk.take()
    for host in (HOST, "other.example"):
        desk.now(host=host)
        desk.ask(host, host=host)
        desk.ask(host, host=host, max_wait_s=100.0)
    await settle()
    waiting = [task for task in desk.tasks if not task.done()]
    await desk.pacer.aclose()
    await settle()
    for task in waiting:
        with pytest.raises(ClosedError):
            await task
    assert desk.pacer.waiting == 0
    desk.pacer.finish(permit, 200)  # what is under way may end
    await desk.pacer.aclose()


async def test_closing_tells_one_who_was_woken_already(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    waiting = desk.ask("first")
    await settle()
    desk.clock.advance(1.5)
    await desk.pacer.aclose()
    await settle()
    with pytest.raises(ClosedError):
        await waiting


async def test_nothing_starts_after_closing(desk: Desk) -> None:
    await desk.pacer.aclose()
    with pytest.raises(ClosedError):
        await desk.pacer.start(HOST, ORIGIN, None)
    with pytest.raises(ClosedError):
        desk.now()


async def test_any_word_about_a_host_after_closing_is_harmless(desk: Desk) -> None:
    permits = [desk.take(), desk.take(host="other.example")]
    await desk.pacer.aclose()
    desk.pacer.finish(permits[0], 429, {"retry-after": "5"})
    desk.pacer.give_back(permits[1])
    desk.pacer.spend(HOST)
    desk.pacer.close(HOST, MIDNIGHT + 60, Bound.BACKOFF)
    desk.pacer.set_options(HOST, PacingOptions())
    assert desk.pacer.in_flight == 0


async def test_one_cancelled_and_told_at_once_leaves_quietly(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    waiting = desk.ask("first", max_wait_s=50.0)
    await settle()
    await desk.pacer.aclose()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert desk.pacer.waiting == 0


# While a request is under way


async def test_a_refusal_holds_back_the_others_before_its_request_has_ended(wide: Desk) -> None:
    refused = wide.take()
    waiting = wide.ask("second")
    await wide.pass_time(0.5)
    wide.pacer.observe(refused, 429, {"retry-after": "20"})
    await wide.pass_time(19.9)
    assert not waiting.done()
    await wide.pass_time(0.2)
    assert (await waiting).started_mono == pytest.approx(20.5, abs=0.02)


async def test_a_host_is_as_slow_as_its_headers_not_as_its_body(desk: Desk) -> None:
    permit = desk.take()
    await desk.pass_time(2.0)
    desk.pacer.observe(permit, 200)
    await desk.pass_time(50.0)
    desk.pacer.finish(permit)
    assert desk.refused() == (2.0, Bound.ADAPTIVE)


async def test_one_answer_observed_twice_is_one_refusal(desk: Desk) -> None:
    permit = desk.take()
    desk.pacer.observe(permit, 429)
    desk.pacer.observe(permit, 429)
    desk.pacer.finish(permit, 429)
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 60.0


async def test_what_is_observed_after_the_end_has_no_effect(desk: Desk) -> None:
    permit = desk.take()
    desk.pacer.finish(permit, 200)
    desk.pacer.observe(permit, 429)
    assert desk.refused() == (1.0, Bound.FLOOR)


async def test_an_origin_that_asks_for_nothing_any_more_holds_nobody_back(desk: Desk) -> None:
    desk.pacer.finish(desk.take(rules("Crawl-delay: 20")), 200)
    waiting = desk.ask("second", rules=rules("Crawl-delay: 20"))
    await desk.pass_time(2.0)
    assert not waiting.done()
    desk.refused()  # nothing is known: nothing changes
    await desk.pass_time(0.1)
    assert not waiting.done()
    desk.refused(rules())
    await desk.pass_time(0.1)
    assert waiting.done()


# Being called


async def test_a_watcher_is_called_when_the_host_is_ready(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    called: list[float] = []
    desk.pacer.when_ready(HOST, ORIGIN, None, lambda: called.append(desk.clock.monotonic()))
    await desk.pass_time(0.9)
    assert not called
    await desk.pass_time(10.0)
    assert called == [pytest.approx(1.0, abs=0.02)]


async def test_watchers_are_called_one_after_the_other_while_nobody_takes_the_leave(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    called: list[int] = []
    for number in range(3):
        desk.pacer.when_ready(HOST, ORIGIN, None, lambda number=number: called.append(number))  # type: ignore[misc]
    await desk.pass_time(1.1)
    assert called == [0, 1, 2]


async def test_a_watcher_that_takes_the_leave_keeps_the_others_from_being_called(desk: Desk) -> None:
    desk.pacer.finish(desk.take(), 200)
    called: list[Permit] = []
    for _ in range(3):
        desk.pacer.when_ready(HOST, ORIGIN, None, lambda: called.append(desk.take()))
    await desk.pass_time(5.0)
    assert len(called) == 1
    desk.pacer.finish(called[0], 200)
    await desk.pass_time(4.1)  # four seconds of request are an adaptive delay of as many
    assert len(called) == 2
    desk.pacer.finish(called[1])
    await desk.pass_time(20.0)
    assert len(called) == 3


async def test_whoever_waits_goes_before_watchers(desk: Desk) -> None:
    permit = desk.take()
    called: list[bool] = []
    desk.pacer.when_ready(HOST, ORIGIN, None, lambda: called.append(True))
    waiting = desk.ask("second")
    desk.pacer.finish(permit, 200)
    await desk.pass_time(1.5)
    assert waiting.done()
    assert not called


async def test_watchers_are_called_at_the_close(desk: Desk) -> None:
    desk.take()
    called: list[int] = []
    for number in range(2):
        desk.pacer.when_ready(HOST, ORIGIN, None, lambda number=number: called.append(number))  # type: ignore[misc]
    await desk.pacer.aclose()
    assert called == [0, 1]
    with pytest.raises(ClosedError):
        desk.pacer.when_ready(HOST, ORIGIN, None, lambda: None)
