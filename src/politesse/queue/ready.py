"""Which hosts a worker may try: those that are ready, and those that the pacer reports ready in their time.

Where the pacer asks a server, their starts are reserved first; see ahead.py.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from politesse.queue.ahead import StartsAhead

if TYPE_CHECKING:
    from politesse._gate.agent import Agent
    from politesse.queue.hosts import HostQueue, OriginQueue
    from politesse.queue.waiting import WaitingTasks

Item = TypeVar("Item")


class ReadyHosts(Generic[Item]):
    """A FIFO of the hosts that are ready; its length is their number.

    Args:
        agent: knows the pacer.
        workers: one of these tasks is woken for each host that enters.
    """

    def __init__(self, agent: Agent, workers: WaitingTasks) -> None:
        self._agent = agent
        self._workers = workers
        self._hosts: deque[HostQueue[Item]] = deque()
        self._ahead: StartsAhead[Item] = StartsAhead(agent, workers, self._hosts, self.look)

    def __len__(self) -> int:
        return len(self._hosts)

    def pop(self) -> HostQueue[Item]:
        """Return the first host, which is not ready any more."""
        host = self._hosts.popleft()
        host.ready = False
        return host

    def schedule(self, host: HostQueue[Item]) -> None:
        """Enter the host as ready unless the pacer will; where its start has to be reserved, after that."""
        if not host.watched:
            self._enter(host)

    def look(self, host: HostQueue[Item], *, first: bool = False) -> None:
        """Enter the host as ready unless it is, or has no head; ``first`` if this worker goes on with it."""
        if host.ready or not host.has_head():
            return
        host.ready = True
        if first:
            self._hosts.appendleft(host)
        else:
            self._hosts.append(host)
            self._workers.wake()

    def wait_for_pacer(self, origin_queue: OriginQueue[Item]) -> None:
        """Have the pacer enter the host as ready when its time has come."""
        host = origin_queue.host
        if not host.watched:
            host.watched = True
            watch = self._agent.when_near if self._ahead.is_needed else self._agent.when_ready
            watch(origin_queue.origin, partial(self._pacer_ready, host))

    def reserve_ahead(self) -> None:
        """Reserve the starts of the hosts that come next: the current task is about to wait."""
        self._ahead.reserve(more=1)

    def note_turn(self) -> None:
        """Count a turn that was taken."""
        if self._ahead.is_needed:
            self._ahead.note_turn()

    @property
    def near(self) -> int:
        """How many hosts wait until a start is reserved for them."""
        return len(self._ahead)

    def _pacer_ready(self, host: HostQueue[Item]) -> None:
        host.watched = False
        self._enter(host)

    def _enter(self, host: HostQueue[Item]) -> None:
        if self._ahead.is_needed:
            self._ahead.add(host)
        else:
            self.look(host)
