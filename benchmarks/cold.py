"""Unseen origins a second, beside clients that only get the file, and clients that read it with Protego.

A server of aiohttp in another process has the files of the corpus. Origins a second are counted by wall time, during
which the server works, too. The processor time of the client stands beside: it is the harder comparison.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from protego import Protego

from benchmarks.agreement import Disagreement, agreed
from benchmarks.engines import AGENT, POLITESSE
from benchmarks.figures import figure
from benchmarks.loopback import serving
from benchmarks.many_hosts.crawlers import UNPACED, USER_AGENT, LoopbackResolver, connector
from benchmarks.many_hosts.serving import permit_open_files
from benchmarks.table import table
from benchmarks.timing import Contender, Samples, Task, interleave
from politesse import Gatekeeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from benchmarks.agreement import Agreed
    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

    Visit = Callable[[str], Awaitable[bool | None]]

_WORKERS: Final = 20
_SPARE_FILES: Final = 200
_MOST_ORIGINS: Final = 2_000

_GET: Final = "bare GETs"
_PARSE: Final = "GETs with Protego.parse"
_CHECK: Final = "politesse, gate.check"


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    corpus = agreed(settings)
    bodies = [file.body for file in corpus.files[:_MOST_ORIGINS]]
    permit_open_files(2 * len(bodies) + _SPARE_FILES)
    yield (
        f"cold: robots.txt of {len(bodies):,} unknown hosts, {_WORKERS} at a time, on loopback; "
        f"{settings.rounds} interleaved rounds"
    )
    walls = Samples()
    with serving(bodies, by_aiohttp=True) as port:
        _same_verdicts(corpus, asyncio.run(_check(_hosts("verdicts", len(bodies), port))))
        contenders = [
            Contender(name, partial(_task, crawl, walls, name, len(bodies), port)) for name, crawl in _CRAWLS.items()
        ]
        yield from _report(interleave(contenders, settings.rounds), walls)


def _hosts(label: str, count: int, port: int) -> list[str]:
    return [f"http://site{number}.{label}.example:{port}" for number in range(count)]


def _task(
    crawl: Callable[[list[str]], Awaitable[object]], walls: Samples, name: str, count: int, port: int, number: int
) -> Task:
    hosts = _hosts(f"round{number}.by{list(_CRAWLS).index(name)}", count, port)

    async def visit() -> None:
        started = time.perf_counter()
        await crawl(hosts)
        if number:
            walls.add(name, (time.perf_counter() - started) / count)

    return Task(lambda: asyncio.run(visit()), count)


async def _get(hosts: list[str]) -> None:
    async with aiohttp.ClientSession(connector=connector(), headers={"User-Agent": USER_AGENT}) as web:

        async def visit(host: str) -> None:
            async with web.get(f"{host}/robots.txt") as response:
                await response.read()

        await _by_workers(visit, hosts)


async def _parse(hosts: list[str]) -> None:
    async with aiohttp.ClientSession(connector=connector(), headers={"User-Agent": USER_AGENT}) as web:

        async def visit(host: str) -> None:
            async with web.get(f"{host}/robots.txt") as response:
                body = await response.read()
            Protego.parse(body.decode("utf-8-sig", "ignore")).can_fetch(f"{host}/", AGENT)

        await _by_workers(visit, hosts)


async def _check(hosts: list[str]) -> dict[str, bool]:
    verdicts: dict[str, bool] = {}
    async with Gatekeeper(USER_AGENT, token=AGENT, pacing=UNPACED, resolver=LoopbackResolver()) as gate:

        async def visit(host: str) -> None:
            verdicts[host] = (await gate.check(f"{host}/")).allowed

        await _by_workers(visit, hosts)
    return verdicts


_CRAWLS: Final[dict[str, Callable[[list[str]], Awaitable[object]]]] = {_GET: _get, _PARSE: _parse, _CHECK: _check}


async def _by_workers(visit: Callable[[str], Awaitable[None]], hosts: Sequence[str]) -> None:
    unseen = iter(hosts)

    async def work() -> None:
        for host in unseen:
            await visit(host)

    await asyncio.gather(*(work() for _ in range(_WORKERS)))


def _same_verdicts(corpus: Agreed, verdicts: dict[str, bool]) -> None:
    """Raise Disagreement unless the gate answers as the rules do that it was to fetch."""
    for file, judge, (host, allowed) in zip(
        corpus.files, corpus.judges[POLITESSE.name], _in_order(verdicts), strict=False
    ):
        if judge([f"https://{file.host}/"]) != [allowed]:
            raise Disagreement(f"gate.check and rules.allowed differ on {file.host}, served as {host}")


def _in_order(verdicts: dict[str, bool]) -> list[tuple[str, bool]]:
    return sorted(verdicts.items(), key=lambda pair: int(pair[0].partition("site")[2].partition(".")[0]))


def _report(samples: Samples, walls: Samples) -> Iterator[Reported]:
    rows = []
    for name in _CRAWLS:
        row = [name]
        for one in (walls, samples):
            ratio = figure(name, one.ratios(_GET, name))
            row += [f"{1e6 / one.median_us(name):,.0f}", f"{ratio.value:.2f}", ratio.spread]
        rows.append(row)
    ratio_header = ("x bare\nGETs", "quartiles")
    header = ("", "origins\na second", *ratio_header, "origins a\nCPU second", *ratio_header)
    yield table("cold: unseen origins", header, rows)
    yield figure("cold/GETs", walls.ratios(_GET, _CHECK))
    yield figure("cold/Protego.parse", walls.ratios(_PARSE, _CHECK))
    yield figure("cold/CPU, GETs", samples.ratios(_GET, _CHECK))
    yield figure("cold/CPU, Protego.parse", samples.ratios(_PARSE, _CHECK))
