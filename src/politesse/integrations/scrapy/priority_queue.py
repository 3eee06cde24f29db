"""The queue of Scrapy's scheduler: it hands out the requests whose site is ready, and keeps those that wait.

There is one queue of each origin, so that an origin whose robots.txt is unreachable holds up no other origin of its
host. The requests of a site that was given up do not count as pending, so that Scrapy finds the spider idle in its
usual way, and closes it. On disk they stay as they are, for the next run. In memory there is none: as soon as the
spider has nothing else to do, they are handed out after all, and the downloader waits for nothing any more, so that
each ends in its errback with the reason.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from scrapy import signals
from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface, QueueProtocol, ScrapyPriorityQueue
from scrapy.utils.request import request_from_dict

from politesse.errors import ConfigurationError
from politesse.integrations.scrapy.downloader import PoliteDownloader
from politesse.integrations.scrapy.engine import flush_seen
from politesse.integrations.scrapy.gate import errors_logged_in_one_line
from politesse.integrations.scrapy.http_cache import HttpCache
from politesse.integrations.scrapy.journal import QueueJournal
from politesse.integrations.scrapy.paced_as import slot_of
from politesse.integrations.scrapy.page_reader import PAGE
from politesse.integrations.scrapy.ready_slots import ReadySlots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

_CACHED: Final = "answered by the HTTP cache"
"""The slot of requests for which nothing is sent: no site makes them wait."""


class PolitePriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's queue by slots, but one for each origin, and without the requests of sites that are not ready.

    For the setting ``SCHEDULER_PRIORITY_QUEUE``, with PoliteDownloader. Its length is without the requests of sites
    that were given up: see ``POLITESSE_MAX_WAIT`` of PolitesseAddon.

    Raises:
        ConfigurationError: the setting ``DOWNLOADER`` is not a PoliteDownloader, or the journal in ``JOBDIR`` is not
            one of this version.

    Example::

        SCHEDULER_PRIORITY_QUEUE = "politesse.integrations.scrapy.PolitePriorityQueue"  # PolitesseAddon sets it
    """

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        slot_startprios: dict[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> None:
        self._draining: set[str] = set()
        self._ready = ReadySlots(self._is_ready)
        with errors_logged_in_one_line():
            self._journal = QueueJournal(crawler, key) if key else None
        if self._journal is not None and self._journal.was_killed:
            slot_startprios = self._journal.state
        super().__init__(crawler, downstream_queue_cls, key, slot_startprios, start_queue_cls=start_queue_cls)
        downloader = crawler.engine.downloader
        if not isinstance(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"SCHEDULER_PRIORITY_QUEUE: PolitePriorityQueue needs a PoliteDownloader, not {downloader!r}"
            )
        self._polite = downloader
        downloader.is_bypassed = False
        self._sites = _FirstSlot(crawler, downloader, partial(self._ready.first, self.pqueues))
        self._downloader_interface = self._sites
        downloader.on_change.append(self._ready.wake)
        if self._journal is None:
            downloader.on_idle = self._drain
            downloader.on_closed = self._note_left  # the scheduler closes only its queue on disk
            return
        crawler.signals.connect(self._journal.remove, signals.spider_closed)  # sent after the scheduler is closed
        if self._journal.was_killed:
            self._restore(self._journal)

    def pqfactory(self, slot: str, startprios: Iterable[int] = ()) -> ScrapyPriorityQueue:
        """Return the queue of a slot that is new."""
        self._ready.add(slot)
        return super().pqfactory(slot, startprios)

    def push(self, request: Request) -> None:
        """Store ``request``, without the directives of a page whose meta it was given."""
        request.meta.pop(PAGE, None)  # not every queue on disk could store it
        super().push(request)
        if self._journal is not None:
            self._journal.pushed(request)
            flush_seen(self.crawler)

    def pop(self) -> Request | None:
        """Return the next request whose site is ready, or None."""
        request = super().pop()
        while request is not None and self._journal is not None and not self._journal.popped(request):
            request = super().pop()
        if request is None:
            return None
        slot = self._sites.slot_of_site(request)
        self._polite.hand_out(request, is_last=slot in self._draining)
        if slot not in self.pqueues:
            self._draining.discard(slot)
        return request

    def close(self) -> dict[str, list[int]]:
        """Close the queues; return what is active on disk. Requests of sites that were given up are counted."""
        self._note_left()
        state = super().close()
        if self._journal is not None:
            self._journal.close()
        return state

    def __len__(self) -> int:
        waiting = set(self._given_up())
        return sum(len(queue) for slot, queue in self.pqueues.items() if slot not in waiting)

    def _restore(self, journal: QueueJournal) -> None:
        """Push what the run before has pushed and not done, because it was killed."""
        for request in journal.pending():
            super().push(request_from_dict(request, spider=self.crawler.spider))
        logger.warning("The last run in JOBDIR was killed; restored from its journal: %d requests", len(self))

    def _note_left(self) -> None:
        for slot, queue in self.pqueues.items():
            if self._polite.is_given_up(slot):
                self._polite.note_left(slot, len(queue), on_disk=bool(self.key))

    def _given_up(self) -> list[str]:
        return [slot for slot in self.pqueues if slot not in self._draining and self._polite.is_given_up(slot)]

    def _drain(self) -> bool:
        """Hand out all requests of the sites that were given up; return whether there are any."""
        self._draining.update(self._given_up())
        for slot in self._draining:
            self._ready.wake(slot)
        return bool(self._draining)

    def _is_ready(self, slot: str) -> bool:
        return self._polite.is_ready(slot, is_last=slot in self._draining)


class _FirstSlot(DownloaderInterface):
    """Restricts Scrapy's choice to the slot that is next."""

    def __init__(self, crawler: Crawler, downloader: PoliteDownloader, first: Callable[[], str | None]) -> None:
        super().__init__(crawler)
        self._polite = downloader
        self._first = first
        self._http_cache = HttpCache(crawler)

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:  # noqa: ARG002 - Scrapy's signature
        slot = self._first()
        # Nothing is under way at a host that is ready: the number of its active downloads is 0.
        return [] if slot is None else [(0, slot)]

    def get_slot_key(self, request: Request) -> str:
        return _CACHED if self._http_cache.answers(request) else self.slot_of_site(request)

    def slot_of_site(self, request: Request) -> str:
        """Return the slot of the site of ``request``, whether the HTTP cache answers it or not."""
        return slot_of(request) or self._polite.get_slot_key(request)
