"""All of politesse for a Scrapy project in one line of settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from politesse.errors import ConfigurationError
from politesse.integrations.scrapy.downloader import PoliteDownloader, PolitePriorityQueue
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware
from politesse.integrations.scrapy.parser import RobotParser

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_PRIORITY: Final = "addon"  # what a project, a spider or the command line sets stands above it
_MIDDLEWARES: Final = "DOWNLOADER_MIDDLEWARES"
_PLACE: Final = 100  # among the downloader middlewares, as that of Scrapy's own


class PolitesseAddon:
    """For ``ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}``.

    It puts RobotsTxtMiddleware in the place of Scrapy's own, sets PoliteDownloader and PolitePriorityQueue, and changes
    these defaults: ``ROBOTSTXT_OBEY`` is true, ``DOWNLOAD_DELAY`` 1 second, ``CONCURRENT_REQUESTS_PER_DOMAIN`` 1,
    ``ROBOTSTXT_PARSER`` RobotParser. A project that sets any of the four itself has its way.

    Settings of its own:

    ``POLITESSE_ON_ERROR``: ``"disallow"``, or ``"allow"`` to crawl sites whose robots.txt cannot be got.
    ``POLITESSE_MAX_WAIT``: how many seconds a request may wait for its host; 3600 unless set.
    ``POLITESSE_CACHE``, ``POLITESSE_PACING``: a CacheOptions, a PacingOptions. The floor of the pace is
    ``DOWNLOAD_DELAY``, and one request at a time is all there is.
    ``POLITESSE_PAGE_DIRECTIVES``: true unless set; false to read nothing of pages, which costs nothing. True, each
    response has its PageDirectives as ``response.meta["politesse_page"]``; its METAs need the extra ``html``.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Put everything in place; raises ConfigurationError where something else stands there."""
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
        # By its path, as in the base settings: older Scrapys do not know that a class means the same.
        places[global_object_name(ScrapyRobotsTxtMiddleware)] = None
        if RobotsTxtMiddleware not in map(load_object, places):
            places[RobotsTxtMiddleware] = place
        settings.set(_MIDDLEWARES, places, settings.getpriority(_MIDDLEWARES) or 0)

    @staticmethod
    def _check(settings: BaseSettings) -> None:
        downloader = load_object(settings["DOWNLOADER"])
        if not issubclass(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"DOWNLOADER={settings['DOWNLOADER']!r}: politesse keeps the pace there; remove the setting, or derive "
                "from politesse.integrations.scrapy.PoliteDownloader"
            )
        if settings.getint("CONCURRENT_REQUESTS_PER_IP"):
            raise ConfigurationError("CONCURRENT_REQUESTS_PER_IP: requests are paced by host; set it to 0")
        queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        if not issubclass(queue, PolitePriorityQueue):
            logger.warning("SCHEDULER_PRIORITY_QUEUE=%r: a slow host may hold up the others", queue.__name__)
