"""A crawler with a queue in a process of its own: ``python -m tests.integration.fleet.queue_worker CRAWL NUMBER``.

It works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Final

from politesse import Gatekeeper, PacingOptions, PoliteQueue
from politesse.options import FleetOptions
from politesse.testing import ScriptedFetcher
from tests.integration.fleet.crawls import Crawl
from tests.integration.sites import UA

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORKERS: Final = 6
_LEAST_QUEUED: Final = 100


async def put(queue: PoliteQueue[None], hosts: Iterable[str], number: str) -> None:
    for page in count():
        for host in hosts:
            await queue.put(f"http://{host}/{number}/{page}")
        while queue.statistics().queued > _LEAST_QUEUED:
            await asyncio.sleep(0.02)


async def work(queue: PoliteQueue[None], crawl: Crawl, number: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", crawl.site_port)
    while True:
        async with queue.turn() as turn:
            host = turn.url.split("/")[2]
            writer.write(f"{host} {number} {time.monotonic()!r}\n".encode())
            turn.observe(int(await reader.readline()), {})


async def main(crawl: Crawl, number: str) -> None:
    site = ScriptedFetcher({f"http://{host.name}": 404 for host in crawl.hosts})
    (interval_s,) = {host.interval_s for host in crawl.hosts}
    pacing = PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0)
    fleet = FleetOptions(crawl.redis_url, prefix=crawl.prefix)
    async with Gatekeeper(UA, fetcher=site, fleet=fleet, pacing=pacing) as gate, asyncio.TaskGroup() as group:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        group.create_task(put(queue, [host.name for host in crawl.hosts], number))
        for _ in range(_WORKERS):
            group.create_task(work(queue, crawl, number))


if __name__ == "__main__":
    asyncio.run(main(Crawl.of_json(sys.argv[1]), sys.argv[2]))
