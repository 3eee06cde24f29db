"""The politeness layer for async crawlers: may this URL be requested, and why?

::

    origin, verdict, errors, events, status, clock, ports   the words, and the ports between the rooms
    usage/          what sites say about the use of their content, beside the verdict
    robots/         what a robots.txt says: lexer, groups, rules (pure)
    page/           what a page itself says: META robots, X-Robots-Tag, its links (pure)
    fetch/, stores/ getting a file; keeping bytes
    queue/          URLs in, turns out, whichever host is ready
    integrations/   inside aiohttp, httpx and Scrapy
    options, sites  the options of a gatekeeper; what sites publish beside robots.txt
    testing/, cli/  for the tests of a crawler; the command ``politesse``

    _http/          what HTTP means: dates, freshness, redirects, bodies (pure)
    _cache/         what is known of an origin, and for how long
    _pacing/        when the next request to a host may start, and the life of that request
    _sites/         files that are fetched as pages are: data.txt, sitemaps, tdmrep.json
    _gate/          the question before each request

The names here are those that most programs need. Each other public name is in the module that its room names above;
those that were here in earlier releases still are, with a DeprecationWarning.
"""

import typing

from politesse._former_names import former_name as _former_name
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.view import AgentView
from politesse._pacing.held import Turn
from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, PolitesseError, TooFar
from politesse.integrations.aiohttp import PoliteSession
from politesse.options import CacheOptions, FetchOptions, HostPolicy, PacingOptions
from politesse.origin import Origin
from politesse.queue import CrawlPage, PoliteQueue, QueueClosed
from politesse.robots import Dialect, RobotsTxt
from politesse.verdict import Bound, NotYet, Reason, Verdict

__docformat__ = "google"  # of the docstrings, for pdoc

if typing.TYPE_CHECKING:  # to a type checker the names of earlier releases are what they are, and others are errors
    from politesse.errors import PolitesseWarning as PolitesseWarning
    from politesse.errors import StoreError as StoreError
    from politesse.errors import WrongEventLoop as WrongEventLoop
    from politesse.events import AddressNotFound as AddressNotFound
    from politesse.events import ComponentFailed as ComponentFailed
    from politesse.events import Decided as Decided
    from politesse.events import Event as Event
    from politesse.events import HeaderOverruled as HeaderOverruled
    from politesse.events import LongDelay as LongDelay
    from politesse.events import MatchingBounded as MatchingBounded
    from politesse.events import RobotsFetched as RobotsFetched
    from politesse.events import SiteFileFetched as SiteFileFetched
    from politesse.fetch import AiohttpFetcher as AiohttpFetcher
    from politesse.fetch import PublicResolver as PublicResolver
    from politesse.options import Limit as Limit
    from politesse.queue import QueuedTurn as QueuedTurn
    from politesse.queue import QueueStatistics as QueueStatistics
    from politesse.robots import RejectedSitemap as RejectedSitemap
    from politesse.sites import DataRecord as DataRecord
    from politesse.sites import DataTxt as DataTxt
    from politesse.sites import DataTxtAnswer as DataTxtAnswer
    from politesse.sites import FileOutcome as FileOutcome
    from politesse.sites import SiteFile as SiteFile
    from politesse.sites import Sitemaps as Sitemaps
    from politesse.status import Statistics as Statistics
    from politesse.stores import MemoryStore as MemoryStore
    from politesse.usage import Preference as Preference
    from politesse.usage import Purpose as Purpose
    from politesse.usage import Usage as Usage
    from politesse.verdict import AccessResult as AccessResult
    from politesse.verdict import Match as Match
    from politesse.verdict import Rule as Rule
    from politesse.verdict import Source as Source
else:
    __getattr__ = _former_name

__version__ = "0.1.0"

__all__ = [
    "AgentView",
    "Bound",
    "CacheOptions",
    "ClosedError",
    "ConfigurationError",
    "CrawlPage",
    "Dialect",
    "Disallowed",
    "FetchOptions",
    "Gatekeeper",
    "HostPolicy",
    "InvalidURL",
    "NotYet",
    "Origin",
    "PacingOptions",
    "PoliteQueue",
    "PoliteSession",
    "PolitesseError",
    "QueueClosed",
    "Reason",
    "RobotsTxt",
    "TooFar",
    "Turn",
    "Verdict",
    "__version__",
]
