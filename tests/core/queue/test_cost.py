import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.queue import PoliteQueue, QueueClosed, QueueStatistics
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue, drained, put
from tests.support.tiers import first_of


async def test_repr_and_statistics_show_what_it_holds(queue: Queue, gate: Gatekeeper) -> None:
    await gate.check_batch([A, B])
    assert repr(queue) == "<PoliteQueue: 0 queued at 0 hosts, 0 ready, 0 under way, 0 workers waiting>"
    await put(queue, f"{A}/1", f"{A}/2", f"{B}/1")
    assert queue.statistics() == QueueStatistics(3, 2, 2, 0, 0, 0, 0, 0)
    async with queue.turn():
        assert queue.qsize() == 2
        queue.close()
        assert repr(queue).endswith(f"1 under way ({A}/1), 0 workers waiting, closed>")


async def test_repr_of_a_queue_that_was_ended_says_so(queue: Queue) -> None:
    await queue.aclose()
    assert repr(queue).endswith("0 workers waiting, closed>")


@pytest.mark.realtime
async def test_on_the_real_clock_no_turn_is_early_and_none_overlap(fetcher: ScriptedFetcher) -> None:
    pacing = PacingOptions(min_delay_s=0.05, adaptive_factor=0)
    ended: dict[str, float] = {}
    gaps: list[float] = []
    async with Gatekeeper(UA, fetcher=fetcher, pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for place in range(100):
            host = f"h{place % 20}.example"
            await queue.put(f"https://{host}/{place}", item=host)
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
    assert len(gaps) == 80
    assert min(gaps) >= 0.05


class Tries(logging.Handler):
    """Counts how often a worker asks for the turn of a host."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

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
    "hosts", [300, pytest.param(1_000, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.weekly)]
)
async def test_tries_for_each_url_do_not_grow_with_the_number_of_hosts(
    fetcher: ScriptedFetcher, clock: ManualClock, tries: Tries, hosts: int
) -> None:
    rounds, workers = 2, 100
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: Queue = PoliteQueue(gate)
        for place in range(hosts * rounds):
            await queue.put(f"https://h{place % hosts}.example/{place // hosts}")
        assert len(fetcher.requests) <= 100
        log = await drained(queue, clock, workers=workers, took_s=0.5)
    assert len(set(log.urls)) == hosts * rounds
    assert tries.count < 1.5 * hosts * rounds
    assert len(fetcher.requests) == hosts
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for url, moment in log.handed:
        moments[url.split("/")[2]].append(moment)
    assert all(after - before >= 1.5 for before, after in moments.values())  # 0.5 s taken, then 1 s of pause
    # 100 workers at 0.5 s each are what is scarce: nobody waits while somebody is ready.
    assert log.handed[-1][1] < 1.1 * hosts * rounds * 0.5 / workers + 5


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
    fetcher: ScriptedFetcher, clock: ManualClock, tries: Tries, max_bytes: int, workers: int
) -> None:
    hosts, rounds = 400, 3
    rules = "User-agent: *\n" + "".join(f"Disallow: /{number}/\n" for number in range(10))
    fetcher.answers |= {f"https://h{place}.example": f"{rules}# {place}" for place in range(hosts)}
    store, cache = CountingStore(), CacheOptions(max_entries_bytes=max_bytes)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store, cache=cache) as gate:
        queue: Queue = PoliteQueue(gate)
        for place in range(hosts * rounds):
            await queue.put(f"https://h{place % hosts}.example/p{place // hosts}")
        log = await drained(queue, clock, workers=workers, took_s=0.01)
        assert gate.statistics().entries_bytes <= max(max_bytes, 20_000)
    assert len(set(log.urls)) == hosts * rounds
    assert store.loads <= 3 * hosts * rounds  # more than a hundred for each page where the cache holds none for long
    assert tries.count <= 4 * hosts * rounds
    assert len(fetcher.requests) == hosts
    # A host that was first when its rules had to be loaded has its turn before those behind it have their second one.
    for number in range(rounds - 1):
        last = max(place for place, url in enumerate(log.urls) if url.endswith(f"p{number}"))
        assert last <= hosts * (number + 1) + 2 * 100


async def test_a_blocked_origin_costs_the_tries_of_its_host_nothing(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, tries: Tries
) -> None:
    fetcher.answers["http://a.example"] = 503
    await gate.check_batch([A, "http://a.example"])
    for place in range(20):
        await queue.put(f"http://a.example/{place}", priority=-1)
        await queue.put(f"{A}/{place}")
    for _ in range(20):
        async with queue.turn() as turn:
            assert turn.url.startswith(A)
    assert tries.count <= 20 + 2  # one finds the origin deferred, one comes before the first interval is over
