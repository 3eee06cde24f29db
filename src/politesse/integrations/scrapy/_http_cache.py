"""Scrapy's HTTP cache (``HTTPCACHE_ENABLED``): the requests that it answers, and its copy of robots.txt.

Theory of operation. HttpCacheMiddleware comes after all other middlewares. If it answers a request, Scrapy sends no
request. Then no turn and no fresh robots.txt are needed: the robots.txt in the same cache decides, whatever its age, as
in Scrapy's own middleware. So a crawl can run from its cache while its servers are down. For all other requests the
gate fetches robots.txt from the server, never from the cache, and a fault closes the site. The cache stores each
robots.txt that was fetched, for the next run.

Before a request, ``answers`` checks the policy and the storage to find out whether the cache will answer. If the cache
then does not answer, the downloader judges the request like any other.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from cachetools import LRUCache
from scrapy import Request
from scrapy.robotstxt import RobotParser as ScrapyRobotParser

from politesse._http.body import BodyError, BoundedBody
from politesse._http.fields import joined_fields
from politesse._pacing.refusals import challenge_of
from politesse.fetch._options import MIN_BODY_BYTES
from politesse.integrations.scrapy._internals import http_cache, is_fresh, store_response, stored_response
from politesse.origin import Origin
from politesse.robots import RobotsTxt
from politesse.robots.lexer import cut_at_line_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.crawler import Crawler
    from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
    from scrapy.http import Response

    from politesse.ports import FetchResponse

_MAX_PARSERS: Final = 1000


class RobotParser(ScrapyRobotParser):
    r"""RFC 9309 behind the interface of Scrapy's parsers; for the setting ``ROBOTSTXT_PARSER``.

    Args:
        body: a robots.txt, as octets; parsed on first use.

    Example:
        >>> parser = RobotParser(b"User-agent: *\nDisallow: /private\n")
        >>> parser.allowed("https://example.com/private/page", "ExampleBot/1.0")
        False
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> Self:  # noqa: ARG003 - as Scrapy has it
        """Return the parser of a body; never raises, for any body."""
        return cls(robotstxt_body)

    @cached_property
    def _robots(self) -> RobotsTxt:
        return RobotsTxt.parse(self._body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Return whether ``user_agent``, a User-Agent or a product token, may request ``url``.

        Raises:
            InvalidURL: ``url`` is not an absolute http or https URL.
        """
        return self._robots.rules_for(_text(user_agent)).allowed(_text(url))


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


class HttpCache:
    """Scrapy's HTTP cache of a crawl; empty if ``HTTPCACHE_ENABLED`` is false.

    Args:
        crawler: the crawler, whose engine has the middleware.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._enabled = crawler.settings.getbool("HTTPCACHE_ENABLED")
        self._ignores_missing = crawler.settings.getbool("HTTPCACHE_IGNORE_MISSING")
        self._parsers: LRUCache[str, RobotParser | None] = LRUCache(_MAX_PARSERS)

    def answers(self, request: Request) -> bool:
        """Return whether the cache answers ``request``, so that Scrapy sends nothing."""
        cache = self._middleware(request)
        if cache is None:
            return False
        copy = request.copy()  # a copy, because policy and storage change the request
        stored = self._stored(cache, copy)
        if stored is None:
            return self._ignores_missing  # with this setting HttpCacheMiddleware ignores the request
        return is_fresh(cache, stored, copy)

    def recovers(self, request: Request) -> bool:
        """Return whether the cache has a response to ``request``, perhaps stale, to use while the server is down."""
        cache = self._middleware(request)
        return cache is not None and self._stored(cache, request.copy()) is not None

    def robots_parser(self, url: str) -> RobotParser | None:
        """Return the parser of the stored robots.txt for ``url``, if the cache has a copy with a decisive status."""
        robots_url = Origin.of(url).robots_url
        if robots_url not in self._parsers:
            self._parsers[robots_url] = self._read(Request(robots_url))
        return self._parsers[robots_url]

    def store_robots(self, url: str, response: Response) -> None:
        """Store the response to a request for robots.txt, if its status decides which pages may be requested."""
        request = Request(url)
        cache = self._middleware(request)
        if cache is not None and settles(response):
            store_response(cache, self._crawler, request, response)

    def _middleware(self, request: Request) -> HttpCacheMiddleware | None:
        """Return the middleware if it handles ``request``, else None."""
        is_used = self._enabled and not request.meta.get("dont_cache")
        return http_cache(self._crawler, request) if is_used else None

    def _stored(self, cache: HttpCacheMiddleware, request: Request) -> Response | None:
        try:
            return stored_response(cache, self._crawler, request)
        except Exception:  # noqa: BLE001 - a storage may raise anything; HttpCacheMiddleware is next and reports it
            return None

    def _read(self, request: Request) -> RobotParser | None:
        cache = self._middleware(request)
        response = None if cache is None else self._stored(cache, request)
        if response is None or not settles(response):
            return None
        if response.status // 100 == 4:  # noqa: PLR2004 - RFC 9309 2.3.1.3: unavailable, everything is allowed
            return RobotParser(b"")
        try:
            return RobotParser(decoded_body(response, joined_fields(response.headers))[0])
        except BodyError:
            return None


def settles(response: Response | FetchResponse) -> bool:
    """Return whether a response decides which pages may be requested.

    206 (a part of the file), 429 and a challenge do not.
    """
    status = response.status
    return status // 100 in {2, 4} and status not in {206, 429} and not challenge_of(joined_fields(response.headers))


def decoded_body(response: Response, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """Return the body, decoded if no middleware has decoded it, and whether it was cut; raises BodyError."""
    if "download_stopped" in response.flags:
        return cut_at_line_end(response.body, min(MIN_BODY_BYTES, len(response.body))), True
    empty = response.status == 204 or not response.body  # noqa: PLR2004
    body = BoundedBody("" if empty else headers.get("content-encoding", ""), MIN_BODY_BYTES)
    body.feed(response.body)
    return body.finish()
