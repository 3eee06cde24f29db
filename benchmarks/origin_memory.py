"""The memory of a cached origin, and how many origins the default bound holds.

Origins have files of the corpus, changed as ``origins`` describes. All the memory of a gate for an origin counts:
entry, record in the store, pace of the host. A process of its own measures each figure: resident memory without
tracemalloc, and the memory that tracemalloc counts. The spread is the spread of the steps in which origins are added.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.agreement import Disagreement
from benchmarks.corpus import describe, load
from benchmarks.engines import AGENT
from benchmarks.figures import figure
from benchmarks.many_hosts.memory import resident_bytes
from benchmarks.origins import Bodies, NumberedFetcher, url_of
from benchmarks.table import table
from politesse import CacheOptions, Gatekeeper
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from benchmarks.figures import Figure, Reported
    from benchmarks.settings import Settings

_MOST_HELD: Final = 30_000
_SAMPLES: Final = 10
_HELD_STEP: Final = 50
_EXPLAINED: Final = 200


class BoundHolds(NamedTuple):
    """Attributes:
    origins: how many were cached when the first was evicted, or all.
    estimated_bytes: the memory of an origin, as the cache estimates it.
    reached: whether an origin was evicted.
    """

    origins: int
    estimated_bytes: float
    reached: bool


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    yield f"memory: {describe(load(settings), settings.corpus)}"
    count, most = settings.size(12_000, 400), settings.size(_MOST_HELD, 400)
    spawning = multiprocessing.get_context("spawn")
    # One task a process: memory that an earlier task has freed would be used again, and not be counted.
    with ProcessPoolExecutor(2, mp_context=spawning, max_tasks_per_child=1) as processes:
        resident: Future[list[int]] = processes.submit(filled, settings, count, traced=False)
        traced = processes.submit(filled, settings, count, traced=True)
        held = processes.submit(_held, settings, most)
        yield from _report(count, resident.result(), traced.result(), held.result())


def filled(settings: Settings, count: int, *, traced: bool) -> list[int]:
    """Return how many octets are in use without an origin, and after each tenth of so many."""
    return asyncio.run(_fill(Bodies(load(settings)), count, traced=traced))


async def _fill(bodies: Bodies, count: int, *, traced: bool) -> list[int]:
    options = CacheOptions(max_entries_bytes=sys.maxsize)
    async with _gate(bodies, options) as gate:
        await gate.check("https://site0.warm.example/")
        if traced:
            tracemalloc.start()
        used = [_used(traced=traced)]
        for start in range(0, count, count // _SAMPLES):
            await _check(gate, range(start, start + count // _SAMPLES))
            used.append(_used(traced=traced))
        _explains(gate, bodies)
    return used


def _gate(bodies: Bodies, options: CacheOptions) -> Gatekeeper:
    return Gatekeeper(
        "ExampleBot/1.0 (+https://example.com/bot)", token=AGENT, fetcher=NumberedFetcher(bodies), cache=options
    )


async def _check(gate: Gatekeeper, numbers: Sequence[int]) -> None:
    await gate.check_batch(url_of(number) for number in numbers)


def _used(*, traced: bool) -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] if traced else resident_bytes()


def _explains(gate: Gatekeeper, bodies: Bodies) -> None:
    """Raise Disagreement unless verdicts of cached origins name the line of their file that decides."""
    for number in range(_EXPLAINED):
        url = url_of(number, "/search/private/1?sort=2")
        rule = RobotsTxt.parse(bodies.body(number)).rules_for(AGENT).match(url).rule
        verdict = gate.peek(url)
        if verdict is None or (rule is not None and f"line {rule.line}" not in verdict.explain()):
            raise Disagreement(f"the verdict for {url} does not name {rule}: {verdict}")


def _held(settings: Settings, most: int) -> BoundHolds:
    return asyncio.run(_fill_bound(Bodies(load(settings)), most))


async def _fill_bound(bodies: Bodies, most: int) -> BoundHolds:
    async with _gate(bodies, CacheOptions()) as gate:
        for start in range(0, most, _HELD_STEP):
            await _check(gate, range(start, start + _HELD_STEP))
            statistics = gate.statistics()
            if statistics.origins < start + _HELD_STEP:
                return BoundHolds(start, statistics.entries_bytes / statistics.origins, reached=True)
        statistics = gate.statistics()
    return BoundHolds(most, statistics.entries_bytes / statistics.origins, reached=False)


def _report(count: int, resident: Sequence[int], traced: Sequence[int], held: BoundHolds) -> Iterator[Reported]:
    figures = [_an_origin("memory/origin", resident, count), _an_origin("memory/origin, traced", traced, count)]
    rows = [
        ("resident, kB an origin", f"{figures[0].value:.2f}", figures[0].spread),
        ("traced by tracemalloc, kB an origin", f"{figures[1].value:.2f}", figures[1].spread),
        ("estimate of the cache for an origin, kB", f"{held.estimated_bytes / 1e3:.2f}", ""),
        ("origins in the default bound", f"{'' if held.reached else 'over '}{held.origins:,}", ""),
    ]
    yield table(f"memory: {count:,} cached origins", ("", "median", "quartiles"), rows)
    yield from figures
    yield figure("memory/held", [held.origins], "origins")
    yield figure("memory/estimate", [held.estimated_bytes / 1e3], "kB")


def _an_origin(name: str, used: Sequence[int], count: int) -> Figure:
    """Return the octets of an origin: of all of them, with the spread of the steps."""
    steps = figure(name, [(after - before) / (count // _SAMPLES) / 1e3 for before, after in pairwise(used)], "kB")
    return type(steps)(name, (used[-1] - used[0]) / count / 1e3, steps.low, steps.high, "kB")
