"""Access to Scrapy's engine and to the files of its scheduler; and waits that do not delay the engine's close.

Only this module and the subclasses PoliteDownloader and PolitePriorityQueue use undocumented attributes of Scrapy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request
    from scrapy.crawler import Crawler

T = TypeVar("T")

CLOSING: Final = "The spider is being closed"
_CHECK_S: Final = 0.5
_QUEUE: Final = "requests.queue"  # the directory of the scheduler's queue in JOBDIR
STATE: Final = "active.json"  # the scheduler writes the result of the queue's ``close`` to this file


class SpiderClosing(IgnoreRequest):
    """A wait has ended because the spider is being closed."""


def requests_under_way(crawler: Crawler) -> frozenset[Request]:
    """Return the requests that the engine has taken from the scheduler, until they end.

    A request ends when its callback or errback has ended, and the scheduler has the requests that these have yielded.
    If a downloader middleware replaces a request, for example after a redirect, the old request ends when the scheduler
    has the new request. So a scheduler's queue that several processes share can keep each request until it has ended:
    see the guide ``frontier``.
    """
    slot = crawler.engine._slot  # noqa: SLF001 - Scrapy sends no signal when a request has ended
    return frozenset() if slot is None else frozenset(slot.inprogress)


def wake(crawler: Crawler) -> None:
    """Make the engine ask the scheduler now; otherwise it asks after each request, and every five seconds."""
    slot = crawler.engine._slot  # noqa: SLF001 - as AutoThrottle does: Scrapy has no public way
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def flush_seen(crawler: Crawler) -> None:
    """Write the buffer of Scrapy's filter for duplicates to its file; Scrapy itself writes the buffer only at times."""
    slot = crawler.engine._slot  # noqa: SLF001
    file = None if slot is None else getattr(getattr(slot.scheduler, "df", None), "file", None)
    if file is not None:
        file.flush()


def journal_path(queue: Path) -> Path:
    """Return the path of the journal of a queue: see QueueJournal."""
    return Path(f"{queue}.journal")


def discard_cut_state(job_dir: str) -> None:
    """Remove the scheduler's state of its queue if the last run was killed; called before the scheduler reads it."""
    queue = Path(job_dir, _QUEUE)
    if journal_path(queue).exists():
        (queue / STATE).unlink(missing_ok=True)


def count(crawler: Crawler, stat: str, number: Any = 1) -> None:  # noqa: ANN401 - Scrapy says int, and adds any number
    """Add to a stat of the crawl."""
    if crawler.stats is not None:
        crawler.stats.inc_value(stat, number)


async def patiently(crawler: Crawler, awaited: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``awaited``; if the spider is being closed, cancel it and raise SpiderClosing."""
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({task}, timeout=_CHECK_S))[0]:
            # The engine sends no signal when it begins to close; spider_closed comes after the end of the last request.
            slot = crawler.engine._slot  # noqa: SLF001
            if slot is None or slot.closing is not None:
                raise SpiderClosing(CLOSING)
        return task.result()
    finally:
        task.cancel()
