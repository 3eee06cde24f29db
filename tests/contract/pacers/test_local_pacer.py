"""What is Hosts's own; what every pacer promises is in test_pacers.py."""

import asyncio
import gc
import math
import weakref
from collections.abc import Callable

import pytest

from politesse import Gatekeeper, PacingOptions
from politesse._pacing.host_state import HostState
from politesse._pacing.hosts import Hosts, LocalPermit
from politesse.clock import Timer
from politesse.errors import ClosedError, StoreError, WrongEventLoop
from politesse.events import Event, LongWait, TurnExpired
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, MIDNIGHT, fetching, finish, rules, wants
from tests.support.tasks import apart, now, settle

OPTIONS = PacingOptions(min_delay_s=1.0)


class CountingClock(ManualClock):
    """Knows how many timers were set, and can fire them early, as uvloop does."""

    def __init__(self, early_s: float = 0.0) -> None:
        super().__init__(MIDNIGHT)
        self.early_s = early_s
        self.set = 0

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        self.set += 1
        return super().call_later(max(0.0005, delay_s - self.early_s), callback)


def take(pacer: Hosts, host: str = HOST) -> LocalPermit:
    permit = pacer.try_start(wants(rules(), host))
    assert isinstance(permit, LocalPermit)
    return permit


async def test_a_host_is_forgotten_when_nothing_that_it_was_asked_for_binds_it() -> None:
    clock = CountingClock()
    pacer = Hosts(OPTIONS, clock=clock)
    for number in range(300):
        finish(take(pacer, f"host{number}.example"), (200, 404, None)[number % 3])
    assert len(pacer) == 300
    assert clock.set == 2  # one timer for the hosts, one for the turns under way
    clock.advance(1.1)
    assert len(pacer) == 0
    assert clock.set <= 3
    take(pacer, "returned.example").give_back()
    pacer.close_host("closed.example", clock.wall() + 5.0, Bound.BACKOFF)
    pacer.close_host("past.example", clock.wall() - 5.0, Bound.BACKOFF)
    now(pacer.start_fetch(fetching("opened.example"))).opened()
    assert isinstance(pacer.try_start(wants(rules("Visit-time: 0001-0002"), "night.example")), NotYet)
    clock.advance(61.0)
    assert len(pacer) == 0


def test_a_wait_in_another_event_loop_is_refused_and_sets_no_timer() -> None:
    clock = CountingClock()
    pacer = Hosts(OPTIONS, clock=clock)

    async def first() -> None:
        take(pacer).end()

    async def second() -> None:
        with pytest.raises(WrongEventLoop):
            await pacer.start(wants(rules(), HOST), 60.0)

    asyncio.run(first())
    before = clock.set
    asyncio.run(second())
    assert (clock.set, pacer.waiting) == (before, 0)


async def test_a_host_of_which_only_robots_txt_was_fetched_is_remembered_for_a_day_at_most() -> None:
    slow = rules("Crawl-delay: 86400")
    for longest_s in (math.inf, 1e300, 86_400.0):
        clock = ManualClock()
        pacer = Hosts(PacingOptions(max_crawl_delay_s=longest_s), clock=clock)
        now(pacer.start_fetch(fetching(HOST))).end(200)
        clock.advance(86_399.0)
        assert len(pacer) == 0
        answer = pacer.try_start(wants(slow))
        assert isinstance(answer, NotYet)
        assert answer.bound_by is Bound.CRAWL_DELAY
        clock.advance(2.0)
        take(pacer).give_back()
        clock.advance(86_400.0)
        assert len(pacer) == 0


async def test_a_permit_that_ended_keeps_no_slot_alive() -> None:
    clock = ManualClock()
    pacer = Hosts(OPTIONS, clock=clock)
    permit = take(pacer)
    finish(permit, 200)
    clock.advance(2.0)
    gc.collect()
    gone = weakref.ref(pacer)
    del pacer
    gc.collect()
    assert gone() is None
    assert permit.host == HOST


async def test_a_timer_that_fires_early_lets_nobody_start_early() -> None:
    clock = CountingClock(early_s=0.01)
    pacer = Hosts(OPTIONS, clock=clock)
    finish(take(pacer), 200)
    waiting = asyncio.create_task(pacer.start(wants()))
    await settle()
    assert repr(pacer) == "<Hosts: 1 busy, 1 waiting, 0 in flight>"
    for _ in range(300):
        await settle()
        if waiting.done():
            break
        clock.advance(0.005)
    assert 1.0 <= (await waiting).started_mono <= 1.011


async def test_a_waiter_of_a_host_that_is_due_waits_for_no_timer() -> None:
    clock = ManualClock()
    pacer = Hosts(PacingOptions(min_delay_s=0.0), clock=clock)
    for _ in range(100):
        permit, called = take(pacer), asyncio.Event()
        pacer.when_ready(wants(), called.set)
        finish(permit)
        clock.advance(0.0)
        assert called.is_set()
        clock.advance(0.0007)


async def test_the_host_of_a_callback_that_is_alone_in_line_is_kept_for_ten_seconds() -> None:
    clock = ManualClock()
    pacer = Hosts(PacingOptions(min_delay_s=0.0), clock=clock)
    for taken_after_s in (9.9, None):
        called = asyncio.Event()
        pacer.when_ready(wants(), called.set)
        clock.advance(0.0)
        assert called.is_set()
        clock.advance(taken_after_s or 9.9)
        assert len(pacer) == 1
        if taken_after_s is not None:
            finish(take(pacer))
    clock.advance(0.3)
    assert len(pacer) == 0


# An event loop that stood still: nothing starts early, and no host is reported for the time that it could not use.


UA = "ExampleBot/1.0 (+https://example.com/bot)"
HOSTS = [f"host{n}.example" for n in range(5)]


def stall(clock: ManualClock, seconds: float) -> None:
    """Move the clock without its timers, and then fire those that are due, all late."""
    clock._move_to(clock.monotonic() + seconds)
    clock.advance(0.0)


async def hold(gate: Gatekeeper, host: str, end: asyncio.Event) -> None:
    async with gate.turn(f"https://{host}/1") as turn:
        turn.observe(200)
        await end.wait()


async def test_a_stall_is_no_long_wait() -> None:
    for before_s in (0.0, 0.5, 4.5):
        clock, events, end = ManualClock(), list[Event](), asyncio.Event()
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock) as gate:
            gate.subscribe(events.append)
            await gate.check_batch([f"https://{host}/" for host in HOSTS])
            clock.advance(2.0)
            holding = [apart(hold(gate, host, end)) for host in HOSTS]
            await settle()
            waiting = [apart(gate.take_turn(f"https://{host}/2")) for host in HOSTS]
            await settle()
            clock.advance(before_s)
            stall(clock, 6.0)
            assert not [event for event in events if isinstance(event, LongWait | TurnExpired)]
            stalled_mono = clock.monotonic()
            clock.advance(4.9)
            assert not [event for event in events if isinstance(event, LongWait)]
            clock.advance(1.2)
            held = {event.host for event in events if isinstance(event, LongWait)}
            assert held == set(HOSTS), "the turns are held by no stall"
            end.set()
            await asyncio.gather(*holding)
            assert not any(task.done() for task in waiting), "each interval counts from the end of the turn"
            clock.advance(1.0)
            await settle()
            for turn in await asyncio.gather(*waiting):
                turn.give_back()
            assert clock.monotonic() == pytest.approx(stalled_mono + 7.1)


# What the pacer recalls of a host


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
    """A pacer with a memory, which answers once it is released."""

    def __init__(self, memory: Memory | None = None, options: PacingOptions | None = None) -> None:
        self.clock = ManualClock(MIDNIGHT)
        self.memory = memory or Memory()
        self.pacer = Hosts(options or PacingOptions(adaptive_factor=0.0), clock=self.clock, jitter=lambda: 0.0)
        self.pacer.remember(lambda _: self.memory)

    async def release(self) -> None:
        self.memory.release.set()
        await settle()

    def take(self) -> LocalPermit:
        return take(self.pacer)

    def refused(self) -> tuple[float, Bound]:
        answer = self.pacer.try_start(wants())
        assert isinstance(answer, NotYet)
        return answer.not_before - MIDNIGHT, answer.bound_by


async def test_host_is_recalled_again_only_when_another_process_may_have_asked_it_since() -> None:
    desk = Desk()
    desk.memory.release.set()
    assert isinstance(desk.pacer.try_start(wants()), NotYet)
    await settle()
    finish(desk.take())
    desk.clock.advance(599)  # the slot is forgotten after a second
    assert len(desk.pacer) == 0
    finish(desk.take())
    assert desk.memory.recalled == [HOST]
    desk.clock.advance(601)
    assert desk.refused()[1] is Bound.STORE
    await settle()
    assert desk.memory.recalled == [HOST, HOST]


async def test_requests_start_after_the_recall_in_their_order_whatever_limit_is_set() -> None:
    for limit in (1, 10_000):
        desk, started = Desk(), list[int]()

        async def start(desk: Desk, started: list[int], place: int) -> None:
            await desk.pacer.start(wants())
            started.append(place)

        waiting = [asyncio.ensure_future(start(desk, started, place)) for place in range(3)]
        await settle()
        desk.pacer.set_limits(HOST, 0.0, limit)
        desk.clock.advance(100)
        await settle()
        assert (started, desk.pacer.waiting, desk.pacer.in_flight) == ([], 3, 0)
        assert isinstance(desk.pacer.try_start(wants()), NotYet)
        desk.memory.release.set()
        for _ in range(3):
            await settle()
            desk.clock.advance(0.01)
        assert started == list(range(min(3, limit)))
        await desk.pacer.aclose()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_host_that_cannot_be_recalled_counts_as_asked_just_now() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for error in (StoreError("disk"), ZeroDivisionError("bug")):
        desk = Desk(Memory(error))
        assert desk.refused()[1] is Bound.STORE
        desk.clock.advance(5)
        await desk.release()
        assert desk.refused() == (6.0, Bound.FLOOR)
    desk, others = Desk(), asyncio.all_tasks()
    desk.pacer.when_ready(wants(), lambda: None)
    for task in asyncio.all_tasks() - others:  # the recall, before it began
        task.cancel()
    await settle()
    assert desk.refused() == (1.0, Bound.FLOOR)


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


async def test_cancelled_question_whether_a_host_is_closed_affects_no_other_and_the_close_ends_all() -> None:
    desk = Desk()
    questions = [asyncio.ensure_future(desk.pacer.closed_until(HOST)) for _ in range(2)]
    await settle()
    questions[0].cancel()
    await settle()
    assert not questions[1].done()
    await desk.pacer.aclose()
    with pytest.raises(ClosedError):
        await questions[1]
    assert await desk.pacer.closed_until("other.example") is None
    assert desk.memory.recalled == [HOST]


async def test_closure_during_the_recall_holds() -> None:
    desk = Desk()
    desk.pacer.close_host(HOST, MIDNIGHT + 100, Bound.RETRY_AFTER)
    await desk.release()
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 100
    assert desk.memory.states[HOST]().answers is not None


async def test_start_of_several_at_once_is_remembered_as_such() -> None:
    desk = Desk(options=PacingOptions(max_concurrent=4, adaptive_factor=0.0))
    desk.memory.release.set()
    assert isinstance(desk.pacer.try_start(wants()), NotYet)
    await settle()
    permit = desk.take()
    desk.clock.advance(30)
    state = desk.memory.states[HOST]()
    assert (state.asked_s, state.under_way) == (30.0, False)  # there the interval counts from the start
    permit.end()
