"""What of Scrapy's engine the others need, and how to wait under it without keeping a spider from being closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy.crawler import Crawler

T = TypeVar("T")

_LOOK_S: Final = 0.5


def is_closing(crawler: Crawler) -> bool:
    """Whether the spider is being closed: then the engine only waits for what is under way."""
    # The engine tells nobody when it begins to close: spider_closed comes when nothing is under way any more.
    slot = crawler.engine._slot  # noqa: SLF001
    return slot is None or slot.closing is not None


def wake(crawler: Crawler) -> None:
    """Have the engine look for requests again; by itself it does so when one has ended, and every five seconds."""
    slot = crawler.engine._slot  # noqa: SLF001 - as AutoThrottle and others do; there is no other way
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


async def patiently(crawler: Crawler, awaited: Coroutine[Any, Any, T]) -> T:
    """Return what ``awaited`` does; give it up, with IgnoreRequest, when the spider is being closed."""
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            if is_closing(crawler):
                raise IgnoreRequest("The spider is being closed")
        return task.result()
    finally:
        task.cancel()
