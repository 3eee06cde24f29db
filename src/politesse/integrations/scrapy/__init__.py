"""Scrapy with politeness; needs Scrapy 2.14 or newer, on asyncio (the extra ``scrapy``).

One line of settings installs everything::

    ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}

::

    _downloader  RobotsTxtMiddleware: may this request be made? PoliteDownloader: when may it start? Waits: the sites
                 that wait or are given up; the stats ``politesse/...``
    _queue       PolitePriorityQueue: hands out requests that may start now; restores a queue after a ``kill -9``
    _robots      robots.txt, fetched through the engine, so that proxies and other middlewares apply; RobotParser
    _settings    the Gatekeeper that the settings describe
    _internals   Scrapy's undocumented names, also of its HTTP cache: no other module uses them

Scrapy stores the requests, and politesse decides when each request may start. A request waits in the scheduler until
its host may be requested, and is not active before. So a slow host delays no other host, and JOBDIR keeps the waiting
requests. During the fetch of a robots.txt, for at most 30 seconds, one request of its origin is active. A site that is
closed for too long is given up as a whole, and does not keep the spider open.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from politesse._base.text import needs_extra
from politesse.errors import ConfigurationError


def _check_scrapy() -> None:
    """Raise ImportError, with the command to run, if Scrapy is missing or too old."""
    try:
        scrapy = import_module("scrapy")
    except ModuleNotFoundError as error:
        if error.name != "scrapy":
            raise
        raise ImportError(needs_extra("politesse.integrations.scrapy", "scrapy"), name="scrapy") from error
    if tuple(int(part) for part in scrapy.__version__.split(".")[:2]) < (2, 14):
        raise ImportError(
            f"politesse.integrations.scrapy needs Scrapy 2.14 or newer, and {scrapy.__version__} is installed; "
            "run: pip install --upgrade scrapy",
            name="scrapy",
        )


_check_scrapy()

# ruff: noqa: E402 - these modules import Scrapy, so their imports come after the check
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from politesse.integrations.scrapy._downloader import PoliteDownloader, RobotsTxtMiddleware
from politesse.integrations.scrapy._internals import requests_under_way
from politesse.integrations.scrapy._queue import PolitePriorityQueue
from politesse.integrations.scrapy._robots import RobotParser

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

__all__ = [
    "PoliteDownloader",
    "PolitePriorityQueue",
    "PolitesseAddon",
    "RobotParser",
    "RobotsTxtMiddleware",
    "requests_under_way",
]

_PRIORITY: Final = "addon"  # lower than the settings of the project, the spider and the command line
_MIDDLEWARES: Final = "DOWNLOADER_MIDDLEWARES"
_DEFAULTS: Final = {
    "ROBOTSTXT_OBEY": True,
    "ROBOTSTXT_PARSER": RobotParser,
    "DOWNLOAD_DELAY": 1.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOADER": PoliteDownloader,
    "SCHEDULER_PRIORITY_QUEUE": PolitePriorityQueue,
}
_PLACE: Final = 100  # the order of Scrapy's own RobotsTxtMiddleware in DOWNLOADER_MIDDLEWARES_BASE


class PolitesseAddon:
    """An add-on for ``ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}``.

    The add-on replaces Scrapy's RobotsTxtMiddleware by politesse's, installs PoliteDownloader and PolitePriorityQueue,
    and changes these defaults: ``ROBOTSTXT_OBEY`` is true, ``DOWNLOAD_DELAY`` 1 second,
    ``CONCURRENT_REQUESTS_PER_DOMAIN`` 1, ``ROBOTSTXT_PARSER`` RobotParser. A project may set each of these four
    settings itself.

    The settings of politesse:

    ``POLITESSE_ON_ERROR``
        ``"disallow"``, or ``"allow"`` to crawl sites whose robots.txt cannot be fetched.
    ``POLITESSE_PRIVATE_ADDRESSES``
        The same as in FetchOptions: give ``"deny"`` if strangers provide the URLs that you crawl.
    ``POLITESSE_MAX_WAIT``
        How long a site may make its requests wait before it is given up, in seconds; 3600 by default, 0 or more.
        Requests wait if the robots.txt of their site was answered with 429, after an answer of 429, 502, 503 or 504,
        for a Visit-time, Crawl-delay or Request-rate, and for the delay by which the pace follows a slow server. Until
        the site is given up, the spider stays open for it. A site is given up as soon as it is certain that the wait
        will be longer than this. The wait counts from the first of the consecutive failures in this run. With
        ``JOBDIR`` the requests stay in the queue for the next run. Without ``JOBDIR``, each request ends in its errback
        with IgnoreRequest, when the spider has no other work. If the site opens while the spider is busy with other
        sites, its requests are made.
    ``POLITESSE_MAX_UNREACHABLE``
        The same for a site whose robots.txt is unreachable; 300 by default. A host name without an address, or with a
        denied address, is given up at once.
    ``POLITESSE_CACHE``
        A CacheOptions.
    ``POLITESSE_PACING``
        A PacingOptions. ``DOWNLOAD_DELAY`` replaces its ``min_delay_s``, and ``max_concurrent`` is always 1. The
        spiders of a process share the pace of each host, and wait while the host is closed: requests never overlap, and
        each spider keeps its own interval after the previous request. Only spiders with the same ``key``, ``address``,
        ``domain`` and ``scope`` share a pace, with the PacingOptions of the first spider. The log (INFO) names the
        scope.
    ``POLITESSE_FLEET``
        The URL of a Redis or Valkey, or FleetOptions; by default None. All processes with the same fleet share the pace
        of each host, as the spiders of a process do. While Redis is away, no request starts; after
        ``POLITESSE_MAX_WAIT`` seconds all sites are given up. If Redis refuses the crawler, the spider is closed.
    ``POLITESSE_STORE``
        The path of a file, or a Store, that keeps robots.txt and the waits that hosts demanded, so that a later run can
        use them. The default is the store of the fleet; without a fleet, ``robots.db`` in ``JOBDIR``, if ``JOBDIR`` is
        set. False or an empty string means no store. In a fleet the store keeps only robots.txt.
    ``POLITESSE_SIGNER``
        Signs each https request, for robots.txt and for pages: a WebBotAuth of ``politesse.signing``.
    ``POLITESSE_LEDGER``
        The path of a file, or a Ledger, that records each decision and each request; by default none.
    ``POLITESSE_PAGE_DIRECTIVES``
        True by default: each response has its PageDirectives as ``response.meta["politesse_page"]``. To read METAs,
        install the extra ``html``. False turns this off.

    The stats begin with ``politesse/``:

    ``hosts/closed``, ``hosts/given_up``, ``hosts/refused``
        How many hosts were closed for a time, how many were given up, and how many have refused the crawler.
    ``requests/deferred``
        How many times a request was put back into the scheduler.
    ``requests/given_up``, ``requests/kept``
        How many requests were not made because their site was given up, and how many of them are in ``JOBDIR``.
    ``seconds_waited``
        How many seconds sites were closed while their requests waited, summed over all sites.
    ``robots_txt/RESULT``
        How many fetches of robots.txt had this result: ``successful``, ``unavailable``, ``unreachable`` and so on.
    ``decisions/REASON``
        How many decisions had this reason: ``disallow-rule``, ``no-rule``, ``unavailable`` and so on.
    ``fleet/away``, ``fleet/seconds_away``
        How many times the Redis of the fleet was away, and for how many seconds in all.
    ``too_far``
        How many requests ended because their turn was further away than ``POLITESSE_MAX_WAIT``.

    Example:
        >>> from scrapy.settings import Settings
        >>> settings = Settings()
        >>> PolitesseAddon().update_settings(settings)
        >>> settings["DOWNLOADER"].__name__, settings.getfloat("DOWNLOAD_DELAY")
        ('PoliteDownloader', 1.0)
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Install everything.

        Raises:
            ConfigurationError: the project has set another ``DOWNLOADER``.
        """
        for name, value in _DEFAULTS.items():
            settings.set(name, value, _PRIORITY)
        downloader = load_object(settings["DOWNLOADER"])
        if not issubclass(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"DOWNLOADER={settings['DOWNLOADER']!r}: politesse paces requests there; remove the setting, or derive "
                "from politesse.integrations.scrapy.PoliteDownloader"
            )
        places = settings.getdict(_MIDDLEWARES)
        replaced = [key for key in places if load_object(key) is ScrapyRobotsTxtMiddleware]
        place = next(filter(None, [places.pop(key) for key in replaced]), _PLACE)
        # The path of the class, as in the base settings: older versions of Scrapy do not recognise the class itself.
        places[global_object_name(ScrapyRobotsTxtMiddleware)] = None
        if RobotsTxtMiddleware not in map(load_object, places):
            places[RobotsTxtMiddleware] = place
        settings.set(_MIDDLEWARES, places, settings.getpriority(_MIDDLEWARES) or 0)
