"""Threads of several processes, in a fleet."""

from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from yarl import URL

from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.sites import Seen, Site, serving

pytestmark = pytest.mark.realtime

DELAY_S = 0.05
HOSTS = 20
PROCESSES = 2


@pytest.fixture
async def everywhere() -> AsyncIterator[Site]:
    """Return a site at all addresses of this machine, each of which is another host."""
    async for running in serving(Site(), address="0.0.0.0"):  # noqa: S104 - 127.0.0.1 to 127.0.0.20
        yield running


@pytest.mark.full
async def test_threads_of_two_processes_keep_one_pace(server: RedisServer, prefix: str, everywhere: Site) -> None:
    port = URL(everywhere.base).port
    urls = [f"http://127.0.0.{place}:{port}" for place in range(1, HOSTS + 1)]
    arguments = (server.url, prefix, str(DELAY_S), *urls)
    programs = [await started("fleet.threads_program", *arguments, stderr=PIPE) for _ in range(PROCESSES)]
    reports = [(await program.communicate())[1].decode() for program in programs]
    assert reports == [""] * PROCESSES
    by_host: defaultdict[str, list[Seen]] = defaultdict(list)
    for seen in everywhere.seen:
        by_host[seen.headers["Host"]].append(seen)
    assert len(by_host) == HOSTS
    for requests in by_host.values():
        pages = sorted((one for one in requests if one.path != "/robots.txt"), key=lambda one: one.started)
        assert len(pages) == len(requests) - 1 == PROCESSES * 10  # robots.txt once
        # The server stamps the end of an answer before the client has it, and its start after the client has sent it.
        assert min(after.started - before.ended for before, after in pairwise(pages)) >= DELAY_S
