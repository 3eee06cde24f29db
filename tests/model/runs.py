"""One random run: a gate, some queues and tasks, and a program that meddles, all drawn from a seed."""

import asyncio
import gc
import random
import warnings
import weakref
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from politesse import (
    CacheOptions,
    ClosedError,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    NotYet,
    PacingOptions,
    TooFar,
)
from politesse.options import SharedPacer
from politesse.queue import CrawlPage, PoliteQueue, QueueClosed
from politesse.testing import ManualClock
from tests.model.judge import Judge
from tests.model.outcomes import Outcomes
from tests.model.world import AiohttpStyleWeb, Failed, FlakyStore, HttpxStyleWeb, World, WebFetcher, split

LIMIT_S: Final = 500_000.0
"""No run takes longer than this in virtual time: what still waits then, hangs."""

MAX_STEPS: Final = 20_000
"""No run moves the clock more often than this: what goes on then, does not end."""

MAX_FINDINGS: Final = 20

MAX_ROUNDS: Final = 20_000
"""No more rounds of the event loop than this pass without time passing."""

MAIN: Final = "ExampleBot/1.0 (+https://example.com/bot)"
IMAGES: Final = "ExampleBot-Image/1.0 (+https://example.com/bot)"
TOKENS: Final = {MAIN: ("ExampleBot",), IMAGES: ("ExampleBot-Image", "ExampleBot")}


@dataclass
class Result:
    """What a run has found, and how much it did."""

    seed: int
    findings: list[str]
    trace: list[str]
    pages: int
    fetches: int
    virtual_s: float


@dataclass
class Queued:
    """A queue and its consumers."""

    queue: PoliteQueue[str]
    outcomes: Outcomes
    agent: str
    name: str
    maxsize: int
    workers: list[asyncio.Task[None]] = field(default_factory=list)
    crawl: asyncio.Task[Any] | None = None
    waiting: dict[str, float] = field(default_factory=dict)
    """The URLs for which an idle worker waits, and since when."""

    open: bool = True
    records: Counter[str] = field(default_factory=Counter)


class Seen(set[str]):
    """The URLs that a crawl has let in."""


class Run:
    """A run, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lots = lots = random.Random(seed)
        self.clock = ManualClock(1_800_000_000.0 + lots.randrange(86_400))
        pacing = PacingOptions(
            min_delay_s=lots.choice((0.0, 0.5, 1.0, 1.0, 3.0)),
            max_concurrent=lots.choice((1, 1, 1, 2, 3)),
            adaptive_factor=lots.choice((0.0, 1.0)),
            backoff_min_s=lots.choice((2.0, 10.0)),
            on_long_crawl_delay=lots.choice(("obey", "obey", "cap", "skip")),
        )
        small = lots.random() < 0.2
        cache = CacheOptions(
            max_entries_bytes=1_500 if small else 64 * 1024 * 1024,
            retry_min_s=lots.choice((2.0, 60.0)),
            refresh_after=lots.choice((0.9, 0.9, 0.5, 1.0)),
        )
        self.mode = lots.choice(("enforce",) * 5 + ("report",))
        self.store = FlakyStore(lots, self.clock) if lots.random() < 0.35 else None
        agents = sorted({token for tokens in TOKENS.values() for token in tokens})
        self.judge = Judge(
            self.clock,
            pacing,
            cache,
            TOKENS,
            reports=self.mode == "report",
            keeps_all=not small,
            has_store=self.store is not None,
        )
        self.world = World(lots, self.clock, self.judge, agents)
        self.make_gate = partial(
            Gatekeeper,
            MAIN,
            fetcher=WebFetcher(self.world),
            clock=self.clock,
            pacing=pacing,
            cache=cache,
            mode=self.mode,
            store=self.store,
        )
        self.queues: list[Queued] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.turns: dict[int, tuple[str, str, float, bool]] = {}
        self.requests: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.ended = False
        self.number = 0

    # The program

    async def story(self) -> None:
        lots = self.lots
        self.gate = gate = self.make_gate()
        views = {MAIN: gate}
        if lots.random() < 0.3:
            views[IMAGES] = gate.agent(tokens=TOKENS[IMAGES], user_agent=IMAGES)
            self.judge.agents = 2
        self.judge.note(f"{gate!r}, {self.judge.pacing}, {self.judge.cache}, {self.mode}, {self.store}")
        for number in range(lots.choice((1, 1, 1, 2, 3))):
            agent = lots.choice(list(views))
            outcomes = Outcomes(self.judge, f"queue {number}", TOKENS[agent])
            maxsize = lots.choice((0, 0, 0, 2))
            queue: PoliteQueue[str] = PoliteQueue(
                views[agent],
                maxsize=maxsize,
                on_disallowed=outcomes.refused,
                max_wait_s=lots.choice((20_000.0, 3600.0, 3600.0, 300.0, 20.0)),
                max_unreachable_s=lots.choice((300.0, 300.0, 0.0, 1000.0)),
            )
            held = Queued(queue, outcomes, agent, f"queue {number}", maxsize)
            self.queues.append(held)
            run = self.crawls(held) if lots.random() < 0.5 else self.works(held)
            self.tasks.append(asyncio.create_task(run, name=f"queue {number}"))
        for number in range(lots.choice((0, 0, 1, 3))):
            agent = lots.choice(list(views))
            run = self.takes_turns(views[agent], agent, f"task {number}")
            self.tasks.append(asyncio.create_task(run, name=f"task {number}"))
        meddling = asyncio.create_task(self.meddles(), name="meddler")
        if lots.random() < 0.1:
            await self.clock.sleep(lots.uniform(0.0, 100.0))
            self.ended = True
            self.judge.note("the gate is closed in the middle")
            await gate.aclose()
        for task in self.tasks:
            await asyncio.wait([task])
        self.ended = True
        meddling.cancel()
        await asyncio.wait([meddling])
        for task in (*self.tasks, meddling):
            if not task.cancelled() and (error := task.exception()) is not None:
                self.judge.find(f"{task.get_name()} ended with {error!r}")
        await self.end(gate)

    async def end(self, gate: Gatekeeper) -> None:
        """Check that nothing waits, close the gate, and check that nothing is left."""
        statistics = gate.statistics()
        if statistics.waiting or statistics.turns:
            self.judge.find(f"before the end, {statistics}")
        for held in self.queues:
            held.outcomes.check_end(held.queue, self.requests[held.name])
        await gate.aclose()
        if self.lots.random() < 0.5:
            await self.clock.sleep(3 * 86_400.0)
        statistics = gate.statistics()
        if (
            statistics.waiting
            or statistics.turns
            or statistics.in_flight
            or statistics.origins
            or statistics.entries_bytes
        ):
            self.judge.find(f"after the end, {statistics}")

    async def produces(self, held: Queued) -> None:
        """Put URLs, at first many, then some later."""
        lots, seen = self.lots, held.outcomes.put
        for _ in range(lots.randint(2, 25)):
            if lots.random() < 0.15:
                await self.clock.sleep(lots.choice((0.3, 2.0, 30.0, 300.0)))
            url = self.world.url()
            held.outcomes.put.add(url)
            try:
                await held.queue.put(url, url, lots.choice((0, 0, 1, -1)))
            except (QueueClosed, ClosedError):
                seen.discard(url)
                return

    # Own workers

    async def works(self, held: Queued) -> None:
        for _ in range(self.lots.choice((1, 2, 5))):
            self.hire(held)
        await self.produces(held)
        held.open = False
        held.queue.close()
        while held.workers:
            worker = held.workers[-1]
            await asyncio.wait([worker])
            await asyncio.sleep(0)  # a cancelled worker has been replaced
            held.workers.remove(worker)
            if not worker.cancelled() and (error := worker.exception()) is not None:
                self.judge.find(f"a worker of {held.name} ended with {error!r}")

    def hire(self, held: Queued) -> None:
        worker = asyncio.create_task(self.work(held), name=f"worker of {held.name}")
        worker.add_done_callback(lambda worker: self.hire(held) if worker.cancelled() else None)
        held.workers.append(worker)

    async def work(self, held: Queued) -> None:
        while True:
            try:
                async with held.queue.turn() as turn:
                    held.outcomes.ends(turn.item or "", "is handed out")
                    await self.requested(turn, held.agent, held.name)
            except (QueueClosed, ClosedError):
                return
            if self.lots.random() < 0.2:
                await self.clock.sleep(self.lots.choice((0.0, 1.0, 10.0)))

    async def requested(self, turn: Any, agent: str, name: str, **more: Any) -> None:
        with suppress(Failed):
            async with self.world.get(turn.url, agent, name, **more) as page:
                turn.observe(page.status, page.headers)
                if self.lots.random() < 0.8:
                    await page.read()

    # Crawls

    async def crawls(self, held: Queued) -> None:
        lots, queue, outcomes = self.lots, held.queue, held.outcomes
        seen = Seen()
        outcomes.put = seen
        producing = asyncio.create_task(self.fills(held))
        if lots.random() < 0.7 and not held.maxsize:
            await asyncio.wait([producing])
        web = lots.choice((AiohttpStyleWeb, HttpxStyleWeb))(self.world, held.name)
        options = self.limits()
        for _ in range(8):
            if self.ended or (not queue.qsize() and producing.done()):
                break
            held.crawl = asyncio.create_task(self.crawl(held, web, seen, options), name=f"crawl of {held.name}")
            await asyncio.wait([held.crawl])
            if held.crawl.cancelled():
                outcomes.cancelled += 1
                continue
            if isinstance(error := held.crawl.exception(), ClosedError):
                outcomes.cancelled += 1
                break
            if error is not None:
                self.judge.find(f"the crawl of {held.name} ended with {error!r}")
                break
            if {"max_pages", "max_time_s"} & options.keys():
                break
            while not producing.done() and not queue.qsize():
                await self.clock.sleep(1.0)
        producing.cancel()
        await asyncio.wait([producing])

    async def fills(self, held: Queued) -> None:
        """Put URLs and sitemaps before a crawl, during it, or both."""
        lots, listed = self.lots, set()
        for _ in range(lots.randint(1, 12)):
            if lots.random() < 0.15:
                await self.clock.sleep(lots.choice((0.3, 2.0, 30.0)))
            url = self.world.url()
            origin = split(url)[0]
            try:
                if lots.random() < 0.05 and origin not in listed:
                    listed.add(origin)
                    await held.queue.put_sitemaps(origin)
                else:
                    await held.queue.put(url)
            except (QueueClosed, ClosedError):
                return

    def limits(self) -> dict[str, Any]:
        lots = self.lots
        drawn: dict[str, Any] = {
            "max_pages": lots.randint(1, 20),
            "max_pages_per_host": lots.randint(1, 8),
            "depth": lots.randint(0, 2),
            "max_time_s": lots.choice((5.0, 100.0, 2000.0)),
            "allow": [lots.choice(("a.example", "/a", ".example", "/private"))],
            "deny": [lots.choice(("b.example", "/h", "/c/"))],
        }
        return {name: value for name, value in drawn.items() if lots.random() < 0.2}

    async def crawl(self, held: Queued, web: Any, seen: Seen, options: dict[str, Any]) -> None:
        lots, judge, outcomes = self.lots, self.judge, held.outcomes
        started, handed, per_host, records = self.clock.monotonic(), 0, Counter[str](), Counter[str]()
        judge.note(f"{held.name}: crawl with {options}")

        async def handle(page: CrawlPage[str], response: Any) -> object:
            nonlocal handed
            handed += 1
            host = split(page.url)[1]
            per_host[host] += 1
            if handed > options.get("max_pages", handed):
                judge.find(f"{held.name}: {page.url} is page {handed}, beyond max_pages")
            if per_host[host] > options.get("max_pages_per_host", per_host[host]):
                judge.find(f"{held.name}: {page.url} is page {per_host[host]} of its host, beyond max_pages_per_host")
            if per_host[host] == options.get("max_pages_per_host"):
                outcomes.full.add(host)
            if page.depth > options.get("depth", page.depth):
                judge.find(f"{held.name}: {page.url} is at depth {page.depth}")
            if lots.random() < 0.3:
                await self.clock.sleep(lots.choice((0.1, 1.0, 5.0)))
            if isinstance(web, AiohttpStyleWeb) and lots.random() < 0.8:
                await response.read()
            for link in self.world.links() if len(seen) < 50 else ():
                if page.put(link):
                    judge.note(f"{held.name}: {link} is put by {page.url}")
                    if not self.follows(link, options) or page.depth + 1 > options.get("depth", 99):
                        judge.find(f"{held.name}: {link} is queued against the limits")
            if lots.random() < 0.05:
                raise ValueError("drawn")
            return {"more": 1}

        def out(record: dict[str, Any]) -> None:
            records[record["outcome"]] += 1
            if record["outcome"] not in {"disallowed", "given-up", "refused"}:
                outcomes.ends(record["url"], f"is {record['outcome']}, {record['status']}")

        report = await held.queue.crawl(web, handle, workers=lots.choice((1, 3, 20)), seen=seen, out=out, **options)
        judge.note(f"{held.name}: {report}")
        outcomes.check_report(report, records, held.queue)
        if handed != report.pages + sum(1 for _ in ()) and handed < report.pages:
            judge.find(f"{held.name}: {handed} pages were handled, and {report.pages} are reported")
        elapsed_s = self.clock.monotonic() - started
        if elapsed_s < 0.0:
            judge.find("time went back")

    @staticmethod
    def follows(url: str, options: dict[str, Any]) -> bool:
        """Read ``allow`` and ``deny`` literally."""

        def matches(pattern: str) -> bool:
            _, host, target = split(url)
            if pattern.startswith("."):
                return host.endswith(pattern)
            return target.startswith(pattern) if pattern.startswith("/") else host == pattern

        if "allow" in options and not any(map(matches, options["allow"])):
            return False
        return not any(map(matches, options.get("deny", ())))

    # Tasks beside the queues

    async def takes_turns(self, view: Any, agent: str, name: str) -> None:
        lots = self.lots
        for _ in range(lots.randint(1, 15)):
            if self.ended:
                return
            await self.clock.sleep(lots.choice((0.0, 0.0, 1.0, 40.0)))
            url, exempt = self.world.url(), lots.random() < 0.1
            self.number += 1
            number, since = self.number, self.clock.monotonic()
            max_wait_s = lots.choice((None, None, None, 30.0, 0.0))
            try:
                if lots.random() < 0.2:
                    turn = view.try_turn(url)
                    if isinstance(turn, NotYet):
                        continue
                    with turn:
                        await self.requested(turn, agent, name, since=since)
                    continue
                self.turns[number] = url, agent, since, exempt
                async with view.turn(url, max_wait_s=max_wait_s, exempt="drawn" if exempt else None) as turn:
                    del self.turns[number]
                    await self.requested(turn, agent, name, since=since, exempt=exempt)
            except (Disallowed, TooFar) as error:
                self.judge.note(f"{name}: {error}")
            except ClosedError:
                return
            finally:
                self.turns.pop(number, None)

    async def meddles(self) -> None:
        lots = self.lots
        steps = lots.choice((0, 3, 15, 40))
        for _ in range(steps):
            await self.clock.sleep(lots.choice((0.0, 0.2, 1.0, 5.0, 30.0, 200.0)))
            if self.ended:
                return
            what = lots.choice(
                ("site", "site", "policy", "forget", "store", "cancel", "cancel", "look", "check", "rest")
            )
            origin = lots.choice(list(self.world.sites))
            with suppress(ClosedError):
                if what == "site":
                    self.world.sites[origin].change()
                elif what == "policy":
                    self.set_policy(split(origin)[1])
                elif what == "forget":
                    self.judge.forgets(origin)
                    await self.gate.forget(origin)
                elif what == "store" and self.store is not None:
                    self.store.change()
                    self.judge.note(f"the store fails: {self.store.failing}, {self.store.late_s} s late")
                elif what == "cancel":
                    self.cancel()
                elif what == "look":
                    (
                        repr(self.gate),
                        [repr(held.queue) for held in self.queues],
                        self.gate.hosts(),
                        self.gate.statistics(),
                    )
                elif what == "check":
                    self.gate.peek(self.world.url())
                    await asyncio.wait([asyncio.ensure_future(self.checks(self.world.url()))])
                elif what == "rest" and lots.random() < 0.1:
                    await self.clock.sleep(lots.choice((4_000.0, 90_000.0)))

    async def checks(self, url: str) -> None:
        with suppress(ClosedError):
            await self.gate.check(url)

    def set_policy(self, host: str) -> None:
        lots = self.lots
        policy = lots.choice(
            (
                None,
                None,
                HostPolicy(deny=True),
                HostPolicy(exempt=True, reason="drawn"),
                HostPolicy(min_delay_s=lots.choice((0.0, 2.0, 7.0))),
                HostPolicy(max_concurrent=lots.choice((1, 2, 3))),
            )
        )
        self.judge.sets_policy(host, policy)
        self.gate.set_policy(host, policy)

    def cancel(self) -> None:
        lots = self.lots
        held = lots.choice(self.queues)
        if held.crawl is not None:
            if lots.random() < 0.3:
                self.judge.note(f"cancel the crawl of {held.name}")
                held.crawl.cancel()
        elif held.workers:
            self.judge.note(f"cancel a worker of {held.name}")
            lots.choice(held.workers).cancel()

    # Time

    async def drive(self) -> None:
        """Let all tasks run until they wait, then move the clock to the next timer, until the story ends."""
        clock, ready = self.clock, asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        story = asyncio.create_task(self.story(), name="story")
        steps = 0
        while not story.done():
            steps += 1
            if len(self.judge.findings) > MAX_FINDINGS:
                break
            for _ in range(MAX_ROUNDS):
                await asyncio.sleep(0)
                if not ready:
                    break
            else:
                self.stop("tasks run and run, and no time passes")
                break
            if story.done():
                break
            timers = clock._timers
            while timers and timers[0][2].cancelled:
                __import__("heapq").heappop(timers)
            if not timers:
                self.stop("everything waits, and no timer is set")
                break
            if timers[0][0] > LIMIT_S or steps > MAX_STEPS:
                self.stop("the run does not end")
                break
            if timers[0][0] > clock.monotonic():
                self.look()
            clock._fire_until(timers[0][0])
        story.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        if not self.judge.findings:
            await story
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            timers = [timer.callback for _, _, timer in clock._timers if not timer.cancelled]
            if tasks or timers:
                self.judge.find(f"left at the end: {tasks} {timers}")

    def stop(self, why: str) -> None:
        waiting = [f"{held.queue!r}" for held in self.queues]
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        self.judge.find(f"{why}; {waiting}, turns {list(self.turns.values())}, tasks {tasks}")

    def look(self) -> None:
        """Judge, before time passes, whether a host is idle that should not be."""
        waiting = [(url, agent, since, exempt, "a task") for url, agent, since, exempt in self.turns.values()]
        for held in self.queues:
            statistics = held.queue.statistics()
            left = held.queue.left() if statistics.waiting else ()
            deferred, now = {str(origin) for origin in held.queue.deferred()} if left else (), self.clock.monotonic()
            held.waiting = {url: held.waiting.get(url, now) for url, _, _ in left if split(url)[0] not in deferred}
            waiting += [(url, held.agent, since, False, held.name) for url, since in held.waiting.items()]
        self.judge.idle_too_long(waiting)

    def run(self) -> Result:
        random.seed(self.seed)  # the jitter of the library
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: self.judge.find(f"asyncio reports {context}"))
        judge, log = self.judge, self.requests
        answers, ends = judge.page_starts, judge.page_ends

        def page_ends(page: Any) -> None:
            log[page.why][page.url].append(page.status or 0)
            ends(page)

        judge.page_ends = page_ends  # type: ignore[method-assign]
        del answers
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                loop.run_until_complete(self.drive())
                if not judge.findings and [one for one in loop._scheduled if not one.cancelled()]:  # type: ignore[attr-defined]
                    judge.find("handles are left in the event loop")
            finally:
                self.abandon(loop)
                loop.close()
        return Result(self.seed, judge.findings, judge.trace, judge.pages, judge.fetches, self.clock.monotonic())

    @staticmethod
    def abandon(loop: asyncio.AbstractEventLoop) -> None:
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
