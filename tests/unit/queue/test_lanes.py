from __future__ import annotations

import asyncio

from politesse.origin import Origin
from politesse.queue.lanes import Entry, Host, Lane, Line
from tests.unit.queue.crawl import A, settle


def filled(*priorities: int) -> tuple[Host[int], Lane[int], list[Entry[int]]]:
    """Return a host with one lane, with entries of these priorities."""
    host: Host[int] = Host("a.example")
    lane = Lane(host, Origin.of(A))
    host.lanes[lane.origin] = lane
    entries = []
    for number, priority in enumerate(priorities):
        entry = Entry(priority, number, A, number, lane)
        entries.append(entry)
        put(lane, entry)
    return host, lane, entries


def put(lane: Lane[int], entry: Entry[int]) -> None:
    lane.entries.append(entry)
    lane.entries.sort()
    lane.host.size += 1
    lane.host.offer(lane)


async def start(line: Line, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(line.wait()) for _ in range(count)]
    await settle()
    return tasks


async def test_who_came_first_is_woken_first() -> None:
    line = Line()
    first, second = await start(line, 2)
    assert len(line) == 2
    line.wake()
    await settle()
    assert (first.done(), second.done(), len(line)) == (True, False, 1)
    line.wake_all()
    await settle()
    assert second.done()
    line.wake()  # nobody is there


async def test_one_cancelled_before_it_is_woken_costs_no_wake_up() -> None:
    line = Line()
    first, second, third = await start(line, 3)
    first.cancel()  # it stands in line until it runs
    line.wake()
    await settle()
    assert first.cancelled()
    assert (second.done(), third.done()) == (True, False)
    third.cancel()
    await settle()
    assert len(line) == 0


async def test_one_cancelled_after_it_was_woken_passes_it_on_to_one() -> None:
    line = Line()
    first, second, third = await start(line, 3)
    line.wake()
    first.cancel()
    await settle()
    assert first.cancelled()
    assert (second.done(), third.done()) == (True, False)
    line.wake_all()
    await third


async def test_one_cancelled_while_it_waits_wakes_nobody() -> None:
    line = Line()
    first, second = await start(line, 2)
    first.cancel()
    await settle()
    assert (second.done(), len(line)) == (False, 1)
    line.wake_all()
    await second


def test_a_better_entry_put_before_the_head_is_removed_is_next() -> None:
    host, lane, entries = filled(*range(10))
    assert host.head() is entries[0]
    better = Entry(-1, 10, A, 10, lane)
    put(lane, better)
    host.remove(entries[0])
    order = []
    while host.has_head():
        order.append(host.head())
        host.remove(order[-1])
    assert order == [better, *entries[1:]]
    assert (host.size, host.lanes) == (0, {})


def test_a_parked_lane_offers_nothing_and_offers_again_once() -> None:
    host, lane, entries = filled(0, 1)
    lane.parked = True
    assert not host.has_head()
    host.offer(lane)
    assert host.heads == []
    lane.parked = False
    host.offer(lane)
    host.offer(lane)
    assert len(host.heads) == 1
    assert host.head() is entries[0]


def test_of_two_lanes_the_better_entry_is_next() -> None:
    host, _, [late] = filled(1)
    other = Lane(host, Origin.of("http://a.example"))
    host.lanes[other.origin] = other
    early = Entry(0, 1, A, 1, other)
    put(other, early)
    assert host.head() is early
    other.parked = True
    assert host.head() is late
