"""One process of ``python -m benchmarks fleet``; prints the time and host of each permit, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from itertools import count
from typing import TYPE_CHECKING

from redis.asyncio.connection import AbstractConnection

from benchmarks.fleet_peers import LINES, SharedLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class RoundTrips:
    """Counts the writes to Redis of any client of redis-py: each write is a round trip."""

    def __init__(self) -> None:
        self.count = 0
        send = AbstractConnection.send_packed_command

        async def counted(
            connection: AbstractConnection,
            command: bytes | str | Iterable[bytes],
            check_health: bool = True,  # noqa: FBT001, FBT002 - as redis-py's
        ) -> None:
            self.count += 1
            await send(connection, command, check_health)

        AbstractConnection.send_packed_command = counted  # type: ignore[method-assign,assignment] # it does the same


async def crawl(line: SharedLine, hosts: Iterable[str], starts: dict[str, list[float]]) -> None:
    for host in hosts:
        starts.setdefault(host, []).append(await line.start(host))
        line.end(host)


def same(host: str) -> Iterator[str]:
    while True:
        yield host


async def main(name: str, url: str, member: int, interval_s: float, hosts: int, tasks: int, seconds: float) -> None:
    """Crawl for a while; without hosts each request goes to a new one, so that nothing waits for an interval."""
    trips = RoundTrips()
    line = LINES[name](url, interval_s)
    starts: dict[str, list[float]] = {}
    new = (f"host{number}.member{member}.example" for number in count())
    visited = [same(f"host{number}.example") for number in range(hosts) for _ in range(tasks)]
    crawls = [asyncio.create_task(crawl(line, some, starts)) for some in visited or [new] * tasks]
    await asyncio.sleep(2.0 * interval_s + 2.0)  # until all processes are there
    trips.count, began_s, began_mono = 0, time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    measured = {"trips": trips.count, "cpu_s": time.process_time() - began_s, "starts": starts}
    measured |= {"from": began_mono, "to": time.monotonic()}
    print(json.dumps(measured), flush=True)
    for task in crawls:
        if task.done():
            task.result()
    os._exit(0)  # a peer may swallow the cancellation of its tasks


if __name__ == "__main__":
    name, url, *numbers = sys.argv[1:]
    asyncio.run(main(name, url, *json.loads(numbers[0])))
