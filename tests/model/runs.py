"""One random run: some gates, queues and tasks, and a program that meddles, all drawn from a seed."""

import asyncio
import gc
import heapq
import random
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import ref

from politesse import CacheOptions, ClosedError, Gatekeeper, PacingOptions
from politesse.options import Limit, SharedPacer
from politesse.testing import ManualClock, ScriptedResolver
from tests.model.judge import Judge
from tests.model.meddling import Meddler
from tests.model.queues import Crawled, Queued, Worked
from tests.model.turns import Tasks
from tests.model.world import FlakyStore, WebFetcher, World

LIMIT_S: Final = 500_000.0
"""No run takes longer than this in virtual time: what still waits then, hangs."""

MAX_STEPS: Final = 20_000
"""No run moves the clock more often than this: what goes on then, does not end."""

MAX_ROUNDS: Final = 20_000
"""No more rounds of the event loop than this pass without time passing."""

MAX_FINDINGS: Final = 20
COLLECTED: Final = 20
"""In one of so many runs, the memory of the gates has to be free in the end."""

BOT: Final = "https://example.com/bot"
MAIN: Final = f"ExampleBot/1.0 (+{BOT})"
IMAGES: Final = f"ExampleBot-Image/1.0 (+{BOT})"
SECOND: Final = f"SecondBot/1.0 (+{BOT})"
TOKENS: Final = {
    MAIN: ("ExampleBot",),
    IMAGES: ("ExampleBot-Image", "ExampleBot"),
    SECOND: ("SecondBot",),
}


@dataclass
class Result:
    """What a run has found, and how much it did."""

    seed: int
    findings: list[str]
    trace: list[str]
    pages: int
    fetches: int


class Run:
    """A run, drawn from a seed.

    Attributes:
        views: the gates and their views, by User-Agent.
        ended: whether the program is over, or its gates are closed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lots = lots = random.Random(seed)
        self.clock = clock = ManualClock(1_800_000_000.0 + lots.randrange(86_400))
        is_limited = lots.random() < 0.1
        pacing = PacingOptions(
            min_delay_s=lots.choice((0.0, 0.5, 1.0, 1.0, 3.0)),
            max_concurrent=lots.choice((1, 1, 1, 2, 3)),
            adaptive_factor=lots.choice((0.0, 1.0)),
            backoff_min_s=lots.choice((2.0, 10.0)),
            on_long_crawl_delay=lots.choice(("obey", "obey", "cap", "skip")),
            address=Limit(min_delay_s=lots.choice((0.5, 2.0)), max_concurrent=lots.choice((1, 2)))
            if is_limited
            else None,
        )
        self.is_small = lots.random() < 0.2
        cache = CacheOptions(
            max_entries_bytes=1_500 if self.is_small else 64 * 1024 * 1024,
            retry_min_s=lots.choice((2.0, 60.0)),
            refresh_after=lots.choice((0.9, 0.9, 0.5, 1.0)),
        )
        reports = lots.random() < 0.15
        purposes = {"ai-train"} if lots.random() < 0.1 else set()
        self.stores: list[FlakyStore] = []
        self.has_stores = lots.random() < 0.35
        self.judge = judge = Judge(clock, pacing, cache, TOKENS)
        judge.reports, judge.keeps_all, judge.enforces = reports, not self.is_small, bool(purposes)
        judge.has_late_stores(late=self.has_stores)
        self.world = World(lots, clock, judge, sorted({token for tokens in TOKENS.values() for token in tokens}))
        judge.addresses = {host: f"192.0.2.{lots.randint(1, 2)}" for host in self.world.hosts}
        resolver = ScriptedResolver({host: [address] for host, address in judge.addresses.items()})
        self.new_gate = partial(
            Gatekeeper,
            clock=clock,
            pacing=pacing,
            cache=cache,
            mode="report" if reports else "enforce",
            enforce_usage=purposes,
            resolver=resolver,
        )
        self.pacer = SharedPacer(pacing, clock=clock, resolver=resolver) if lots.random() < 0.2 else None
        self.gates: list[Gatekeeper] = []
        self.views: dict[str, Any] = {}
        self.queues: list[Queued] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.beside = Tasks(self)
        self.ended = False

    # The program

    def open_gate(self, agent: str) -> None:
        store = FlakyStore(self.lots, self.clock) if self.has_stores else None
        self.stores += [store] if store is not None else []
        gate = self.new_gate(agent, fetcher=WebFetcher(self.world, agent), store=store, pacer=self.pacer)
        self.gates.append(gate)
        self.views[agent] = gate
        self.judge.gates[agent] = agent

    def start(self, work: Any, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.append(task)
        return task

    async def story(self) -> None:
        lots, judge = self.lots, self.judge
        self.open_gate(MAIN)
        if self.pacer is not None:
            self.open_gate(SECOND)
        if lots.random() < 0.3:
            self.views[IMAGES] = self.gates[0].agent(tokens=TOKENS[IMAGES], user_agent=IMAGES)
            judge.gates[IMAGES] = MAIN
            judge.agents = 2
        judge.note(f"{self.gates}, {judge.pacing}, {judge.cache}, {self.stores}, {judge.addresses}")
        for number in range(lots.choice((1, 1, 1, 2, 3))):
            kind = Crawled if lots.random() < 0.5 else Worked
            self.queues.append(kind(self, lots.choice(list(self.views)), f"queue {number}"))
        for queued in self.queues:
            self.start(queued.run(), queued.name)
        for number in range(lots.choice((0, 0, 1, 3))):
            self.beside.start(lots.choice(list(self.views)), f"task {number}")
        meddling = asyncio.create_task(Meddler(self).run(), name="meddler")
        if lots.random() < 0.1:
            await self.clock.sleep(lots.uniform(0.0, 100.0))
            judge.note("the gates are closed in the middle")
            await self.close()
        while tasks := [task for task in self.tasks if not task.done()]:
            await asyncio.wait(tasks)
        self.ended = True
        meddling.cancel()
        await asyncio.wait([meddling])
        for task in (*self.tasks, meddling):
            error = None if task.cancelled() else task.exception()
            if error is not None and not (isinstance(error, ClosedError) and task.get_name() == "check"):
                judge.find(f"{task.get_name()} ended with {error!r}")
        await self.end()

    async def close(self) -> None:
        self.ended = True
        for gate in self.gates:
            await gate.aclose()

    async def end(self) -> None:
        """Check that nothing waits, close the gates, and check that nothing is left."""
        await self.clock.sleep(1.0)  # an offer to a queue lapses
        left = sum(queued.queue.qsize() for queued in self.queues)
        for gate in self.gates:
            statistics = gate.statistics()
            if (statistics.waiting or statistics.turns) and not left:
                self.judge.find(f"before the end, {statistics}")
        for queued in self.queues:
            queued.outcomes.check_end(queued.queue, self.judge.answers[queued.name])
        await self.close()
        if self.lots.random() < 0.5:
            await self.clock.sleep(3 * 86_400.0)
        for gate in self.gates:
            after = gate.statistics()
            if after.waiting or after.turns or after.in_flight or after.origins or after.entries_bytes:
                self.judge.find(f"after the end, {after}")

    # Time

    async def rest(self) -> bool:
        """Let all tasks run until they wait; return whether they do."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(MAX_ROUNDS):
            await asyncio.sleep(0)
            if not ready:
                return True
        return False

    def next_timer(self) -> float | None:
        timers = self.clock._timers
        while timers and timers[0][2].cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    async def drive(self) -> None:
        """Let all tasks run until they wait, then move the clock to the next timer, until the story ends."""
        story, steps = asyncio.create_task(self.story(), name="story"), 0
        while len(self.judge.findings) <= MAX_FINDINGS:
            at_rest, steps = await self.rest(), steps + 1
            if story.done():
                break
            due = self.next_timer()
            if not at_rest:
                self.stuck("tasks run and run, and no time passes")
            elif due is None:
                self.stuck("everything waits, and no timer is set")
            elif due > LIMIT_S or steps > MAX_STEPS:
                self.stuck("the run does not end")
            else:
                if due > self.clock.monotonic():
                    self.look()
                self.clock._fire_until(due)
                continue
            break
        await self.rest()
        if not self.judge.findings:
            await story
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            timers = [timer.callback for _, _, timer in self.clock._timers if not timer.cancelled]
            if tasks or timers:
                self.judge.find(f"left at the end: {tasks} {timers}")

    def stuck(self, why: str) -> None:
        queues = [repr(queued.queue) for queued in self.queues]
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        self.judge.find(f"{why}; {queues}, {self.beside.waiting}, tasks {tasks}")

    def look(self) -> None:
        """Judge, before time passes, whether a host is idle that should not be."""
        waiting = list(self.beside.waiting.values())
        for queued in self.queues:
            waiting += queued.waiting()
        self.judge.idle_too_long(waiting)

    def run(self) -> Result:
        random.seed(self.seed)  # the jitter of the library
        judge, loop = self.judge, asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: judge.find(f"asyncio reports {context}"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                loop.run_until_complete(self.drive())
                handles = [one for one in loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
                if handles and not judge.findings:
                    judge.find(f"handles are left in the event loop: {handles}")
            finally:
                _abandon(loop)
                loop.close()
        if self.seed % COLLECTED == 0 and not judge.findings:
            self.check_memory()
        return Result(self.seed, judge.findings, judge.trace, judge.pages, judge.fetches)

    def check_memory(self) -> None:
        """Check that nothing holds the gates and the queues."""
        held = [ref(gate.state) for gate in self.gates] + [ref(queued.queue) for queued in self.queues]
        self.gates.clear()
        self.views.clear()
        self.queues.clear()
        self.tasks.clear()
        self.beside.tasks.clear()
        self.clock._timers.clear()  # cancelled timers hold their callbacks
        gc.collect()
        if left := [one() for one in held if one() is not None]:
            self.judge.find(f"still in memory: {left}")


def _abandon(loop: asyncio.AbstractEventLoop) -> None:
    """End all tasks; after a finding, any task may be left."""
    for _ in range(100):
        if not (tasks := asyncio.all_tasks(loop)):
            break
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))


def run(seed: int) -> Result:
    """Run one seed."""
    return Run(seed).run()
