"""Whether a request may be made: replaces Scrapy's own ``RobotsTxtMiddleware``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, NotConfigured

from politesse._gate.view import agent_of
from politesse._text import printable
from politesse.errors import ClosedError, InvalidURL
from politesse.integrations._request import check_sent
from politesse.integrations.scrapy.closures import DEFERRING
from politesse.integrations.scrapy.engine import CLOSING, SpiderClosing, count, patiently
from politesse.integrations.scrapy.engine_fetcher import CAUSE, ROBOTS_TXT
from politesse.integrations.scrapy.gate import Agents, errors_logged_in_one_line, make_gate, reads_pages
from politesse.integrations.scrapy.http_cache import HttpCache
from politesse.integrations.scrapy.page_reader import PAGE, PageReader
from politesse.verdict import Reason, Verdict

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._gate.view import AgentView

    class Waits(Protocol):
        """A place where a request can wait without being active."""

        def postpone(self, request: Request, verdict: Verdict, /) -> Request | None:
            """Return the request to schedule instead of ``request`` if its site is not ready, else None."""

        def keep(self, request: Request, /) -> Request | None:
            """Return the request to schedule instead of ``request`` for the next run, or None."""

        def wait_here_s(self, request: Request, verdict: Verdict, /) -> float | None:
            """Return after how many seconds to judge ``request`` again if it cannot be scheduled, else None."""

        def ignored(self, request: Request, /) -> None:
            """Note that ``request`` is not made because its robots.txt was unreachable for too long."""


logger = logging.getLogger(__name__)

_WITH_ROBOTS_TXT: Final = ("http:", "https:")
_LONGEST_SCHEME: Final = max(map(len, _WITH_ROBOTS_TXT))


class RobotsTxtMiddleware:
    """A downloader middleware that replaces Scrapy's own, with its settings, meta key, signal, stats and messages.

    Differences: a robots.txt is valid for one scheme, host and port; it is fetched again when its copy has expired; and
    if it cannot be fetched, the site stays closed (``POLITESSE_ON_ERROR = "allow"`` opens it, as Scrapy does).

    URLs of other schemes, such as ``ftp:`` and ``data:``, are not judged: Scrapy's handlers get them.

    It only checks permission. PoliteDownloader paces the requests; PolitesseAddon installs both.

    A request that a later downloader middleware returns passes this one as well. A middleware that changes the URL or
    the Host header of the request itself belongs before this one: otherwise only PoliteDownloader sees the change, and
    judges the request again.

    Every response has its PageDirectives as ``response.meta["politesse_page"]``, read for the agent that the request
    was judged for; not robots.txt itself, and none if ``POLITESSE_PAGE_DIRECTIVES`` is false. A request that was
    ignored has none, nor has one that was given the meta of a response, until it has a response of its own. They are
    marked ``truncated`` if the body cannot be read: without the extra ``html``, or while it is still compressed, as
    with ``COMPRESSION_ENABLED`` false, or if this middleware comes after HttpCompressionMiddleware (590).

    ``process_request`` raises IgnoreRequest for a request that is not permitted.

    Example::

        DOWNLOADER_MIDDLEWARES = {
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "politesse.integrations.scrapy.RobotsTxtMiddleware": 100,
        }
    """

    def __init__(self, crawler: Crawler) -> None:
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        with errors_logged_in_one_line():
            self._pages = PageReader() if reads_pages(crawler.settings) else None
            self.gate: Gatekeeper = make_gate(crawler)
        self.waits: Waits | None = None
        self._crawler = crawler
        self._agents = Agents(self.gate, crawler.settings)
        self._http_cache = HttpCache(crawler)
        self._judges: WeakKeyDictionary[Request, AgentView] = WeakKeyDictionary()
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
        """Return None to continue, or a request to be scheduled instead; raises IgnoreRequest."""
        request.meta.pop(PAGE, None)  # left by the page whose meta it was given
        if request.meta.get("dont_obey_robotstxt"):
            return None
        if not request.url[:_LONGEST_SCHEME].lower().startswith(_WITH_ROBOTS_TXT):
            return None  # Scrapy has a handler for its scheme, or raises NotSupported
        view = self._agents.view(request)
        if self._http_cache.answers(request) and self._stored_robots_permit(request):
            self._judges[request] = view
            return None
        try:
            verdict = await self._verdict(view, request)
            while verdict.reason in DEFERRING and (wait_s := self._wait_here_s(request, verdict)) is not None:
                await patiently(self._crawler, agent_of(view).clock.sleep(wait_s))
                verdict = await self._verdict(view, request)
        except SpiderClosing:
            later = None if self.waits is None else self.waits.keep(request)
            if later is None:
                raise
            return later
        self._judges[request] = view
        if verdict.reason in DEFERRING and self._is_recovered(request):
            return None
        return self._continued(view, request, verdict)

    def process_request_2(self, rp: RobotParser, request: Request) -> None:
        """Raise IgnoreRequest if ``rp`` forbids ``request``; as in Scrapy's own middleware.

        It is called with the robots.txt of the HTTP cache, for a request for which nothing is sent.
        """
        if not rp.allowed(request.url, self._agents.name(request)):
            raise self._refuse(request, "")

    def process_response(self, request: Request, response: Response) -> Response:
        """Add what the page itself says to the meta; return ``response``."""
        if self._pages is not None and ROBOTS_TXT not in request.meta:
            view = self._judges.get(request) or self._agents.view(request)
            request.meta[PAGE] = self._pages.read(request, response, view.identity.tokens)
        return response

    def judge(self, request: Request) -> AgentView | None:
        """Return the view that has judged ``request``; None if it was not judged."""
        return self._judges.get(request)

    def forbidden(self, request: Request, verdict: Verdict) -> IgnoreRequest:
        """Count and log a request that is not permitted; return the exception to raise."""
        # If a rule decides, the message is that of Scrapy's own middleware.
        why = "" if verdict.reason is Reason.DISALLOW_RULE else f" ({str(verdict).partition(' (')[2]}"
        return self._refuse(request, why)

    def check_sent(self, request: Request) -> None:
        """Raise IgnoreRequest if the server would read another URL from the request than the one that is judged."""
        hosts = (value.decode("latin-1") for value in request.headers.getlist(b"Host"))
        try:
            check_sent(request.url, urlsplit(request.url).path, hosts)
        except InvalidURL as error:
            raise self._refuse(request, f" (it {error.problem})") from None

    def _wait_here_s(self, request: Request, verdict: Verdict) -> float | None:
        return None if self.waits is None else self.waits.wait_here_s(request, verdict)

    def _continued(self, view: AgentView, request: Request, verdict: Verdict) -> Request | None:
        """Return the request to be scheduled instead, or None to continue; raises IgnoreRequest."""
        if (verdict or verdict.reason in DEFERRING) and self.waits is not None:
            later = self.waits.postpone(request, verdict)
            if later is not None:
                return later  # it is judged again then
        agent_of(view).counted(verdict)
        if not verdict:
            if verdict.reason in DEFERRING and self.waits is not None:
                self.waits.ignored(request)
            raise self.forbidden(request, verdict)
        return None

    def _stored_robots_permit(self, request: Request) -> bool:
        """Return whether the HTTP cache has a robots.txt, which permits ``request``; raises IgnoreRequest."""
        parser = self._http_cache.robots_parser(request.url)
        if parser is not None:
            self.process_request_2(parser, request)
        return parser is not None

    def _is_recovered(self, request: Request) -> bool:
        """Return whether the HTTP cache answers ``request`` without a robots.txt of now; raises IgnoreRequest.

        It answers with a stale response as well: PoliteDownloader sends nothing while robots.txt is unreachable.
        """
        self._stored_robots_permit(request)  # as Scrapy: what these rules forbid does not wait for the server
        return self._http_cache.recovers(request)

    async def _verdict(self, view: AgentView, request: Request) -> Verdict:
        self.check_sent(request)
        cause = CAUSE.set(request)
        try:
            agent = agent_of(view)
            verdict = agent.judged(request.url)
            if verdict is None:
                verdict = await patiently(self._crawler, agent.learn(request.url))
        except InvalidURL as error:
            raise self._refuse(request, f" (the URL {printable(error.problem)}; see dont_obey_robotstxt)") from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error
        finally:
            CAUSE.reset(cause)
        return verdict

    def _refuse(self, request: Request, why: str) -> IgnoreRequest:
        logger.debug(
            "Forbidden by robots.txt: %(request)s%(why)s",
            {"request": printable(str(request)), "why": printable(why)},
            extra={"spider": self._crawler.spider},
        )
        count(self._crawler, "robotstxt/forbidden")
        return IgnoreRequest(f"Forbidden by robots.txt{why}")

    def _engine_started(self) -> None:
        if self.waits is None:
            logger.warning(
                "Requests are not paced, neither by Crawl-delay nor by Retry-After: %s is not the DOWNLOADER. "
                "PolitesseAddon in ADDONS sets it.",
                "politesse.integrations.scrapy.PoliteDownloader",
            )

    async def _spider_closed(self) -> None:
        await self.gate.aclose()
