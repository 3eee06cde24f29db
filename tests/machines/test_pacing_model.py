"""Random crawls at a shared pacer, judged by an oracle that knows the rules of pacing and shares no code with it.

Two gates with floors of their own, agents with a Crawl-delay or a Visit-time, tasks and queues, several hosts at one
address, limits that change, hosts that close, permits that are given back, cancellations. The oracle judges each start:
not early, not while the host is closed, no more at once than allowed, nobody passed in line whom that delays. At the
end no waiter is forgotten, and nothing is left in memory.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from politesse import Bound, NotYet, PacingOptions
from politesse.errors import TooFar
from politesse.options import Limit, SharedPacer
from politesse.robots import RuleSet
from politesse.testing import ManualClock
from tests.support.pacing import MIDNIGHT, Pacer, Permit, Resolving, TurnRequest, rules, share_of
from tests.support.tasks import settle

HOSTS: Final = {"a.example": "192.0.2.1", "b.example": "192.0.2.1", "c.example": "192.0.2.2"}
EPS_S: Final = 1e-6
OFFER_S: Final = 0.05
"""For how long a callback that was called keeps its place."""
DAY_S: Final = 86_400.0
KNOWN_S: Final = 3_000.0
NEVER: Final = float("-inf")


@dataclass(frozen=True)
class Agent:
    """A crawler, and what every robots.txt states for it."""

    name: str
    said: RuleSet
    delay_s: float = 0.0
    window_s: tuple[float, float] = (0.0, DAY_S)

    def opens(self, wall: float) -> float:
        """Return the first Unix time from ``wall`` on at which a visit is permitted."""
        of_day, (first_s, last_s) = wall % DAY_S, self.window_s
        if first_s <= of_day < last_s:
            return wall
        return wall - of_day + first_s + (0.0 if of_day < first_s else DAY_S)


AGENTS: Final = (
    Agent("Quick", rules()),
    Agent("Slow", rules("Crawl-delay: 10"), delay_s=10.0),
    Agent("Night", rules("Visit-time: 0100-0159"), window_s=(3600.0, 7200.0)),
    Agent("Noon", rules("Visit-time: 1200-1259", "Crawl-delay: 30"), delay_s=30.0, window_s=(43_200.0, 46_800.0)),
)


@dataclass(eq=False)
class Waiter:
    """A request that waits: when it came (by number), what binds it, and when its callback was called."""

    number: int
    key: str
    host: str
    agent: Agent
    floor_s: float
    in_line: bool = True
    called_mono: float = float("inf")


@dataclass(eq=False)
class Key:
    """A host, or an address, and what the oracle knows of it."""

    at_once: int = 1
    floor_s: float = 0.0
    last_mono: float = NEVER
    closed_mono: float = NEVER
    under_way: list[Waiter] = field(default_factory=list)
    stamps: list[tuple[Waiter, float]] = field(default_factory=list)

    def interval_s(self, waiter: Waiter) -> float:
        return max(self.floor_s, waiter.floor_s, waiter.agent.delay_s)

    def earliest(self, waiter: Waiter, clock: ManualClock) -> float:
        """Return the monotonic time at which a waiter may start if nothing else does before."""
        now = clock.monotonic()
        start = max(self.last_mono + self.interval_s(waiter), self.closed_mono, now)
        return start + waiter.agent.opens(clock.wall() + start - now) - (clock.wall() + start - now)


class Crawl:
    """One random crawl."""

    def __init__(self, seed: int) -> None:
        self.lots = lots = random.Random(seed)
        self.clock = ManualClock(MIDNIGHT + lots.choice((0.0, 3500.0, 7100.0, 43_000.0, 80_000.0)))
        self.scope = lots.choice(("host", "host", "limit", "address"))
        self.base_floor_s = lots.choice((0.0, 1.0))
        options = PacingOptions(
            key="address" if self.scope == "address" else "host",
            address=Limit(min_delay_s=0.5) if self.scope == "limit" else None,
            min_delay_s=self.base_floor_s,
            adaptive_factor=0.0,
            max_turn_s=float("inf"),
        )
        resolver = Resolving({host: [address] for host, address in HOSTS.items()})
        self.pacer = SharedPacer(options, clock=self.clock, resolver=resolver, jitter=lambda: 0.0)
        self.gates = [(share_of(self.pacer), floor_s) for floor_s in lots.choice(((0.0, 3.0), (1.0, 1.0)))]
        self.agents = lots.sample(AGENTS, lots.randint(1, 3))
        self.keys: dict[str, Key] = {}
        self.addresses = {address: Key(floor_s=0.5) for address in HOSTS.values()}
        self.waiting: list[Waiter] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.held: list[tuple[Waiter, Permit]] = []
        self.starts = 0
        self.numbers = 0

    def key(self, name: str) -> Key:
        return self.keys.setdefault(name, Key(floor_s=self.base_floor_s))

    # What happens

    def ask(self) -> None:
        gate, floor_s = self.lots.choice(self.gates)
        host, agent = self.lots.choice(list(HOSTS)), self.lots.choice(self.agents)
        key = HOSTS[host] if self.scope == "address" else host
        max_wait_s = self.lots.choice((None, None, None, 0.0, 20.0))
        by_queue = self.lots.random() < 0.4
        waiter = Waiter(0, key, host, agent, floor_s, in_line=False)
        request = TurnRequest(host, f"https://{host}", agent.name, agent.said, f"https://{host}/", floor_s)
        run = self.queue(gate, request, waiter) if by_queue else self.task(gate, request, waiter, max_wait_s)
        self.tasks.append(asyncio.get_running_loop().create_task(run))

    async def task(self, gate: Pacer, request: TurnRequest, waiter: Waiter, max_wait_s: float | None) -> None:
        self.joins(waiter)
        permit: Permit | None = None
        try:
            for _ in range(self.lots.choice((1, 1, 1, 2))):
                if permit is not None:  # it has to check something first, and keeps its place
                    permit.give_back()
                    self.given_back(waiter)
                    await asyncio.sleep(0)
                    self.joins(waiter, waiter.number)
                permit = await gate.start(request, max_wait_s, permit)
                self.started(waiter, permit)
        except TooFar:
            pass
        finally:
            self.leaves(waiter)

    async def queue(self, gate: Pacer, request: TurnRequest, waiter: Waiter) -> None:
        try:
            while True:
                ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                waiter.called_mono = float("inf")
                gate.when_ready(request, partial(self.call, waiter, ready))
                self.joins(waiter)
                await ready
                answer = gate.try_start(request)
                if not isinstance(answer, NotYet):
                    self.started(waiter, answer)
                    return
                self.leaves(waiter)
        finally:
            self.leaves(waiter)

    def call(self, waiter: Waiter, ready: asyncio.Future[None]) -> None:
        waiter.called_mono = self.clock.monotonic()
        if not ready.done():
            ready.set_result(None)

    def change(self) -> None:
        """Do one thing at random."""
        lots = self.lots
        what = lots.choice(("end", "end", "end", "refuse", "give back", "close", "limit", "cancel"))
        if what in {"end", "refuse", "give back"} and self.held:
            waiter, permit = self.held[lots.randrange(len(self.held))]
            if what == "give back":
                self.given_back(waiter)
                permit.give_back()
            else:
                self.end(waiter, permit, refused=what == "refuse")
        elif what == "close" and (self.scope != "address" or self.clock.monotonic() < KNOWN_S):
            host, seconds = lots.choice(list(HOSTS)), lots.choice((0.0, 5.0, 100.0))
            self.gates[0][0].close_host(host, self.clock.wall() + seconds, Bound.RETRY_AFTER)
            key = self.key(HOSTS[host] if self.scope == "address" else host)
            key.closed_mono = max(key.closed_mono, self.clock.monotonic() + seconds)
        elif what == "limit" and self.scope != "address":
            host, floor_s, at_once = lots.choice(list(HOSTS)), lots.choice((0.0, 2.0)), lots.choice((1, 2, 3))
            self.key(host).floor_s, self.key(host).at_once = floor_s, at_once
            for gate, _ in self.gates:  # the strictest counts
                gate.set_limits(host, floor_s, at_once)
        elif what == "cancel" and self.tasks:
            lots.choice(self.tasks).cancel()

    def end(self, waiter: Waiter, permit: Permit, *, refused: bool = False) -> None:
        now = self.clock.monotonic()
        if refused:
            permit.observe(503, {"retry-after": "40"})
            key = self.key(waiter.key)
            key.closed_mono = max(key.closed_mono, now + 40.0)
        for key in self.keys_of(waiter):
            key.under_way.remove(waiter)
            if key.at_once == 1:
                key.stamps.clear()
                key.last_mono = now
        self.held.remove((waiter, permit))
        permit.end()

    # What the oracle notes, and judges

    def keys_of(self, waiter: Waiter) -> list[Key]:
        return [self.key(waiter.key), *([self.addresses[HOSTS[waiter.host]]] if self.scope == "limit" else [])]

    def joins(self, waiter: Waiter, number: int | None = None) -> None:
        if number is None:
            self.numbers += 1
            number = self.numbers
        waiter.number, waiter.in_line = number, True
        self.waiting.append(waiter)

    def leaves(self, waiter: Waiter) -> None:
        if waiter.in_line:
            waiter.in_line = False
            self.waiting.remove(waiter)

    def given_back(self, waiter: Waiter) -> None:
        for key in self.keys_of(waiter):
            key.under_way.remove(waiter)
            if key.stamps and key.stamps[-1][0] is waiter:
                key.last_mono = key.stamps.pop()[1]
        self.held = [(other, permit) for other, permit in self.held if other is not waiter]

    def started(self, waiter: Waiter, permit: Permit) -> None:
        now, first = self.clock.monotonic(), self.key(waiter.key)
        self.leaves(waiter)
        for key in self.keys_of(waiter):
            interval_s = key.interval_s(waiter) if key is first else key.floor_s
            assert now >= key.last_mono + interval_s - EPS_S, "early"
            assert len(key.under_way) < key.at_once, "too many at once"
        assert now >= first.closed_mono - EPS_S, "while the host was closed"
        walls = (self.clock.wall() - EPS_S, self.clock.wall() + EPS_S)
        assert any(waiter.agent.opens(wall) == wall for wall in walls), "outside its Visit-time"
        # In several scopes a callback joins a line some steps of the event loop later: the order is not known here.
        for other in self.waiting if self.scope == "host" else ():
            has_lapsed = now >= other.called_mono + OFFER_S - EPS_S
            if other.key == waiter.key and other.number < waiter.number and not has_lapsed:
                free_s = first.earliest(other, self.clock) - now
                assert free_s > 2.0 * first.interval_s(other) - EPS_S, "an earlier waiter was delayed"
        for key in self.keys_of(waiter):
            key.stamps.append((waiter, key.last_mono))
            key.last_mono = now
            key.under_way.append(waiter)
        self.held.append((waiter, permit))
        self.starts += 1

    async def run(self) -> None:
        for host in HOSTS:
            await self.gates[0][0].closed_until(host)  # finds the addresses
        for _ in range(self.lots.randint(10, 40)):
            for _ in range(self.lots.choice((0, 1, 1, 2))):
                self.ask()
            await settle(self.lots.choice((0, 1, 3, 12)))
            self.change()
            if self.lots.random() < 0.6:
                self.clock.advance(self.lots.choice((0.03, 0.5, 1.0, 3.0, 11.0, 60.0, 3600.0)))
        await self.finish()

    async def finish(self) -> None:
        """Let all that waits have its turn: nobody is forgotten, and nothing is left."""
        for _ in range(1_000):
            await settle(12)
            for waiter, permit in list(self.held):
                self.end(waiter, permit)
            await settle(12)
            if not self.waiting and not self.held:
                break
            soonest = min((self.key(each.key).earliest(each, self.clock) for each in self.waiting), default=0.0)
            self.clock.advance(max(1.0, soonest - self.clock.monotonic() + 0.002))
        for task in self.tasks:
            if task.done():
                with suppress(asyncio.CancelledError):
                    await task
        assert not self.waiting, f"forgotten: {self.waiting}"
        pacer = self.gates[0][0].pacer
        for _ in range(500):  # callbacks of cancelled queues are called in their time, one at each jump, and lapse
            if not len(pacer):
                break
            self.clock.advance(1_000.0)
            await settle(12)
            self.clock.advance(1.0)
        assert (pacer.waiting, pacer.in_flight, len(pacer)) == (0, 0, 0), "something is left"
        for gate, _ in self.gates:
            await gate.aclose()


@pytest.mark.parametrize(
    ("seeds", "least"),
    [
        (range(60), 400),
        pytest.param(range(300), 2_000, marks=pytest.mark.full),
        pytest.param(range(1_000, 21_000), 100_000, marks=[pytest.mark.weekly, pytest.mark.timeout(7_200)]),
    ],
)
def test_no_random_crawl_breaks_a_rule_of_pacing(seeds: range, least: int) -> None:
    starts = 0
    for seed in seeds:
        crawl = Crawl(seed)
        try:
            asyncio.run(crawl.run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {crawl.scope}: {error}") from error
        starts += crawl.starts
    assert starts > least
