import time
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from tests.support.redis_servers import EXECUTABLES, RedisServer, begin_round, shared_server
from tests.support.tiers import first_of
from tests.wire.fleet.members import Members


@pytest.fixture(scope="session", autouse=True)
def _started() -> None:
    """Have the first server grow old while other tests run."""
    shared_server()


@pytest.fixture(scope="module", params=first_of(1, EXECUTABLES))
def server(request: pytest.FixtureRequest) -> RedisServer:
    """Return a server that is older than any interval here: a young one may have forgotten when a host was asked."""
    server = shared_server(request.param)
    time.sleep(max(0.0, 2.1 - server.age_s))
    return server


@pytest.fixture
async def fleet(server: RedisServer, prefix: str) -> AsyncIterator[Members]:
    begin_round(server.url, prefix)
    members = Members(server.url, prefix)
    yield members
    await members.aclose()


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each link look at its server often."""
    monkeypatch.setattr("politesse._pacing.fleet.link._LOOK_S", 0.2)
    monkeypatch.setattr("politesse._pacing.fleet.link._IDLE_LOOK_S", 0.2)


@pytest.fixture
def short_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no link wait for long after it has connected: no other process has to report."""
    monkeypatch.setattr("politesse._pacing.fleet.link.HOLD_S", 0.1)


@pytest.fixture
def own_server(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[RedisServer]:
    """Return a server like ``server`` that the test may do anything to; its arguments are the parameter."""
    with RedisServer(*getattr(request, "param", ()), executable=server.executable) as own:
        yield own


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client
