"""A queue that hands out only URLs whose host is ready, so that no worker ever waits for one host.

Theory of operation. Entries stand in lanes, one for each origin, because an origin is what a robots.txt speaks for;
lanes belong to hosts, because a host is what bears load. A lane is parked while its robots.txt is being asked for, or
is unreachable and not to be asked for yet; the heads of all others compete, by priority, for the next turn at their
host. A host with such a head is in one of two places: in the round of hosts that may be ready, or with the pacer, which
calls back when the host's time has come: when the interval is over, the request in flight has ended, a closure or a
Visit-time window allows it.

A worker goes along the round and tries each host in turn with ``try_turn``, in its own task: so a turn is stamped when
the worker has it, and an entry leaves its place in the same step, without a moment at which both could be lost to a
cancellation. A host that is not ready after all goes back to the pacer, one that gave a turn too: it comes again at the
end of the round. Nothing is polled: what a hand-out costs is a few heap operations, and every look at a host was
brought about by one event there.

robots.txt is asked for ahead of the workers, for up to ``max_asking`` origins at once, each in a task that ends with
the answer. An origin that does not answer within a moment counts no longer: servers that accept and never answer would
hold up all others, which wait for their first question. While no worker waits, unknown origins are taken up at the pace
of the hand-outs, so that a long queue does not fetch today what it needs tomorrow.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from politesse._gate.gatekeeper import AgentView, agent_of
from politesse._pacing.turns import Turn, holding
from politesse.errors import ClosedError, ConfigurationError, InvalidURL
from politesse.queue.lanes import Entry, Host, Lane, Line
from politesse.verdict import Bound, Disallowed, NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from politesse.clock import Timer
    from politesse.origin import Origin

Item = TypeVar("Item")

_BATCH: Final = 100
_MOMENT_S: Final = 0.05  # most sites answer in it; 1,000 that do not are passed in half a second
_MAX_SLOW: Final = 10_000  # a task and a flight each: some 100 MB, and at 30 s for each 300 new ones a second
_MIN_DEFERRAL_S: Final = 1.0  # a wall clock that jumped must not turn a deferral into a busy loop
_DEFERRING: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.USAGE_UNKNOWN})


class QueueClosed(ClosedError):
    """The queue was closed: nothing can be put, and nothing is left to be handed out."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What a queue holds now, and what it has refused so far.

    Attributes:
        queued: how many entries wait.
        hosts: at how many hosts.
        ready: how many of these stand in the round, as far as is known ready.
        asking: of how many origins robots.txt is being waited for.
        deferred: how many origins wait until an unreachable robots.txt may be asked for again.
        under_way: how many turns are under way.
        waiting: how many workers wait for a turn.
        refused: how many entries were disallowed.
    """

    queued: int
    hosts: int
    ready: int
    asking: int
    deferred: int
    under_way: int
    waiting: int
    refused: int


class QueuedTurn(Generic[Item]):
    """Leave to make one request now, and what it was queued with.

    Attributes:
        url: what may be requested.
        item: as it was put; None where none was.
        verdict: why.
    """

    __slots__ = ("_turn", "item", "url", "verdict")

    def __init__(self, turn: Turn, item: Item | None) -> None:
        self.url = turn.url
        self.item = item
        self.verdict = turn.verdict
        self._turn = turn

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Say what the server answered; see ``Turn.observe``."""
        self._turn.observe(status, headers)

    def __repr__(self) -> str:
        return f"<QueuedTurn of {self._turn!r}>"


class PoliteQueue(Generic[Item]):
    """URLs in, turns out: each as soon as its host is ready, in a fair round of the hosts.

    Within a host the lowest priority goes first, and of the same priority what was put first. A URL that may not be
    requested is handed to ``on_disallowed`` and counts as done. One whose robots.txt is unreachable, or was answered
    with 429, is not refused: its origin is looked at again when robots.txt may be asked for again, up to
    ``max_deferrals`` times in a row, counted for the origin and not for each URL; then all that waits there is refused.
    The queue belongs to one event loop. Its tasks end with what they ask for, at the latest when the gate is closed.

    Args:
        gate: gives the turns. Whoever waits in ``gate.turn`` for the same host goes first.
        maxsize: how many URLs may wait at each host; 0 for any number. Turns under way do not count.
        on_disallowed: called by the worker that comes upon it, with the item, or the URL where there was none, and
            the verdict. What it raises comes out of that worker's ``turn``.
        max_deferrals: see above; 0 or more.
        max_asking: of how many origins robots.txt is asked for at once, without those that are slow to answer;
            positive.

    Raises:
        ConfigurationError: for options that cannot be meant.
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
        _check_given(gate, on_disallowed)
        for name, value, least in (
            ("maxsize", maxsize, 0),
            ("max_deferrals", max_deferrals, 0),
            ("max_asking", max_asking, 1),
        ):
            if value < least:
                raise ConfigurationError(f"{name}={value}: give at least {least}")
        self._gate = gate
        self._maxsize = maxsize
        self._on_disallowed = on_disallowed
        self._max_deferrals = max_deferrals
        self._max_asking = max_asking
        self._hosts: dict[str, Host[Item]] = {}
        self._round: deque[Host[Item]] = deque()
        self._workers = Line()
        self._unasked: deque[Lane[Item]] = deque()
        self._asking: dict[asyncio.Task[Verdict], Lane[Item]] = {}
        self._quick: dict[asyncio.Task[Verdict], Timer] = {}  # of these, the ones that were asked a moment ago
        self._deferred: dict[Lane[Item], Timer] = {}
        self._puts = 0
        self._size = 0
        self._ahead = 0
        self._under_way = 0
        self._refused = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._finished = asyncio.Event()
        self._finished.set()
        agent_of(gate).when_closed(self._fail)

    async def put(self, url: str, item: Item | None = None, priority: int = 0) -> None:
        """Queue ``url``, waiting for room at its host if need be.

        Args:
            url: what to request.
            item: handed out with it.
            priority: lower goes first, within the host.

        Raises:
            InvalidURL: if it is no URL that could be requested.
            QueueClosed: if the queue is closed, be it while this waits.
            ClosedError: if the gatekeeper is found closed.
        """
        origin = self._checked_origin(url)
        while (host := self._full(origin)) is not None:
            try:
                await host.putters.wait()
            finally:
                self._forget_if_idle(host)
        self._add(origin, url, item, priority)

    def put_nowait(self, url: str, item: Item | None = None, priority: int = 0) -> None:
        """Do as ``put`` does, but raise asyncio.QueueFull if there is no room at the host."""
        origin = self._checked_origin(url)
        if self._full(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        self._add(origin, url, item, priority)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[QueuedTurn[Item], None]:
        """Wait until some host is ready, and hold a turn there while the block runs.

        The pause to the next request there counts from the end of the block. However it ends, by an exception or a
        cancellation too, the URL counts as done: put it again to have it tried again. It covers one hop, as
        ``gate.turn`` does, which must not be asked for the same host within the block.

        Raises:
            QueueClosed: once the queue is closed and nothing is left in it.
            ClosedError: if the gatekeeper was closed.
        """
        turn, item = await self._take()
        try:
            with turn, holding(turn):
                yield QueuedTurn(turn, item)
        finally:
            self._under_way -= 1
            self._finish_if_done()

    async def join(self) -> None:
        """Wait until all that was put is done; raises ClosedError if the gatekeeper is closed before."""
        agent_of(self._gate).check_loop()
        await self._finished.wait()
        if self._size or self._under_way:
            self._raise_failure()

    def close(self) -> None:
        """Let nothing more be put.

        What is in the queue is still handed out, what is deferred too; then ``turn`` raises QueueClosed. To end sooner,
        close the gatekeeper.
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
            ready=len(self._round),
            asking=len(self._asking),
            deferred=len(self._deferred),
            under_way=self._under_way,
            waiting=len(self._workers),
            refused=self._refused,
        )

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return (
            f"<PoliteQueue: {self._size} queued at {len(self._hosts)} hosts, {len(self._round)} ready, "
            f"{self._under_way} under way, {len(self._workers)} workers waiting{closed}>"
        )

    def _checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raise InvalidURL now for all that the gate would raise it for later."""
        try:
            url.encode()
        except UnicodeEncodeError:
            raise InvalidURL(url, "holds a lone surrogate, which has no UTF-8 form") from None
        return agent_of(self._gate).checked_origin(url)

    def _full(self, origin: Origin) -> Host[Item] | None:
        """Return the host if there is no room at it; raise if nothing can be put at all."""
        self._raise_failure()
        if self._closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")
        host = self._hosts.get(origin.pacing_host)
        return host if host is not None and 0 < self._maxsize <= host.size else None

    def _add(self, origin: Origin, url: str, item: Item | None, priority: int) -> None:
        key = origin.pacing_host
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = Host(key)
        lane = host.lanes.get(origin)
        if lane is None:
            lane = host.lanes[origin] = Lane(host, origin)
        self._puts += 1
        heapq.heappush(lane.entries, Entry(priority, self._puts, url, item, lane))
        host.size += 1
        self._size += 1
        self._finished.clear()
        if len(lane.entries) == 1 and self._gate.peek(url) is None:
            self._park(lane)
        host.offer(lane)
        self._place(host)

    async def _take(self) -> tuple[Turn, Item | None]:
        try:
            while True:
                self._raise_failure()
                taken = self._go_round()
                if taken is not None:
                    return taken
                if self._closed and not self._size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if self._round:
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    self._ask_more(at_least=self._max_asking)
                    await self._workers.wait()
        finally:
            if self._round:
                self._workers.wake()

    def _go_round(self) -> tuple[Turn, Item | None] | None:
        """Return the first turn that is to be had, if one is found within a batch of attempts."""
        for _ in range(_BATCH):
            if not self._round:
                break
            taken = self._try_at(self._round.popleft())
            self._ask_more(at_least=1)
            if taken is not None:
                return taken
        return None

    def _try_at(self, host: Host[Item]) -> tuple[Turn, Item | None] | None:
        entry = host.head()
        answer = self._attempt(entry.url)
        host.placed = False
        if isinstance(answer, Turn):
            entry.lane.deferrals = 0
            self._under_way += 1
            self._remove(entry)
            if host.has_head():
                self._watch(entry.lane)
            return answer, entry.item
        if isinstance(answer, Verdict):
            self._turn_away(entry, answer)
        elif answer.bound_by is Bound.ROBOTS_TXT:
            entry.lane.parked = True
            self._ask(entry.lane)  # without regard to the limit: it is being asked for already
            self._place(host, first=True)
        else:
            self._watch(entry.lane)
        return None

    def _attempt(self, url: str) -> Turn | NotYet | Verdict:
        try:
            return self._gate.try_turn(url)
        except Disallowed as disallowed:
            return disallowed.verdict

    def _turn_away(self, entry: Entry[Item], verdict: Verdict) -> None:
        """Defer or refuse; the host has cost nothing and is tried again at once."""
        lane, host = entry.lane, entry.lane.host
        if self._defer(lane, verdict):
            self._place(host, first=True)
            return
        if not _is_deferral(verdict):
            lane.deferrals = 0
        self._refused += 1
        self._remove(entry)
        self._place(host, first=True)
        try:
            if self._on_disallowed is not None:
                self._on_disallowed(entry.url if entry.item is None else entry.item, verdict)
        finally:
            self._finish_if_done()

    def _remove(self, entry: Entry[Item]) -> None:
        host = entry.lane.host
        host.remove(entry)
        self._size -= 1
        self._ahead -= entry.lane.ahead
        entry.lane.ahead = False
        host.putters.wake()
        self._forget_if_idle(host)
        if self._closed and not self._size:
            self._workers.wake_all()

    def _forget_if_idle(self, host: Host[Item]) -> None:
        if not host.size and not host.putters and self._hosts.get(host.key) is host:
            del self._hosts[host.key]

    def _finish_if_done(self) -> None:
        if not self._size and not self._under_way:
            self._finished.set()

    def _place(self, host: Host[Item], *, first: bool = False) -> None:
        """Put the host into the round if it has a head and is nowhere; ``first`` is for the worker that is at it."""
        if host.placed or not host.has_head():
            return
        host.placed = True
        if first:
            self._round.appendleft(host)
        else:
            self._enter_round(host)

    def _enter_round(self, host: Host[Item]) -> None:
        self._round.append(host)
        self._workers.wake()

    def _watch(self, lane: Lane[Item]) -> None:
        """Have the host of the lane enter the round when its time has come."""
        lane.host.placed = True
        agent_of(self._gate).when_ready(lane.origin, partial(self._enter_round, lane.host))

    def _park(self, lane: Lane[Item]) -> None:
        """Have the robots.txt of a lane asked for as soon as there is room for it."""
        lane.parked = True
        self._unasked.append(lane)
        self._ask_more()

    def _ask_more(self, at_least: int = 0) -> None:
        """Ask for as many robots.txt as there is room for; while no worker waits, only so far ahead of them."""
        slow = len(self._asking) - len(self._quick)
        room = self._max_asking - len(self._quick) - max(0, slow - _MAX_SLOW)
        if not self._workers:
            room = min(room, max(at_least, room - self._ahead))
        while room > 0 and self._unasked:
            room -= 1
            self._ask(self._unasked.popleft())

    def _ask(self, lane: Lane[Item]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._gate.check(lane.entries[0].url), name=f"queue: robots.txt of {lane.origin}")
        self._asking[task] = lane
        self._quick[task] = agent_of(self._gate).clock.call_later(_MOMENT_S, partial(self._found_slow, task))
        task.add_done_callback(self._asked)

    def _found_slow(self, task: asyncio.Task[Verdict]) -> None:
        """Ask another origin in place of one that takes its time."""
        del self._quick[task]
        if self._failure is None:
            self._ask_more()

    def _asked(self, task: asyncio.Task[Verdict]) -> None:
        lane = self._asking.pop(task)
        timer = self._quick.pop(task, None)
        if timer is not None:
            timer.cancel()
        if task.cancelled():  # the loop is being torn down; if not, it is asked again with the next
            self._unasked.append(lane)
            return
        error = task.exception()
        if error is not None:
            self._fail(error)
        if self._failure is not None:
            return  # be it that the gate was closed a moment after this answer
        if not self._defer(lane, task.result()):
            lane.parked = False
            self._ahead += not lane.ahead
            lane.ahead = True
            lane.host.offer(lane)
            if not task.result().allowed:
                self._place(lane.host)
            elif not lane.host.placed:
                self._watch(lane)  # what was asked just now counts for the pace: it is hardly ready
        self._ask_more()

    def _defer(self, lane: Lane[Item], verdict: Verdict) -> bool:
        """Park the lane until its robots.txt may be asked for again, if that is what the verdict says."""
        not_before = verdict.not_before
        if not_before is None or not _is_deferral(verdict):
            return False
        if not_before != lane.not_before:  # else the wall clock was set forward, and nobody was asked since
            if lane.deferrals >= self._max_deferrals:
                return False
            lane.not_before = not_before
            lane.deferrals += 1
        lane.parked = True
        wait_s = max(not_before - agent_of(self._gate).clock.wall(), _MIN_DEFERRAL_S)
        self._deferred[lane] = agent_of(self._gate).clock.call_later(wait_s, partial(self._ask_again, lane))
        return True

    def _ask_again(self, lane: Lane[Item]) -> None:
        del self._deferred[lane]
        self._park(lane)

    def _fail(self, error: BaseException) -> None:
        """Tell everybody who waits that nothing more will come."""
        self._failure = self._failure or error
        for timer in self._deferred.values():
            timer.cancel()
        self._deferred.clear()
        for host in self._hosts.values():
            host.putters.wake_all()
        self._workers.wake_all()
        self._finished.set()

    def _raise_failure(self) -> None:
        agent_of(self._gate).check_loop()
        if self._failure is not None:
            raise ClosedError(f"the gatekeeper gives no more turns, with {self._size} URLs queued") from self._failure


def _check_given(gate: object, on_disallowed: object) -> None:
    if not isinstance(gate, AgentView):
        raise ConfigurationError(f"gate={gate!r:.100}: give a Gatekeeper or one of its views")
    if on_disallowed is not None and (not callable(on_disallowed) or inspect.iscoroutinefunction(on_disallowed)):
        raise ConfigurationError(f"on_disallowed={on_disallowed!r:.100}: give a function that is not asynchronous")


def _is_deferral(verdict: Verdict) -> bool:
    return not verdict.allowed and verdict.reason in _DEFERRING
