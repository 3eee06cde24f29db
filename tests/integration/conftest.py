"""Two servers on loopback, a gate without a pause, and the clients that ask it; a file may serve a Site of its own."""

from collections.abc import AsyncIterator, Iterator
from secrets import token_hex

import httpx
import pytest
import trustme

from politesse import Gatekeeper
from politesse.integrations.aiohttp import PoliteSession
from tests.integration.clients import SESSIONS, Session
from tests.integration.sites import EAGER, UA, Server, Site, serving
from tests.support.httpx_libraries import Library
from tests.support.redis_servers import RedisServer


@pytest.fixture
def site_class() -> type[Server]:
    """What `site` and `other` serve."""
    return Site


@pytest.fixture
async def site(site_class: type[Server]) -> AsyncIterator[Server]:
    async for running in serving(site_class()):
        yield running


@pytest.fixture
async def other(site_class: type[Server]) -> AsyncIterator[Server]:
    """A server that is another host by its name."""
    async for running in serving(site_class(), "localhost"):
        yield running


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


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """Return a server that the test may do anything to."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """Return a prefix that no other test uses for its keys in Redis."""
    return f"{token_hex(4)}:"


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()
