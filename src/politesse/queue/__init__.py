"""PoliteQueue accepts URLs, hands out turns as soon as their hosts are ready, and has a loop for crawls.

The modules of this folder::

    _queue.py           PoliteQueue: checks the arguments, and waits for room
    _dispatch.py        hands out and refuses URLs; has the theory of operation
      _frontier.py      the URLs that are queued, and the tasks that wait
      _hosts.py         the phases of a host, with their table; the line of ready hosts
      _robots.py        fetches robots.txt ahead, and again after a deferral; decides how long to wait
    _journal.py         keeps the queue for the next run; has the theory of operation
      _journal_file.py  the tables of the journal in an SQLite file
    _crawl.py           ``PoliteQueue.crawl``: the loop over the queue
      _limits.py        what a crawl leaves out
      _web.py           the clients, links and seen URLs of a crawl
    _results.py         turns, pages, counts and errors of queues and crawls
"""

from politesse.queue._queue import PoliteQueue
from politesse.queue._results import (
    CrawlPage,
    CrawlProgress,
    CrawlReport,
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
    "PageFailed",
    "PoliteQueue",
    "QueueClosed",
    "QueueStatistics",
    "QueuedTurn",
    "Seen",
]
