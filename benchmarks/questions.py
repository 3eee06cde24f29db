"""The questions of a round, in parts: by the size of the file and the kind of the URL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.corpus import FileSize
from benchmarks.figures import figure
from benchmarks.table import table
from benchmarks.timing import Parts, Task
from benchmarks.urls import UrlKind, fresh_urls, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Bound, Work
    from benchmarks.figures import Figure


class Part(NamedTuple):
    """Attributes:
    size: of the files.
    kind: of the URLs.
    """

    size: FileSize
    kind: UrlKind


class Asker(NamedTuple):
    """Attributes:
    bound: for each file, the function that answers for one URL.
    ask: calls them.
    """

    bound: Sequence[Bound]
    ask: Callable[[Work], None]


@dataclass(frozen=True, slots=True)
class Questions:
    """The URLs of a part come in an order as in a crawl: few in a row belong to the same file.

    Attributes:
        files: the files of the URLs.
        askers: by contender.
        seed: of the URLs.
    """

    files: Sequence[RobotsFile]
    askers: Mapping[str, Asker]
    seed: int

    def prepare(self, round_number: int) -> dict[tuple[str, Hashable], Task]:
        """Return the tasks of a round; each contender has its own copies of the same URLs.

        Each round another contender comes first: the first one finds the caches of the processor cold.
        """
        tasks = {name: self._tasks(asker, round_number) for name, asker in self.askers.items()}
        first = round_number % len(tasks)
        names = [*tasks][first:] + [*tasks][:first]
        return {(name, part): tasks[name][part] for part in _PARTS for name in names if part in tasks[name]}

    def _tasks(self, asker: Asker, round_number: int) -> dict[Part, Task]:
        work: dict[Part, list[tuple[Bound, str]]] = {}
        for file, bound in zip(self.files, asker.bound, strict=True):
            for url in fresh_urls(file, self.seed, round_number):
                work.setdefault(Part(file.size, kind_of(url)), []).append((bound, url))
        for some in work.values():
            Random(f"{self.seed}/{round_number}").shuffle(some)
        return {part: Task(partial(asker.ask, some), len(some)) for part, some in work.items()}


_PARTS = [Part(size, kind) for size in FileSize for kind in UrlKind]


def report(title: str, parts: Parts, ours: str, peer: str) -> Iterator[str | Figure]:
    """Yield a table of the ratios to one peer, by size and kind, and its figures."""
    groups: dict[str, Callable[[Part], bool]] = {"mixed": lambda _: True}
    groups |= {size.value: partial(lambda size, part: part.size is size, size) for size in FileSize}
    groups |= {f"{kind.value}": partial(lambda kind, part: part.kind is kind, kind) for kind in UrlKind}
    rows, figures = [], []
    for group, chosen in groups.items():
        samples = parts.samples(lambda part: isinstance(part, Part) and chosen(part))  # noqa: B023 - called at once
        if not samples.seconds:
            continue
        one = figure(f"{title}/{group}", samples.ratios(peer, ours))
        figures.append(one)
        rows.append(
            (
                group,
                f"{samples.median_us(ours):.2f}",
                f"{samples.median_us(peer):.2f}",
                f"{one.value:.2f}",
                one.spread,
            )
        )
    yield table(f"{title}: {peer} against {ours}", ("", "us, ours", f"us, {peer}", "x", "quartiles"), rows)
    yield from figures
