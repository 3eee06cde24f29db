"""The cache of a gate: one fetch for all who ask, its refresh, what it keeps, and caches that share a store."""

import asyncio
import gc
import json
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions, Reason
from politesse.errors import ClosedError, PolitesseError, StoreError
from politesse.events import ComponentFailed, Event, SiteFileFetched
from politesse.options import SharedPacer
from politesse.origin import Origin
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult, Store, Validators
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.sites import SiteFile
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult, FileOutcome
from tests.core.gate.gates import DAY, HOUR
from tests.support.events import failures_of
from tests.support.scripted import UA
from tests.support.stores import KeptStore, LeasingDict
from tests.support.tasks import settle
from tests.support.tiers import first_of

FILE = "User-agent: *\nDisallow: /private\n\nUser-agent: otherbot\nDisallow: /\n"
NEW_FILE = "User-agent: *\nDisallow: /new\n"
SITE = "https://example.com"
BOT = "examplebot"
OTHER = "otherbot"


class Bench:
    """A gate of a process of its own; its waits have no jitter."""

    usual_store: ClassVar[Callable[[], Store | None]] = staticmethod(lambda: None)

    def __init__(
        self,
        answers: dict[str, Answer | list[Answer]] | None = None,
        *,
        fetcher: Fetcher | None = None,
        store: Store | None = None,
        options: CacheOptions | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.scripted = ScriptedFetcher(answers)
        self.store: Any = Bench.usual_store() if store is None else store
        pacer = SharedPacer(PacingOptions(scope="process"), clock=self.clock)
        fetcher = fetcher or self.scripted
        self.gate = Gatekeeper(UA, fetcher=fetcher, store=self.store, clock=self.clock, cache=options, pacer=pacer)
        self.failed = failures_of(self.gate)
        self.cache = self.gate.state.cache
        self.cache._jitter = lambda: 0.0

    # The entry of the cache is Any, for its type has no public name.
    async def ask(self, site: str = SITE, agent: str = BOT) -> Any:
        return await self.cache.entry(site, Origin.of(site), "/robots.txt", agent)

    def start(self, site: str = SITE, agent: str = BOT) -> asyncio.Task[Any]:
        return asyncio.create_task(self.ask(site, agent))

    async def ask_after(self, seconds: float) -> Any:
        """Ask, and let what that begins in the background end."""
        self.clock.advance(seconds)
        entry = await self.ask()
        for _ in range(5):
            await asyncio.sleep(0)
        return entry

    def failures(self) -> list[ComponentFailed]:
        """Those that concern SITE; the records of its host may fail, too."""
        return [failure for failure in self.failed if failure.origin == Origin.of(SITE)]


@asynccontextmanager
async def caching(answers: dict[str, Answer | list[Answer]] | None = None, **parts: Any) -> AsyncIterator[Bench]:
    before = asyncio.all_tasks()
    bench = Bench(answers, **parts)
    try:
        yield bench
    finally:
        await bench.gate.aclose()
    assert asyncio.all_tasks() == before


def file(**headers: str) -> FetchResponse:
    return status(200, FILE, **headers)


def not_modified(**headers: str) -> FetchResponse:
    return replace(status(304, **headers), conditional=True)


def status(status: int, body: str = "", **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(status, f"{SITE}/robots.txt", named, body.encode())


async def is_kept(store: Store) -> bool:
    """Tell whether the next gate finds FILE in a store."""
    async with caching(store=store) as bench:
        entry = await bench.ask()
        return not bench.scripted.requests and not entry.rules[BOT].allowed("/private")


def site_number(number: int) -> str:
    return f"https://host{number}.example"


@pytest.fixture(params=["no store", "store"])
def _each_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with gates that have no store, and again with gates that have one."""
    if request.param == "store":
        monkeypatch.setattr(Bench, "usual_store", MemoryStore)


each_store = pytest.mark.usefixtures("_each_store")


# One fetch for all who ask


@each_store
async def test_a_hundred_questions_about_an_unseen_origin_are_one_request_whoever_is_cancelled() -> None:
    for victim in (0, 1, 50, 99):
        async with caching({SITE: FILE}) as bench:
            bench.scripted.gate.clear()
            tasks = [bench.start() for _ in range(100)]
            await settle()
            assert bench.gate.statistics().in_flight == 1
            assert not any(task.done() for task in tasks)
            tasks[victim].cancel()
            await settle()
            bench.scripted.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers.pop(victim), asyncio.CancelledError)
            for entry in answers:
                assert not isinstance(entry, BaseException)
                assert (entry.rules[BOT].allowed("/private"), entry.rules[BOT].allowed("/public")) == (False, True)
            assert bench.scripted.count(SITE) == bench.gate.statistics().fetches == 1
            assert bench.gate.statistics().in_flight == 0


@each_store
async def test_flight_ends_normally_although_all_waiters_were_cancelled() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start() for _ in range(10)]
        await settle()
        for task in tasks:
            task.cancel()
        await settle()
        assert len(bench.cache.flights) == 1
        bench.scripted.gate.set()
        await settle()
        assert len(bench.cache.flights) == 0
        held = bench.cache.valid(SITE)
        assert held is not None
        assert not held.rules[BOT].allowed("/private")
        assert await bench.ask() is held
        assert bench.scripted.count(SITE) == 1


# Refresh


@each_store
async def test_copy_is_refreshed_in_the_background_from_nine_tenths_of_its_lifetime() -> None:
    async with caching({SITE: [FILE, NEW_FILE, FILE]}) as bench:
        old = await bench.ask()
        old_rules = old.rules[BOT]
        bench.clock.advance(0.9 * DAY)
        bench.scripted.gate.clear()
        async with asyncio.timeout(1):  # the refresh is held back, and no task waits for it
            assert [await bench.ask() for _ in range(100)] == [old] * 100
        assert bench.cache.valid(SITE) is old
        await settle()
        assert bench.cache.valid(SITE) is old
        assert len(bench.cache.flights) == 1
        bench.scripted.gate.set()
        await settle()
        new = await bench.ask()
        assert new is not old
        assert not new.rules[BOT].allowed("/new")
        assert not old_rules.allowed("/private"), "the old copy is replaced, not changed"
        await bench.ask_after(0.89 * DAY)
        assert bench.scripted.count(SITE) == 2, "until the new copy is old"
        await bench.ask_after(0.01 * DAY)
        assert bench.scripted.count(SITE) == 3


@each_store
async def test_a_refresh_that_is_still_under_way_at_the_deadline_is_waited_for() -> None:
    async with caching({SITE: [FILE, NEW_FILE]}) as bench:
        old = await bench.ask()
        bench.scripted.gate.clear()
        assert await bench.ask_after(0.95 * DAY) is old
        bench.clock.advance(0.05 * DAY)
        late = bench.start()
        await settle()
        assert not late.done()
        bench.scripted.gate.set()
        assert not (await late).rules[BOT].allowed("/new")
        assert bench.scripted.count(SITE) == 2


@each_store
async def test_a_stale_copy_does_not_answer_and_is_revalidated_with_its_validators() -> None:
    first = file(etag='"x"', last_modified="then", cache_control="max-age=600")
    async with caching({SITE: [first, not_modified(cache_control="max-age=1200")]}) as bench:
        old = await bench.ask()
        bench.clock.advance(600)
        assert bench.cache.valid(SITE) is None
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        assert not task.done()
        bench.scripted.gate.set()
        entry = await task
        asked = [request.validators for request in bench.scripted.requests]
        assert asked == [None, Validators(f"{SITE}/robots.txt", '"x"', "then")]
        assert (entry.source.result, entry.source.status) == (AccessResult.SUCCESSFUL, 200)
        assert entry.source.fetched_wall == bench.clock.wall()
        assert entry.source.fresh_until_wall == bench.clock.wall() + 1200
        assert entry.rules[BOT] is old.rules[BOT], "a copy that is confirmed keeps its compiled rules"


@each_store
async def test_answer_without_lifetime_still_answers_its_waiters() -> None:
    clock = ManualClock()

    class Passing(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            result = await super().fetch(request)
            asyncio.get_running_loop().call_soon(clock.advance, 1.0)  # before any waiter has resumed
            return result

    passing = Passing({SITE: file(cache_control="no-store")})
    async with caching(fetcher=passing, options=CacheOptions(min_lifetime_s=0.0), clock=clock) as bench:
        entries = await asyncio.gather(*(bench.ask() for _ in range(10)))
        assert all(not entry.rules[BOT].allowed("/private") for entry in entries)
        assert passing.count(SITE) == 1


# Failures


async def test_failed_call_of_the_store_is_published_and_the_answer_holds() -> None:
    for method in ("get", "put", "delete"):
        async with caching({SITE: FILE}, store=KeptStore({}, fails={method: StoreError("disk")})) as bench:
            entry = await bench.ask()
            assert not entry.rules[BOT].allowed("/private")
            bench.clock.advance(HOUR)
            assert await bench.ask() is entry
            await bench.cache.forget(Origin.of(SITE))
            assert bench.cache.valid(SITE) is None
            assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk")]


async def test_damaged_record_is_a_miss_published_and_overwritten() -> None:
    for garbage in (b"", b"garbage", b"politesse/1 \xff"):
        store = KeptStore({SITE: garbage})
        async with caching({SITE: FILE}, store=store) as bench:
            assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
            (failure,) = bench.failures()
            assert failure.component == "store"
            assert isinstance(failure.error, StoreError)
        assert await is_kept(store)


async def test_another_agent_gets_an_answer_where_the_store_lost_the_copy_and_the_site_is_unreachable() -> None:
    async with caching({SITE: [FILE, 503]}, store=MemoryStore()) as bench:
        await bench.ask(agent=BOT)
        await bench.store.delete(SITE)
        async with asyncio.timeout(5):
            entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2


# The end


@each_store
async def test_flight_closed_before_its_first_step_leaves_no_task() -> None:
    async with caching({SITE: FILE}) as bench:
        task = bench.start()
        await asyncio.sleep(0)
        await bench.cache.aclose()
        with pytest.raises(ClosedError):
            await task
        assert bench.cache.entries == {}


@each_store
async def test_closing_during_a_background_refresh_leaves_no_task_and_logs_nothing() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with caching({SITE: FILE}) as bench:
        await bench.ask()
        bench.scripted.gate.clear()
        await bench.ask_after(0.95 * DAY)
        assert len(bench.cache.flights) == 1
    await settle()  # the loop still refers to its last callback
    gc.collect()
    await settle()
    assert complaints == []


@each_store
def test_closing_the_loop_during_a_flight_logs_nothing() -> None:
    complaints: list[dict[str, object]] = []

    async def abandoned() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        bench = Bench({SITE: FILE})
        bench.scripted.gate.clear()
        waiter = bench.start()
        await settle()
        assert len(bench.cache.flights) == 1
        waiter.cancel()

    asyncio.run(abandoned())
    gc.collect()
    assert complaints == []


# What is kept in the store and in memory, and how much that weighs


MORE_RULES = "".join(f"Disallow: /some/pages/{number}?query\nDisallow: /*/{number}$\n" for number in range(20))


async def test_backoff_survives_a_store_that_forgot() -> None:
    async with caching({SITE: 503}, store=MemoryStore()) as bench:
        for wait_s in (60, 120, 240, 480):
            entry = await bench.ask()
            assert entry.source.not_before == bench.clock.wall() + wait_s
            await bench.store.delete(SITE)
            bench.clock.advance(wait_s)
        assert bench.scripted.count(SITE) == 4


async def test_file_that_the_store_has_lost_is_fetched_without_condition_and_stored_again() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with caching({SITE: file(etag='"x"')}, store=store, clock=clock) as bench:
        await bench.ask()
        await store.delete(SITE)
        await bench.ask_after(0.95 * DAY)
        assert [request.validators for request in bench.scripted.requests] == [None, None]
    async with caching({SITE: 503}, store=store, clock=clock) as later:
        assert not (await later.ask()).rules[BOT].allowed("/private")


async def test_failure_is_stored_without_a_file_that_the_store_has_lost() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with caching({SITE: [FILE, 503]}, store=store, clock=clock) as bench:
        await bench.ask()
        await store.delete(SITE)
        assert (await bench.ask_after(0.95 * DAY)).source.result is AccessResult.SUCCESSFUL
        assert "503" in (await bench.ask()).source.fault
    async with caching({SITE: 503}, store=store, clock=clock) as later:
        assert (await later.ask()).source.result is AccessResult.UNREACHABLE
        assert later.scripted.requests == []


@each_store
async def test_all_known_agents_are_compiled_when_a_copy_is_refreshed() -> None:
    async with caching({SITE: [FILE, NEW_FILE]}) as bench:
        await bench.ask(agent=BOT)
        await bench.ask(agent=OTHER)
        await bench.ask_after(0.95 * DAY)
        held = bench.cache.valid(SITE)
        assert held is not None
        assert set(held.rules) == {BOT, OTHER}
        assert not held.rules[OTHER].allowed("/new")
        assert held.rules[OTHER].allowed("/public")


@each_store
async def test_rules_that_origins_share_weigh_once() -> None:
    twin = "https://twin.example"
    async with caching({SITE: FILE, twin: FILE}) as bench:
        rules = (await bench.ask()).rules[BOT]
        alone = bench.cache.weight_bytes
        shared_bytes = alone - bench.cache.entries[SITE].own_bytes
        second = await bench.ask(twin)
        assert bench.cache.weight_bytes == alone + second.own_bytes
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == shared_bytes + second.own_bytes > rules.weight_bytes
        await bench.cache.forget(Origin.of(twin))
        assert bench.cache.weight_bytes == 0
        await bench.ask()
        assert bench.cache.weight_bytes == alone


async def test_rules_that_agents_share_weigh_once() -> None:
    async with caching({SITE: FILE + MORE_RULES}, store=MemoryStore()) as bench:
        rules = (await bench.ask()).rules[BOT]
        alone = bench.cache.weight_bytes
        await bench.ask(agent="another-bot")
        assert 0 <= bench.cache.weight_bytes - alone < rules.weight_bytes / 2


async def test_large_files_that_are_read_at_the_same_time_weigh_what_they_take() -> None:
    sites = [f"https://site{number}.example" for number in range(8)]
    async with caching({site: f"{FILE}Disallow: /{site}/{'x' * 8_000}" for site in sites}) as bench:
        copies = await asyncio.gather(*map(bench.ask, sites))
        assert bench.cache.weight_bytes == sum(copy.own_bytes + copy.rules.weight_bytes for copy in copies)
        for site in sites:
            await bench.cache.forget(Origin.of(site))
        assert bench.cache.weight_bytes == 0


async def test_a_copy_that_serves_on_without_its_record_weighs_what_it_takes() -> None:
    async with caching({SITE: [FILE, 503]}, store=MemoryStore()) as bench:
        before = await bench.ask()
        await bench.store.delete(SITE)
        await bench.ask_after(0.95 * DAY)
        kept = bench.cache.entries[SITE]
        assert kept.own_bytes - before.own_bytes > len(kept.source.fault) > 0
        assert bench.cache.weight_bytes == kept.own_bytes + kept.rules.weight_bytes
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == 0


@each_store
async def test_agents_that_different_groups_bind_have_rule_sets_of_their_own() -> None:
    groups = "User-agent: a\nUser-agent: b\nDisallow: /a\nUser-agent: b\nUser-agent: c\nDisallow: /c\n"
    late = "User-agent: d\nCrawl-delay: 5\nUser-agent: e\nUser-agent: f\nDisallow: /d\nContent-Usage: train-ai=n\n"
    async with caching({SITE: groups + late}) as bench:
        rules = {agent: (await bench.ask(agent=agent)).rules[agent] for agent in "abcdefxy"}
    assert len({id(rule_set) for rule_set in rules.values()}) == 7
    assert rules["x"] is rules["y"]
    assert [rules[agent].crawl_delay for agent in "def"] == [5, None, None]


WEIGHED: list[tuple[str | int, str]] = [(FILE, "# {}"), (404, ""), (503, ""), (FILE, ""), (FILE + MORE_RULES, "# {}")]


@each_store
@pytest.mark.parametrize("files", first_of(1, WEIGHED))
@each_store
async def test_the_entries_weigh_about_what_they_take(files: tuple[str | int, str]) -> None:
    answer, own = files
    sites: dict[str, Answer | list[Answer]] = {
        site_number(at): answer if isinstance(answer, int) else answer + own.format(at) for at in range(300)
    }
    async with caching(sites) as bench:
        bench.gate.state.publisher._log = ()  # the log knows the origins that are closed, too
        await bench.ask(site_number(0))
        tracemalloc.start()
        try:
            for site in sites:
                rules = (await bench.ask(site)).rules
                assert not rules or rules[BOT].allowed("/some/path")
            bench.scripted.requests.clear()  # they know the origins, too
            weight_bytes = bench.cache.weight_bytes
            gc.collect()
            with_bytes, _ = tracemalloc.get_traced_memory()
            bench.cache.shut()
            gc.collect()
            taken_bytes = with_bytes - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert 0.75 < weight_bytes / taken_bytes < 1.35


async def test_an_entry_that_was_let_go_comes_back_from_the_store_without_a_request() -> None:
    sites: dict[str, Answer | list[Answer]] = {site_number(number): FILE for number in range(100)}
    async with caching(sites, options=CacheOptions(max_entries_bytes=10_000), store=MemoryStore()) as bench:
        for number in range(100):
            await bench.ask(site_number(number))
        assert bench.cache.valid(site_number(0)) is None
        assert not (await bench.ask(site_number(0))).rules[BOT].allowed("/private")
        assert bench.scripted.count(site_number(0)) == 1


async def test_a_big_file_is_weighed_in_a_thread_because_that_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh, threads = RuleSet._beside_rules_bytes, []

    def observed(rules: RuleSet) -> int:
        threads.append(threading.current_thread())
        return weigh(rules)

    monkeypatch.setattr(RuleSet, "_beside_rules_bytes", observed)
    many = "".join(f"Request-rate: 1/{number}s {number % 24:02}00-2359\n" for number in range(1, 3_000))
    async with caching({SITE: f"User-agent: *\nDisallow: /private\n{many}"}) as bench:
        assert not (await bench.ask(SITE)).rules[BOT].allowed("/private")
        assert bench.cache.weight_bytes > 300_000
    assert threads
    assert threading.current_thread() not in threads


@each_store
async def test_a_big_file_is_read_in_a_thread_and_a_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    parse = RobotsTxt.parse

    def observed(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        threads.append(threading.current_thread())
        return parse(body, dialect, origin=origin)

    monkeypatch.setattr(RobotsTxt, "parse", observed)
    async with caching({SITE: FILE + "#" * 4_000, site_number(1): FILE + "#" * 5_000}) as bench:
        for site in (SITE, site_number(1)):
            assert not (await bench.ask(site)).rules[BOT].allowed("/private")
    small, big = threads
    assert small is threading.current_thread() is not big


async def test_large_files_are_packed_and_unpacked_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_loop: list[str] = []
    for name in ("compress", "compressobj", "decompress", "decompressobj"):
        call = getattr(zlib, name)

        def observed(*given: object, name: str = name, call: Callable[..., object] = call, **named: object) -> object:
            if threading.current_thread() is threading.main_thread():
                on_the_loop.append(name)
            return call(*given, **named)

        monkeypatch.setattr(zlib, name, observed)
    large = "User-agent: *\nDisallow: /private\n" + "".join(f"# {at * at:x}\n" for at in range(40_000))
    fetcher = ScriptedFetcher({site_number(number): large + str(number) for number in range(6)})
    store = MemoryStore()
    for kept in (None, store, store):  # at the third time, the store has the files
        async with Gatekeeper(UA, fetcher=fetcher, store=kept) as gate:
            for number in range(6):
                assert not await gate.check(f"{site_number(number)}/private")
    assert on_the_loop == []
    assert len(fetcher.requests) == 12


async def test_an_agent_that_asks_while_a_big_file_is_read_causes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    parse = RobotsTxt.parse

    def held_back(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        reading.set()
        go_on.wait(10)
        return parse(body, dialect, origin=origin)

    monkeypatch.setattr(RobotsTxt, "parse", held_back)
    async with caching({SITE: FILE + "#" * 200_000}, store=MemoryStore()) as bench:
        first = bench.start(agent=BOT)
        await asyncio.to_thread(reading.wait, 10)
        second = bench.start(agent=OTHER)
        await settle()
        go_on.set()
        assert (await first).rules[BOT].allowed("/public")
        assert not (await second).rules[OTHER].allowed("/public")
        assert bench.scripted.count(SITE) == 1


@each_store
async def test_parser_that_raises_closes_the_gate_and_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        raise RecursionError("bug")

    monkeypatch.setattr(RobotsTxt, "parse", broken)
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert [type(failure.error) for failure in bench.failures()] == [RecursionError]


async def test_forgotten_file_is_fetched_again_without_condition() -> None:
    async with caching({SITE: [file(etag='"x"'), 404]}, store=MemoryStore()) as bench:
        await bench.ask()
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.valid(SITE) is None
        assert await bench.store.get(SITE) is None
        assert (await bench.ask()).source.result is AccessResult.UNAVAILABLE
        assert bench.scripted.requests[1].validators is None


@each_store
async def test_forgetting_during_a_fetch_still_answers_the_waiters() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        await bench.cache.forget(Origin.of(SITE))
        bench.scripted.gate.set()
        assert not (await task).rules[BOT].allowed("/private")
        assert bench.scripted.count(SITE) == 1


# Without a store: what is kept in memory, and when another fetch is made


async def test_nothing_is_encoded_or_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    def encoded(*_: object, **__: object) -> bytes:
        raise AssertionError("something is encoded")

    for module, name in ((zlib, "compress"), (zlib, "compressobj"), (json, "dumps"), (json.JSONEncoder, "encode")):
        monkeypatch.setattr(module, name, encoded)
    fetcher = ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        verdict = await gate.check(f"{SITE}/private")
        assert (verdict.reason, len(verdict.digest)) == (Reason.DISALLOW_RULE, 64)
        await gate.forget(SITE)
        await gate.check(f"{SITE}/private")
        assert fetcher.count(SITE) == 2


async def test_copy_is_confirmed_by_its_rules_alone() -> None:
    first = file(etag='"x"', cache_control="max-age=600")
    async with caching({SITE: [first, not_modified(), not_modified()]}) as bench:
        rules = (await bench.ask()).rules[BOT]
        for _ in range(2):
            bench.clock.advance(600)
            entry = await bench.ask()
            assert entry.rules[BOT] is rules
            assert entry.body is None
        asked = [request.validators for request in bench.scripted.requests]
        assert asked == [None, *[Validators(f"{SITE}/robots.txt", '"x"', "")] * 2]


async def test_agent_that_comes_later_causes_one_fetch_without_condition_and_no_more() -> None:
    async with caching({SITE: file(etag='"x"'), "https://two.example": FILE}) as bench:
        await bench.ask(agent=BOT)
        for agent in (OTHER, BOT, OTHER):
            assert (await bench.ask(agent=agent)).rules[agent].allowed("/private") is False
        assert [request.validators for request in bench.scripted.requests] == [None, None]
        for agent in (BOT, OTHER, "thirdbot"):  # from now on the files are kept
            assert (await bench.ask("https://two.example", agent)).answers(agent)
        assert bench.scripted.count("https://two.example") == 1


async def test_view_that_is_made_first_needs_no_fetch_of_its_own() -> None:
    fetcher = ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        other = gate.agent(tokens=OTHER, user_agent="otherbot/1.0")
        assert await gate.check(f"{SITE}/public")
        assert not await other.check(f"{SITE}/public")
    assert fetcher.count(SITE) == 1


async def test_fetch_for_a_later_agent_delays_no_page_that_is_due() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=10)) as gate:
        await gate.check(f"{SITE}/public")
        await clock.sleep(100)
        await gate.agent(tokens=OTHER, user_agent="otherbot/1.0").check(f"{SITE}/public")
        assert fetcher.count(SITE) == 2
        before_mono = clock.monotonic()
        async with gate.turn(f"{SITE}/public"):
            assert clock.monotonic() - before_mono < 1


async def test_agent_that_comes_while_the_site_fails_waits_for_the_backoff() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask(agent=BOT)
        for _ in range(3):
            assert (await bench.ask(agent=OTHER)).source.result is AccessResult.UNREACHABLE
            bench.clock.advance(10)
        assert bench.scripted.count(SITE) == 2
        bench.clock.advance(30)
        assert not (await bench.ask(agent=OTHER)).rules[OTHER].allowed("/public")
        assert bench.scripted.count(SITE) == 3


async def test_agent_that_comes_while_an_older_copy_serves_is_denied_until_the_next_fetch() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask(agent=BOT)
        assert (await bench.ask_after(0.95 * DAY)).source.result is AccessResult.SUCCESSFUL
        assert bench.scripted.count(SITE) == 2
        entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2, "the backoff holds for every agent"
        bench.clock.advance(60)
        assert (await bench.ask(agent=OTHER)).answers(OTHER)
        assert (await bench.ask(agent=BOT)).answers(BOT)
        assert bench.scripted.count(SITE) == 3


async def test_copy_that_does_not_serve_for_twelve_hours_serves_afterwards() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: [FILE, 503]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, dialect=Dialect.GOOGLE) as gate:
        assert not await gate.check(f"{SITE}/private")
        clock.advance(DAY)
        reasons = []
        for _ in range(14):
            reasons.append((await gate.check(f"{SITE}/private")).reason)
            clock.advance(HOUR)
        assert reasons == [Reason.UNREACHABLE] * 12 + [Reason.DISALLOW_RULE] * 2
        assert (await gate.check(f"{SITE}/public")).allowed


async def test_file_that_appears_is_read_for_the_agent_of_the_last_question() -> None:
    async with caching({SITE: [status(404, cache_control="max-age=600"), FILE]}) as bench:
        await bench.ask()
        await bench.ask_after(590)
        entry = bench.cache.valid(SITE)
        assert entry is not None
        assert not entry.rules[BOT].allowed("/private")
        assert bench.scripted.count(SITE) == 2


async def test_copies_that_were_evicted_last_are_found_again_within_a_bound() -> None:
    sites = [site_number(number) for number in range(20)]
    for rules, fetches in (("", 1), ("".join(f"Disallow: /{number}/{'x' * 90}\n" for number in range(2_000)), 2)):
        files: dict[str, Answer | list[Answer]] = {site: f"{FILE}{rules}# {site}" for site in sites}
        clock = ManualClock(autojump=True)
        async with caching(files, options=CacheOptions(max_entries_bytes=1), clock=clock) as bench:
            for _ in range(2):
                for site in sites:
                    assert not (await bench.ask(site, OTHER)).rules[OTHER].allowed("/public")
            assert len(bench.cache.entries) == 1
            assert [bench.scripted.count(site) for site in sites] == [fetches] * 20
            await bench.cache.forget(Origin.of(sites[0]))
            await bench.ask(sites[0])
            assert bench.scripted.count(sites[0]) == fetches + 1


async def test_policy_tokens_need_no_fetch_of_their_own() -> None:
    fetcher = ScriptedFetcher({SITE: FILE})
    tokens = {"ai-train": "Example-Train", "search": "Example-Search"}
    async with Gatekeeper(UA, fetcher=fetcher, policy_tokens=tokens) as gate:
        assert await gate.check(f"{SITE}/public")
    assert fetcher.count(SITE) == 1


async def test_wall_clock_that_is_set_back_shortens_no_wait_and_lengthens_no_lifetime() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask()
        bench.clock.advance(DAY - 1)
        bench.clock.set_wall(bench.clock.wall() - 10 * DAY)
        held = bench.cache.valid(SITE)
        assert held is not None
        assert held.source.fetched_wall == bench.clock.wall() - (DAY - 1)
        bench.clock.advance(2)
        assert bench.cache.valid(SITE) is None
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE, "the file is older than a day"
        bench.clock.set_wall(bench.clock.wall() - 10 * DAY)
        bench.clock.advance(59)
        assert (await bench.ask()).source.result is AccessResult.UNREACHABLE
        bench.clock.advance(1)
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


async def test_all_times_of_a_source_move_with_a_wall_clock_that_is_set_back() -> None:
    rows: list[tuple[list[Answer], float]] = [([FILE, 503], 0.95 * DAY), ([503, 503], 100.0)]
    for answers, seconds in rows:
        async with caching({SITE: answers}) as bench:
            await bench.ask()
            await bench.ask_after(seconds)
            before = (await bench.ask()).source
            bench.clock.set_wall(bench.clock.wall() - HOUR)
            entry = await bench.ask()
            moved = {
                name: getattr(before, name) - getattr(entry.source, name)
                for name in ("fetched_wall", "fresh_until_wall", "not_before", "failing_since_wall")
                if getattr(before, name) is not None
            }
            assert set(moved.values()) == {HOUR}, moved
            assert len(moved) == (2 if before.failing_since_wall is None else 4)
            assert (entry.source.result, entry.source.fault) == (before.result, before.fault)


async def test_fetcher_that_follows_a_redirect_itself_closes_and_paces_the_host_that_answered() -> None:
    clock = ManualClock(autojump=True)

    class Following(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            await super().fetch(request)
            return FetchResponse(429, "https://cdn.example/r", {"retry-after": "600"})

    async with Gatekeeper(UA, fetcher=Following(), clock=clock) as gate:
        assert (await gate.check(f"{SITE}/page")).reason is Reason.TOO_MANY_REQUESTS
        verdict = await gate.check("https://cdn.example/page")
        assert verdict.reason is Reason.TOO_MANY_REQUESTS
        assert verdict.source is not None
        assert "no request is sent to cdn.example" in verdict.source.fault


# Caches of several processes that share a store which leases: one of them fetches, and all answer by its record


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> LeasingDict:
    return LeasingDict(clock)


@asynccontextmanager
async def two(store: LeasingDict, clock: ManualClock, *answers: Answer) -> AsyncIterator[tuple[Bench, Bench]]:
    """Return the caches of two processes, which are answered alike."""
    async with (
        caching({SITE: list(answers)}, store=store, clock=clock) as one,
        caching({SITE: list(answers)}, store=store, clock=clock) as other,
    ):
        yield one, other


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass in steps in which every task may go on."""
    for _ in range(round(seconds / 0.05)):
        clock.advance(0.05)
        await settle()


def calls(store: LeasingDict) -> list[tuple[str, str]]:
    """Return the calls about SITE; there are others about the pace of its host."""
    return [call for call in store.calls if call[1] == SITE]


def requests(*benches: Bench) -> int:
    return sum(bench.scripted.count(SITE) for bench in benches)


async def test_one_request_serves_all_whatever_its_answer() -> None:
    closed = FetchFault(FaultKind.HOST_CLOSED, "shut", SITE, retry_after_s=60)
    answers: list[tuple[Answer, AccessResult]] = [
        (FILE, AccessResult.SUCCESSFUL),
        (404, AccessResult.UNAVAILABLE),
        (503, AccessResult.UNREACHABLE),
        (status(503, retry_after="600"), AccessResult.UNREACHABLE),
        (status(429, retry_after="600"), AccessResult.TOO_MANY_REQUESTS),
        (FetchFault(FaultKind.TLS, "bad", SITE), AccessResult.UNREACHABLE),
        (ValueError("a bug"), AccessResult.UNREACHABLE),
        (closed, AccessResult.TOO_MANY_REQUESTS),
    ]
    for answer, result in answers:
        clock = ManualClock()
        store = LeasingDict(clock)
        async with two(store, clock, answer) as (one, other):
            one.scripted.gate.clear()
            asked = [one.start(), one.start(agent=OTHER), other.start(), other.start(agent=OTHER)]
            await pass_time(clock, 1.0)
            assert not any(task.done() for task in asked)
            one.scripted.gate.set()
            await pass_time(clock, 0.5)
            assert {(await task).source.result for task in asked} == {result}
            assert requests(one, other) == 1
            assert store.leases == {}


async def test_a_new_origin_takes_a_call_before_and_after_its_fetch(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        await one.ask()
        assert calls(store) == [("get_or_lease", SITE), ("put_leased", SITE)]
        await other.ask()
        assert calls(store)[2:] == [("get_or_lease", SITE)]


async def test_a_copy_that_is_due_is_refreshed_once_for_all(store: LeasingDict, clock: ManualClock) -> None:
    answers = (file(cache_control="max-age=3600", etag='"1"'), not_modified(cache_control="max-age=3600"))
    async with two(store, clock, *answers) as (one, other):
        other.scripted.answers[SITE] = answers[1]
        await one.ask()
        await other.ask()
        clock.advance(0.95 * 3600)
        for bench in (one, other):
            await bench.ask()
            await pass_time(clock, 0.5)
        assert requests(one, other) == 2
        assert one.cache.entries[SITE].source.fetched_wall == other.cache.entries[SITE].source.fetched_wall
        clock.advance(0.5 * 3600)
        await one.ask()
        await other.ask()
        await settle()
        assert requests(one, other) == 2


async def test_while_another_process_refreshes_the_old_copy_serves(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, file(cache_control="max-age=3600"), "User-agent: *\nDisallow: /") as (one, other):
        await one.ask()
        await other.ask()
        clock.advance(0.95 * 3600)
        one.scripted.gate.clear()
        await one.ask()
        await settle()
        old = other.cache.entries[SITE]
        assert await other.ask() is old
        await pass_time(clock, 0.5)
        assert await other.ask() is old
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        assert (await other.ask()).source.fetched_wall > old.source.fetched_wall
        assert requests(one, other) == 2


async def test_a_lease_is_renewed_while_its_fetch_runs_and_no_longer(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        asked = [one.start(), other.start()]
        await pass_time(clock, 20.0)
        renewed = store.renewed
        assert 15 <= renewed <= 20  # once a second
        assert requests(one, other) == 1
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        await asyncio.gather(*asked)
        await pass_time(clock, 10.0)
        assert store.renewed == store.count("renew") == renewed


async def test_a_process_that_closes_in_mid_fetch_hands_its_lease_on(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        lost, asked = one.start(), other.start()
        await settle()
        await one.cache.aclose()
        with pytest.raises(ClosedError):
            await lost
        await pass_time(clock, 0.1)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert (store.count("release"), requests(other)) == (1, 1)


async def test_a_leader_that_is_gone_is_replaced_when_its_lease_ends(store: LeasingDict, clock: ManualClock) -> None:
    store.leases[SITE] = ("00000001", clock.monotonic() + 3.0)
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 2.9)
        assert not asked.done()
        await pass_time(clock, 0.15)
        assert (await asked).source.result is AccessResult.SUCCESSFUL


async def test_a_leader_that_was_late_replaces_no_newer_record(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        other.scripted.answers[SITE] = "User-agent: *\nDisallow: /"
        late = one.start()
        await settle()
        store.fails["renew"] = StoreError("a cable is out")
        clock.advance(3.0)  # its event loop stands still
        newer = await other.ask()
        store.fails.clear()
        one.scripted.gate.set()
        assert (await late).source.result is AccessResult.SUCCESSFUL
        assert store.refused == [SITE]
        assert other.cache.entries[SITE] is newer
    async with caching(store=store, clock=clock) as later:
        assert not (await later.ask()).rules[BOT].allowed("/")


async def test_nobody_waits_for_ever_for_another_process(store: LeasingDict, clock: ManualClock) -> None:
    store.leases[SITE] = ("00000001", float("inf"))
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 29.9)
        assert not asked.done()
        assert store.count("get_or_lease") < 200
        await pass_time(clock, 0.5)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert bench.failures() == []
        assert SITE in store.records


async def test_a_store_that_fails_is_published_once_and_a_file_fetched(store: LeasingDict, clock: ManualClock) -> None:
    error = store.fails["get_or_lease"] = StoreError("a cable is out")
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
        assert [failure.error for failure in bench.failures()] == [error]
        assert calls(store) == [("get_or_lease", SITE), ("put", SITE)]


async def test_a_store_that_fails_while_others_fetch_ends_the_wait(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        first, asked = one.start(), other.start()
        await pass_time(clock, 0.5)
        store.fails["get_or_lease"] = StoreError("a cable is out")
        await pass_time(clock, 0.5)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert len(other.failures()) == 1
        one.scripted.gate.set()
        await first


async def test_a_record_that_cannot_be_read_is_published_and_replaced(store: LeasingDict, clock: ManualClock) -> None:
    for damaged in (b"", b"nonsense", b"politesse/2 nonsense"):
        await store.put(SITE, damaged)
        async with caching({SITE: FILE}, store=store, clock=clock) as bench:
            assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
            assert len(bench.failures()) == 1
        assert await is_kept(store)


async def test_a_store_that_ignores_the_version_does_not_keep_a_process_busy(
    store: LeasingDict, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(SITE, b"nonsense")
    honest = store.get_or_lease
    monkeypatch.setattr(store, "get_or_lease", lambda key, _: honest(key, ""))
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 31.0)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert store.count("get_or_lease") < 200


async def test_what_was_forgotten_while_another_process_fetched_is_not_taken_from_the_store(
    store: LeasingDict, clock: ManualClock
) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        first, asked = one.start(), other.start()
        await settle()
        await other.cache.forget(Origin.of(SITE))
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        await asyncio.gather(first, asked)
        assert (requests(one), requests(other)) == (1, 1)


async def test_an_error_of_the_stores_program_releases_the_lease(store: LeasingDict, clock: ManualClock) -> None:
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        store.fails["put_leased"] = ZeroDivisionError("a bug")
        assert (await bench.ask(agent=BOT)).source.result is AccessResult.UNREACHABLE
        assert [type(failure.error) for failure in bench.failures()] == [ZeroDivisionError]
        await settle()
        assert store.leases == {}


# The other files of a site are kept as robots.txt is, in memory only


PATH = "/data.txt"
URL = f"{SITE}{PATH}"
DATA = "Dataset: /d.csv\n"
DRAFT = "A Method for Web Data Discovery"


class FileBench:
    """The files of a gate, fetched without turns; waits have no jitter."""

    def __init__(self, *answers: Answer, options: CacheOptions | None = None, fetcher: Fetcher | None = None) -> None:
        self.clock = ManualClock()
        self.scripted = ScriptedFetcher({URL: list(answers)} if answers else {})
        self.events: list[Event] = []
        self.gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=self.clock, cache=options)
        self.gate.subscribe(self.events.append)
        self.files = self.gate.state.files
        self.files._fetcher = fetcher or self.scripted
        self.files._jitter = lambda: 0.0

    async def ask(self, site: str = SITE, path: str = PATH) -> SiteFile:
        return await self.files.get(Origin.of(site), path)

    def start(self) -> asyncio.Task[SiteFile]:
        return asyncio.create_task(self.ask())

    @property
    def asked(self) -> int:
        return len(self.scripted.requests)


@asynccontextmanager
async def keeping(*answers: Answer, **parts: Any) -> AsyncIterator[FileBench]:
    before = asyncio.all_tasks()
    bench = FileBench(*answers, **parts)
    try:
        yield bench
    finally:
        await bench.gate.aclose()
    assert asyncio.all_tasks() == before


def respond(status: int, body: str = "", *, conditional: bool = False, **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(status, URL, named, body.encode(), conditional=conditional)


def fault(kind: FaultKind, status: int | None = None) -> FetchFault:
    return FetchFault(kind, "as the test says", URL, status)


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_missing_or_refused_file_is_unknown_and_fetched_again_after_a_day() -> None:
    for status in (400, 401, 403, 404, 410, 451, 499):
        async with keeping(status) as bench:
            file = await bench.ask()
            assert (file.outcome, file.status, file.body, file.not_before) == (FileOutcome.UNKNOWN, status, b"", None)
            bench.clock.advance(0.89 * DAY)
            assert (await bench.ask()).outcome is FileOutcome.UNKNOWN
            assert bench.asked == 1
            bench.clock.advance(0.11 * DAY)
            await bench.ask()
            assert bench.asked == 2


async def test_unsettled_file_is_retried_after_a_backoff_and_not_per_question() -> None:
    answers: list[Answer] = [respond(status) for status in (206, 304, 518, 500, 502, 503, 504, 429)]
    answers += [fault(kind) for kind in FaultKind if kind is not FaultKind.REDIRECT_LIMIT]
    for answer in [*answers, RuntimeError("bug")]:
        async with keeping(answer) as bench:
            file = await bench.ask()
            assert (file.outcome, file.body) == (FileOutcome.RETRY, b"")
            assert "RuntimeError: bug" in file.fault if isinstance(answer, RuntimeError) else file.fault
            assert file.not_before == bench.clock.wall() + 60
            bench.clock.advance(59)
            again = await bench.ask()
            assert (again.outcome, again.age_s, bench.asked) == (FileOutcome.RETRY, 59, 1)
            bench.clock.advance(1)
            assert (await bench.ask()).not_before == bench.clock.wall() + 120
            assert bench.asked == 2


@pytest.mark.clause(f"{DRAFT} 3.4")
async def test_a_file_is_kept_for_as_long_as_its_headers_say_or_a_week() -> None:
    rows: list[tuple[dict[str, str], float]] = [
        ({}, 7 * DAY),
        ({"cache-control": "max-age=3600"}, HOUR),
        ({"cache-control": "max-age=3600", "age": "3000"}, 600),
        ({"expires": "Fri, 15 Jan 2027 09:00:00 GMT", "date": "Fri, 15 Jan 2027 08:00:00 GMT"}, HOUR),
        ({"expires": "0"}, 60),
        ({"cache-control": "no-store"}, 60),
        ({"cache-control": "max-age=31536000"}, 7 * DAY),
    ]
    for headers, lifetime_s in rows:
        answers = [FetchResponse(200, URL, headers, body.encode()) for body in ("A: 1", "A: 2")]
        async with keeping(*answers, options=CacheOptions(refresh_after=1.0)) as bench:
            await bench.ask()
            bench.clock.advance(lifetime_s - 1)
            file = await bench.ask()
            assert (file.body, file.age_s, bench.asked) == (b"A: 1", lifetime_s - 1, 1)
            bench.clock.advance(1)
            assert ((await bench.ask()).body, bench.asked) == (b"A: 2", 2)


async def test_a_file_that_has_gone_is_unknown_at_once() -> None:
    async with keeping(respond(200, DATA, cache_control="max-age=3600"), 404) as bench:
        await bench.ask()
        bench.clock.advance(HOUR)
        file = await bench.ask()
        assert (file.outcome, file.body) == (FileOutcome.UNKNOWN, b"")


async def test_a_file_that_was_cut_says_so_for_as_long_as_it_is_kept() -> None:
    cut = FetchResponse(200, URL, {"etag": '"1"', "cache-control": "max-age=60"}, b"A: 1\n", truncated=True)
    whole = respond(200, DATA, conditional=True)
    async with keeping(cut, respond(304, conditional=True), 500, whole) as bench:
        truncated = []
        for _ in range(5):
            truncated.append((await bench.ask()).truncated)
            await settle()
            bench.clock.advance(60)
        # The fourth answer is still the copy that serves while the file is unreachable, asked for again behind it.
        assert truncated == [True, True, True, True, False]


async def test_only_files_of_the_forgotten_origin_are_fetched_again() -> None:
    other = "https://example.com.evil.example"
    async with keeping() as bench:
        for site in (SITE, other):
            await bench.ask(site)
        before = bench.files.weight_bytes
        bench.files.forget(Origin.of(SITE))
        assert 0 < bench.files.weight_bytes < before
        for site in (SITE, other):
            await bench.ask(site)
        assert (bench.scripted.count(URL), bench.scripted.count(f"{other}{PATH}")) == (2, 1)


async def test_a_look_is_a_use() -> None:
    sites = [f"https://host{number}.example" for number in range(10)]
    async with keeping(options=CacheOptions(max_site_files_bytes=50_000)) as bench:
        bench.scripted.answers |= {f"{site}{PATH}": b"A" * 10_000 for site in sites}
        for site in sites:
            await bench.ask(site)
            assert bench.files.peek(Origin.of(sites[0]), PATH) is not None


async def test_a_look_may_come_late_but_not_at_what_is_to_be_retried() -> None:
    for answer, late in ((respond(200, "A", cache_control="max-age=100"), True), (respond(503), False)):
        async with keeping(answer) as bench:
            await bench.ask()
            bench.clock.advance(150)
            assert bench.files.peek(Origin.of(SITE), PATH) is None
            assert (bench.files.peek(Origin.of(SITE), PATH, late_s=60) is not None) is late
            assert bench.files.peek(Origin.of(SITE), PATH, late_s=40) is None


async def test_every_request_is_published_as_an_event() -> None:
    async with keeping(404, fault(FaultKind.TIMEOUT)) as bench:
        await bench.ask()
        await bench.ask()
        bench.clock.advance(DAY)
        await bench.ask()
        assert bench.events == [
            SiteFileFetched(URL, 404, "", FileOutcome.UNKNOWN),
            SiteFileFetched(URL, None, "timeout: as the test says", FileOutcome.RETRY),
        ]


class _Refusing:
    """A fetcher that does not ask."""

    def __init__(self) -> None:
        self.times = 0

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.times += 1
        await asyncio.sleep(0)
        raise PolitesseError(f"not {request.url}")

    async def aclose(self) -> None:
        raise AssertionError("it is closed by its owner")


async def test_refusal_to_fetch_is_raised_in_all_waiters_and_not_kept() -> None:
    refusing = _Refusing()
    async with keeping(fetcher=refusing) as bench:
        answers = await asyncio.gather(bench.start(), bench.start(), return_exceptions=True)
        assert [str(answer) for answer in answers] == [f"not {URL}"] * 2
        with pytest.raises(PolitesseError, match="not https"):
            await bench.ask()
        assert (refusing.times, bench.events, bench.files.weight_bytes) == (2, [], 0)
