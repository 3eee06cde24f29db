"""An aiohttp session with a Protego for each site, as crawlers write it that obey robots.txt by themselves."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from protego import Protego

from benchmarks.fault_crawls.task import Report, Said, Task, read_task

if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT = "ExampleBot/1.0 (+https://example.com/bot)"


class _Resolver(AbstractResolver):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self._names.get(host, host)
        return [ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


async def crawl(task: Task, report: Report) -> None:
    connector = aiohttp.TCPConnector(
        ssl=ssl.create_default_context(cadata=task.authority or None), resolver=_Resolver(task.names)
    )
    timeout = aiohttp.ClientTimeout(total=task.timeout_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers={"User-Agent": AGENT}) as web:
        rules = Protego.parse(await _robots(web, task.origin))
        for url in task.urls:
            if not rules.can_fetch(url, "ExampleBot"):
                report.page(url, Said.REFUSED)
                continue
            report.page(url, Said.REQUESTED)
            try:
                async with web.get(url) as response:
                    await response.read()
            except (aiohttp.ClientError, TimeoutError):
                pass  # it did not get through, but it was tried
    report.done()


async def _robots(web: aiohttp.ClientSession, origin: str) -> str:
    """Return the text of robots.txt; an empty one if there is none, or it cannot be fetched."""
    try:
        async with web.get(f"{origin}/robots.txt") as response:
            return await response.text() if response.ok else ""
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
        return ""


if __name__ == "__main__":
    asyncio.run(crawl(read_task(), Report()))
