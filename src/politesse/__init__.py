"""The politeness layer for async crawlers: may this URL be requested, and why?

::

    origin, verdict, errors   whose robots.txt counts; the words of an answer
    robots/                   what a robots.txt says: lexer, groups, rules (pure)
    access/                   getting it, and how long it holds: fetch, outcome table, cache
    stores/                   keeping it
    identity                  who the crawler says it is
    gatekeeper, sieve         the question before each request, for one URL or for many
    integrations/, cli/       inside aiohttp; the command ``politesse``
"""

from politesse.access.cache import CacheOptions, ComponentFailed, RobotsFetched
from politesse.access.fetch import AiohttpFetcher, FetchOptions
from politesse.errors import (
    ClosedError,
    ConfigurationError,
    Disallowed,
    InvalidURL,
    PolitesseError,
    PolitesseWarning,
    StoreError,
)
from politesse.events import Event
from politesse.gatekeeper import AgentView, Decided, Gatekeeper, HostPolicy, Statistics
from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.stores.memory import MemoryStore
from politesse.verdict import AccessResult, Match, Reason, Rule, Source, Verdict

__version__ = "0.1.0"

__all__ = [
    "AccessResult",
    "AgentView",
    "AiohttpFetcher",
    "CacheOptions",
    "ClosedError",
    "ComponentFailed",
    "ConfigurationError",
    "Decided",
    "Dialect",
    "Disallowed",
    "Event",
    "FetchOptions",
    "Gatekeeper",
    "HostPolicy",
    "InvalidURL",
    "Match",
    "MemoryStore",
    "Origin",
    "PolitesseError",
    "PolitesseWarning",
    "Reason",
    "RobotsFetched",
    "RobotsTxt",
    "Rule",
    "Source",
    "Statistics",
    "StoreError",
    "Verdict",
    "__version__",
]
