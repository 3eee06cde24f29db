"""What a queue is made of: entries in lanes, one for each origin, and lanes of hosts; and lines of tasks that wait."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from politesse.origin import Origin

Item = TypeVar("Item")


class Line:
    """Tasks that wait to be woken, first come, first woken; one that is cancelled when woken passes it on."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def wait(self) -> None:
        """Wait to be woken."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            await woken
        except asyncio.CancelledError:
            self._waiting.pop(woken, None)
            if not woken.cancelled():
                self.wake()
            raise

    def wake(self) -> None:
        """Wake who has waited for the longest."""
        while self._waiting:
            woken, _ = self._waiting.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake everybody."""
        while self._waiting:
            self.wake()

    def __len__(self) -> int:
        return len(self._waiting)


class Entry(Generic[Item]):
    """What was put; ordered by priority, then by when. ``offered``: whether it is among the heads of its host."""

    __slots__ = ("item", "lane", "number", "offered", "priority", "url")

    def __init__(self, priority: int, number: int, url: str, item: Item | None, lane: Lane[Item]) -> None:
        self.priority = priority
        self.number = number
        self.url = url
        self.item = item
        self.lane = lane
        self.offered = False

    def __lt__(self, other: Entry[Item]) -> bool:
        if self.priority == other.priority:
            return self.number < other.number
        return self.priority < other.priority


class Lane(Generic[Item]):
    """The entries of one origin, as a heap; never empty while it is anybody's.

    Attributes:
        parked: whether it waits for a robots.txt.
        ahead: whether that was asked for, and nothing was handed out or refused since.
        deferrals: how often in a row its robots.txt told to come again later.
        not_before: until when, the last time.
    """

    __slots__ = ("ahead", "deferrals", "entries", "host", "not_before", "origin", "parked")

    def __init__(self, host: Host[Item], origin: Origin) -> None:
        self.host = host
        self.origin = origin
        self.entries: list[Entry[Item]] = []
        self.parked = False
        self.ahead = False
        self.deferrals = 0
        self.not_before = 0.0


class Host(Generic[Item]):
    """The lanes of one host.

    Attributes:
        heads: the first entries of the lanes that are not parked, as a heap, among others that once were.
        size: how many entries wait, in all lanes.
        placed: whether it is in the round, or with the pacer.
        putters: who waits for room.
    """

    __slots__ = ("heads", "key", "lanes", "placed", "putters", "size")

    def __init__(self, key: str) -> None:
        self.key = key
        self.lanes: dict[Origin, Lane[Item]] = {}
        self.heads: list[Entry[Item]] = []
        self.size = 0
        self.placed = False
        self.putters = Line()

    def offer(self, lane: Lane[Item]) -> None:
        """Let the first entry of ``lane`` compete."""
        if not lane.parked and not lane.entries[0].offered:
            lane.entries[0].offered = True
            heapq.heappush(self.heads, lane.entries[0])

    def has_head(self) -> bool:
        """Return whether there is an entry that is next here; not if all wait for a robots.txt."""
        while self.heads:
            entry = self.heads[0]
            if not entry.lane.parked and entry.lane.entries and entry.lane.entries[0] is entry:
                return True
            heapq.heappop(self.heads).offered = False
        return False

    def head(self) -> Entry[Item]:
        """Return the entry that is next here, of a host that has one."""
        self.has_head()  # puts it first
        return self.heads[0]

    def remove(self, entry: Entry[Item]) -> None:
        """Take out what ``head`` has returned."""
        lane = entry.lane
        if lane.entries[0] is entry:
            heapq.heappop(lane.entries)
        else:  # a subscriber to the gate's events has put something before it meanwhile
            lane.entries.remove(entry)
            heapq.heapify(lane.entries)
        self.size -= 1
        if lane.entries:
            self.offer(lane)
        else:
            del self.lanes[lane.origin]
