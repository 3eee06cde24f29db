"""A crawler in a process of its own: ``python -m tests.wire.fleet.gate_program KIND FLEET URL COUNT``.

It requests a URL so often, with a Gatekeeper, a PoliteSession or a Crawlee crawl that is told nothing but its fleet.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp

from politesse import Gatekeeper, PoliteSession
from tests.support.sites import UA


async def by_gate(fleet: str, url: str, count: int) -> None:
    async with Gatekeeper(UA, fleet=fleet) as gate, aiohttp.ClientSession() as client:
        for _ in range(count):
            async with gate.turn(url) as turn, client.get(turn.url) as response:
                turn.observe(response.status, response.headers)
                await response.read()


async def by_session(fleet: str, url: str, count: int) -> None:
    async with PoliteSession(UA, fleet=fleet) as web:
        for _ in range(count):
            async with web.get(url) as response:
                await response.read()


async def by_crawlee(fleet: str, url: str, count: int) -> None:
    from crawlee import Request
    from crawlee.crawlers import HttpCrawler
    from crawlee.http_clients import ImpitHttpClient
    from crawlee.storage_clients import MemoryStorageClient
    from crawlee.storages import RequestQueue

    from politesse.integrations.crawlee import PoliteHttpClient, PoliteRequestManager

    storage = MemoryStorageClient()
    queue = await RequestQueue.open(storage_client=storage)
    async with Gatekeeper(UA, fleet=fleet) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = HttpCrawler(
            request_manager=manager,
            http_client=PoliteHttpClient(manager, ImpitHttpClient(follow_redirects=False)),
            storage_client=storage,
            configure_logging=False,
        )

        @crawler.router.default_handler
        async def handle(_: object) -> None:
            pass

        await crawler.run([Request.from_url(url, always_enqueue=True) for _ in range(count)])


if __name__ == "__main__":
    crawl = {"gate": by_gate, "session": by_session, "crawlee": by_crawlee}[sys.argv[1]]
    asyncio.run(crawl(sys.argv[2], sys.argv[3], int(sys.argv[4])))
