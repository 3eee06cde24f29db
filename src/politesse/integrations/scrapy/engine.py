"""Access to Scrapy's engine: whether it is closing, how to wake it, and how to wait without delaying its closing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request
    from scrapy.crawler import Crawler

T = TypeVar("T")

CLOSING: Final = "The spider is being closed"
"""The message of IgnoreRequest for a request that is given up."""

_LOOK_S: Final = 0.5


class SpiderClosing(IgnoreRequest):
    """A wait was given up because the spider is being closed."""


def requests_under_way(crawler: Crawler) -> frozenset[Request]:
    """Return the requests that the engine has taken from the scheduler and that have not ended.

    A request ends when its callback or errback has ended, and what that yielded has been scheduled; or when a
    downloader middleware has put another request in its place, as for a redirect, and that has been scheduled. So the
    queue of a scheduler that several processes share can keep each request until it has ended: see the guide
    ``frontier``.
    """
    slot = crawler.engine._slot  # noqa: SLF001 - no signal says that a request has ended
    return frozenset() if slot is None else frozenset(slot.inprogress)


def wake(crawler: Crawler) -> None:
    """Make the engine look for requests now; by itself it does so after each request, and every five seconds."""
    slot = crawler.engine._slot  # noqa: SLF001 - as AutoThrottle does: there is no public way
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def count(crawler: Crawler, stat: str, number: int = 1) -> None:
    """Add to a stat of the crawl."""
    if crawler.stats is not None:
        crawler.stats.inc_value(stat, number)


def flush_seen(crawler: Crawler) -> None:
    """Write what Scrapy's filter for duplicates has in memory to its file, which it does for itself only at times."""
    slot = crawler.engine._slot  # noqa: SLF001
    file = None if slot is None else getattr(getattr(slot.scheduler, "df", None), "file", None)
    if file is not None:
        file.flush()


async def patiently(crawler: Crawler, awaited: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``awaited``; cancel it and raise SpiderClosing when the spider is being closed."""
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            # The engine sends no signal when it begins to close: spider_closed comes after the last request has ended.
            slot = crawler.engine._slot  # noqa: SLF001
            if slot is None or slot.closing is not None:
                raise SpiderClosing(CLOSING)
        return task.result()
    finally:
        task.cancel()
