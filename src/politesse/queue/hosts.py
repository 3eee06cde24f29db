"""What is queued: one heap of URLs for each origin, and for each host one heap of the first URLs of its origins.

A robots.txt governs an origin, and load falls on a host, so the URLs of an origin wait together and the origins of a
host compete for its turns. Both heaps are ordered by priority and then by the time of ``put``. The heap of first URLs
is cleaned lazily: an entry that is no longer the first of its origin, or whose origin is blocked, stays in it until it
comes to the top. So ``push_head``, ``has_head`` and ``remove`` cost O(log n), and blocking an origin costs nothing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from politesse._pacing.held import in_turn
from politesse.errors import TurnHeld
from politesse.queue.waiting import WaitingTasks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._gate.agent import Agent
    from politesse.origin import Origin

Item = TypeVar("Item")


@dataclass(slots=True, eq=False, repr=False)
class QueuedUrl(Generic[Item]):
    """A URL that was put, with its item; ordered by priority, then by number.

    Attributes:
        number: counts the calls of ``put``.
        origin_queue: where it waits.
        hops: the URLs that redirected here, in a crawl.
        attempt: how often it was put in a crawl, because its host was to be asked later.
        in_heads: whether it is in the ``heads`` of its host.
    """

    priority: int
    number: int
    url: str
    item: Item | None
    origin_queue: OriginQueue[Item]
    hops: tuple[str, ...] = ()
    attempt: int = 1
    in_heads: bool = False

    def __lt__(self, other: QueuedUrl[Item]) -> bool:
        return (self.priority, self.number) < (other.priority, other.number)


@dataclass(slots=True, eq=False, repr=False)
class OriginQueue(Generic[Item]):
    """The URLs of one origin, as a heap; dropped by its host when the last one is removed.

    Attributes:
        blocked: whether it waits for its robots.txt: for a fetch, or until a deferral is over.
        prefetched: whether robots.txt was fetched and no URL has been handed out or refused since.
        deferrals: how many deferrals followed each other without a URL handed out or refused between them.
        not_before: the Unix time at which the last deferral ends.
    """

    host: HostQueue[Item]
    origin: Origin
    urls: list[QueuedUrl[Item]] = field(default_factory=list)
    blocked: bool = False
    prefetched: bool = False
    deferrals: int = 0
    not_before: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class HostQueue(Generic[Item]):
    """The origins of one host.

    Attributes:
        key: the pacing host.
        origins: those that have URLs.
        heads: a heap that holds the first URL of each origin that is not blocked, and obsolete entries.
        size: how many URLs wait, in all origins.
        scheduled: whether it is in the list of ready hosts, or waits for a call of the pacer.
        putters: tasks that wait for room.
    """

    key: str
    origins: dict[Origin, OriginQueue[Item]] = field(default_factory=dict)
    heads: list[QueuedUrl[Item]] = field(default_factory=list)
    size: int = 0
    scheduled: bool = False
    putters: WaitingTasks = field(default_factory=WaitingTasks)

    def add(
        self,
        origin: Origin,
        priority: int,
        number: int,
        url: str,
        item: Item | None,
        hops: tuple[str, ...] = (),
        attempt: int = 1,
    ) -> OriginQueue[Item]:
        """Queue a URL; return the queue of its origin, whose head ``push_head`` may have to enter."""
        origin_queue = self.origins.get(origin)
        if origin_queue is None:
            origin_queue = self.origins[origin] = OriginQueue(self, origin)
        heapq.heappush(origin_queue.urls, QueuedUrl(priority, number, url, item, origin_queue, hops, attempt))
        self.size += 1
        return origin_queue

    def push_head(self, origin_queue: OriginQueue[Item]) -> None:
        """Let the first URL of an origin compete, unless the origin is blocked."""
        if not origin_queue.blocked and not origin_queue.urls[0].in_heads:
            origin_queue.urls[0].in_heads = True
            heapq.heappush(self.heads, origin_queue.urls[0])

    def has_head(self) -> bool:
        """Return whether there is a URL that is next at this host: not if all origins are blocked."""
        while self.heads:
            queued = self.heads[0]
            origin_queue = queued.origin_queue
            if not origin_queue.blocked and origin_queue.urls and origin_queue.urls[0] is queued:
                return True
            heapq.heappop(self.heads).in_heads = False
        return False

    def head(self) -> QueuedUrl[Item]:
        """Return the URL that is next, of a host that has one."""
        self.has_head()  # removes the obsolete entries before it
        return self.heads[0]

    def remove(self, queued: QueuedUrl[Item]) -> None:
        """Remove a URL that ``head`` has returned."""
        origin_queue = queued.origin_queue
        if origin_queue.urls[0] is queued:
            heapq.heappop(origin_queue.urls)
        else:  # a subscriber to the gate's events has put a URL of lower priority number meanwhile
            origin_queue.urls.remove(queued)
            heapq.heapify(origin_queue.urls)
        self.size -= 1
        if origin_queue.urls:
            self.push_head(origin_queue)
        else:
            del self.origins[origin_queue.origin]


def refuse_to_wait_for_itself(agent: Agent, hosts: Iterable[HostQueue[Item]]) -> None:
    """Raise TurnHeld if the current task holds the turns of all hosts that have URLs: there may be no other end."""
    if not in_turn():
        return
    waiting = [host for host in hosts if host.size]
    held = [agent.turn_in_the_way(host.key) for host in waiting]
    for host, turn in zip(waiting, held, strict=True):
        if turn is not None and None not in held:
            [origin_queue, *_] = host.origins.values()
            raise TurnHeld(origin_queue.urls[0].url, held_by=turn.url)
