"""The programs of the guide to a shared frontier: two processes, of which one is killed, on a real Redis."""

import asyncio
import re
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.support.redis_servers import RedisServer
from tests.wire.scrapy.crawling import OPEN, Site, html, least_gap_s, serving

pytestmark = [pytest.mark.realtime, pytest.mark.full]

GUIDE: Final = (Path(__file__).parents[3] / "src/politesse/guides/frontier.md").read_text()
PROGRAMS: Final = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
DELAY_S: Final = 0.3
PAGES: Final = 16
# A host where a process was killed amid a request is free when that ends; so the lease is short here.
FLEET: Final = "FleetOptions(REDIS, lease_s=2)"
QUEUE_CHANGES: Final = {
    "LEASE_S = 60": "LEASE_S = 2",
    "IN_HAND = 50": "IN_HAND = 3",
    "from politesse import": (
        "from politesse.options import FleetOptions, PacingOptions\nfrom politesse import Gatekeeper,"
    ),
    "PoliteSession(user_agent, fleet=REDIS) as web": (
        f"Gatekeeper(user_agent, fleet={FLEET}, pacing=PacingOptions(min_delay_s={DELAY_S})) as gate, "
        "PoliteSession(gate) as web"
    ),
}
SCRAPY_CHANGES: Final = {
    "import scrapy\n": "import scrapy\nfrom politesse.options import FleetOptions\n",
    '"POLITESSE_FLEET": REDIS': f'"POLITESSE_FLEET": {FLEET}',
    "LEASE_S = 60": "LEASE_S = 2",
    '"LOG_ENABLED": False': f'"DOWNLOAD_DELAY": {DELAY_S}, "CONCURRENT_REQUESTS": 3, "LOG_LEVEL": "WARNING"',
}
_MOST_S: Final = 90.0


def tree() -> Site:
    """Return a site whose pages are found in three steps."""
    pages = {f"/{page}": html() for page in range(PAGES)}
    pages["/"] = html(*(f"/{page}" for page in range(4)))
    for page in range(4):
        pages[f"/{page}"] = html("/", *(f"/{page + 4 * step}" for step in range(1, PAGES // 4)))
    return Site(f"{OPEN}Disallow: /private\n", pages, page_s=0.02)


def program(place: int, changes: dict[str, str], site: Site, redis_server: RedisServer) -> str:
    """Return a program of the guide, for this site and this Redis, with other times."""
    code: str = PROGRAMS[place]
    places = {"http://localhost:8000": site.base, "redis://localhost:6379/0": redis_server.url}
    for old, new in (changes | places).items():
        assert old in code, old
        code = code.replace(old, new)
    return code


async def start(stack: AsyncExitStack, code: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    stack.push_async_callback(end, process)
    return process


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def requested(site: Site, pages: int) -> None:
    """Wait until so many pages were requested."""
    while len(site.page_paths) < pages:
        await asyncio.sleep(0.02)


def in_hand(client: redis.Redis, stream: str, pid: int) -> int:
    """Return how many messages a process has taken that have not ended."""
    consumers: list[dict[str, Any]] = client.xinfo_consumers(stream, "crawlers")
    return sum(one["pending"] for one in consumers if str(pid).encode() in one["name"])


def queued(client: redis.Redis) -> int:
    """Return how many messages were ever added to streams."""
    calls: int = client.info("commandstats")["cmdstat_xadd"]["calls"]
    return calls


@pytest.mark.parametrize(
    ("place", "changes", "stream", "seen"),
    [
        (0, QUEUE_CHANGES, "{mine}:urls", "{mine}:seen"),
        (1, SCRAPY_CHANGES, "pages:requests", "pages:dupefilter"),
    ],
    ids=["queues fed from a stream", "Scrapy with scrapy-redis"],
)
async def test_nothing_is_lost_when_one_of_two_processes_is_killed(
    redis_server: RedisServer, place: int, changes: dict[str, str], stream: str, seen: str
) -> None:
    # It is killed while all URLs that were seen are queued: scrapy-redis does this in two steps, and a process that is
    # killed between them loses a URL, as the guide says.
    site = tree()
    async with serving(site), AsyncExitStack() as stack, asyncio.timeout(_MOST_S):
        client = stack.enter_context(redis.Redis(port=redis_server.port))
        code = program(place, changes, site, redis_server)
        first = await start(stack, code)
        await requested(site, 1)
        second = await start(stack, code)
        await requested(site, PAGES // 3)
        while True:
            first.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.05)  # what it has sent arrives
            if in_hand(client, stream, first.pid) and client.scard(seen) == queued(client):
                break
            first.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.02)
        first.kill()
        assert in_hand(client, stream, first.pid)
        log = (await second.communicate())[1].decode()
    assert second.returncode == 0, log
    assert "ResourceWarning" not in log
    assert set(site.page_paths) == set(site.pages)
    assert len(site.page_paths) <= len(site.pages) + 3  # what the first process had in hand
    assert least_gap_s(site) >= DELAY_S


async def test_scrapy_with_the_queue_of_scrapy_redis_itself_keeps_one_pace_and_ends(redis_server: RedisServer) -> None:
    site = tree()
    async with serving(site), AsyncExitStack() as stack, asyncio.timeout(_MOST_S):
        code = program(1, SCRAPY_CHANGES | {'"SCHEDULER_QUEUE_CLASS": StreamQueue,': ""}, site, redis_server)
        processes = [await start(stack, code)]
        await requested(site, 2)  # what it has found is in the queue
        processes.append(await start(stack, code))
        logs = [(await process.communicate())[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], logs
    assert sorted(site.page_paths) == sorted(site.pages)  # each once
    assert least_gap_s(site) >= DELAY_S
