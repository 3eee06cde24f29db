"""What the tests of the queue share: hosts, and workers that are watched."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from politesse.queue import PoliteQueue, QueueClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from politesse.testing import ManualClock

A = "https://a.example"
B = "https://b.example"
C = "https://c.example"
UA = "ExampleBot/1.0 (+https://example.com/bot)"
NOTHING = "User-agent: *\nDisallow: /\n"


class Log:
    """Workers, and what they were handed: URL and moment."""

    def __init__(self, queue: PoliteQueue[object], clock: ManualClock) -> None:
        self.queue = queue
        self.clock = clock
        self.handed: list[tuple[str, float]] = []
        self.in_block: Counter[str] = Counter()

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.handed]

    async def work(self, took_s: float = 0.0) -> None:
        while True:
            try:
                async with self.queue.turn() as turn:
                    self.handed.append((turn.url, self.clock.monotonic()))
                    host = turn.url.split("/")[2]
                    self.in_block[host] += 1
                    assert self.in_block[host] == 1
                    await self.clock.sleep(took_s)
                    self.in_block[host] -= 1
                    turn.observe(200)
            except QueueClosed:
                return

    async def drain(self, workers: int = 1, took_s: float = 0.0) -> None:
        self.queue.close()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self.work(took_s))


async def settle(rounds: int = 8) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


@asynccontextmanager
async def waiting(queue: PoliteQueue[object], count: int = 1) -> AsyncIterator[list[asyncio.Task[str]]]:
    """Tasks that wait for a turn."""

    async def one() -> str:
        async with queue.turn() as turn:
            return turn.url

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await settle()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
