"""Stores and other parts that fail, hang or fall behind, and caches that are too small."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any, Final

import pytest

from politesse import Bound, CacheOptions, Gatekeeper, HostPolicy, Origin, PacingOptions, Reason, TooFar
from politesse.errors import ClosedError, StoreError
from politesse.events import AddressNotFound, ComponentFailed, Event, RobotsFetched
from politesse.options import Limit
from politesse.ports import FetchRequest, FetchResult, Lease, LeasingStore, Store, UpdatingStore
from politesse.queue import PoliteQueue, QueueClosed
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore, SharedMemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from tests.core.gate.gates import (
    CLOSED,
    DAY,
    PAGE,
    PRIVATE,
    ROBOTS_TXT,
    SITE,
    Answers,
    ScriptedGate,
    TimedFetcher,
    lasting,
)
from tests.support.events import events_of, failures_of
from tests.support.pacing import Resolving
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.scripted import UA
from tests.support.stores import FailingStore, KeptStore
from tests.support.tasks import ended, settle

OTHER: Final = "https://other.example"
METHODS: Final = ("get", "put", "delete", "aclose")

# Stores that fail


def raises(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


FAILURES: Final[dict[str, Callable[[], object] | None]] = {
    "hangs": None,
    "StoreError": raises(StoreError("broken")),
    "OSError": raises(OSError("disk")),
    "CancelledError": raises(asyncio.CancelledError()),
    "BaseException": raises(BaseException("bug")),
    "text": lambda: "User-agent: *\nAllow: /\n",
    "garbage": lambda: b"User-agent: *\nAllow: /\n",
    "number": lambda: 7,
}
UNEXPECTED: Final = {"OSError", "CancelledError", "BaseException"}


async def test_no_failure_of_a_store_opens_a_site_or_reaches_the_caller() -> None:
    answers: Answers = {SITE: PRIVATE, "https://down.example": 503, "https://closed.example": CLOSED}
    for failure, method in product(FAILURES, METHODS):
        gate = ScriptedGate(answers, jumps=True, store=FailingStore({}, method, fail=FAILURES[failure]))
        failures = failures_of(gate)
        for _ in range(3):
            for url in (f"{SITE}/private", "https://down.example/", "https://closed.example/"):
                assert not await gate.check(url)
            await gate.clock.sleep(1_000)
        if await gate.check(PAGE):
            async with gate.turn(PAGE) as turn:
                turn.observe(200)
        [forgotten] = await asyncio.gather(gate.forget(SITE), return_exceptions=True)
        [closed] = await asyncio.gather(gate.aclose(), return_exceptions=True)
        # The program that has something deleted, or closes the gate, learns of an error that no store should raise.
        assert forgotten is None or (method == "delete" and failure in UNEXPECTED)
        assert closed is None or (method == "aclose" and failure in {*UNEXPECTED, "StoreError"})
        harmless = method in {"put", "delete"} and failure in {"text", "garbage", "number"}
        assert failures or forgotten or closed or harmless or method == "aclose"
        assert {failed.component for failed in failures} <= {"store", "cache"}


async def test_cached_answers_do_not_wait_for_a_store_that_hangs() -> None:
    for stubborn in (False, True):
        store = FailingStore({}, stubborn=stubborn)
        async with ScriptedGate({SITE: PRIVATE}, jumps=True, store=store) as gate:
            await gate.check(f"{SITE}/")
            await gate.clock.sleep(5)
            store.methods = {*METHODS}
            for place in range(20):
                before_mono = gate.clock.monotonic()
                assert (await gate.check(f"{SITE}/{place}")).reason is Reason.NO_RULE
                assert gate.clock.monotonic() == before_mono
                (await gate.take_turn(f"{SITE}/{place}")).end()
            assert gate.clock.monotonic() < 5 + 20 * 1.01
            store.release.set()


async def test_cold_origins_one_by_one_hardly_wait_for_a_store_that_hangs(clock: ManualClock) -> None:
    store = FailingStore({}, "get", "put")
    async with ScriptedGate(fetcher=TimedFetcher(clock, takes_s=0.1), clock=clock, store=store) as gate:
        failures = failures_of(gate)
        for place in range(200):
            assert await gate.check(f"https://h{place}.example/")
        store.release.set()
    assert 20 <= clock.monotonic() <= 60  # 2,020 s without the pauses
    assert len(failures) <= 5


async def test_store_that_fails_for_a_week_closes_no_site() -> None:
    sites = dict.fromkeys((f"https://h{place}.example" for place in range(2_016)), PRIVATE)
    async with ScriptedGate(sites, jumps=True, store=FailingStore({}, "get", "put")) as gate:
        for site in sites:  # each finds that the pause of the store is over
            assert await gate.check(f"{site}/")
            await gate.clock.sleep(300.0)


async def test_cold_origins_at_once_wait_for_a_store_as_long_as_one_does() -> None:
    for origins in (1, 100):
        store = FailingStore({}, "get", "put")
        async with ScriptedGate(jumps=True, store=store) as gate:
            failures = failures_of(gate)
            assert all(await gate.check_batch(f"https://h{place}.example/" for place in range(origins)))
            store.release.set()
        assert (gate.clock.monotonic() <= 5.0, len(failures)) == (True, 1)
        clock = ManualClock(autojump=True)
        async with ScriptedGate(clock=clock, store=KeptStore({}, 4.9, clock)) as gate:
            failures = failures_of(gate)
            await gate.check_batch(f"https://h{place}.example/" for place in range(origins))
            assert clock.monotonic() == pytest.approx(3 * 4.9)  # to read the record and the host, and to write one
        assert failures == []


async def test_close_writes_the_record_of_a_check_that_was_answered(clock: ManualClock) -> None:
    store = KeptStore({}, 0.5, clock)
    async with ScriptedGate({SITE: PRIVATE}, clock=clock, store=store) as gate:
        await gate.check(f"{SITE}/")
        forgetting = asyncio.ensure_future(gate.check("https://b.example/"))
        await settle()
    await asyncio.gather(forgetting, return_exceptions=True)
    assert {SITE, "pace/host/example.com"} <= store.records.keys()
    assert store.calls[-1] == ("aclose", "")


class BusyStore(KeptStore):
    """A KeptStore that serves a thousand calls at a time, as SqliteStore does; the others wait."""

    def __init__(self, records: dict[str, bytes], delay_s: float, clock: ManualClock) -> None:
        super().__init__(records, delay_s, clock)
        self.places = asyncio.Semaphore(1_000)

    async def call(self, method: str, key: str) -> None:
        async with self.places:
            await super().call(method, key)


@pytest.mark.full
async def test_calls_that_wait_for_a_busy_store_are_not_late(clock: ManualClock) -> None:
    records: dict[str, bytes] = {}
    urls = [f"https://h{place}.example/" for place in range(3_000)]
    async with ScriptedGate(store=KeptStore(records)) as gate:
        await gate.check_batch(urls)
    async with ScriptedGate(clock=clock, store=BusyStore(records, 4.9, clock)) as gate:
        failures = failures_of(gate)
        assert all(await gate.check_batch(urls))
    assert (failures, gate.asked) == ([], [])


@pytest.mark.realtime
async def test_time_in_which_the_event_loop_stood_still_makes_no_store_late() -> None:
    class SteppingStore(KeptStore):
        async def call(self, method: str, key: str) -> None:
            await super().call(method, key)
            if method == "get":
                time.sleep(0.2)  # noqa: ASYNC251 - the event loop stands still
            for _ in range(5):
                await asyncio.sleep(0)

    records: dict[str, bytes] = {}
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), store=KeptStore(records)) as gate:
        await gate.check(SITE)
    fetcher = ScriptedFetcher()
    options = CacheOptions(store_timeout_s=0.05)
    async with Gatekeeper(UA, fetcher=fetcher, cache=options, store=SteppingStore(records)) as gate:
        failures = failures_of(gate)
        assert await gate.check(SITE)
    assert (failures, fetcher.requests) == ([], [])


async def test_stored_record_is_judged_by_the_options_of_its_reader() -> None:
    for status, strict in ((403, CacheOptions(on_forbidden="disallow")), (429, CacheOptions())):
        store, lenient = MemoryStore(), CacheOptions(on_too_many_requests="allow")
        assert await ScriptedGate({SITE: status}, store=store, cache=lenient).check(PAGE)
        async with ScriptedGate({SITE: status}, store=store, cache=strict) as other:
            assert not await other.check(PAGE)


async def test_forget_is_not_undone_by_a_pending_read_of_the_store() -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def get(self, key: str, /) -> bytes | None:
            kept = await super().get(key)
            reading.set()
            await go_on.wait()
            return kept

    go_on.set()
    async with ScriptedGate(store=Slow(), jumps=True) as gate:
        await gate.check(f"{SITE}/")
        gate.fetcher.answers[SITE] = CLOSED
        go_on.clear()
        reading.clear()
        gate.ask_ahead(Origin.of("https://other.example/"))
        other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1")
        await gate.forget(SITE)
        asking = asyncio.ensure_future(other.check(f"{SITE}/"))
        await reading.wait()
        await gate.forget(SITE)
        go_on.set()
        assert not await asking
        assert gate.fetcher.count(SITE) == 2


# Stores that still hold an older truth than the gate: a write or a delete has failed, or the store was set back

WRITES: Final = ("put", "put_leased")
CALLS: Final = (*WRITES, "get", "get_or_lease", "delete")
FIRST: Final = lasting(86_400)
SHORT: Final = lasting(60, CLOSED)
LONG: Final = lasting(86_400, CLOSED)
KINDS: Final[dict[str, Callable[[Path], Store]]] = {
    "memory": lambda _: MemoryStore(),
    "leasing": lambda _: SharedMemoryStore(),
    "updating": lambda place: SqliteStore(place.with_suffix(".db")),
    "of a user": lambda _: KeptStore({}),
}
SHARED: Final[dict[str, Callable[[Path], Store]]] = {
    "sqlite": KINDS["updating"],
    "redis": lambda place: RedisStore(shared_server(next(iter(EXECUTABLES))).url, prefix=f"{place}:"),
}


Stores = Callable[[], list[Store]]


class Bench:
    """A gate with a store whose calls can be made to fail."""

    def __init__(self, store: Store, *answers: Answer, **cache_options: Any) -> None:
        self.store = store
        self.clock = ManualClock()  # the stores take real time, so the clock must not jump while they are awaited
        self.scripted = ScriptedFetcher({SITE: answers, OTHER: FIRST})
        if isinstance(store, UpdatingStore):  # the clock jumps, and a state of a host that is being kept would be late
            store.update = self.keep_nothing  # type: ignore[method-assign]
        self.gate = self.next_gate(**cache_options)

    def next_gate(self, **cache_options: Any) -> ScriptedGate:
        cache, pacing = CacheOptions(**cache_options), PacingOptions(scope="process")
        return ScriptedGate(fetcher=self.scripted, store=self.store, clock=self.clock, cache=cache, pacing=pacing)

    async def keep_nothing(self, _: str, change: Callable[[bytes | None], bytes]) -> None:
        change(None)

    def break_calls(self, *names: str, error: Exception | None = None) -> None:
        failure = error or StoreError("disk full")

        async def fail(*_: object) -> None:
            raise failure

        async def fail_without_lease(key: str, _: bytes, lease: Lease) -> None:
            assert isinstance(self.store, LeasingStore)
            await self.store.release(key, lease)  # otherwise the next fetch would wait for the end of the lease
            raise failure

        for name in names:
            if hasattr(self.store, name):
                setattr(self.store, name, fail_without_lease if name == "put_leased" else fail)

    def heal(self) -> None:
        for name in CALLS:
            vars(self.store).pop(name, None)

    async def refresh(self) -> None:
        """Let the first copy become due, and the next answer come."""
        async with asyncio.timeout(10):
            self.clock.advance(0.95 * DAY)
            await self.gate.check(PAGE)
            while self.gate.statistics().in_flight:
                await asyncio.sleep(0.001)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    """Return a function that makes an empty store of each kind."""
    folders = count()
    return lambda: [make(tmp_path / f"{next(folders)}") for make in KINDS.values()]


async def test_newer_file_that_could_not_be_stored_is_not_replaced_by_the_older_one(stores: Stores) -> None:
    for error in (StoreError("disk full"), OSError("disk full")):
        for store in stores():
            bench = Bench(store, FIRST, SHORT)
            async with bench.gate as gate:
                assert await gate.check(PAGE)
                bench.break_calls(*WRITES, error=error)
                await bench.refresh()
                assert not await gate.check(PAGE)
                for _ in range(3):
                    bench.clock.advance(120)  # the older file is still fresh
                    assert not await gate.check(PAGE)
                bench.heal()
                assert not await gate.agent(tokens=["ExampleBot-Image", "ExampleBot"]).check(PAGE)
                assert not await gate.check(PAGE)
                bench.clock.advance(600)
                assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE


async def test_store_that_fails_for_a_moment_does_not_bring_back_its_older_file() -> None:
    bench = Bench(KeptStore({}), FIRST, LONG)
    async with bench.gate as gate:
        assert await gate.check(PAGE)
    bench.break_calls(*CALLS)
    bench.clock.advance(10)
    async with bench.next_gate() as gate:
        assert not await gate.check(PAGE)
        bench.heal()
        bench.clock.advance(10)  # the pause of the store is over
        assert not await gate.agent(tokens=["ExampleBot-Image", "ExampleBot"]).check(PAGE)
        assert not await gate.check(PAGE)


async def test_file_that_was_forgotten_does_not_come_back_if_it_could_not_be_deleted(stores: Stores) -> None:
    for store in stores():
        bench = Bench(store, FIRST, SHORT, SHORT)
        async with bench.gate as gate:
            assert await gate.check(PAGE)
            bench.break_calls("delete", *WRITES)
            await gate.forget(SITE)
            for passed_s in (10, 120):
                bench.clock.advance(passed_s)
                assert not await gate.check(PAGE)
            assert bench.scripted.count(SITE) == 3


@pytest.mark.parametrize("succeeds", [True, False])
async def test_write_that_ends_late_does_not_bring_back_a_file_that_was_forgotten_meanwhile(*, succeeds: bool) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    class SlowStore(KeptStore):
        async def put(self, key: str, record: bytes, /) -> None:
            if not began.is_set():
                began.set()
                await goes_on.wait()
                if not succeeds:
                    raise StoreError("disk full")
            await super().put(key, record)

    bench = Bench(SlowStore({}), *[FIRST] * (1 if succeeds else 2), LONG, max_entries_bytes=1)
    async with bench.gate as gate, bench.next_gate() as other:
        checking = asyncio.create_task(gate.check(PAGE))
        await began.wait()
        bench.clock.advance(0.1)
        assert succeeds or await other.check(PAGE)
        bench.clock.advance(0.1)
        bench.break_calls("delete")
        await gate.forget(SITE)
        if succeeds:
            bench.heal()
        goes_on.set()
        await settle()
        bench.clock.advance(10)  # the pause before the third request for the file is over
        assert not await checking
        assert await gate.check(OTHER)  # there is room for one file only
        gc.collect()  # an evicted file that a traceback holds would be found again
        assert not await gate.check(PAGE)
        bench.heal()


async def test_evicted_file_that_could_not_be_stored_is_fetched_again(stores: Stores) -> None:
    laters: list[tuple[Store, Answer]] = [*product(stores(), [LONG]), *product(stores(), [503])]
    for store, later in laters:
        bench = Bench(store, FIRST, LONG, later, max_entries_bytes=1)
        async with bench.gate as gate:
            assert await gate.check(PAGE)
            bench.break_calls(*WRITES)
            await bench.refresh()
            assert await gate.check(OTHER)  # there is room for one file only
            bench.heal()
            bench.clock.advance(10)
            gc.collect()  # an evicted file that a traceback holds would be found again
            assert not await gate.check(PAGE)
            assert bench.scripted.count(SITE) == 3


async def test_no_older_record_counts_after_more_failures_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse._cache.records._MAX_DOUBTED", 10)  # of 10,000, which take seconds
    bench = Bench(KeptStore({}), FIRST, LONG, max_entries_bytes=1)
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        assert await gate.check(OTHER)
        bench.break_calls(*WRITES)
        await bench.refresh()
        for number in range(12):
            await gate.check(f"https://h{number}.example/")
        bench.heal()
        bench.clock.advance(10)
        assert not await gate.check(PAGE)
        before = bench.scripted.count(SITE)
        assert await gate.check(OTHER)  # its record is older than the newest one that is lost
        assert await gate.check("https://new.example/")
        assert not await gate.check(PAGE)  # the store has taken this record
        assert bench.scripted.count(SITE) == before


async def test_next_gate_does_not_find_a_record_that_a_failed_call_has_left(tmp_path: Path) -> None:
    for (kind, make), forgets in product(SHARED.items(), (False, True)):
        place = tmp_path / f"{kind}{forgets}"
        bench = Bench(make(place), FIRST, SHORT)
        async with bench.gate as gate:
            assert await gate.check(PAGE)
            bench.break_calls("delete", *WRITES)
            await (gate.forget(SITE) if forgets else bench.refresh())
            bench.heal()
        bench.store = make(place)
        bench.clock.advance(10)
        async with bench.next_gate() as gate:
            assert not await gate.check(PAGE)


async def test_store_that_was_set_back_does_not_bring_back_an_older_file() -> None:
    store = KeptStore({})
    bench = Bench(store, FIRST, SHORT)
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        backup = dict(store.records)
        await bench.refresh()
        assert not await gate.check(PAGE)
        store.records.update(backup)
        bench.clock.advance(120)
        assert not await gate.check(PAGE)


# Caches with room for one file: many users evict each other's files, and all of them go on

SITES: Final = [f"https://h{number}.example" for number in range(20)]
TICK_S: Final = 0.01  # a round of a busy event loop


def small_gate(lines: str = "", answers: Answers | None = None, **options: Any) -> ScriptedGate:
    """Return a gate with a different robots.txt for each site."""
    files = {site: f"User-agent: *\nDisallow: /private{number}\n{lines}" for number, site in enumerate(SITES)}
    cache = CacheOptions(max_entries_bytes=1, max_site_files_bytes=1)
    return ScriptedGate({**files, **(answers or {})}, cache=cache, **options)


async def pass_time(clock: ManualClock, tasks: list[asyncio.Task[None]], limit_s: float) -> None:
    """Let each round of the event loop take time, until all tasks have ended; cancel the others at the limit."""
    while clock.monotonic() < limit_s and not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        clock.advance(TICK_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def take_all(gate: ScriptedGate, urls: list[str], turns: list[str]) -> None:
    """Take the turns of URLs, and note each URL."""
    queue = PoliteQueue[str](gate)
    for url in urls:
        await queue.put(url)
    queue.close()
    with suppress(QueueClosed):
        while True:
            async with queue.turn() as turn:
                turns.append(turn.url)


async def test_many_queues_of_one_gate_hand_out_all_urls() -> None:
    store, turns = KeptStore({}), list[str]()
    urls = {site: [f"{site}/{number}" for number in range(3)] for site in SITES}
    async with small_gate(store=store) as gate:
        await pass_time(gate.clock, [asyncio.create_task(take_all(gate, urls[site], turns)) for site in SITES], 12.0)
    assert sorted(turns) == sorted(url for site in SITES for url in urls[site])
    assert store.count("get", "https") <= len(SITES) + 2 * len(turns)


async def test_crawl_delay_is_kept_although_its_file_was_evicted() -> None:
    starts = {site: list[float]() for site in SITES}

    async def work(site: str, number: int) -> None:
        async with gate.turn(f"{site}/{number}"):
            starts[site].append(gate.clock.monotonic())

    async with small_gate("Crawl-delay: 10\n") as gate:
        tasks = [asyncio.create_task(work(site, number)) for number in range(3) for site in SITES]
        await pass_time(gate.clock, tasks, 60.0)
    assert {len(times) for times in starts.values()} == {3}
    gaps = [after - before for times in starts.values() for before, after in pairwise([0.0, *times])]
    assert min(gaps) == pytest.approx(10.0, abs=TICK_S)  # those after robots.txt, too


async def test_crawl_delay_ends_although_its_file_was_evicted_and_the_store_fails() -> None:
    store, turns = KeptStore({}, fails={"get": StoreError("broken"), "put": StoreError("broken")}), list[str]()
    urls = [f"{site}/{number}" for number in range(2) for site in SITES]
    async with small_gate("Crawl-delay: 5\n", store=store) as gate:
        await pass_time(gate.clock, [asyncio.create_task(take_all(gate, urls, turns))], 40.0)
        assert sorted(turns) == sorted(urls)
        assert max(gate.fetcher.count(site) for site in SITES) <= 1 + 2


async def test_files_of_several_agents_are_read_although_others_evict_them() -> None:
    async def work(site: str) -> None:
        assert await gate.check(f"{site}/page")

    async with small_gate(policy_tokens={"ai-train": "Example-Train", "search": "Example-Search"}) as gate:
        tasks = [asyncio.create_task(work(site)) for site in SITES]
        await pass_time(gate.clock, tasks, 12.0)
    assert not any(task.cancelled() for task in tasks)


async def test_reservations_are_enforced_although_others_evict_them() -> None:
    tdmrep = '[{"location": "/reserved", "tdm-reservation": 1}]'
    reserved = {f"{site}/.well-known/tdmrep.json": tdmrep for site in SITES}
    for fragment in ("", "#part"):
        turns: list[str] = []
        async with small_gate(answers=reserved, enforce_usage={"tdm"}) as gate:
            takers = [take_all(gate, [f"{site}/page{fragment}", f"{site}/reserved"], turns) for site in SITES]
            await pass_time(gate.clock, [asyncio.create_task(taker) for taker in takers], 60.0)
        assert sorted(turns) == sorted(f"{site}/page{fragment}" for site in SITES)


async def test_evicted_file_is_not_kept_longer_than_its_users() -> None:
    async with small_gate(jumps=True, store=MemoryStore()) as gate:
        queue = PoliteQueue[str](gate)
        for site in SITES:
            await queue.put(f"{site}/1")
            await queue.put(f"{site}/2")
        for _ in SITES:
            async with queue.turn():
                pass
        await gate.clock.sleep(0.2)  # the timers of the loads are over
        gc.collect()
        [entry] = gate.state.cache.entries.values()
        entries = [found for found in gc.get_objects() if isinstance(found, type(entry))]
        assert len([found for found in entries if found.origin.text in SITES]) == 1


# Large files are read in threads of the gate's own, whoever else keeps those of the event loop busy

LARGE: Final = 100 * 1024
LARGE_FILE: Final = f"{PRIVATE}Sitemap: {SITE}/a.xml\n" + f"# {'x' * 98}\n" * (LARGE // 100)


@pytest.fixture
async def _no_thread_to_be_had() -> AsyncIterator[None]:
    """Keep every thread of the event loop's own executor busy."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, release.wait)
    yield
    release.set()
    await busy


@pytest.mark.usefixtures("_no_thread_to_be_had")
async def test_large_files_are_read_though_the_loop_has_no_thread_left() -> None:
    async with asyncio.timeout(10):
        async with ScriptedGate({SITE: LARGE_FILE}) as gate:
            assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        async with ScriptedGate({SITE: "".join(f"Sitemap: {SITE}/{n}.xml\n" for n in range(500))}) as gate:
            assert len((await gate.sitemaps(SITE)).urls) == 500
        async with ScriptedGate({f"{SITE}/data.txt": "Dataset: /d.csv\n" * (LARGE // 10)}, jumps=True) as gate:
            answer = await gate.datatxt(SITE)
            [record] = answer.records
            assert (answer.outcome, len(record.values("dataset"))) == (FileOutcome.FOUND, LARGE // 10)
        tdmrep = '[{"location": "/*", "tdm-reservation": 1}' + " " * LARGE + "]"
        answers = {f"{SITE}/.well-known/tdmrep.json": tdmrep}
        async with ScriptedGate(answers, jumps=True, enforce_usage={"tdm"}) as gate:
            assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED


async def test_no_thread_outlives_a_gate_that_is_closed() -> None:
    before = set(threading.enumerate())
    async with ScriptedGate({SITE: LARGE_FILE}) as gate:
        await gate.check(PAGE)
        started = set(threading.enumerate()) - before
    async with asyncio.timeout(10):
        while any(thread.is_alive() for thread in started):
            await asyncio.sleep(0.001)
    assert started


# Parts that hang hold up nobody for longer than they would wait, and what they raise ends nobody who waits


TDMREP: Final = "/.well-known/tdmrep.json"
ROBOTS: Final = "/robots.txt"
TIMEOUT_S: Final = 5.0  # the default of CacheOptions.store_timeout_s


class Odd(BaseException):
    """No Exception, and nothing that stops a program."""


class Unspeakable(Exception):
    """Has no words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


FOREIGN: Final[list[type[BaseException]]] = [asyncio.CancelledError, GeneratorExit, Odd, Unspeakable, KeyError]


class OddStore(MemoryStore):
    """Raises an error once, after a while."""

    def __init__(self, method: str = "", error: type[BaseException] = Odd) -> None:
        super().__init__()
        self.errors = {method: error}

    async def get(self, key: str, /) -> bytes | None:
        await self._fail("get")
        return await super().get(key)

    async def put(self, key: str, record: bytes, /) -> None:
        await self._fail("put")
        await super().put(key, record)

    async def delete(self, key: str, /) -> None:
        await self._fail("delete")

    async def _fail(self, method: str) -> None:
        await asyncio.sleep(0)
        if method in self.errors:
            raise self.errors.pop(method)


class OddFetcher(ScriptedFetcher):
    """Raises an error once where it is asked for a path, or hangs there without an error until its release."""

    def __init__(self, path: str = "", error: type[BaseException] | None = None) -> None:
        super().__init__({SITE: PRIVATE})
        self.path = path
        self.errors = [error] if error else []
        self.hangs = error is None
        self.release = asyncio.Event()

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await asyncio.sleep(0)
        if request.path == self.path and self.hangs:
            self.requests.append(request)
            await self.release.wait()
        if request.path == self.path and self.errors:
            raise self.errors.pop()
        return await super().fetch(request)


# Parts that hang


async def too_far(gate: ScriptedGate, max_wait_s: float = 1.0) -> Bound:
    """Return what a turn waits for that comes too late, which has to be told in time."""
    asked_mono = gate.clock.monotonic()
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(PAGE, max_wait_s=max_wait_s)
    assert gate.clock.monotonic() == asked_mono + max_wait_s
    assert caught.value.host == "example.com"
    return caught.value.not_yet.bound_by


async def test_max_wait_bounds_the_fetch_of_robots_txt_which_goes_on_for_the_others(clock: ManualClock) -> None:
    fetcher = OddFetcher(ROBOTS)
    async with ScriptedGate(fetcher=fetcher, clock=clock) as gate:
        patient = asyncio.ensure_future(gate.check(PAGE))
        assert await too_far(gate) is Bound.ROBOTS_TXT
        assert await too_far(gate, max_wait_s=0) is Bound.ROBOTS_TXT
        fetcher.release.set()
        assert (await patient).reason is Reason.NO_RULE
        async with gate.turn(PAGE, max_wait_s=5):
            pass
        assert len(gate.asked) == 2  # what hung has asked once, and been answered once
        await clock.sleep(5)
        async with gate.turn(PAGE, max_wait_s=0):  # by known answers alone
            pass


async def test_max_wait_bounds_a_store_a_fetch_of_tdmrep_json_and_a_lookup_that_hang(clock: ManualClock) -> None:
    async with ScriptedGate(clock=clock, store=FailingStore({}, "get")) as gate:
        assert await too_far(gate) is Bound.ROBOTS_TXT
    fetcher = OddFetcher(TDMREP)
    async with ScriptedGate(fetcher=fetcher, jumps=True, enforce_usage={"tdm"}) as gate:
        assert await too_far(gate, max_wait_s=100) is Bound.ROBOTS_TXT
        fetcher.release.set()
        async with gate.turn(PAGE, max_wait_s=100):
            pass
    hanging = Resolving({})
    hanging.gate.clear()
    async with ScriptedGate(jumps=True, pacing=PacingOptions(address=Limit()), resolver=hanging) as gate:
        gate.set_policy("example.com", HostPolicy(exempt=True, reason="a partner"))
        assert await too_far(gate) is Bound.ADDRESS


async def test_store_that_hangs_is_reported_and_bypassed() -> None:
    for method, stubborn in product(("get", "put"), (False, True)):
        store = FailingStore({}, method, stubborn=stubborn)
        async with ScriptedGate({SITE: PRIVATE}, jumps=True, store=store) as gate:
            failures = failures_of(gate)
            assert (await gate.check(PAGE)).reason is Reason.NO_RULE
            assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
            assert (gate.clock.monotonic(), gate.fetcher.count(SITE)) == (TIMEOUT_S, 1)
            store.release.set()
            await settle()
            [failure] = failures  # in ``put``, that of the record or of the host: both hang
            assert str(failure.origin) in ({SITE} if method == "get" else {SITE, "None"})
            assert (failure.component, type(failure.error)) == ("store", StoreError)
            assert "store_timeout_s=5" in str(failure.error)


async def test_forgetting_and_a_queue_do_not_hang_on_the_store_whose_timeout_is_an_option() -> None:
    options = CacheOptions(store_timeout_s=0.25)
    async with ScriptedGate(jumps=True, store=FailingStore({}, "get"), cache=options) as gate:
        await gate.check(PAGE)
        assert gate.clock.monotonic() == 0.25
    async with ScriptedGate(jumps=True, store=FailingStore({}, "delete")) as gate:
        failures = failures_of(gate)
        await gate.check(PAGE)
        await gate.forget(SITE)
        assert gate.clock.monotonic() == TIMEOUT_S
        assert [failure.component for failure in failures] == ["store"]
    async with ScriptedGate(jumps=True, store=FailingStore({}, "get", "put", "delete")) as gate:
        queue = PoliteQueue[None](gate)
        await queue.put(PAGE)
        async with asyncio.timeout(30), queue.turn() as turn:
            assert turn.url == PAGE
            assert gate.clock.monotonic() <= 3 * TIMEOUT_S


async def test_answer_that_is_being_stored_when_its_origin_is_forgotten_does_not_count() -> None:
    clock = ManualClock(autojump=True)
    store = KeptStore({}, delay_s=2.0, clock=clock)
    async with ScriptedGate({SITE: [PRIVATE, CLOSED]}, clock=clock, store=store) as gate:
        checking = asyncio.ensure_future(gate.check(PAGE))
        await clock.sleep(5.0)  # the record of the file and that of its host were read, each in two seconds
        assert (gate.asked, store.count("put", "https")) == ([ROBOTS_TXT], 1)
        await gate.forget(SITE)
        assert not await checking
        assert not await gate.check(PAGE)
        assert len(gate.asked) == 2
    async with ScriptedGate(clock=clock, store=store) as gate:
        assert not await gate.check(PAGE)
        assert gate.asked == []


async def test_file_that_a_429_left_unread_serves_though_its_store_fails() -> None:
    clock, store = ManualClock(autojump=True), FailingStore({}, fail=raises(StoreError("broken")))
    answers: Answers = {SITE: [lasting(60, PRIVATE), 429, 503]}
    async with ScriptedGate(answers, clock=clock, store=store) as gate:
        assert await gate.check(PAGE)
        await clock.sleep(100.0)
        assert not await gate.check(PAGE)
        store.methods.add("get")
        await clock.sleep(4_000.0)
        assert await gate.check(PAGE)
        assert not await gate.check(f"{SITE}/private")
        assert len(gate.asked) == 3


async def test_cancellation_during_a_failure_of_the_store_leaves_no_error() -> None:
    class BrokenStore(FailingStore):
        async def delete(self, key: str, /) -> None:
            await super().delete(key)
            raise StoreError("broken")

    store, left = BrokenStore({}, "delete"), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context["message"]))
    async with ScriptedGate(jumps=True, store=store) as gate:
        forgetting = asyncio.ensure_future(gate.forget(SITE))
        for _ in range(5):
            await asyncio.sleep(0)
        store.release.set()
        for _ in range(2):  # it has failed now, and who waits for it has not resumed
            await asyncio.sleep(0)
        forgetting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forgetting
    gc.collect()
    assert left == []


async def test_closing_does_not_hang_on_the_store() -> None:
    for stubborn in (False, True):
        store = FailingStore({}, "get", "aclose", stubborn=stubborn)
        gate = ScriptedGate(jumps=True, store=store)
        failures = failures_of(gate)
        pending = asyncio.ensure_future(gate.check(PAGE))
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await gate.aclose()
        store.release.set()
        assert gate.clock.monotonic() == TIMEOUT_S * (2 if stubborn else 1)
        assert gate.fetcher.closed
        assert [(failure.origin, failure.component) for failure in failures] == [(None, "store")]
        with pytest.raises(ClosedError):
            await pending


async def test_store_whose_clock_moves_while_it_answers_is_believed() -> None:
    class Slow(MemoryStore):
        async def get(self, key: str, /) -> bytes | None:
            gate.clock.advance(2 * TIMEOUT_S)
            return await super().get(key)

    async with ScriptedGate({SITE: PRIVATE}, store=Slow()) as gate:
        assert (await gate.check(PAGE)).reason is Reason.NO_RULE


# Parts that raise what is no Exception


async def reasons(gate: ScriptedGate) -> set[Reason]:
    """Return the reasons of the verdicts for several callers at once."""
    return {verdict.reason for verdict in await asyncio.gather(*(gate.check(f"{PAGE}/{n}") for n in range(3)))}


async def test_error_of_a_store_or_fetcher_is_published_closes_the_site_and_cancels_no_caller() -> None:
    for error in FOREIGN:
        by_fetcher = "cache" if error is GeneratorExit else "fetcher"
        parts = [(OddStore(method, error), OddFetcher(), "cache") for method in ("get", "put")]
        for store, fetcher, component in (*parts, (OddStore(), OddFetcher(ROBOTS, error), by_fetcher)):
            async with ScriptedGate(fetcher=fetcher, store=store) as gate:
                failures, fetched = failures_of(gate), events_of(gate, RobotsFetched)
                assert await reasons(gate) == {Reason.UNREACHABLE}
                verdict = gate.known(PAGE)
                assert verdict.source is not None
                assert error.__name__ in verdict.source.fault
                assert [failure.component for failure in failures] == [component]
                assert component == "cache" or fetched[0].fault == verdict.source.fault
                gate.clock.advance(3_600)
                assert await reasons(gate) == {Reason.NO_RULE}


async def test_cancellation_by_a_subscriber_is_logged_and_cancels_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Event) -> None:
        raise error

    for error in FOREIGN:
        async with ScriptedGate() as gate:
            told: list[Event] = []
            gate.subscribe(fail)
            gate.subscribe(told.append)
            assert await reasons(gate) == {Reason.UNAVAILABLE}
            assert gate.peek(PAGE)
            assert len(told) == 5
            assert error.__name__ in caplog.text


async def test_cancellation_raised_for_another_file_or_a_delete_is_reported_and_cancels_no_caller() -> None:
    for error in FOREIGN:
        async with ScriptedGate(fetcher=OddFetcher(TDMREP, error), jumps=True, enforce_usage={"tdm"}) as gate:
            failures = failures_of(gate)
            assert await reasons(gate) == {Reason.USAGE_UNKNOWN}
            assert len(failures) == 1
        async with ScriptedGate(fetcher=OddFetcher("/data.txt", error), jumps=True) as gate:
            failures = failures_of(gate)
            answers = await asyncio.gather(*(gate.datatxt(SITE) for _ in range(3)))
            assert {answer.outcome for answer in answers} == {FileOutcome.RETRY}
            assert all(error.__name__ in answer.file.fault for answer in answers)
            assert [failure.component for failure in failures] == ["files" if error is GeneratorExit else "fetcher"]
            assert gate.statistics().turns == 0
    async with ScriptedGate(store=OddStore("delete", asyncio.CancelledError)) as gate:
        with pytest.raises(RuntimeError, match="the store raised CancelledError"):
            await gate.forget(SITE)


async def test_error_raised_by_a_resolver_has_the_host_paced_by_its_name() -> None:
    class Confused:
        async def resolve(self, host: str, port: int, /) -> list[str]:
            raise error

    for error in FOREIGN:
        async with ScriptedGate(jumps=True, pacing=PacingOptions(address=Limit()), resolver=Confused()) as gate:
            events = events_of(gate, AddressNotFound)
            async with gate.turn(PAGE) as turn:
                assert turn.verdict
            [event] = events
            assert event.host == "example.com"
            assert error.__name__ in event.error


async def test_real_cancellation_of_the_caller_passes() -> None:
    async with ScriptedGate(fetcher=OddFetcher(ROBOTS)) as gate:
        tasks = [asyncio.ensure_future(gate.check(PAGE)), asyncio.ensure_future(gate.take_turn(PAGE, max_wait_s=10))]
        await settle()
        await ended(tasks)
        assert [task.cancelled() for task in tasks] == [True, True]


@pytest.mark.parametrize("where", ["store", "fetcher", "subscriber", "files"])
def test_exception_that_ends_the_program_passes_and_closes_the_site(where: str) -> None:
    def stop(event: Event) -> None:
        if where == "subscriber" and not isinstance(event, ComponentFailed) and errors:
            raise errors.pop()

    for error in (KeyboardInterrupt, SystemExit):
        errors: list[type[BaseException]] = [error]
        fetcher = OddFetcher({"fetcher": ROBOTS, "files": TDMREP}.get(where, ""), error)
        store = OddStore("get" if where == "store" else "", error)
        gate = ScriptedGate(fetcher=fetcher, jumps=True, store=store, enforce_usage={"tdm"} if where == "files" else ())
        gate.subscribe(stop)
        loop = asyncio.new_event_loop()
        try:
            waiting = loop.create_task(gate.check(PAGE))
            with pytest.raises(error):
                loop.run_until_complete(waiting)
            # A notebook goes on with the same loop: who waits has a closed verdict then, and was not cancelled.
            verdict = loop.run_until_complete(waiting)
            assert verdict.reason is (Reason.USAGE_UNKNOWN if where == "files" else Reason.UNREACHABLE)
            loop.run_until_complete(gate.aclose())
        finally:
            loop.close()


async def test_fetch_cancelled_before_its_first_step_blocks_no_caller() -> None:
    async with ScriptedGate() as gate:
        first = asyncio.ensure_future(gate.check(PAGE))
        await asyncio.sleep(0)
        await ended(task for task in asyncio.all_tasks() if task.get_name().startswith("robots.txt of"))
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await gate.check(PAGE)
