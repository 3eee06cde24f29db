"""The order in which the scheduler's queue hands out requests, without a check of all its slots."""

from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.squeues import LifoMemoryQueue
from scrapy.statscollectors import MemoryStatsCollector

from politesse import Origin
from politesse.integrations.scrapy import PoliteDownloader, PolitePriorityQueue

A, B, B_TLS, C = "http://a.example", "http://b.example:8000", "https://b.example", "http://c.example"


class Downloader(PoliteDownloader):
    """Knows the hosts that are busy, and the slots that were checked."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.busy: set[str] = set()
        self.checked: list[str] = []

    def is_ready(self, slot: str, *, is_last: bool) -> bool:
        self.checked.append(slot)
        return Origin.of(slot).host not in self.busy


class Queue:
    def __init__(self) -> None:
        crawler: Any = Crawler(Spider, {"USER_AGENT": "ExampleBot/1.0 (+https://example.com/bot)"})
        crawler.stats = MemoryStatsCollector(crawler)
        self.downloader = Downloader(crawler)
        crawler.engine = SimpleNamespace(downloader=self.downloader)
        self.queue = PolitePriorityQueue(crawler, LifoMemoryQueue, "")

    def push(self, *origins: str, times: int = 1) -> None:
        for number in range(times):
            for origin in origins:
                self.queue.push(Request(f"{origin}/{number}"))

    def hand_out(self) -> str | None:
        request = self.queue.pop()
        if request is None:
            return None
        origin = Origin.of(request.url)
        self.downloader.busy.add(origin.host)
        return str(origin)

    def end(self, site: str) -> None:
        self.downloader.busy.discard(Origin.of(site).host)
        self.queue.ready.wake(site)


@pytest.fixture
async def queue() -> Queue:
    return Queue()


async def test_slots_are_handed_out_in_turn(queue: Queue) -> None:
    queue.push(A, C, times=3)
    handed_out = []
    for _ in range(3):
        handed_out += [queue.hand_out(), queue.hand_out(), queue.hand_out()]
        queue.end(A)
        queue.end(C)
    assert handed_out == [A, C, None] * 3


async def test_a_slot_that_is_not_ready_is_not_checked_again_before_something_ends_at_its_host(queue: Queue) -> None:
    queue.downloader.busy.add("a.example")
    queue.push(A, times=2)
    assert [queue.hand_out() for _ in range(5)] == [None] * 5
    queue.push(A)  # as it sleeps, it stays asleep
    assert queue.hand_out() is None
    assert queue.downloader.checked == [A]
    queue.end(A)
    assert queue.hand_out() == A


async def test_an_origin_wakes_the_other_origins_of_its_host(queue: Queue) -> None:
    queue.push(B, B_TLS)
    assert [queue.hand_out(), queue.hand_out()] == [B, None]
    queue.end(B)
    assert queue.hand_out() == B_TLS


async def test_a_slot_that_is_empty_is_forgotten_until_a_request_is_pushed(queue: Queue) -> None:
    queue.push(A, C)
    assert [queue.hand_out(), queue.hand_out()] == [A, C]
    queue.end(A)
    queue.end(C)
    assert queue.hand_out() is None
    queue.push(A)
    assert queue.hand_out() == A
