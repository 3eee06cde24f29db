"""May this request be made? In the place of Scrapy's own ``RobotsTxtMiddleware``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, NotConfigured

from politesse._text import printable
from politesse.errors import ClosedError, InvalidURL
from politesse.integrations._request import same_site
from politesse.integrations.scrapy.engine import patiently
from politesse.integrations.scrapy.fetch import ASKED_FOR, ROBOTS_TXT
from politesse.integrations.scrapy.gate import Agents, make_gate
from politesse.integrations.scrapy.page import PAGE, PageReader
from politesse.robots.pattern import has_dot_segments
from politesse.verdict import Reason

if TYPE_CHECKING:
    from typing import Protocol

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from politesse._gate.gatekeeper import AgentView, Gatekeeper
    from politesse.verdict import Verdict

    class Waits(Protocol):
        """Where a request can wait without being active."""

        def postpone(self, request: Request, verdict: Verdict, /) -> Request | None:
            """Return what is to be scheduled instead of ``request`` until its host is ready; None for nothing."""


logger = logging.getLogger(__name__)

_WITHOUT_ROBOTS_TXT: Final = ("data:", "file:")  # as in Scrapy's own


class RobotsTxtMiddleware:
    """A downloader middleware in the place of Scrapy's own, with its settings, meta key, signal, stats and messages.

    What differs: a robots.txt speaks for one scheme, host and port; it is asked for again when its copy has run out;
    and where it cannot be got, the site stays closed (``POLITESSE_ON_ERROR = "allow"`` opens it, as Scrapy does).

    It asks for permission only. The pace is kept by PoliteDownloader; PolitesseAddon sets up both.

    A request that a downloader middleware behind this one returns passes this one as well. A middleware that changes
    the URL or the Host header of the request itself belongs before it: behind it only PoliteDownloader sees the change,
    and judges it again.

    Every response that comes by has its PageDirectives as ``response.meta["politesse_page"]``, read for the agent that
    was asked about; not robots.txt itself, and where ``POLITESSE_PAGE_DIRECTIVES`` is false none. A request that was
    ignored has none, nor has one that was given the meta of a response, until it has a response of its own. They are
    marked ``truncated`` where the body cannot be read: without the extra ``html``, and where it is still compressed, as
    with ``COMPRESSION_ENABLED`` false, or where this stands behind HttpCompressionMiddleware (590).

    Raises, from ``process_request``, IgnoreRequest for what may not be requested.
    """

    def __init__(self, crawler: Crawler) -> None:
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        self.gate: Gatekeeper = make_gate(crawler)
        self.waits: Waits | None = None
        self._crawler = crawler
        self._agents = Agents(self.gate, crawler.settings)
        self._pages = PageReader() if crawler.settings.getbool("POLITESSE_PAGE_DIRECTIVES", True) else None  # noqa: FBT003 - a default
        self._judges: WeakKeyDictionary[Request, AgentView] = WeakKeyDictionary()
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of a crawl; raises NotConfigured without ROBOTSTXT_OBEY, and ConfigurationError."""
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Ask; return None to go on, a request to be scheduled instead, or raise IgnoreRequest."""
        request.meta.pop(PAGE, None)  # of the page whose meta it was given
        if request.meta.get("dont_obey_robotstxt") or request.url.startswith(_WITHOUT_ROBOTS_TXT):
            return None
        view = self._agents.view(request)
        verdict = await self._verdict(view, request)
        self._judges[request] = view
        if (verdict or verdict.reason is Reason.TOO_MANY_REQUESTS) and self.waits is not None:
            later = self.waits.postpone(request, verdict)
            if later is not None:
                return later
        if not verdict:
            raise self.forbidden(request, verdict)
        return None

    def process_response(self, request: Request, response: Response) -> Response:
        """Hand on what the page says itself; return ``response``."""
        if self._pages is not None and ROBOTS_TXT not in request.meta:
            view = self._judges.get(request) or self._agents.view(request)
            request.meta[PAGE] = self._pages.read(request, response, view.identity.tokens)
        return response

    def judge(self, request: Request) -> AgentView | None:
        """Return who was asked about ``request``; None for nobody."""
        return self._judges.get(request)

    def forbidden(self, request: Request, verdict: Verdict) -> IgnoreRequest:
        """Count and log that ``request`` may not be made; return what to raise."""
        # Where a rule decides, the words are those of Scrapy's own.
        why = "" if verdict.reason is Reason.DISALLOW_RULE else f" ({str(verdict).partition(' (')[2]}"
        return self._refuse(request, why)

    def check_sent(self, request: Request) -> None:
        """Raise IgnoreRequest where what would be judged is not what is sent."""
        if has_dot_segments(urlsplit(request.url).path):
            # They are sent as they are, and judged as what they lead to.
            raise self._refuse(request, " (it has dot segments; resolve them first)")
        for value in request.headers.getlist(b"Host"):
            host = value.decode("latin-1")
            if not same_site(host, request.url):
                raise self._refuse(request, f" (it has the Host header {host!r:.100}: another site, whose rules count)")

    async def _verdict(self, view: AgentView, request: Request) -> Verdict:
        self.check_sent(request)
        asked_for = ASKED_FOR.set(request)
        try:
            verdict = view.peek(request.url)
            if verdict is None:
                verdict = await patiently(self._crawler, view.check(request.url))
        except InvalidURL as error:
            raise self._refuse(request, f" (the URL {printable(error.problem)}; see dont_obey_robotstxt)") from error
        except ClosedError as error:
            raise IgnoreRequest("The spider is being closed") from error
        finally:
            ASKED_FOR.reset(asked_for)
        return verdict

    def _refuse(self, request: Request, why: str) -> IgnoreRequest:
        logger.debug(
            "Forbidden by robots.txt: %(request)s%(why)s",
            {"request": printable(str(request)), "why": printable(why)},
            extra={"spider": self._crawler.spider},
        )
        if (stats := self._crawler.stats) is not None:
            stats.inc_value("robotstxt/forbidden")
        return IgnoreRequest(f"Forbidden by robots.txt{why}")

    def _engine_started(self) -> None:
        if self.waits is None:
            logger.warning(
                "No pace is kept, neither Crawl-delay nor Retry-After: %s is not the DOWNLOADER. "
                "PolitesseAddon in ADDONS sets it.",
                "politesse.integrations.scrapy.PoliteDownloader",
            )

    async def _spider_closed(self) -> None:
        await self.gate.aclose()
