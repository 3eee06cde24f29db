"""Interleaved rounds: A B C, A B C, ..., so that a slow spell of the machine falls on all alike."""

from __future__ import annotations

import gc
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

T = TypeVar("T")

_PROGRESS_EVERY_S: Final = 10.0


def counted(name: str, items: Sequence[T]) -> Iterator[T]:
    """Yield the items; say on standard error how many are done, every few seconds."""
    said = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - said > _PROGRESS_EVERY_S:
            said = time.monotonic()
            print(f"{name} {done} of {len(items)}", file=sys.stderr, flush=True)
        yield item


@dataclass(frozen=True, slots=True)
class Task:
    """Attributes:
    run: the function that is timed.
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
        return median(self.ratios(name, against))

    def ratios(self, name: str, against: str) -> list[float]:
        """Return how many times longer than ``against`` it took, round by round."""
        return [a / b for a, b in zip(self.seconds[name], self.seconds[against], strict=True)]


@dataclass(frozen=True, slots=True)
class Parts:
    """The seconds and operations of each contender in each part of the work. A round may lack a part.

    Attributes:
        taken: by contender and part, then by round.
    """

    taken: dict[tuple[str, Hashable], dict[int, tuple[float, int]]] = field(default_factory=dict)

    def samples(self, chosen: Callable[[Hashable], bool] = lambda _: True) -> Samples:
        """Return the samples of some parts taken together."""
        samples = Samples()
        for name in dict.fromkeys(name for name, _ in self.taken):
            rounds: dict[int, list[tuple[float, int]]] = {}
            for (one, part), pairs in self.taken.items():
                if one == name and chosen(part):
                    for number, pair in pairs.items():
                        rounds.setdefault(number, []).append(pair)
            for _, of_round in sorted(rounds.items()):
                samples.add(name, sum(seconds for seconds, _ in of_round) / sum(count for _, count in of_round))
        return samples


def interleave_parts(prepare: Callable[[int], Mapping[tuple[str, Hashable], Task]], rounds: int) -> Parts:
    """Time every part by every contender once a round, after a round that only warms up.

    Args:
        prepare: makes the tasks of a round, by contender and part; not timed. The contenders take turns at each part.
        rounds: how many.
    """
    parts = Parts()
    for number in counted("round", range(rounds + 1)):
        tasks = prepare(number)
        with older_objects_frozen():
            for key, task in tasks.items():
                seconds = _cpu_seconds(task.run)
                if number:
                    parts.taken.setdefault(key, {})[number] = seconds, task.operations
    return parts


def interleave(contenders: Sequence[Contender], rounds: int) -> Samples:
    """Time every contender once a round, after a round that only warms up."""
    samples = Samples()
    for number in counted("round", range(rounds + 1)):
        for contender in contenders:
            task = contender.prepare(number)
            seconds = cpu_seconds(task.run)
            if number:
                samples.add(contender.name, seconds / task.operations)
    return samples


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call: other processes do not count."""
    with older_objects_frozen():
        return _cpu_seconds(run)


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Keep the garbage collector on, so that code that leaves cycles behind pays for them, but hide older objects."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start
