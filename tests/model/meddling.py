"""What changes in the middle of a run: sites, policies, stores; and what the program forgets, cancels and asks."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from politesse import ClosedError, HostPolicy
from tests.model.world import split

if TYPE_CHECKING:
    from tests.model.runs import Run


class Meddler:
    """Meddles now and then."""

    def __init__(self, run: "Run") -> None:
        self.all, self.lots, self.clock, self.world, self.judge = run, run.lots, run.clock, run.world, run.judge

    async def run(self) -> None:
        lots = self.lots
        acts = [self.change_site, self.change_site, self.set_policy, self.forget, self.change_store]
        acts += [self.cancel, self.cancel, self.look, self.check, self.pause]
        for _ in range(lots.choice((0, 3, 15, 40))):
            await self.clock.sleep(lots.choice((0.0, 0.2, 1.0, 5.0, 30.0, 200.0)))
            if self.all.ended:
                return
            with suppress(ClosedError):
                await lots.choice(acts)()

    def origin(self) -> str:
        return self.lots.choice(list(self.world.sites))

    async def change_site(self) -> None:
        self.world.sites[self.origin()].change()

    async def set_policy(self) -> None:
        lots, host = self.lots, split(self.origin())[1]
        policies = (
            None,
            None,
            HostPolicy(deny=True),
            HostPolicy(exempt=True, reason="drawn"),
            HostPolicy(min_delay_s=lots.choice((0.0, 2.0, 7.0))),
            HostPolicy(max_concurrent=lots.choice((1, 2, 3))),
        )
        policy = lots.choice(policies)
        self.judge.sets_policy(host, policy)
        for gate in self.all.gates:
            gate.set_policy(host, policy)

    async def forget(self) -> None:
        origin, gate = self.origin(), self.lots.choice(self.all.gates)
        self.judge.forgets(gate.identity.user_agent, origin)
        await gate.forget(origin)

    async def change_store(self) -> None:
        for store in self.all.stores:
            store.change()
            self.judge.note(f"the store fails: {sorted(store.failing)}, {store.late_s} s late")
        self.judge.stores_change(fail=any(store.failing or store.late_s > 5.0 for store in self.all.stores))

    async def cancel(self) -> None:
        if self.lots.random() < 0.3:
            self.all.beside.cancel()
        else:
            self.lots.choice(self.all.queues).cancel()

    async def look(self) -> None:
        """Ask for all that is told without a wait."""
        for gate in self.all.gates:
            assert repr(gate)
            assert gate.hosts() is not None
            gate.peek(self.world.url())
        for queued in self.all.queues:
            assert repr(queued.queue)

    async def check(self) -> None:
        checking = asyncio.create_task(self.lots.choice(self.all.gates).check(self.world.url()), name="check")
        self.all.tasks.append(checking)
        if self.lots.random() < 0.3:
            await asyncio.sleep(0)
            checking.cancel()

    async def pause(self) -> None:
        """Let hours pass, now and then."""
        if self.lots.random() < 0.1:
            await self.clock.sleep(self.lots.choice((4_000.0, 90_000.0)))
