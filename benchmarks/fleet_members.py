"""Many processes of a fleet on one real Redis: how soon they start, what they cost while idle, and after FLUSHALL.

A few programs hold all members. Each member has a link with connections of its own, as a process has, and a host of its
own. ``python -m benchmarks.fleet_members URL COUNT`` is such a program: it requests a page with each member, at once
and again for each line that it reads. It prints when it begins, and when the last member had its turn, by the monotonic
clock of the machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from redis import Redis

from benchmarks.figures import figure
from benchmarks.fleet_model.server import running
from benchmarks.fleet_peers import pacer_at
from benchmarks.table import table
from politesse._pacing.fleet.wire import wire_to
from politesse._pacing.hosts import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from politesse._pacing.hosts import Hosts

_MEMBERS: Final = 1_000
_PROGRAMS: Final = 4
_GATES: Final = 200
_IDLE_S: Final = 20
_SETTLED_S: Final = 6.0  # until each member knows that it has no requests


class Program:
    """A program with members."""

    def __init__(self, url: str, members: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - it is ours
            [sys.executable, "-m", "benchmarks.fleet_members", url, str(members)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def printed(self) -> float:
        """Wait for the next line."""
        return float(next(iter(self._process.stdout or ())))

    def go_on(self) -> None:
        """Let each member request another page."""
        print(file=self._process.stdin, flush=True)


def run(settings: Settings) -> Iterator[Reported]:
    """Measure all members in several programs, and then the members of one program."""
    members, gates = settings.size(_MEMBERS, 8), settings.size(_GATES, 2)
    with running() as server, Redis.from_url(server.url) as client, ExitStack() as stack:
        time.sleep(2.0)  # a young server may have forgotten the last request to a host
        programs = [stack.enter_context(Program(server.url, members // _PROGRAMS)) for _ in range(_PROGRAMS)]
        begin_mono = min(program.printed() for program in programs)
        started_s = max(program.printed() for program in programs) - begin_mono
        start_s = server.read().cpu_s
        time.sleep(_SETTLED_S)
        client.config_resetstat()
        before, idle_mono = server.read(), time.monotonic()
        time.sleep(settings.size(_IDLE_S, 12))  # a member reports within ten seconds
        spent, idle_s = server.read().since(before), time.monotonic() - idle_mono
        scripts: dict[str, Any] = client.info("commandstats")["cmdstat_evalsha"]
        lost_mono = time.monotonic()
        client.flushall()
        for program in programs:
            program.go_on()
        lost_s = max(program.printed() for program in programs) - lost_mono
    with running() as server:
        time.sleep(2.0)
        with Program(server.url, gates) as program:
            gates_s = -program.printed() + program.printed()
    idle = spent.cpu_s / idle_s
    out, back = spent.bytes_in / spent.scripts, spent.bytes_out / spent.scripts
    rows = [
        (f"{members} start, until each had a turn", f"{started_s:.1f} s"),
        ("", f"{start_s:.1f} s of Redis"),
        (f"{members} idle, share of a processor of Redis", f"{100.0 * idle:.1f} %"),
        ("a report, of the processor of Redis", f"{1e6 * spent.cpu_s / spent.scripts:.0f} us"),
        ("its script", f"{scripts['usec_per_call']:.0f} us"),
        ("its bytes, to Redis and back", f"{out:.0f}, {back:.0f}"),
        ("FLUSHALL, until each had a turn", f"{lost_s:.1f} s"),
        (f"{gates} start in one program, until each had a turn", f"{gates_s:.1f} s"),
    ]
    yield table(f"fleet: {members} members on {server.name}", ("", ""), rows)
    yield figure("members/idle", [idle], "of a processor")
    yield figure("members/start", [started_s], "s")
    yield figure("members/FLUSHALL", [lost_s], "s")
    yield figure("members/one program", [gates_s], "s")


async def visit(pacer: Hosts, host: str) -> None:
    permit = await pacer.start(TurnRequest(host, host, "ExampleBot"))
    permit.observe(200, {})
    permit.end()


async def main(url: str, count: int) -> None:
    """Request a page with each member at once, and again for each line of the input."""
    print(time.monotonic(), flush=True)
    pacers = [pacer_at(wire_to(url), 1.0) for _ in range(count)]
    while True:
        await asyncio.gather(*(visit(pacer, f"host{id(pacer)}.example") for pacer in pacers))
        print(time.monotonic(), flush=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
