"""A queue that hands out only URLs whose host is ready, so that no worker ever waits for one host.

Theory of operation. ``_hosts`` maps each pacing host to its HostQueue, which knows its next URL (hosts.py). A host
whose next URL is not blocked by an unknown robots.txt is *scheduled*: it is in ``_ready``, a FIFO of hosts, or the
pacer calls ``_append_ready`` when its time has come: the interval is over, the request in flight has ended, a closure
or a Visit-time window allows it. RobotsPrefetcher (prefetch.py) holds the blocked origins. ``_workers`` is a FIFO of
tasks that wait for a turn, one of which is woken for each host that enters ``_ready``.

A worker takes hosts from ``_ready`` and calls ``try_turn`` in its own task. So a turn is stamped when the worker has
it, and a URL leaves its heap in the same step: a cancellation cannot lose either. What follows depends on the answer:

- a turn: the URL is removed and the host waits for the pacer, which makes the hosts take turns;
- not yet, because of pace: the host waits for the pacer;
- not yet, because robots.txt is unknown (the copy ran out): the origin is blocked and fetched, the host stays first;
- denied, robots.txt unreachable or 429: the origin is deferred, the host stays first;
- denied otherwise, or deferred too often in a row: the URL is refused, the host stays first.

Nothing is polled: each try is caused by one event at that host. ``put``, a turn and a refusal cost O(log n) in the URLs
of one host, whatever the number of hosts is. ``close`` lets the queue run empty: deferred origins are waited for. When
the gate is closed, ``_fail`` cancels all deferrals and wakes every task that waits, which then raises ClosedError.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from politesse._checks import check_least, wrong_type
from politesse._gate.gatekeeper import AgentView, agent_of
from politesse._pacing.held import Turn, current_task, in_turn
from politesse.errors import ClosedError, Disallowed, InvalidURL
from politesse.origin import Origin, url_text
from politesse.queue.crawl import CrawledQueue
from politesse.queue.crawlable import CrawlableQueue
from politesse.queue.hosts import HostQueue, OriginQueue, QueuedUrl, refuse_to_wait_for_itself
from politesse.queue.prefetch import RobotsPrefetcher, is_deferral
from politesse.queue.results import QueueClosed, QueuedTurn, QueueStatistics
from politesse.queue.waiting import WaitingTasks
from politesse.verdict import Bound, NotYet, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from politesse.origin import StrOrURL

Item = TypeVar("Item")

_BATCH: Final = 100


class PoliteQueue(CrawlableQueue[Item]):
    r"""URLs in, turns out: each as soon as its host is ready, the hosts taking turns.

    Within a host the lowest priority goes first, and of the same priority what was put first. A URL that may not be
    requested is passed to ``on_disallowed`` and counts as done. If robots.txt is unreachable, or was answered with 429,
    the URLs of its origin are kept until robots.txt may be fetched again, up to ``max_deferrals`` times in a row,
    counted for the origin and not for each URL; then all of them are refused. The queue belongs to one event loop. Its
    tasks end with their fetches, at the latest when the gate is closed.

    Args:
        gate: grants the turns. Callers of ``gate.turn`` for the same host go first.
        maxsize: how many URLs may wait at each host before the ``put`` of a producer waits; 0 for any number. Turns
            under way do not count. Within a turn (in child tasks, too), and in a task that has taken a turn of this
            queue, ``put`` never waits and adds beyond it: the task would wait for itself.
        on_disallowed: called with the item, or the URL if there is no item, and the verdict, by the worker that finds
            the URL disallowed. If it raises, that worker's ``turn`` raises.
        max_deferrals: see above; 0 or more.
        max_asking: how many robots.txt are fetched at once, not counting those that are slow to answer; positive.

    Raises:
        ConfigurationError: for invalid options.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent, clock = "ExampleBot/1.0 (+https://example.com/bot)", ManualClock(autojump=True)
        ...     fetcher = ScriptedFetcher({"https://a.example": "User-agent: *\nDisallow: /private"})
        ...     async with Gatekeeper(agent, fetcher=fetcher, clock=clock) as gate:
        ...         queue = PoliteQueue(gate, on_disallowed=lambda url, verdict: print(url, verdict.reason))
        ...         for path in ("/1", "/private", "/2"):
        ...             await queue.put(f"https://a.example{path}")
        ...         for _ in range(2):
        ...             async with queue.turn() as turn:
        ...                 print(turn.url, round(clock.monotonic()))  # request it here
        >>> asyncio.run(main())
        https://a.example/1 1
        https://a.example/private disallow-rule
        https://a.example/2 2
    """

    def __init__(
        self,
        gate: AgentView,
        *,
        maxsize: int = 0,
        on_disallowed: Callable[[Item | str, Verdict], object] | None = None,
        max_deferrals: int = 5,
        max_asking: int = 100,
    ) -> None:
        _check_objects(gate, on_disallowed)
        check_least("maxsize", maxsize, 0)
        check_least("max_deferrals", max_deferrals, 0)
        check_least("max_asking", max_asking, 1)
        self._gate = gate
        self._agent = agent_of(gate)
        self._maxsize = maxsize
        self._on_disallowed = on_disallowed
        self._max_asking = max_asking
        self._hosts: dict[str, HostQueue[Item]] = {}
        self._ready: deque[HostQueue[Item]] = deque()
        self._workers = WaitingTasks()
        self._consumers: WeakSet[asyncio.Task[object] | None] = WeakSet()
        self._prefetcher: RobotsPrefetcher[Item] = RobotsPrefetcher(
            gate.check, self._agent.clock, self._workers, max_asking, max_deferrals, self._unblocked, self._fail
        )
        self._puts = 0
        self._size = 0
        self._under_way = 0
        self._refused = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._finished = asyncio.Event()
        self._finished.set()
        self._agent.when_closed(self._fail)

    async def put(self, url: StrOrURL, item: Item | None = None, priority: int = 0) -> None:
        """Queue ``url``; a producer waits first if there is no room at its host (see ``maxsize``).

        Args:
            url: what to request.
            item: handed out with it.
            priority: lower goes first, within the host.

        Raises:
            InvalidURL: for a URL that cannot be requested.
            TypeError: for what is neither a str nor a yarl.URL.
            QueueClosed: if the queue is closed, before the call or during it.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if the gatekeeper belongs to another event loop.
        """
        url = url_text(url)
        origin = self._checked_origin(url)
        while (host := self._full_host(origin)) is not None:
            try:
                await host.putters.wait()
            finally:
                self._forget_if_idle(host)
        if not self._is_seen(url):
            self._add(origin, url, item, priority)

    def put_nowait(self, url: StrOrURL, item: Item | None = None, priority: int = 0) -> None:
        """Queue ``url`` if there is room at its host, or the caller is a consumer (see ``maxsize``).

        Raises:
            asyncio.QueueFull: if there is no room, for a producer.
            InvalidURL, TypeError, QueueClosed, ClosedError, WrongEventLoop: as ``put`` does.
        """
        url = url_text(url)
        origin = self._checked_origin(url)
        if self._full_host(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        if not self._is_seen(url):
            self._add(origin, url, item, priority)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[QueuedTurn[Item], None]:
        """Wait until some host is ready, and hold a turn there while the block runs.

        The pause to the next request counts from the end of the block. However the block ends, the URL is done then:
        put it again to retry it. The turn covers one hop, and the integrations use it; see ``AgentView.turn``.

        Raises:
            QueueClosed: if the queue is closed and empty.
            TurnHeld: if this task holds the turns of all hosts that have URLs: it would wait for itself.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if the gatekeeper belongs to another event loop.
        """
        self._consumers.add(current_task())
        turn, queued = await self._take()
        try:
            with turn:
                yield QueuedTurn(turn, queued)
        finally:
            self._under_way -= 1
            self._finish_if_done()

    async def join(self) -> None:
        """Wait until every URL that was put is done.

        Raises:
            ClosedError: if the gatekeeper is closed before that.
            WrongEventLoop: if the gatekeeper belongs to another event loop.
        """
        self._agent.check_loop()
        await self._finished.wait()
        if self._size or self._under_way:
            self._raise_failure()

    def close(self) -> None:
        """Accept no more URLs.

        Queued URLs are still handed out, deferred ones too; then ``turn`` raises QueueClosed. Close the gate to stop.
        """
        self._closed = True
        for host in self._hosts.values():
            host.putters.wake_all()
        self._workers.wake_all()

    def qsize(self) -> int:
        """Return how many URLs wait; turns under way do not count."""
        return self._size

    def statistics(self) -> QueueStatistics:
        """Return what the queue holds now."""
        return QueueStatistics(
            queued=self._size,
            hosts=len(self._hosts),
            ready=len(self._ready),
            asking=self._prefetcher.fetching,
            deferred=self._prefetcher.deferred,
            under_way=self._under_way,
            waiting=len(self._workers),
            refused=self._refused,
        )

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return (
            f"<PoliteQueue: {self._size} queued at {len(self._hosts)} hosts, {len(self._ready)} ready, "
            f"{self._under_way} under way, {len(self._workers)} workers waiting{closed}>"
        )

    def _checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raise InvalidURL now if the gate would raise it later."""
        try:
            url.encode()
        except UnicodeEncodeError:
            raise InvalidURL(url, "holds a lone surrogate, which has no UTF-8 form") from None
        return self._agent.checked_origin(url)

    def _full_host(self, origin: Origin) -> HostQueue[Item] | None:
        """Return the host if there is no room at it; raise if nothing can be put at all."""
        self._raise_failure()
        if self._closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")
        host = self._hosts.get(origin.pacing_host)
        if host is None or not 0 < self._maxsize <= host.size or in_turn():
            return None
        return None if current_task() in self._consumers else host

    def _add(
        self,
        origin: Origin,
        url: str,
        item: Item | None,
        priority: int,
        hops: tuple[str, ...] = (),
        attempt: int = 1,
    ) -> None:
        key = origin.pacing_host
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = HostQueue(key)
        self._puts += 1
        origin_queue = host.add(origin, priority, self._puts, url, item, hops, attempt)
        self._size += 1
        if self._failure is not None:
            return  # a crawl puts back what was under way; nothing hands it out
        self._finished.clear()
        if len(origin_queue.urls) == 1 and self._gate.peek(url) is None:
            self._prefetcher.add(origin_queue)
        host.push_head(origin_queue)
        self._schedule(host)

    def _crawled(self) -> CrawledQueue[Item]:
        def enter(url: str, item: Item | None, priority: int, hops: tuple[str, ...], attempt: int) -> None:
            self._add(Origin.of(url), url, item, priority, hops, attempt)

        def urls() -> Iterator[QueuedUrl[Item]]:
            return (
                queued for host in self._hosts.values() for origin in host.origins.values() for queued in origin.urls
            )

        return CrawledQueue(self._gate, self.turn, self.join, self.statistics, lambda: not self._closed, urls, enter)

    async def _take(self) -> tuple[Turn, QueuedUrl[Item]]:
        try:
            while True:
                self._raise_failure()
                taken = self._try_ready()
                if taken is not None:
                    return taken
                if self._closed and not self._size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if self._ready:
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    refuse_to_wait_for_itself(self._agent, self._hosts.values())
                    self._prefetcher.start_fetches(at_least=self._max_asking)
                    await self._workers.wait()
        finally:
            if self._ready:
                self._workers.wake()

    def _try_ready(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return the first turn that a ready host grants, or None if a batch of tries finds none."""
        for _ in range(_BATCH):
            if not self._ready:
                break
            taken = self._try_host(self._ready.popleft())
            self._prefetcher.start_fetches(at_least=1)
            if taken is not None:
                return taken
        return None

    def _try_host(self, host: HostQueue[Item]) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Act on the answer to the next URL of a host, as the theory of operation lists it."""
        queued = host.head()
        answer: Turn | NotYet | Verdict
        try:
            answer = self._gate.try_turn(queued.url)
        except Disallowed as disallowed:
            answer = disallowed.verdict
        host.scheduled = False
        origin_queue = queued.origin_queue
        if isinstance(answer, Turn):
            origin_queue.deferrals = 0
            self._under_way += 1
            self._remove(queued)
            if host.has_head():
                self._wait_for_pacer(origin_queue)
            return answer, queued
        if isinstance(answer, Verdict):
            self._defer_or_refuse(queued, answer)
        elif answer.bound_by is Bound.ROBOTS_TXT:
            self._prefetcher.fetch(origin_queue)  # whatever the limits are: the gate is fetching it already
            self._schedule(host, first=True)
        else:
            self._wait_for_pacer(origin_queue)
        return None

    def _defer_or_refuse(self, queued: QueuedUrl[Item], verdict: Verdict) -> None:
        """Act on a denial. It has cost the host nothing, so the host is tried again at once."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        if self._prefetcher.defer(origin_queue, verdict):
            self._schedule(host, first=True)
            return
        if not is_deferral(verdict):
            origin_queue.deferrals = 0
        self._refused += 1
        self._remove(queued)
        self._schedule(host, first=True)
        try:
            if self._on_disallowed is not None:
                self._on_disallowed(queued.url if queued.item is None else queued.item, verdict)
        finally:
            if self._crawl is not None:
                self._crawl.note_refusal(queued.url)
            self._finish_if_done()

    def _remove(self, queued: QueuedUrl[Item]) -> None:
        host = queued.origin_queue.host
        host.remove(queued)
        self._size -= 1
        self._prefetcher.note_use(queued.origin_queue)
        host.putters.wake()
        self._forget_if_idle(host)
        if self._closed and not self._size:
            self._workers.wake_all()

    def _forget_if_idle(self, host: HostQueue[Item]) -> None:
        if not host.size and not host.putters and self._hosts.get(host.key) is host:
            del self._hosts[host.key]

    def _finish_if_done(self) -> None:
        if not self._size and not self._under_way:
            self._finished.set()

    def _schedule(self, host: HostQueue[Item], *, first: bool = False) -> None:
        """Enter the host as ready unless it is scheduled or blocked; ``first`` if this worker goes on with it."""
        if host.scheduled or not host.has_head():
            return
        host.scheduled = True
        if first:
            self._ready.appendleft(host)
        else:
            self._append_ready(host)

    def _append_ready(self, host: HostQueue[Item]) -> None:
        self._ready.append(host)
        self._workers.wake()

    def _wait_for_pacer(self, origin_queue: OriginQueue[Item]) -> None:
        """Have the pacer enter the host as ready when its time has come."""
        origin_queue.host.scheduled = True
        self._agent.when_ready(origin_queue.origin, partial(self._append_ready, origin_queue.host))

    def _unblocked(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> None:
        """Let an origin compete whose robots.txt was fetched just now."""
        host = origin_queue.host
        host.push_head(origin_queue)
        if not verdict.allowed:
            self._schedule(host)
        elif not host.scheduled:
            self._wait_for_pacer(origin_queue)  # the fetch counts for the pace: the host is hardly ready

    def _fail(self, error: BaseException) -> None:
        """Wake every task that waits: nothing more will come."""
        self._failure = self._failure or error
        self._prefetcher.stop()
        for host in self._hosts.values():
            host.putters.wake_all()
        self._workers.wake_all()
        self._finished.set()

    def _raise_failure(self) -> None:
        self._agent.check_loop()
        if self._failure is not None:
            raise ClosedError(f"the gatekeeper gives no more turns, with {self._size} URLs queued") from self._failure


def _check_objects(gate: object, on_disallowed: object) -> None:
    if not isinstance(gate, AgentView):
        raise wrong_type("gate", gate, "a Gatekeeper or the result of its agent()")
    if on_disallowed is not None and (not callable(on_disallowed) or inspect.iscoroutinefunction(on_disallowed)):
        raise wrong_type("on_disallowed", on_disallowed, "a function that is not asynchronous")
