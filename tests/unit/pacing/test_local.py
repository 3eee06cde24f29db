"""What is LocalPacer's own; what every pacer promises is in tests/contract/test_pacers.py."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse._pacing.slot import Permit
from politesse.clock import SystemClock
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.unit.pacing.pacing import HOST, MIDNIGHT, ORIGIN, rules, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Timer

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


def take(pacer: LocalPacer, host: str = HOST, **said: str) -> Permit:
    permit = pacer.try_start(host, f"https://{host}", rules(*(f"{name}: {value}" for name, value in said.items())))
    assert isinstance(permit, Permit)
    return permit


@pytest.mark.parametrize("status", [200, 404, None])
async def test_a_host_is_forgotten_when_its_interval_is_over(status: int | None) -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    for number in range(100):
        pacer.finish(take(pacer, f"host{number}.example"), status)
    assert len(pacer) == 100
    clock.advance(1.1)
    assert len(pacer) == 0


async def test_a_host_that_was_asked_in_vain_is_forgotten() -> None:
    clock = ManualClock(MIDNIGHT)
    pacer = LocalPacer(OPTIONS, clock=clock)
    pacer.give_back(take(pacer))
    pacer.close("closed.example", MIDNIGHT + 5.0, Bound.BACKOFF)
    pacer.close("past.example", MIDNIGHT - 5.0, Bound.BACKOFF)
    pacer.spend("spent.example")
    assert isinstance(pacer.try_start("night.example", "https://night.example", rules("Visit-time: 0001-0002")), NotYet)
    clock.advance(61.0)
    assert len(pacer) == 1  # the spent one: what its robots.txt asks for is not known yet
    clock.advance(OPTIONS.max_crawl_delay_s)
    assert len(pacer) == 0


@pytest.mark.parametrize("longest_s", [math.inf, 1e300, 86_400.0])
async def test_a_host_of_which_only_robots_txt_was_fetched_is_remembered_for_a_day_at_most(longest_s: float) -> None:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(max_crawl_delay_s=longest_s), clock=clock)
    for number in range(100):
        pacer.spend(f"host{number}.example")
    clock.advance(86_399.0)
    assert len(pacer) == 100
    clock.advance(2.0)
    assert len(pacer) == 0


async def test_a_host_is_not_forgotten_while_a_request_is_under_way() -> None:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(max_concurrent=2), clock=clock)
    permit = take(pacer)
    clock.advance(100.0)
    assert len(pacer) == 1
    pacer.finish(permit, 404)
    clock.advance(201.0)
    assert len(pacer) == 0


async def test_a_failure_is_remembered_for_as_long_as_it_closed_the_host() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock, jitter=lambda: 0.0)
    pacer.finish(take(pacer), 429)
    clock.advance(119.0)
    assert len(pacer) == 1
    clock.advance(1.1)
    assert len(pacer) == 0


async def test_who_was_granted_leaves_nothing_behind() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    pacer.finish(take(pacer), 200)
    tasks = [asyncio.create_task(pacer.start(HOST, ORIGIN, None, 100.0)) for _ in range(3)]
    for task in tasks:
        await settle()
        clock.advance(1.001)
        await settle()
        pacer.finish(task.result(), 200)
    clock.advance(1.001)
    assert (len(pacer), pacer.waiting, pacer.in_flight) == (0, 0, 0)


async def test_a_permit_that_ended_keeps_no_slot_alive() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    permit = take(pacer)
    pacer.finish(permit, 200)
    clock.advance(2.0)
    gc.collect()
    gone = weakref.ref(pacer)
    del pacer
    gc.collect()
    assert gone() is None
    assert permit.key == HOST


async def test_a_timer_that_fires_early_lets_nobody_start_early() -> None:
    clock = CountingClock(early_s=0.01)
    pacer = LocalPacer(OPTIONS, clock=clock)
    pacer.finish(take(pacer), 200)
    waiting = asyncio.create_task(pacer.start(HOST, ORIGIN, None))
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
        pacer.finish(take(pacer, f"host{number}.example"), 200)
    assert clock.set == 1
    clock.advance(1.1)
    assert len(pacer) == 0
    assert clock.set <= 3


async def test_permits_are_stamped_when_they_are_taken_not_when_they_are_woken() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    pacer.finish(take(pacer), 200)
    waiting = asyncio.create_task(pacer.start(HOST, ORIGIN, None))
    await settle()
    clock.advance(7.0)
    assert (await waiting).started_mono == 7.0


@pytest.mark.parametrize(
    ("prepare", "bound_by"),
    [
        (lambda pacer: pacer.finish(take(pacer), 200), Bound.FLOOR),
        (lambda pacer: pacer.finish(take(pacer, **{"Crawl-delay": "9"}), 200), Bound.CRAWL_DELAY),
        (lambda pacer: pacer.finish(take(pacer, **{"Request-rate": "1/9"}), 200), Bound.REQUEST_RATE),
        (lambda pacer: pacer.finish(take(pacer), 429), Bound.BACKOFF),
        (lambda pacer: pacer.finish(take(pacer), 503, {"retry-after": "7"}), Bound.RETRY_AFTER),
        (lambda pacer: pacer.finish(take(pacer), 200, {"ratelimit": '"a";r=0;t=9'}), Bound.RATE_LIMIT),
        (lambda pacer: pacer.finish(take(pacer), 200, {"ratelimit": '"a";r=2;t=9'}), Bound.RATE_LIMIT),
        (lambda pacer: pacer.close(HOST, MIDNIGHT + 9, Bound.RETRY_AFTER), Bound.RETRY_AFTER),
        (lambda pacer: pacer.spend(HOST), Bound.FLOOR),
        (take, Bound.IN_FLIGHT),
    ],
)
async def test_not_yet_says_what_binds(prepare: Callable[[LocalPacer], object], bound_by: Bound) -> None:
    pacer = LocalPacer(OPTIONS, clock=ManualClock(MIDNIGHT))
    kept = prepare(pacer)
    answer = pacer.try_start(HOST, ORIGIN, None)
    assert isinstance(answer, NotYet)
    assert answer.bound_by is bound_by
    del kept


async def test_adaptive_delay_and_rule_of_thumb_bind() -> None:
    clock = ManualClock()
    pacer = LocalPacer(OPTIONS, clock=clock)
    pacer.set_options("thumb.example", PacingOptions(rule_of_thumb_factor=2.0))
    permits = [take(pacer), take(pacer, "thumb.example")]
    clock.advance(8.0)
    for permit in permits:
        pacer.finish(permit, 200)
    answers = [pacer.try_start(permit.key, permit.key, None) for permit in permits]
    assert [
        (answer.bound_by, answer.not_before - clock.wall()) for answer in answers if isinstance(answer, NotYet)
    ] == [
        (Bound.ADAPTIVE, 8.0),
        (Bound.RULE_OF_THUMB, 16.0),
    ]


async def test_repr_shows_who_waits() -> None:
    pacer = LocalPacer(OPTIONS, clock=ManualClock())
    kept = take(pacer)
    waiting = asyncio.create_task(pacer.start(HOST, ORIGIN, None))
    await settle()
    assert repr(pacer) == "<LocalPacer: 1 busy hosts, 1 waiting, 1 in flight>"
    assert kept.key == HOST
    waiting.cancel()


async def test_the_clock_of_the_machine_will_do() -> None:
    pacer = LocalPacer(PacingOptions(min_delay_s=0.01, adaptive_factor=0.0), clock=SystemClock())
    stamps = []
    for _ in range(3):
        permit = await pacer.start(HOST, ORIGIN, None)
        stamps.append(permit.started_mono)
        pacer.finish(permit, 200)
    assert stamps[1] - stamps[0] >= 0.01
    assert stamps[2] - stamps[1] >= 0.01
    await pacer.aclose()
