"""Scrapy, politely; needs Scrapy 2.14 or newer, on asyncio (the extra ``scrapy``).

One line of settings sets up all of it::

    ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}

::

    addon        PolitesseAddon: puts the others in place
    middleware   RobotsTxtMiddleware: may this request be made?
    downloader   PoliteDownloader: when may it start; PolitePriorityQueue: hands out only what may start now
    fetch        robots.txt, asked for through the engine, so that proxies and other middlewares apply
    gate         the Gatekeeper that the settings describe, and its view for each User-Agent
    page         what a page says to crawlers itself, for ``response.meta["politesse_page"]``
    engine       what of Scrapy's engine the others need
    parser       RobotParser: for ROBOTSTXT_PARSER, wherever Scrapy itself wants a parser

Scrapy keeps the requests, politesse the time: a request waits in the scheduler, where it takes up nothing, until its
host may be requested; only then does it count as active. So a slow host holds up nobody, a host that has closed for an
hour keeps no spider from being closed, and with JOBDIR what waits is kept.
"""

from politesse.integrations.scrapy.requires import check_scrapy

check_scrapy()

# Only now: what is imported below imports Scrapy at once.
from politesse.integrations.scrapy.addon import PolitesseAddon  # noqa: E402
from politesse.integrations.scrapy.downloader import PoliteDownloader, PolitePriorityQueue  # noqa: E402
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware  # noqa: E402
from politesse.integrations.scrapy.parser import RobotParser  # noqa: E402

__all__ = ["PoliteDownloader", "PolitePriorityQueue", "PolitesseAddon", "RobotParser", "RobotsTxtMiddleware"]
