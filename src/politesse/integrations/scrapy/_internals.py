"""Scrapy's internals: no other module of this package uses an undocumented name of Scrapy.

Scrapy may change these names in any version. They are the same in Scrapy 2.14 to 2.19, and
tests/wire/scrapy/test_internals.py checks each of them. Each name is here because Scrapy has no public way to do the
same.

Engine
    ``_slot`` with ``inprogress``, ``closing`` and ``nextcall``; ``downloader``; ``close_spider_async``. Scrapy sends no
    signal when a request ends or the spider begins to close. Scrapy has no public way to make the engine ask the
    scheduler at once. ``Crawler.crawling`` is needed because settings are also read before a crawl.
Downloader
    The steps of a request: ``fetch``, ``get_slot_key``, ``_get_slot``, ``_download``; ``middleware.middlewares``;
    ``Slot.delay``. A turn is taken after Scrapy's slot releases the request, and before the request is sent. The
    ``_handlers`` of ``handlers``, and of HttpxDownloadHandler ``_default_client`` and ``_proxy_clients``: httpx2 does
    not reset an HTTP/2 request that it gives up.
Queue
    The slots of DownloaderAwarePriorityQueue: ``pqueues``, ``pqfactory``, and ``_downloader_interface`` with ``stats``
    and ``get_slot_key``. The queue selects the next slot, and names the slots after origins.
Job directory
    ``job_dir``; the scheduler's ``requests.queue/active.json``; ``scheduler.df.file``, the file of the filter for
    duplicates. The journal restores the scheduler's queue after a ``kill -9``.
HTTP cache
    ``policy`` of HttpCacheMiddleware with ``should_cache_request``, ``should_cache_response`` and
    ``is_cached_response_fresh``; ``storage`` with ``retrieve_response`` and ``store_response``; the meta key
    ``cached_response``. A request that the cache answers takes no turn.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from scrapy.core.downloader import Downloader, Slot
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface, QueueProtocol, ScrapyPriorityQueue
from scrapy.utils.job import job_dir

from politesse.fetch._http2 import resetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sized

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

T = TypeVar("T")

DownstreamQueue: TypeAlias = QueueProtocol
CLOSING: Final = "The spider is being closed"
STATE: Final = "active.json"
"""The file to which the scheduler writes the result of the queue's ``close``."""

STALE: Final = "cached_response"
"""The key under which HttpCacheMiddleware keeps a stale response in the meta of a request that it passes on."""

_CHECK_S: Final = 0.5
_QUEUE: Final = "requests.queue"  # the directory of the scheduler's queue in JOBDIR


class SpiderClosing(IgnoreRequest):
    """A wait has ended because the spider is being closed."""


def requests_under_way(crawler: Crawler) -> frozenset[Request]:
    """Return the requests that the engine has taken from the scheduler, and that have not ended.

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
    """Write the buffer of Scrapy's filter for duplicates to its file; Scrapy itself seldom writes the buffer."""
    slot = crawler.engine._slot  # noqa: SLF001
    file = None if slot is None else getattr(getattr(slot.scheduler, "df", None), "file", None)
    if file is not None:
        file.flush()


def close_spider(crawler: Crawler, reason: str) -> Coroutine[Any, Any, None]:
    """Close the spider."""
    return crawler.engine.close_spider_async(reason=reason)


def downloader_of(crawler: Crawler) -> Downloader:
    """Return the downloader of a crawl."""
    return crawler.engine.downloader


def has_started(crawler: Crawler) -> bool:
    """Return whether the crawl has started, and therefore a reactor is installed."""
    return crawler.crawling is True


def job_directory(settings: BaseSettings) -> Path | None:
    """Return the directory that JOBDIR names, after creating it if necessary; None without JOBDIR."""
    return None if (directory := job_dir(settings)) is None else Path(directory)


def journal_path(queue: Path) -> Path:
    """Return the path of the journal of a queue: see QueueJournal."""
    return Path(f"{queue}.journal")


def discard_cut_state(job_directory: Path) -> None:
    """Remove the state file of the scheduler's queue if the last run was killed; call this before Scrapy reads it."""
    queue = job_directory / _QUEUE
    if journal_path(queue).exists():
        (queue / STATE).unlink(missing_ok=True)


async def patiently(crawler: Crawler, awaited: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``awaited``; if the spider is being closed, cancel ``awaited`` and raise SpiderClosing."""
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


class HttpCache:
    """Scrapy's HTTP cache of a crawl; empty if ``HTTPCACHE_ENABLED`` is false.

    Args:
        crawler: the crawler, whose engine has the middleware.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._enabled = crawler.settings.getbool("HTTPCACHE_ENABLED")
        self._ignores_missing = crawler.settings.getbool("HTTPCACHE_IGNORE_MISSING")

    def answers(self, request: Request) -> bool:
        """Return whether the cache answers ``request``, so that Scrapy sends nothing."""
        cache = self._middleware(request)
        if cache is None:
            return False
        copy = request.copy()  # a copy, because policy and storage change the request
        stored = self.stored(copy)
        if stored is None:
            return self._ignores_missing  # with this setting HttpCacheMiddleware ignores the request
        return bool(cache.policy.is_cached_response_fresh(stored, copy))

    def stored(self, request: Request) -> Response | None:
        """Return the stored response to ``request``, perhaps stale, if there is one."""
        cache = self._middleware(request)
        try:
            return None if cache is None else cache.storage.retrieve_response(self._crawler.spider, request)
        except Exception:  # noqa: BLE001 - a storage may raise anything; HttpCacheMiddleware is next and reports it
            return None

    def store(self, request: Request, response: Response) -> None:
        """Store ``response``, if the policy permits that."""
        cache = self._middleware(request)
        if cache is not None and cache.policy.should_cache_response(response, request):
            cache.storage.store_response(self._crawler.spider, request, response)

    def _middleware(self, request: Request) -> HttpCacheMiddleware | None:
        """Return the middleware if it handles ``request``, else None."""
        if not self._enabled or request.meta.get("dont_cache"):
            return None
        cache = self._crawler.get_downloader_middleware(HttpCacheMiddleware)
        return cache if cache is not None and cache.policy.should_cache_request(request) else None


class SteppedDownloader(Downloader):
    """Scrapy's downloader; a subclass overrides the steps of a request."""

    crawler: Crawler

    def host_slot(self, request: Request) -> str | None:
        """Return the host whose slot ``request`` takes; None to let Scrapy select the slot."""

    def arrived(self, request: Request, slot: str) -> None:
        """Called when ``request`` comes to the downloader, before all middlewares."""

    async def send(self, request: Request, transmit: Callable[[], Awaitable[Response]]) -> Response:  # noqa: ARG002 - for subclasses
        """Await ``transmit``, which sends ``request``; Scrapy's slot has released the request."""
        return await transmit()

    def failed(self, failure: Failure, request: Request) -> Request | Failure:  # noqa: ARG002 - for subclasses
        """Return the result of a request that has failed; the method ``left`` is called afterwards."""
        return failure

    def left(self, result: T, request: Request, slot: str) -> T:  # noqa: ARG002 - for subclasses
        """Return ``result``; called when ``request`` has left the downloader, after all middlewares."""
        return result

    def find_middleware(self, kind: type[T]) -> T | None:
        """Return the first downloader middleware of a class, also before the engine has this downloader."""
        return next((one for one in self.middleware.middlewares if isinstance(one, kind)), None)

    def slot_name(self, request: Request) -> str:
        """Return the name of the slot of ``request``."""
        return self.get_slot_key(request)

    def get_slot_key(self, request: Request) -> str:
        """Return the name of the slot of ``request``; Scrapy calls this method."""
        return self.host_slot(request) or super().get_slot_key(request)

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:  # noqa: ARG002 - Scrapy's signature
        """Pass ``request`` through the middlewares and send it."""
        slot = self.slot_name(request)
        self.arrived(request, slot)
        fetched: Deferred[Response | Request] = super().fetch(request)
        return fetched.addErrback(self.failed, request).addBoth(self.left, request, slot)

    def _get_slot(self, request: Request, spider: Spider | None = None) -> tuple[str, Slot]:  # noqa: ARG002 - Scrapy's signature
        key, slot = super()._get_slot(request)
        if not key:
            slot.delay = 0.0  # without a host, no server needs a delay
        return key, slot

    async def _download(self, slot: Slot, request: Request) -> Response:
        async def transmit() -> Response:
            async with resetting(self._httpx_clients):
                return await download(slot, request)

        download = super()._download
        return await self.send(request, transmit)

    def _httpx_clients(self) -> list[object]:
        """Return the clients of each HttpxDownloadHandler."""
        clients: list[object] = []
        for handler in self.handlers._handlers.values():  # noqa: SLF001
            clients += [getattr(handler, "_default_client", None), *getattr(handler, "_proxy_clients", {}).values()]
        return clients


class SlotQueue(DownloaderAwarePriorityQueue):
    """Scrapy's DownloaderAwarePriorityQueue; a subclass names the slots, and selects the next slot."""

    crawler: Crawler

    def select_slots(self) -> None:
        """Let this queue select its slots and their names, in place of Scrapy's DownloaderInterface."""
        self._downloader_interface = cast("DownloaderInterface", self)  # this object has the methods of the interface

    def slot_name(self, request: Request) -> str:
        """Return the slot of ``request``."""
        raise NotImplementedError

    def next_slot(self) -> str | None:
        """Return the slot of the next request; None if no slot is ready."""

    def note_slot(self, slot: str) -> None:
        """Called when a slot is created, also by the constructor."""

    @property
    def slots(self) -> Mapping[str, Sized]:
        """The queue of each slot that has requests."""
        return self.pqueues

    def pqfactory(self, slot: str, startprios: Iterable[int] = ()) -> ScrapyPriorityQueue:
        """Return the queue of a new slot."""
        self.note_slot(slot)
        return super().pqfactory(slot, startprios)

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:  # noqa: ARG002 - Scrapy's signature
        """Return only the next slot, because Scrapy selects a slot from the result."""
        # A ready host has no request under way, so the number of its active downloads is 0.
        return [] if (slot := self.next_slot()) is None else [(0, slot)]

    def get_slot_key(self, request: Request) -> str:
        """Return the slot of ``request``."""
        return self.slot_name(request)
