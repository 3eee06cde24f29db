"""Checks whether a request may be made, in place of Scrapy's ``RobotsTxtMiddleware``; reads the page's directives."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit
from weakref import WeakSet

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, NotConfigured

from politesse._base.text import printable
from politesse._http.fields import header_pairs
from politesse.errors import ClosedError, ConfigurationError, InvalidURL
from politesse.integrations._request import StatedAgents, check_sent, content_codings, headers_alone, may_have_page
from politesse.integrations.scrapy._http_cache import HttpCache
from politesse.integrations.scrapy._internals import CLOSING, SpiderClosing, patiently
from politesse.integrations.scrapy._robots import ROBOTS_TXT, EngineFetcher, RobotsTxtFailed
from politesse.integrations.scrapy._settings import make_gate
from politesse.integrations.scrapy._waits import DEFERRING, count
from politesse.page import PageDirectives
from politesse.verdict import Reason, Verdict

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._gate.view import AgentView
    from politesse.integrations.scrapy._downloader import PoliteDownloader


logger = logging.getLogger(__name__)

PAGE: Final = "politesse_page"
"""The key of a response's PageDirectives in its meta."""

_CUT: Final = frozenset({"dataloss", "download_stopped", "partial"})
"""The flags of a response whose body is incomplete."""

_WITH_ROBOTS_TXT: Final = frozenset({"http", "https"})


class RobotsTxtMiddleware:
    """A downloader middleware that replaces Scrapy's own, with its settings, meta key, signal, stats and messages.

    Differences: a robots.txt is valid for one scheme, host and port, and is fetched again when its copy has expired. If
    robots.txt cannot be fetched, the site stays closed (``POLITESSE_ON_ERROR = "allow"`` opens it, as Scrapy does).

    URLs of other schemes, such as ``ftp:`` and ``data:``, go to Scrapy's handlers without a judgement.

    This middleware only checks permission. PoliteDownloader paces the requests; PolitesseAddon installs both.

    If a later downloader middleware returns a new request, that request passes this middleware, too. A middleware that
    changes the URL or the Host header of a request must come before this middleware. Otherwise only PoliteDownloader
    sees the change, and judges the request again.

    Every response has its PageDirectives as ``response.meta["politesse_page"]``, for the agent that the request was
    judged for. A robots.txt has no directives. With ``POLITESSE_PAGE_DIRECTIVES`` false, no response has directives. If
    a request carries the meta of an earlier response, the middleware removes the directives from that meta. Directives
    are marked ``truncated`` if the body cannot be read: because the extra ``html`` is missing, or because the body is
    still compressed (``COMPRESSION_ENABLED`` is false, or this middleware comes after HttpCompressionMiddleware, 590).

    ``process_request`` raises IgnoreRequest for a request that is not permitted.

    Example::

        DOWNLOADER_MIDDLEWARES = {
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "politesse.integrations.scrapy.RobotsTxtMiddleware": 100,
        }
    """

    def __init__(self, crawler: Crawler) -> None:
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured(
                "ROBOTSTXT_OBEY is False in the project, so no robots.txt is obeyed; remove the setting"
            )
        self.fetcher: EngineFetcher = EngineFetcher(crawler)
        self.gate: Gatekeeper = make_gate(crawler, self.fetcher)
        self.downloader: PoliteDownloader | None = None
        self._crawler = crawler
        self._agents = StatedAgents(self.gate, "")
        self._http_cache = HttpCache(crawler)
        self._reads_pages = crawler.settings.getbool("POLITESSE_PAGE_DIRECTIVES", True)  # noqa: FBT003 - a default
        self._lacks_extra = False
        self._judged: WeakSet[Request] = WeakSet()
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of a crawl.

        Raises:
            NotConfigured: ``ROBOTSTXT_OBEY`` is false.
            ConfigurationError: a setting is invalid.
        """
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Return None to continue, or another request to schedule; raises IgnoreRequest."""
        request.meta.pop(PAGE, None)  # the request may have the meta of an earlier page
        # For other schemes, Scrapy has a handler or raises NotSupported.
        if request.meta.get("dont_obey_robotstxt") or request.url.partition(":")[0].lower() not in _WITH_ROBOTS_TXT:
            return None
        view = self._view(request)
        if self._http_cache.answers(request) and self._stored_robots_permit(request):
            self._judged.add(request)
            return None
        try:
            verdict = await self._verdict(view, request)
            while self.downloader is not None and verdict.reason in DEFERRING:
                if not await self.downloader.has_waited(request, verdict):
                    break
                verdict = await self._verdict(view, request)
        except SpiderClosing:
            later = None if self.downloader is None else self.downloader.keep(request)
            if later is None:
                raise
            return later
        self._judged.add(request)
        if verdict.reason in DEFERRING:
            # As in Scrapy, pages that the stored rules forbid do not wait for the server. For the other pages the cache
            # answers even with a stale response, because PoliteDownloader sends no request while robots.txt is
            # unreachable.
            self._stored_robots_permit(request)
            if self._http_cache.recovers(request):
                return None
        return self._continued(view, request, verdict)

    def process_request_2(self, rp: RobotParser, request: Request) -> None:
        """Raise IgnoreRequest if ``rp`` forbids ``request``, as Scrapy's own middleware does.

        ``rp`` is the robots.txt in the HTTP cache, which also answers ``request``.
        """
        if not rp.allowed(request.url, self._view(request).identity.tokens[0]):
            raise self._refuse(request, "")

    def process_response(self, request: Request, response: Response) -> Response:
        """Add the directives of the page to the meta; return ``response``."""
        if self._reads_pages and ROBOTS_TXT not in request.meta:
            request.meta[PAGE] = self._page(request, response)
        return response

    def judge(self, request: Request) -> AgentView | None:
        """Return the view that judges ``request`` in its present form; None if the request was not judged."""
        return self._view(request, self.gate) if request in self._judged else None

    def forbidden(self, request: Request, verdict: Verdict) -> IgnoreRequest:
        """Count and log a request that is not permitted; return the exception to raise."""
        # If a rule decides, the message is the same as in Scrapy's own middleware.
        why = "" if verdict.reason is Reason.DISALLOW_RULE else f" ({str(verdict).partition(' (')[2]}"
        error = self._refuse(request, why)
        if verdict.source is not None and (cause := self.fetcher.error(verdict.source)) is not None:
            error = RobotsTxtFailed(str(error))
            error.__cause__ = cause
        return error

    def check_sent(self, request: Request) -> None:
        """Raise IgnoreRequest if ``request`` goes to a URL that was not judged, or its User-Agent names no crawler."""
        self._view(request)
        hosts = (value.decode("latin-1") for value in request.headers.getlist(b"Host"))
        try:
            check_sent(request.url, urlsplit(request.url).path, hosts)
        except InvalidURL as error:
            raise self._refuse(request, f" (it {error.problem})") from None

    def _view(self, request: Request, refused: AgentView | None = None) -> AgentView:
        """Return the view for the User-Agent of ``request``, or ``refused`` if the User-Agent names no crawler.

        Raises:
            IgnoreRequest: the User-Agent names no crawler, and ``refused`` is None.
        """
        try:
            return self._agents.view([value.decode("latin-1") for value in request.headers.getlist(b"User-Agent")])
        except ConfigurationError as error:
            if refused is None:
                raise self._refuse(request, f" ({error})") from None
            return refused

    def _continued(self, view: AgentView, request: Request, verdict: Verdict) -> Request | None:
        """Return None to continue, or another request to schedule; raises IgnoreRequest."""
        is_deferred = verdict.reason in DEFERRING
        if self.downloader is not None and (verdict or is_deferred):
            later = self.downloader.postpone(request, verdict)
            if later is not None:
                return later  # the new request is judged again
        view.counted(verdict)
        if verdict:
            return None
        if self.downloader is not None and is_deferred:
            self.downloader.note_ignored(request)
        raise self.forbidden(request, verdict)

    def _stored_robots_permit(self, request: Request) -> bool:
        """Return whether the HTTP cache has a robots.txt; raises IgnoreRequest if that forbids ``request``."""
        parser = self._http_cache.robots_parser(request.url)
        if parser is not None:
            self.process_request_2(parser, request)
        return parser is not None

    async def _verdict(self, view: AgentView, request: Request) -> Verdict:
        self.check_sent(request)
        try:
            judged = view.judged(request.url)
            if judged is None:
                self.fetcher.note_cause(request)
                judged = await patiently(self._crawler, view.learn(request.url))
        except InvalidURL as error:
            raise self._refuse(request, f" (the URL {printable(error.problem)}; see dont_obey_robotstxt)") from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error
        return judged[0]

    def _page(self, request: Request, response: Response) -> PageDirectives:
        tokens, headers = self._view(request, self.gate).identity.tokens, header_pairs(response.headers)
        if not response.body or not may_have_page(request.method, response.status, headers):
            return PageDirectives.from_response(headers, None, tokens)
        if content_codings(headers):
            return headers_alone(headers, tokens)  # HttpCompressionMiddleware removes the header when it decodes
        try:
            page = PageDirectives.from_response(headers, response.body, tokens)
        except ImportError as error:
            if not self._lacks_extra:
                self._lacks_extra = True
                logger.warning(
                    "The METAs of pages are not read, and meta[%r] has only the directives of the headers: %s. "
                    "POLITESSE_PAGE_DIRECTIVES = False turns it off.",
                    *(PAGE, printable(str(error))),
                )
            return headers_alone(headers, tokens)
        return page if _CUT.isdisjoint(response.flags) else replace(page, truncated=True)

    def _refuse(self, request: Request, why: str) -> IgnoreRequest:
        logger.debug(
            "Forbidden by robots.txt: %(request)s%(why)s",
            {"request": printable(str(request)), "why": printable(why)},
            extra={"spider": self._crawler.spider},
        )
        count(self._crawler, "robotstxt/forbidden")
        return IgnoreRequest(f"Forbidden by robots.txt{why}")

    def _engine_started(self) -> None:
        if self.downloader is None:
            logger.warning(
                "Requests are not paced, neither by Crawl-delay nor by Retry-After: %s is not the DOWNLOADER. "
                "PolitesseAddon in ADDONS sets it.",
                "politesse.integrations.scrapy.PoliteDownloader",
            )

    async def _spider_closed(self) -> None:
        await self.gate.aclose()
