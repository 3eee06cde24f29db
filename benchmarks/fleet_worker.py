"""One process of ``python -m benchmarks fleet``; prints when it was permitted what, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.fleet_peers import LINES, SharedLine


async def crawl(line: SharedLine, host: str, until_mono: float, starts: list[float]) -> None:
    while time.monotonic() < until_mono:
        starts.append(await line.start(host))
        line.end(host)


async def main(name: str, url: str, interval_s: float, hosts: int, tasks: int, seconds: float) -> None:
    line = LINES[name](url, interval_s)
    starts: dict[str, list[float]] = {f"host{number}.example": [] for number in range(hosts)}
    crawls = [
        asyncio.create_task(crawl(line, host, time.monotonic() + 600.0, found))
        for host, found in starts.items()
        for _ in range(tasks)
    ]
    await asyncio.sleep(2.0 * interval_s + 2.0)  # until all processes are there
    line.calls, began_s, began_mono = 0, time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    measured = {"calls": line.calls, "cpu_s": time.process_time() - began_s, "starts": starts}
    measured |= {"from": began_mono, "to": time.monotonic()}
    print(json.dumps(measured), flush=True)
    for task in crawls:
        task.cancel()
    await asyncio.gather(*crawls, return_exceptions=True)


if __name__ == "__main__":
    name, url, *numbers = sys.argv[1:]
    interval_s, hosts, tasks, seconds = json.loads(numbers[0])
    asyncio.run(main(name, url, interval_s, hosts, tasks, seconds))
