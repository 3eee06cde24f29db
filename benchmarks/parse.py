"""Reading a file, and compiling the rules of one agent.

No contender has compiled the parts that it compiles at the first question; the row with a question includes them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.agreement import agreed
from benchmarks.corpus import describe
from benchmarks.engines import AGENT, PEERS, PROTEGO, parse_politesse, parse_protego
from benchmarks.figures import figure
from benchmarks.table import table
from benchmarks.timing import Task, interleave_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.figures import Figure, Reported
    from benchmarks.settings import Settings
    from benchmarks.timing import Parts
    from politesse.robots import RuleSet

_SMALL: Final = "up to 1 kB"
_LARGE: Final = "more than 1 kB"
_URL: Final = "https://www.example.com/department/shelf-7/product.html"


def _compiled(file: RobotsFile) -> RuleSet:
    return parse_politesse(file).rules_for(AGENT)


def _asked(file: RobotsFile) -> bool:
    return parse_politesse(file).rules_for(AGENT).allowed(_URL)


def _protego_asked(file: RobotsFile) -> bool:
    return bool(parse_protego(file).can_fetch(_URL, AGENT))


_READ: Final = "RobotsTxt.parse"
_COMPILED: Final = "RobotsTxt.parse, rules_for"
_ASKED: Final = "RobotsTxt.parse, rules_for, one question"
_PROTEGO_ASKED: Final = f"{PROTEGO.name}, one question"
_PARSERS: Final[dict[str, Callable[[RobotsFile], object]]] = {
    _READ: parse_politesse,
    _COMPILED: _compiled,
    _ASKED: _asked,
    **{peer.name: peer.parse for peer in PEERS},
    _PROTEGO_ASKED: _protego_asked,
}


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    files = agreed(settings).files
    yield f"parse: {describe(files, settings.corpus)}"
    sizes = {
        _SMALL: [file for file in files if len(file.body) <= 1_000],
        _LARGE: [file for file in files if len(file.body) > 1_000],
    }
    tasks: dict[tuple[str, Hashable], Task] = {
        (name, size): Task(partial(_parse_all, parse, some), len(some))
        for size, some in sizes.items()
        for name, parse in _PARSERS.items()
        if some
    }
    parts = interleave_parts(lambda _: tasks, settings.rounds)
    yield from _report("all files", parts, lambda _: True)
    for size in sizes:
        yield from _report(size, parts, partial(str.__eq__, size))


def _parse_all(parse: Callable[[RobotsFile], object], files: Sequence[RobotsFile]) -> None:
    for file in files:
        parse(file)


def _report(size: str, parts: Parts, chosen: Callable[[Hashable], bool]) -> Iterator[str | Figure]:
    samples = parts.samples(chosen)
    rows = []
    for name in _PARSERS:
        row = [name, f"{samples.median_us(name):.1f}"]
        for baseline in (_COMPILED, _ASKED):
            one = figure(name, samples.ratios(name, baseline))
            row += [f"{one.value:.2f}", one.spread]
        rows.append(row)
    header = ("", "us a file", "x parse,\nrules_for", "quartiles", "x parse, rules_for,\none question", "quartiles")
    yield table(f"parse: {size}", header, rows)
    yield figure(f"parse/{size}", samples.ratios(PROTEGO.name, _COMPILED))
    yield figure(f"parse/{size}, one question", samples.ratios(_PROTEGO_ASKED, _ASKED))
