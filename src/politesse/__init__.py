"""The politeness layer for async crawlers: may this URL be requested, and why?

::

    origin, verdict, errors   whose robots.txt counts; the words of an answer
    usage, vocabulary         what sites say about the use of their content, beside the verdict
    robots/                   what a robots.txt says: lexer, groups, rules (pure)
    page/                     what a page itself says: META robots, X-Robots-Tag, its links (pure)
    access/                   getting it, and how long it holds: fetch, outcome table, cache
    stores/                   keeping it
    pacing/, turns            when the next request to a host may start, and the life of that request
    site, datatxt             what a site tells besides: data.txt, sitemaps
    enforcement, reservations what it does not want its content used for, where a crawler holds itself to that
    identity, policy          who the crawler says it is, and its own word on a host
    gatekeeper, view, sieve   the question before each request, for one URL or for many
    queue, lanes              URLs in, turns out, whichever host is ready
    integrations/, cli/       inside aiohttp, httpx and Scrapy; the command ``politesse``
"""

from politesse.access.cache import RobotsFetched
from politesse.access.fetch import AiohttpFetcher, FetchOptions
from politesse.access.guard import PublicResolver
from politesse.access.options import CacheOptions
from politesse.access.sitefiles import FileOutcome, SiteFile, SiteFileFetched
from politesse.datatxt import DataRecord, DataTxt
from politesse.errors import (
    ClosedError,
    ConfigurationError,
    Disallowed,
    InvalidURL,
    PolitesseError,
    PolitesseWarning,
    StoreError,
    TooFar,
    WrongEventLoop,
)
from politesse.events import ComponentFailed, Event
from politesse.gatekeeper import Gatekeeper, Statistics
from politesse.integrations.aiohttp import PoliteSession
from politesse.origin import Origin
from politesse.pacing.local import HeaderOverruled
from politesse.pacing.pace import Limit, PacingOptions
from politesse.pacing.scopes import AddressNotFound
from politesse.policy import HostPolicy
from politesse.queue import PoliteQueue, QueueClosed, QueuedTurn, QueueStatistics
from politesse.robots import Dialect, RejectedSitemap, RobotsTxt
from politesse.shared import Decided, LongDelay, MatchingBounded
from politesse.site import DataTxtAnswer, Sitemaps
from politesse.stores.memory import MemoryStore
from politesse.turns import Turn
from politesse.usage import Preference, Purpose, Usage
from politesse.verdict import AccessResult, Bound, Match, NotYet, Reason, Rule, Source, Verdict
from politesse.view import AgentView

__version__ = "0.1.0"

__all__ = [
    "AccessResult",
    "AddressNotFound",
    "AgentView",
    "AiohttpFetcher",
    "Bound",
    "CacheOptions",
    "ClosedError",
    "ComponentFailed",
    "ConfigurationError",
    "DataRecord",
    "DataTxt",
    "DataTxtAnswer",
    "Decided",
    "Dialect",
    "Disallowed",
    "Event",
    "FetchOptions",
    "FileOutcome",
    "Gatekeeper",
    "HeaderOverruled",
    "HostPolicy",
    "InvalidURL",
    "Limit",
    "LongDelay",
    "Match",
    "MatchingBounded",
    "MemoryStore",
    "NotYet",
    "Origin",
    "PacingOptions",
    "PoliteQueue",
    "PoliteSession",
    "PolitesseError",
    "PolitesseWarning",
    "Preference",
    "PublicResolver",
    "Purpose",
    "QueueClosed",
    "QueueStatistics",
    "QueuedTurn",
    "Reason",
    "RejectedSitemap",
    "RobotsFetched",
    "RobotsTxt",
    "Rule",
    "SiteFile",
    "SiteFileFetched",
    "Sitemaps",
    "Source",
    "Statistics",
    "StoreError",
    "TooFar",
    "Turn",
    "Usage",
    "Verdict",
    "WrongEventLoop",
    "__version__",
]
