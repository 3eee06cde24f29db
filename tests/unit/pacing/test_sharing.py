"""Gates of one scope share their pace: the line is one, and what waits at a gate ends with that gate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.pace import Limit, PacingOptions
from politesse._pacing.sharing import pacer_for
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
