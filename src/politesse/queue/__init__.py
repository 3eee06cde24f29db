"""PoliteQueue accepts URLs, hands out each URL as soon as its host is ready, and has a loop for crawls.

The modules of this folder::

    _queue.py           PoliteQueue: the methods for users
    _dispatch.py        takes URLs, hands them out and refuses them: the hosts with their phases, their robots.txt, and
                        how long to wait; has the theory of operation
    _journal.py         keeps the queue for the next run; has the theory of operation
    _crawl.py           ``PoliteQueue.crawl``: the loop over the queue, and its counts
      _sitemaps.py      puts sitemap files, and queues their URLs
        _sitemap_file.py  reads a sitemap file
      _signals.py       ends a crawl in order at SIGINT and SIGTERM
      _web.py           the clients, limits, links and seen URLs of a crawl
    _results.py         turns, pages, counts, losses and errors
"""

from politesse.queue._queue import PoliteQueue
from politesse.queue._results import (
    CrawlPage,
    CrawlProgress,
    CrawlReport,
    Loss,
    PageFailed,
    QueueClosed,
    QueuedTurn,
    QueueStatistics,
)
from politesse.queue._web import Seen

__all__ = [
    "CrawlPage",
    "CrawlProgress",
    "CrawlReport",
    "Loss",
    "PageFailed",
    "PoliteQueue",
    "QueueClosed",
    "QueueStatistics",
    "QueuedTurn",
    "Seen",
]
