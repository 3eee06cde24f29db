"""A worker of a fleet, in a process of its own: ``python -m tests.wire.fleet.worker CRAWL NUMBER``."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from politesse import PacingOptions
from politesse._pacing.fleet import link
from politesse.clock import SystemClock
from politesse.events import Publisher
from politesse.options import FleetOptions, SharedPacer
from tests.support.pacing import TurnRequest, share_of
from tests.wire.fleet.crawls import Crawl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse._pacing.fleet.messages import Reply
    from tests.support.pacing import Pacer
    from tests.wire.fleet.crawls import Host


class WrongClock(SystemClock):
    """A wall clock that is wrong."""

    def __init__(self, offset_s: float) -> None:
        self._offset_s = offset_s

    def wall(self) -> float:
        return time.time() + self._offset_s


def pacer_for(crawl: Crawl) -> Pacer:
    clock = WrongClock(crawl.wall_offset_s)
    publisher = Publisher()
    publisher.subscribe(partial(print, file=sys.stderr))
    options = PacingOptions(adaptive_factor=0.0, backoff_min_s=crawl.backoff_s, backoff_max_s=crawl.backoff_s)
    fleet = FleetOptions(crawl.redis_url, prefix=crawl.prefix, lease_s=crawl.lease_s)
    pacer = share_of(SharedPacer(options, fleet=fleet, clock=clock), publisher)
    for host in crawl.hosts:
        pacer.set_limits(host.name, host.interval_s, host.max_concurrent)
    return pacer


async def visit_for_ever(pacer: Pacer, crawl: Crawl, host: Host, number: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", crawl.site_port)
    request = TurnRequest(host.name, f"http://{host.name}", "ExampleBot", None, f"http://{host.name}/{number}")
    while True:
        permit = await pacer.start(request)
        writer.write(f"{host.name} {number} {time.monotonic()!r}\n".encode())
        status = int(await reader.readline())
        permit.observe(status, {})
        permit.end()
        if status == 429:
            await pacer.closed_until(host.name)  # its answer comes after that of the closing
            writer.write(f"noted {host.name}\n".encode())


class BlindRoster(link.Roster):
    """Believes that all rounds are one, and that nobody has to be waited for."""

    def take(self, reply: Reply, now_mono: float) -> None:
        super().take([*reply[:2], "0", "the only one", *reply[4:]], now_mono)
        self.since_mono = -inf

    def check(self, words: Sequence[str]) -> None:
        pass


async def main(crawl: Crawl, number: str) -> None:
    if crawl.is_blind:
        vars(link)["Roster"] = BlindRoster
    pacer = pacer_for(crawl)
    async with asyncio.TaskGroup() as group:
        for host in crawl.hosts:
            for _ in range(crawl.tasks * host.max_concurrent):
                group.create_task(visit_for_ever(pacer, crawl, host, number))


if __name__ == "__main__":
    asyncio.run(main(Crawl.of_json(sys.argv[1]), sys.argv[2]))
