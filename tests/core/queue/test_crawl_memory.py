"""What a crawl keeps does not grow with the URLs that it has done, but for ``seen``."""

import gc
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from politesse import Gatekeeper, PacingOptions
from politesse.queue import CrawlPage
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, Queue
from tests.core.queue.simulated import Reply, SimulatedWeb, follow_links, moved

_HOSTS = 50
_MAX_GROWTH = 200_000  # octets, between a tenth and the end of the crawl: two for each URL of the long form


class ForgetsTheOldest:
    """A ``seen`` that remembers the last thousand URLs."""

    def __init__(self) -> None:
        self.urls: dict[str, None] = {}

    def __contains__(self, url: object) -> bool:
        return url in self.urls

    def add(self, url: str) -> None:
        self.urls[url] = None
        if len(self.urls) > 1000:
            del self.urls[next(iter(self.urls))]


@pytest.fixture
async def unpaced() -> AsyncIterator[Gatekeeper]:
    options = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=options) as gate:
        yield gate


async def crawl_long(gate: Gatekeeper, urls: int) -> int:
    """Crawl ``urls`` URLs, each of which leads to the next one of its host; return by how many octets it has grown."""
    web, queue = SimulatedWeb(), Queue(gate)
    sizes: list[int] = []
    done = 0

    def reply(url: str) -> Reply:
        web.requests.clear()
        place = int(url.rpartition("/")[2])
        if place % 7 == 5:
            raise OSError(url)
        links = [f"/{place + 1}", f"/{place + 1}#part", url, "mailto:us"]
        return moved(links[0]) if place % 7 == 3 else Reply(links=links)

    def on_progress(_: object) -> None:
        nonlocal done
        done += 1
        if done in {urls // 10, urls}:
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
            if done == urls:
                queue.close()

    def on_error(page: CrawlPage[object], _: BaseException) -> None:
        page.put(f"/{int(page.url.rpartition('/')[2]) + 1}")

    web.replies = reply
    for host in range(_HOSTS):
        await queue.put(f"https://h{host}.example/0")
    tracemalloc.start()
    try:
        await queue.crawl(web, follow_links, seen=ForgetsTheOldest(), on_progress=on_progress, on_error=on_error)
    finally:
        tracemalloc.stop()
    assert done >= urls
    return sizes[1] - sizes[0]


@pytest.mark.full
async def test_memory_stays_flat_over_5_000_urls(unpaced: Gatekeeper) -> None:
    assert await crawl_long(unpaced, 5_000) < _MAX_GROWTH


@pytest.mark.weekly
@pytest.mark.timeout(600)
async def test_memory_stays_flat_over_100_000_urls(unpaced: Gatekeeper) -> None:
    assert await crawl_long(unpaced, 100_000) < _MAX_GROWTH
