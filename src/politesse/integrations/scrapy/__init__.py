"""Scrapy with politeness; needs Scrapy 2.14 or newer, on asyncio (the extra ``scrapy``).

One line of settings installs everything::

    ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}

::

    addon           PolitesseAddon: installs the others
    middleware      RobotsTxtMiddleware: may this request be made?
    downloader      PoliteDownloader: when may it start?
    priority_queue  PolitePriorityQueue: hands out only what may start now
    ready_slots     which host is next, found without a look at all of them
    journal         what the scheduler's queue on disk would lose if the process were killed
    paced_as        the origin and the slot of a request
    closures        which sites are waited for, and which are given up
    absence         what becomes of the crawl while the Redis of its fleet is away
    tally           the stats ``politesse/...`` and the summary in the log
    engine_fetcher  robots.txt, fetched through the engine, so that proxies and other middlewares apply
    http_cache      which requests Scrapy's HTTP cache answers, so that nothing is sent
    robots_response what Scrapy's response to a request for robots.txt contains
    gate            the Gatekeeper that the settings describe, and its view for each User-Agent
    page_reader     what a page says to crawlers itself, for ``response.meta["politesse_page"]``
    engine          what the others need of Scrapy's engine
    parser          RobotParser: for ROBOTSTXT_PARSER, wherever Scrapy itself needs a parser

Scrapy keeps the requests, politesse the time: a request waits in the scheduler, where it takes up no place, until its
host may be requested; only then does it count as active. So a slow host delays no other, and JOBDIR keeps the requests
that wait. One request of an origin is active while its robots.txt is fetched, for 30 seconds at most. A site that is
closed for too long is given up as a whole, and does not keep the spider open.
"""

from politesse.integrations.scrapy.requires import check_scrapy

check_scrapy()

# After the check: the modules below import Scrapy.
from politesse.integrations.scrapy.addon import PolitesseAddon  # noqa: E402
from politesse.integrations.scrapy.downloader import PoliteDownloader  # noqa: E402
from politesse.integrations.scrapy.engine import requests_under_way  # noqa: E402
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware  # noqa: E402
from politesse.integrations.scrapy.parser import RobotParser  # noqa: E402
from politesse.integrations.scrapy.priority_queue import PolitePriorityQueue  # noqa: E402

__all__ = [
    "PoliteDownloader",
    "PolitePriorityQueue",
    "PolitesseAddon",
    "RobotParser",
    "RobotsTxtMiddleware",
    "requests_under_way",
]
