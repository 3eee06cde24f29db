"""What it costs to wait in line: processor time for a permit, memory for a host, and the share of the rate permitted.

Beside it, what crawlers use instead: an aiolimiter for each host, whose limit counts from start to start, and an
asyncio.Lock for each host, held through a sleep. Neither counts from the end of a request, hears a server, or lets
go of a host that nobody asks for any more.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Final, Protocol

from aiolimiter import AsyncLimiter

from benchmarks.table import table
from benchmarks.timing import Contender, Samples, Task, interleave
from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse.clock import SystemClock
from politesse.ports import TurnRequest
from politesse.testing import ManualClock
from politesse.verdict import NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.settings import Settings

CPU_TARGET: Final = 0.5
"""At most so much of aiolimiter's processor time for a permit."""

BYTES_TARGET: Final = 100
"""At most so many for a host that is idle."""

RATE_TARGET: Final = 0.95
"""At least so much of the rate that the interval permits."""

_TASKS: Final = 1_000
_HOSTS: Final = 200
_TURNS_EACH: Final = 4
_INTERVAL_S: Final = 0.05
_TURNS: Final = 20_000
_IDLE_HOSTS: Final = 10_000

_AGENT: Final = "ExampleBot"
_POLITESSE: Final = "politesse, LocalPacer"
_AIOLIMITER: Final = "aiolimiter, one a host"
_LOCK: Final = "asyncio.Lock + sleep, one a host"


class Line(Protocol):
    """Hosts, and a way to wait for each."""

    async def turn(self, host: str) -> float:
        """Wait for a turn, and take it; return when that was."""


class PolitesseLine:
    def __init__(self, interval_s: float) -> None:
        self.pacer = LocalPacer(PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0), clock=SystemClock())

    async def turn(self, host: str) -> float:
        permit = await self.pacer.start(TurnRequest(host, host, _AGENT))
        permit.observe(200)
        permit.end()
        return permit.started_mono


class AiolimiterLine:
    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.limiters: dict[str, AsyncLimiter] = {}

    async def turn(self, host: str) -> float:
        limiter = self.limiters.get(host)
        if limiter is None:
            limiter = self.limiters[host] = AsyncLimiter(1, self.interval_s)
        async with limiter:
            return time.monotonic()


class LockLine:
    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.locks: dict[str, asyncio.Lock] = {}
        self.ended: dict[str, float] = {}

    async def turn(self, host: str) -> float:
        lock = self.locks.get(host)
        if lock is None:
            lock = self.locks[host] = asyncio.Lock()
        async with lock:
            wait_s = self.ended.get(host, 0.0) + self.interval_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            now = self.ended[host] = time.monotonic()
            return now


_LINES: Final[dict[str, Callable[[float], Line]]] = {
    _POLITESSE: PolitesseLine,
    _AIOLIMITER: AiolimiterLine,
    _LOCK: LockLine,
}


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    yield (
        f"pacing: {_TASKS:,} tasks that wait at {_HOSTS} hosts, {_INTERVAL_S:g} s apart; "
        f"medians of {settings.rounds} interleaved rounds"
    )
    rates: dict[str, list[float]] = {name: [] for name in _LINES}
    waiting = interleave([Contender(name, _waiting(name, rates[name])) for name in _LINES], settings.rounds)
    idle = interleave([Contender(name, _idle(name)) for name in _LINES], settings.rounds)
    yield _times(waiting, idle, rates)
    yield _memory()


def _waiting(name: str, rates: list[float]) -> Callable[[int], Task]:
    """Tasks that take turn after turn, so that all of them wait; the share of the permitted rate is noted."""

    async def crawl() -> None:
        line = _LINES[name](_INTERVAL_S)

        async def work(host: str) -> list[float]:
            return [await line.turn(host) for _ in range(_TURNS_EACH)]

        hosts = [f"host{number % _HOSTS}.example" for number in range(_TASKS)]
        stamps = await asyncio.gather(*map(work, hosts))
        for host in range(_HOSTS):
            mine = sorted(chain.from_iterable(stamps[host::_HOSTS]))
            rates.append((len(mine) - 1) * _INTERVAL_S / (mine[-1] - mine[0]))

    return lambda _: Task(lambda: asyncio.run(crawl()), _TASKS * _TURNS_EACH)


def _idle(name: str) -> Callable[[int], Task]:
    """A turn at a host that nobody waits for: each is one of its own."""

    async def crawl(hosts: list[str]) -> None:
        line = _LINES[name](_INTERVAL_S)
        for host in hosts:
            await line.turn(host)

    def prepare(number: int) -> Task:
        hosts = [f"host{host}.round{number}.example" for host in range(_TURNS)]
        return Task(lambda: asyncio.run(crawl(hosts)), _TURNS)

    return prepare


def _times(waiting: Samples, idle: Samples, rates: dict[str, list[float]]) -> str:
    rows = []
    for name in _LINES:
        rate = median(rates[name])
        rows.append(
            (
                name,
                f"{waiting.median_us(name):.1f}",
                f"{waiting.ratio(name, _AIOLIMITER):.2f}",
                f"{idle.median_us(name):.2f}",
                f"{100 * rate:.1f} %",
            )
        )
    header = ("", "us a permit,\nothers waiting", "x\naiolimiter", "us an\nidle turn", "of the rate\npermitted")
    cpu, reached = waiting.ratio(_POLITESSE, _AIOLIMITER), median(rates[_POLITESSE])
    return "\n".join(
        [
            table("pacing: processor time and rate", header, rows),
            f"at most {CPU_TARGET:g} of aiolimiter's time: {_met(ok=cpu <= CPU_TARGET)}",
            f"at least {100 * RATE_TARGET:g} % of the rate: {_met(ok=reached >= RATE_TARGET)}",
        ]
    )


def _memory() -> str:
    after, within = asyncio.run(_pacer_bytes(wait_s=2.0)), asyncio.run(_pacer_bytes(wait_s=0.0))
    peers = {name: asyncio.run(_peer_bytes(name)) for name in (_AIOLIMITER, _LOCK)}
    rows = [
        (f"{_POLITESSE}: its interval is over", f"{after:,.0f}"),
        (f"{_POLITESSE}: within its interval", f"{within:,.0f}"),
        *((name, f"{octets:,.0f}") for name, octets in peers.items()),
    ]
    met = _met(ok=after <= BYTES_TARGET)
    return "\n".join(
        [
            table(f"pacing: memory of {_IDLE_HOSTS:,} hosts, each asked once", ("", "bytes a host"), rows),
            f"at most {BYTES_TARGET} bytes for an idle host: {met}",
        ]
    )


async def _pacer_bytes(wait_s: float) -> float:
    clock = ManualClock()
    pacer = LocalPacer(PacingOptions(), clock=clock)
    hosts = [f"host{number}.example" for number in range(_IDLE_HOSTS)]

    def ask_all() -> None:
        for host in hosts:
            permit = pacer.try_start(TurnRequest(host, host, _AGENT))
            if isinstance(permit, NotYet):
                raise TypeError(f"the first request to {host} must start at once, not {permit}")
            permit.observe(200)
            permit.end()
        clock.advance(wait_s)

    try:
        return _bytes_of(ask_all) / _IDLE_HOSTS
    finally:
        await pacer.aclose()


async def _peer_bytes(name: str) -> float:
    line = _LINES[name](1.0)
    hosts = [f"host{number}.example" for number in range(_IDLE_HOSTS)]
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for host in hosts:
            await line.turn(host)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / _IDLE_HOSTS
    finally:
        tracemalloc.stop()


def _bytes_of(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def _met(*, ok: bool) -> str:
    return "met" if ok else "missed"
