"""Reading a file, and compiling the rules of one agent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import describe, load
from benchmarks.engines import AGENT, PEERS, PROTEGO, parse_politesse
from benchmarks.table import against_target, table
from benchmarks.timing import Contender, Samples, Task, interleave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.corpus import RobotsFile
    from benchmarks.settings import Settings
    from politesse.robots import RuleSet

TARGET: Final = 1.5
"""How many times longer Protego shall take; it compiles the rules of all agents at once."""


def _compiled(file: RobotsFile) -> RuleSet:
    return parse_politesse(file).rules_for(AGENT)


_READ: Final = "RobotsTxt.parse"
_COMPILED: Final = "RobotsTxt.parse, rules_for"
_PARSERS: Final[dict[str, Callable[[RobotsFile], object]]] = {
    _READ: parse_politesse,
    _COMPILED: _compiled,
    **{peer.name: peer.parse for peer in PEERS},
}


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    files = load(settings)
    yield f"parse: {describe(files, settings.corpus)}"
    contenders = [Contender(name, partial(_task, parse, files)) for name, parse in _PARSERS.items()]
    yield _report(interleave(contenders, settings.rounds))


def _task(parse: Callable[[RobotsFile], object], files: Sequence[RobotsFile], _: int) -> Task:
    return Task(lambda: _parse_all(parse, files), len(files))


def _parse_all(parse: Callable[[RobotsFile], object], files: Sequence[RobotsFile]) -> None:
    for file in files:
        parse(file)


def _report(samples: Samples) -> str:
    rows = []
    for name in _PARSERS:
        row = [name, f"{samples.median_us(name):.1f}"]
        for baseline in (_READ, _COMPILED):
            ratio = samples.ratio(name, baseline)
            row += [f"{ratio:.2f}", against_target(ratio, TARGET) if name == PROTEGO.name else ""]
        rows.append(row)
    return table("parse, all files", ("", "us a file", "x parse", "", "x parse,\nrules_for", ""), rows)
