import asyncio
from collections.abc import Callable

import pytest

from politesse import PacingOptions
from politesse._pacing.host_state import HostState
from politesse._pacing.local import LocalPacer
from politesse.errors import ClosedError, StoreError
from politesse.ports import Permit
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, MIDNIGHT, fetching, finish, wants
from tests.support.tasks import settle


class Memory:
    """Answers when it is released; keeps the last state of each host."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.states: dict[str, Callable[[], HostState]] = {}
        self.release = asyncio.Event()
        self.error = error
        self.recalled: list[str] = []

    async def recall(self, key: str, /) -> HostState | None:
        self.recalled.append(key)
        await self.release.wait()
        if self.error is not None:
            raise self.error
        return self.states[key]() if key in self.states else None

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        self.states[key] = take


class Desk:
    def __init__(self, memory: Memory | None = None, options: PacingOptions | None = None) -> None:
        self.clock = ManualClock(MIDNIGHT)
        self.memory = memory or Memory()
        self.pacer = LocalPacer(
            options or PacingOptions(adaptive_factor=0.0), memory=self.memory, clock=self.clock, jitter=lambda: 0.0
        )


def granted(answer: Permit | NotYet) -> Permit:
    assert not isinstance(answer, NotYet)
    return answer


async def test_known_host_is_not_recalled_again() -> None:
    desk = Desk()
    desk.memory.release.set()
    assert isinstance(desk.pacer.try_start(wants()), NotYet)
    await settle()
    finish(granted(desk.pacer.try_start(wants())))
    desk.clock.advance(599)  # the slot is forgotten after a second
    assert len(desk.pacer) == 0
    finish(granted(desk.pacer.try_start(wants())))
    assert desk.memory.recalled == [HOST]


async def test_slow_robots_txt_is_noted_for_the_next_process() -> None:
    desk = Desk()
    desk.memory.release.set()
    assert await desk.pacer.closed_until(HOST) is None
    fetch = await desk.pacer.start_fetch(fetching(HOST))
    desk.clock.advance(10)
    assert len(desk.pacer) == 0  # the host was idle meanwhile
    fetch.end(200)
    fetch.opened()
    assert desk.memory.states[HOST]().asked_s == 0.0


async def test_cancelled_question_whether_a_host_is_closed_affects_no_other() -> None:
    desk = Desk()
    questions = [asyncio.ensure_future(desk.pacer.closed_until(HOST)) for _ in range(2)]
    await settle()
    questions[0].cancel()
    await settle()
    assert not questions[1].done()
    desk.memory.release.set()
    assert await questions[1] is None


async def test_closing_the_pacer_ends_the_question_whether_a_host_is_closed() -> None:
    desk = Desk()
    question = asyncio.ensure_future(desk.pacer.closed_until(HOST))
    await settle()
    await desk.pacer.aclose()
    with pytest.raises(ClosedError):
        await question
    assert await desk.pacer.closed_until("other.example") is None
    assert desk.memory.recalled == [HOST]


async def test_callback_is_called_once_the_host_is_recalled() -> None:
    desk, called = Desk(), list[bool]()
    desk.pacer.when_ready(wants(), lambda: called.append(True))
    desk.clock.advance(10)
    await settle()
    assert called == []
    desk.memory.release.set()
    await settle()
    assert called == [True]
    desk.clock.advance(1)
    assert len(desk.pacer) == 0
    granted(desk.pacer.try_start(wants())).end()  # it is forgotten, but not unknown
    assert desk.memory.recalled == [HOST]


async def test_host_is_recalled_again_when_another_process_may_have_asked_it_since() -> None:
    desk = Desk()
    desk.memory.release.set()
    for _ in range(2):
        assert isinstance(desk.pacer.try_start(wants()), NotYet)
        await settle()
        desk.clock.advance(1)
        finish(granted(desk.pacer.try_start(wants())))
        desk.clock.advance(601)
    assert desk.memory.recalled == [HOST, HOST]


@pytest.mark.parametrize("limit", [1, 10_000])
async def test_nothing_starts_during_the_recall_whatever_limit_is_set(limit: int) -> None:
    desk = Desk()
    waiting = [asyncio.ensure_future(desk.pacer.start(wants())) for _ in range(3)]
    await settle()
    desk.pacer.set_limits(HOST, 0.0, limit)
    desk.clock.advance(100)
    await settle()
    assert not any(task.done() for task in waiting)
    assert (desk.pacer.waiting, desk.pacer.in_flight) == (3, 0)
    assert isinstance(desk.pacer.try_start(wants()), NotYet)
    desk.memory.release.set()
    for _ in range(3):
        await settle()
        desk.clock.advance(0.01)
    assert sum(task.done() for task in waiting) == min(3, limit)
    await desk.pacer.aclose()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_requests_start_in_the_order_in_which_they_came_during_the_recall() -> None:
    desk, started = Desk(), list[int]()

    async def start(place: int) -> None:
        permit = await desk.pacer.start(wants())
        started.append(place)
        permit.end()

    tasks = [asyncio.ensure_future(start(place)) for place in range(5)]
    await settle()
    desk.memory.release.set()
    for _ in range(10):
        await settle()
        desk.clock.advance(1.0)
    await asyncio.gather(*tasks)
    assert started == list(range(5))


@pytest.mark.parametrize("error", [StoreError("disk"), ZeroDivisionError("bug")])
async def test_host_that_cannot_be_recalled_counts_as_asked_just_now(error: Exception) -> None:
    desk = Desk(Memory(error))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    answer = desk.pacer.try_start(wants())
    assert isinstance(answer, NotYet)
    assert answer.bound_by is Bound.STORE
    desk.clock.advance(5)
    desk.memory.release.set()
    await settle()
    answer = desk.pacer.try_start(wants())
    assert isinstance(answer, NotYet)
    assert (answer.not_before, answer.bound_by) == (MIDNIGHT + 6, Bound.FLOOR)


async def test_host_whose_recall_is_cancelled_before_it_began_counts_as_asked_just_now() -> None:
    desk = Desk()
    others = asyncio.all_tasks()
    desk.pacer.when_ready(wants(), lambda: None)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await settle()
    answer = desk.pacer.try_start(wants())
    assert isinstance(answer, NotYet)
    assert (answer.not_before, answer.bound_by) == (MIDNIGHT + 1, Bound.FLOOR)


async def test_closure_during_the_recall_holds() -> None:
    desk = Desk()
    desk.pacer.close_host(HOST, MIDNIGHT + 100, Bound.RETRY_AFTER)
    desk.memory.release.set()
    await settle()
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 100
    assert desk.memory.states[HOST]().answers is not None


async def test_start_of_several_at_once_is_remembered_as_such() -> None:
    desk = Desk(options=PacingOptions(max_concurrent=4, adaptive_factor=0.0))
    desk.memory.release.set()
    assert isinstance(desk.pacer.try_start(wants()), NotYet)
    await settle()
    permit = granted(desk.pacer.try_start(wants()))
    desk.clock.advance(30)
    state = desk.memory.states[HOST]()
    assert (state.asked_s, state.under_way) == (30.0, False)  # there the interval counts from the start
    permit.end()
