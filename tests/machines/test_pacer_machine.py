"""Everything that can happen to a pacer, in any order: no permit early, none lost, no waiter left behind.

Two agents make requests. The robots.txt of a host states a delay for each, and may state another one at any time; what
it states for one must never bind the other. Turns that are held for too long expire. Each refusal closes a host for the
same time here.
"""

import asyncio
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from politesse import PacingOptions
from politesse._pacing.hosts import Hosts, LocalPermit
from politesse.errors import ClosedError, TooFar
from politesse.events import Event, Publisher, TurnExpired
from politesse.robots import RuleSet
from politesse.testing import ManualClock
from politesse.verdict import Bound
from tests.support.examples import examples
from tests.support.pacing import MIDNIGHT, TurnRequest, fetching, rules
from tests.support.tasks import now, settle

# The second host takes two at once, its delay from start to start.
AT_ONCE: Final = {"one.example": 1, "two.example": 2}
FLOOR_S: Final = 1.0
DELAYS: Final[dict[float, RuleSet]] = {0.0: rules(), **{d: rules(f"Crawl-delay: {d}") for d in (0.5, 3.0, 7.0)}}
HOSTS = st.sampled_from(sorted(AT_ONCE))
AGENTS = st.sampled_from(("Alpha", "Beta"))
REMEMBERED_S: Final = 600.0
TIMER_S: Final = 0.002
"""A timer may come so much late; it is not the interval that is."""
WALL_S: Final = 1e-4
"""Unix times are coarse in a float, and what is lost adds up in a clock that goes by small steps: closures go by it."""
MAX_TURN_S: Final = 40.0
ROUNDED_S: Final = 1e-9
"""Differences of monotonic times are rounded."""
CLOSED_S: Final = 5.0
DAY_S: Final = 86_400.0
STATUSES = st.sampled_from((200, 200, 200, 404, 429, 502, 503))
MOST_WATCHERS: Final = 3
OFFER_S: Final = 0.05
"""For how long a watcher that was called keeps its place."""
REST_S: Final = (MOST_WATCHERS + 3) * (OFFER_S + TIMER_S)
"""Time for everybody who can act to act, watchers one after the other."""


class Host:
    """What the test knows of a host, worked out as simply as can be."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.delay_s = {"Alpha": 0.0, "Beta": 0.0}
        self.last_mono = float("-inf")
        self.closed_mono = float("-inf")
        self.under_way: list[LocalPermit] = []
        self.waiting: list[asyncio.Task[LocalPermit]] = []
        self.befores: list[tuple[LocalPermit, float]] = []
        self.line: list[tuple[object, str]] = []  # tasks and watchers in line, and their agents
        self.watching = 0
        self.called_agent = ""  # of the watcher that was called last
        self.called_mono = float("-inf")

    def answered(self, status: int | None, now_mono: float, *, asks: bool = False) -> None:
        if asks or status in {429, 502, 503}:
            self.closed_mono = max(self.closed_mono, now_mono + CLOSED_S)

    def ready_mono(self, agent: str) -> float:
        return max(self.last_mono + max(FLOOR_S, self.delay_s[agent]), self.closed_mono - WALL_S)

    def fetched(self, now_mono: float, *, opened: bool) -> None:
        """Only a robots.txt that opens its site restarts the interval, or one of a host that was idle for long."""
        if opened or now_mono > self.last_mono + REMEMBERED_S:
            self.last_mono = now_mono
            self.befores.clear()

    def takes_place(self, agent: str, now_mono: float) -> bool:
        """Return whether a request takes the place of a watcher that was called, and end that place."""
        is_taken = self.called_agent == agent and now_mono < self.called_mono + OFFER_S - ROUNDED_S
        if is_taken:
            self.called_mono = float("-inf")
        return is_taken

    def given_back(self, permit: LocalPermit) -> None:
        """Nothing was requested; a later stamp or end stays as it is."""
        if self.befores and self.befores[-1][0] is permit:
            _, before_mono = self.befores.pop()
            self.last_mono = before_mono


class PacerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(MIDNIGHT)
        # Without adaptive delay and jitter: what is left can be worked out by hand.
        options = PacingOptions(
            min_delay_s=FLOOR_S,
            adaptive_factor=0.0,
            backoff_min_s=CLOSED_S,
            backoff_max_s=CLOSED_S,
            max_turn_s=MAX_TURN_S,
        )
        publisher = Publisher()
        publisher.subscribe(self.published)
        self.pacer = Hosts(options, clock=self.clock, jitter=lambda: 0.0, publisher=publisher)
        self.error: str = ""
        self.expired: list[LocalPermit] = []
        self.requests = 0
        self.hosts = {name: Host(at_once) for name, at_once in AT_ONCE.items()}
        for name, at_once in AT_ONCE.items():
            self.pacer.set_limits(name, None, at_once)
        self.closed = False

    def wants(self, name: str, agent: str) -> TurnRequest:
        self.requests += 1
        return TurnRequest(
            name, name, agent, DELAYS[self.hosts[name].delay_s[agent]], f"https://{name}/{self.requests}"
        )

    def published(self, event: Event) -> None:
        """Count a turn that has expired as one that has ended; a subscriber that raises would only be logged."""
        if isinstance(event, TurnExpired):
            host = self.hosts[event.host]
            [permit] = [permit for permit in host.under_way if permit.url == event.url]
            host.under_way.remove(permit)
            self._ended(host)
            self.expired.append(permit)
            if not MAX_TURN_S - ROUNDED_S <= event.held_s <= MAX_TURN_S + TIMER_S or permit.under_way:
                self.error = f"it has not expired in time: {event}"

    @rule(name=HOSTS, agent=AGENTS, max_wait_s=st.sampled_from((None, None, None, 0.0, 2.0, 30.0)))
    def start(self, name: str, agent: str, max_wait_s: float | None) -> None:
        host = self.hosts[name]

        async def start() -> LocalPermit:
            me = object(), agent
            host.line.append(me)
            try:
                permit = await self.pacer.start(self.wants(name, agent), max_wait_s)
                assert host.line[0] is me, "somebody was passed"
                kept_mono = host.called_mono + OFFER_S - ROUNDED_S
                assert self.closed or self.clock.monotonic() >= kept_mono, "a watcher that was called was passed"
                self.granted(host, agent, permit)
                return permit
            finally:
                host.line.remove(me)

        host.waiting.append(self.loop.create_task(start()))

    @rule(name=HOSTS, agent=AGENTS)
    def try_start(self, name: str, agent: str) -> None:
        self._try(name, agent)

    def _try(self, name: str, agent: str) -> LocalPermit | None:
        if self.closed:
            return None
        host, now_mono = self.hosts[name], self.clock.monotonic()
        nothing_waits = not host.line and now_mono > host.called_mono + OFFER_S + TIMER_S
        is_first = host.takes_place(agent, now_mono) or nothing_waits
        answer = self.pacer.try_start(self.wants(name, agent))
        if isinstance(answer, LocalPermit):
            lapsing = abs(now_mono - host.called_mono - OFFER_S) <= TIMER_S
            assert is_first or (lapsing and not host.line) or (lapsing and host.called_agent == agent)
            self.granted(host, agent, answer)
            return answer
        full = len(host.under_way) == host.at_once
        assert not is_first or full or now_mono < host.ready_mono(agent) + 2 * WALL_S
        return None

    @precondition(lambda self: not self.closed)
    @rule(name=HOSTS, agent=AGENTS)
    def watch(self, name: str, agent: str) -> None:
        host = self.hosts[name]
        if host.watching == MOST_WATCHERS:
            return
        me = object(), agent

        def called() -> None:
            first, now_mono = host.line[0], self.clock.monotonic()
            host.line.remove(me)
            host.watching -= 1
            free = len(host.under_way) < host.at_once
            ready = now_mono >= host.ready_mono(agent) and now_mono >= host.called_mono + OFFER_S - ROUNDED_S
            assert self.closed or (free and ready and first is me), "called in vain"
            host.called_agent, host.called_mono = agent, now_mono

        async def watch() -> None:
            host.line.append(me)
            self.pacer.when_ready(self.wants(name, agent), called)

        host.watching += 1
        self.loop.run_until_complete(watch())
        self._sweep()

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99), status=STATUSES)
    def observe(self, pick: int, status: int) -> None:
        """Say before the end what was answered: a refusal binds at once."""
        host, permit = self._pick(pick)
        host.under_way.append(permit)
        permit.observe(status)
        host.answered(status, self.clock.monotonic())

    @precondition(lambda self: self.expired)
    @rule(pick=st.integers(0, 99), status=st.sampled_from((200, 429)))
    def use_expired(self, pick: int, status: int) -> None:
        """Nothing that is done with a turn that has expired has an effect."""
        permit = self.expired[pick % len(self.expired)]
        permit.observe(status)
        permit.end()
        permit.give_back()
        assert not permit.under_way

    def granted(self, host: Host, agent: str, permit: LocalPermit) -> None:
        now = self.clock.monotonic()
        assert permit.started_mono == now
        assert now >= host.ready_mono(agent), "a permit came early"
        assert len(host.under_way) < host.at_once
        host.under_way.append(permit)
        host.befores.append((permit, host.last_mono))
        host.last_mono = now

    @precondition(lambda self: any(host.waiting for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        waiting = [task for host in self.hosts.values() for task in host.waiting]
        waiting[pick % len(waiting)].cancel()

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99), status=st.none() | STATUSES, asks=st.booleans())
    def finish(self, pick: int, status: int | None, asks: bool) -> None:  # noqa: FBT001 - drawn
        host, permit = self._pick(pick)
        if status is not None:
            permit.observe(status, {"retry-after": f"{CLOSED_S:.0f}"} if asks else {})
            host.answered(status, self.clock.monotonic(), asks=asks)
        permit.end()
        self._ended(host)

    @precondition(lambda self: any(host.under_way for host in self.hosts.values()))
    @rule(pick=st.integers(0, 99))
    def give_back(self, pick: int) -> None:
        host, permit = self._pick(pick)
        permit.give_back()
        host.given_back(permit)

    @rule(name=HOSTS, agent=AGENTS, delay_s=st.sampled_from(sorted(DELAYS)))
    def new_delay(self, name: str, agent: str, delay_s: float) -> None:
        """State another delay, be the host idle or not."""
        if self.closed:
            return
        host = self.hosts[name]
        host.delay_s[agent] = delay_s
        answer = self._try(name, agent)
        if answer is not None:
            host.under_way.remove(answer)
            answer.give_back()
            host.given_back(answer)

    # By Unix times, which are coarse: no request starts at the very moment at which such a closing is forgotten.
    @rule(name=HOSTS, for_s=st.sampled_from((-1.0, 0.0, 2.0123, 10.0123)))
    def close_host(self, name: str, for_s: float) -> None:
        host = self.hosts[name]
        self.pacer.close_host(name, self.clock.wall() + for_s, Bound.RETRY_AFTER)
        if for_s > 0:
            host.closed_mono = max(host.closed_mono, self.clock.monotonic() + for_s)

    @precondition(lambda self: not self.closed)
    @rule(name=HOSTS, opened=st.booleans())
    def fetch(self, name: str, *, opened: bool) -> None:
        self.hosts[name].fetched(self.clock.monotonic(), opened=opened)
        permit = now(self.pacer.start_fetch(fetching(name), made=True))
        permit.end(200)
        if opened:
            permit.opened()

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 1.0, 3.0, 25.0, 590.0, 700.0)))
    def jump(self, seconds: float) -> None:
        """Pass time without letting anybody run: whoever is woken is still to act."""
        self.clock.advance(seconds)
        self._nothing_is_held_for_too_long()

    @rule(rounds=st.integers(1, 3))
    def run(self, rounds: int) -> None:
        """Let tasks run, but not as far as they can."""
        self.loop.run_until_complete(settle(rounds))
        self._sweep()

    @rule()
    def come_to_rest(self) -> None:
        """Let everybody run: whoever may start by then has started."""
        for _ in range(MOST_WATCHERS + 3):
            self.loop.run_until_complete(settle())
            self.clock.advance(OFFER_S + TIMER_S)
        self.loop.run_until_complete(settle())
        self._sweep()
        for host in self.hosts.values():
            free = len(host.under_way) < host.at_once
            now = self.clock.monotonic()
            kept_mono = host.called_mono + OFFER_S  # the watcher before the head may have waited for longer
            head_ready = bool(host.line) and max(host.ready_mono(host.line[0][1]), kept_mono) + REST_S < now
            assert not (free and head_ready), "a waiter was forgotten"
        self._nothing_is_held_for_too_long()
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
                        host.under_way.pop().end()
                        self._ended(host)
                if not any(host.waiting for host in self.hosts.values()):
                    break
                self.clock.advance(1.0)
            assert not any(host.waiting for host in self.hosts.values()), "a waiter was left behind"
            self.clock.advance(2.0 * DAY_S)
            assert self.closed or len(self.pacer) == 0, "an idle host was not forgotten"
        finally:
            for host in self.hosts.values():
                for task in host.waiting:
                    task.cancel()
            self.loop.run_until_complete(settle())
            self._sweep(quietly=True)
            self.loop.close()

    def _nothing_is_held_for_too_long(self) -> None:
        assert not self.error, self.error
        late_mono = self.clock.monotonic() - MAX_TURN_S - TIMER_S
        held = [permit for host in self.hosts.values() for permit in host.under_way if permit.started_mono < late_mono]
        assert self.closed or not held, "a turn has not expired"

    def _ended(self, host: Host) -> None:
        if host.at_once == 1:
            host.last_mono = self.clock.monotonic()
            host.befores.clear()

    def _pick(self, pick: int) -> tuple[Host, LocalPermit]:
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


@pytest.mark.parametrize(
    ("runs", "steps"),
    [(examples(300), 40), pytest.param(10_000, 50, marks=[pytest.mark.weekly, pytest.mark.timeout(14_400)])],
)
def test_no_permit_is_early_and_none_is_lost(runs: int, steps: int) -> None:
    run_state_machine_as_test(PacerMachine, settings=settings(max_examples=runs, stateful_step_count=steps))
