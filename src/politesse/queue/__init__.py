"""PoliteQueue: URLs in, turns out, whichever host is ready."""

from politesse.queue.queue import PoliteQueue, QueueClosed, QueuedTurn, QueueStatistics

__all__ = ["PoliteQueue", "QueueClosed", "QueueStatistics", "QueuedTurn"]
