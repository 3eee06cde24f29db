"""Hands out the URLs of hosts that are ready, and refuses what is denied or given up: what is behind PoliteQueue.

Theory of operation. ``_hosts`` maps each pacing host to its HostQueue, which knows its next URL (hosts.py). A host
whose next URL is not blocked by an unknown robots.txt is *ready*, in the FIFO ``_ready`` (ready.py), or *watched*: the
pacer enters it there when its time has come: the interval is over, the request in flight has ended, a closure or a
Visit-time window allows it; in a fleet, when its start was reserved (ahead.py). RobotsPrefetcher (prefetch.py) holds
the blocked origins, DeniedUrls (denied.py) the URLs that are to be refused. ``_workers`` is a FIFO of tasks that wait
for a turn, one of which is woken for each host that enters ``_ready``.

A worker takes hosts from ``_ready`` and calls ``try_turn`` in its own task. So a turn is stamped when the worker has
it, and a URL leaves its heap in the same step: a cancellation cannot lose either. What follows depends on the answer:

- a turn: the URL is removed and the host waits for the pacer, which makes the hosts take turns;
- not yet, because of pace: the host waits for the pacer, or the URL is given up and the host stays first (patience.py);
- not yet, because robots.txt is unknown (the copy ran out, or was evicted): the origin is blocked and fetched, and the
  host is first again when it is known;
- denied, robots.txt unreachable or 429: the origin is deferred, the host stays first;
- denied otherwise, or deferred for too long: the URL is refused, the host stays first.

A watched host may become ready before the pacer calls: a turn has ended with an answer that may have closed it, or it
has made no progress for ``max_wait_s``. The call that comes later finds it ready, or with nothing that competes, and
does nothing. Nothing is polled: each try is caused by one event at that host. ``put``, a turn and a refusal cost
O(log n) in the URLs of one host, whatever the number of hosts is. A decision is counted with a turn or a refusal, and
with nothing else.

``close`` lets the queue run empty: deferred origins are waited for. When the gate is closed, ``_fail`` cancels all
timers and wakes every task that waits, which then raises ClosedError.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakSet

from politesse._pacing.held import Turn, current_task
from politesse._text import counted
from politesse.errors import ClosedError, Disallowed, StoreError
from politesse.origin import Origin
from politesse.queue.denied import DeniedUrls, TimeSlice
from politesse.queue.hosts import HostQueue, OriginQueue, QueuedUrl, refuse_to_wait_for_itself
from politesse.queue.journal import Journal
from politesse.queue.patience import Limits, Patience
from politesse.queue.prefetch import RobotsPrefetcher
from politesse.queue.ready import ReadyHosts
from politesse.queue.refusals import Refusals
from politesse.queue.results import QueueClosed, QueueStatistics
from politesse.queue.waiting import WaitingTasks
from politesse.verdict import Bound, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse._gate.agent import Agent
    from politesse.queue.journal import JournalFile, JournalRow
    from politesse.queue.reports import RunningCrawl
    from politesse.queue.stalls import StallWatch

Item = TypeVar("Item")

_BATCH: Final = 100


class Dispatcher(Generic[Item]):
    """What is queued, and who waits for it.

    Args:
        agent: fetches, judges and grants turns; a decision is counted with each turn and each refusal.
        on_disallowed: see PoliteQueue.
        stalls: learns of each wait, and of progress.
        limits: for how long is waited.
        max_asking: see PoliteQueue.
        journal_file: what is put is kept there; None for nowhere.

    Attributes:
        hosts: those that have URLs, or tasks that wait for room, by pacing host.
        size: how many URLs wait.
        closed: whether no more URLs come.
        under_way: the URLs whose turns are under way, by number.
        refusals: the URLs that were refused.
        consumers: the tasks that have taken a turn.
        crawl: the one that is under way; None for none.
        journal: what is put is noted there; None for nowhere.
    """

    def __init__(
        self,
        agent: Agent,
        on_disallowed: Callable[[Item | str, Verdict], object] | None,
        stalls: StallWatch,
        limits: Limits,
        max_asking: int,
        journal_file: JournalFile | None = None,
    ) -> None:
        self._agent = agent
        self._stalls = stalls
        self._max_asking = max_asking
        self.hosts: dict[str, HostQueue[Item]] = {}
        self._workers = WaitingTasks()
        self._ready: ReadyHosts[Item] = ReadyHosts(agent, self._workers)
        self._patience: Patience[Item] = Patience(agent.clock, limits, self._ready.look)
        self._prefetcher: RobotsPrefetcher[Item] = RobotsPrefetcher(
            agent, self._patience, self._workers, max_asking, self._unblocked, self.fail
        )
        self._time_slice = TimeSlice()
        self._denied: DeniedUrls[Item] = DeniedUrls(self._denial, self._time_slice)
        self._puts = 0
        self.size = 0
        self.under_way: dict[int, str] = {}
        self.refusals: Refusals[Item] = Refusals(agent, on_disallowed, self._denied)
        self.closed = False
        self.consumers: WeakSet[asyncio.Task[object] | None] = WeakSet()
        self.crawl: RunningCrawl | None = None
        self._failure: BaseException | None = None
        self._finished = asyncio.Event()
        self._finished.set()
        agent.when_closed(self.fail)
        self.journal = None if journal_file is None else Journal(journal_file, self._resume, self.fail)
        if self.journal is not None:
            agent.close_with_gate(self.journal.aclose)

    async def join(self) -> None:
        """Wait until nothing waits and nothing is under way; raises what ``PoliteQueue.join`` says."""
        await self.ready()
        if not self._finished.is_set():
            with self._stalls:
                await self._finished.wait()
        if self.size or self.under_way:
            self.raise_failure()

    def close(self) -> None:
        """Let the queue run empty."""
        self.closed = True
        for host in self.hosts.values():
            host.putters.wake_all()
        self._workers.wake_all()

    async def aclose(self) -> None:
        """Hand out nothing more, and close the journal."""
        self.closed = True
        if self._failure is None:
            self.fail(QueueClosed(f"the queue was closed, with {counted(self.size, 'URL')} left in it"))
        if self.journal is not None:
            await self.journal.aclose()
            self._agent.closed_before_gate(self.journal.aclose)

    def deferred(self) -> Mapping[Origin, float]:
        """Return the origins that wait for the end of a deferral, and the Unix times at which it ends."""
        return self._prefetcher.deferred

    def left(self) -> list[QueuedUrl[Item]]:
        """Return the URLs that wait, in the order of ``put``."""
        left = [*self._denied.urls]
        for host in self.hosts.values():
            left += host.competing()
        return sorted(left, key=attrgetter("number"))

    def statistics(self) -> QueueStatistics:
        """Return what is held now."""
        deferred = self.deferred()
        return QueueStatistics(
            queued=self.size,
            hosts=len(self.hosts),
            ready=len(self._ready) + self._ready.near,
            asking=self._prefetcher.fetching,
            deferred=len(deferred),
            under_way=len(self.under_way),
            waiting=len(self._workers),
            refused=self.refusals.count,
            given_up=self.refusals.given_up,
            deferred_until_wall=min(deferred.values(), default=None),
            resumed=0 if self.journal is None else self.journal.resumed,
        )

    async def ready(self) -> None:
        """Resume what the journal holds before the first use; raises what ``raise_failure`` and ``ready`` say."""
        if self.journal is not None:
            if not self.journal.is_open:
                self.raise_failure()
            await self.journal.ready()

    async def flush(self) -> None:
        """Wait until the journal has all that was noted; raises StoreError."""
        if self.journal is not None:
            await self.journal.flush()

    def _resume(self, rows: Sequence[JournalRow], last: int) -> None:
        """Queue what an earlier run has left; new URLs get numbers from ``last`` on."""
        self.raise_failure()
        for row in rows:
            self._puts = row.number - 1
            item: Item | None = row.item  # type: ignore[assignment] # as it was put
            self._queue(Origin.of(row.url), row.url, item, row.priority, row.hops, row.attempt)
        self._puts = last

    def add(
        self,
        origin: Origin,
        url: str,
        item: Item | None,
        priority: float,
        hops: tuple[str, ...] = (),
        attempt: int = 1,
        *,
        instead_of: QueuedUrl[Item] | None = None,
    ) -> None:
        """Queue a URL.

        Args:
            origin: of the URL.
            url: see PoliteQueue, like ``item`` and ``priority``.
            item: see there.
            priority: see there.
            hops: the URLs that redirected to it, in a crawl.
            attempt: the number of the attempt, in a crawl.
            instead_of: what ended in this URL, and has done nothing yet that the journal should keep: it is put back,
                or redirects here.
        """
        queued = self._queue(origin, url, item, priority, hops, attempt)
        if self.journal is not None:
            self.journal.added(queued, instead_of)

    def _queue(
        self, origin: Origin, url: str, item: Item | None, priority: float, hops: tuple[str, ...], attempt: int
    ) -> QueuedUrl[Item]:
        key = origin.pacing_host
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = HostQueue(key)
        self._puts += 1
        self._stalls.note_progress()
        host.size += 1
        self.size += 1
        queued = QueuedUrl(priority, self._puts, url, item, host.origin_queue(origin), hops, attempt)
        if self._failure is None:
            self._finished.clear()
            self._enter(queued)
        else:
            host.add(queued)  # a crawl puts back what was under way; nothing hands it out
        return queued

    def _enter(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL compete, or have it refused."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        verdict = self._agent.judged(queued.url)
        if verdict is not None and self._patience.refuses(origin_queue, verdict):
            queued.withdrawn = True
            self._denied.add(queued)
            self._workers.wake()
            return
        host.add(queued)
        if verdict is None and len(origin_queue.urls) == 1:
            self._prefetcher.add(origin_queue)
        host.push_head(origin_queue)
        self._ready.schedule(host)

    async def take(self) -> tuple[Turn, QueuedUrl[Item]]:
        """Wait for a turn; raises what ``PoliteQueue.turn`` says."""
        self.consumers.add(current_task())
        await self.ready()
        try:
            while True:
                self.raise_failure()
                taken = self._try_some()
                if taken is not None:
                    return taken
                if self.closed and not self.size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if not self._ready:
                    self._denied.sort_some()
                self._ready.reserve_ahead()
                if self._denied or self._may_try():
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    refuse_to_wait_for_itself(self._agent, self.hosts.values())
                    self._prefetcher.start_fetches(at_least=self._max_asking)
                    with self._stalls:
                        await self._workers.wait()
        finally:
            if self._ready or self._denied:
                self._workers.wake()

    def _try_some(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Refuse what is denied, then return the first turn that a ready host grants; None when the time is over.

        At least one host is tried: however much there is to refuse, no host waits for that.
        """
        for _ in range(_BATCH):
            if not self._denied.urls or not self._time_slice.is_open():
                break
            self._refuse_denied(self._denied.pop())
            self._prefetcher.start_fetches(at_least=1)
        while self._may_try():
            taken = self._try_host(self._ready.pop())
            self._prefetcher.start_fetches(at_least=1)
            if taken is not None or not self._time_slice.is_open():
                return taken
        return None

    def _may_try(self) -> bool:
        return bool(self._ready) and self._prefetcher.may_reload

    def _try_host(self, host: HostQueue[Item]) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Act on the answer to the next URL of a host, as the theory of operation lists it."""
        if not host.has_head():  # refused meanwhile
            return None
        queued = host.head()
        origin_queue = queued.origin_queue
        try:
            answer = self._agent.try_turn(queued.url)
        except Disallowed as disallowed:
            self._defer_or_refuse(queued, disallowed.verdict)
            return None
        if isinstance(answer, Turn):
            self._agent.counted(answer.verdict)
            self.refusals.note_answer(queued)
            self.under_way[queued.number] = queued.url
            if self.journal is not None:
                self.journal.handed_out(queued)
            self._stalls.note_progress()
            self._remove(queued)
            if host.size:
                self._patience.note_progress(host)
            if host.has_head():
                self._wait_for_pacer(origin_queue)
            self._ready.note_turn()
            return answer, queued
        if answer.bound_by is Bound.ROBOTS_TXT:
            self._prefetcher.fetch_again(origin_queue)
            self._ready.look(host, first=True)
        elif self._patience.waits(host, answer):
            self._wait_for_pacer(origin_queue)
        else:
            self._refuse(queued, self._agent.wait_too_long(queued.url, answer))
        return None

    def _defer_or_refuse(self, queued: QueuedUrl[Item], verdict: Verdict) -> None:
        """Act on a denial."""
        if self._prefetcher.defer(queued.origin_queue, verdict):
            self._ready.look(queued.origin_queue.host, first=True)
        else:
            self._refuse(queued, verdict)

    def _refuse_denied(self, queued: QueuedUrl[Item]) -> None:
        """Refuse a URL that was denied when it was sorted, unless that has changed."""
        origin_queue, verdict = queued.origin_queue, self._denial(queued)
        if verdict is not None:
            self._refuse(queued, verdict)
        else:
            again = origin_queue.host.origin_queue(origin_queue.origin)
            self._enter(replace(queued, origin_queue=again, in_heads=False, withdrawn=False))

    def _denial(self, queued: QueuedUrl[Item]) -> Verdict | None:
        """Return the verdict for which a URL is refused now; None if it is allowed, deferred, or not known."""
        verdict = self._agent.judged(queued.url)
        return verdict if verdict is not None and self._patience.refuses(queued.origin_queue, verdict) else None

    def _refuse(self, queued: QueuedUrl[Item], verdict: Verdict) -> None:
        """Count a URL as done that is not requested. It has cost the host nothing, so the host is tried at once."""
        self._stalls.note_progress()
        self.refusals.note(queued, verdict)
        at_head = not queued.withdrawn
        self._remove(queued)
        if at_head:
            self._ready.look(queued.origin_queue.host, first=True)
        try:
            self.refusals.pass_on(queued, verdict)
        finally:
            if self.journal is not None:
                self.journal.ended(queued)  # after what on_disallowed has put
            if self.crawl is not None:
                self.crawl.note_refusal(queued.url)
            self._finish_if_done()

    def _remove(self, queued: QueuedUrl[Item]) -> None:
        host = queued.origin_queue.host
        if not queued.withdrawn:
            host.withdraw(queued)
        host.size -= 1
        self.size -= 1
        self._prefetcher.note_use(queued.origin_queue)
        host.putters.wake()
        self.forget_if_idle(host)
        if self.closed and not self.size:
            self._workers.wake_all()

    def forget_if_idle(self, host: HostQueue[Item]) -> None:
        """Drop a host that has no URL, and no task that waits for room."""
        if not host.size and not host.putters and self.hosts.get(host.key) is host:
            del self.hosts[host.key]
            self._patience.forget(host)

    def _finish_if_done(self) -> None:
        if not self.size and not self.under_way:
            self._finished.set()

    def note_end(self, turn: Turn, queued: QueuedUrl[Item], *, is_broken_off: bool = False) -> None:
        """Have the host tried at once if the answer may have closed it for long: URLs may have to be given up.

        Args:
            turn: the turn that has ended.
            queued: its URL.
            is_broken_off: whether the turn ended with its task, so that the URL is to be kept in the journal.
        """
        del self.under_way[queued.number]
        if self.journal is not None:
            if is_broken_off:
                self.journal.broken_off(queued)
            else:
                self.journal.ended(queued)
        self._stalls.note_progress()
        self._finish_if_done()
        origin_queue = queued.origin_queue
        host = self.hosts.get(origin_queue.host.key)
        if host is None or self._failure is not None:
            return
        self._patience.note_progress(host)
        if turn.may_close or self._agent.may_wait_long(origin_queue.origin, self._patience.limits.max_wait_s):
            self._ready.look(host)

    def _wait_for_pacer(self, origin_queue: OriginQueue[Item]) -> None:
        """Have the host tried when the pacer reports it ready, or when it has waited for too long."""
        self._patience.watch(origin_queue.host)
        self._ready.wait_for_pacer(origin_queue)

    def _unblocked(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> None:
        """Let an origin compete whose robots.txt was fetched just now."""
        host, origin = origin_queue.host, origin_queue.origin
        host.push_head(origin_queue)
        file = self._agent.known_file(origin)
        if not verdict.allowed or file != origin_queue.sorted_by:
            origin_queue.sorted_by = file
            self._denied.sort(origin_queue)
            self._workers.wake()
        if origin_queue.reloads and not host.watched:
            self._ready.look(host, first=True)  # in its place, before what it needs is evicted again
            self._workers.wake()
        elif not verdict.allowed or self._agent.may_wait_long(origin, self._patience.limits.max_wait_s):
            self._ready.schedule(host)
        elif not host.ready:
            self._wait_for_pacer(origin_queue)  # the fetch counts for the pace: the host is hardly ready

    def fail(self, error: BaseException) -> None:
        """Wake every task that waits: nothing more will come."""
        self._failure = self._failure or error
        self._prefetcher.stop()
        self._patience.stop()
        for host in self.hosts.values():
            host.putters.wake_all()
        self._workers.wake_all()
        self._finished.set()

    def raise_failure(self) -> None:
        """Raise ClosedError if nothing more will come, WrongEventLoop in another event loop than the gate's."""
        self._agent.check_loop()
        if isinstance(self._failure, StoreError | QueueClosed):
            raise type(self._failure)(str(self._failure)) from self._failure
        if self._failure is not None:
            raise ClosedError(f"the gatekeeper gives no more turns, with {self.size} URLs queued") from self._failure
