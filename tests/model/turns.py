"""Tasks that take turns beside the queues."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from politesse import ClosedError, Disallowed, NotYet, TooFar, Turn
from tests.model.world import Failed

if TYPE_CHECKING:
    from tests.model.judge import Waiting
    from tests.model.runs import Run


class Tasks:
    """Tasks that take turns.

    Attributes:
        waiting: the requests that wait, by number.
    """

    def __init__(self, run: "Run") -> None:
        self.all, self.lots, self.clock, self.world, self.judge = run, run.lots, run.clock, run.world, run.judge
        self.waiting: dict[int, Waiting] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.numbers = 0

    def start(self, agent: str, name: str) -> None:
        task = self.all.start(self.take(agent, name), name)
        self.tasks.append(task)
        task.add_done_callback(
            lambda task: self.start(agent, name) if task.cancelled() and not self.all.ended else None
        )

    def cancel(self) -> None:
        """Cancel a task; another one takes its place."""
        if self.tasks:
            self.lots.choice(self.tasks).cancel()

    async def take(self, agent: str, name: str) -> None:
        """Take some turns."""
        lots = self.lots
        for _ in range(lots.randint(1, 15)):
            if self.all.ended:
                return
            await self.clock.sleep(lots.choice((0.0, 0.0, 1.0, 40.0)))
            try:
                await self.take_one(agent, name)
            except (Disallowed, TooFar) as error:
                self.judge.note(f"{name}: {error}")
            except ClosedError:
                return

    async def take_one(self, agent: str, name: str) -> None:
        lots, view, url = self.lots, self.all.views[agent], self.world.url()
        self.numbers += 1
        number, since, exempt = self.numbers, self.clock.monotonic(), lots.random() < 0.1
        if lots.random() < 0.2:
            turn = view.try_turn(url)
            if not isinstance(turn, NotYet):
                await self.request(turn, agent, name, since)
            return
        self.waiting[number] = url, agent, since, exempt, name
        max_wait_s = lots.choice((None, None, None, 30.0, 0.0))
        ask, in_block = lots.choice(((view.turn, True), (view.turn, True), (view.take_turn, False)))
        asked = ask(url, max_wait_s=max_wait_s, exempt="drawn" if exempt else None)
        async with AsyncExitStack() as block:
            try:
                turn = await (block.enter_async_context(asked) if in_block else asked)
            finally:
                del self.waiting[number]
            if lots.random() < 0.1:
                self.judge.note(f"{name}: gives back its turn at {url}")
                turn.give_back()
            else:
                await self.request(turn, agent, name, since, exempt=exempt)

    async def request(self, turn: Turn, agent: str, name: str, since: float, *, exempt: bool = False) -> None:
        with turn, suppress(Failed):
            async with self.world.get(turn.url, agent, name, since=since, exempt=exempt) as page:
                turn.observe(page.status, page.headers)
                if self.lots.random() < 0.8:
                    await page.read()
