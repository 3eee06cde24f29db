"""The order in which the scheduler's queue hands out slots, without a look at all of them."""

from __future__ import annotations

from politesse.integrations.scrapy.ready_slots import ReadySlots, host_of

A, B, B_TLS, C = "http://a.example", "http://b.example:8000", "https://b.example", "http://c.example"
SLOTS = (A, B, B_TLS, C)


class Queue:
    """Slots, those that are not ready, and those that were asked."""

    def __init__(self, *slots: str) -> None:
        self.busy: set[str] = set()
        self.asked: list[str] = []
        self.ready = ReadySlots(self._is_ready)
        for slot in slots:
            self.ready.add(slot)

    def _is_ready(self, slot: str) -> bool:
        self.asked.append(slot)
        return host_of(slot) not in self.busy

    def hand_out(self) -> str | None:
        slot = self.ready.first(SLOTS)
        if slot is not None:
            self.busy.add(host_of(slot))
        return slot

    def end(self, site: str) -> None:
        self.busy.discard(host_of(site))
        self.ready.wake(site)


def test_slots_are_handed_out_in_turn() -> None:
    queue = Queue(A, C)
    handed_out = []
    for _ in range(3):
        handed_out += [queue.hand_out(), queue.hand_out(), queue.hand_out()]
        queue.end("a.example")
        queue.end("c.example")
    assert handed_out == [A, C, None] * 3


def test_a_slot_that_is_not_ready_is_not_asked_again_before_something_ends_at_its_host() -> None:
    queue = Queue(A)
    queue.busy.add("a.example")
    assert [queue.hand_out() for _ in range(5)] == [None] * 5
    assert queue.asked == [A]
    queue.end("a.example")
    assert queue.hand_out() == A


def test_an_origin_wakes_the_other_origins_of_its_host() -> None:
    queue = Queue(B, B_TLS)
    assert [queue.hand_out(), queue.hand_out()] == [B, None]
    queue.end(B)
    assert queue.hand_out() in {B, B_TLS}


def test_a_slot_that_is_added_while_it_is_asleep_stays_asleep() -> None:
    queue = Queue(A)
    queue.busy.add("a.example")
    queue.hand_out()
    queue.ready.add(A)
    assert queue.hand_out() is None
    assert queue.asked == [A]


def test_a_slot_that_no_longer_exists_is_forgotten_until_it_is_added_again() -> None:
    queue = Queue(A, C)
    assert queue.ready.first([C]) == C
    assert queue.hand_out() == C
    queue.end(C)
    assert queue.hand_out() == C
    queue.ready.add(A)
    assert queue.hand_out() == A


def test_the_name_of_a_download_slot_needs_no_host() -> None:
    assert host_of("robots.txt: http://a.example/robots.txt") == "robots.txt: http://a.example/robots.txt"
