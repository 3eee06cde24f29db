"""Takes URLs, hands out those of hosts that are ready, and refuses those that are denied: the core of PoliteQueue.

Theory of operation. ``hosts`` maps the name of each paced host to its HostQueue, which knows the next URL and the phase
of the host (``_hosts``). The hosts that are READY or GIVEN_UP stand in a FIFO line. ``workers`` is a FIFO of tasks that
wait for a turn; when a host enters at the end of the line, one task wakes.

A worker takes the first host, withdraws its next URL and asks the gate for a turn, all in one step. (In a fleet, the
host gets its first turn after a wait in the line of the pacer, which asks Redis meanwhile.) The answer decides:

    a turn                       the URL is handed out; the host waits in the line of the pacer if it has more URLs
    not yet: pace of the host    the URL goes back; the host waits in the line of the pacer, or is given up (Patience)
    not yet: robots.txt unknown  the URL goes back; its origin is blocked during a fetch (_robots), the host goes on
    robots.txt unreachable, 429  the URL goes back; its origin is deferred (_robots), the host goes on
    denied, deferred too long    the URL is refused; the host goes on

"The host goes on" means that it becomes the first of the line. The queue does not poll: a worker asks for a turn only
after an event at a host. ``try_take`` is one round of a worker, for a caller that must not wait: the request manager of
Crawlee.

A URL is also judged when it is put, if its robots.txt is known. After a fetch of robots.txt, all URLs of its origin are
*sorted*: each URL is judged, and a denied URL is withdrawn from its host. A worker refuses a denied URL without a call
of the pacer, so the URL waits for no interval. Sorting ten thousand URLs of an origin takes some 100 ms, so all workers
share one slice of time in which they sort and refuse. So twenty workers block the event loop no longer than one worker.
Sorting is not final: each URL is judged again when it is refused or handed out.

The cost of ``put``, of a turn and of a refusal grows with the logarithm of the number of URLs of the host, and linearly
with the number of its origins. A decision is counted only when a URL is handed out or refused.

After ``close``, the queue accepts no URLs, and the workers finish the queued URLs, including the URLs of deferred
origins. When the gate is closed, ``fail`` cancels all timers and wakes all waiting tasks, which then raise ClosedError.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakSet

from cachetools import LRUCache

from politesse._base.checks import AsyncOnly, check_priority
from politesse._base.tasks import WaitingTasks, current_task, is_ended_with_task, running_loop
from politesse._base.text import counted, shortened
from politesse._gate.turn import HELD, Turn, held_turns, publish_granted, try_turn
from politesse.errors import ClosedError, Disallowed, InvalidURL, StoreError, TurnHeld
from politesse.origin import Origin, StrOrURL, url_text
from politesse.queue._hosts import (
    ASLEEP,
    IN_LINE,
    NO_TRAIL,
    HostEvent,
    HostPhase,
    HostQueue,
    OriginQueue,
    QueuedUrl,
    StallWatch,
    Trail,
)
from politesse.queue._results import (
    Loss,
    QueueClosed,
    QueuedTurn,
    QueueStatistics,
    is_given_up,
    lost_by,
    outside_of_loop,
)
from politesse.queue._robots import CLOSURES, MAX_FETCHING, Patience, RobotsPrefetcher
from politesse.verdict import WORDS, Bound, NotYet, Reason, Verdict, utc

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Sequence

    from politesse._gate.permission import Judged
    from politesse._gate.view import AgentView
    from politesse.queue._crawl import Crawl
    from politesse.queue._journal import Journal, Row

Item = TypeVar("Item")

_LOGGER: Final = logging.getLogger("politesse.queue")

_BATCH: Final = 100
_MAX_NAMED: Final = 3
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


class Dispatcher(Generic[Item]):
    """Keeps the queued URLs of each host and the waiting tasks, and hands out the URLs; see the module.

    Args:
        agent: fetches, judges and grants turns; a decision is counted with each turn and each refusal.
        on_disallowed, max_refusals, retry_failed, maxsize: see PoliteQueue.
        max_unreachable_s, max_wait_s: see PoliteQueue; infinite for no limit.
        journal: the file that keeps the URLs; None for no file.

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
        crawl: the running crawl, which admits new URLs and notes each refusal; None without a crawl.
        journal: records each change; None for no journal.
    """

    def __init__(
        self,
        agent: AgentView,
        on_disallowed: Callable[[Item | str, Verdict], object] | None,
        max_unreachable_s: float,
        max_wait_s: float,
        max_refusals: int,
        journal: str | os.PathLike[str] | None,
        retry_failed: bool = False,  # noqa: FBT001, FBT002 - a private class
        maxsize: int = 0,
    ) -> None:
        self._agent = agent
        self.stalls: StallWatch = StallWatch(agent.clock, partial(described, self))
        self.hosts: dict[str, HostQueue[Item]] = {}
        self._in_turn: dict[str, HostQueue[Item]] = {}  # hosts without URLs that have turns under way
        self.workers: WaitingTasks = WaitingTasks()
        self.line: deque[HostQueue[Item]] = deque()
        self._patience: Patience[Item] = Patience(agent.clock, max_unreachable_s, max_wait_s, max_refusals, self._look)
        self.robots: RobotsPrefetcher[Item] = RobotsPrefetcher(
            agent, self._patience, self.workers, self._known, self.fail
        )
        self._long_s = min(max_wait_s, agent.state.pacing.max_crawl_delay_s)  # a longer pace may be too slow
        self._on_disallowed = on_disallowed
        self._maxsize = maxsize
        self._denied: deque[QueuedUrl[Item]] = deque()
        self._abandoned: deque[QueuedUrl[Item]] = deque()  # given up by the program; a few at a time become denied
        self._gave_up = False
        self._unsorted: deque[tuple[OriginQueue[Item], Iterator[QueuedUrl[Item]]]] = deque()
        self.refused: int = 0
        self.given_up: int = 0
        self._logged: LRUCache[Origin, None] = LRUCache(_MAX_SITES)  # sites given up and logged, until they answer
        self._time_slice = TimeSlice()  # all workers share this time to sort and refuse URLs
        self._puts = 0
        self.size: int = 0
        self.under_way: dict[int, str] = {}
        self.closed: bool = False
        self.consumers: WeakSet[asyncio.Task[object] | None] = WeakSet()
        self.crawl: Crawl[Item, Any] | None = None
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

    def pause(self) -> None:
        """Try no host and begin no fetch of robots.txt, until ``resume``."""
        self.robots.is_paused = self.stalls.is_paused = True

    def resume(self) -> None:
        """Hand out URLs again."""
        if self.robots.is_paused:
            self.robots.is_paused = self.stalls.is_paused = False
            self._patience.start()
            self.stalls.note_progress()
            self.robots.start_fetches()
            self.workers.wake()  # a worker that gets a turn wakes the next one

    def give_up(self, key: str, reason: str) -> int:
        """Refuse all URLs that wait at a host, soon, and return how many they are."""
        host = self.hosts.get(key)
        if host is None:
            return 0
        host.given_up, self._gave_up = (self._puts, reason), True
        for origin_queue in host.origins.values():
            self._abandoned.extend(origin_queue.urls)
            origin_queue.urls.clear()
            self.robots.forget(origin_queue)
        self._deny_abandoned()
        self.workers.wake()
        return host.size

    def _deny_abandoned(self) -> None:
        """Fill ``_denied``, so that it is empty only if ``_abandoned`` is: the URLs of a host may be a million."""
        while self._abandoned and len(self._denied) < _BATCH:
            queued = self._abandoned.popleft()
            if not queued.withdrawn:  # otherwise it has left the heap before
                queued.withdrawn = True
                self._denied.append(queued)

    def _progress_wall(self, host: HostQueue[Item]) -> float:
        """Return the Unix time at which a host last had a turn or was found open; now, if it has not waited since."""
        now_mono = self._agent.clock.monotonic()
        since_mono = now_mono if host.progress_mono is None else host.progress_mono
        return self._agent.clock.wall() - (now_mono - since_mono)

    def left_at(self, host: HostQueue[Item]) -> Iterator[Loss]:
        """Yield the URLs that wait until their site opens: of each origin that is deferred, and of a closed host."""
        rest = host.size
        for origin_queue in host.origins.values():
            if origin_queue.size and origin_queue.deferred_wall is not None and origin_queue.deferred_by is not None:
                rest -= origin_queue.size
                yield lost_by(origin_queue.deferred_by, origin_queue.deferred_wall, origin_queue.size)
        closure = self._agent.pacer.closure(host.key)
        if closure is None:
            closure = host.closure  # perhaps a Visit-time
        if rest and closure is not None and closure.not_before > self._agent.clock.wall():
            detail = f"{closure.refusal}; until" if closure.refusal is not None else "until"
            since_wall = self._progress_wall(host)
            yield Loss(host.key, rest, closure.bound_by, f"{detail} {utc(closure.not_before)}", since_wall)

    async def refuse_given_up(self) -> None:
        """After ``give_up``, refuse what no worker has refused yet: a crawl has ended before."""
        while self._gave_up and self._denied and self._failure is None:
            self._refuse_some()
            await asyncio.sleep(0)
        self._gave_up = False

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
        heaps.append([*self._abandoned])
        competing = [queued for urls in heaps for queued in urls if not queued.withdrawn]
        # The dict drops duplicates: a URL that was withdrawn from a heap and put back may be in the heap twice.
        left = {queued.number: queued for queued in (*competing, *self._denied)}
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

    def _resume(self, rows: Sequence[Row], last: int) -> None:
        """Queue the remaining URLs of an earlier run. New URLs get numbers above ``last``."""
        self.raise_failure()
        for number, url, item, priority, trail in rows:
            self._puts = number - 1  # ``add`` then gives the URL the number of its row
            self.add(Origin.of(url), url, item, priority, trail, is_resumed=True)
        self._puts = last

    async def put(self, url: StrOrURL, item: Item | None, priority: float, trail: Trail = NO_TRAIL) -> bool:
        """Queue a URL when its host has room, and return whether the URL is new; see ``PoliteQueue.put``."""
        text, origin = self._checked(url, item, priority)
        if self.journal is not None:
            await self.journal.ready()
            if self.journal.ignores(text, by_worker=self._is_consumer()):
                return False
        while (host := self._full_host(origin)) is not None:
            try:
                with self.stalls:
                    await host.putters.wait()
            finally:
                self.forget_if_idle(host)
        if is_new := not self._is_seen(text):
            self.add(origin, text, item, priority, trail)
        await self.flush()
        return is_new

    def put_nowait(self, url: StrOrURL, item: Item | None, priority: float) -> None:
        """Queue a URL without waiting; see ``PoliteQueue.put_nowait``."""
        text, origin = self._checked(url, item, priority)
        if self.journal is not None:
            self.journal.check_open()
            if self.journal.ignores(text, by_worker=self._is_consumer()):
                return
        if self._full_host(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        if not self._is_seen(text):
            self.add(origin, text, item, priority)

    def _checked(self, url: StrOrURL, item: Item | None, priority: float) -> tuple[str, Origin]:
        """Return a URL as text, and its origin; raise for an invalid argument, or if the queue accepts no URLs."""
        text = url_text(url)
        check_priority(priority)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidURL(text, "holds a lone surrogate, which has no UTF-8 form") from None
        origin = self._agent.checked_origin(text)
        if self.journal is not None:
            self.journal.check(item, priority)
        self._check_open(origin)
        return text, origin

    def _full_host(self, origin: Origin) -> HostQueue[Item] | None:
        """Return the host of ``origin`` if it has no room, else None; raise if the queue accepts no URLs."""
        self._check_open(origin)
        host = self.hosts.get(origin.pacing_host)
        # A consumer never waits for room, because only consumers make room.
        if host is None or not 0 < self._maxsize <= host.size or self._is_consumer():
            return None
        return host

    def _check_open(self, origin: Origin) -> None:
        """Raise if the queue accepts no URLs."""
        if running_loop() is None:
            raise outside_of_loop()
        self.raise_failure()
        if self.closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")

    def _is_consumer(self) -> bool:
        """Return whether this task has taken a turn of this queue, or the code runs within a turn."""
        return bool(held_turns()) or current_task() in self.consumers

    def _is_seen(self, url: str) -> bool:
        """Return whether the running crawl has seen ``url``; if not, mark it as seen. False without a crawl."""
        return self.crawl is not None and not self.crawl.admit(url)

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
            host = self.hosts[key] = self._in_turn.pop(key) if key in self._in_turn else HostQueue(key)
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
        judged = self._agent.judged(queued.url)
        verdict = None if judged is None else judged[0]
        if verdict is not None and not verdict.allowed and self._patience.refuses(origin_queue, verdict):
            self._denied.append(queued)
            self.workers.wake()
            return
        origin_queue.add(queued)
        if verdict is None:
            origin_queue.sorted_by = None
            if len(origin_queue.urls) == 1 and not origin_queue.blocked:  # after ``give_up`` it may be blocked already
                self.robots.add(origin_queue)
        host = origin_queue.host
        if host.phase not in ASLEEP:
            return  # the host waits for another event already, or is in the line
        if origin_queue.blocked:
            host.on(HostEvent.BLOCKED)
        elif host.is_watched or (host.turns and host.phase is HostPhase.EMPTY and verdict is not None):
            host.on(HostEvent.KNOWN)
            self._watch(origin_queue)  # while a turn is under way, the host probably has to wait
        else:
            self._move(host, HostEvent.URL_PUT)

    def _known(self, origin_queue: OriginQueue[Item], judged: Judged) -> None:
        """Let an origin compete for turns, after its robots.txt was fetched."""
        host, (verdict, permission, copy) = origin_queue.host, judged
        file = None if copy is None else copy.rules.digest or None
        is_denied = not verdict.allowed or self._patience.is_closed_too_long(origin_queue, verdict)
        if is_denied or file != origin_queue.sorted_by:
            origin_queue.sorted_by = file
            self._unsorted.append((origin_queue, _each_of(origin_queue)))
            self.workers.wake()
        origin_queue.may_wait_long = permission.longest_s > self._long_s
        may_wait = is_denied or origin_queue.may_wait_long
        if origin_queue.reloads and not host.is_watched:
            self._move(host, HostEvent.LOOK, first=True)  # in front, because the cache may soon evict robots.txt again
            self.workers.wake()
        elif may_wait and not host.is_watched:
            self._move(host, HostEvent.LOOK)
        elif host.phase in ASLEEP:
            host.on(HostEvent.KNOWN)
            self._watch(origin_queue)  # the host probably has to wait for its interval after the fetch

    def _remove(self, queued: QueuedUrl[Item]) -> None:
        """Stop counting a URL that was withdrawn."""
        host = queued.origin_queue.host
        host.size -= 1
        queued.origin_queue.size -= 1
        self.size -= 1
        self.robots.note_use(queued.origin_queue)
        if host.putters:
            host.putters.wake()
        if not host.size:
            self.forget_if_idle(host)
        if self.closed and not self.size:
            self.workers.wake_all()

    def forget_if_idle(self, host: HostQueue[Item]) -> None:
        """Drop a host without URLs and without tasks that wait for room; it may come back while it has turns."""
        if not host.size and not host.putters and self.hosts.get(host.key) is host:
            del self.hosts[host.key]
            if host.turns:
                self._in_turn[host.key] = host
            self._patience.forget(host)

    def _finish_if_done(self) -> None:
        if not self.size and not self.under_way:
            if not self.hosts:  # otherwise tasks wait for room there, and put the next URLs
                self._patience.rest()
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
            has_urls = host.size and any(queue.urls for queue in host.origins.values())
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
        self._patience.rest()
        for host in self.hosts.values():
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

    async def take(self) -> tuple[Turn, QueuedUrl[Item]]:
        """Wait for a turn. Raises the same errors as ``PoliteQueue.turn``."""
        since_mono = self._agent.clock.monotonic()
        if self.journal is not None:
            await self.ready()
        if self._agent.state.loop is not running_loop():
            self._agent.state.check_loop()
        try:
            while True:
                taken = self.try_take()
                if taken is not None:
                    if self._agent.state.publisher.subscribers:
                        publish_granted(self._agent, taken[0], since_mono=since_mono)
                    return taken
                if self.closed and not self.size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if self.is_ready():
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    if HELD.get() and held_turns():
                        self._refuse_to_wait_for_itself()
                    with self.stalls:
                        await self.workers.wait()
        finally:
            # One task wakes at each event. This one has its turn, or was cancelled: the next one does the rest.
            if self.line or self._denied or self._unsorted:
                self.workers.wake()

    def try_take(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return a turn if a host grants a turn now, else None; also sort and refuse some URLs.

        Raises the same errors as ``PoliteQueue.turn``.
        """
        if self._failure is not None:
            self.raise_failure()
        if self._denied:
            self._refuse_some()
        taken = self._ask_some() if self.line else None
        if taken is None and self._unsorted and not (self.line and self.robots.may_try):
            self._sort_some()
        return taken

    def is_ready(self) -> bool:
        """Return whether ``try_take`` has something to do now; if not, fetch each robots.txt that is needed."""
        if self._denied or self._unsorted or (self.line and self.robots.may_try):
            return True
        if self.robots.unfetched:
            self.robots.start_fetches(at_least=MAX_FETCHING)
        return False

    def _refuse_to_wait_for_itself(self) -> None:
        """Raise TurnHeld if the current task holds the turns of all hosts with URLs, and so might wait for ever."""
        queues = [queue for host in self.hosts.values() for queue in host.origins.values() if queue.urls]
        held = [turn for queue in queues if (turn := self._agent.blocking_turn(queue.host.key)) is not None]
        if held and len(held) == len(queues):
            raise TurnHeld(queues[0].urls[0].url, held_by=held[0].url)

    def _refuse_some(self) -> None:
        """Refuse as many of the denied URLs as the slice of time allows."""
        for _ in range(_BATCH):
            if not self._denied or not self._time_slice.is_open():
                break
            queued = self._denied.popleft()
            if self._abandoned:
                self._deny_abandoned()
            verdict = self._denial(queued)
            if verdict is None:  # the URL is no longer denied
                self._enter(queued)
            else:
                self._refuse(queued, verdict)

    def _sort_some(self) -> None:
        """Withdraw as many denied URLs as the slice of time allows."""
        while self._unsorted and self._time_slice.is_open():
            origin_queue, rest = self._unsorted[0]
            for queued in rest:
                if origin_queue.blocked:  # the origin is sorted again after its robots.txt was fetched
                    break
                if not queued.withdrawn and self._denial(queued) is not None:
                    origin_queue.withdraw(queued)
                    self._denied.append(queued)
                if not self._time_slice.is_open():
                    return
            self._unsorted.popleft()

    def _denial(self, queued: QueuedUrl[Item]) -> Verdict | None:
        """Return the verdict by which a URL is refused now; None if it is allowed, deferred or not yet judged."""
        given_up = queued.origin_queue.host.given_up
        if given_up is not None and queued.number <= given_up[0]:
            return self._agent.given_up(queued.url, given_up[1])
        judged = self._agent.judged(queued.url)
        verdict = None if judged is None else judged[0]
        if verdict is None:
            return None
        if self._patience.is_closed_too_long(queued.origin_queue, verdict):
            until_wall = verdict.not_before or self._agent.clock.wall()
            return self._agent.given_up(queued.url, NotYet(until_wall, Bound.ROBOTS_TXT))
        return verdict if self._patience.refuses(queued.origin_queue, verdict) else None

    def _ask_some(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return the first turn that a host grants; None if no host may be asked, or the slice of time is over.

        At least one host is tried, even if refusals have used up the slice of time.
        """
        while self.line and self.robots.may_try:
            host = self.line.popleft()
            host.on(HostEvent.ASKED)
            queued = host.head()
            if queued is None:  # the URLs of the host were refused meanwhile
                self._move(host, HostEvent.REFUSED)
                continue
            answer = self._ask(queued)
            if isinstance(answer, Turn):
                self._hand_out(queued, answer)
                return answer, queued
            self._settle(queued, answer)
            if not self._time_slice.is_open():
                break
        return None

    def _ask(self, queued: QueuedUrl[Item]) -> Turn | NotYet | Verdict:
        """Ask for the turn of a URL; withdraw the URL if it gets one."""
        origin_queue = queued.origin_queue
        origin_queue.withdraw(queued)  # first: a subscriber to the gate's events may put a URL that comes before it
        answer: Turn | NotYet | Verdict | None = None
        try:
            judged, held = self._agent.judged(queued.url), origin_queue.held
            if judged is None and held is not None and self._agent.still_holds(queued.url, held):
                # tdmrep.json was evicted. If its load took the turn of the host, another load would do so again.
                judged = held
            if judged is not None:
                origin_queue.may_wait_long = judged[1].longest_s > self._long_s
            answer = try_turn(self._agent, queued.url, judged)
        except Disallowed as disallowed:
            answer = disallowed.verdict
        finally:
            if not isinstance(answer, Turn):
                origin_queue.add(queued)
            if answer is None:  # the gate is closed, or Redis refuses this client
                self._move(origin_queue.host, HostEvent.REFUSED, first=True)
        return answer

    def _settle(self, queued: QueuedUrl[Item], answer: NotYet | Verdict) -> None:
        """Act on an answer of the gate without a turn; the table of the module lists the answers."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        if isinstance(answer, Verdict):
            if self.robots.defer(origin_queue, answer):
                self._move(host, HostEvent.REFUSED, first=True)
            else:
                self._refuse(queued, answer, HostEvent.REFUSED)
        elif answer.bound_by is Bound.ROBOTS_TXT:
            self.robots.fetch_again(origin_queue)
            self._move(host, HostEvent.REFUSED, first=True)
        elif self._patience.waits(host, answer):
            if answer.bound_by in CLOSURES:
                host.closure = answer
            self._move(host, HostEvent.SHUT if answer.bound_by in CLOSURES else HostEvent.NOT_YET)
            self._watch(origin_queue)
        else:
            self._refuse(queued, self._agent.given_up(queued.url, answer), HostEvent.TOO_LONG)

    def _hand_out(self, queued: QueuedUrl[Item], turn: Turn) -> None:
        """Count a URL as handed out; its host waits in the line of the pacer if it has more URLs."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        origin_queue.closings = 0
        self._agent.counted(turn.verdict)
        if origin_queue.deferred_wall is not None or self.given_up:
            self._note_answer(queued)
        self.under_way[queued.number] = queued.url
        if self.journal is not None:
            self.journal.handed_out(queued)
        self.stalls.note_progress()
        host.turns += 1
        self._remove(queued)
        if not host.size:
            host.on(HostEvent.EMPTIED)
        elif host.head() is None:
            self._move(host, HostEvent.EMPTIED)  # BLOCKED, if the other URLs wait for their robots.txt
        else:
            self._patience.note_progress(host)
            self._watch(origin_queue)

    def _refuse(self, queued: QueuedUrl[Item], verdict: Verdict, event: HostEvent | None = None) -> None:
        """Count a URL as done without a request, and move its host on if the URL was first in line."""
        host = queued.origin_queue.host
        self.stalls.note_progress()
        if event is not None:
            queued.origin_queue.withdraw(queued)
        if verdict.reason is not Reason.TOO_SLOW:  # ``turn_request`` has already counted TOO_SLOW for the origin
            self._agent.counted(verdict)
        self.refused += 1
        if is_given_up(verdict):
            self._give_up(queued.origin_queue, verdict)
        else:
            self._note_answer(queued)
        self._remove(queued)
        if event is not None:
            self._move(host, event, first=True)
        try:
            if self._on_disallowed is not None:
                self._on_disallowed(queued.url if queued.item is None else queued.item, verdict)
        finally:
            if self.journal is not None:
                self.journal.ended(queued)  # the journal notes the end after the URLs that on_disallowed has put
            if self.crawl is not None:
                self.crawl.note_refusal(verdict, self._progress_wall(host))
            self._finish_if_done()

    def _note_answer(self, queued: QueuedUrl[Item]) -> None:
        """End the deferrals of an origin, because its robots.txt was answered."""
        queued.origin_queue.deferred_wall = None
        if self._logged:
            self._logged.pop(queued.origin_queue.origin, None)

    def _give_up(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> None:
        """Count a URL that the queue gives up, and log its site."""
        self.given_up += 1
        origin, urls = origin_queue.origin, origin_queue.size
        if origin in self._logged:
            return
        self._logged[origin] = None
        fault = "" if verdict.source is None or verdict.reason is not Reason.UNREACHABLE else verdict.source.fault
        detail = fault or verdict.note
        why = f"{WORDS[verdict.reason]}: {detail}" if detail else WORDS[verdict.reason]
        many = f"{counted(urls, 'URL')} {'is' if urls == 1 else 'are'}"
        _LOGGER.warning("gave up %s: %s; %s not requested", origin, shortened(why), many)

    def note_end(self, turn: Turn, queued: QueuedUrl[Item], *, is_broken_off: bool = False) -> None:
        """Count the end of a turn, note it in the journal, and move its host on.

        Args:
            turn: the turn that has ended.
            queued: its URL.
            is_broken_off: whether the turn ended because its task ended; the journal then keeps the URL.
        """
        del self.under_way[queued.number]
        if self.journal is not None:
            if is_broken_off:
                self.journal.keep(queued)
            self.journal.ended(queued)
        self.stalls.note_progress()
        if not self.size:
            self._finish_if_done()
        host = queued.origin_queue.host
        host.turns -= 1
        if not host.turns:
            self._in_turn.pop(host.key, None)
        if self.hosts.get(host.key) is not host or self._failure is not None:
            return
        self._patience.note_progress(host)
        if turn.may_close or queued.origin_queue.may_wait_long:
            self._move(host, HostEvent.LOOK)  # a worker then finds out whether the next URL waits too long


def _each_of(origin_queue: OriginQueue[Item]) -> Iterator[QueuedUrl[Item]]:
    """Yield the URLs of an origin from a copy of its heap, which is made when the iteration begins."""
    yield from origin_queue.urls.copy()


def statistics_of(queue: Dispatcher[Item]) -> QueueStatistics:
    """Return the current counts."""
    return QueueStatistics(
        queued=queue.size,
        hosts=len(queue.hosts),
        ready=len(queue.line),
        asking=len(queue.robots.fetching),
        deferred=len(queue.robots.deferred),
        under_way=len(queue.under_way),
        waiting=len(queue.workers),
        refused=queue.refused,
        given_up=queue.given_up,
        deferred_until_wall=min(queue.robots.deferred.values(), default=None),
        resumed=0 if queue.journal is None else queue.journal.resumed,
    )


def described(queue: Dispatcher[Item]) -> str:
    """Return the current counts in words, for ``repr`` and the log."""
    held, deferred = statistics_of(queue), queue.robots.deferred
    origins = str(next(iter(deferred))) if held.deferred == 1 else counted(held.deferred, "origin")
    until = held.deferred_until_wall
    waiting = {key: len(host.putters) for key, host in queue.hosts.items() if host.putters}
    puts = sum(waiting.values())
    return (
        f"<PoliteQueue: {held.queued:,} queued at {counted(held.hosts, 'host')}{_named(queue.hosts)}, "
        f"{held.ready:,} ready, {held.under_way:,} under way{_named(queue.under_way.values())}, "
        f"{counted(held.waiting, 'worker')} waiting"
        + (f", {puts} {'put waits' if puts == 1 else 'puts wait'} for room{_named(waiting)}" if puts else "")
        + (f", {origins} deferred until {utc(until)}" if until is not None else "")
        + (f", {held.resumed:,} resumed" if held.resumed else "")
        + (", paused" if queue.robots.is_paused else "")
        + (", closed>" if queue.closed else ">")
    )


def _named(names: Collection[str]) -> str:
    """Return up to three names in brackets, escaped and shortened; an empty string without names."""
    shown = [shortened(name) for name in islice(names, _MAX_NAMED)]
    more = ["..."] if len(names) > _MAX_NAMED else []
    return f" ({', '.join(shown + more)})" if shown else ""


class QueueTurn(AsyncOnly, AbstractAsyncContextManager[QueuedTurn[Item], None], Generic[Item]):
    """The wait for one turn of a queue: ``async with`` waits, enters the turn, and ends it.

    Args:
        dispatcher: hands out the turns.
    """

    __slots__ = ("_dispatcher", "_is_used", "_taken")

    def __init__(self, dispatcher: Dispatcher[Item]) -> None:
        self._dispatcher = dispatcher
        self._is_used = False
        self._taken: tuple[Turn, QueuedUrl[Item]] | None = None

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __await__(self) -> NoReturn:
            raise TypeError("a turn of a queue needs 'async with queue.turn() as turn'")

    async def __aenter__(self) -> QueuedTurn[Item]:
        if self._is_used:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._is_used = True
        self._dispatcher.consumers.add(current_task())
        turn, queued = self._taken = await self._dispatcher.take()
        return QueuedTurn(turn.__enter__(), queued.item)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            turn, queued = taken
            is_broken_off = exc is not None and is_ended_with_task(exc, asyncio.current_task())
            try:
                turn.end()
            finally:
                self._dispatcher.note_end(turn, queued, is_broken_off=is_broken_off)
