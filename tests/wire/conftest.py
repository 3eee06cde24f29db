"""A gate without a pause, and the clients that ask it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from politesse import Gatekeeper
from politesse.integrations.aiohttp import PoliteSession
from tests.support.httpx_libraries import Library
from tests.support.sites import EAGER, UA
from tests.wire.clients.clients import SESSIONS, Session


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        yield gate


@pytest.fixture
async def polite(gate: Gatekeeper) -> AsyncIterator[PoliteSession]:
    async with PoliteSession(gate) as polite:
        yield polite


@pytest.fixture(params=["PoliteSession", "pace"])
async def session(request: pytest.FixtureRequest, gate: Gatekeeper) -> AsyncIterator[Session]:
    """Return a session that takes turns: a PoliteSession, or one of aiohttp with the middleware."""
    async with SESSIONS[request.param](gate) as session:
        yield session


@pytest.fixture
async def sessions(gate: Gatekeeper) -> AsyncIterator[dict[str, Session]]:
    """Return a PoliteSession, and sessions of aiohttp with the middleware, with and without its pace."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(make(gate)) for name, make in SESSIONS.items()}


@pytest.fixture
async def client(gate: Gatekeeper, library: Library) -> AsyncIterator[httpx.AsyncClient]:
    transport = library.polite.PoliteTransport(gate)
    async with library.http.AsyncClient(transport=transport, follow_redirects=True) as client:
        yield client
