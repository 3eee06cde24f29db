"""A crawler in a process of its own: ``python -m tests.wire.fleet.gate_program KIND FLEET PREFIX COUNT URL...``.

It requests each URL so often, at the pace of 1 s of a Gatekeeper, a PoliteSession or a Crawlee crawl that is told
nothing but its fleet; or, as ``threads``, with 50 threads that share one gate: each requests every URL that is its
turn, every fifth, from another place on. Half of the threads use PoliteAdapter, half take the turns themselves.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import aiohttp
import requests

from politesse import Gatekeeper, PacingOptions, PoliteSession
from politesse.integrations.requests import PoliteAdapter
from politesse.options import FleetOptions
from politesse.sync import Gate
from tests.support.sites import UA

THREADS: Final = 50
STEP: Final = 5
DELAY_S: Final = 0.05


async def by_gate(fleet: FleetOptions, urls: list[str]) -> None:
    async with Gatekeeper(UA, fleet=fleet) as gate, aiohttp.ClientSession() as client:
        for url in urls:
            async with gate.turn(url) as turn, client.get(turn.url) as response:
                turn.observe(response.status, response.headers)
                await response.read()


async def by_session(fleet: FleetOptions, urls: list[str]) -> None:
    async with PoliteSession(UA, fleet=fleet) as web:
        for url in urls:
            async with web.get(url) as response:
                await response.read()


async def by_crawlee(fleet: FleetOptions, urls: list[str]) -> None:
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

        await crawler.run([Request.from_url(url, always_enqueue=True) for url in urls])


async def by_threads(fleet: FleetOptions, urls: list[str]) -> None:
    pacing = PacingOptions(min_delay_s=DELAY_S, adaptive_factor=0.0)

    def crawl(gate: Gate, number: int) -> None:
        with requests.Session() as session:
            is_polite = number % 2 == 0
            if is_polite:
                session.mount("http://", PoliteAdapter(gate))
            for url in urls[number % STEP :: STEP]:
                if is_polite:
                    session.get(f"{url}/{number}").raise_for_status()
                else:
                    with gate.turn(f"{url}/{number}") as turn:
                        response = session.get(turn.url, headers={"User-Agent": UA})
                        turn.observe(response.status_code, response.headers)

    def work() -> None:
        with Gate(Gatekeeper(UA, fleet=fleet, pacing=pacing)) as gate, ThreadPoolExecutor(THREADS) as pool:
            for crawled in [pool.submit(crawl, gate, number) for number in range(THREADS)]:
                crawled.result()

    await asyncio.to_thread(work)


if __name__ == "__main__":
    kind, server, prefix, count, *given = sys.argv[1:]
    crawl = {"gate": by_gate, "session": by_session, "crawlee": by_crawlee, "threads": by_threads}[kind]
    asyncio.run(crawl(FleetOptions(server, prefix=prefix), given * int(count)))
