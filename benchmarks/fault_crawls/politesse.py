"""A ``PoliteSession``, with its defaults but for the timeout."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import aiohttp

from benchmarks.fault_crawls.task import Report, Said, Task, read_task
from politesse import Disallowed, FetchOptions, Gatekeeper, PoliteSession, Reason, TooFar
from politesse.testing import ScriptedResolver

# Six requests for robots.txt to one host: after the first two a second apart. A closed host is not waited for.
_REDIRECTS_S: Final = 5.0


async def crawl(task: Task, report: Report) -> None:
    context = ssl.create_default_context(cadata=task.authority or None)
    options = FetchOptions(connect_timeout_s=task.timeout_s, total_timeout_s=task.timeout_s, ssl_context=context)
    # The second address of each name stands for a public one, and is never connected to.
    names = ScriptedResolver({host: [address, "93.184.216.34"] for host, address in task.names.items()})
    agent = "ExampleBot/1.0 (+https://example.com/bot)"
    async with (
        Gatekeeper(agent, fetch=options, resolver=names) as gate,
        PoliteSession(
            gate, connector=aiohttp.TCPConnector(ssl=context), max_wait_s=task.timeout_s + _REDIRECTS_S
        ) as web,
    ):
        for url in task.urls:
            report.page(url, await _ask(web, url))
    report.done()


async def _ask(web: PoliteSession, url: str) -> Said:
    try:
        async with web.get(url) as response:
            await response.read()
    except TooFar:
        return Said.DEFERRED
    except Disallowed as error:
        return Said.DEFERRED if error.verdict.reason is Reason.TOO_MANY_REQUESTS else Said.REFUSED
    except (aiohttp.ClientError, TimeoutError):
        pass  # it did not get through, but it was tried
    return Said.REQUESTED


if __name__ == "__main__":
    asyncio.run(crawl(read_task(), Report()))
