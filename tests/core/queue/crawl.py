"""What the tests of the queue share: hosts, workers that log their turns, and views of the queue's inside."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from politesse import Gatekeeper, Reason, Verdict
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import apart, settle

A = "https://a.example"
B = "https://b.example"
C = "https://c.example"
UA = "ExampleBot/1.0 (+https://example.com/bot)"
NOTHING = "User-agent: *\nDisallow: /\n"

AnyQueue: TypeAlias = PoliteQueue[object]


class Refusals:
    """An ``on_disallowed`` that records its calls."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[object, Verdict]] = []

    def __call__(self, item: object, verdict: Verdict) -> None:
        self.verdicts.append((item, verdict))

    @property
    def items(self) -> list[object]:
        return [item for item, _ in self.verdicts]

    @property
    def reasons(self) -> list[Reason]:
        return [verdict.reason for _, verdict in self.verdicts]


class Queue(PoliteQueue[object]):
    """A queue in virtual time, with what it is made of.

    Attributes:
        robots: by origin: what its robots.txt says.
        refused: what the queue has refused.
    """

    def __init__(self, gate: Any, clock: ManualClock, fetcher: ScriptedFetcher, **options: Any) -> None:
        self.refused = Refusals()
        super().__init__(gate, **{"on_disallowed": self.refused, **options})
        self.gate, self.clock, self.fetcher, self.robots = gate, clock, fetcher, fetcher.answers

    def made(self, **options: Any) -> "Queue":
        """Return another queue of the gate."""
        return Queue(self.gate, self.clock, self.fetcher, **options)


@asynccontextmanager
async def made(
    clock: ManualClock | None = None, fetcher: ScriptedFetcher | None = None, **options: Any
) -> AsyncIterator[Queue]:
    """Make a queue, and a gate for it: the options are of both."""
    of_gate = {name: options.pop(name) for name in ("cache", "mode", "pacing", "store") if name in options}
    clock, fetcher = clock or ManualClock(autojump=True), fetcher or ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, **of_gate) as gate:
        yield Queue(gate, clock, fetcher, **options)


class Log:
    """Workers that log the URL and the moment of each turn."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.handed: list[tuple[str, float]] = []
        self.in_block: Counter[str] = Counter()

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.handed]

    def at(self, origin: str) -> list[float]:
        return [moment for url, moment in self.handed if url.startswith(origin)]

    async def work(self, took_s: float) -> None:
        while True:
            try:
                async with self.queue.turn() as turn:
                    self.handed.append((turn.url, self.queue.clock.monotonic()))
                    host = turn.url.split("/")[2]
                    self.in_block[host] += 1
                    assert self.in_block[host] == 1
                    await self.queue.clock.sleep(took_s)
                    self.in_block[host] -= 1
                    turn.observe(200)
            except QueueClosed:
                return


async def drained(queue: Queue, workers: int = 1, took_s: float = 0.0) -> Log:
    """Close a queue, have workers take all that it holds, and return their log."""
    log = Log(queue)
    queue.close()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(log.work(took_s))
    return log


def urls(count: int, origin: str = A) -> list[str]:
    return [f"{origin}/{place}" for place in range(count)]


async def put(queue: AnyQueue, *urls: str) -> None:
    for url in urls:
        await queue.put(url)


def left(queue: AnyQueue) -> list[str]:
    return sorted(url for url, *_ in queue.left())


async def next_url(queue: AnyQueue) -> str:
    """Take a turn, end it, and return its URL."""
    async with queue.turn() as turn:
        return turn.url


def fetch_task(origin: str) -> asyncio.Task[object]:
    """Return the task in which the queue fetches a robots.txt."""
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == f"queue: robots.txt of {origin}"]
    return task


def timers(clock: ManualClock) -> int:
    """Return how many timers run."""
    return sum(not timer.cancelled for _, _, timer in clock._timers)


@asynccontextmanager
async def waiting(queue: AnyQueue, count: int = 1) -> AsyncIterator[list[asyncio.Task[str]]]:
    """Tasks that wait for a turn."""
    tasks = [apart(next_url(queue)) for _ in range(count)]
    await settle(8)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
