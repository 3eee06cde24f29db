"""One decision is counted for each question asked, by every way to ask it."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import httpx
import pytest

from politesse import Disallowed, Gatekeeper, HostPolicy
from politesse.events import Decided
from politesse.integrations.aiohttp import PoliteSession, RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from tests.support.sites import Site, slow_gate, turns, until

pytestmark = pytest.mark.timeout(30)


async def by_session(gate: Gatekeeper, url: str) -> None:
    async with PoliteSession(gate) as web, web.get(url) as response:
        await response.read()


async def by_session_that_would_not_wait_for_ever(gate: Gatekeeper, url: str) -> None:
    async with PoliteSession(gate, max_wait_s=60) as web, web.get(url) as response:
        await response.read()


async def by_middleware(gate: Gatekeeper, url: str, *, pace: bool = False) -> None:
    async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate, pace=pace),)) as web, web.get(url) as response:
        await response.read()


async def by_middleware_with_pace(gate: Gatekeeper, url: str) -> None:
    await by_middleware(gate, url, pace=True)


async def by_transport(gate: Gatekeeper, url: str) -> None:
    async with httpx.AsyncClient(transport=PoliteTransport(gate), follow_redirects=True) as client:
        await client.get(url)


async def by_turn(gate: Gatekeeper, url: str) -> None:
    async with gate.turn(url):
        pass


async def by_turn_within_a_limit(gate: Gatekeeper, url: str) -> None:
    async with gate.turn(url, max_wait_s=60):
        pass


async def by_turn_that_a_session_uses(gate: Gatekeeper, url: str) -> None:
    async with PoliteSession(gate) as web, gate.turn(url), web.get(url) as response:
        await response.read()


async def by_turn_that_a_transport_uses(gate: Gatekeeper, url: str) -> None:
    async with httpx.AsyncClient(transport=PoliteTransport(gate)) as client, gate.turn(url):
        await client.get(url)


async def by_check(gate: Gatekeeper, url: str) -> None:
    await gate.check(url)


async def by_check_batch(gate: Gatekeeper, url: str) -> None:
    await gate.check_batch([url])


async def by_filter(gate: Gatekeeper, url: str) -> None:
    assert [item async for item, _ in gate.filter([url])] == [url]


WAYS = [
    by_session,
    by_session_that_would_not_wait_for_ever,
    by_middleware,
    by_middleware_with_pace,
    by_transport,
    by_turn,
    by_turn_within_a_limit,
    by_turn_that_a_session_uses,
    by_turn_that_a_transport_uses,
    by_check,
    by_check_batch,
    by_filter,
]


@pytest.mark.parametrize("path", ["/page", "/private"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("ask", WAYS)
async def test_question_is_counted_once(
    site: Site, gate: Gatekeeper, *, ask: Callable[[Gatekeeper, str], Awaitable[None]], known: bool, path: str
) -> None:
    if known:
        await gate.check(f"{site.base}/")
    before = gate.statistics().decisions
    decided: list[str] = []
    gate.subscribe(lambda event: decided.append(event.verdict.url) if isinstance(event, Decided) else None)
    url = f"{site.base}{path}"
    try:
        await ask(gate, url)
    except Disallowed:
        assert path == "/private"
    assert gate.statistics().decisions - before == 1
    assert decided == [url]


@pytest.mark.parametrize("ask", [by_session, by_middleware, by_middleware_with_pace, by_transport])
async def test_each_hop_is_a_question(
    site: Site, gate: Gatekeeper, ask: Callable[[Gatekeeper, str], Awaitable[None]]
) -> None:
    site.redirects["/moved"] = (302, "/page")
    await ask(gate, f"{site.base}/moved")
    assert gate.statistics().decisions == 2


@pytest.mark.realtime
@pytest.mark.parametrize("max_wait_s", [None, 60.0])
@pytest.mark.parametrize("denied", [False, True])
async def test_question_that_is_judged_again_after_the_wait_is_counted_once(
    site: Site, *, max_wait_s: float | None, denied: bool
) -> None:
    async with slow_gate(0.2) as gate, PoliteSession(gate, max_wait_s=max_wait_s) as web:
        waiting = asyncio.create_task(web.get(f"{site.base}/page"))
        await until(lambda: gate.statistics().waiting == 1)
        gate.set_policy(site.host, HostPolicy(deny=denied))  # so it is judged again
        if denied:
            with pytest.raises(Disallowed):
                await waiting
        else:
            (await waiting).close()
        assert gate.statistics().decisions == 1
        assert bool(gate.statistics().allowed) is not denied
    assert turns(gate) == 0
