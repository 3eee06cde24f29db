"""Turns and responses that are dropped before their end: their hosts are given back."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import aiohttp
import httpx
import pytest

from politesse import Gatekeeper, NotYet, PacingOptions
from politesse.events import TurnDropped
from politesse.integrations.aiohttp import PoliteSession
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import events_of
from tests.support.programs import run_code
from tests.support.sites import Site, turns, until
from tests.wire.clients.clients import Session

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def dropped(gate: Gatekeeper) -> list[TurnDropped]:
    """The events of turns that were dropped."""
    return events_of(gate, TurnDropped)


async def test_turn_that_is_dropped_within_its_request_gives_its_host_back(
    site: Site, gate: Gatekeeper, dropped: list[TurnDropped]
) -> None:
    with pytest.warns(ResourceWarning, match=r"<Turn .*/page: under way> was dropped"):
        (await gate.take_turn(f"{site.base}/page")).__enter__()
    assert turns(gate) == 0
    await until(lambda: dropped == [TurnDropped(site.host, f"{site.base}/page")])


async def test_turn_that_is_dropped_within_its_request_counts_as_a_request() -> None:
    url, clock = "https://a.example/page", ManualClock()
    fetcher = ScriptedFetcher({"https://a.example": 404})
    agent, pacing = "ExampleBot/1.0 (+https://example.com/bot)", PacingOptions(min_delay_s=5.0)
    async with Gatekeeper(agent, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        await gate.check(url)
        clock.advance(10.0)
        with pytest.warns(ResourceWarning, match="was dropped"):
            (await gate.take_turn(url)).__enter__()
        answer = gate.try_turn(url)
        assert isinstance(answer, NotYet)
        assert answer.not_before == clock.wall() + 5.0


async def turn_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return (await gate.take_turn(url)).__enter__()


async def response_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return await polite.get(url)


@pytest.mark.parametrize("request_page", [turn_of, response_of])
async def test_turn_or_response_that_another_thread_collects_gives_its_host_back(
    site: Site,
    gate: Gatekeeper,
    polite: PoliteSession,
    dropped: list[TurnDropped],
    request_page: Callable[[PoliteSession, Gatekeeper, str], Awaitable[object]],
) -> None:
    cycle: list[object] = [await request_page(polite, gate, f"{site.base}/slow")]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        with pytest.warns(ResourceWarning, match="/slow.* was dropped"):
            await asyncio.get_running_loop().run_in_executor(None, gc.collect)
    finally:
        gc.enable()
    await until(lambda: turns(gate) == 0)
    assert len(dropped) == 1


async def test_response_that_is_dropped_unread_gives_its_host_back(
    site: Site, gate: Gatekeeper, session: Session, dropped: list[TurnDropped]
) -> None:
    with pytest.warns(ResourceWarning, match=r"a response of http://.*/slow was dropped"):
        await session.get(f"{site.base}/slow")
    assert turns(gate) == 0
    async with session.get(f"{site.base}/page") as response:
        assert await response.text() == "page /page"
    assert dropped == [TurnDropped(site.host, f"{site.base}/slow")]


async def test_response_in_the_turn_of_the_queue_that_is_dropped_ends_that_turn(
    site: Site, gate: Gatekeeper, polite: PoliteSession, dropped: list[TurnDropped]
) -> None:
    async with gate.turn(f"{site.base}/slow") as turn:
        with pytest.warns(ResourceWarning, match="/slow was dropped"):
            await polite.get(turn.url)
        assert turns(gate) == 0
    await until(lambda: len(dropped) == 1)


async def test_content_of_a_response_that_is_dropped_can_be_read(
    site: Site, gate: Gatekeeper, session: Session, dropped: list[TurnDropped]
) -> None:
    content = (await session.get(f"{site.base}/slow")).content
    gc.collect()
    assert turns(gate) == 1
    site.go_on.set()
    assert await content.read() == b"first last"
    await until(lambda: turns(gate) == 0)
    assert dropped == []


async def test_response_that_is_dropped_partly_read_ends_its_turn_with_its_body(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    await (await polite.get(f"{site.base}/slow")).content.readany()
    gc.collect()
    assert turns(gate) == 1  # the server is still at it
    site.go_on.set()
    await until(lambda: turns(gate) == 0)


@pytest.mark.realtime
async def test_response_that_is_dropped_partly_read_is_closed_after_the_total_timeout(
    site: Site, gate: Gatekeeper, polite: PoliteSession, dropped: list[TurnDropped]
) -> None:
    response = await polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(total=1.0))
    await response.content.readany()
    del response
    assert turns(gate) == 1
    with pytest.warns(ResourceWarning, match="/slow was neither read to its end nor released"):
        await until(lambda: turns(gate) == 0)
    await until(lambda: len(dropped) == 1)  # the event may come a step after the end
    await polite.get(f"{site.base}/page")


@pytest.mark.realtime
async def test_response_that_is_dropped_partly_read_ends_its_turn_when_its_body_breaks_off(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    response = await polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(sock_read=1.0))
    await response.content.readany()
    del response
    assert turns(gate) == 1
    with pytest.warns(ResourceWarning, match="/slow was dropped"):
        await until(lambda: gc.collect() >= 0 and not turns(gate))


def test_turn_that_is_dropped_as_the_interpreter_exits_is_reported() -> None:
    program = """
import asyncio
from politesse import Gatekeeper, NotYet, PacingOptions
from politesse.testing import ScriptedFetcher
async def take():
    gate = Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher())
    kept.append((await gate.take_turn("https://example.com/\\u202e")).__enter__())
kept = []
asyncio.run(take())
"""
    told = run_code(program, warnings="always").stderr
    assert r"<Turn https://example.com/\u202e: under way> was dropped" in told
    assert "Exception ignored" not in told


async def drop_stream(client: httpx.AsyncClient, url: str) -> None:
    await client.send(client.build_request("GET", url), stream=True)
    gc.collect()


async def test_stream_of_httpx_that_is_dropped_is_reported(
    site: Site, gate: Gatekeeper, client: httpx.AsyncClient, dropped: list[TurnDropped]
) -> None:
    with pytest.warns(ResourceWarning, match=r"a response of .*/slow was dropped"):
        await drop_stream(client, f"{site.base}/slow")
    await until(lambda: turns(gate) == 0 and bool(dropped))
    assert dropped == [TurnDropped(site.host, f"{site.base}/slow")]


async def test_response_that_was_read_or_released_is_not_reported(
    site: Site, gate: Gatekeeper, session: Session, dropped: list[TurnDropped]
) -> None:
    assert await (await session.get(f"{site.base}/page")).text() == "page /page"
    (await session.get(f"{site.base}/slow")).release()
    (await session.get(f"{site.base}/slow")).close()
    async with session.get(f"{site.base}/slow") as response:
        assert type(response).__name__ == "ClientResponse"
    assert turns(gate) == 0
    assert dropped == []
