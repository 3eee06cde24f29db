"""A gate without a pause, and the clients that ask it."""

from collections.abc import AsyncIterator

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
async def client(gate: Gatekeeper, library: Library) -> AsyncIterator[httpx.AsyncClient]:
    transport = library.polite.PoliteTransport(gate)
    async with library.http.AsyncClient(transport=transport, follow_redirects=True) as client:
        yield client
