"""A crawler with a journal, to be killed and started again: ``python journal_program.py FILE SABOTAGE URL...``.

It puts the URLs and crawls from them; meanwhile a producer puts more. It prints each URL of the producer as soon as
``put`` has returned. Its disk is slow, so that much is under way whenever it is killed.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import TYPE_CHECKING, Final

from politesse import Gatekeeper, PacingOptions, PoliteQueue, PoliteSession
from politesse.queue import _journal as journal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    import aiohttp

    from politesse.queue import CrawlPage
    from politesse.queue._journal import Change

AGENT: Final = "ExampleBot/1.0 (+https://example.com/bot)"
PUTS: Final = 150
_WRITE_S: Final = 0.01


async def crawl(path: str, urls: Sequence[str]) -> None:
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    async with Gatekeeper(AGENT, pacing=pacing) as gate, PoliteSession(gate) as web:
        queue: PoliteQueue[None] = PoliteQueue(gate, journal=path)
        say("ready")
        for url in urls:
            await queue.put(url)
        producer = asyncio.create_task(produce(queue, urls))
        while True:
            is_over = producer.done()
            await queue.crawl(web, follow_links)
            if is_over:
                break
            await producer
        say("over")


async def follow_links(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
    for link in re.findall('href="(.*?)"', await response.text()):
        page.put(link)


async def produce(queue: PoliteQueue[None], urls: Sequence[str]) -> None:
    for number in range(PUTS):
        url = f"{urls[number % len(urls)]}put/{number}"
        await queue.put(url)
        say(url)
        await asyncio.sleep(0.01)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - read by the test


def slow_down(apply: Callable[[sqlite3.Connection, Sequence[Change]], None]) -> None:
    def slow(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
        time.sleep(_WRITE_S)
        apply(connection, changes)

    journal.apply_changes = slow


def sabotage(name: str) -> None:
    """Break one of the promises of a journal."""
    if name == "put-returns-before-the-commit":

        async def flush(self: journal.Journal) -> None:
            del self

        journal.Journal.flush = flush  # type: ignore[method-assign]
    elif name == "end-of-a-page-before-its-links":
        write = journal.Journal._write

        def reordered(self: journal.Journal) -> None:
            changes = self._changes
            ends = [change for change in changes if change.statement == journal.END]
            if ends:
                self._changes = [*ends, *(change for change in changes if change not in ends)]
            write(self)

        def apply_each(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
            for change in changes:
                apply_all(connection, [change])
                connection.execute("COMMIT")
                time.sleep(_WRITE_S / 10)
                connection.execute("BEGIN IMMEDIATE")

        apply_all = journal.apply_changes
        journal.apply_changes = apply_each
        journal.Journal._write = reordered  # type: ignore[method-assign]
    elif name:
        raise SystemExit(f"no sabotage {name!r}")


if __name__ == "__main__":
    slow_down(journal.apply_changes)
    sabotage(sys.argv[2])
    asyncio.run(crawl(sys.argv[1], sys.argv[3:]))
