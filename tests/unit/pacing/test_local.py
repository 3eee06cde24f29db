"""What is LocalPacer's own; what every pacer promises is in tests/contract/test_pacers.py."""

import asyncio
import gc
import math
import weakref
from collections.abc import Callable

import pytest

from politesse import Gatekeeper, PacingOptions
from politesse._pacing.local import LocalPacer
from politesse._pacing.permit import LocalPermit
from politesse.clock import SystemClock, Timer
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


def take(pacer: LocalPacer, host: str = HOST, **said: str) -> LocalPermit:
    permit = pacer.try_start(wants(rules(*(f"{name}: {value}" for name, value in said.items())), host))
    assert isinstance(permit, LocalPermit)
    return permit


@pytest.mark.parametrize("status", [200, 404, None])
async def test_a_host_is_forgotten_when_its_interval_is_over(status: int | None) -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    for number in range(100):
        finish(take(pacer, f"host{number}.example"), status)
    assert len(pacer) == 100
    clock.advance(1.1)
    assert len(pacer) == 0


async def test_a_third_robots_txt_within_a_minute_waits_for_the_floor_whether_or_not_others_are_in_line() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    for passed_s in (1.0, 58.0, 2.0):
        now(pacer.start_fetch(fetching(HOST))).end(200)
        clock.advance(passed_s)
    now(pacer.start_fetch(fetching(HOST))).end(200)  # the first was over a minute ago
    next_fetch = asyncio.ensure_future(pacer.start_fetch(fetching(HOST)))
    await settle()
    assert not next_fetch.done()
    clock.advance(1.0)
    await settle()
    assert next_fetch.done()


async def test_a_host_that_was_asked_in_vain_is_forgotten() -> None:
    clock = ManualClock(MIDNIGHT)
    pacer = LocalPacer(OPTIONS, clock=clock)
    take(pacer).give_back()
    pacer.close_host("closed.example", MIDNIGHT + 5.0, Bound.BACKOFF)
    pacer.close_host("past.example", MIDNIGHT - 5.0, Bound.BACKOFF)
    now(pacer.start_fetch(fetching("spent.example"))).opened()
    assert isinstance(pacer.try_start(wants(rules("Visit-time: 0001-0002"), "night.example")), NotYet)
    clock.advance(61.0)
    assert len(pacer) == 0


@pytest.mark.parametrize("longest_s", [math.inf, 1e300, 86_400.0])
async def test_a_host_of_which_only_robots_txt_was_fetched_is_remembered_for_a_day_at_most(longest_s: float) -> None:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(max_crawl_delay_s=longest_s), clock=clock)
    for number in range(100):
        now(pacer.start_fetch(fetching(f"host{number}.example"))).end(200)
    slow = rules("Crawl-delay: 86400")
    clock.advance(86_399.0)
    assert len(pacer) == 0
    answers = [pacer.try_start(wants(slow, f"host{number}.example")) for number in range(100)]
    assert {answer.bound_by for answer in answers if isinstance(answer, NotYet)} == {Bound.CRAWL_DELAY}
    clock.advance(2.0)
    for number in range(100):
        take(pacer, f"host{number}.example").give_back()
    clock.advance(86_400.0)
    assert len(pacer) == 0


async def test_a_host_is_not_forgotten_while_a_request_is_under_way() -> None:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(max_concurrent=2), clock=clock)
    permit = take(pacer)
    clock.advance(100.0)
    assert len(pacer) == 1
    finish(permit, 404)
    clock.advance(201.0)
    assert len(pacer) == 0


async def test_a_permit_that_ended_keeps_no_slot_alive() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
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
    pacer = LocalPacer(OPTIONS, clock=clock)
    finish(take(pacer), 200)
    waiting = asyncio.create_task(pacer.start(wants()))
    for _ in range(300):
        await settle()
        if waiting.done():
            break
        clock.advance(0.005)
    assert 1.0 <= (await waiting).started_mono <= 1.011


async def test_one_timer_serves_all_hosts() -> None:
    clock = CountingClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    for number in range(1000):
        finish(take(pacer, f"host{number}.example"), 200)
    assert clock.set == 2  # one for the hosts, one for the turns under way
    clock.advance(1.1)
    assert len(pacer) == 0
    assert clock.set <= 3


async def test_a_waiter_of_a_host_that_is_due_waits_for_no_timer() -> None:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(min_delay_s=0.0), clock=clock)
    for _ in range(100):
        permit, called = take(pacer), asyncio.Event()
        pacer.when_ready(wants(), called.set)
        finish(permit)
        clock.advance(0.0)
        assert called.is_set()
        clock.advance(0.0007)


async def test_permits_are_stamped_when_they_are_taken_not_when_they_are_woken() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    finish(take(pacer), 200)
    waiting = asyncio.create_task(pacer.start(wants()))
    await settle()
    clock.advance(7.0)
    assert (await waiting).started_mono == 7.0


@pytest.mark.parametrize(
    ("prepare", "bound_by"),
    [
        (lambda pacer: finish(take(pacer), 200), Bound.FLOOR),
        (lambda pacer: finish(take(pacer, **{"Crawl-delay": "9"}), 200), Bound.CRAWL_DELAY),
        (lambda pacer: finish(take(pacer, **{"Request-rate": "1/9"}), 200), Bound.REQUEST_RATE),
        (lambda pacer: finish(take(pacer), 429), Bound.BACKOFF),
        (lambda pacer: finish(take(pacer), 503, {"retry-after": "7"}), Bound.RETRY_AFTER),
        (lambda pacer: finish(take(pacer), 200, {"ratelimit": '"a";r=0;t=9'}), Bound.RATE_LIMIT),
        (lambda pacer: finish(take(pacer), 200, {"ratelimit": '"a";r=2;t=9'}), Bound.RATE_LIMIT),
        (lambda pacer: pacer.close_host(HOST, MIDNIGHT + 9, Bound.RETRY_AFTER), Bound.RETRY_AFTER),
        (lambda pacer: now(pacer.start_fetch(fetching(HOST))).opened(), Bound.FLOOR),
        (take, Bound.IN_FLIGHT),
    ],
)
async def test_not_yet_says_what_binds(prepare: Callable[[LocalPacer], object], bound_by: Bound) -> None:
    pacer = LocalPacer(OPTIONS, clock=ManualClock(MIDNIGHT))
    kept = prepare(pacer)
    answer = pacer.try_start(wants())
    assert isinstance(answer, NotYet)
    assert answer.bound_by is bound_by
    del kept


async def test_repr_shows_who_waits() -> None:
    pacer = LocalPacer(OPTIONS, clock=ManualClock())
    kept = take(pacer)
    waiting = asyncio.create_task(pacer.start(wants()))
    await settle()
    assert repr(pacer) == "<LocalPacer: 1 busy hosts, 1 waiting, 1 in flight>"
    assert kept.host == HOST
    waiting.cancel()


async def test_the_clock_of_the_machine_will_do() -> None:
    pacer = LocalPacer(PacingOptions(min_delay_s=0.01, adaptive_factor=0.0), clock=SystemClock())
    stamps = []
    for _ in range(3):
        permit = await pacer.start(wants())
        stamps.append(permit.started_mono)
        finish(permit, 200)
    assert stamps[1] - stamps[0] >= 0.01
    assert stamps[2] - stamps[1] >= 0.01
    await pacer.aclose()


# An event loop that stood still: nothing starts early, and no host is reported for the time that it could not use.


UA = "ExampleBot/1.0 (+https://example.com/bot)"
HOSTS = [f"host{n}.example" for n in range(30)]


def stall(clock: ManualClock, seconds: float) -> None:
    """Move the clock without its timers, and then fire those that are due, all late."""
    clock._move_to(clock.monotonic() + seconds)
    clock.advance(0.0)


async def hold(gate: Gatekeeper, host: str, end: asyncio.Event) -> None:
    async with gate.turn(f"https://{host}/1") as turn:
        turn.observe(200)
        await end.wait()


@pytest.mark.parametrize("before_s", [0.0, 0.5, 4.5])
async def test_a_stall_is_no_long_wait(before_s: float) -> None:
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
        held = [event for event in events if isinstance(event, LongWait)]
        assert {event.host for event in held} == set(HOSTS), "the turns are held by no stall"
        end.set()
        await asyncio.gather(*holding)
        assert not any(task.done() for task in waiting), "each interval counts from the end of the turn"
        clock.advance(1.0)
        await settle()
        for turn in await asyncio.gather(*waiting):
            turn.give_back()
        assert clock.monotonic() == pytest.approx(stalled_mono + 7.1)
