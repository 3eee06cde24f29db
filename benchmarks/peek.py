"""The whole question on a cached origin: look-up by URL, decision, Verdict; beside peers that do less.

The peers' bare rows are handed the right parser of each site and answer with a bool. Protego behind a dict does what
a crawler has to do around it: find the parser by the URL's scheme and authority.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from benchmarks.agreement import judges, verify
from benchmarks.corpus import describe, fresh_urls, load
from benchmarks.engines import AGENT, POLITESSE, PROTEGO, parse_protego
from benchmarks.table import against_target, table
from benchmarks.timing import Contender, Task, interleave
from politesse import Gatekeeper
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.engines import Judge
    from benchmarks.settings import Settings
    from benchmarks.timing import Samples

TARGET: Final = 3.0
"""How many times longer Protego shall take, without any look-up."""

_PEEK: Final = "politesse, Gatekeeper.peek"
_BARE: Final = "Protego, the right parser given"
_DICT: Final = "Protego behind a dict and urlsplit"


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    files = load(settings)
    judged = judges(files)
    yield f"peek: {describe(files, settings.corpus)}"
    yield verify(files, judged, settings.seed)
    gate = asyncio.run(_filled(files))
    contenders = [
        Contender(_PEEK, _together(files, _peek(gate), settings.seed)),
        Contender(_BARE, _one_by_one(files, judged[PROTEGO.name], settings.seed)),
        Contender(_DICT, _together(files, _behind_a_dict(files), settings.seed)),
    ]
    _same_verdicts(files, judged[POLITESSE.name], gate, settings.seed)
    yield _report(interleave(contenders, settings.rounds))


async def _filled(files: Sequence[RobotsFile]) -> Gatekeeper:
    fetcher = ScriptedFetcher({f"https://{file.host}": file.body for file in files})
    gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", token=AGENT, fetcher=fetcher)
    await gate.check_batch(f"https://{file.host}/" for file in files)
    return gate


def _peek(gate: Gatekeeper) -> Callable[[Sequence[str]], object]:
    peek = gate.peek
    # As a crawler does, which looks at a verdict and lets go of it.
    return lambda urls: [True for url in urls if peek(url)]


def _behind_a_dict(files: Sequence[RobotsFile]) -> Callable[[Sequence[str]], object]:
    parsers = {("https", file.host): parse_protego(file) for file in files}

    def ask(urls: Sequence[str]) -> list[bool]:
        answers = []
        for url in urls:
            parts = urlsplit(url)
            answers.append(parsers[parts.scheme, parts.netloc].can_fetch(url, AGENT))
        return answers

    return ask


def _together(files: Sequence[RobotsFile], ask: Callable[[Sequence[str]], object], seed: int) -> Callable[[int], Task]:
    def task(round_number: int) -> Task:
        urls = [fresh_urls(file, seed, round_number) for file in files]
        return Task(lambda: [ask(some) for some in urls], sum(map(len, urls)))

    return task


def _one_by_one(files: Sequence[RobotsFile], ones: Sequence[Judge], seed: int) -> Callable[[int], Task]:
    def task(round_number: int) -> Task:
        work = [(judge, fresh_urls(file, seed, round_number)) for judge, file in zip(ones, files, strict=True)]
        return Task(lambda: [judge(urls) for judge, urls in work], sum(len(urls) for _, urls in work))

    return task


def _same_verdicts(files: Sequence[RobotsFile], ones: Sequence[Judge], gate: Gatekeeper, seed: int) -> None:
    """Raise RuntimeError unless peek answers every URL, and as the rules do."""
    for file, judge in zip(files, ones, strict=True):
        urls = fresh_urls(file, seed, 0)
        peeked = [None if verdict is None else verdict.allowed for verdict in map(gate.peek, urls)]
        if peeked != judge(urls):
            raise RuntimeError(f"peek and rules.allowed differ on {file.host}")


def _report(samples: Samples) -> str:
    rows = []
    for name in (_PEEK, _BARE, _DICT):
        ratio = samples.ratio(name, _PEEK)
        target = against_target(ratio, TARGET) if name == _BARE else ""
        rows.append((name, f"{samples.median_us(name):.2f}", f"{ratio:.2f}", target))
    return table("peek", ("", "us a question", "x politesse", ""), rows)
