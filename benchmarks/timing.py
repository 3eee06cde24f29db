"""Interleaved rounds: A B C, A B C, ..., so that a slow spell of the machine falls on all alike."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Task:
    """Attributes:
    run: what is timed.
    operations: how many operations it does; times are given for one.
    """

    run: Callable[[], object]
    operations: int


@dataclass(frozen=True, slots=True)
class Contender:
    """Attributes:
    name: the key of its samples.
    prepare: makes the task of a round; not timed.
    """

    name: str
    prepare: Callable[[int], Task]


@dataclass(frozen=True, slots=True)
class Samples:
    """The seconds of one operation, for each contender and round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def median_us(self, name: str) -> float:
        return 1e6 * median(self.seconds[name])

    def ratio(self, name: str, against: str) -> float:
        """Return how many times longer than ``against`` it took: the median over the rounds."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[against], strict=True))


def interleave(contenders: Sequence[Contender], rounds: int) -> Samples:
    """Time every contender once a round, after a round that only warms up."""
    samples = Samples()
    for number in range(rounds + 1):
        for contender in contenders:
            task = contender.prepare(number)
            seconds = cpu_seconds(task.run)
            if number:
                samples.add(contender.name, seconds / task.operations)
    return samples


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call: that of other processes is nobody's fault.

    The garbage collector stays on, for a parser that leaves cycles behind shall pay for them, but it does not get to
    see what was there before.
    """
    gc.collect()
    gc.freeze()
    try:
        start = time.process_time()
        run()
        return time.process_time() - start
    finally:
        gc.unfreeze()
