"""A turn of the gate, permission and pace, beside aiolimiter's permit, which is a pace only.

The tasks wait at hosts whose robots.txt is cached; every turn is for a URL of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from aiolimiter import AsyncLimiter

from benchmarks.engines import AGENT
from benchmarks.figures import figure
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave
from politesse import Gatekeeper, PacingOptions
from politesse._pacing.hosts import TurnRequest
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from benchmarks.timing import Samples

_TASKS_A_HOST: Final = 5
_TURNS_EACH: Final = 4
_INTERVAL_S: Final = 0.05
_ROBOTS: Final = b"User-agent: *\nDisallow: /private/\nDisallow: /*?session=\n"

_GATE: Final = "politesse, gate.turn"
_TRY: Final = "politesse, gate.try_turn"
_PACER: Final = "politesse, pacer alone"
_AIOLIMITER: Final = "aiolimiter, one a host"


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    tasks, idle = settings.size(1_000, 50), settings.size(2_000, 50)
    yield (
        f"turn: {tasks:,} tasks that wait at {tasks // _TASKS_A_HOST} hosts, {_INTERVAL_S:g} s apart, and {idle:,} "
        f"hosts without waiters; {settings.rounds} interleaved rounds, processor time"
    )
    hosts = [f"host{number}.example" for number in range(tasks // _TASKS_A_HOST)]
    others = [f"host{number}.example" for number in range(idle)]
    with asyncio.Runner() as runner:
        lines = _Lines(runner)
        try:
            waiting = interleave(
                [Contender(name, partial(lines.waiting, name, hosts)) for name in (_GATE, _PACER, _AIOLIMITER)],
                settings.rounds,
            )
            alone = interleave(
                [Contender(name, partial(lines.alone, name, others)) for name in (_GATE, _TRY, _PACER, _AIOLIMITER)],
                settings.rounds,
            )
        finally:
            runner.run(lines.aclose())
    yield from _report("waiting", f"{tasks:,} tasks waiting", waiting)
    yield from _report("alone", "no waiters", alone)


class _Lines:
    """Makes the lines of each round, which have granted nothing yet; gates are closed at the end."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._gates = AsyncExitStack()

    def waiting(self, name: str, hosts: list[str], _: int) -> Task:
        take = self._runner.run(self._taker(name, hosts))

        async def work(host: str) -> None:
            for _ in range(_TURNS_EACH):
                await take(host)

        async def crawl() -> None:
            await asyncio.gather(*map(work, hosts * _TASKS_A_HOST))

        return Task(lambda: self._runner.run(crawl()), len(hosts) * _TASKS_A_HOST * _TURNS_EACH)

    def alone(self, name: str, hosts: list[str], _: int) -> Task:
        take = self._runner.run(self._taker(name, hosts))

        async def crawl() -> None:
            for host in hosts:
                await take(host)

        return Task(lambda: self._runner.run(crawl()), len(hosts))

    async def _taker(self, name: str, hosts: list[str]) -> Callable[[str], Awaitable[None]]:
        """Return a function that takes a turn at a host, and ends it."""
        if name == _AIOLIMITER:
            limiters: dict[str, AsyncLimiter] = {}

            async def limited(host: str) -> None:
                limiter = limiters.get(host)
                if limiter is None:
                    limiter = limiters[host] = AsyncLimiter(1, _INTERVAL_S)
                async with limiter:
                    pass

            return limited
        gate = await self._gates.enter_async_context(
            Gatekeeper(
                "ExampleBot/1.0 (+https://example.com/bot)",
                token=AGENT,
                fetcher=ScriptedFetcher({f"https://{host}": _ROBOTS for host in hosts}),
                pacing=PacingOptions(min_delay_s=_INTERVAL_S, adaptive_factor=0.0),
            )
        )
        await gate.check_batch(f"https://{host}/" for host in hosts)
        await asyncio.sleep(2 * _INTERVAL_S)  # the request for robots.txt counts
        numbers = count()

        async def wait(host: str) -> None:
            async with gate.turn(f"https://{host}/shelf/product-{next(numbers)}") as turn:
                turn.observe(200)

        async def take_now(host: str) -> None:
            turn = gate.try_turn(f"https://{host}/shelf/product-{next(numbers)}")
            if not turn:
                raise RuntimeError(f"the first turn at {host} must start at once, not {turn}")
            with turn:
                turn.observe(200)

        async def permit(host: str) -> None:
            permit = await gate.pacer.start(TurnRequest(host, host, AGENT))
            permit.observe(200, {})
            permit.end()

        return {_GATE: wait, _TRY: take_now, _PACER: permit}[name]

    async def aclose(self) -> None:
        await self._gates.aclose()


def _report(kind: str, title: str, samples: Samples) -> Iterator[Reported]:
    rows, figures = [], []
    for name in samples.seconds:
        one = figure(f"turn/{kind}, {name}", samples.ratios(name, _AIOLIMITER))
        figures.append(one)
        rows.append((name, f"{samples.median_us(name):.1f}", f"{one.value:.2f}", one.spread))
    yield table(f"turn: {title}", ("", "us a turn", "x aiolimiter", "quartiles"), rows)
    yield figure(f"turn/{kind}", samples.ratios(_GATE, _AIOLIMITER))
    yield from figures
