"""The politeness layer for async crawlers: may this URL be requested, and why?

::

    origin, verdict, errors, events, host_status, clock, ports   the words, and the ports between the rooms
    usage/          what sites say about the use of their content, beside the verdict
    robots/         what a robots.txt says: lexer, groups, rules (pure)
    page/           what a page itself says: META robots, X-Robots-Tag, its links (pure)
    fetch/, stores/ getting a file; keeping bytes
    queue/          URLs in, turns out, whichever host is ready
    integrations/   inside aiohttp, httpx and Scrapy
    testing/, cli/  for the tests of a crawler; the command ``politesse``

    _http/          what HTTP means: dates, freshness, redirects, bodies (pure)
    _cache/         what is known of an origin, and for how long
    _pacing/        when the next request to a host may start, and the life of that request
    _sites/         files that are fetched as pages are: data.txt, sitemaps, tdmrep.json
    _gate/          the question before each request
"""

from politesse._cache.files import SiteFile
from politesse._cache.options import CacheOptions
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.host_policy import HostPolicy
from politesse._gate.state import Statistics
from politesse._gate.view import AgentView
from politesse._pacing.held import Turn
from politesse._pacing.pace import Limit, PacingOptions
from politesse._sites.data_txt import DataRecord, DataTxt
from politesse._sites.pages import DataTxtAnswer, Sitemaps
from politesse.errors import (
    ClosedError,
    ConfigurationError,
    Disallowed,
    InvalidURL,
    PolitesseError,
    PolitesseWarning,
    StoreError,
    TooFar,
    TurnHeld,
    WrongEventLoop,
)
from politesse.events import (
    AddressNotFound,
    ComponentFailed,
    Decided,
    Event,
    HeaderOverruled,
    LongDelay,
    MatchingBounded,
    RobotsFetched,
    SiteFileFetched,
)
from politesse.fetch.addresses import PublicResolver
from politesse.fetch.aiohttp import AiohttpFetcher
from politesse.fetch.options import FetchOptions
from politesse.host_status import HostStatus, RobotsStatus
from politesse.integrations.aiohttp import PoliteSession
from politesse.origin import Origin
from politesse.queue import PoliteQueue, QueueClosed, QueuedTurn, QueueStatistics
from politesse.robots import Dialect, RejectedSitemap, RobotsTxt
from politesse.stores.memory import MemoryStore
from politesse.usage.model import Preference, Purpose, Usage
from politesse.verdict import AccessResult, Bound, FileOutcome, Match, NotYet, Reason, Rule, Source, Verdict

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
    "HostStatus",
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
    "RobotsStatus",
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
    "TurnHeld",
    "Usage",
    "Verdict",
    "WrongEventLoop",
    "__version__",
]
