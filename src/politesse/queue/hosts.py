"""What is queued: one heap of URLs for each origin, and for each host one heap of the first URLs of its origins.

A robots.txt governs an origin, and load falls on a host, so the URLs of an origin wait together and the origins of a
host compete for its turns. Both heaps are ordered by priority and then by the time of ``put``. The heap of first URLs
is cleaned lazily: an entry that is no longer the first of its origin, or whose origin is blocked, stays in it until it
comes to the top. So does a URL that was withdrawn in the heap of its origin, whose top is never withdrawn. So
``push_head``, ``has_head`` and ``withdraw`` cost O(log n), and blocking an origin costs nothing.

A URL that was withdrawn is still counted in ``size`` until the queue has handed it out or refused it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from politesse._pacing.held import in_turn
from politesse.errors import TurnHeld
from politesse.queue.waiting import WaitingTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        withdrawn: whether it competes no more.
    """

    priority: float
    number: int
    url: str
    item: Item | None
    origin_queue: OriginQueue[Item]
    hops: tuple[str, ...] = ()
    attempt: int = 1
    in_heads: bool = False
    withdrawn: bool = False

    def __lt__(self, other: QueuedUrl[Item]) -> bool:
        return (self.priority, self.number) < (other.priority, other.number)


@dataclass(slots=True, eq=False, repr=False)
class OriginQueue(Generic[Item]):
    """The URLs of one origin, as a heap; dropped by its host when the last one is removed.

    Attributes:
        blocked: whether it waits for its robots.txt: for a fetch, or until a deferral is over.
        prefetched: whether robots.txt was fetched and no URL has been handed out or refused since.
        reloads: how often robots.txt was unknown at the turn of its host since a URL was handed out or refused.
        deferrals: how many deferrals followed each other without a URL handed out or refused between them.
        deferred_wall: the Unix time at which the first of them began; None for none.
        not_before: the Unix time at which the last deferral ends.
        sorted_by: the digest of the file by which its URLs were sorted last; see DeniedUrls.
    """

    host: HostQueue[Item]
    origin: Origin
    urls: list[QueuedUrl[Item]] = field(default_factory=list)
    blocked: bool = False
    prefetched: bool = False
    reloads: int = 0
    deferrals: int = 0
    deferred_wall: float | None = None
    not_before: float = 0.0
    sorted_by: bytes | None = None

    def end_deferrals(self) -> None:
        """Begin the count of deferrals anew: robots.txt was answered."""
        self.deferrals = 0
        self.deferred_wall = None


@dataclass(slots=True, eq=False, repr=False)
class HostQueue(Generic[Item]):
    """The origins of one host.

    Attributes:
        key: the pacing host.
        origins: those that have URLs.
        heads: a heap that holds the first URL of each origin that is not blocked, and obsolete entries.
        size: how many URLs wait, in all origins, those that were withdrawn included.
        ready: whether it is in the list of ready hosts.
        near: whether it waits until its start is reserved, at a server.
        watched: whether the pacer will call back.
        progress_mono: when the site last let the host have a turn, or did not close it; None before its first wait.
        putters: tasks that wait for room.
    """

    key: str
    origins: dict[Origin, OriginQueue[Item]] = field(default_factory=dict)
    heads: list[QueuedUrl[Item]] = field(default_factory=list)
    size: int = 0
    ready: bool = False
    near: bool = False
    watched: bool = False
    progress_mono: float | None = None
    putters: WaitingTasks = field(default_factory=WaitingTasks)

    def origin_queue(self, origin: Origin) -> OriginQueue[Item]:
        """Return the queue of an origin: a new one, which ``add`` enters, if none of its URLs waits."""
        return self.origins.get(origin) or OriginQueue(self, origin)

    def add(self, queued: QueuedUrl[Item]) -> None:
        """Queue a URL; ``push_head`` may have to enter the head of its origin then."""
        origin_queue = queued.origin_queue
        self.origins[origin_queue.origin] = origin_queue
        heapq.heappush(origin_queue.urls, queued)

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

    def withdraw(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL compete no more. It need not be the head: a subscriber may have put another in front of it."""
        origin_queue, urls = queued.origin_queue, queued.origin_queue.urls
        queued.withdrawn = True
        while urls and urls[0].withdrawn:
            heapq.heappop(urls)
        if urls:
            self.push_head(origin_queue)
        else:
            del self.origins[origin_queue.origin]

    def competing(self) -> Iterator[QueuedUrl[Item]]:
        """Yield the URLs that were not withdrawn, in no order."""
        for origin_queue in self.origins.values():
            yield from (queued for queued in origin_queue.urls if not queued.withdrawn)


def refuse_to_wait_for_itself(agent: Agent, hosts: Iterable[HostQueue[Item]]) -> None:
    """Raise TurnHeld if the current task holds the turns of all hosts that have URLs: there may be no other end."""
    if not in_turn():
        return
    waiting = [host for host in hosts if host.origins]
    held = [agent.turn_in_the_way(host.key) for host in waiting]
    for host, turn in zip(waiting, held, strict=True):
        if turn is not None and None not in held:
            [origin_queue, *_] = host.origins.values()
            raise TurnHeld(origin_queue.urls[0].url, held_by=turn.url)
