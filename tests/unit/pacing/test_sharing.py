"""Gates of one scope share their pace: the line is one, and what waits at a gate ends with that gate."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.pace import Limit, PacingOptions, strictest
from politesse._pacing.sharing import MixedScope, pacer_for
from politesse.errors import ClosedError
from politesse.events import Publisher
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, Resolving, wants
from tests.support.tasks import settle

if TYPE_CHECKING:
    from politesse.ports import Pacer, Permit

OPTIONS = PacingOptions(min_delay_s=5.0, scope="crawl")
SAME_ADDRESS = {"a.example": ["192.0.2.1"], "b.example": ["192.0.2.1"]}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def shared(clock: ManualClock, options: PacingOptions = OPTIONS) -> Pacer:
    return pacer_for(options, clock=clock, publisher=Publisher(), resolver=Resolving(SAME_ADDRESS))


def take(pacer: Pacer, host: str = HOST) -> Permit:
    permit = pacer.try_start(wants(host=host))
    assert not isinstance(permit, NotYet), permit
    return permit


def refused(pacer: Pacer, clock: ManualClock, host: str = HOST) -> tuple[float, Bound]:
    answer = pacer.try_start(wants(host=host))
    assert isinstance(answer, NotYet)
    return round(answer.not_before - clock.wall(), 3), answer.bound_by


class Line:
    """Tasks that wait, and the names of those that were granted a turn, which they end at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.granted: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, pacer: Pacer, host: str = HOST) -> None:
        async def start() -> None:
            permit = await pacer.start(wants(host=host))
            self.granted.append(name)
            permit.end()

        self.tasks[name] = asyncio.create_task(start())
        await settle()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()


async def test_line_is_one_for_all_gates(clock: ManualClock) -> None:
    one, other, line = shared(clock), shared(clock), Line(clock)
    take(one).end()
    for name, pacer in (("one 1", one), ("other 1", other), ("one 2", one), ("other 2", other)):
        await line.ask(name, pacer)
    assert (one.waiting, other.waiting) == (2, 2)
    for _ in range(4):
        await line.pass_time(5.01)
    assert line.granted == ["one 1", "other 1", "one 2", "other 2"]
    assert (one.waiting, other.waiting) == (0, 0)


async def test_gate_that_closes_while_its_waiter_is_the_head_holds_no_other_up(clock: ManualClock) -> None:
    one, other, line = shared(clock), shared(clock), Line(clock)
    take(one).end()
    for name, pacer in (("one 1", one), ("other 1", other), ("one 2", one), ("other 2", other)):
        await line.ask(name, pacer)
    await one.aclose()
    await settle()
    for name in ("one 1", "one 2"):
        with pytest.raises(ClosedError, match=HOST):
            await line.tasks[name]
    await line.pass_time(5.01)
    await line.pass_time(5.01)
    assert line.granted == ["other 1", "other 2"]


async def test_gate_that_closes_when_its_waiter_was_woken_gives_the_turn_to_the_next(clock: ManualClock) -> None:
    one, other, line = shared(clock), shared(clock), Line(clock)
    take(one).end()
    await line.ask("one", one)
    await line.ask("other", other)
    clock.advance(5.01)  # the head is woken and has not run
    await one.aclose()
    await settle()
    await line.pass_time(0.01)
    with pytest.raises(ClosedError):
        await line.tasks["one"]
    assert line.granted == ["other"]
    assert other.in_flight == 0


async def test_callbacks_of_a_gate_are_called_once_by_its_close(clock: ManualClock) -> None:
    one, other = shared(clock), shared(clock)
    called: list[str] = []
    take(one).end()
    one.when_ready(wants(), lambda: called.append("one"))
    other.when_ready(wants(), lambda: called.append("other"))
    await one.aclose()
    assert called == ["one"]
    for _ in range(3):
        clock.advance(5.01)
    assert called == ["one", "other"]


@pytest.mark.parametrize("woken", [False, True])
async def test_cancelled_waiter_gives_back_what_it_was_granted(clock: ManualClock, *, woken: bool) -> None:
    one, other, line = shared(clock), shared(clock), Line(clock)
    take(one).end()
    await line.ask("one", one)
    await line.ask("other", other)
    if woken:
        clock.advance(5.01)
    line.tasks["one"].cancel()
    await settle()
    await line.pass_time(5.01)
    assert line.tasks["one"].cancelled()
    assert line.granted == ["other"]
    assert (one.waiting, one.in_flight) == (0, 0)


async def test_task_that_is_cancelled_while_its_gate_closes_stays_cancelled(clock: ManualClock) -> None:
    one, line = shared(clock), Line(clock)
    take(one).end()
    await line.ask("one", one)
    line.tasks["one"].cancel()
    await one.aclose()
    await settle()
    assert line.tasks["one"].cancelled()


async def test_limits_that_one_gate_sets_bind_at_all(clock: ManualClock) -> None:
    one, other, line = shared(clock), shared(clock), Line(clock)
    take(one).end()
    await line.ask("other", other)
    one.set_limits(HOST, 20.0, None)
    await line.pass_time(5.01)
    assert line.granted == []
    assert refused(other, clock) == (14.99, Bound.FLOOR)
    other.set_limits(HOST, None, None)
    await line.pass_time(0.01)
    assert line.granted == ["other"]


@pytest.mark.parametrize(
    "options",
    [
        PacingOptions(min_delay_s=5.0, scope="crawl", key="address"),
        PacingOptions(min_delay_s=0.0, scope="crawl", address=Limit(min_delay_s=5.0)),
    ],
)
async def test_gates_share_the_pace_of_an_address(clock: ManualClock, options: PacingOptions) -> None:
    one, other, line = shared(clock, options), shared(clock, options), Line(clock)
    await line.ask("one", one, "a.example")
    await line.ask("other", other, "b.example")
    await line.ask("one again", one, "b.example")
    assert line.granted == ["one"]
    await line.pass_time(5.01)
    assert line.granted == ["one", "other"]
    await one.aclose()
    await settle()
    with pytest.raises(ClosedError):
        await line.tasks["one again"]
    assert refused(other, clock, "a.example") == (5.0, Bound.FLOOR)


QUICK, SLOW = (PacingOptions(min_delay_s=delay_s, scope=MixedScope("crawl")) for delay_s in (1.0, 5.0))


@pytest.mark.parametrize("options", [(QUICK, SLOW), (SLOW, QUICK)])
async def test_strictest_options_of_a_mixed_scope_hold_at_hosts_that_their_gate_requests(
    clock: ManualClock, options: tuple[PacingOptions, PacingOptions]
) -> None:
    gates = {each.min_delay_s: shared(clock, each) for each in options}
    quick, slow = gates[1.0], gates[5.0]
    take(slow).end()
    take(quick, "other.example").end()
    assert refused(quick, clock) == refused(slow, clock) == (5.0, Bound.FLOOR)
    assert refused(quick, clock, "other.example") == (1.0, Bound.FLOOR)
    clock.advance(5.0)
    await slow.aclose()
    take(quick).end()
    assert refused(quick, clock) == (1.0, Bound.FLOOR)  # the slow one is gone
    await quick.aclose()


async def test_watchers_of_a_mixed_scope_take_turns_whatever_their_delays_are(clock: ManualClock) -> None:
    quick, slow = shared(clock, QUICK), shared(clock, SLOW)
    called: list[str] = []

    def call(name: str, pacer: Pacer) -> None:
        called.append(name)
        take(pacer).end()

    take(slow).end()
    for _ in range(2):
        for name, pacer in (("slow", slow), ("quick", quick)):
            pacer.when_ready(wants(), partial(call, name, pacer))
        for _ in range(2):
            clock.advance(5.0)
            await settle()
    assert called == ["slow", "quick", "slow", "quick"]
    for pacer in (quick, slow):
        await pacer.aclose()


async def test_limits_of_a_host_in_a_mixed_scope_are_those_of_the_gate_that_sets_them(clock: ManualClock) -> None:
    one, other = shared(clock, QUICK), shared(clock, QUICK)
    one.set_limits(HOST, 3.0, None)
    take(other).end()
    assert refused(other, clock) == (1.0, Bound.FLOOR)
    assert refused(one, clock) == refused(other, clock) == (3.0, Bound.FLOOR)
    one.set_limits(HOST, None, None)
    assert refused(one, clock) == (1.0, Bound.FLOOR)
    for pacer in (one, other):
        await pacer.aclose()


async def test_host_of_a_mixed_scope_that_is_closed_is_closed_for_all_by_the_strictest_backoff(
    clock: ManualClock,
) -> None:
    short, long = (
        shared(clock, PacingOptions(backoff_min_s=least_s, min_delay_s=0.0, scope=MixedScope("crawl")))
        for least_s in (10.0, 30.0)
    )
    take(long).end()
    permit = take(short)
    permit.observe(429, {})
    permit.end()
    for pacer in (short, long):
        assert refused(pacer, clock)[0] >= 30.0
    for pacer in (short, long):
        await pacer.aclose()


async def test_gates_of_a_mixed_scope_by_address_share_what_binds_the_address(clock: ManualClock) -> None:
    quick, slow = (
        shared(clock, PacingOptions(key="address", min_delay_s=delay_s, scope=MixedScope("crawl")))
        for delay_s in (1.0, 5.0)
    )
    (await slow.start(wants(host="a.example"))).end()
    assert refused(quick, clock, "a.example") == (5.0, Bound.FLOOR)
    clock.advance(4.0)
    assert refused(quick, clock, "b.example")[1] is Bound.ADDRESS  # the same address, by another name
    await settle()
    assert refused(quick, clock, "b.example") == (1.0, Bound.FLOOR)
    for pacer in (quick, slow):
        await pacer.aclose()


async def test_name_of_a_mixed_scope_is_not_that_of_an_ordinary_one(clock: ManualClock) -> None:
    mixed, named = shared(clock, SLOW), shared(clock, OPTIONS)
    take(mixed).end()
    take(named).end()
    for pacer in (mixed, named):
        await pacer.aclose()


def test_strictest_options_are_the_slowest_of_each() -> None:
    one = PacingOptions(min_delay_s=3.0, adaptive_factor=0.0, on_long_crawl_delay="cap", max_concurrent=4)
    other = PacingOptions(adaptive_factor=2.0, backoff_min_s=20.0, on_long_crawl_delay="skip")
    assert strictest([one, one]) is one
    assert strictest([one, other]) == strictest([other, one])
    assert strictest([one, other]) == PacingOptions(
        min_delay_s=3.0, adaptive_factor=2.0, backoff_min_s=20.0, on_long_crawl_delay="skip"
    )
