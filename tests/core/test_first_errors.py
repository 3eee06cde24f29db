"""What a newcomer does wrong: the error names the argument, and what to give."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from politesse import ConfigurationError, Gatekeeper, PacingOptions, PoliteQueue, PoliteSession
from politesse.errors import TooFar, TurnHeld
from politesse.integrations.httpx import PoliteTransport
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.scripted import SlowFetcher

UA = "newbot/1.0 (+https://example.com/bot)"
SITE = "https://a.example"


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    pacing = PacingOptions(min_delay_s=2.0)
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing) as gate:
        yield gate


async def handle(page: object, response: object) -> None:
    pass


async def test_a_session_that_is_given_none_as_url_names_the_argument(gate: Gatekeeper) -> None:
    nothing: Any = None
    async with PoliteSession(gate) as web:
        with pytest.raises(TypeError, match=r"^url=None: give a str or yarl\.URL, not NoneType"):
            await web.get(nothing)


@pytest.mark.parametrize("web", [aiohttp.ClientSession, httpx.AsyncClient, httpx2.AsyncClient])
async def test_a_class_is_no_client_of_a_crawl(gate: Gatekeeper, web: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^web=<class .*: give a PoliteSession, an aiohttp\.ClientSession"):
        await PoliteQueue[str](gate).crawl(web, handle)


async def test_a_status_that_is_no_int_names_the_argument(gate: Gatekeeper) -> None:
    status: Any = "200"
    async with gate.turn(SITE) as turn:
        with pytest.raises(TypeError, match=r"^status='200': give an int"):
            turn.observe(status)


def test_a_transport_says_how_to_use_a_user_agent() -> None:
    user_agent: Any = UA
    with pytest.raises(ConfigurationError, match=r"give a Gatekeeper, or .*, as PoliteTransport\(Gatekeeper\('newbot"):
        PoliteTransport(user_agent)


async def no_arguments() -> None:
    pass


async def three_arguments(page: object, response: object, more: object) -> None:
    pass


@pytest.mark.parametrize("wrong", [no_arguments, three_arguments, partial(handle, page=None)])
async def test_a_handle_that_does_not_take_two_arguments_is_refused_before_the_crawl(
    gate: Gatekeeper, wrong: Any
) -> None:
    async with httpx.AsyncClient() as web:
        with pytest.raises(ConfigurationError, match="give an asynchronous function of a page and a response"):
            await PoliteQueue[str](gate).crawl(web, wrong)


async def test_a_second_turn_for_the_same_url_says_that_a_turn_serves_one_request(gate: Gatekeeper) -> None:
    async with gate.turn(SITE):
        with pytest.raises(TurnHeld, match="holds a turn for it already, and a turn serves one request"):
            await gate.turn(SITE).__aenter__()


async def test_too_far_names_the_wait_that_was_given() -> None:
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=SlowFetcher(clock), clock=clock) as gate:
        with pytest.raises(TooFar, match=r"within 0\.5 s") as far:
            await gate.turn(SITE, max_wait_s=0.5).__aenter__()
    assert far.value.max_wait_s == 0.5
