"""Where file and URL are both hostile: what one decision costs beside a peer. How long it stops the loop: ``stalls``.

A decision costs at most pattern octets times URL octets, and where that is too much, the budget for matching.

Each case is measured in full size, with half the patterns and with half the target. Proportional growth is a ratio of
2 between full and half. Single steps may be above: branch prediction gives up on needles of more than 50 octets, and a
search through U octets has U - P places. What must stay bounded is the time divided by P times U. Where the budget is
reached, nothing grows, and the verdict is not the peer's: a Disallow that was not compared counts as matching.

Engines run in processes of their own, each with a time limit.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.corpus import RobotsFile
from benchmarks.engines import ENGINES, POLITESSE, PROTEGO
from benchmarks.guard import within
from benchmarks.hostile_cases import CASES
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.engines import Engine
    from benchmarks.hostile_cases import Case, Input
    from benchmarks.settings import Settings

LIMIT_S: Final = 60.0
_SAMPLE_S: Final = 0.005
_MAX_CALLS: Final = 1_000

_FULL: Final = "full"
_HALF_PATTERNS: Final = "half the patterns"
_HALF_TARGET: Final = "half the target"


class Outcome(NamedTuple):
    """Attributes:
    pattern_octets: of all patterns of the file.
    target_octets: of the URL without scheme and host.
    microseconds: of a decision.
    doubled_patterns: how many times longer it takes than with half the patterns.
    doubled_target: how many times longer it takes than with half the target.
    allowed: the verdict.
    """

    pattern_octets: int
    target_octets: int
    microseconds: float
    doubled_patterns: float
    doubled_target: float
    allowed: bool

    @property
    def ns_per_product(self) -> float:
        return 1_000 * self.microseconds / (self.pattern_octets * self.target_octets)


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    outcomes = {
        name: [within(LIMIT_S, _probe, engine.name, name, settings.rounds) for engine in (POLITESSE, PROTEGO)]
        for name in list(CASES)[: settings.size(len(CASES), 1)]
    }
    yield table(
        "hostile: one decision; P octets of patterns, U of target; x 2P, x 2U: times as long after doubling",
        ("", "P", "U", *_HEADER, *(f"{PROTEGO.name}\n{column}" for column in _HEADER), "x politesse", "verdicts"),
        [_row(name, *pair) for name, pair in outcomes.items()],
    )
    bound = max((ours.ns_per_product for ours, _ in outcomes.values() if ours), default=0.0)
    yield (
        f"The most that {POLITESSE.name} takes for an octet of pattern and an octet of target: {bound:.3f} ns.\n"
        "x politesse: of the medians; here the engines do not take turns."
    )


_HEADER: Final = ("us", "ns/PU", "x 2P", "x 2U")


def _row(name: str, ours: Outcome | None, theirs: Outcome | None) -> list[str]:
    sizes = [f"{size:,}" for size in (ours.pattern_octets, ours.target_octets)] if ours else ["", ""]
    compared = ["", ""]
    if ours and theirs:
        ratio = theirs.microseconds / ours.microseconds
        compared = [f"{ratio:.2f}", "same" if ours.allowed == theirs.allowed else "differ"]
    return [name, *sizes, *_cells(ours), *_cells(theirs), *compared]


def _cells(outcome: Outcome | None) -> list[str]:
    if outcome is None:
        return [f"> {LIMIT_S:.0f} s", "", "", ""]
    return [
        f"{outcome.microseconds:,.1f}",
        f"{outcome.ns_per_product:.5f}",
        f"{outcome.doubled_patterns:.2f}",
        f"{outcome.doubled_target:.2f}",
    ]


def _probe(engine_name: str, case_name: str, rounds: int) -> Outcome:
    """Measure one engine on one case; runs in a process of its own."""
    engine = next(engine for engine in ENGINES if engine.name == engine_name)
    inputs = _inputs(CASES[case_name])
    samples = interleave([_contender(name, engine, one) for name, one in inputs.items()], rounds)
    patterns, target = inputs[_FULL]
    return Outcome(
        pattern_octets=sum(map(len, patterns)),
        target_octets=len(target),
        microseconds=samples.median_us(_FULL),
        doubled_patterns=samples.ratio(_FULL, _HALF_PATTERNS),
        doubled_target=samples.ratio(_FULL, _HALF_TARGET),
        allowed=engine.judge(_file(patterns))([f"https://www.example.com{target}"])[0],
    )


def _inputs(case: Case) -> dict[str, Input]:
    patterns, target = case.pattern_octets, case.target_octets
    return {
        _FULL: case.build(patterns, target),
        _HALF_PATTERNS: case.build(patterns // 2, target),
        _HALF_TARGET: case.build(patterns, target // 2),
    }


def _contender(name: str, engine: Engine, given: Input) -> Contender:
    patterns, target = given
    judge = engine.judge(_file(patterns))
    numbers = count()

    def fresh(calls: int) -> list[str]:
        # Another host each time, so that no cache knows the URL.
        return [f"https://host{next(numbers)}.example{target}" for _ in range(calls)]

    judge(fresh(1))
    urls = fresh(1)
    start = time.perf_counter()
    judge(urls)
    calls = min(max(round(_SAMPLE_S / (time.perf_counter() - start)), 1), _MAX_CALLS)

    return Contender(name, lambda _: Task(partial(judge, fresh(calls)), calls))


def _file(patterns: list[str]) -> RobotsFile:
    body = "User-agent: *\n" + "".join(f"Disallow:{pattern}\n" for pattern in patterns)
    return RobotsFile("www.example.com", body.encode(), body, tuple(patterns))
