"""Hands out the URLs of hosts that are ready, and refuses URLs that are denied or given up: the core of PoliteQueue.

Theory of operation. ``hosts`` maps the name of each paced host to its HostQueue, which knows the next URL and the phase
of the host (``_hosts``). The hosts that are READY or GIVEN_UP stand in a FIFO line. ``workers`` is a FIFO of tasks that
wait for a turn; when a host enters at the end of the line, one task wakes.

A worker takes the first host, withdraws its next URL and asks the gate for a turn. The pacer of a process answers in
the same step; the pacer of a fleet asks Redis first, for several workers at once. If a worker is cancelled, it puts the
URL back. The answer decides:

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
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from politesse._base.checks import AsyncOnly
from politesse._base.reasons import WORDS
from politesse._base.tasks import current_task, is_ended_with_task
from politesse._base.text import counted, shortened
from politesse._gate.turn import Turn, entered_turns
from politesse._gate.turns import granted, try_turns
from politesse.errors import TurnHeld
from politesse.queue._frontier import Frontier
from politesse.queue._hosts import HostEvent, OriginQueue, QueuedUrl
from politesse.queue._results import QueueClosed, QueuedTurn, is_given_up
from politesse.queue._robots import CLOSURES, MAX_FETCHING
from politesse.verdict import Bound, NotYet, Reason, Verdict

Item = TypeVar("Item")

_LOGGER: Final = logging.getLogger("politesse.queue")

_BATCH: Final = 100


class Dispatcher(Frontier[Item]):
    """Hands out the URLs of the frontier; see the module."""

    async def take(self) -> tuple[Turn, QueuedUrl[Item]]:
        """Wait for a turn. Raises the same errors as ``PoliteQueue.turn``."""
        since_mono = self._agent.clock.monotonic()
        await self.ready()
        try:
            while True:
                taken = await self.try_take()
                if taken is not None:
                    granted(self._agent, taken[0], since_mono=since_mono)
                    return taken
                if self.closed and not self.size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if self.is_ready():
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    self._refuse_to_wait_for_itself()
                    with self.stalls:
                        await self.workers.wait()
        finally:
            if self.line or self._denied or self._unsorted:
                self.workers.wake()

    async def try_take(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return a turn if a host grants a turn now, else None; also sort and refuse some URLs.

        Raises the same errors as ``PoliteQueue.turn``.
        """
        self.raise_failure()
        if self._denied:
            self._refuse_some()
        taken = await self._ask_some() if self.line else None
        if taken is None and self._unsorted and not self._may_ask():
            self._sort_some()
        return taken

    def is_ready(self) -> bool:
        """Return whether ``try_take`` has something to do now; if not, fetch each robots.txt that is needed."""
        if self._denied or self._unsorted or self._may_ask():
            return True
        self.robots.start_fetches(at_least=MAX_FETCHING)
        return False

    def _refuse_to_wait_for_itself(self) -> None:
        """Raise TurnHeld if the current task holds the turns of all hosts with URLs, and so might wait for ever."""
        if not entered_turns():
            return
        queues = [queue for host in self.hosts.values() for queue in host.origins.values() if queue.urls]
        held = [turn for queue in queues if (turn := self._agent.blocking_turn(queue.host.key)) is not None]
        if held and len(held) == len(queues):
            raise TurnHeld(queues[0].urls[0].url, held_by=held[0].url)

    def _may_ask(self) -> bool:
        return bool(self.line) and self.robots.may_reload

    def _refuse_some(self) -> None:
        """Refuse as many of the denied URLs as the slice of time allows."""
        for _ in range(_BATCH):
            if not self._denied or not self._time_slice.is_open():
                break
            queued = self._denied.popleft()
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
        verdict = self._agent.judged(queued.url)
        return None if verdict is None or not self._patience.refuses(queued.origin_queue, verdict) else verdict

    async def _ask_some(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return the first turn that a host grants; None if no host may be asked, or the slice of time is over.

        At least one host is tried, even if refusals have used up the slice of time.
        """
        while self._may_ask():
            host = self.line.popleft()
            host.on(HostEvent.ASKED)
            queued = host.head()
            if queued is None:  # the URLs of the host were refused meanwhile
                self._move(host, HostEvent.REFUSED)
                continue
            taken = self._settle(queued, await self._ask(queued))
            if taken is not None or not self._time_slice.is_open():
                return taken
        return None

    async def _ask(self, queued: QueuedUrl[Item]) -> Turn | NotYet | Verdict:
        """Ask for the turn of a URL. During the call, the URL is withdrawn."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        origin_queue.withdraw(queued)
        self._asked[queued.number] = queued
        try:
            held, origin_queue.held = origin_queue.held, None
            verdict = self._agent.judged(queued.url)
            if verdict is None and held is not None and self._agent.counts(queued.url, *held):
                # tdmrep.json was evicted. If its load took the turn of the host, another load would do so again.
                verdict, origin_queue.held = held[0], held
            [answer] = await try_turns(self._agent, [(queued.url, verdict)])
            if isinstance(answer, Turn) and self._failure is not None:
                answer.give_back()
                self.raise_failure()
        except BaseException:
            self._put_back(queued)
            self._move(host, HostEvent.REFUSED, first=True)
            raise
        if not isinstance(answer, Turn):
            self._put_back(queued)
        return answer

    def _put_back(self, queued: QueuedUrl[Item]) -> None:
        del self._asked[queued.number]
        queued.origin_queue.add(queued)

    def _settle(self, queued: QueuedUrl[Item], answer: Turn | NotYet | Verdict) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Act on the answer of the gate; the table of the module lists the answers."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        if isinstance(answer, Turn):
            self._hand_out(queued, answer)
            return answer, queued
        if isinstance(answer, Verdict):
            if self.robots.defer(origin_queue, answer):
                self._move(host, HostEvent.REFUSED, first=True)
            else:
                self._refuse(queued, answer, HostEvent.REFUSED)
        elif answer.bound_by is Bound.ROBOTS_TXT:
            self.robots.fetch_again(origin_queue)
            self._move(host, HostEvent.REFUSED, first=True)
        elif self._patience.waits(host, answer):
            self._move(host, HostEvent.SHUT if answer.bound_by in CLOSURES else HostEvent.NOT_YET)
            self._watch(origin_queue)
        else:
            self._refuse(queued, self._agent.given_up(queued.url, answer), HostEvent.TOO_LONG)
        return None

    def _hand_out(self, queued: QueuedUrl[Item], turn: Turn) -> None:
        """Count a URL as handed out; its host waits in the line of the pacer if it has more URLs."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        del self._asked[queued.number]
        self._agent.counted(turn.verdict)
        self._note_answer(queued)
        self.under_way[queued.number] = queued.url
        if self.journal is not None:
            self.journal.handed_out(queued)
        self.stalls.note_progress()
        self._remove(queued)
        if host.size:
            self._patience.note_progress(host)
        if host.head() is not None:
            self._watch(origin_queue)
        else:
            self._move(host, HostEvent.TURN_ENDED)

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
            if self.note_refusal is not None:
                self.note_refusal(verdict)
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
        self._finish_if_done()
        origin = queued.origin_queue.origin
        host = self.hosts.get(queued.origin_queue.host.key)
        if host is None or self._failure is not None:
            return
        self._patience.note_progress(host)
        may_wait = turn.may_close or self._agent.may_wait_long(origin, self._patience.max_wait_s)
        self._move(host, HostEvent.LOOK if may_wait else HostEvent.TURN_ENDED)


class QueueTurn(AsyncOnly, AbstractAsyncContextManager[QueuedTurn[Item], None], Generic[Item]):
    """The wait for one turn of a queue: ``async with`` waits, enters the turn, and ends it.

    Args:
        dispatcher: hands out the turns.
    """

    __slots__ = ("_dispatcher", "_entered", "_taken")

    def __init__(self, dispatcher: Dispatcher[Item]) -> None:
        self._dispatcher = dispatcher
        self._entered = False
        self._taken: tuple[Turn, QueuedUrl[Item]] | None = None

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __await__(self) -> NoReturn:
            raise TypeError("a turn of a queue needs 'async with queue.turn() as turn'")

    async def __aenter__(self) -> QueuedTurn[Item]:
        if self._entered:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._entered = True
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
