"""The add-on that installs politesse in a Scrapy project by one line of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from politesse.errors import ConfigurationError
from politesse.integrations.scrapy.downloader import PoliteDownloader
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware
from politesse.integrations.scrapy.parser import RobotParser
from politesse.integrations.scrapy.priority_queue import PolitePriorityQueue

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_PRIORITY: Final = "addon"  # below the project, the spider and the command line
_MIDDLEWARES: Final = "DOWNLOADER_MIDDLEWARES"
_PLACE: Final = 100  # of Scrapy's own RobotsTxtMiddleware among the downloader middlewares


class PolitesseAddon:
    """An add-on for ``ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}``.

    It replaces Scrapy's RobotsTxtMiddleware by politesse's, installs PoliteDownloader and PolitePriorityQueue, and
    changes these defaults: ``ROBOTSTXT_OBEY`` is true, ``DOWNLOAD_DELAY`` 1 second, ``CONCURRENT_REQUESTS_PER_DOMAIN``
    1, ``ROBOTSTXT_PARSER`` RobotParser. A project may set any of the four itself.

    Its own settings:

    ``POLITESSE_ON_ERROR``: ``"disallow"``, or ``"allow"`` to crawl sites whose robots.txt cannot be fetched.
    ``POLITESSE_MAX_WAIT``: after how many seconds a site that makes its requests wait is given up; 3600 by default, 0
    or more. A site makes them wait if its robots.txt is unreachable or was answered with 429, if it answered with 429
    or 503, and by a Visit-time, Crawl-delay or Request-rate. Until then the spider stays open for it. It is given up as
    soon as the end of the wait is known to be later, counted from the first failure in a row of this run. With
    ``JOBDIR`` its requests stay in the queue for the next run; without, each ends in its errback as IgnoreRequest, when
    the spider has nothing else to do. If it opens while the spider is busy with other sites, it goes on.
    ``POLITESSE_CACHE``, ``POLITESSE_PACING``: a CacheOptions, a PacingOptions. ``DOWNLOAD_DELAY`` replaces its
    ``min_delay_s``, and ``max_concurrent`` is always 1. Spiders of one process share the pace of each host: one request
    at a time, at the interval of the slowest of those that request it; and what closes it closes it for all. Only a
    spider with another ``key``, ``address`` or ``domain`` has a pace of its own, and one that sets ``scope``: it shares
    the pace with the spiders that name the same scope, whose PacingOptions must be equal, otherwise the second one
    raises ConfigurationError. The log (INFO) names the scope.
    ``POLITESSE_FLEET``: the URL of a Redis or Valkey, or FleetOptions, by which all processes that name it share the
    pace of each host, as the spiders of one process do; None by default. Spiders of one process that share a scope must
    have the same one. Nothing starts while it is away; after ``POLITESSE_MAX_WAIT`` seconds all sites are given up, as
    one is that makes its requests wait. If it refuses the crawler, the spider is closed.
    ``POLITESSE_STORE``: the path of a file, or a Store, in which robots.txt and what hosts ask for are kept, so that a
    later run goes on from them. By default that of the fleet; without a fleet, ``robots.db`` in ``JOBDIR``, if that is
    set. False or an empty one for none. In a fleet it keeps robots.txt alone.
    ``POLITESSE_PAGE_DIRECTIVES``: true by default; each response then has its PageDirectives as
    ``response.meta["politesse_page"]``, for whose METAs the extra ``html`` is needed. False turns it off.

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
            ConfigurationError: the project has set another ``DOWNLOADER``, or ``CONCURRENT_REQUESTS_PER_IP``.
        """
        settings.set("ROBOTSTXT_OBEY", True, _PRIORITY)  # noqa: FBT003 - the value of a setting
        settings.set("ROBOTSTXT_PARSER", RobotParser, _PRIORITY)
        settings.set("DOWNLOAD_DELAY", 1.0, _PRIORITY)
        settings.set("CONCURRENT_REQUESTS_PER_DOMAIN", 1, _PRIORITY)
        settings.set("DOWNLOADER", PoliteDownloader, _PRIORITY)
        settings.set("SCHEDULER_PRIORITY_QUEUE", PolitePriorityQueue, _PRIORITY)
        self._replace_middleware(settings)
        self._check(settings)

    @staticmethod
    def _replace_middleware(settings: BaseSettings) -> None:
        places = settings.getdict(_MIDDLEWARES)
        place = _PLACE
        for key in tuple(places):
            if load_object(key) is ScrapyRobotsTxtMiddleware:
                place = places.pop(key) or place
        # By its path, as in the base settings: older versions of Scrapy do not equate it with the class.
        places[global_object_name(ScrapyRobotsTxtMiddleware)] = None
        if RobotsTxtMiddleware not in map(load_object, places):
            places[RobotsTxtMiddleware] = place
        settings.set(_MIDDLEWARES, places, settings.getpriority(_MIDDLEWARES) or 0)

    @staticmethod
    def _check(settings: BaseSettings) -> None:
        downloader = load_object(settings["DOWNLOADER"])
        if not issubclass(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"DOWNLOADER={settings['DOWNLOADER']!r}: politesse paces requests there; remove the setting, or derive "
                "from politesse.integrations.scrapy.PoliteDownloader"
            )
        if settings.getint("CONCURRENT_REQUESTS_PER_IP"):
            raise ConfigurationError("CONCURRENT_REQUESTS_PER_IP: politesse paces by host; set it to 0")
