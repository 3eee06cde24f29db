"""Recalls hosts from the memory of an earlier process, and notes changes in that memory.

Theory of operation. A host that is new to this process is recalled before any request starts there. During the recall
the host is in the phase RECALLING: requests wait in line, and ``try_start`` answers NotYet.

    new host -> RECALLING -> recalled:        its state is added to the host
                          -> failed, or late: the host counts as requested just now

At the end of a recall, the callbacks of the host are called even if no request may start there yet. The owner of a
callback may then give up a host that is closed for a long time. Each change of a host is noted in the memory. A note
costs little, because the memory reads the state later, once for several notes. Addresses and domains with a limit are
recalled and noted in the same way.
"""

from __future__ import annotations

import asyncio
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from politesse._pacing.host_state import HostMemory, HostState
from politesse._pacing.marks import NEVER, LastRequestTimes
from politesse.clock import Clock, run_of
from politesse.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class Recalled(Protocol):
    """A host or a scope, as an earlier process left it.

    Attributes:
        recalling: whether its state is being read.
    """

    name: str
    recalling: bool

    @property
    def last_mono(self) -> float:
        """When it was last requested; minus infinity for never."""

    def adopt(self, state: HostState | None, passed_s: float | None, now_mono: float) -> None:
        """Add a state of an earlier process, None for no state; ``passed_s`` is its age, None if it is unreadable."""

    def state(self, of: HostState) -> HostState:
        """Return ``of``, which has the process and the time, with the present state filled in."""


class Recalls:
    """The hosts that are being recalled.

    Args:
        memory: keeps the states of hosts.
        clock: the clocks.
        kept_s: how long a host counts as recalled, in seconds.
        recalled: called with each host whose recall has ended.

    Attributes:
        is_closed: whether no host is recalled any more.
    """

    def __init__(
        self, memory: Callable[[], HostMemory | None], clock: Clock, kept_s: float, recalled: Callable[[Recalled], None]
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._recalled = recalled
        self._name = token_hex(8)
        self._run = run_of(clock)
        self._under_way: dict[Recalled, asyncio.Task[None]] = {}
        self._since_mono = clock.monotonic()
        self._known = LastRequestTimes(kept_s)  # the hosts that were recalled and not requested since
        self.is_closed: bool = False

    def begin(self, host: Recalled) -> None:
        """Begin to recall a host, unless it is known; no request starts there before the end of the recall."""
        now_mono = self._clock.monotonic()
        known_mono = self._known.take(host.name, now_mono)
        if known_mono != NEVER:
            self._known.keep(host.name, known_mono, now_mono)
        if self.is_closed or known_mono != NEVER or host.last_mono > self._since_mono:
            return  # after the close, only the end of an earlier fetch can still make a host active
        loop = asyncio.get_running_loop()
        host.recalling = True
        self._under_way[host] = task = loop.create_task(self._recall(host), name=f"recall of {host.name}")
        # A task that is cancelled before its first step runs no code, not even ``finally``. So the callback calls
        # ``_end``.
        task.add_done_callback(lambda _: self._end(host, None, None))

    async def ended(self, host: Recalled) -> None:
        """Wait until a host is recalled."""
        if (recall := self._under_way.get(host)) is not None:
            await asyncio.wait((recall,))  # a cancelled waiter does not cancel the recall

    def note(self, host: Recalled) -> None:
        """Tell the memory that the state of a host has changed. The memory reads the state later."""
        if (memory := self._memory()) is not None:
            memory.note(host.name, partial(self._state, host))

    def close(self) -> None:
        """End all recalls."""
        self.is_closed = True
        for task in self._under_way.values():
            task.cancel()

    async def _recall(self, host: Recalled) -> None:
        state, passed_s = None, None
        try:
            memory = self._memory()
            state = None if memory is None else await memory.recall(host.name)
            clock = self._clock
            passed_s = 0.0 if state is None else state.passed_s(self._run, clock.wall(), clock.monotonic())
        except StoreError:
            pass  # the memory has published the error, and ``passed_s`` is None
        finally:
            self._end(host, state, passed_s)  # this also runs after an error: the host must not wait for ever

    def _end(self, host: Recalled, state: HostState | None, passed_s: float | None) -> None:
        """Add the state to a host, once. If the state could not be read, the host counts as requested now."""
        if self._under_way.pop(host, None) is None:
            return
        host.recalling = False
        if self.is_closed:
            return
        now_mono = self._clock.monotonic()
        self._known.keep(host.name, now_mono, now_mono)
        host.adopt(state, passed_s, now_mono)
        if state is not None and state.is_ahead(self._run, self._clock.wall()):
            self.note(host)  # otherwise the next restart would close the host for the full time again
        self._recalled(host)

    def _state(self, host: Recalled) -> HostState:
        """Return the state of a host now."""
        return host.state(HostState(self._name, self._run, self._clock.wall(), self._clock.monotonic()))
