"""What each URL costs: tries, loads and memory do not grow with the number of hosts and URLs; no turn is early."""

import asyncio
import gc
import logging
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.queue import CrawlPage, PoliteQueue, QueueClosed
from politesse.stores import MemoryStore
from politesse.testing import ScriptedFetcher
from tests.core.queue.crawl import UA, A, Queue, drained, made, next_url, put
from tests.core.queue.simulated import Reply, SimulatedWeb, follow_links, moved
from tests.support.tiers import first_of


@pytest.mark.realtime
async def test_on_the_real_clock_no_turn_is_early_and_none_overlap(fetcher: ScriptedFetcher) -> None:
    pacing = PacingOptions(min_delay_s=0.05, adaptive_factor=0)
    ended: dict[str, float] = {}
    gaps: list[float] = []
    async with Gatekeeper(UA, fetcher=fetcher, pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for place in range(60):
            await queue.put(f"https://h{place % 20}.example/{place}", item=f"h{place % 20}")
        queue.close()

        async def work() -> None:
            while True:
                async with queue.turn() as turn:
                    host = str(turn.item)
                    if host in ended:
                        gaps.append(time.monotonic() - ended.pop(host))
                    await asyncio.sleep(0.002)
                    ended[host] = time.monotonic()  # popped by the next: two at once would find it missing

        results = await asyncio.gather(*(work() for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {QueueClosed}
    assert len(gaps) == 40
    assert min(gaps) >= 0.05


class Tries(logging.Handler):
    """Counts how often a worker asks for the turn of a host."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().endswith("a worker asks for its turn")


@pytest.fixture
def tries(caplog: pytest.LogCaptureFixture) -> Iterator[Tries]:
    caplog.set_level(logging.DEBUG, "politesse.queue")
    handler, logger = Tries(), logging.getLogger("politesse.queue")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    "hosts", [200, pytest.param(1_000, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.weekly)]
)
async def test_tries_for_each_url_do_not_grow_with_the_number_of_hosts(queue: Queue, tries: Tries, hosts: int) -> None:
    await put(queue, *(f"https://h{place}.example/{number}" for number in range(2) for place in range(hosts)))
    assert len(queue.fetcher.requests) <= 100
    log = await drained(queue, workers=100, took_s=0.5)
    assert len(set(log.urls)) == hosts * 2
    assert tries.count < 1.5 * hosts * 2
    assert len(queue.fetcher.requests) == hosts
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for url, moment in log.handed:
        moments[url.split("/")[2]].append(moment)
    assert all(after - before >= 1.5 for before, after in moments.values())  # 0.5 s taken, then 1 s of pause
    # 100 workers at 0.5 s each are what is scarce: nobody waits while somebody is ready.
    assert log.handed[-1][1] < 1.1 * hosts * 2 * 0.5 / 100 + 5


class CountingStore(MemoryStore):
    """Counts how often the record of a robots.txt is loaded."""

    loads = 0

    async def get(self, key: str, /) -> bytes | None:
        self.loads += not key.startswith("pace/")
        return await super().get(key)


@pytest.mark.full
@pytest.mark.parametrize("workers", first_of(1, [20, 1]))
@pytest.mark.parametrize("max_bytes", first_of(1, [80_000, 1, 800_000]))  # one host, some ten, some hundred
async def test_rules_that_outgrow_the_cache_cost_each_page_a_few_loads(
    tries: Tries, max_bytes: int, workers: int
) -> None:
    hosts, rounds = 400, 3
    rules = "User-agent: *\n" + "".join(f"Disallow: /{number}/\n" for number in range(10))
    store, cache = CountingStore(), CacheOptions(max_entries_bytes=max_bytes)
    async with made(store=store, cache=cache) as queue:
        queue.robots |= {f"https://h{place}.example": f"{rules}# {place}" for place in range(hosts)}
        await put(queue, *(f"https://h{place}.example/p{number}" for number in range(rounds) for place in range(hosts)))
        log = await drained(queue, workers=workers, took_s=0.01)
        assert queue.gate.statistics().entries_bytes <= max(max_bytes, 20_000)
    assert len(set(log.urls)) == hosts * rounds
    assert store.loads <= 3 * hosts * rounds  # more than a hundred for each page where the cache holds none for long
    assert tries.count <= 4 * hosts * rounds
    assert len(queue.fetcher.requests) == hosts
    # A host that was first when its rules had to be loaded has its turn before those behind it have their second one.
    for number in range(rounds - 1):
        last = max(place for place, url in enumerate(log.urls) if url.endswith(f"p{number}"))
        assert last <= hosts * (number + 1) + 2 * 100


async def test_a_blocked_origin_costs_the_tries_of_its_host_nothing(queue: Queue, tries: Tries) -> None:
    queue.robots["http://a.example"] = 503
    await queue.gate.check_batch([A, "http://a.example"])
    for place in range(20):
        await queue.put(f"http://a.example/{place}", priority=-1)
        await queue.put(f"{A}/{place}")
    for _ in range(20):
        assert (await next_url(queue)).startswith(A)
    assert tries.count <= 20 + 2  # one finds the origin deferred, one comes before the first interval is over


# The memory of a crawl


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


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "urls", [pytest.param(5_000, marks=pytest.mark.full), pytest.param(100_000, marks=pytest.mark.weekly)]
)
async def test_the_memory_of_a_crawl_stays_flat_but_for_seen(urls: int) -> None:
    """Each URL leads to the next one of its host."""
    web, sizes, done = SimulatedWeb(), list[int](), 0

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
    async with made(pacing=PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)) as queue:
        await put(queue, *(f"https://h{host}.example/0" for host in range(50)))
        tracemalloc.start()
        try:
            await queue.crawl(web, follow_links, seen=ForgetsTheOldest(), on_progress=on_progress, on_error=on_error)
        finally:
            tracemalloc.stop()
    assert done >= urls
    assert sizes[1] - sizes[0] < 200_000  # two octets for each URL of the long form
