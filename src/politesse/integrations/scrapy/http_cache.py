"""Scrapy's HTTP cache (``HTTPCACHE_ENABLED``): which requests it answers, and its copy of robots.txt.

Theory of operation. HttpCacheMiddleware answers a request behind all other middlewares, and then nothing is sent. Such
a request needs no turn, and no robots.txt that is up to date: the rules of the copy in the same cache apply to it, of
any age, as with Scrapy's own middleware. So a crawl runs from its cache when the server is down. Only these requests
depend on that copy. For all others the gate fetches robots.txt from the server, never from the cache, and a fault
closes the site; each file that was fetched is stored in the cache for the next run.

Whether the cache answers is found by its policy and its storage, whose interface Scrapy documents, before the request
gets there. Should it not answer after all, the downloader still judges the request, as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cachetools import LRUCache
from scrapy import Request
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware

from politesse._http.body import BodyError
from politesse.integrations.scrapy.parser import RobotParser
from politesse.integrations.scrapy.robots_response import decoded_body, header_texts, settles
from politesse.origin import Origin

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

STALE: Final = "cached_response"
"""The key under which HttpCacheMiddleware keeps a stale response in the meta of a request that it passes on."""

_MAX_PARSERS: Final = 1000


class HttpCache:
    """Scrapy's HTTP cache of one crawl; empty if ``HTTPCACHE_ENABLED`` is false.

    Args:
        crawler: whose engine has the middleware.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._enabled = crawler.settings.getbool("HTTPCACHE_ENABLED")
        self._parsers: LRUCache[str, RobotParser | None] = LRUCache(_MAX_PARSERS)

    def answers(self, request: Request) -> bool:
        """Return whether the cache answers ``request``, so that nothing is sent."""
        cache = self._middleware(request)
        if cache is None:
            return False
        copy = request.copy()  # policy and storage write into it
        stored = self._stored(cache, copy)
        if stored is None:
            return bool(cache.ignore_missing)  # then HttpCacheMiddleware ignores the request
        return bool(cache.policy.is_cached_response_fresh(stored, copy))

    def recovers(self, request: Request) -> bool:
        """Return whether the cache has a response to ``request``, maybe a stale one, for when the server is down."""
        cache = self._middleware(request)
        return cache is not None and self._stored(cache, request.copy()) is not None

    def robots_parser(self, url: str) -> RobotParser | None:
        """Return the parser of the stored robots.txt for ``url``; None if there is none that decides."""
        robots_url = Origin.of(url).robots_url
        if robots_url not in self._parsers:
            self._parsers[robots_url] = self._read(Request(robots_url))
        return self._parsers[robots_url]

    def store_robots(self, url: str, response: Response) -> None:
        """Store the response to a request for robots.txt, if it decides what may be crawled."""
        request = Request(url)
        cache = self._middleware(request)
        if cache is not None and settles(response.status) and cache.policy.should_cache_response(response, request):
            cache.storage.store_response(self._crawler.spider, request, response)

    def _middleware(self, request: Request) -> HttpCacheMiddleware | None:
        """Return the middleware if it treats ``request``."""
        if not self._enabled or request.meta.get("dont_cache"):
            return None
        cache = self._crawler.get_downloader_middleware(HttpCacheMiddleware)
        return cache if cache is not None and cache.policy.should_cache_request(request) else None

    def _stored(self, cache: HttpCacheMiddleware, request: Request) -> Response | None:
        try:
            stored: Response | None = cache.storage.retrieve_response(self._crawler.spider, request)
        except Exception:  # noqa: BLE001 - a storage may raise anything; HttpCacheMiddleware is next and reports it
            return None
        return stored

    def _read(self, request: Request) -> RobotParser | None:
        cache = self._middleware(request)
        response = None if cache is None else self._stored(cache, request)
        if response is None or not settles(response.status):
            return None
        if response.status // 100 == 4:  # noqa: PLR2004 - RFC 9309 2.3.1.3: unavailable, everything is allowed
            return RobotParser(b"")
        try:
            return RobotParser(decoded_body(response, header_texts(response.headers))[0])
        except BodyError:
            return None
