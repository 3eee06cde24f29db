"""Everything that can happen to a queue, in any order: no URL lost or handed out twice, nobody early, nobody left."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from politesse import Bound, CacheOptions, ClosedError, Gatekeeper, NotYet, PacingOptions, Reason, Verdict
from politesse.origin import Origin
from politesse.queue import PoliteQueue, QueueClosed, QueuedTurn, QueueStatistics
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.examples import examples
from tests.support.pacing import Pacer, Permit, TurnRequest
from tests.support.tasks import settle

ORIGINS: Final = ("https://a.example", "http://a.example", "https://b.example", "https://c.example")
MAXSIZE: Final = 3
FLOOR_S: Final = 1.0
CLOSED_S: Final = 20.0
RETRY_AFTER_S: Final = 5.0
ANSWERS: Final[dict[str, str | int]] = {
    "rules": "User-agent: *\nDisallow: /private\n",
    "slow": "User-agent: *\nDisallow: /private\nCrawl-delay: 3\n",
    "none": 404,
    "unreachable": 503,
    "busy": 429,
}
LONG_S: Final = 150.0  # more than closures, deferrals and intervals take together
EPSILON_S: Final = 1e-6
TRIP: Final = 3
"""Steps of the event loop that a message to a late pacer takes."""


@dataclass(order=True)
class Put:
    """What was put and is not done; ordered as it has to be handed out within its origin."""

    priority: int
    number: int
    origin: str = field(compare=False)
    url: str = field(compare=False)
    # Set to end the block: the status to observe, None for none.
    ended: asyncio.Future[int | None] = field(compare=False)

    @property
    def host(self) -> str:
        return Origin.of(self.url).pacing_host


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.faults: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.clock = ManualClock()
        self.fetcher = ScriptedFetcher()
        pacing = PacingOptions(
            min_delay_s=FLOOR_S,
            adaptive_factor=0.0,
            backoff_min_s=CLOSED_S,
            backoff_max_s=CLOSED_S,
            max_turn_s=inf,  # the model holds turns for as long as it likes
        )
        cache = CacheOptions(retry_min_s=10.0, retry_max_s=10.0)
        self.gate = Gatekeeper(
            "ExampleBot/1.0 (+https://example.com/bot)",
            fetcher=self.fetcher,
            clock=self.clock,
            pacing=pacing,
            cache=cache,
        )
        self.queue: PoliteQueue[Put] = PoliteQueue(
            self.gate, maxsize=MAXSIZE, on_disallowed=self.refused, max_unreachable_s=25.0, max_wait_s=25.0
        )
        self.puts = 0
        self.queued: dict[int, Put] = {}
        self.under_way: dict[str, Put] = {}
        self.refusals = 0
        self.given_up = 0
        self.granted_turns = 0
        self.emptied = 0  # how often nothing was left to be done
        self.ended_mono: dict[str, float] = {}
        self.closed_mono: dict[str, float] = {}
        self.workers: dict[asyncio.Task[None], Put | None] = {}
        self.putters: list[asyncio.Task[None]] = []
        self.joiners: dict[asyncio.Task[None], int | None] = {}
        self.closed = False
        self.gate_closed = False

    # What the queue does, as the model sees it.

    def refused(self, item: Put | str, verdict: Verdict) -> None:
        assert isinstance(item, Put)
        assert verdict.url == item.url
        if verdict.reason is Reason.DISALLOW_RULE:
            assert "/private/" in item.url
        else:
            assert verdict.reason in {Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.WAIT_TOO_LONG}
            self.given_up += 1
        assert self.queued.pop(item.number, None) is item, "refused twice"  # before others: it waits for nothing
        self.refusals += 1
        self.see_if_empty()

    def granted(self, turn: QueuedTurn[Put]) -> Put:
        put = turn.item
        assert put is not None
        assert turn.url == put.url
        assert turn.verdict.allowed
        now_mono = self.clock.monotonic()
        assert put.host not in self.under_way, "two at once"
        assert now_mono >= self.ended_mono.get(put.host, float("-inf")) + FLOOR_S - EPSILON_S, "too early"
        assert now_mono >= self.closed_mono.get(put.host, float("-inf")) - EPSILON_S, "it asked to be left alone"
        self.leaves(put)
        self.granted_turns += 1
        self.under_way[put.host] = put
        return put

    def leaves(self, put: Put) -> None:
        assert self.queued.pop(put.number, None) is put, "handed out twice"
        host = self.queue._dispatcher.hosts.get(put.host)
        competing = set() if host is None else {key for key, queue in host.origins.items() if not queue.blocked}
        for other in self.queued.values():
            if other.origin == put.origin or (other.host == put.host and Origin.of(other.url) in competing):
                assert put < other, f"{other} was passed"

    def see_if_empty(self) -> None:
        if not self.queued and not self.under_way:
            self.emptied += 1

    # Who uses it.

    async def work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        put = None
        try:
            async with self.queue.turn() as turn:
                put = self.workers[task] = self.granted(turn)
                status = await put.ended
                now_mono = self.clock.monotonic()
                if status is not None:
                    headers = {"Retry-After": f"{RETRY_AFTER_S:.0f}"} if status == 429 else {}
                    turn.observe(status, headers)
                if status in {429, 503}:
                    closed_mono = now_mono + (RETRY_AFTER_S if status == 429 else CLOSED_S)
                    self.closed_mono[put.host] = max(self.closed_mono.get(put.host, 0.0), closed_mono)
        finally:
            if put is not None:
                del self.under_way[put.host]
                self.ended_mono[put.host] = self.clock.monotonic()
                self.see_if_empty()

    def make(self, origin: str, place: str, priority: int) -> Put:
        self.puts += 1
        url = f"{origin}/{place}/{self.puts}"
        return Put(priority, self.puts, origin, url, self.loop.create_future())

    def accept(self, put: Put) -> None:
        assert not self.closed
        # The order of those of one priority is that in which they came in, and not that in which they were put.
        self.puts += 1
        put.number = self.puts
        self.queued[put.number] = put

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return self.loop.create_task(work)

    @rule(
        origin=st.sampled_from(ORIGINS),
        place=st.sampled_from(("open", "open", "private")),
        priority=st.integers(-1, 1),
        waits=st.booleans(),
    )
    def put(self, origin: str, place: str, priority: int, waits: bool) -> None:  # noqa: FBT001 - drawn
        put = self.make(origin, place, priority)

        async def wait() -> None:
            await self.queue.put(put.url, put, priority)
            assert sum(other.host == put.host for other in self.queued.values()) < MAXSIZE
            self.accept(put)

        async def try_now() -> None:
            room = sum(other.host == put.host for other in self.queued.values()) < MAXSIZE
            try:
                self.queue.put_nowait(put.url, put, priority)
            except asyncio.QueueFull:
                assert not room
            else:
                assert room
                self.accept(put)

        if waits:
            self.putters.append(self.spawn(wait()))
            return
        try:
            self.loop.run_until_complete(try_now())
        except QueueClosed:
            assert self.closed
        except ClosedError:
            assert self.gate_closed

    @precondition(lambda self: sum(not task.done() for task in self.workers) < 8)
    @rule()
    def take(self) -> None:
        task = self.spawn(self.work())
        self.workers[task] = None

    @precondition(lambda self: self.under_way)
    @rule(pick=st.integers(0, 99), status=st.sampled_from((200, 200, 200, 404, 429, 503, None)))
    def finish(self, pick: int, status: int | None) -> None:
        put = list(self.under_way.values())[pick % len(self.under_way)]
        if not put.ended.done():
            put.ended.set_result(status)

    @precondition(lambda self: any(not task.done() for task in self.workers))
    @rule(pick=st.integers(0, 99))
    def cancel_worker(self, pick: int) -> None:
        """Cancel one that waits, was woken a moment ago, or holds a turn."""
        live = [task for task in self.workers if not task.done()]
        live[pick % len(live)].cancel()

    @precondition(lambda self: self.putters)
    @rule(pick=st.integers(0, 99))
    def cancel_putter(self, pick: int) -> None:
        self.putters[pick % len(self.putters)].cancel()

    @rule()
    def join(self) -> None:
        async def join() -> None:
            task = asyncio.current_task()
            assert task is not None
            self.joiners[task] = self.emptied if self.queued or self.under_way else None
            await self.queue.join()
            since = self.joiners[task]
            assert since is None or self.emptied > since, "join ended before all was done"

        task = self.spawn(join())
        self.joiners[task] = None

    @rule(origin=st.sampled_from(ORIGINS), answer=st.sampled_from(sorted(ANSWERS)))
    def answers(self, origin: str, answer: str) -> None:
        self.fetcher.answers[origin] = ANSWERS[answer]

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:  # noqa: FBT001 - drawn
        if held:
            self.fetcher.gate.clear()
        else:
            self.fetcher.gate.set()

    @rule(origin=st.sampled_from(ORIGINS))
    def forget(self, origin: str) -> None:
        try:
            self.loop.run_until_complete(self.gate.forget(origin))
        except ClosedError:
            assert self.gate_closed

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 1.0, 3.0, 12.0, 25.0, 90_000.0)))
    def jump(self, seconds: float) -> None:
        """Pass time without letting anybody run: whoever is woken is still to act."""
        self.loop.run_until_complete(self.advance(seconds))

    @rule(seconds=st.sampled_from((-30.0, 5.0, 300.0)))
    def set_wall(self, seconds: float) -> None:
        """Set the wall clock; what was said by it, as a closure, is then anybody's guess."""
        if self.closed_mono:
            return
        self.clock.set_wall(self.clock.wall() + seconds)

    @rule(rounds=st.integers(1, 3))
    def run(self, rounds: int) -> None:
        """Let tasks run, but not as far as they can."""
        self.loop.run_until_complete(settle(rounds))

    @rule()
    def come_to_rest(self) -> None:
        """Let everybody run: all numbers can be told."""
        self.rest()
        self.sweep()
        workers = [task for task, put in self.workers.items() if put is None]
        statistics = self.queue.statistics()
        assert statistics.waiting == (0 if self.gate_closed else len(workers))
        waiting_at = statistics.hosts - len({put.host for put in self.queued.values()})
        assert waiting_at == 0, "a host was not forgotten, or was forgotten with URLs"
        assert statistics.asking <= 2 + len(ORIGINS)
        for since in self.joiners.values():
            assert since == self.emptied, "join did not end"
            assert self.queued or self.under_way

    @precondition(lambda self: not self.gate_closed)
    @rule()
    def long_rest(self) -> None:
        """Pass so much time that every host must have become ready, if robots.txt was answered at all."""
        self.fetcher.gate.set()
        self.pass_time(LONG_S)
        self.come_to_rest()
        if any(put is None for put in self.workers.values()):
            idle = {put.host for put in self.queued.values()} - self.under_way.keys()
            assert not idle, f"nobody was sent to {idle}"

    @rule(pick=st.integers(0, 9))
    def close(self, pick: int) -> None:
        if pick:  # seldom: little happens after it
            return
        self.loop.run_until_complete(self.close_queue())

    async def close_queue(self) -> None:
        self.queue.close()
        self.closed = True

    @rule(pick=st.integers(0, 19))
    def aclose(self, pick: int) -> None:
        if pick:
            return
        self.close_gate()

    def close_gate(self) -> None:
        self.gate_closed = True
        self.loop.run_until_complete(self.gate.aclose())
        self.rest()
        self.sweep()
        assert all(put is not None for put in self.workers.values()), "a worker was not told"
        assert not self.putters, "somebody who puts was not told"
        assert not self.joiners, "join was not told"
        timers = [timer for _, _, timer in self.clock._timers if not timer.cancelled]
        assert not timers, "a timer was left behind"

    @invariant()
    def numbers_agree(self) -> None:
        assert not self.faults
        statistics = self.queue.statistics()
        assert self.queue.qsize() == statistics.queued == len(self.queued)
        assert statistics.under_way == len(self.under_way)
        assert statistics.refused == self.refusals
        assert statistics.given_up == self.given_up
        assert {url for url, _, _ in self.queue.left()} == {put.url for put in self.queued.values()}
        decided = self.gate.statistics().decisions
        assert decided == self.granted_turns + self.refusals, "one decision for each URL"
        assert statistics.waiting <= sum(not task.done() for task in self.workers)
        assert statistics.ready <= statistics.hosts

    def teardown(self) -> None:
        try:
            if not self.gate_closed:
                self.drain()
            for put in self.under_way.values():
                if not put.ended.done():
                    put.ended.set_result(200)
            self.rest()
            self.close_gate()
            assert not asyncio.all_tasks(self.loop), "a task was left behind"
            assert not self.faults
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.rest()
            self.loop.close()

    def drain(self) -> None:
        self.fetcher.gate.set()
        self.loop.run_until_complete(self.close_queue())
        for _ in range(2):
            self.take()
        self.joiners[self.spawn(self.queue.join())] = None
        for _ in range(20):
            self.pass_time(LONG_S / 3)
            self.sweep()
            for put in self.under_way.values():
                if not put.ended.done():
                    put.ended.set_result(200)
            for _ in range(2):
                self.take()
        self.rest()
        self.sweep()
        assert not self.queued, "something was left behind"
        assert not self.workers, "a worker was not told"
        assert not self.joiners, "join did not end"
        assert not self.putters
        refused, given_up = self.refusals, self.given_up
        assert self.queue.statistics() == QueueStatistics(0, 0, 0, 0, 0, 0, 0, refused, given_up)
        assert not [task for task in asyncio.all_tasks(self.loop) if task.get_name().startswith("queue:")]

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.rest()
            self.loop.run_until_complete(self.advance(5.0))
        self.rest()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)  # within the event loop, as timers are

    def rest(self) -> None:
        async def some() -> None:
            for _ in range(4):
                await settle()

        self.loop.run_until_complete(some())

    def sweep(self) -> None:
        """See how those ended who are done."""
        for task in [*self.workers, *self.putters, *self.joiners]:
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None:
                if isinstance(error, QueueClosed):
                    assert self.closed
                elif isinstance(error, ClosedError):
                    assert self.gate_closed
                else:
                    raise error
        self.workers = {task: put for task, put in self.workers.items() if not task.done()}
        self.putters = [task for task in self.putters if not task.done()]
        self.joiners = {task: since for task, since in self.joiners.items() if not task.done()}


class LatePacer:
    """A pacer that has to ask a server, as that of a fleet: only a host that was called gets a turn; late."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pacer, name)

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        def call() -> None:
            self._called.add(request.host)
            callback()

        def send(steps: int) -> None:
            if steps:
                asyncio.get_running_loop().call_soon(send, steps - 1)
            else:
                self._pacer.when_ready(request, call)

        send(TRIP)

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        if request.host not in self._called:
            return NotYet(0.0, Bound.FLEET)
        self._called.discard(request.host)
        return self._pacer.try_start(request)


class LateQueueMachine(QueueMachine):
    """The same with a pacer that asks a server: any event may come while a host waits for the answer."""

    def __init__(self) -> None:
        super().__init__()
        late: Any = LatePacer(self.gate.state.pacer)
        self.gate.pacer = self.gate.state.pacer = late


@pytest.mark.parametrize(
    ("runs", "steps"),
    [(examples(150), 40), pytest.param(10_000, 50, marks=[pytest.mark.weekly, pytest.mark.timeout(14_400)])],
)
def test_no_url_is_lost_and_no_turn_is_early(runs: int, steps: int) -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=runs, stateful_step_count=steps))


def test_no_url_is_lost_if_the_pacer_answers_late() -> None:
    run_state_machine_as_test(LateQueueMachine, settings=settings(max_examples=examples(50), stateful_step_count=40))
