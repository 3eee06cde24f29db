"""Fetches robots.txt with Scrapy's engine, handlers and middlewares; politesse decides the outcome of each fetch.

Theory of operation of Scrapy's HTTP cache (``HTTPCACHE_ENABLED``). HttpCacheMiddleware comes after all other
middlewares. If it answers a request, Scrapy sends no request. Then no turn and no fresh robots.txt are needed: the
robots.txt in the same cache decides, whatever its age, as in Scrapy's own middleware. So a crawl can run from its cache
while its servers are down. For all other requests the gate fetches robots.txt from the server, never from the cache,
and a fault closes the site. The cache stores each robots.txt that was fetched, for the next run.

Before a request, ``HttpCache.answers`` checks the policy and the storage to find out whether the cache will answer. If
the cache then does not answer, the downloader judges the request like any other.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

import scrapy.exceptions
from cachetools import LRUCache
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import RobotParser as ScrapyRobotParser
from scrapy.utils.misc import build_from_crawler, load_object
from yarl import URL

from politesse._base.text import printable, printable_traceback
from politesse._cache.outcome import is_fault_of_kind
from politesse._http.body import BodyError, BoundedBody
from politesse._http.fields import joined_fields
from politesse._http.redirects import REDIRECTS, conditions_of, fault_at, unfollowed
from politesse._pacing.refusals import challenge_of
from politesse.fetch._addresses import AddressGuard, SystemResolver
from politesse.fetch._options import MIN_BODY_BYTES, FetchOptions
from politesse.integrations.scrapy._internals import HttpCache, patiently
from politesse.origin import Origin
from politesse.ports import MAX_BODY_BYTES, FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.robots import RobotsTxt
from politesse.robots.lexer import cut_at_line_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from politesse.verdict import Source


def count(crawler: Crawler, stat: str, number: Any = 1) -> None:  # noqa: ANN401 - Scrapy says int, and adds any number
    """Add to a stat of the crawl."""
    if crawler.stats is not None:
        crawler.stats.inc_value(stat, number)


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


def stored_parser(response: Response | None) -> RobotParser | None:
    """Return the parser of a stored robots.txt, if its status decides which pages may be requested."""
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


logger = logging.getLogger(__name__)

ROBOTS_TXT: Final = "politesse_robots_txt"
"""The meta key of a request for robots.txt or another file of the gate: the number of octets received."""

_PRIORITY: Final = 1000  # the priority in Scrapy's own middleware
_TIMEOUT_S: Final = 30.0  # a request may take at most this time
_LOOKUP_S: Final = 10.0
_GRACE_S: Final = 2.0  # added to ``_TIMEOUT_S``: Scrapy's timeout must come first, so that Scrapy closes the connection
_MAX_ERRORS: Final = 10_000
_EVERYTHING_DISALLOWED: Final = b"User-agent: *\nDisallow: /\n"
_META: Final[dict[str, object]] = {
    ROBOTS_TXT: 0,
    "dont_obey_robotstxt": True,  # the request must not wait for its own response
    "allow_offsite": True,  # a site may redirect its robots.txt to another site (RFC 9309 2.3.1.2)
    # The table of outcomes needs every status, and the age of a stored copy. Middlewares that follow redirects, repeat
    # requests or cache answers would hide both.
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "dont_merge_cookies": True,
    "autothrottle_dont_adjust_delay": True,
    # This setting limits Content-Length and decoded bodies; _bytes_received stops all other bodies much earlier.
    "download_maxsize": MAX_BODY_BYTES,
    "download_warnsize": 0,
    "download_fail_on_dataloss": True,
}


_EXCEPTIONS: Final[Mapping[FaultKind, tuple[str, ...]]] = {
    FaultKind.TIMEOUT: ("DownloadTimeoutError", "TimeoutError", "TCPTimedOutError"),
    FaultKind.DNS: ("CannotResolveHostError", "DNSLookupError"),
    FaultKind.TRUNCATED: ("ResponseDataLossError",),
    FaultKind.PROTOCOL: ("DownloadCancelledError", "CancelledError"),
    FaultKind.CONNECT: ("DownloadFailedError",),
}
"""The exceptions for each kind of fault: first Scrapy's, then Twisted's, which Scrapy raised before 2.15."""


class PrivateAddress(IgnoreRequest):
    """A host has a private address, or an address that cannot be checked."""


class RobotsTxtFailed(IgnoreRequest):
    """A request is not made because the download of robots.txt failed; ``__cause__`` is the reason."""

    def as_in_scrapy(self) -> IgnoreRequest:
        """Return an IgnoreRequest that also has the type of the cause, which errbacks get in plain Scrapy."""
        kind = type(self.__cause__)
        both: type[IgnoreRequest] = type(kind.__name__, (IgnoreRequest, kind), {"__str__": lambda _: str(self)})
        error = both.__new__(both, str(self))  # the constructor of the cause may have other arguments
        error.__cause__ = self.__cause__
        return error


class EngineFetcher:
    """A Fetcher over ``crawler.engine``: its requests pass the downloader middlewares, but no spider middleware.

    The fetcher counts robots.txt as Scrapy's own middleware does (``robotstxt/request_count`` and so on) and sends
    ``robots_parsed``. Scrapy does not reveal the address of a name before it connects. So the fetcher checks the
    addresses of names only if private addresses are denied; otherwise it checks only addresses in URLs.

    Args:
        crawler: the crawler, which has the engine.

    Attributes:
        options: the limit of a body, and the option ``private_addresses``.
        excuses_faults: whether a fault of robots.txt opens its site.

    Raises:
        ConfigurationError: ``POLITESSE_PRIVATE_ADDRESSES`` is invalid.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.excuses_faults: bool = crawler.settings.get("POLITESSE_ON_ERROR") == "allow"
        self.options: FetchOptions = FetchOptions(
            private_addresses=crawler.settings.get("POLITESSE_PRIVATE_ADDRESSES", "redirects")
        )
        self._resolver = SystemResolver()
        self._parser: type[ScrapyRobotParser] = load_object(crawler.settings["ROBOTSTXT_PARSER"])
        self._http_cache = HttpCache(crawler)
        self._errors: LRUCache[str, Exception] = LRUCache(_MAX_ERRORS)
        self._causes: WeakValueDictionary[str, Request] = WeakValueDictionary()
        build_from_crawler(self._parser, crawler, b"")  # this reports a missing dependency before the crawl
        crawler.signals.connect(self._bytes_received, signals.bytes_received)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Make one request; a redirect is a fault that names its target."""
        try:
            async with asyncio.timeout(_TIMEOUT_S + _GRACE_S):
                result = await patiently(self._crawler, self._fetch(request))
        except TimeoutError:
            result = fault_at(request.url, FaultKind.TIMEOUT, f"no answer within {_TIMEOUT_S:g} s")
        except IgnoreRequest as error:
            kind = FaultKind.ADDRESS if isinstance(error, PrivateAddress) else FaultKind.INTERNAL
            result = fault_at(request.url, kind, str(error))
        if not request.first_url:
            self._count(request, "request_count")
        if not _is_robots_txt(request) or (isinstance(result, FetchFault) and result.location):
            return result  # the fetch of the next hop decides the outcome
        if isinstance(result, FetchResponse):
            await self._send_parsed(result, self._causes.get(_first_url(request)))
        return self._excused(result) if self.excuses_faults else result

    def note_cause(self, request: Request) -> None:
        """Record that ``request`` waits for its robots.txt."""
        self._causes[Origin.of(request.url).robots_url] = request

    def error(self, source: Source) -> Exception | None:
        """Return the exception of plain Scrapy for the fault of a robots.txt, if the download failed."""
        kind = next((kind for kind in _EXCEPTIONS if is_fault_of_kind(source, kind)), None)
        error = self._errors.get(source.robots_url)
        if kind is None or (error is not None and _kind(error) is kind):
            return None if kind is None else error
        # The fault comes from another run or spider, which stored only the kind of the fault.
        plain: type[Exception] | None = getattr(scrapy.exceptions, _EXCEPTIONS[kind][0], None)
        return None if plain is None else plain(source.fault)

    async def check_host(self, host: str) -> None:
        """Raise PrivateAddress if private addresses are denied, unless all addresses of ``host`` are public."""
        if self.options.private_addresses != "deny":
            return
        guard = AddressGuard(self._resolver, private_addresses="deny", lookup_s=_LOOKUP_S)
        try:
            if not (guard.permits_host(host) and await guard.permits_name(host, 0)):
                raise PrivateAddress(guard.refusal)
        except OSError as error:
            raise PrivateAddress(f"the address of {host} cannot be checked ({error})") from error

    async def aclose(self) -> None:
        """Disconnect from the crawler's signals."""
        self._crawler.signals.disconnect(self._bytes_received, signals.bytes_received)

    async def _fetch(self, request: FetchRequest) -> FetchResult:
        guard = AddressGuard(self._resolver, blind=True, private_addresses=self.options.private_addresses)
        if request.redirected:
            guard.after_public()
        host = URL(request.url, encoded=True).raw_host or ""
        if not guard.permits_host(host):
            return fault_at(request.url, guard.kind, guard.refusal)
        await self.check_host(host)
        response = await self._download(request)
        if isinstance(response, FetchFault):
            return response
        headers = joined_fields(response.headers)
        redirect = None
        if response.status in REDIRECTS:
            redirect = unfollowed(request, response.status, headers.get("location", ""))
        # If a redirect is followed, only the answer of the next hop is counted.
        if redirect is None or request.last or not redirect.location:
            self._count(request, "response_count")
            self._count(request, f"response_status_count/{response.status}")
        if redirect is not None:
            return replace(redirect, private=guard.private)
        if _is_robots_txt(request) and settles(response):
            self._http_cache.store(Request(_first_url(request)), response)
        body, truncated = b"", False
        if 200 <= response.status <= 299:  # noqa: PLR2004 - only these bodies are read
            try:
                body, truncated = decoded_body(response, headers)
            except BodyError as error:
                return fault_at(request.url, error.kind, error.detail, response.status)
        is_conditional = bool(conditions_of(request.validators, request.url))
        return FetchResponse(response.status, request.url, headers, body, truncated, is_conditional)

    async def _download(self, asked: FetchRequest) -> Response | FetchFault:
        conditions = conditions_of(asked.validators, asked.url)
        request = self._request(asked.url, {**conditions, **(asked.signature or {})})
        try:
            return await self._crawler.engine.download_async(request)
        except IgnoreRequest as error:
            # As in Scrapy's own middleware, the stats do not count this fault. Scrapy then allows the site; politesse
            # closes the site by default.
            return fault_at(asked.url, FaultKind.INTERNAL, f"a downloader middleware ignored the request: {error}")
        except Exception as error:  # noqa: BLE001 - handlers and middlewares may raise anything; every fault closes the gate
            logger.error(  # noqa: TRY400 - exc_info is not printable
                "Error downloading %s: %s\n%s",  # the message of Scrapy's own middleware
                *(printable(str(request)), printable(str(error)), printable_traceback(error)),
                extra={"spider": self._crawler.spider},
            )
            self._count(asked, f"exception_count/{type(error)}")
            self._errors[_first_url(asked)] = error
            return fault_at(asked.url, _kind(error), str(error).rstrip(".") or type(error).__name__)

    def _request(self, url: str, given: Mapping[str, str]) -> Request:
        meta = _META | {
            # A separate slot, so that the request waits neither for pages nor for AutoThrottle's delay.
            "download_slot": f"robots.txt: {url}",
            "download_timeout": min(_TIMEOUT_S, self._crawler.settings.getfloat("DOWNLOAD_TIMEOUT") or _TIMEOUT_S),
        }
        # The request accepts no content coding, so that the limit can count the received octets.
        headers = {"Accept": "text/plain, */*;q=0.5", "Accept-Encoding": "identity", **given}
        return Request(url, headers=headers, priority=_PRIORITY, callback=NO_CALLBACK, meta=meta)

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Stop a robots.txt that exceeds the limit."""
        so_far = request.meta.get(ROBOTS_TXT)
        if so_far is not None:
            request.meta[ROBOTS_TXT] = so_far = so_far + len(data)
            if so_far > MIN_BODY_BYTES:
                raise StopDownload(fail=False)

    async def _send_parsed(self, response: FetchResponse, cause: Request | None) -> None:
        """Send the signal ``robots_parsed`` of Scrapy 2.18 and later, with a parser of the present rules."""
        signal = getattr(signals, "robots_parsed", None)
        if signal is None or cause is None or response.status == 304:  # noqa: PLR2004 - 304: the rules have not changed
            return
        closes = not settles(response) and not self.excuses_faults
        # If the server has no robots.txt, the body is empty.
        parser = build_from_crawler(self._parser, self._crawler, _EVERYTHING_DISALLOWED if closes else response.body)
        await self._crawler.signals.send_catch_log_async(signal=signal, robotparser=parser, request=cause)

    def _excused(self, result: FetchResult) -> FetchResult:
        """Return ``result``, or an outcome that allows the site if ``result`` would close it."""
        if isinstance(result, FetchResponse) and (result.conditional or settles(result)):
            return result
        fault = result.detail if isinstance(result, FetchFault) else f"the server answered with {result.status}"
        # REDIRECT_LIMIT is the only fault that opens a site (RFC 9309 2.3.1.2).
        detail = f"{fault}; POLITESSE_ON_ERROR allows it"
        return FetchFault(FaultKind.REDIRECT_LIMIT, detail, result.final_url, result.status, final=True)

    def _count(self, request: FetchRequest, name: str) -> None:
        if _is_robots_txt(request):
            count(self._crawler, f"robotstxt/{name}")


def _is_robots_txt(request: FetchRequest) -> bool:
    """Return whether a fetch began at the URL of a robots.txt."""
    url = _first_url(request)
    return url == Origin.of(url).robots_url


def _first_url(request: FetchRequest) -> str:
    return request.first_url or request.url


def _kind(error: Exception) -> FaultKind:
    names = {kind.__name__ for kind in type(error).__mro__}
    return next((kind for kind, known in _EXCEPTIONS.items() if not names.isdisjoint(known)), FaultKind.CONNECT)
