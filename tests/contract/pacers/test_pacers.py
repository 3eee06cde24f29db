"""What every pacer promises. A new one is added to PACERS and has to pass as it is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from politesse import PacingOptions
from politesse._pacing.host_state import HostState
from politesse._pacing.hosts import Hosts, give_back_all
from politesse._pacing.shared import GateShare
from politesse.errors import ClosedError, TooFar
from politesse.events import Event, HostClosed, HostOpened, LongWait, Publisher, TurnExpired
from politesse.options import Limit, SharedPacer
from politesse.robots import RuleSet
from politesse.status import HostStatus
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet, Refusal
from tests.contract.pacers.fleet_pacer import fleet_pacer, scoped_fleet_pacer, settle
from tests.support import tasks
from tests.support.pacing import (
    AGENT,
    HOST,
    MIDNIGHT,
    LocalFetch,
    Pacer,
    Permit,
    Resolving,
    TurnRequest,
    at,
    fetching,
    rules,
)
from tests.support.tiers import first_of

FIRST: Final = "https://example.com/1"
SECOND: Final = "https://example.com/2"
OPTIONS: Final = PacingOptions(min_delay_s=1.0)

Make = Callable[[PacingOptions, ManualClock, Publisher], Pacer]


def _local(options: PacingOptions, clock: ManualClock, publisher: Publisher) -> Hosts:
    return Hosts(options, clock=clock, jitter=lambda: 0.0, publisher=publisher)


def _with_domain(options: PacingOptions) -> PacingOptions:
    """Add a wider scope that never binds."""
    return replace(options, domain=Limit(min_delay_s=0.0, max_concurrent=10_000))


def _scoped(options: PacingOptions, clock: ManualClock, publisher: Publisher) -> Pacer:
    options, resolver = _with_domain(options), Resolving({})
    return Hosts(options, clock=clock, jitter=lambda: 0.0, publisher=publisher, resolver=resolver)


class _EmptyMemory:
    """Knows of no host, after a moment."""

    async def recall(self, key: str, /) -> HostState | None:
        await asyncio.sleep(0)
        return None

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        take()


def _shared(options: PacingOptions, clock: ManualClock, publisher: Publisher) -> Pacer:
    """The share of a gate that remembers hosts, of a pacer with a wider scope that never binds: all layers at once."""
    shared = SharedPacer(_with_domain(options), clock=clock, jitter=lambda: 0.0)
    return GateShare(lambda: shared, shared.options, publisher, lambda _: _EmptyMemory(), None)


IN_PROCESS: dict[str, Make] = {"local": _local, "shared": _shared}
# The first two run all the code of the others.
PACERS: dict[str, Make] = {"shared": _shared, "scoped-fleet": scoped_fleet_pacer, "fleet": fleet_pacer}
PACERS |= {"local": _local, "scoped": _scoped}


class Desk:
    """A pacer, its clock, and who was granted what in which order.

    A pacer over a server cannot answer ``try_start``, so ``now`` asks by ``try_starts``. It asks again, because a pacer
    may have to recall the host first.
    """

    def __init__(self, make: Make, options: PacingOptions = OPTIONS) -> None:
        self.recalls, self.asks_redis = make is _shared, make in (fleet_pacer, scoped_fleet_pacer)
        self.clock = ManualClock(MIDNIGHT)
        self.events: list[Event] = []
        publisher = Publisher()
        publisher.subscribe(self.events.append)
        self.pacer = make(options, self.clock, publisher)
        self.granted: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[Permit]] = []

    def request(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT, url: str = "") -> TurnRequest:
        return TurnRequest(host, f"https://{host}", agent, rules, url)

    def ask(
        self, name: str, rules: RuleSet | None = None, *, max_wait_s: float | None = None, **of: str
    ) -> asyncio.Task[Permit]:
        async def start() -> Permit:
            permit = await self.pacer.start(self.request(rules, **of), max_wait_s)
            self.granted.append((name, self.clock.monotonic()))
            return permit

        self.tasks.append(asyncio.get_running_loop().create_task(start()))
        return self.tasks[-1]

    def granted_at(self, name: str) -> float:
        return dict(self.granted)[name]

    async def starts_in(self, seconds: float, waiting: asyncio.Task[Permit]) -> Permit:
        """Pass the time in which a task waits, to the tenth of a second."""
        await self.pass_time(seconds - 0.1)
        assert not waiting.done()
        await self.pass_time(0.2)
        assert waiting.done()
        return await waiting

    def watch(self, rules: RuleSet | None = None, agent: str = AGENT) -> list[float]:
        """Return a list that will have the time at which the watcher is called."""
        called: list[float] = []
        self.pacer.when_ready(self.request(rules, agent=agent), lambda: called.append(self.clock.monotonic()))
        return called

    async def pass_time(self, seconds: float) -> None:
        """In steps of 10 ms, longer in a wait beyond 20 s."""
        await tasks.pass_time(self.clock, seconds, step_s=max(0.01, seconds / 2_000), settle=settle)

    async def jump(self, seconds: float) -> None:
        """In one step, once all has acted that can: for long times in which little happens."""
        await settle()
        self.clock.advance(seconds)
        await settle()

    def published(self) -> list[Event]:
        """With times to the tenth of a second: a timer may come that much late."""
        events: list[Event] = []
        for event in self.events:
            if isinstance(event, LongWait):
                events.append(replace(event, wait_s=round(event.wait_s, 1)))
            elif isinstance(event, TurnExpired):
                events.append(replace(event, held_s=round(event.held_s, 1)))
            else:
                events.append(event)
        return events

    async def now(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> Permit | NotYet:
        (answer,) = await self.pacer.try_starts([self.request(rules, host, agent)])
        if isinstance(answer, NotYet):
            await settle()
            (answer,) = await self.pacer.try_starts([self.request(rules, host, agent)])
        return answer

    async def take(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> Permit:
        answer = await self.now(rules, host, agent)
        assert not isinstance(answer, NotYet), answer
        return answer

    async def not_yet(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> NotYet:
        answer = await self.now(rules, host, agent)
        assert isinstance(answer, NotYet)
        return answer

    async def refused(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> tuple[float, Bound]:
        """How many seconds from now on, and what binds."""
        answer = await self.not_yet(rules, host, agent)
        return round(answer.not_before - self.clock.wall(), 3), answer.bound_by

    async def end(self, permit: Permit, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        if status is not None:
            permit.observe(status, headers or {})
        permit.end()
        await settle()

    async def visit(self, rules: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> None:
        """One request that is answered with 200 at once."""
        await self.end(await self.take(rules, host, agent), 200)

    async def give_back(self, permit: Permit) -> None:
        permit.give_back()
        await settle()

    async def close_host(self, until_wall: float, bound_by: Bound) -> None:
        self.pacer.close_host(HOST, until_wall, bound_by)
        await settle()

    async def start_fetch(self, host: str = HOST) -> LocalFetch:
        pacer = self.pacer.pacer if isinstance(self.pacer, GateShare) else self.pacer
        return await pacer.start_fetch(fetching(host))

    async def fetch(self, *, opened: bool = False, status: int = 200) -> None:
        """One robots.txt, whose answer comes at once."""
        robots = asyncio.ensure_future(self.start_fetch())
        await self.pass_time(0.0)
        permit = await robots
        permit.end(status, {})
        if opened:
            permit.opened()
        await settle()

    async def limit(self, min_delay_s: float | None, max_concurrent: int | None = None, host: str = HOST) -> None:
        self.pacer.set_limits(host, min_delay_s, max_concurrent)
        await settle()

    async def aclose(self) -> None:
        await self.pacer.aclose()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture(params=first_of(2, PACERS))
def make(request: pytest.FixtureRequest) -> Make:
    return PACERS[request.param]


@pytest.fixture
async def desk(make: Make) -> AsyncIterator[Desk]:
    async with aclosing(Desk(make)) as desk:
        yield desk


@pytest.fixture
async def wide(make: Make) -> AsyncIterator[Desk]:
    """With up to three requests under way to a host."""
    async with aclosing(Desk(make, replace(OPTIONS, max_concurrent=3))) as desk:
        yield desk


@pytest.fixture(params=IN_PROCESS)
async def near(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """Return a desk whose pacer hears of a closing before a waiter that was woken resumes: no message is on its way."""
    async with aclosing(Desk(PACERS[request.param])) as desk:
        yield desk


# Spacing


async def test_the_first_request_to_a_host_starts_at_once(desk: Desk) -> None:
    permit = await desk.pacer.start(desk.request())
    # While a host is recalled, or Redis is asked, a verdict may have changed.
    assert (desk.clock.monotonic(), permit.waited) == (0.0, desk.recalls or desk.asks_redis)


async def test_the_next_starts_an_interval_after_the_end(desk: Desk) -> None:
    permit = await desk.take()
    await desk.pass_time(3.0)
    await desk.end(permit, 404)
    second = desk.ask("second")
    await desk.pass_time(2.99)
    assert not second.done()  # three seconds for an answer are an adaptive delay of as many
    await desk.pass_time(0.02)
    assert (await second).waited
    assert desk.granted_at("second") == pytest.approx(6.0, abs=0.01)


async def test_requests_start_in_the_order_in_which_they_came(desk: Desk) -> None:
    await desk.visit()
    for number in range(6):
        desk.ask(str(number))
        await settle()
    for number in range(6):
        await desk.pass_time(1.01)
        assert [name for name, _ in desk.granted] == [str(earlier) for earlier in range(number + 1)]
        await desk.end(desk.tasks[number].result(), 200)
    assert all(later - earlier >= 1.0 for (_, earlier), (_, later) in pairwise(desk.granted))


async def test_a_newcomer_does_not_overtake_waiters(desk: Desk) -> None:
    await desk.visit()
    first = desk.ask("first")
    await settle()
    desk.clock.advance(1.5)  # the first is woken, and has not run yet
    answer = desk.pacer.try_start(desk.request())
    assert isinstance(answer, NotYet)
    assert (answer.not_before, answer.bound_by) == (desk.clock.wall(), Bound.QUEUE)
    newcomer = desk.ask("newcomer")
    await settle()
    assert (first.done(), newcomer.done()) == (True, False)


async def test_ending_a_permit_twice_has_no_effect(desk: Desk) -> None:
    permit = await desk.take()
    await desk.end(permit, 200)
    await desk.end(permit, 429)
    await desk.give_back(permit)
    assert desk.pacer.in_flight == 0
    assert await desk.refused() == (1.0, Bound.FLOOR)


# Several at once


async def test_concurrent_requests_are_spaced_from_start_to_start(wide: Desk) -> None:
    for number in range(5):
        wide.ask(str(number))
    await wide.pass_time(10.0)
    stamps = [stamp for _, stamp in wide.granted]
    assert stamps == pytest.approx([0.0, 1.0, 2.0], abs=0.05)
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(stamps))
    await wide.end(wide.tasks[1].result(), 200)
    await wide.end(wide.tasks[0].result(), 200)
    await wide.pass_time(20.0)
    assert [name for name, _ in wide.granted] == list("01234")
    assert wide.granted[4][1] - wide.granted[3][1] >= 1.0


async def test_a_raised_concurrency_counts_from_the_start_of_requests_in_flight(desk: Desk) -> None:
    await desk.limit(10.0)
    await desk.take()
    await desk.pass_time(1.0)
    await desk.limit(10.0, 2)
    assert await desk.refused() == (9.0, Bound.FLOOR)


async def test_a_lowered_concurrency_binds_as_requests_end(wide: Desk) -> None:
    first = await wide.take()
    await wide.pass_time(1.1)
    second = await wide.take()
    await wide.limit(1.0, 1)
    await wide.pass_time(1.1)
    assert (await wide.refused())[1] is Bound.IN_FLIGHT
    await wide.end(first, 404)
    assert (await wide.refused())[1] is not Bound.QUEUE
    await wide.pass_time(1.5)
    await wide.end(second, 404)
    waiting = wide.ask("third")
    end = wide.clock.monotonic()
    await wide.pass_time(30.0)
    await waiting
    assert wide.granted_at("third") >= end + 1.0


# What is said while others wait


async def test_a_new_crawl_delay_binds_waiters(desk: Desk) -> None:
    await desk.visit(rules())
    first, second = desk.ask("first", rules()), desk.ask("second", rules("Crawl-delay: 30"))
    await desk.starts_in(30.0, first)
    assert not second.done()


async def test_a_shorter_crawl_delay_frees_waiters(desk: Desk) -> None:
    slow = rules("Crawl-delay: 1000")
    await desk.visit(slow)
    first = desk.ask("first", slow)
    await settle()
    desk.ask("second", rules("Crawl-delay: 5"))
    await desk.pass_time(5.1)
    assert first.done()


async def test_the_slowest_origin_of_a_host_binds(desk: Desk) -> None:
    await desk.visit(rules("Crawl-delay: 20"))
    other = TurnRequest(HOST, "http://example.com:8080", AGENT, rules("Crawl-delay: 2"))
    assert isinstance(desk.pacer.try_start(other), NotYet)
    assert await desk.refused(rules("Crawl-delay: 3")) == (3.0, Bound.CRAWL_DELAY)


async def test_a_closing_binds_waiters(desk: Desk) -> None:
    await desk.visit()
    waiting = desk.ask("first")
    await desk.pass_time(0.5)
    await desk.close_host(desk.clock.wall() + 60.0, Bound.RETRY_AFTER)
    assert await desk.refused() == (60.0, Bound.RETRY_AFTER)
    await desk.starts_in(60.0, waiting)


async def test_a_closing_binds_a_waiter_that_was_woken_already(near: Desk) -> None:
    await near.visit()
    waiting = near.ask("first")
    await settle()
    near.clock.advance(1.5)
    near.pacer.close_host(HOST, near.clock.wall() + 60.0, Bound.BACKOFF)
    await near.starts_in(60.0, waiting)


async def test_429_closes_the_host_however_fast_it_comes(desk: Desk) -> None:
    for closed_s in (10.0, 20.0, 40.0, 80.0):
        permit = await desk.take()
        desk.clock.advance(0.002)
        await desk.end(permit, 429)
        assert await desk.refused() == (closed_s, Bound.BACKOFF)
        desk.clock.advance(closed_s + 0.001)


async def test_a_refusal_closes_the_host_for_longer_each_time_and_says_how_often(desk: Desk) -> None:
    for times, closed_s in ((1, 900.0), (2, 1800.0), (3, 3600.0)):
        await desk.end(await desk.take(), 402, {"crawler-price": "USD 0.01"})
        answer = await desk.not_yet()
        assert (answer.bound_by, answer.refusal) == (Bound.REFUSED, Refusal(times, "402, crawler-price: USD 0.01"))
        assert desk.pacer.hosts()[HOST].refusal == answer.refusal
        assert answer.not_before - desk.clock.wall() == pytest.approx(closed_s, abs=0.001)
        await desk.jump(closed_s + 0.01)
    [first, *_] = [event for event in desk.events if isinstance(event, HostClosed)]
    assert (first.bound_by, first.refusal) == (Bound.REFUSED, Refusal(1, "402, crawler-price: USD 0.01"))


async def test_a_quota_is_spread_over_its_time_and_closes_the_host_once_it_is_spent(desk: Desk) -> None:
    for left, wait_s in ((3, 3.0), (0, 9.0)):
        await desk.end(await desk.take(), 200, {"ratelimit": f'"a";r={left};t=9'})
        assert await desk.refused() == (wait_s, Bound.RATE_LIMIT)
        await desk.pass_time(wait_s + 0.01)


async def test_a_429_of_one_request_binds_what_runs_beside_it(wide: Desk) -> None:
    first = await wide.take()
    await wide.pass_time(1.1)
    second = await wide.take()
    await wide.end(first, 429, {"retry-after": "90"})
    await wide.end(second, 200)
    assert await wide.refused() == (90.0, Bound.RETRY_AFTER)


async def test_closed_until_reports_the_closing_and_only_that(desk: Desk) -> None:
    assert await desk.pacer.closed_until(HOST) is None
    await desk.visit(rules("Crawl-delay: 100"))
    assert await desk.pacer.closed_until(HOST) is None
    assert desk.pacer.closings() == {}
    for seconds in (30.0, 20.0):
        await desk.close_host(MIDNIGHT + seconds, Bound.BACKOFF)
        assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 30.0
        assert desk.pacer.closings() == {Bound.BACKOFF: 1}
    await desk.pass_time(30.001)
    assert await desk.pacer.closed_until(HOST) is None
    assert desk.pacer.closings() == {}


async def test_a_fetch_counts_where_no_request_is_remembered(desk: Desk) -> None:
    await desk.fetch()
    assert await desk.refused(rules("Crawl-delay: 5")) == (5.0, Bound.CRAWL_DELAY)
    await desk.pass_time(5.1)
    await desk.visit()
    await desk.pass_time(700.0)
    await desk.fetch()
    assert await desk.refused(rules("Crawl-delay: 5")) == (5.0, Bound.CRAWL_DELAY)


async def test_a_fetch_restarts_no_interval(desk: Desk) -> None:
    await desk.visit(rules("Crawl-delay: 5"))
    waiting = desk.ask("first")
    await desk.pass_time(3.0)
    await desk.fetch()
    await desk.starts_in(2.0, waiting)


async def test_a_fetch_that_opened_a_site_restarts_the_interval(desk: Desk) -> None:
    for _ in range(3):
        await desk.visit(rules())
        await desk.pass_time(0.5)
        await desk.fetch(opened=True)
        assert await desk.refused() == (1.0, Bound.FLOOR)
        await desk.pass_time(1.1)


async def test_a_fetch_restarts_no_interval_that_counts_from_an_earlier_fetch(desk: Desk) -> None:
    await desk.fetch(opened=True)
    waiting = desk.ask("first", rules("Crawl-delay: 1000"))
    await desk.pass_time(0.1)
    desk.clock.advance(999.0)
    await desk.fetch()
    await desk.pass_time(1.0)
    assert waiting.done()


async def test_fetches_of_a_host_start_one_at_a_time_and_after_the_first_two_spaced(desk: Desk) -> None:
    started: list[float] = []

    async def fetch() -> None:
        permit = await desk.start_fetch()
        started.append(desk.clock.monotonic())
        await desk.clock.sleep(0.5)
        permit.end(200)

    fetches = [asyncio.ensure_future(fetch()) for _ in range(4)]
    other = asyncio.ensure_future(desk.start_fetch("other.example"))
    await desk.pass_time(0.1)
    assert other.done()
    await desk.pass_time(10.0)
    await asyncio.gather(*fetches)
    assert started == pytest.approx([0.0, 0.5, 2.0, 3.5], abs=0.1)


async def test_a_fetch_that_was_given_back_costs_nothing(desk: Desk) -> None:
    for _ in range(5):
        (await desk.start_fetch()).give_back()
        await settle()
    await desk.give_back(await desk.take())


async def test_cancelled_fetches_cost_no_other_its_place(desk: Desk) -> None:
    first = await desk.start_fetch()
    fetches = [asyncio.ensure_future(desk.start_fetch()) for _ in range(4)]
    await settle()
    fetches[1].cancel()
    first.end(200)
    fetches[0].cancel()
    await desk.pass_time(0.1)
    assert [fetch.done() for fetch in fetches] == [True, True, True, False]
    fetches[2].result().give_back()
    await desk.pass_time(0.1)
    (await fetches[3]).end(200)


# Several agents


async def test_each_agent_keeps_its_own_interval(desk: Desk) -> None:
    slow, quick = rules("Crawl-delay: 10"), rules()
    await desk.visit(quick, agent="Quick")
    assert await desk.refused(slow, agent="Slow") == (10.0, Bound.CRAWL_DELAY)
    assert await desk.refused(quick, agent="Quick") == (1.0, Bound.FLOOR)
    await desk.pass_time(1.01)
    await desk.visit(quick, agent="Quick")
    await desk.pass_time(9.9)
    assert (await desk.refused(slow, agent="Slow"))[1] is Bound.CRAWL_DELAY
    await desk.pass_time(0.11)
    await desk.visit(slow, agent="Slow")
    assert await desk.refused(quick, agent="Quick") == (1.0, Bound.FLOOR)


async def test_a_quick_agent_waits_for_a_slow_head_but_not_for_its_interval(desk: Desk) -> None:
    await desk.visit()
    slow = desk.ask("slow", rules("Crawl-delay: 10"), agent="Slow")
    await settle()
    quick = desk.ask("quick", rules(), agent="Quick")
    await settle()
    assert await desk.refused(rules(), agent="Quick") == (10.0, Bound.CRAWL_DELAY)
    await desk.pass_time(10.1)
    assert (slow.done(), quick.done()) == (True, False)
    await desk.end(slow.result(), 200)
    await desk.pass_time(1.1)
    assert quick.done()


async def test_watchers_of_each_agent_are_called_at_its_own_time(desk: Desk) -> None:
    await desk.visit()
    quick, slow = desk.watch(rules(), "Quick"), desk.watch(rules("Crawl-delay: 10"), "Slow")
    await desk.pass_time(12.0)
    assert quick == [pytest.approx(1.0, abs=0.02)]
    assert slow == [pytest.approx(10.0, abs=0.02)]


# What is learnt while a host is idle


async def test_a_pace_learnt_while_a_host_was_idle_binds_the_next_request(desk: Desk) -> None:
    for idle_s, delay_s in ((5.0, 30), (320.0, 600), (590.0, 600)):
        host = f"host{idle_s}.example"
        await desk.visit(rules("Crawl-delay: 1"), host)
        await desk.pass_time(2.0)
        desk.clock.advance(idle_s - 2.0)
        wait_s, bound_by = await desk.refused(rules(f"Crawl-delay: {delay_s}"), host)
        assert wait_s == pytest.approx(delay_s - idle_s, abs=0.01)
        assert bound_by is Bound.CRAWL_DELAY


async def test_options_of_one_host_bind_its_waiters_and_no_other_host(desk: Desk) -> None:
    for host in (HOST, "other.example"):
        await desk.visit(host=host)
    waiting = desk.ask("first")
    await settle()
    await desk.limit(10.0)
    assert await desk.refused() == (10.0, Bound.FLOOR)
    assert await desk.refused(host="other.example") == (1.0, Bound.FLOOR)
    await desk.limit(7.0, host="new.example")
    await desk.visit(host="new.example")
    assert await desk.refused(host="new.example") == (7.0, Bound.FLOOR)
    await desk.pass_time(5.0)
    assert not waiting.done()
    await desk.limit(None)
    await desk.pass_time(0.1)
    assert waiting.done()


# Times of day


async def test_visit_time_opens_the_queue(desk: Desk) -> None:
    night = rules("Visit-time: 0100-0130")
    assert await desk.refused(night) == (3600.0, Bound.VISIT_TIME)
    waiting = desk.ask("first", night)
    await desk.jump(3599.9)
    assert not waiting.done()
    await desk.pass_time(0.2)
    await waiting
    assert at("0100") <= MIDNIGHT + desk.granted_at("first") < at("0100", 0.1)


async def test_visit_time_past_midnight(desk: Desk) -> None:
    night = rules("Visit-time: 2300-0059")
    await desk.visit(night)
    desk.clock.advance(3600.0 - 0.5)
    await desk.visit(night)
    # The interval ends when the window has been closed for half a second.
    assert await desk.refused(night) == (22 * 3600.0 + 0.5, Bound.VISIT_TIME)


async def test_windows_that_never_meet_permit_no_request(desk: Desk) -> None:
    await desk.now(rules("Visit-time: 0100-0200"))
    for _ in range(10):
        request = TurnRequest(HOST, "http://example.com", AGENT, rules("Visit-time: 0300-0400"))
        (answer,) = await desk.pacer.try_starts([request])
        assert isinstance(answer, NotYet)
        assert answer.not_before > desk.clock.wall()
        desk.clock.advance(answer.not_before - desk.clock.wall())


async def test_a_rate_binds_inside_its_window_and_no_longer(desk: Desk) -> None:
    hourly = rules("Request-rate: 1/1d 0100-0159")
    desk.clock.advance(3600.0)
    await desk.visit(hourly)
    assert await desk.refused(hourly) == (3600.0, Bound.REQUEST_RATE)
    waiting = desk.ask("first", hourly)
    await desk.jump(3599.0)
    assert not waiting.done()
    await desk.pass_time(1.1)
    assert waiting.done()


# Leaving


async def test_a_permit_given_back_costs_nothing(desk: Desk) -> None:
    await desk.give_back(await desk.take())
    await desk.visit()
    await desk.pass_time(1.1)
    await desk.give_back(await desk.take())
    await desk.give_back(await desk.take())
    assert desk.pacer.in_flight == 0


async def test_a_permit_given_back_goes_to_the_next_waiter(desk: Desk) -> None:
    permit = await desk.take()
    waiting = desk.ask("next")
    await desk.pass_time(5.0)
    await desk.give_back(permit)
    await desk.pass_time(0.05)
    assert waiting.done()


async def test_giving_back_a_permit_undoes_nothing_that_came_later(wide: Desk) -> None:
    first = await wide.take()
    await wide.fetch(opened=True)  # at the same instant
    await wide.give_back(first)
    assert await wide.refused() == (1.0, Bound.FLOOR)


async def test_giving_back_among_several_frees_its_place(wide: Desk) -> None:
    await wide.give_back(await wide.take())
    await wide.take()
    assert await wide.refused() == (1.0, Bound.FLOOR)


async def test_a_cancelled_waiter_costs_no_other_its_slot(desk: Desk) -> None:
    for cancelled in range(3):
        host = f"host{cancelled}.example"
        await desk.visit(host=host)
        waiting = [desk.ask(str(number), host=host) for number in range(3)]
        await desk.pass_time(0.5)
        waiting.pop(cancelled).cancel()
        await desk.pass_time(0.6)
        assert [task.done() for task in waiting] == [True, False]
        await desk.end(waiting[0].result(), 200)
        await desk.pass_time(1.1)
        assert waiting[1].done()
        assert desk.pacer.waiting == 0


async def test_a_waiter_cancelled_after_it_was_woken_costs_no_other_its_slot(desk: Desk) -> None:
    await desk.visit()
    first, second = desk.ask("first"), desk.ask("second")
    await settle()
    desk.clock.advance(1.5)  # wakes the first, which has not run yet
    first.cancel()
    await desk.pass_time(0.05)
    assert first.cancelled()
    assert second.done()


async def test_all_waiters_cancelled_at_once_leave_nothing(desk: Desk) -> None:
    await desk.visit()
    waiting = [desk.ask(str(number)) for number in range(10)]
    await settle()
    desk.clock.advance(1.5)
    for task in waiting:
        task.cancel()
    await settle()
    assert desk.pacer.waiting == 0
    await desk.take()


async def test_too_far_is_raised_at_once_where_the_wait_is_known(desk: Desk) -> None:
    permit = await desk.pacer.start(desk.request(), 0.0)  # there is nothing to wait for
    await desk.end(permit, 429, {"retry-after": "600"})
    for max_wait_s in (0.0, 10.0):
        with pytest.raises(TooFar, match=f"within {max_wait_s:g} s") as raised:
            await desk.pacer.start(desk.request(), max_wait_s)
        not_yet = raised.value.not_yet
        assert (not_yet.not_before, not_yet.bound_by) == (MIDNIGHT + 600.0, Bound.RETRY_AFTER)
    assert desk.clock.monotonic() == 0.0
    assert desk.pacer.waiting == 0


async def test_too_far_is_raised_after_waiting_where_the_wait_was_unknown(desk: Desk) -> None:
    permit = await desk.take()
    patient, hurried = desk.ask("patient"), desk.ask("hurried", max_wait_s=5.0)
    with pytest.raises(TooFar) as raised:
        await desk.starts_in(5.0, hurried)
    assert raised.value.not_yet.bound_by is Bound.IN_FLIGHT
    await desk.end(permit, 404)
    await desk.pass_time(10.0)
    assert patient.done()


async def test_too_far_is_raised_in_a_waiter_that_was_woken_in_vain(near: Desk) -> None:
    await near.visit()
    hurried = near.ask("hurried", max_wait_s=1.5)
    await settle()
    near.clock.advance(1.5)  # wakes it for its slot, then for its time
    near.pacer.close_host(HOST, near.clock.wall() + 600.0, Bound.BACKOFF)
    await settle()
    with pytest.raises(TooFar):
        await asyncio.wait_for(hurried, 1)


async def test_a_waiter_whose_time_is_up_does_not_overtake_the_head(desk: Desk) -> None:
    await desk.visit()
    head, hurried = desk.ask("head"), desk.ask("hurried", max_wait_s=1.2)
    await desk.jump(1.5)
    assert head.done()
    with pytest.raises(TooFar):
        await hurried


# The end


async def test_closing_raises_in_all_waiters(desk: Desk) -> None:
    permit = await desk.take()
    for host in (HOST, "other.example"):
        await desk.now(host=host)
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
    await desk.end(permit, 200)  # what is under way may end
    await desk.pacer.aclose()


async def test_closing_raises_in_a_waiter_that_was_woken_already(desk: Desk) -> None:
    await desk.visit()
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
        await desk.pacer.start(desk.request())
    with pytest.raises(ClosedError):
        await desk.now()
    with pytest.raises(ClosedError):
        desk.watch()


async def test_calls_about_a_host_after_closing_are_harmless(desk: Desk) -> None:
    permits = [await desk.take(), await desk.take(host="other.example")]
    fetch = await desk.start_fetch()
    await desk.pacer.aclose()
    await desk.end(permits[0], 429, {"retry-after": "5"})
    await desk.give_back(permits[1])
    fetch.end(429)
    fetch.opened()
    await desk.close_host(MIDNIGHT + 60, Bound.BACKOFF)
    assert desk.pacer.in_flight == 0


async def test_a_waiter_cancelled_during_the_closing_ends_quietly(desk: Desk) -> None:
    await desk.visit()
    waiting = desk.ask("first", max_wait_s=50.0)
    await settle()
    await desk.pacer.aclose()
    with pytest.raises(asyncio.CancelledError if waiting.cancel() else ClosedError):
        await waiting
    assert desk.pacer.waiting == 0


# While a request is under way


async def test_a_refusal_holds_back_the_others_before_its_request_has_ended(wide: Desk) -> None:
    refused = await wide.take()
    waiting = wide.ask("second")
    await wide.pass_time(0.5)
    refused.observe(429, {"retry-after": "20"})
    await wide.starts_in(20.0, waiting)
    assert wide.granted_at("second") == pytest.approx(20.5, abs=0.02)


async def test_a_host_is_as_slow_as_its_headers_not_as_its_body(desk: Desk) -> None:
    permit = await desk.take()
    await desk.pass_time(2.0)
    permit.observe(200, {})
    await desk.pass_time(50.0)
    await desk.end(permit)
    assert await desk.refused() == (2.0, Bound.ADAPTIVE)


async def test_one_answer_observed_twice_is_one_refusal(desk: Desk) -> None:
    permit = await desk.take()
    permit.observe(429, {})
    permit.observe(429, {})
    await desk.end(permit, 429)
    assert await desk.pacer.closed_until(HOST) == MIDNIGHT + 10.0


async def test_an_origin_that_drops_its_crawl_delay_delays_no_waiter(desk: Desk) -> None:
    await desk.visit(rules("Crawl-delay: 20"))
    waiting = desk.ask("second", rules("Crawl-delay: 20"))
    await desk.pass_time(2.0)
    assert not waiting.done()
    await desk.refused()  # nothing is known: nothing changes
    await desk.pass_time(0.1)
    assert not waiting.done()
    await desk.refused(rules())
    await desk.pass_time(0.1)
    assert waiting.done()


# Many at once


async def test_permits_of_many_hosts_come_at_once(desk: Desk) -> None:
    hosts = [f"{name}.example" for name in "abcd"]
    for host in hosts:
        await desk.visit(host=host)
    await desk.pass_time(1.1)
    await desk.visit(host="b.example")
    a, b, c, d = await desk.pacer.try_starts([desk.request(host=host) for host in hosts])
    assert isinstance(b, NotYet)
    assert b.not_before == pytest.approx(desk.clock.wall() + 1.0, abs=0.01)
    for permit in (a, c, d):
        assert not isinstance(permit, NotYet)
        await desk.end(permit, 200)
    assert desk.pacer.in_flight == 0


async def test_permits_of_one_host_are_no_more_than_may_be_under_way(desk: Desk) -> None:
    await desk.visit()
    await desk.limit(0.0, 3)
    answers = await desk.pacer.try_starts([desk.request()] * 5)
    assert [isinstance(answer, NotYet) for answer in answers] == [False, False, False, True, True]
    assert {answer.bound_by for answer in answers if isinstance(answer, NotYet)} == {Bound.IN_FLIGHT}
    permit = answers[0]
    assert not isinstance(permit, NotYet)
    await desk.end(permit, 200)
    for _ in range(5):
        await desk.visit()


async def _cancel_after(steps: int, taking: "asyncio.Future[Sequence[Permit | NotYet]]") -> None:
    """Cancel the caller after steps of the event loop; give the permits back if it has ended before."""
    for _ in range(steps):
        await asyncio.sleep(0)
    taking.cancel()
    with suppress(asyncio.CancelledError):
        give_back_all(await taking)


async def test_permits_of_a_cancelled_caller_are_given_back(desk: Desk) -> None:
    for steps in range(6):
        hosts = [f"{name}{steps}.example" for name in "abc"]
        for host in hosts:
            await desk.visit(host=host)
        await desk.pass_time(1.1)
        requests = [desk.request(host=host) for host in hosts]
        await _cancel_after(steps, asyncio.ensure_future(desk.pacer.try_starts(requests)))
        await settle()
        assert desk.pacer.in_flight == 0
        for host in hosts:
            await desk.give_back(await desk.take(host=host))


# Being called


async def test_watchers_are_called_one_after_the_other_while_no_permit_is_taken(desk: Desk) -> None:
    await desk.visit()
    called: list[int] = []
    for number in range(3):
        desk.pacer.when_ready(desk.request(), partial(called.append, number))
    await desk.pass_time(1.01)
    assert called == [0], "the others wait while the first may come for its permit"
    await desk.pass_time(0.2)
    assert called == [0, 1, 2]


async def test_a_watcher_that_takes_the_permit_keeps_the_others_from_being_called(desk: Desk) -> None:
    await desk.visit()
    called: list[Permit] = []

    def take() -> None:
        permit = desk.pacer.try_start(desk.request())
        assert not isinstance(permit, NotYet)
        called.append(permit)

    for _ in range(3):
        desk.pacer.when_ready(desk.request(), take)
    await desk.pass_time(5.0)
    assert len(called) == 1
    await desk.end(called[0], 200)
    await desk.pass_time(4.1)  # four seconds of request are an adaptive delay of as many
    assert len(called) == 2
    await desk.end(called[1])
    await desk.pass_time(20.0)
    assert len(called) == 3


async def test_a_watcher_that_was_called_takes_no_permit_for_a_slower_file_of_its_host(desk: Desk) -> None:
    await desk.visit()
    called = desk.watch()
    while not called:
        await desk.pass_time(0.01)
    await desk.refused(rules("Crawl-delay: 30"))
    await desk.pass_time(0.1)  # what was kept for the watcher lapses
    wait_s, bound_by = await desk.refused(rules("Crawl-delay: 30"))
    assert (round(wait_s), bound_by) == (29, Bound.CRAWL_DELAY)


async def test_waiters_and_watchers_stand_in_one_line(desk: Desk) -> None:
    permit = await desk.take()
    order: list[str] = []

    def visit(name: str, taken: Permit | NotYet) -> None:
        assert not isinstance(taken, NotYet)
        order.append(name)
        taken.observe(200, {})
        taken.end()

    async def start(name: str) -> None:
        visit(name, await desk.pacer.start(desk.request()))

    starts = []
    for name in ("first", "second"):
        starts.append(asyncio.create_task(start(name)))
        await settle()
        desk.pacer.when_ready(desk.request(), lambda: visit("watcher", desk.pacer.try_start(desk.request())))
        await settle()
    await desk.end(permit, 200)
    await desk.pass_time(4.5)
    assert order == ["first", "watcher", "second", "watcher"]
    await asyncio.gather(*starts)


async def test_a_watcher_that_was_called_keeps_its_place_for_a_moment(near: Desk) -> None:
    await near.visit()
    called = near.watch()
    await settle()
    waiting = near.ask("second")
    await near.jump(1.01)
    assert called
    await near.pass_time(0.02)
    assert not waiting.done()
    permit = await near.take()
    assert not waiting.done()
    await near.end(permit, 200)
    await near.pass_time(1.02)
    assert waiting.done()


async def test_a_watcher_that_lets_its_place_pass_delays_nobody(near: Desk) -> None:
    await near.visit()
    called = near.watch()
    await near.pass_time(1.02)
    assert called
    for waited_s in (0.02, 3.0):
        await near.pass_time(waited_s)
        waiting = near.ask("second")
        await near.pass_time(0.08 if waited_s < 1.0 else 0.02)
        assert waiting.done()
        await near.end(waiting.result(), 200)
        called = near.watch()
        await near.pass_time(1.02)
        assert called


async def test_a_permit_that_was_given_back_keeps_its_place(desk: Desk) -> None:
    for status in (200, 503):
        host = f"host{status}.example"
        await desk.visit(host=host)
        asked = []
        for name in ("first", "second", "third"):
            asked.append(desk.ask(name, host=host))
            await settle()
        await desk.pass_time(1.02)
        permit = await asked[0]
        await desk.give_back(permit)
        again = asyncio.create_task(desk.pacer.start(desk.request(host=host), None, permit))
        await desk.pass_time(0.05)
        # It comes back a moment too late, or not: in no case does it wait behind the third.
        if not again.done():
            await desk.end(asked[1].result(), status)
            await desk.pass_time(21.0)
        assert (again.done(), asked[2].done()) == (True, False)


async def test_watchers_are_called_at_the_close(desk: Desk) -> None:
    await desk.take()
    called: list[int] = []
    for number in range(2):
        desk.pacer.when_ready(desk.request(), partial(called.append, number))
    await desk.pacer.aclose()
    assert called == [0, 1]


# What is known of hosts


async def test_hosts_name_the_pace_the_holder_and_the_waiting(desk: Desk) -> None:
    assert dict(desk.pacer.hosts()) == {}
    holder = desk.ask("first", rules("Crawl-delay: 7"), url=FIRST)
    await settle()
    waiting = [desk.ask(name) for name in ("second", "third")]
    await desk.pass_time(3.0)
    wall = desk.clock.wall()
    known = desk.pacer.hosts()[HOST]
    assert known.not_before == pytest.approx(wall + 4.0)
    assert known.held_s == pytest.approx(3.0)
    plain = replace(known, not_before=0.0, held_s=3.0)
    assert plain == HostStatus(HOST, 7.0, Bound.CRAWL_DELAY, 0.0, None, None, 2, 1, FIRST, 3.0)
    await desk.end(holder.result(), 200)
    known = desk.pacer.hosts()[HOST]
    assert (known.waiting, known.in_flight, known.held_by, known.held_s) == (2, 0, "", 0.0)
    assert known.not_before == pytest.approx(wall + 7.0)
    for task in waiting:
        task.cancel()
    await settle()


async def test_hosts_name_until_when_and_by_what_a_host_is_closed(desk: Desk) -> None:
    await desk.close_host(desk.clock.wall() + 40.0, Bound.RETRY_AFTER)
    known = desk.pacer.hosts()[HOST]
    assert (known.closed_until, known.closed_by) == (desk.clock.wall() + 40.0, Bound.RETRY_AFTER)
    assert known.not_before == desk.clock.wall() + 40.0
    assert (known.interval_s, known.bound_by) == (1.0, Bound.FLOOR)
    await desk.visit(host="other.example")
    assert desk.pacer.hosts()["other.example"].closed_until is None


async def test_hosts_give_the_pace_of_the_slowest_agent_and_change_nothing(desk: Desk) -> None:
    await desk.visit(rules("Crawl-delay: 5"), agent="Slow")
    waiting = desk.ask("quick", rules("Crawl-delay: 2"), agent="Quick")
    for _ in range(210):
        assert desk.pacer.hosts()[HOST].interval_s == 5.0
        await desk.pass_time(0.01)
    assert desk.granted_at("quick") == pytest.approx(2.0, abs=0.02)
    await desk.end(waiting.result(), 200)
    known = desk.pacer.hosts()[HOST]
    assert known.interval_s == 5.0
    assert known.not_before == pytest.approx(desk.clock.wall() + 5.0)


async def test_what_waits_for_a_full_host_learns_which_request_has_to_end(desk: Desk) -> None:
    holder = await desk.ask("first", url=FIRST)
    assert (await desk.not_yet()).held_by == FIRST
    waiting = desk.ask("second", max_wait_s=5.0)
    await desk.pass_time(5.1)
    with pytest.raises(TooFar, match=r"by in-flight, held by https://example[.]com/1"):
        await waiting
    await desk.end(holder, 200)
    assert (await desk.not_yet()).held_by == ""


async def test_with_several_at_once_the_oldest_request_has_to_end(desk: Desk) -> None:
    await desk.limit(0.0, 2)
    held = [(url, await desk.ask(url, url=url)) for url in (FIRST, SECOND)]
    for url, permit in held:
        assert (await desk.not_yet()).held_by == url
        await desk.end(permit, 200)
        await desk.take()


# A turn that is held for too long


async def test_a_turn_expires_and_its_host_goes_on(desk: Desk) -> None:
    hung = await desk.ask("hung", url=FIRST)
    waiting = desk.ask("second")
    await desk.jump(599.9)
    assert (hung.under_way, waiting.done()) == (True, False)
    await desk.pass_time(0.2)
    assert (hung.under_way, waiting.done()) == (False, False)
    assert TurnExpired(HOST, FIRST, 600.0) in desk.published()
    await desk.pass_time(1.0)
    assert (await waiting).waited
    assert desk.granted_at("second") == pytest.approx(601.0, abs=0.02), "the interval counts from the expiry"


async def test_what_is_called_after_the_expiry_has_no_effect(desk: Desk) -> None:
    hung = await desk.take()
    await desk.jump(602.0)
    second = await desk.take()
    assert desk.pacer.in_flight == 1
    await desk.end(hung, 429)
    await desk.give_back(hung)
    assert second.under_way
    assert desk.pacer.in_flight == 1
    assert await desk.refused() == (0.0, Bound.IN_FLIGHT)
    await desk.end(second, 200)
    assert await desk.refused() == (1.0, Bound.FLOOR)


async def test_a_watcher_is_called_when_the_turn_before_expires(desk: Desk) -> None:
    await desk.take()
    called = desk.watch()
    await desk.jump(599.0)
    await desk.pass_time(1.9)
    assert not called
    await desk.pass_time(0.3)
    assert called == [pytest.approx(601.0, abs=0.02)]


async def test_turns_expire_one_by_one_where_several_may_be_held(wide: Desk) -> None:
    hung = []
    for _ in range(3):
        hung.append(await wide.take())
        await wide.pass_time(2.0)
    await wide.end(hung[1], 200)
    await wide.pass_time(2.1)
    await wide.take()
    await wide.jump(594.5)
    assert [permit.under_way for permit in hung] == [False, False, True]
    assert wide.pacer.in_flight == 2
    await wide.jump(4.0)
    assert wide.pacer.in_flight == 1
    await wide.take()
    assert len([event for event in wide.events if isinstance(event, TurnExpired)]) == 2


async def test_how_long_a_turn_may_be_held_is_an_option(make: Make) -> None:
    for max_turn_s, held_s in ((5.0, 5.1), (float("inf"), 1e5)):
        async with aclosing(Desk(make, PacingOptions(max_turn_s=max_turn_s))) as desk:
            permit = await desk.take()
            await desk.jump(held_s)
            assert permit.under_way == (held_s > 6.0)


# What is published


async def test_a_host_that_closes_and_opens_is_published_once(desk: Desk) -> None:
    await desk.end(await desk.take(), 503, {"retry-after": "30"})
    closed = HostClosed(HOST, desk.clock.wall() + 30.0, Bound.RETRY_AFTER, 30.0, "", 503)
    assert desk.events == [closed]
    for earlier_s in (30.0, 29.9, 3.0):
        await desk.close_host(MIDNIGHT + earlier_s, Bound.RETRY_AFTER)
    await desk.refused()
    assert desk.events == [closed]
    await desk.close_host(MIDNIGHT + 50.0, Bound.RATE_LIMIT)
    assert desk.events[1:] == [HostClosed(HOST, MIDNIGHT + 50.0, Bound.RATE_LIMIT, 50.0)]
    await desk.jump(51.0)
    assert len(desk.events) == 2
    await desk.visit()
    await desk.pass_time(1.1)
    await desk.visit()
    assert desk.events[2:] == [HostOpened(HOST)]


async def test_a_host_that_a_robots_txt_closes_is_published(desk: Desk) -> None:
    await desk.fetch(status=429)
    assert desk.events == [HostClosed(HOST, MIDNIGHT + 60.0, Bound.BACKOFF, 60.0, f"https://{HOST}/robots.txt", 429)]
    await desk.close_host(MIDNIGHT + 60.3, Bound.RETRY_AFTER)
    assert len(desk.events) == 1, "as long as that it was closed already"


async def test_requests_that_were_refused_together_close_a_host_once(wide: Desk) -> None:
    permits = [await wide.take()]
    await wide.pass_time(1.1)
    permits.append(await wide.take())
    for permit in permits:
        await wide.end(permit, 429)
        await wide.pass_time(0.1)
    assert [type(event) for event in wide.events] == [HostClosed]


async def test_a_wait_that_will_be_long_is_published_when_it_begins(desk: Desk) -> None:
    slow = rules("Crawl-delay: 90")
    await desk.visit(slow)
    for _ in range(3):
        waiting = desk.ask("next", slow, url=SECOND)
        await settle()
        assert desk.published() == [LongWait(HOST, SECOND, 90.0, Bound.CRAWL_DELAY, "")], "once a cause"
        await desk.jump(90.01)
        await desk.end(await waiting, 200)


async def test_a_wait_for_a_request_that_hangs_is_published_after_five_seconds(desk: Desk) -> None:
    for hung_s in (1.0, 200.0):
        host = f"host{hung_s}.example"
        hung = desk.ask("hung", host=host, url=FIRST)
        await desk.jump(hung_s)
        for url in (SECOND, "https://example.com/3"):
            desk.ask(url, host=host, url=url)
        await desk.jump(4.9)
        assert not desk.events
        await desk.jump(0.2)
        assert desk.published() == [LongWait(host, SECOND, 5.0, Bound.IN_FLIGHT, FIRST)]
        await desk.jump(300.0)
        assert len(desk.events) == 1
        await desk.end(hung.result(), 200)
        desk.events.clear()


async def test_a_wait_that_a_closing_makes_long_is_published_for_the_head(desk: Desk) -> None:
    permit = await desk.take()
    for url in (FIRST, SECOND):
        desk.ask(url, url=url)
        await settle()
    await desk.end(permit, 503, {"retry-after": "600"})
    assert [event for event in desk.published() if isinstance(event, LongWait)] == [
        LongWait(HOST, FIRST, 600.0, Bound.RETRY_AFTER, "")
    ]


async def test_a_wait_in_a_long_line_is_published_once(desk: Desk) -> None:
    async def crawl(number: int) -> Permit:
        permit = await desk.pacer.start(desk.request(url=f"https://example.com/{number}"))
        permit.observe(200, {})
        permit.end()
        return permit

    await desk.limit(10.0)
    desk.tasks += [asyncio.create_task(crawl(number)) for number in range(12)]
    for _ in range(12):
        await desk.jump(10.01)
    [event] = desk.events
    assert isinstance(event, LongWait)
    assert (event.url, event.bound_by) == ("https://example.com/6", Bound.QUEUE)
