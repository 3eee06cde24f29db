from __future__ import annotations

from politesse.origin import Origin
from politesse.queue.hosts import HostQueue, OriginQueue, QueuedUrl
from tests.unit.queue.crawl import A


def put(host: HostQueue[int], priority: int, number: int, url: str = A) -> OriginQueue[int]:
    """Queue a URL with its number as the item, and let it compete."""
    origin_queue = host.origin_queue(Origin.of(url))
    host.add(QueuedUrl(priority, number, url, number, origin_queue))
    host.push_head(origin_queue)
    return origin_queue


def filled(*priorities: int) -> tuple[HostQueue[int], OriginQueue[int]]:
    """Return a host with one origin, with URLs of these priorities, numbered from 0."""
    host: HostQueue[int] = HostQueue("a.example")
    origin_queues = [put(host, priority, number) for number, priority in enumerate(priorities)]
    return host, origin_queues[0]


def test_urls_of_lower_priority_go_first_and_then_those_that_were_put_first() -> None:
    host, _ = filled(1, 0, 1, 0)
    numbers = []
    while host.has_head():
        numbers.append(host.head().item)
        host.withdraw(host.head())
    assert numbers == [1, 3, 0, 2]


def test_url_put_in_front_before_the_head_is_removed_is_next() -> None:
    host, _ = filled(*range(10))
    head = host.head()
    assert head.item == 0
    put(host, -1, 10)
    host.withdraw(head)
    order = []
    while host.has_head():
        order.append(host.head().item)
        host.withdraw(host.head())
    assert order == [10, *range(1, 10)]
    assert host.origins == {}


def test_blocked_origin_has_no_head_and_gets_it_once_when_it_is_unblocked() -> None:
    host, origin_queue = filled(0, 1)
    origin_queue.blocked = True
    assert not host.has_head()
    host.push_head(origin_queue)
    assert host.heads == []
    origin_queue.blocked = False
    host.push_head(origin_queue)
    host.push_head(origin_queue)
    assert len(host.heads) == 1
    assert host.head().item == 0


def test_of_two_origins_the_url_of_lower_priority_is_next() -> None:
    host, _ = filled(1)
    other = put(host, 0, 1, "http://a.example")
    assert host.head().item == 1
    other.blocked = True
    assert host.head().item == 0
