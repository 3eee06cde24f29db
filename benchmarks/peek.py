"""The whole question on a cached origin: look-up by URL, decision, Verdict; beside peers that do less.

The bare row is handed the right parser of each site and answers with a bool. Protego behind a dict does what a crawler
has to do around it: find the parser by the URL's scheme and authority.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from benchmarks.agreement import Disagreement, agreed
from benchmarks.corpus import describe
from benchmarks.engines import AGENT, POLITESSE, ask_url, ask_url_and_agent, parse_protego
from benchmarks.figures import figure
from benchmarks.questions import Asker, Questions, report
from benchmarks.table import table
from benchmarks.timing import interleave_parts
from benchmarks.urls import fresh_urls
from politesse import CacheOptions, Gatekeeper
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from protego import Protego

    from benchmarks.agreement import Agreed
    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Work
    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from benchmarks.timing import Parts, Samples

_PEEK: Final = "Gatekeeper.peek"
_BARE: Final = "Protego, the right parser given"
_DICT: Final = "Protego behind a dict and urlsplit"


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    corpus = agreed(settings)
    files = corpus.files
    yield f"peek: {describe(files, settings.corpus)}"
    with asyncio.Runner() as runner:
        gate = runner.run(filled(files))
        _same_verdicts(corpus, gate, settings.seed)
        parts = runner.run(_timed(files, gate, settings))
    yield from report("peek", parts, _PEEK, _DICT)
    samples = parts.samples()
    yield _summary(samples)
    yield figure("peek/each", [1e6 * seconds for seconds in samples.seconds[_PEEK]], "us")


async def _timed(files: Sequence[RobotsFile], gate: Gatekeeper, settings: Settings) -> Parts:
    """Time all three in the gate's event loop, as a crawler asks."""
    parsers = {("https", file.host): parse_protego(file) for file in files}
    askers = {
        _PEEK: Asker([gate.peek] * len(files), ask_url),
        _BARE: Asker([parser.can_fetch for parser in parsers.values()], ask_url_and_agent),
        _DICT: Asker([gate.peek] * len(files), partial(_behind_a_dict, parsers)),
    }
    return interleave_parts(Questions(files, askers, settings.seed).prepare, settings.rounds)


async def filled(files: Sequence[RobotsFile]) -> Gatekeeper:
    """Return a gate that has the robots.txt of each file, however many they are."""
    fetcher = ScriptedFetcher({f"https://{file.host}": file.body for file in files})
    gate = Gatekeeper(
        "ExampleBot/1.0 (+https://example.com/bot)",
        token=AGENT,
        fetcher=fetcher,
        cache=CacheOptions(max_entries_bytes=sys.maxsize),
    )
    await gate.check_batch(f"https://{file.host}/" for file in files)
    return gate


def _behind_a_dict(parsers: Mapping[tuple[str, str], Protego], work: Work) -> None:
    for _, url in work:
        parts = urlsplit(url)
        parsers[parts.scheme, parts.netloc].can_fetch(url, AGENT)


def _same_verdicts(corpus: Agreed, gate: Gatekeeper, seed: int) -> None:
    """Raise Disagreement unless peek answers every URL, and as the rules do."""
    for file, judge in zip(corpus.files, corpus.judges[POLITESSE.name], strict=True):
        urls = fresh_urls(file, seed, 0)
        peeked = [None if verdict is None else verdict.allowed for verdict in map(gate.peek, urls)]
        if peeked != judge(urls):
            raise Disagreement(f"peek and rules.allowed differ on {file.host}")


def _summary(samples: Samples) -> str:
    rows = []
    for name in (_PEEK, _BARE, _DICT):
        one = figure(name, samples.ratios(name, _PEEK))
        rows.append((name, f"{samples.median_us(name):.2f}", f"{one.value:.2f}", one.spread))
    return table("peek: mixed URLs", ("", "us a question", "x politesse", "quartiles"), rows)
