"""The cost of politeness in an aiohttp request: processor time of the client, beside a session without it.

The server is another process, robots.txt is at hand, and every URL is new. There are as many hosts as workers, because
politesse makes one request to a host at a time; its pace is 0. Protego behind a dict finds the parser by scheme and
authority, and asks it. "A middleware that does nothing" shows the cost of the call itself. ``queue.crawl`` takes its
URLs from a queue; the time to put them there counts.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

import aiohttp
from protego import Protego

from benchmarks.agreement import Disagreement
from benchmarks.engines import AGENT
from benchmarks.figures import figure
from benchmarks.loopback import serving
from benchmarks.many_hosts.crawlers import UNPACED, USER_AGENT, LoopbackResolver, connector
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave
from politesse import Disallowed, Gatekeeper, PoliteQueue, PoliteSession
from politesse.integrations.aiohttp import RobotsMiddleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings
    from benchmarks.timing import Samples
    from politesse.queue import CrawlPage

    Web = aiohttp.ClientSession | PoliteSession
    Ask = Callable[[Sequence[str], int], Awaitable[None]]

_WORKERS: Final = (1, 20)
_ROUNDS_FOR_ONE: Final = 4
_RULES: Final = [
    *(f"Disallow: /department-{number}/private/" for number in range(36)),
    *(f"Allow: /department-{number}/private/terms" for number in range(5)),
    *(f"Disallow: /*/print-{number}$" for number in range(5)),
    *(f"Disallow: /*?session{number}=" for number in range(4)),
]
_ROBOTS: Final = "\n".join(["User-agent: *", *_RULES, ""])
_FORBIDDEN: Final = "/department-7/private/1"

_BARE: Final = "bare aiohttp"
_IDLE: Final = "a middleware that does nothing"
_PROTEGO: Final = "Protego behind a dict"
_MIDDLEWARE: Final = "RobotsMiddleware"
_SESSION: Final = "PoliteSession"
_QUEUE: Final = "queue.crawl over PoliteSession"


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    rounds, requests = settings.rounds * settings.size(_ROUNDS_FOR_ONE, 1), settings.size(200, 20)
    yield (
        f"session: GETs answered on loopback, robots.txt of {len(_RULES)} rules at hand; {rounds} interleaved rounds "
        f"of {requests} requests each, by {' and by '.join(map(str, _WORKERS))} workers"
    )
    with serving([_ROBOTS.encode()]) as port, asyncio.Runner() as runner:
        hosts = [f"http://site{number}.example:{port}" for number in range(max(_WORKERS))]
        stack = AsyncExitStack()
        try:
            askers = runner.run(_askers(stack, hosts))
            runner.run(_same_verdicts(askers, hosts[0]))
            for workers in _WORKERS:
                site = _Requests(runner, hosts[:workers], requests)
                load = os.getloadavg()[0]
                contenders = [
                    Contender(name, partial(site.prepare, ask, place))
                    for place, (name, ask) in enumerate(askers.items())
                ]
                yield from _report(interleave(contenders, rounds), workers)
                yield (
                    f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores"
                )
        finally:
            runner.run(stack.aclose())


@dataclass(frozen=True, slots=True)
class _Requests:
    """Attributes:
    runner: of the sessions.
    hosts: one for each worker.
    requests: how many a round has.
    """

    runner: asyncio.Runner
    hosts: Sequence[str]
    requests: int

    def prepare(self, ask: Ask, place: int, number: int) -> Task:
        urls = [
            f"{self.hosts[at % len(self.hosts)]}/department-{place}/shelf-{number}/product-{at}?colour={at % 7}"
            for at in range(self.requests)
        ]
        return Task(lambda: self.runner.run(_done(ask(urls, len(self.hosts)))), self.requests)


async def _done(asked: Awaitable[None]) -> None:
    await asked


async def _askers(stack: AsyncExitStack, hosts: Sequence[str]) -> dict[str, Ask]:
    gate = await stack.enter_async_context(
        Gatekeeper(USER_AGENT, token=AGENT, pacing=UNPACED, resolver=LoopbackResolver())
    )
    await gate.check_batch(f"{host}/" for host in hosts)
    parsers = {tuple(host.split("://")): Protego.parse(_ROBOTS) for host in hosts}

    async def plain(*middlewares: ClientMiddlewareType) -> Ask:
        web = aiohttp.ClientSession(connector=connector(), middlewares=middlewares, headers={"User-Agent": USER_AGENT})
        return partial(_ask, await stack.enter_async_context(web))

    polite = await stack.enter_async_context(PoliteSession(gate, connector=connector()))
    return {
        _BARE: await plain(),
        _IDLE: await plain(_idle),
        _PROTEGO: await plain(_behind_a_dict(parsers)),
        _MIDDLEWARE: await plain(RobotsMiddleware(gate)),
        _SESSION: partial(_ask, polite),
        _QUEUE: partial(_crawl, gate, polite),
    }


async def _idle(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    return await handler(request)


def _behind_a_dict(parsers: Mapping[tuple[str, ...], Protego]) -> ClientMiddlewareType:
    async def ask(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        url = request.url
        if not parsers[url.scheme, url.authority].can_fetch(str(url), AGENT):
            raise aiohttp.ClientError(f"{url} is disallowed")
        return await handler(request)

    return ask


async def _ask(web: Web, urls: Sequence[str], workers: int) -> None:
    await asyncio.gather(*(_work(web, urls[place::workers]) for place in range(workers)))


async def _work(web: Web, urls: Sequence[str]) -> None:
    for url in urls:
        async with web.get(url) as response:
            await response.read()


async def _crawl(gate: Gatekeeper, web: PoliteSession, urls: Sequence[str], workers: int) -> None:
    async def handle(_: CrawlPage[None], response: ClientResponse) -> None:
        await response.read()

    queue: PoliteQueue[None] = PoliteQueue(gate)
    for url in urls:
        await queue.put(url)
    report = await queue.crawl(web, handle, workers=workers)
    if report.pages != len(urls):
        raise aiohttp.ClientError(f"{report}")


async def _same_verdicts(askers: Mapping[str, Ask], host: str) -> None:
    """Raise Disagreement unless all clients that read robots.txt refuse the forbidden page, and no others."""
    refused = set()
    for name, ask in askers.items():
        try:
            await ask([f"{host}{_FORBIDDEN}"], 1)
        except (aiohttp.ClientError, Disallowed):
            refused.add(name)
    if refused != set(askers) - {_BARE, _IDLE}:
        raise Disagreement(f"{_FORBIDDEN} was refused by {sorted(refused)}")


def _report(samples: Samples, workers: int) -> Iterator[Reported]:
    rows = [(_BARE, f"{samples.median_us(_BARE):.1f}", *[""] * 4)]
    like_protego = added_us(samples, _PROTEGO)
    figures = []
    for name in (_IDLE, _PROTEGO, _MIDDLEWARE, _SESSION, _QUEUE):
        more_us = added_us(samples, name)
        added = figure(name, more_us, "us")
        ratio = figure(
            f"session/added by {name}, workers: {workers}", [more / median(like_protego) for more in more_us]
        )
        figures.append(ratio)
        rows.append(
            (
                name,
                f"{samples.median_us(name):.1f}",
                f"{added.value:+.1f}",
                added.spread,
                f"{ratio.value:.2f}",
                f"{median(samples.ratios(name, _PROTEGO)):.2f}",
            )
        )
    header = (
        *("", "us a\nrequest", "us\nadded", "quartiles"),
        *("x added by\nProtego", "x all of\nProtego's"),
    )
    yield table(f"session: processor time of the client, workers: {workers}", header, rows)
    yield from figures
    if workers == 1:
        yield figure("session/added", [more / median(like_protego) for more in added_us(samples, _SESSION)])
    else:
        yield figure("session/crawl", samples.ratios(_QUEUE, _BARE))


def added_us(samples: Samples, name: str) -> list[float]:
    """Return the microseconds that each round took more than the bare one."""
    pairs = zip(samples.seconds[name], samples.seconds[_BARE], strict=True)
    return [1e6 * (seconds - bare) for seconds, bare in pairs]
