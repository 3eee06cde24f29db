"""Scrapy with politeness; needs Scrapy 2.14 or newer, on asyncio (the extra ``scrapy``).

One line of settings installs everything::

    ADDONS = {"politesse.integrations.scrapy.PolitesseAddon": 100}

::

    _addon       PolitesseAddon: installs the other parts
    _downloader  RobotsTxtMiddleware: may this request be made? PoliteDownloader: when may it start?
    _queue       PolitePriorityQueue: hands out requests that may start now; restores a queue after a ``kill -9``
    _waits       the sites that wait or are given up, and the stats ``politesse/...``
    _robots      robots.txt, fetched through the engine, so that proxies and other middlewares apply; RobotParser; the
                 requests that Scrapy's HTTP cache answers
    _settings    the Gatekeeper that the settings describe
    _internals   Scrapy's undocumented names: no other module uses them

Scrapy stores the requests, and politesse decides when each request may start. A request waits in the scheduler until
its host may be requested, and is not active before. So a slow host delays no other host, and JOBDIR keeps the waiting
requests. During the fetch of a robots.txt, for at most 30 seconds, one request of its origin is active. A site that is
closed for too long is given up as a whole, and does not keep the spider open.
"""

from importlib import import_module

from politesse._base.text import needs_extra


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
from politesse.integrations.scrapy._addon import PolitesseAddon
from politesse.integrations.scrapy._downloader import PoliteDownloader, RobotsTxtMiddleware
from politesse.integrations.scrapy._internals import requests_under_way
from politesse.integrations.scrapy._queue import PolitePriorityQueue
from politesse.integrations.scrapy._robots import RobotParser

__all__ = [
    "PoliteDownloader",
    "PolitePriorityQueue",
    "PolitesseAddon",
    "RobotParser",
    "RobotsTxtMiddleware",
    "requests_under_way",
]
