"""One decision on a parsed file, with URLs never seen before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.agreement import judges, verify
from benchmarks.corpus import describe, fresh_urls, load
from benchmarks.engines import ENGINES, POLITESSE, PROTEGO
from benchmarks.table import against_target, table
from benchmarks.timing import Contender, Samples, Task, interleave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Judge
    from benchmarks.settings import Settings

TARGET: Final = 4.0
"""How many times longer Protego shall take."""

# Protego has a short cut for paths without a query; the mixture hides it.
_KINDS: Final[Mapping[str, Callable[[str], bool]]] = {
    "all URLs": lambda _: True,
    "URLs without a query": lambda url: "?" not in url,
    "URLs with a query": lambda url: "?" in url,
}


@dataclass(frozen=True, slots=True)
class _Questions:
    """One engine, and the questions it is asked in a round."""

    files: Sequence[RobotsFile]
    judges: Sequence[Judge]
    kept: Callable[[str], bool]
    seed: int

    def task(self, round_number: int) -> Task:
        work = [
            (judge, [url for url in fresh_urls(file, self.seed, round_number) if self.kept(url)])
            for judge, file in zip(self.judges, self.files, strict=True)
        ]
        return Task(lambda: _ask(work), sum(len(urls) for _, urls in work))


def _ask(work: Sequence[tuple[Judge, Sequence[str]]]) -> None:
    for judge, urls in work:
        judge(urls)


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    files = load(settings)
    judged = judges(files)
    yield f"decide: {describe(files, settings.corpus)}"
    yield verify(files, judged, settings.seed)
    for kind, kept in _KINDS.items():
        contenders = [
            Contender(name, _Questions(files, ones, kept, settings.seed).task) for name, ones in judged.items()
        ]
        yield _report(kind, interleave(contenders, settings.rounds))


def _report(kind: str, samples: Samples) -> str:
    rows = []
    for engine in ENGINES:
        ratio = samples.ratio(engine.name, POLITESSE.name)
        target = against_target(ratio, TARGET) if engine is PROTEGO else ""
        rows.append((engine.name, f"{samples.median_us(engine.name):.2f}", f"{ratio:.2f}", target))
    return table(f"decide, {kind}", ("", "us a decision", "x politesse", ""), rows)
