"""How long a hostile site stops the event loop: one decision, one turn, one file that is read in the loop.

The times are processor time; each figure is the worst of all cases, in the median and at most.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.figures import Figure
from benchmarks.hostile_cases import ATTACKS, LINES, TIMES
from benchmarks.table import table
from benchmarks.timing import cpu_seconds
from politesse import Gatekeeper
from politesse.robots import Dialect, RobotsTxt
from politesse.testing import ManualClock, ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

AIM_MS: Final = 5.0
IN_LOOP_OCTETS: Final = 4 * 1024
"""Of a file that is still read in the loop."""

_FILE_OCTETS: Final = 500 * 1024
_TARGETS: Final = (200, 2_000, 20_000)


class Stall(NamedTuple):
    """Attributes:
    median_ms: of several runs.
    most_ms: of several runs.
    case: the input.
    """

    median_ms: float
    most_ms: float
    case: str


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    few = settings.size(sys.maxsize, 1)
    dialects, targets = list(Dialect)[:few], _TARGETS[:few]
    decisions = {name: _decision(name, settings.rounds, dialects, targets) for name in list(ATTACKS)[:few]}
    turns = {name: _turn(name, settings.rounds) for name in list(TIMES)[:few]}
    parses = {name: _parse(name, settings.rounds, dialects) for name in list(LINES)[:few]}
    for title, rows in {
        f"hostile: one decision, files of {_FILE_OCTETS:,} octets, targets of {', '.join(f'{n:,}' for n in _TARGETS)}, "
        "all dialects": decisions,
        f"hostile: one turn, files of {_FILE_OCTETS:,} octets": turns,
        f"hostile: parse and rules_for in the loop, files of {IN_LOOP_OCTETS:,} octets, all dialects": parses,
    }.items():
        yield table(
            title,
            ("", "ms, median", "ms, most", "the worst"),
            [
                (
                    name,
                    f"{one.median_ms:.2f}",
                    f"{one.most_ms:.2f}",
                    one.case,
                )
                for name, one in rows.items()
            ],
        )
    yield table(
        "hostile: the longest stall",
        ("", "ms, median", "ms, most", ""),
        [
            (
                name,
                f"{max(one.median_ms for one in rows.values()):.2f}",
                f"{max(one.most_ms for one in rows.values()):.2f}",
                _against_aim(max(one.median_ms for one in rows.values())),
            )
            for name, rows in {"a decision": decisions, "a turn": turns, "a parse": parses}.items()
        ],
    )
    worst = max(one for rows in (decisions, turns, parses) for one in rows.values())
    yield Figure("stalls/longest", worst.median_ms, worst.median_ms, worst.most_ms, "ms")


def _against_aim(stall_ms: float) -> str:
    return f"aim {AIM_MS:g} ms: {'met' if stall_ms <= AIM_MS else 'missed'}"


def _measured(run: Callable[[], object], rounds: int, case: str) -> Stall:
    run()
    seconds = [cpu_seconds(run) for _ in range(rounds)]
    return Stall(1e3 * median(seconds), 1e3 * max(seconds), case)


def _decision(name: str, rounds: int, dialects: Sequence[Dialect], targets: Sequence[int]) -> Stall:
    attack = ATTACKS[name]
    body = attack.body()
    worst = []
    for dialect in dialects:
        rules = RobotsTxt.parse(body, dialect).rules_for("x")
        for octets in targets:
            for escaped in (False, True):
                target = attack.target(octets, escaped=escaped)
                case = f"{dialect.value}, {octets:,}{', escapes' if escaped else ''}"
                worst.append(_measured(lambda: rules.judge(target), rounds, case))  # noqa: B023 - called at once
    return max(worst)


def _body(lines: Iterator[str], octets: int) -> str:
    text = "User-agent: *\n"
    parts, length = [text], len(text)
    for line in lines:
        length += len(line.encode()) + 1
        if length > octets:
            break
        parts.append(f"{line}\n")
    return "".join(parts)


def _parse(name: str, rounds: int, dialects: Sequence[Dialect]) -> Stall:
    body = _body(LINES[name](), IN_LOOP_OCTETS).encode()
    return max(
        _measured(lambda: RobotsTxt.parse(body, dialect).rules_for("x"), rounds, dialect.value)  # noqa: B023 - as above
        for dialect in dialects
    )


def _turn(name: str, rounds: int) -> Stall:
    body = _body(TIMES[name](), _FILE_OCTETS).encode()
    return asyncio.run(_turns(body, rounds))


async def _turns(body: bytes, rounds: int) -> Stall:
    clock = ManualClock()
    fetcher = ScriptedFetcher({"https://h.example": body})
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher, clock=clock) as gate:
        await gate.check("https://h.example/")

        def ask() -> None:
            turn = gate.try_turn("https://h.example/")
            if turn:
                with turn:
                    pass

        seconds = []
        for _ in range(rounds):
            clock.advance(3_600)
            seconds.append(max(cpu_seconds(ask), cpu_seconds(ask)))  # a turn, and then none
    return Stall(1e3 * median(seconds), 1e3 * max(seconds), "")
