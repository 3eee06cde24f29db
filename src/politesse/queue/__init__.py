"""PoliteQueue: URLs in, turns out, as soon as a host is ready; and the loop over it."""

from politesse.queue.links import Seen
from politesse.queue.queue import PoliteQueue
from politesse.queue.reports import CrawlPage, CrawlProgress, CrawlReport, PageFailed
from politesse.queue.results import QueueClosed, QueuedTurn, QueueStatistics

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
