"""PoliteQueue: URLs in, turns out, as soon as a host is ready."""

from politesse.queue.queue import PoliteQueue
from politesse.queue.results import QueueClosed, QueuedTurn, QueueStatistics

__all__ = ["PoliteQueue", "QueueClosed", "QueueStatistics", "QueuedTurn"]
