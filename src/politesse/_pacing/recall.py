"""Recalls hosts from the memory of an earlier process, and notes changes in that memory.

Theory of operation. A host that is new to this process is recalled before any request starts there. During the recall
the host is in the phase RECALLING: requests wait in line, and ``try_start`` answers NotYet.

    new host -> RECALLING -> recalled:        its state is added to the host
                          -> failed, or late: the host counts as requested just now

At the end of a recall, the callbacks of the host are called even if no request may start there yet. The owner of a
callback may then give up a host that is closed for a long time. Each change of a host is noted in the memory. A note
costs little, because the memory reads the state later, once for several notes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from politesse._pacing.host import NEVER, PacedHost
from politesse._pacing.host_state import HostMemory, HostState
from politesse._pacing.hosts import LastRequestTimes
from politesse.clock import Clock, run_of
from politesse.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class Recalls:
    """The hosts that are being recalled.

    Args:
        memory: keeps the states of hosts.
        clock: the clocks.
        kept_s: how long a host counts as recalled, in seconds.
        recalled: called with each host whose recall has ended.
    """

    def __init__(self, memory: HostMemory, clock: Clock, kept_s: float, recalled: Callable[[PacedHost], None]) -> None:
        self._memory = memory
        self._clock = clock
        self._kept_s = kept_s
        self._recalled = recalled
        self._name = token_hex(8)
        self._run = run_of(clock)
        self._under_way: dict[PacedHost, asyncio.Task[None]] = {}
        self._since_mono = clock.monotonic()
        self._known = LastRequestTimes(kept_s)  # the hosts that were recalled and not requested since
        self._closed = False

    def begin(self, host: PacedHost) -> None:
        """Begin to recall a host, unless it is known; no request starts there before the end of the recall."""
        now_mono = self._clock.monotonic()
        known_mono = self._known.take(host.host, now_mono)
        if known_mono != NEVER:
            self._known.keep(host.host, known_mono, now_mono)
        if self._closed or known_mono != NEVER or host.last_mono > self._since_mono:
            return  # after the close, only the end of an earlier fetch can still make a host active
        loop = asyncio.get_running_loop()
        host.recalling = True
        self._under_way[host] = task = loop.create_task(self._recall(host), name=f"recall of {host.host}")
        # A task that is cancelled before its first step runs no code, not even ``finally``. So the callback calls
        # ``_end``.
        task.add_done_callback(lambda _: self._end(host, None, None))

    async def ended(self, host: PacedHost) -> None:
        """Wait until a host is recalled."""
        if (recall := self._under_way.get(host)) is not None:
            await asyncio.wait((recall,))  # a cancelled waiter does not cancel the recall

    def note(self, host: PacedHost) -> None:
        """Tell the memory that the state of a host has changed. The memory reads the state later."""
        host.noted = host.changes
        self._memory.note(host.host, partial(self._state, host))

    def close(self) -> None:
        """End all recalls."""
        self._closed = True
        for task in self._under_way.values():
            task.cancel()

    async def _recall(self, host: PacedHost) -> None:
        state, passed_s = None, None
        try:
            state = await self._memory.recall(host.host)
            clock = self._clock
            passed_s = 0.0 if state is None else state.passed_s(self._run, clock.wall(), clock.monotonic())
        except StoreError:
            pass  # the memory has published the error, and ``passed_s`` is None
        finally:
            self._end(host, state, passed_s)  # this also runs after an error: the host must not wait for ever

    def _end(self, host: PacedHost, state: HostState | None, passed_s: float | None) -> None:
        """Apply the state of a host, once. If the state could not be read, the host counts as requested now."""
        if self._under_way.pop(host, None) is None:
            return
        host.recalling = False
        if self._closed:
            return
        self._apply(host, state, passed_s)
        self._recalled(host)

    def _apply(self, host: PacedHost, state: HostState | None, passed_s: float | None) -> None:
        """Add a state to a host. ``passed_s`` is None if the state could not be read."""
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        self._known.keep(host.host, now_mono, now_mono)
        host.changes += 1
        if passed_s is None:
            host.last_mono = now_mono
        if state is None or passed_s is None:
            return
        asked_ago_s = state.asked_ago_s(passed_s, host.options.max_turn_s)
        if asked_ago_s is not None:
            host.last_mono = max(host.last_mono, now_mono - asked_ago_s)
        record = state.answers_after(passed_s)
        if record is not None:
            host.backoff.recall(record, now_mono, host.options)
        if state.is_ahead(self._run, now_wall):
            self.note(host)  # otherwise the next restart would close the host for the full time again

    def _state(self, host: PacedHost) -> HostState:
        """Return the state of a host now."""
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        return HostState(
            self._name,
            self._run,
            now_wall,
            now_mono,
            asked_s=None if host.last_mono == NEVER else now_mono - host.last_mono,
            under_way=host.options.max_concurrent == 1 and bool(host.under_way),
            answers=host.backoff.record(now_mono) if host.backoff.is_known else None,
            answers_s=max(0.0, host.busy_until(self._kept_s, now_mono, now_wall) - now_mono),
        )
