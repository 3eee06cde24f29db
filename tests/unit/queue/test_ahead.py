"""How many starts a queue reserves ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

from politesse.errors import ClosedError
from politesse.queue.ahead import StartsAhead
from politesse.queue.hosts import HostQueue, QueuedUrl
from politesse.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Room:
    """Hosts whose starts are reserved by a pacer that answers when it is told to."""

    def __init__(self, workers: int) -> None:
        self.clock = ManualClock()
        self.workers: list[None] = [None] * workers
        self.ready: list[HostQueue[None]] = []
        self.reserving: list[Callable[[], None]] = []
        self.agent = MagicMock(clock=self.clock)
        self.agent.judged.return_value = MagicMock(allowed=True)
        self.agent.when_ready.side_effect = lambda _, callback: self.reserving.append(callback)
        self.ahead: StartsAhead[None] = StartsAhead(self.agent, self.workers, self.ready, self.ready.append)

    def add(self, hosts: int) -> None:
        for number in range(hosts):
            host: HostQueue[None] = HostQueue(f"host{number}.example")
            origin_queue = host.origin_queue(MagicMock())
            host.add(QueuedUrl(0.0, number, f"https://{host.key}/", None, origin_queue))
            host.push_head(origin_queue)
            self.ahead.add(host)


def test_there_is_room_for_each_worker_that_waits() -> None:
    room = Room(workers=3)
    room.add(10)
    assert (len(room.reserving), len(room.ahead)) == (3, 7)
    room.ahead.reserve(more=1)
    assert (len(room.reserving), len(room.ahead)) == (4, 6)


def test_a_start_that_is_granted_takes_its_room_until_a_worker_takes_it() -> None:
    room = Room(workers=2)
    room.add(5)
    room.reserving.pop()()
    room.ahead.reserve()
    assert (len(room.ready), len(room.reserving)) == (1, 1)
    room.ready.clear()
    room.ahead.reserve()
    assert len(room.reserving) == 2


def test_nothing_is_reserved_while_no_worker_waits_or_comes_soon() -> None:
    room = Room(workers=0)
    room.add(5)
    for _ in range(20):
        room.clock.advance(1.0)
        room.ahead.note_turn()
    assert not room.reserving


def test_there_is_room_for_workers_that_come_while_a_start_is_reserved() -> None:
    room = Room(workers=0)
    for _ in range(500):
        room.clock.advance(0.005)  # 200 turns a second, and a reservation takes 0.05 s
        room.ahead.note_turn()
    room.add(50)
    assert 8 <= len(room.reserving) <= 11


def test_a_start_that_waits_for_another_process_takes_no_room() -> None:
    room = Room(workers=2)
    room.add(6)
    room.clock.advance(1.0)
    room.ahead.reserve()
    assert len(room.reserving) == 4


def test_a_host_that_needs_no_start_is_ready_at_once() -> None:
    room = Room(workers=1)
    room.agent.judged.return_value = None
    room.add(1)
    assert len(room.ready) == 1
    assert not room.reserving


@pytest.mark.parametrize("method", ["judged", "when_ready"])
def test_what_the_gate_raises_is_left_to_the_worker_that_tries(method: str) -> None:
    room = Room(workers=1)
    getattr(room.agent, method).side_effect = ClosedError("closed")
    room.add(1)
    (host,) = room.ready
    assert not host.watched
