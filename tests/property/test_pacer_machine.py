"""Everything that can happen to a pacer, in any order: no permit early, none lost, no waiter left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse._pacing.slot import Permit
from politesse.errors import ClosedError
from politesse.testing import ManualClock
from politesse.verdict import Bound, TooFar
from tests.support.examples import examples
from tests.unit.pacing.pacing import MIDNIGHT, rules, settle

if TYPE_CHECKING:
    from politesse.robots import RuleSet

# The second host takes two at once, its delay from start to start.
AT_ONCE: Final = {"one.example": 1, "two.example": 2}
FLOOR_S: Final = 1.0
DELAYS: Final[dict[float, RuleSet]] = {0.0: rules(), **{d: rules(f"Crawl-delay: {d}") for d in (0.5, 3.0, 7.0)}}
HOSTS = st.sampled_from(sorted(AT_ONCE))
TIMER_S: Final = 0.002
"""A timer may come so much late; it is not the interval that is."""
WALL_S: Final = 1e-4
"""Unix times are coarse in a float, and what is lost adds up in a clock that goes by small steps: closures go by it."""
MOST_WATCHERS: Final = 3
REST_S: Final = 2 * (MOST_WATCHERS + 1) * TIMER_S
"""Time for everybody who can act to act, watchers one after the other."""


class Host:
    """What the test knows of a host, worked out as simply as can be."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.delay_s = 0.0
        self.last_mono = float("-inf")
        # The same, but for what the pacer may have forgotten: how long ago an idle host was asked.
        self.known_mono = float("-inf")
        self.closed_mono = float("-inf")
        self.under_way: list[Permit] = []
        self.waiting: list[asyncio.Task[Permit]] = []
        self.befores: list[tuple[Permit, float]] = []
        self.line: list[object] = []  # those of the waiting who have run far enough to stand in it
        self.watching = 0

    def ready_mono(self) -> float:
        return self._ready_mono(self.last_mono)

    def least_mono(self) -> float:
        return self._ready_mono(self.known_mono)

    def asked(self, now_mono: float) -> None:
        self.last_mono = self.known_mono = now_mono

    def _ready_mono(self, last_mono: float) -> float:
        return max(last_mono + max(FLOOR_S, self.delay_s), self.closed_mono - WALL_S)


class PacerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(MIDNIGHT)
        # Without adaptive delay, jitter and doubling: what is left can be worked out by hand.
        options = PacingOptions(min_delay_s=FLOOR_S, adaptive_factor=0.0, backoff_min_s=20.0, backoff_max_s=20.0)
        self.pacer = LocalPacer(options, clock=self.clock, jitter=lambda: 0.0)
        self.hosts = {name: Host(at_once) for name, at_once in AT_ONCE.items()}
        for name, at_once in AT_ONCE.items():
            wide = PacingOptions(
                min_delay_s=FLOOR_S,
                adaptive_factor=0.0,
                backoff_min_s=20.0,
                backoff_max_s=20.0,
                max_concurrent=at_once,
            )
            self.pacer.set_options(name, wide)
        self.closed = False

    @rule(name=HOSTS, max_wait_s=st.sampled_from((None, None, None, 0.0, 2.0, 30.0)))
    def start(self, name: str, max_wait_s: float | None) -> None:
        host = self.hosts[name]

        async def start() -> Permit:
            me = object()
            host.line.append(me)
            try:
                permit = await self.pacer.start(name, name, DELAYS[host.delay_s], max_wait_s)
                assert host.line[0] is me, "somebody was passed"
                self.granted(host, permit)
                return permit
            finally:
                host.line.remove(me)

        host.waiting.append(self.loop.create_task(start()))

    @rule(name=HOSTS)
    def try_start(self, name: str) -> None:
        if self.closed:
            return
        host = self.hosts[name]
        nobody_waits = not host.line
        permit = self.pacer.try_start(name, name, DELAYS[host.delay_s])
        if isinstance(permit, Permit):
            assert nobody_waits
            self.granted(host, permit)
        else:
            full = len(host.under_way) == host.at_once
            assert not nobody_waits or full or self.clock.monotonic() < host.ready_mono()

    @precondition(lambda self: not self.closed)
    @rule(name=HOSTS)
    def watch(self, name: str) -> None:
        host = self.hosts[name]
        if host.watching == MOST_WATCHERS:
            return

        def called() -> None:
            host.watching -= 1
            free = len(host.under_way) < host.at_once
            ready = self.clock.monotonic() >= host.least_mono()
            assert self.closed or (free and ready and not host.line), "called in vain"

        async def watch() -> None:
            self.pacer.when_ready(name, name, DELAYS[host.delay_s], called)

        host.watching += 1
        self.loop.run_until_complete(watch())
        self._sweep()

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99), status=st.sampled_from((200, 429)))
    def observe(self, pick: int, status: int) -> None:
        """Say before the end what was answered: a refusal binds at once."""
        host, permit = self._pick(pick)
        host.under_way.append(permit)
        self.pacer.observe(permit, status)
        if status == 429:
            host.closed_mono = max(host.closed_mono, self.clock.monotonic() + 20.0)

    def granted(self, host: Host, permit: Permit) -> None:
        now = self.clock.monotonic()
        assert permit.started_mono == now
        assert now >= host.least_mono(), "a permit came early"
        assert len(host.under_way) < host.at_once
        host.under_way.append(permit)
        host.known_mono = float("-inf")
        if host.at_once > 1:
            host.befores.append((permit, host.last_mono))
            host.asked(now)

    @precondition(lambda self: any(host.waiting for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        waiting = [task for host in self.hosts.values() for task in host.waiting]
        waiting[pick % len(waiting)].cancel()

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99), status=st.sampled_from((200, 200, 200, 404, 429, 503, None)), after_s=st.booleans())
    def finish(self, pick: int, status: int | None, after_s: bool) -> None:  # noqa: FBT001 - drawn
        host, permit = self._pick(pick)
        headers = {"retry-after": "5"} if after_s else {}
        now = self.clock.monotonic()
        self.pacer.finish(permit, status, headers)
        if host.at_once == 1:
            host.asked(now)
        if status in {429, 503}:
            host.closed_mono = max(host.closed_mono, now + (5.0 if after_s else 20.0))

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99))
    def give_back(self, pick: int) -> None:
        host, permit = self._pick(pick)
        self.pacer.give_back(permit)
        if host.befores and host.befores[-1][0] is permit:
            host.last_mono = host.befores.pop()[1]  # nothing has come after it
            host.known_mono = float("-inf")

    @rule(name=HOSTS, delay_s=st.sampled_from(sorted(DELAYS)))
    def new_delay(self, name: str, delay_s: float) -> None:
        host = self.hosts[name]
        idle = not host.line and not host.under_way and self.clock.monotonic() >= host.ready_mono()
        if self.closed or idle:
            return  # when the last request to an idle host was may be forgotten, whatever is said of it later
        host.delay_s = delay_s
        permit = self.pacer.try_start(name, name, DELAYS[delay_s])
        if isinstance(permit, Permit):
            self.pacer.give_back(permit)

    @rule(name=HOSTS, for_s=st.sampled_from((-1.0, 0.0, 2.0, 10.0)))
    def close_host(self, name: str, for_s: float) -> None:
        host = self.hosts[name]
        self.pacer.close(name, self.clock.wall() + for_s, Bound.RETRY_AFTER)
        if for_s > 0:
            host.closed_mono = max(host.closed_mono, self.clock.monotonic() + for_s)

    @rule(name=HOSTS)
    def spend(self, name: str) -> None:
        self.pacer.spend(name)
        host = self.hosts[name]
        host.asked(self.clock.monotonic())
        host.befores.clear()
        if not host.line and not host.under_way:
            host.known_mono = float("-inf")  # it may know no rules: then this is forgotten after the floor

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 1.0, 3.0, 25.0)))
    def jump(self, seconds: float) -> None:
        """Pass time without letting anybody run: whoever is woken is still to act."""
        self.clock.advance(seconds)

    @rule(rounds=st.integers(1, 3))
    def run(self, rounds: int) -> None:
        """Let tasks run, but not as far as they can."""

        async def some() -> None:
            for _ in range(rounds):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())
        self._sweep()

    @rule()
    def come_to_rest(self) -> None:
        """Let everybody run: whoever may start by then has started."""
        for _ in range(int(REST_S / TIMER_S)):
            self.loop.run_until_complete(settle())
            self.clock.advance(TIMER_S)
        self.loop.run_until_complete(settle())
        self._sweep()
        for host in self.hosts.values():
            free = len(host.under_way) < host.at_once
            ready = host.ready_mono() + REST_S < self.clock.monotonic()
            assert not (host.waiting and free and ready), "a slot was lost"
            assert not (host.watching and not host.waiting and free and ready), "a watcher was not called"
        assert self.pacer.waiting == sum(len(host.waiting) for host in self.hosts.values())
        assert self.pacer.in_flight == sum(len(host.under_way) for host in self.hosts.values())

    @rule(pick=st.integers(0, 9))
    def aclose(self, pick: int) -> None:
        if pick:  # seldom: little happens after it
            return
        self.closed = True
        self.loop.run_until_complete(self.pacer.aclose())
        self.loop.run_until_complete(settle())
        self._sweep()
        assert not any(host.waiting or host.watching for host in self.hosts.values()), "a waiter was not told"

    def teardown(self) -> None:
        try:
            for _ in range(400):
                self.come_to_rest()
                for host in self.hosts.values():
                    while host.under_way:
                        self.pacer.finish(host.under_way.pop(), 200)
                        if host.at_once == 1:
                            host.asked(self.clock.monotonic())
                if not any(host.waiting for host in self.hosts.values()):
                    break
                self.clock.advance(1.0)
            assert not any(host.waiting for host in self.hosts.values()), "a waiter was left behind"
            self.clock.advance(
                400.0
            )  # a host whose robots.txt alone was asked for is remembered for a long Crawl-delay
            assert self.closed or len(self.pacer) == 0, "an idle host was not forgotten"
        finally:
            for host in self.hosts.values():
                for task in host.waiting:
                    task.cancel()
            self.loop.run_until_complete(settle())
            self._sweep(quietly=True)
            self.loop.close()

    def _pick(self, pick: int) -> tuple[Host, Permit]:
        pairs = [(host, permit) for host in self.hosts.values() for permit in host.under_way]
        host, permit = pairs[pick % len(pairs)]
        host.under_way.remove(permit)
        return host, permit

    def _sweep(self, *, quietly: bool = False) -> None:
        """See how those ended who wait no longer."""
        for host in self.hosts.values():
            ended = [task for task in host.waiting if task.done()]
            host.waiting = [task for task in host.waiting if not task.done()]
            for task in ended:
                error = None if task.cancelled() else task.exception()
                if error is not None and not quietly and not isinstance(error, TooFar | ClosedError):
                    raise error


def test_no_permit_is_early_and_none_is_lost() -> None:
    run_state_machine_as_test(PacerMachine, settings=settings(max_examples=examples(300), stateful_step_count=40))


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_no_permit_is_early_and_none_is_lost_in_ten_thousand_runs() -> None:
    run_state_machine_as_test(
        PacerMachine, settings=settings(max_examples=10_000, stateful_step_count=50, deadline=None)
    )
