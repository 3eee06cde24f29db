"""One process of the small crawl that checks the arithmetic."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from benchmarks.fleet_model.crawl import KEPT_S, Crawl
from benchmarks.fleet_peers import pacer_at
from politesse._pacing.fleet.messages import Script
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.hosts import TurnRequest

if TYPE_CHECKING:
    from politesse._pacing.hosts import Hosts


class ForgettingWire(RedisWire):
    """Runs the scripts with another time for which a key is kept, so that a minute shows how keys expire."""

    kept_s = KEPT_S

    def _source(self, script: Script) -> str:
        whole, changed = super()._source(script), f"local KEPT = {self.kept_s:.0f} * 1000000"
        if script is Script.MEMBER:
            return whole
        if f"local KEPT = {KEPT_S:.0f} * 1000000" not in whole:
            raise ValueError(f"{script}: its keys are not kept for {KEPT_S:g} s")
        return whole.replace(f"local KEPT = {KEPT_S:.0f} * 1000000", changed)


async def visit(pacer: Hosts, host: str, pages: int, response_s: float) -> None:
    for page in range(pages):
        permit = await pacer.start(TurnRequest(host, host, "ExampleBot", None, f"https://{host}/{page}"))
        await asyncio.sleep(response_s)
        permit.observe(200, {})
        permit.end()


async def main(url: str, member: int, crawl: Crawl) -> None:
    """Begin with hosts by chance, as many a second on average as the crawl says, until this process is killed."""
    ForgettingWire.kept_s = crawl.kept_s
    pacer = pacer_at(ForgettingWire(Redis.from_url(url)), crawl.interval_s)
    random, loop = Random(member), asyncio.get_running_loop()
    next_s = loop.time()
    async with asyncio.TaskGroup() as visits:
        for number in count():
            await asyncio.sleep(next_s - loop.time())
            host = f"host{number}.member{member}.example"
            visits.create_task(visit(pacer, host, crawl.draw_pages(random), crawl.response_s))
            next_s += random.expovariate(crawl.hosts_s)


if __name__ == "__main__":
    url, given = sys.argv[1:]
    member, crawl = json.loads(given)
    asyncio.run(main(url, member, Crawl(**crawl)))
