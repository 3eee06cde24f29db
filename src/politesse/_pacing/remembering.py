"""A LocalPacer whose hosts are remembered for longer than its process.

Theory of operation. A host of which this process knows nothing is recalled before anything starts there:

    new slot -> all places taken, ``recall`` in the background -> state applied, places free, slot armed
                                                               -> failed, or late: the host counts as asked just now

So nothing else has to know of it: requests wait in line as behind one that is under way, and ``try_start`` answers
NotYet. Watchers are called when the host is recalled, ready or not: they may give up a host that is closed for long.
``closed_until`` waits for the recall as well.

What changes at a host is noted with the memory: a request starts or ends, the host is closed. The memory takes the
state later, once for several notes, so that a turn costs no more than the note itself.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from politesse._pacing.busy import LastAsked
from politesse._pacing.host_state import HostState
from politesse._pacing.local import LocalPacer
from politesse._pacing.slot import NEVER
from politesse.clock import run_of
from politesse.errors import ClosedError, StoreError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._pacing.host_state import HostMemory
    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.permit import LocalPermit
    from politesse._pacing.slot import AgentPace, Slot, Waiter
    from politesse.clock import Clock, Timer
    from politesse.events import Publisher
    from politesse.ports import HostPace

_ALL_PLACES: Final = 1_000_000  # more than ``max_concurrent`` may be, now or after ``set_limits``
_MOMENT_S: Final = 0.05  # when to ask again for a turn at a host that is being recalled


class _Recall:
    """A host that is being recalled.

    Attributes:
        ended: done when it is recalled.
        task: recalls it.
        deadlines: the waiters that do not wait for ever: until when by the monotonic clock, and their ``max_wait_s``.
    """

    __slots__ = ("deadlines", "ended", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self.task: asyncio.Task[None] | None = None
        self.deadlines: dict[Waiter, tuple[float, float]] = {}


class RememberingPacer(LocalPacer):
    """Spaces the requests of this process, and goes on from what an earlier one knew; see LocalPacer.

    Args:
        options: see PacingOptions.
        memory: keeps the states of hosts.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        publisher: receives what a LocalPacer publishes.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        memory: HostMemory,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
    ) -> None:
        super().__init__(options, clock=clock, jitter=jitter, publisher=publisher, recall=self._start_recall)
        self._memory = memory
        self._name = token_hex(8)
        self._run = run_of(clock)
        self._recalls: dict[Slot, _Recall] = {}
        self._recalled = LastAsked(self._busy.kept_s)  # when hosts were recalled that were not asked since

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before the Unix time ``until_wall``; requests that wait included."""
        super().close_host(host, until_wall, bound_by)
        self._note_host(host)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open. Waits until it is recalled."""
        if not self._closed and host not in self._slots:
            self._arm(self._busy.slot(host, self._monotonic()))
        slot = self._slots.get(host)
        recall = None if slot is None else self._recalls.get(slot)
        if recall is not None:
            await asyncio.shield(recall.ended)
            if self._closed:
                raise ClosedError(f"the pacer was closed while it was recalled what {host} had asked for")
        return await super().closed_until(host)

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit; see ``politesse.ports.Pacer``."""
        super().count_fetch(host, origin, status, headers, elapsed_s)
        self._note_host(host)

    def hosts(self) -> dict[str, HostPace]:
        """Return what is known here of each busy host."""
        hosts = super().hosts()
        for slot in self._recalls:
            hosts[slot.host] = replace(hosts[slot.host], in_flight=0)
        return hosts

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits, and call the callbacks of ``when_ready``."""
        await super().aclose()
        for recall in self._recalls.values():
            if recall.task is not None:
                recall.task.cancel()
            if not recall.ended.done():
                recall.ended.set_result(None)

    @property
    def in_flight(self) -> int:
        """How many permits have not ended."""
        return super().in_flight - _ALL_PLACES * len(self._recalls)

    def answered(self, permit: LocalPermit, slot: Slot, status: int | None, headers: Mapping[str, str]) -> None:
        """Record an answer; the first call measures how long it took."""
        super().answered(permit, slot, status, headers)
        if slot.bearing is not None and slot.bearing.closed_until_wall > self._wall():
            self._note(slot)  # else the end of the request is soon enough

    def ended(self, permit: LocalPermit, slot: Slot) -> None:
        """End a request."""
        super().ended(permit, slot)
        self._note(slot)

    def given_back(self, permit: LocalPermit, slot: Slot) -> None:
        """Take back a permit with which no request was made."""
        super().given_back(permit, slot)
        self._note(slot)

    def _stamp(self, slot: Slot, agent: AgentPace, url: str, now_mono: float) -> LocalPermit:
        permit = super()._stamp(slot, agent, url, now_mono)
        self._note(slot)
        return permit

    def _not_yet(self, slot: Slot, agent: AgentPace) -> NotYet:
        if slot in self._recalls:
            return NotYet(self._wall() + _MOMENT_S, Bound.STORE)
        return super()._not_yet(slot, agent)

    def _join(
        self, slot: Slot, agent: AgentPace, url: str, max_wait_s: float | None, now_mono: float, *, first: bool
    ) -> tuple[Waiter, Timer | None]:
        waiter, alarm = super()._join(slot, agent, url, max_wait_s, now_mono, first=first)
        recall = self._recalls.get(slot)
        if recall is not None and max_wait_s is not None:
            recall.deadlines[waiter] = waiter.joined_mono + max_wait_s, max_wait_s
        return waiter, alarm

    def _start_recall(self, slot: Slot) -> None:
        """Let nothing start at a host before what is remembered of it is known."""
        now_mono = self._monotonic()
        recalled_mono = self._recalled.take(slot.host, now_mono)
        if recalled_mono != NEVER:
            self._recalled.keep(slot.host, recalled_mono, now_mono)
        if self._closed or recalled_mono != NEVER:
            return  # closed: it is the answer of a fetch that was under way
        loop = asyncio.get_running_loop()
        recall = self._recalls[slot] = _Recall(loop)
        slot.in_flight += _ALL_PLACES
        recall.task = loop.create_task(self._recall(slot, recall), name=f"what {slot.host} has asked for")
        # A task that somebody cancels before its first step runs no code of its own.
        recall.task.add_done_callback(lambda _: self._end_recall(slot, recall, None, None))

    async def _recall(self, slot: Slot, recall: _Recall) -> None:
        """Recall a host."""
        state, passed_s = None, None
        try:
            state = await self._memory.recall(slot.host)
            passed_s = 0.0 if state is None else state.passed_s(self._run, self._wall(), self._monotonic())
        except StoreError:
            pass  # the memory has published it, and ``passed_s`` is None
        finally:
            self._end_recall(slot, recall, state, passed_s)  # whatever happened, the host must not wait for ever

    def _end_recall(self, slot: Slot, recall: _Recall, state: HostState | None, passed_s: float | None) -> None:
        """Apply what is remembered of a host, once. If that is unknown, it counts as asked just now."""
        if self._recalls.get(slot) is not recall:
            return
        del self._recalls[slot]
        slot.in_flight -= _ALL_PLACES
        slot.ready_for = None
        if not self._closed:
            self._apply(slot, state, passed_s)
            if not recall.ended.done():
                recall.ended.set_result(None)  # before any callback, which may raise
            self._refuse_waiters(slot, recall)
            self._look_at(slot, self._monotonic())  # at once: a timer would cost each host a millisecond
            self._call_late_watchers(slot)

    def _apply(self, slot: Slot, state: HostState | None, passed_s: float | None) -> None:
        """Add a state to what is known of a host; None for ``passed_s`` if it could not be read."""
        now_mono, now_wall = self._monotonic(), self._wall()
        self._recalled.keep(slot.host, now_mono, now_mono)
        if passed_s is None:
            slot.last_mono = now_mono
            return
        if state is None:
            return
        asked_ago_s = state.asked_ago_s(passed_s, slot.options.max_turn_s)
        if asked_ago_s is not None:
            slot.last_mono = max(slot.last_mono, now_mono - asked_ago_s)
        answers = state.answers_after(passed_s)
        if answers is not None:
            slot.heard(now_mono, now_wall).recall(answers, now_wall, slot.options)
            self._reports.closed(slot, now_mono, now_wall)
        if state.is_ahead(self._run, now_wall):
            self._note(slot)  # otherwise a further restart would begin its whole length again

    def _call_late_watchers(self, slot: Slot) -> None:
        """Call the watchers whose time has not come: how late it is is known only now, and they may not wait for it."""
        now_mono = self._monotonic()
        late = [watcher for watcher in slot.watchers if not self._is_ready(slot, watcher.agent, now_mono)]
        if late:
            slot.watchers = [watcher for watcher in slot.watchers if watcher not in late]
            for watcher in late:
                watcher.callback()

    def _refuse_waiters(self, slot: Slot, recall: _Recall) -> None:
        """Raise TooFar in the waiters of which it is known now that their time comes too late."""
        line = set(slot.line())
        for waiter, (until_mono, max_wait_s) in recall.deadlines.items():
            if waiter in line and self._ready_mono(slot, waiter.agent) > until_mono:
                waiter.fail(TooFar(slot.host, self._not_yet(slot, waiter.agent), max_wait_s))

    def _note_host(self, host: str) -> None:
        slot = self._slots.get(host)
        if slot is not None:
            self._note(slot)

    def _note(self, slot: Slot) -> None:
        self._memory.note(slot.host, partial(self._state, slot))

    def _state(self, slot: Slot) -> HostState:
        """Return what is known of a host now."""
        now_mono, now_wall = self._monotonic(), self._wall()
        answers, answers_s = None, 0.0
        if slot.bearing is not None:
            answers = slot.heard(now_mono, now_wall).answers(now_wall)
            answers_s = max(0.0, slot.busy_until(self._busy.kept_s, now_mono, now_wall) - now_mono)
        is_under_way = slot.options.max_concurrent == 1 and slot.in_flight > 0 and slot not in self._recalls
        return HostState(
            self._name,
            self._run,
            now_wall,
            now_mono,
            asked_s=None if slot.last_mono == NEVER else now_mono - slot.last_mono,
            under_way=is_under_way,
            answers=answers,
            answers_s=answers_s,
        )
