"""A fetcher over Scrapy's engine: Scrapy's handlers and middlewares, politesse's outcomes."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import scrapy.exceptions
from OpenSSL.SSL import Error as SSLError
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import CancelledError
from twisted.internet.error import DNSLookupError, TCPTimedOutError
from twisted.internet.error import TimeoutError as TwistedTimeoutError
from yarl import URL

from politesse._http.body import BodyError
from politesse._http.redirects import REDIRECTS, Hops
from politesse._text import printable, printable_traceback
from politesse.fetch.addresses import AddressGuard, SystemResolver
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.integrations.scrapy.engine import count, patiently
from politesse.integrations.scrapy.http_cache import HttpCache
from politesse.integrations.scrapy.robots_response import decoded_body, header_texts, settles
from politesse.origin import Origin
from politesse.ports import MAX_BODY_BYTES, FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser


logger = logging.getLogger(__name__)

ROBOTS_TXT: Final = "politesse_robots_txt"
"""The meta key of a request for robots.txt or another file of the gate: the number of octets received."""

CAUSE: Final[ContextVar[Request | None]] = ContextVar("CAUSE", default=None)
"""The request for which robots.txt is fetched; the fetching task inherits it."""

_PRIORITY: Final = 1000  # as in Scrapy's own middleware
_TIMEOUT_S: Final = 30.0  # for one fetch with all its redirects
_GRACE_S: Final = 2.0  # so that Scrapy's own timeout comes first, and closes the connection properly
_EVERYTHING_DISALLOWED: Final = b"User-agent: *\nDisallow: /\n"


class EngineFetcher:
    """A Fetcher over ``crawler.engine``: its requests pass the downloader middlewares, but no spider middleware.

    It counts robots.txt as Scrapy's own middleware does (``robotstxt/request_count`` and so on) and sends
    ``robots_parsed``. Only addresses in URLs are checked: Scrapy does not reveal what a name resolves to before it
    connects.

    Args:
        crawler: with the engine.
        on_error: ``"disallow"``; or ``"allow"`` to treat every fault of a robots.txt as if there were none.
    """

    def __init__(self, crawler: Crawler, on_error: str) -> None:
        self._crawler = crawler
        self._allows = on_error == "allow"
        self._parser: type[RobotParser] = load_object(crawler.settings["ROBOTSTXT_PARSER"])
        self._http_cache = HttpCache(crawler)
        build_from_crawler(self._parser, crawler, b"")  # a missing dependency is reported now, not during the crawl
        crawler.signals.connect(self._bytes_received, signals.bytes_received)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch once, following as many redirects as the request permits."""
        hops = Hops(request)
        try:
            async with asyncio.timeout(_TIMEOUT_S + _GRACE_S):
                result = await patiently(self._crawler, self._fetch(hops))
        except TimeoutError:
            result = hops.fault(FaultKind.TIMEOUT, f"no answer within {_TIMEOUT_S:g} s")
        except IgnoreRequest as error:
            result = hops.fault(FaultKind.INTERNAL, str(error))
        if not _is_robots_txt(request):
            return result
        if not request.first_url:
            self._count("request_count")
        if isinstance(result, FetchFault) and result.location:
            return result  # the outcome is that of the next hop
        if isinstance(result, FetchResponse):
            await self._send_parsed(result)
        return self._excused(result) if self._allows else result

    async def aclose(self) -> None:
        """Disconnect from the crawler's signals."""
        self._crawler.signals.disconnect(self._bytes_received, signals.bytes_received)

    async def _fetch(self, hops: Hops) -> FetchResult:
        guard = AddressGuard(SystemResolver(), blind=True)
        if hops.request.redirected:
            guard.after_public()
        until_s = asyncio.get_running_loop().time() + _TIMEOUT_S
        while (answer := await self._hop(hops, guard, until_s)) is None:
            guard.next_hop()
        return answer

    async def _hop(self, hops: Hops, guard: AddressGuard, until_s: float) -> FetchResult | None:
        """Make one request; None if its redirect is followed."""
        if not guard.permits_host(URL(hops.url, encoded=True).host or ""):
            return hops.fault(FaultKind.REDIRECT_TARGET, guard.refusal)
        response = await self._download(hops, until_s)
        if isinstance(response, FetchFault):
            return response
        headers = header_texts(response.headers)
        if response.status in REDIRECTS:
            target = hops.redirect(response.status, headers.get("location", ""))
            if not isinstance(target, FetchFault):
                hops.seen.append(target[1])
                return None
            if hops.request.last or not target.location:  # otherwise the answer of the next hop is counted
                self._count_response(hops, response.status)
            return replace(target, private=guard.private)
        self._count_response(hops, response.status)
        if _is_robots_txt(hops.request):
            self._http_cache.store_robots(hops.request.first_url or hops.request.url, response)
        body, truncated = b"", False
        if 200 <= response.status <= 299:  # noqa: PLR2004 - only these bodies are read
            try:
                body, truncated = decoded_body(response, headers)
            except BodyError as error:
                return hops.fault(error.kind, error.detail, response.status)
        return FetchResponse(response.status, hops.url, headers, body, truncated, bool(hops.conditions))

    async def _download(self, hops: Hops, until_s: float) -> Response | FetchFault:
        request = self._request(hops.url, hops.conditions, until_s - asyncio.get_running_loop().time())
        try:
            return await self._crawler.engine.download_async(request)
        except IgnoreRequest as error:
            # Scrapy's own middleware does not count this either, but then allows the site.
            return hops.fault(FaultKind.INTERNAL, f"a downloader middleware ignored the request: {error}")
        except Exception as error:  # noqa: BLE001 - handlers and middlewares may raise anything; every fault closes the gate
            logger.error(  # noqa: TRY400 - exc_info is not printable
                "Error downloading %(request)s: %(f_exception)s\n%(traceback)s",  # Scrapy's own words
                {
                    "request": printable(str(request)),
                    "f_exception": printable(str(error)),
                    "traceback": printable_traceback(error),
                },
                extra={"spider": self._crawler.spider},
            )
            if _is_robots_txt(hops.request):
                self._count(f"exception_count/{type(error)}")
            return hops.fault(_kind(error), str(error).rstrip(".") or type(error).__name__)

    def _request(self, url: str, conditions: Mapping[str, str], left_s: float) -> Request:
        settings = self._crawler.settings
        timeout_s = min(max(left_s, 0.001), settings.getfloat("DOWNLOAD_TIMEOUT") or left_s)
        return Request(
            url,
            # Without a coding, so that the octets received can be counted against the limit.
            headers={"Accept": "text/plain, */*;q=0.5", "Accept-Encoding": "identity", **conditions},
            priority=_PRIORITY,
            callback=NO_CALLBACK,
            meta={
                ROBOTS_TXT: 0,
                "dont_obey_robotstxt": True,  # otherwise it would wait for itself
                "allow_offsite": True,  # a site may redirect its robots.txt to another one (RFC 9309 2.3.1.2)
                # The table of outcomes needs every status, and a stored copy its age: middlewares that follow
                # redirects, repeat requests or cache answers would hide both.
                "dont_redirect": True,
                "dont_retry": True,
                "dont_cache": True,
                "dont_merge_cookies": True,
                # A slot of its own: it must not wait for pages, nor for AutoThrottle's delay.
                "download_slot": f"robots.txt: {url}",
                "autothrottle_dont_adjust_delay": True,
                "download_timeout": timeout_s,
                # For Content-Length and for decoded bodies; _bytes_received stops others much earlier.
                "download_maxsize": MAX_BODY_BYTES,
                "download_warnsize": 0,
                "download_fail_on_dataloss": True,
            },
        )

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Stop a robots.txt that exceeds the limit."""
        so_far = request.meta.get(ROBOTS_TXT)
        if so_far is not None:
            request.meta[ROBOTS_TXT] = so_far = so_far + len(data)
            if so_far > MIN_BODY_BYTES:
                raise StopDownload(fail=False)

    async def _send_parsed(self, response: FetchResponse) -> None:
        """Send ``robots_parsed``, as Scrapy does since 2.18, with a parser of the rules that hold now."""
        signal = getattr(signals, "robots_parsed", None)
        cause = CAUSE.get()
        if signal is None or cause is None or response.status == 304:  # noqa: PLR2004 - 304: the rules have not changed
            return
        body = response.body  # empty unless there is a file
        if not settles(response.status) and not self._allows:
            body = _EVERYTHING_DISALLOWED
        parser = build_from_crawler(self._parser, self._crawler, body)
        await self._crawler.signals.send_catch_log_async(signal=signal, robotparser=parser, request=cause)

    def _excused(self, result: FetchResult) -> FetchResult:
        """Return ``result``, or an outcome that allows the site if ``result`` would close it."""
        if isinstance(result, FetchResponse) and (result.conditional or settles(result.status)):
            return result
        fault = result.detail if isinstance(result, FetchFault) else f"the server answered with {result.status}"
        # The only fault that opens a site (RFC 9309 2.3.1.2); a status of 404 would too, but was not the answer.
        detail = f"{fault}; POLITESSE_ON_ERROR allows it"
        return FetchFault(FaultKind.REDIRECT_LIMIT, detail, result.final_url, result.status, final=True)

    def _count_response(self, hops: Hops, status: int) -> None:
        if _is_robots_txt(hops.request):
            self._count("response_count")
            self._count(f"response_status_count/{status}")

    def _count(self, name: str) -> None:
        count(self._crawler, f"robotstxt/{name}")


def _is_robots_txt(request: FetchRequest) -> bool:
    """Return whether the first URL of the fetch is that of a robots.txt."""
    url = request.first_url or request.url
    return url == Origin.of(url).robots_url


def _kind(error: Exception) -> FaultKind:
    for kind, types in _KINDS:
        if isinstance(error, types):
            return kind
    reasons = [getattr(reason, "value", reason) for reason in getattr(error, "reasons", [])]
    if any(isinstance(reason, SSLError) for reason in (*reasons, error.__cause__)):
        return FaultKind.TLS
    return FaultKind.CONNECT


def _types(*names: str) -> tuple[type[Exception], ...]:
    """Return the exceptions that this version of Scrapy defines: before 2.15 it raised those of Twisted."""
    return tuple(getattr(scrapy.exceptions, name) for name in names if hasattr(scrapy.exceptions, name))


_KINDS: Final[tuple[tuple[FaultKind, tuple[type[Exception], ...]], ...]] = (
    (FaultKind.TIMEOUT, (TwistedTimeoutError, TCPTimedOutError, *_types("DownloadTimeoutError"))),
    (FaultKind.DNS, (DNSLookupError, *_types("CannotResolveHostError"))),
    (FaultKind.TRUNCATED, _types("ResponseDataLossError")),
    (FaultKind.PROTOCOL, (CancelledError, *_types("DownloadCancelledError"))),
)
