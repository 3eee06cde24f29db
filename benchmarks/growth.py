"""How cost and memory grow when rules, octets or origins double: at most twofold, and a decision's not with origins.

The last column of each table is the growth in one doubling; it is 2 if the cost is proportional.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from math import log2
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.engines import AGENT
from benchmarks.figures import Series, figure
from benchmarks.many_hosts.memory import resident_bytes
from benchmarks.origins import NumberedFetcher, SmallBodies, url_of
from benchmarks.table import table
from benchmarks.timing import Contender, Task, cpu_seconds, interleave
from benchmarks.words import trail, word
from politesse import CacheOptions, Gatekeeper
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_QUESTIONS: Final = 2_000
_OCTETS_A_ROUND: Final = 100_000
_LEAST_RULES: Final = 10
_LEAST_OCTETS: Final = 1_000
_LEAST_ORIGINS: Final = 1_000
_SPARE_SHARE: Final = 2
"""Origins are added while at least one part in so many of the free memory is left."""

_BYTES_AN_ORIGIN: Final = 12_000


class Step(NamedTuple):
    """Attributes:
    size: the size that is doubled.
    costs: each a median.
    """

    size: int
    costs: tuple[float, ...]


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    yield from _reported("rules", "rules", _RULE_COSTS, _of_rules(settings))
    yield from _reported("octets", "octets of the file", _OCTET_COSTS, _of_octets(settings))
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning, max_tasks_per_child=1) as process:
        steps = process.submit(_of_origins, settings).result()
    yield from _reported("origins", "origins", _ORIGIN_COSTS, steps)


_RULE_COSTS: Final = ("us a decision", "us to parse and compile", "kB of rules")
_OCTET_COSTS: Final = ("us to parse and compile", "us to parse, no rules compiled", "kB of RobotsTxt")
_ORIGIN_COSTS: Final = ("us a peek", "us to check a new one", "MB resident")


def _doubling(least: int, most: int) -> list[int]:
    """Return sizes from the least, doubled; the last is ``most``."""
    sizes = [least]
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes if sizes[-1] == most or most < least else [*sizes, most]


def _rules_body(rules: int, seed: int) -> bytes:
    """Return a file of so many rules for all agents, a fifth of them with wildcards."""
    random = Random(f"{seed}/{rules}")
    paths = [
        f"/{word(random)}/*/{word(random)}-{number}" if number % 5 == 0 else f"/{trail(random, 1, 3)}-{number}"
        for number in range(rules)
    ]
    return "\n".join(["User-agent: *", *(f"Disallow: {path}" for path in paths), ""]).encode()


def _of_rules(settings: Settings) -> list[Step]:
    sizes = _doubling(_LEAST_RULES, settings.size(10_240, 40))
    bodies = {size: _rules_body(size, settings.seed) for size in sizes}

    def decide(size: int, number: int) -> Task:
        random = Random(f"{settings.seed}/{number}")
        allowed = RobotsTxt.parse(bodies[size]).rules_for(AGENT).allowed
        urls = [f"https://www.example.com/{trail(random, 1, 4)}-{at}" for at in range(_QUESTIONS)]
        allowed(urls[0])  # compiles the rest at the first question
        return Task(lambda: [allowed(url) for url in urls], len(urls))

    decisions = interleave([Contender(str(size), partial(decide, size)) for size in sizes], settings.rounds)
    parses = interleave([_parsing(size, bodies[size]) for size in sizes], settings.rounds)
    return [
        Step(size, (decisions.median_us(str(size)), parses.median_us(str(size)), _rules_bytes(bodies[size]) / 1e3))
        for size in sizes
    ]


def _parsing(size: int, body: bytes) -> Contender:
    return _repeated(size, lambda: RobotsTxt.parse(body).rules_for(AGENT), len(body))


def _repeated(size: int, parse: Callable[[], object], octets: int) -> Contender:
    """Return a contender that reads about as many octets as the others do."""
    times = max(1, _OCTETS_A_ROUND // octets)

    def read() -> None:
        for _ in range(times):
            parse()

    return Contender(str(size), lambda _: Task(read, times))


def _rules_bytes(body: bytes) -> int:
    def rules() -> object:
        rule_set = RobotsTxt.parse(body).rules_for(AGENT)
        rule_set.allowed("https://www.example.com/page?a=1")
        return rule_set

    return _kept_bytes(rules)


def _kept_bytes(make: Callable[[], object]) -> int:
    """Return the octets of the result of a call."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del kept
        return after - before
    finally:
        tracemalloc.stop()


def _of_octets(settings: Settings) -> list[Step]:
    """Files whose octets are mostly of other crawlers' groups, comments and sitemaps, as large ones are."""
    sizes = _doubling(_LEAST_OCTETS, settings.size(512_000, 4_000))
    bodies = {size: _octets_body(size, settings.seed) for size in sizes}
    compiled = interleave([_parsing(size, bodies[size]) for size in sizes], settings.rounds)
    read = interleave(
        [_repeated(size, partial(RobotsTxt.parse, body), size) for size, body in bodies.items()], settings.rounds
    )
    return [
        Step(
            size,
            (
                compiled.median_us(str(size)),
                read.median_us(str(size)),
                _kept_bytes(partial(RobotsTxt.parse, bodies[size])) / 1e3,
            ),
        )
        for size in sizes
    ]


def _octets_body(octets: int, seed: int) -> bytes:
    random = Random(f"{seed}/{octets}")
    lines, length = ["User-agent: *", "Disallow: /private/"], 40
    while length < octets:
        more = [
            "",
            f"User-agent: {word(random).replace('-', '')}bot",
            f"Disallow: /{trail(random, 1, 3)}",
            f"# {word(random)}",
        ]
        lines += more
        length += sum(len(line) + 1 for line in more)
    return "\n".join([*lines, ""]).encode()[:octets]


def _of_origins(settings: Settings) -> list[Step]:
    """Cache more and more origins in one gate; runs in a process of its own."""
    return asyncio.run(_cache_origins(settings))


async def _cache_origins(settings: Settings) -> list[Step]:
    steps: list[Step] = []
    options = CacheOptions(max_entries_bytes=sys.maxsize)
    fetcher = NumberedFetcher(SmallBodies())
    before, cached = resident_bytes(), 0
    async with Gatekeeper(
        "ExampleBot/1.0 (+https://example.com/bot)", token=AGENT, fetcher=fetcher, cache=options
    ) as gate:
        for size in _doubling(settings.size(_LEAST_ORIGINS, 100), settings.size(settings.origins, 400)):
            if not _fits(size - cached):
                break
            checked_us = await _check_new(gate, range(cached, size))
            cached = size
            peeked_us = [_peek_us(gate, size, f"{settings.seed}/{number}") for number in range(settings.rounds)]
            gc.collect()
            steps.append(Step(size, (median(peeked_us), checked_us, (resident_bytes() - before) / 1e6)))
    return steps


def _fits(origins: int) -> bool:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return origins * _BYTES_AN_ORIGIN * _SPARE_SHARE < free


async def _check_new(gate: Gatekeeper, numbers: range) -> float:
    """Return the microseconds of processor time for one."""
    started = time.process_time()
    await gate.check_batch(url_of(number) for number in numbers)
    return 1e6 * (time.process_time() - started) / len(numbers)


def _peek_us(gate: Gatekeeper, origins: int, seed: str) -> float:
    random = Random(seed)
    urls = [url_of(random.randrange(origins), f"/{trail(random, 1, 4)}-{at}") for at in range(_QUESTIONS)]
    peek = gate.peek
    return 1e6 * cpu_seconds(lambda: [True for url in urls if peek(url)]) / len(urls)


def _reported(name: str, label: str, costs: Sequence[str], steps: Sequence[Step]) -> Iterator[Reported]:
    rows = [[f"{step.size:,}", *(f"{cost:,.2f}" for cost in step.costs)] for step in steps]
    yield table(f"growth: doubling {label}", (label, *costs), rows)
    for at, cost in enumerate(costs):
        yield Series(f"growth/{name}, {cost}", label, cost, tuple((step.size, step.costs[at]) for step in steps))
    doublings = {cost: _growths([(step.size, step.costs[at]) for step in steps]) for at, cost in enumerate(costs)}
    yield table(
        f"growth: in one doubling of {label}",
        ("", "median", "most"),
        [(cost, f"{median(growths):.2f}", f"{max(growths):.2f}") for cost, growths in doublings.items() if growths],
    )
    yield from (figure(f"growth/{name}, {cost}", growths) for cost, growths in doublings.items() if growths)


def _growths(points: Sequence[tuple[int, float]]) -> list[float]:
    """Return by how much the cost grows in each doubling."""
    return [
        (after / before) ** (1 / log2(size / smaller))
        for (smaller, before), (size, after) in pairwise(points)
        if before > 0 and after > 0
    ]
