"""One decision on a parsed file, with URLs never seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.agreement import agreed
from benchmarks.corpus import describe
from benchmarks.engines import ENGINES, POLITESSE, PROTEGO
from benchmarks.figures import figure
from benchmarks.questions import Asker, Questions, report
from benchmarks.table import table
from benchmarks.timing import interleave_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from benchmarks.timing import Samples


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    corpus = agreed(settings)
    yield f"decide: {describe(corpus.files, settings.corpus)}"
    yield corpus.in_words
    askers = {engine.name: Asker([engine.bind(file) for file in corpus.files], engine.ask) for engine in ENGINES}
    parts = interleave_parts(Questions(corpus.files, askers, settings.seed).prepare, settings.rounds)
    yield from report("decide", parts, POLITESSE.name, PROTEGO.name)
    yield _peers(parts.samples())


def _peers(samples: Samples) -> str:
    rows = []
    for engine in ENGINES:
        one = figure(engine.name, samples.ratios(engine.name, POLITESSE.name))
        rows.append((engine.name, f"{samples.median_us(engine.name):.2f}", f"{one.value:.2f}", one.spread))
    return table("decide: all peers, mixed URLs", ("", "us a decision", "x politesse", "quartiles"), rows)
