"""What it costs an aiohttp request to ask for permission: processor time of the client, beside a session that does not.

The server is another process, robots.txt is at hand, and every URL is new. Protego behind a dict is the middleware that
somebody would write: find the parser by scheme and authority, ask it. "A middleware that does nothing" is what aiohttp
itself takes for calling one.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Final

import aiohttp
from protego import Protego

from benchmarks.engines import AGENT
from benchmarks.loopback import serving
from benchmarks.table import table
from benchmarks.timing import Contender, Task, interleave
from politesse import Gatekeeper
from politesse.integrations.aiohttp import RobotsMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

    from benchmarks.settings import Settings
    from benchmarks.timing import Samples

TARGET_US: Final = 5.0
"""At most so many microseconds more for a request."""

_REQUESTS: Final = 200
_PAIRS_A_ROUND: Final = 10
_CONFIDENCE: Final = 0.95
_RULES: Final = [
    *(f"Disallow: /department-{number}/private/" for number in range(36)),
    *(f"Allow: /department-{number}/private/terms" for number in range(5)),
    *(f"Disallow: /*/print-{number}$" for number in range(5)),
    *(f"Disallow: /*?session{number}=" for number in range(4)),
]
_ROBOTS: Final = "\n".join(["User-agent: *", *_RULES, ""])
_FORBIDDEN: Final = "/department-7/private/1"

_BARE: Final = "bare session"
_IDLE: Final = "a middleware that does nothing"
_POLITESSE: Final = "politesse, RobotsMiddleware(gate)"
_PROTEGO: Final = "Protego behind a dict"


def run(settings: Settings) -> Iterator[str]:
    """Yield the report."""
    pairs = settings.rounds * _PAIRS_A_ROUND
    yield (
        f"aiohttp: a GET answered on loopback, robots.txt of {len(_RULES)} rules at hand; "
        f"{pairs} interleaved rounds of {_REQUESTS} requests each, one after the other"
    )
    with serving(_ROBOTS.encode()) as site, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        sessions = runner.run(_sessions(stack, site))
        try:
            runner.run(_same_verdicts(sessions, site))
            contenders = [
                Contender(name, _asking(runner, session, f"{site}/department-{place}"))
                for place, (name, session) in enumerate(sessions.items())
            ]
            load = os.getloadavg()[0]
            samples = interleave(contenders, pairs)
        finally:
            runner.run(stack.aclose())
    yield _report(samples)
    yield f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores"


async def _sessions(stack: AsyncExitStack, site: str) -> dict[str, aiohttp.ClientSession]:
    gate = await stack.enter_async_context(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", token=AGENT))
    await gate.check(f"{site}/")
    middlewares: dict[str, tuple[ClientMiddlewareType, ...]] = {
        _BARE: (),
        _IDLE: (_idle,),
        _POLITESSE: (RobotsMiddleware(gate),),
        _PROTEGO: (_behind_a_dict({tuple(site.split("://")): Protego.parse(_ROBOTS)}),),
    }
    return {
        name: await stack.enter_async_context(aiohttp.ClientSession(middlewares=some))
        for name, some in middlewares.items()
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


async def _same_verdicts(sessions: Mapping[str, aiohttp.ClientSession], site: str) -> None:
    """Raise RuntimeError unless those that judge, and no others, refuse what is forbidden."""
    refused = set()
    for name, session in sessions.items():
        try:
            await _ask(session, [f"{site}{_FORBIDDEN}"])
        except aiohttp.ClientError:
            refused.add(name)
    if refused != {_POLITESSE, _PROTEGO}:
        raise RuntimeError(f"{_FORBIDDEN} was refused by {sorted(refused)}")


def _asking(runner: asyncio.Runner, session: aiohttp.ClientSession, start: str) -> Callable[[int], Task]:
    def prepare(number: int) -> Task:
        urls = [f"{start}/shelf-{number}/product-{place}?colour={place % 7}" for place in range(_REQUESTS)]
        return Task(lambda: runner.run(_ask(session, urls)), _REQUESTS)

    return prepare


async def _ask(session: aiohttp.ClientSession, urls: Sequence[str]) -> None:
    for url in urls:
        async with session.get(url) as response:
            await response.read()


def _report(samples: Samples) -> str:
    rows = [(_BARE, f"{samples.median_us(_BARE):.1f}", "", "")]
    added: dict[str, float] = {}
    for name in (_IDLE, _POLITESSE, _PROTEGO):
        pairs = zip(samples.seconds[name], samples.seconds[_BARE], strict=True)
        more_us = [1e6 * (seconds - bare) for seconds, bare in pairs]
        added[name] = median(more_us)
        low_us, high_us = _interval(more_us)
        rows.append((name, f"{samples.median_us(name):.1f}", f"{added[name]:+.1f}", f"{low_us:+.1f} to {high_us:+.1f}"))
    header = ("", "us a\nrequest", "us\nadded", f"{100 * _CONFIDENCE:g} % interval\nof its median")
    met = "met" if added[_POLITESSE] <= TARGET_US else "missed"
    return "\n".join(
        [
            table("aiohttp: processor time of the client", header, rows),
            f"at most {TARGET_US:g} us added: {met}",
        ]
    )


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the median by the sign test: it supposes nothing about how the values are spread."""
    ordered = sorted(values)
    cut, tail = 0, 0.5 ** len(ordered)
    while tail <= (1 - _CONFIDENCE) / 2:
        cut += 1
        tail += comb(len(ordered), cut) * 0.5 ** len(ordered)
    place = max(cut - 1, 0)
    return ordered[place], ordered[-1 - place]
