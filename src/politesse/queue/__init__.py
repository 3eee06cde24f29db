"""PoliteQueue accepts URLs, hands out each URL as soon as its host is ready, and has a loop for crawls.

The modules of this folder::

    _queue.py           PoliteQueue: the methods for users
    _dispatch.py        takes URLs, hands them out and refuses them; fetches robots.txt ahead, and decides how long to
                        wait; has the theory of operation
      _hosts.py         the phases of a host, with their table, and the URLs that wait
    _journal.py         keeps the queue for the next run; has the theory of operation
    _crawl.py           ``PoliteQueue.crawl``: the loop over the queue, and its counts
      _sitemaps.py      puts sitemap files, and queues their URLs
        _sitemap_file.py  reads a sitemap file
      _signals.py       ends a crawl in order at SIGINT and SIGTERM
      _web.py           the clients, limits, links and seen URLs of a crawl
    _results.py         turns, pages, counts, losses and errors

The words, besides those of ``politesse._gate`` and ``politesse._pacing``::

    phase     what a host of the queue waits for; READY hosts stand in a line for the workers
    trail     how a crawl came to a URL: redirects, attempt, depth, sitemap
    deferral  the URLs of an origin wait until its robots.txt is fetched again
    refusal   a URL leaves the queue without a request: it is denied, or given up
    give up   to refuse the URLs of a host or an origin that would wait for too long
    loss      how many URLs of a site were given up or left, and why
    journal   the file in which a queue outlives its process
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
