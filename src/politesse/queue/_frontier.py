"""The queued URLs of each host, the tasks that wait for them, and the journal; ``_dispatch`` has the theory."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakSet

from cachetools import LRUCache

from politesse._base.text import counted
from politesse.errors import ClosedError, StoreError
from politesse.origin import Origin
from politesse.queue._hosts import (
    IN_LINE,
    NO_TRAIL,
    HostEvent,
    HostPhase,
    HostQueue,
    OriginQueue,
    QueuedUrl,
    StallWatch,
    Trail,
    WaitingTasks,
)
from politesse.queue._results import QueueClosed, described
from politesse.queue._robots import Patience, RobotsPrefetcher

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from politesse._gate.agent import Agent
    from politesse.queue._journal import Journal
    from politesse.queue._journal_file import JournalRow
    from politesse.verdict import Verdict

Item = TypeVar("Item")

_MAX_SITES: Final = 10_000  # at most this many logged sites are remembered
_SLICE_S: Final = 0.002


class TimeSlice:
    """The time that all workers together may take in one round of the event loop."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def is_open(self) -> bool:
        """Whether there is time left in this round; the first call of a round begins it."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + _SLICE_S  # this is real time, not the clock of the gate
            loop.call_soon(self._end_round)
        return loop.time() < self._until

    def _end_round(self) -> None:
        self._until = None


class Frontier(Generic[Item]):
    """The queued URLs, and the tasks that wait.

    Args:
        agent: fetches, judges and grants turns; a decision is counted with each turn and each refusal.
        on_disallowed: see PoliteQueue.
        max_unreachable_s, max_wait_s: see PoliteQueue; infinite for no limit.
        max_refusals: see PoliteQueue.
        journal: the file that keeps the URLs; None for no file.
        retry_failed: see PoliteQueue.

    Attributes:
        hosts: maps the name of each paced host to its queue. A host is listed while it has URLs, or while tasks wait
            for room there.
        line: the hosts that are ready.
        workers: the tasks that wait for a turn.
        size: how many URLs wait.
        closed: whether the queue accepts no more URLs.
        under_way: the URLs whose turns are under way. The key is the number of the URL.
        robots: fetches robots.txt ahead.
        stalls: logs when the queue makes no progress.
        refused: how many URLs were refused.
        given_up: how many of the refused URLs were given up because of a wait.
        consumers: the tasks that have taken a turn.
        note_refusal: the function of the running crawl that is called with each refusal; None without a crawl.
        journal: records each change; None for no journal.
    """

    def __init__(
        self,
        agent: Agent,
        on_disallowed: Callable[[Item | str, Verdict], object] | None,
        max_unreachable_s: float,
        max_wait_s: float,
        max_refusals: int,
        journal: str | os.PathLike[str] | None,
        retry_failed: bool = False,  # noqa: FBT001, FBT002 - a private class
    ) -> None:
        self._agent = agent
        self.stalls: StallWatch = StallWatch(agent.clock, partial(described, self))
        self.hosts: dict[str, HostQueue[Item]] = {}
        self.workers: WaitingTasks = WaitingTasks()
        self.line: deque[HostQueue[Item]] = deque()
        self._asked: dict[int, QueuedUrl[Item]] = {}  # by number: the URLs for which workers ask for a turn
        self._patience: Patience[Item] = Patience(agent.clock, max_unreachable_s, max_wait_s, max_refusals, self._look)
        self.robots: RobotsPrefetcher[Item] = RobotsPrefetcher(
            agent, self._patience, self.workers, self._known, self.fail
        )
        self._on_disallowed = on_disallowed
        self._denied: deque[QueuedUrl[Item]] = deque()
        self._unsorted: deque[tuple[OriginQueue[Item], Iterator[QueuedUrl[Item]]]] = deque()
        self.refused = self.given_up = 0
        self._logged: LRUCache[Origin, None] = LRUCache(_MAX_SITES)  # sites given up and logged, until they answer
        self._time_slice = TimeSlice()  # all workers share this time to sort and refuse URLs
        self._puts = 0
        self.size: int = 0
        self.under_way: dict[int, str] = {}
        self.closed: bool = False
        self.consumers: WeakSet[asyncio.Task[object] | None] = WeakSet()
        self.note_refusal: Callable[[Verdict], None] | None = None
        self._failure: BaseException | None = None
        self._finished = asyncio.Event()
        self._finished.set()
        agent.state.when_closed(self.fail)
        self.journal: Journal | None = None
        if journal is not None:
            from politesse.queue._journal import Journal  # noqa: PLC0415 - loads sqlite3, seldom needed

            self.journal = Journal(journal, retry_failed, self._resume, self.fail)
            agent.state.closed_with.add(self.journal.aclose)

    async def join(self) -> None:
        """Wait until no URL is waiting or under way. Raises the same errors as ``PoliteQueue.join``."""
        await self.ready()
        if not self._finished.is_set():
            with self.stalls:
                await self._finished.wait()
        if self.size or self.under_way:
            self.raise_failure()

    def close(self) -> None:
        """Accept no more URLs; the workers finish the queued URLs."""
        self.closed = True
        for host in self.hosts.values():
            host.putters.wake_all()
        self.workers.wake_all()

    async def aclose(self) -> None:
        """Stop handing out URLs, and close the journal."""
        self.closed = True
        if self._failure is None:
            self.fail(QueueClosed(f"the queue was closed, with {counted(self.size, 'URL')} left in it"))
        if self.journal is not None:
            await self.journal.aclose()
            self._agent.state.closed_with.discard(self.journal.aclose)

    def left(self) -> list[QueuedUrl[Item]]:
        """Return the URLs that wait, in the order of ``put``."""
        heaps = [origin_queue.urls for host in self.hosts.values() for origin_queue in host.origins.values()]
        competing = [queued for urls in heaps for queued in urls if not queued.withdrawn]
        # The dict drops duplicates: a URL that was withdrawn from a heap and put back may be in the heap twice.
        left = {queued.number: queued for queued in (*competing, *self._denied, *self._asked.values())}
        return [left[number] for number in sorted(left)]

    async def ready(self) -> None:
        """Resume the URLs of the journal before the first use; raises as ``raise_failure`` and ``Journal.ready`` do."""
        if self.journal is not None:
            if not self.journal.is_open:
                self.raise_failure()
            await self.journal.ready()

    async def flush(self) -> None:
        """Wait until the journal has written all changes; raises StoreError."""
        if self.journal is not None:
            await self.journal.flush()

    def _resume(self, rows: Sequence[JournalRow], last: int) -> None:
        """Queue the remaining URLs of an earlier run. New URLs get numbers above ``last``."""
        self.raise_failure()
        for row in rows:
            self._puts = row.number - 1
            item: Item | None = row.item  # type: ignore[assignment] # the program put this type
            self.add(Origin.of(row.url), row.url, item, row.priority, row.trail, is_resumed=True)
        self._puts = last

    def add(
        self,
        origin: Origin,
        url: str,
        item: Item | None,
        priority: float,
        trail: Trail = NO_TRAIL,
        *,
        instead_of: QueuedUrl[Item] | None = None,
        is_resumed: bool = False,
    ) -> None:
        """Queue a URL.

        Args:
            origin: the origin of the URL.
            url: see ``PoliteQueue.put``.
            item: see ``PoliteQueue.put``.
            priority: see ``PoliteQueue.put``.
            trail: how a crawl came to this URL.
            instead_of: the URL that is replaced in the journal, because it is put back or redirects here.
            is_resumed: whether the journal has the URL already.
        """
        key = origin.pacing_host
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = HostQueue(key)
        origin_queue = host.origins.get(origin)
        if origin_queue is None:
            origin_queue = host.origins[origin] = OriginQueue(host, origin)
        self._puts += 1
        host.size += 1
        origin_queue.size += 1
        self.size += 1
        queued = QueuedUrl(priority, self._puts, url, item, origin_queue, trail)
        self.stalls.note_progress()
        if self._failure is None:
            self._finished.clear()
            self._enter(queued)
        else:
            origin_queue.add(queued)  # after a failure, a crawl puts back its URLs, so that ``left`` returns them
        if self.journal is not None and not is_resumed:
            self.journal.added(queued, instead_of)

    def _enter(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL compete for turns, or mark it to be refused."""
        origin_queue = queued.origin_queue
        verdict = self._agent.judged(queued.url)
        if verdict is not None and self._patience.refuses(origin_queue, verdict):
            self._denied.append(queued)
            self.workers.wake()
            return
        origin_queue.add(queued)
        if verdict is None:
            origin_queue.sorted_by = None
            if len(origin_queue.urls) == 1:
                self.robots.add(origin_queue)
        host = origin_queue.host
        self._move(host, HostEvent.KNOWN if host.is_watched else HostEvent.URL_PUT)

    def _known(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> None:
        """Let an origin compete for turns, after its robots.txt was fetched."""
        host, origin = origin_queue.host, origin_queue.origin
        file = self._agent.known_file(origin)
        if not verdict.allowed or file != origin_queue.sorted_by:
            origin_queue.sorted_by = file
            self._unsorted.append((origin_queue, _each_of(origin_queue)))
            self.workers.wake()
        may_wait = not verdict.allowed or self._agent.may_wait_long(origin, self._patience.max_wait_s)
        if origin_queue.reloads and not host.is_watched:
            self._move(host, HostEvent.LOOK, first=True)  # in front, because the cache may soon evict robots.txt again
            self.workers.wake()
        elif may_wait and not host.is_watched:
            self._move(host, HostEvent.LOOK)
        else:
            self._move(host, HostEvent.KNOWN)
            if host.phase is HostPhase.PACED:  # the host probably has to wait for its interval after the fetch
                self._watch(origin_queue)

    def _remove(self, queued: QueuedUrl[Item]) -> None:
        """Stop counting a URL that was withdrawn."""
        host = queued.origin_queue.host
        host.size -= 1
        queued.origin_queue.size -= 1
        self.size -= 1
        self.robots.note_use(queued.origin_queue)
        host.putters.wake()
        self.forget_if_idle(host)
        if self.closed and not self.size:
            self.workers.wake_all()

    def forget_if_idle(self, host: HostQueue[Item]) -> None:
        """Drop a host without URLs and without tasks that wait for room."""
        if not host.size and not host.putters and self.hosts.get(host.key) is host:
            del self.hosts[host.key]
            self._patience.forget(host)

    def _finish_if_done(self) -> None:
        if not self.size and not self.under_way:
            self._finished.set()

    def _move(self, host: HostQueue[Item], event: HostEvent, *, first: bool = False) -> None:
        """Move a host outside the line to its next phase: to UNKNOWN or EMPTY if the host has no next URL.

        Args:
            host: the host.
            event: see ``_hosts``.
            first: whether the host enters the line in front, for the current worker or after a reload of its
                robots.txt.
        """
        if host.phase in IN_LINE:
            return
        if host.head() is None:
            has_urls = any(queue.urls for queue in host.origins.values())
            event = HostEvent.BLOCKED if has_urls else HostEvent.EMPTIED
        if not host.on(event):
            return
        if first:
            self.line.appendleft(host)
        else:
            self.line.append(host)
            self.workers.wake()

    def _watch(self, origin_queue: OriginQueue[Item]) -> None:
        """Let the pacer report when a turn at the origin is due; try the host again if the report takes too long."""
        host = origin_queue.host
        if self._failure is not None:
            return
        self._patience.watch(host)
        if not host.is_watched:
            host.is_watched = True
            self._agent.when_ready(origin_queue.origin, partial(self._due, host))

    def _look(self, host: HostQueue[Item]) -> None:
        self._move(host, HostEvent.LOOK)

    def _due(self, host: HostQueue[Item]) -> None:
        host.is_watched = False
        self._move(host, HostEvent.DUE)

    def fail(self, error: BaseException) -> None:
        """Wake all waiting tasks, because no more turns will come."""
        self._failure = self._failure or error
        self.robots.stop()
        for host in self.hosts.values():
            self._patience.forget(host)
            host.putters.wake_all()
        self.workers.wake_all()
        self._finished.set()

    def raise_failure(self) -> None:
        """Raise ClosedError after ``fail``, and WrongEventLoop in another event loop than the gate's."""
        self._agent.state.check_loop()
        if isinstance(self._failure, StoreError | QueueClosed):
            raise type(self._failure)(str(self._failure)) from self._failure
        if self._failure is not None:
            raise ClosedError(f"the gatekeeper gives no more turns, with {self.size} URLs queued") from self._failure


def _each_of(origin_queue: OriginQueue[Item]) -> Iterator[QueuedUrl[Item]]:
    """Yield the URLs of an origin from a copy of its heap, which is made when the iteration begins."""
    yield from origin_queue.urls.copy()
