"""The method ``crawl`` of the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from politesse.errors import ConfigurationError
from politesse.queue.clients import client_of
from politesse.queue.crawl import Crawl, CrawlOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.queue.clients import AiohttpStyle, HttpxStyle
    from politesse.queue.crawl import CrawledQueue
    from politesse.queue.links import Seen
    from politesse.queue.reports import CrawlPage, CrawlProgress, CrawlReport

Item = TypeVar("Item")
Response = TypeVar("Response")


class CurrentCrawl(Protocol):
    """What the queue reports to the crawl that is under way."""

    def admit(self, url: str) -> bool:
        """Return whether a URL that is put is new; otherwise it is ignored."""

    def note_refusal(self, url: str) -> None:
        """Report that a URL was refused."""


class CrawlableQueue(ABC, Generic[Item]):
    """The base of PoliteQueue: what it does with a crawl."""

    _crawl: CurrentCrawl | None = None

    async def crawl(
        self,
        web: AiohttpStyle[Response] | HttpxStyle[Response],
        handle: Callable[[CrawlPage[Item], Response], Awaitable[object]],
        *,
        workers: int = 20,
        seen: Seen | None = None,
        max_pages: int | None = None,
        on_progress: Callable[[CrawlProgress], object] | None = None,
        on_error: Callable[[CrawlPage[Item], BaseException], object] | None = None,
        stop_on_error: bool = False,
    ) -> CrawlReport:
        """Request every URL of the queue, hand each page to ``handle``, and follow the links that it puts.

        Each URL is requested once, in a turn of its host, by a GET request with the timeouts of ``web``. A redirect is
        not followed at once: its target is queued with the same item, after at most 10 hops, unless it was seen. An
        answer of 429 or 503 closes its host, and the URL is requested again later, at most 5 times in all; it is given
        up as any other URL if its host is closed for longer than ``max_wait_s`` of the queue. Every other answer is a
        page, whatever its status.

        URLs count as one if their normal forms are equal (RFC 3986 6.2.2 and 6.2.3, by yarl): scheme and host in lower
        case, no default port, escapes decoded where that is safe, dot segments resolved, ``/`` for an empty path, no
        fragment, no empty query. The order of a query and a trailing slash matter. The normal form is only compared;
        the request has the URL as it was put.

        It ends when every URL is done, ``handle`` included, or after ``max_pages``. If it is cancelled, or ends with an
        error, URLs under way go back into the queue, the log says how many are left, and a later crawl with the same
        ``seen`` goes on with them.

        Args:
            web: a PoliteSession of the same gatekeeper, an ``aiohttp.ClientSession``, or an ``httpx.AsyncClient``. It
                is not closed. Without a User-Agent of its own it sends that of the gate.
            handle: an asynchronous function of a CrawlPage and the response, as ``web`` gives it. It holds its host
                until the response is read to its end, or it returns. The body of an httpx response has been read. What
                it raises is logged with the URL, and passed to ``on_error``.
            workers: how many URLs are under way at once, each at another host; positive.
            seen: the URLs that are not to be requested, to which those of this crawl are added: a set, or any object
                with ``__contains__`` and ``add``, in their normal form. By default a set of digests. ``put`` of a URL
                that was seen is ignored while the crawl runs; URLs that were put before it are requested.
            max_pages: how many pages are handed to ``handle`` at most; None for any number.
            on_progress: called whenever a URL is finished or refused; must not block.
            on_error: called with a page, and what ``handle`` or the request raised, or PageFailed.
            stop_on_error: whether the first error of ``handle`` ends the crawl and is raised.

        Raises:
            ConfigurationError: an argument is invalid, ``web`` belongs to another gatekeeper, or the queue is being
                crawled already; a ConfigurationTypeError if an argument has the wrong type.
            ClosedError: the gatekeeper or ``web`` was closed.
            Exception: what ``seen``, ``on_progress``, ``on_error`` or ``on_disallowed`` raises, and, if
                ``stop_on_error``, what ``handle`` raises.

        Example:
            >>> import asyncio
            >>> from politesse import Gatekeeper, PoliteQueue
            >>> from politesse.testing import ScriptedFetcher
            >>> import httpx
            >>> async def handle(page, response):
            ...     print(page.url, response.status_code, [page.put(link) for link in ("/", "/b", "mailto:us")])
            >>> async def main() -> None:
            ...     site = httpx.MockTransport(lambda request: httpx.Response(200))
            ...     agent = "ExampleBot/1.0 (+https://example.com/bot)"
            ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher()) as gate:
            ...         queue = PoliteQueue(gate)
            ...         await queue.put("https://a.example/")
            ...         async with httpx.AsyncClient(transport=site) as web:
            ...             report = await queue.crawl(web, handle, max_pages=1)
            ...         print(report.pages, report.left, report.bad_links)
            >>> asyncio.run(main())
            https://a.example/ 200 [False, True, False]
            1 1 1
        """
        if self._crawl is not None:
            raise ConfigurationError(f"{self!r} is being crawled: wait for the end of that crawl, or use another queue")
        options = CrawlOptions(workers, seen, max_pages, on_progress, on_error, stop_on_error)
        queue = self._crawled()
        crawl = Crawl(queue, client_of(web, queue.gate), handle, options)
        self._crawl = crawl
        try:
            return await crawl.run()
        finally:
            self._crawl = None

    @abstractmethod
    def _crawled(self) -> CrawledQueue[Item]:
        """Return what a crawl uses of this queue."""

    def _note_refusal(self, url: str) -> None:
        if self._crawl is not None:
            self._crawl.note_refusal(url)

    def _is_seen(self, url: str) -> bool:
        """Return whether a crawl is under way that has seen ``url``; otherwise it counts as seen from now on."""
        return self._crawl is not None and not self._crawl.admit(url)
