"""Stores that fail in every way: no cached answer waits for them, nothing is opened by them, nobody waits for long."""

import asyncio
import time
from collections.abc import Callable

import pytest

from politesse import CacheOptions, Gatekeeper, Reason
from politesse.errors import StoreError
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import failures_of
from tests.support.scripted import SlowFetcher
from tests.support.stores import FailingStore, KeptStore
from tests.support.tasks import settle

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
FILE = "User-agent: *\nDisallow: /private\n"
METHODS = ("get", "put", "delete", "aclose")


def raises(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


FAILURES: dict[str, Callable[[], object] | None] = {
    "hangs": None,
    "StoreError": raises(StoreError("broken")),
    "OSError": raises(OSError("disk")),
    "CancelledError": raises(asyncio.CancelledError()),
    "BaseException": raises(BaseException("bug")),
    "text": lambda: "User-agent: *\nAllow: /\n",
    "garbage": lambda: b"User-agent: *\nAllow: /\n",
    "number": lambda: 7,
}


UNEXPECTED = {"OSError", "CancelledError", "BaseException"}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("method", METHODS)
async def test_no_failure_of_a_store_opens_a_site_or_reaches_the_caller(method: str, failure: str) -> None:
    clock = ManualClock(autojump=True)
    store = FailingStore({}, method, fail=FAILURES[failure])
    fetcher = ScriptedFetcher(
        {SITE: FILE, "https://down.example": 503, "https://closed.example": "User-agent: *\nDisallow: /"}
    )
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store)
    failures = failures_of(gate)
    for _ in range(3):
        assert not (await gate.check(f"{SITE}/private")).allowed
        assert not (await gate.check("https://down.example/")).allowed
        assert not (await gate.check("https://closed.example/")).allowed
        await clock.sleep(1_000)
    if (await gate.check(f"{SITE}/public")).allowed:
        async with gate.turn(f"{SITE}/public") as turn:
            turn.observe(200)
    forgotten, closed = [
        (await asyncio.gather(end, return_exceptions=True))[0] for end in (gate.forget(SITE), gate.aclose())
    ]
    # The program that has something deleted, or closes the gate, learns of an error that no store should raise.
    assert forgotten is None or (method == "delete" and failure in UNEXPECTED)
    assert closed is None or (method == "aclose" and failure in {*UNEXPECTED, "StoreError"})
    harmless = method in {"put", "delete"} and failure in {"text", "garbage", "number"}
    assert failures or forgotten or closed or harmless or method == "aclose"
    assert {failed.component for failed in failures} <= {"store", "cache"}


@pytest.mark.parametrize("stubborn", [False, True])
async def test_cached_answers_do_not_wait_for_a_store_that_hangs(*, stubborn: bool) -> None:
    clock = ManualClock(autojump=True)
    store = FailingStore({}, stubborn=stubborn)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: FILE}), clock=clock, store=store) as gate:
        await gate.check(f"{SITE}/")
        await clock.sleep(5)
        store.methods = {*METHODS}
        for place in range(100):
            before_mono = clock.monotonic()
            assert (await gate.check(f"{SITE}/{place}")).reason is Reason.NO_RULE
            assert clock.monotonic() == before_mono
            async with gate.turn(f"{SITE}/{place}") as turn:
                turn.observe(200)
        assert clock.monotonic() < 5 + 100 * 1.01
        store.release.set()


async def test_a_thousand_cold_origins_one_by_one_hardly_wait_for_a_store_that_hangs() -> None:
    clock = ManualClock(autojump=True)
    store = FailingStore({}, "get", "put")
    async with Gatekeeper(UA, fetcher=SlowFetcher(clock), clock=clock, store=store) as gate:
        failures = failures_of(gate)
        for place in range(1_000):
            assert await gate.check(f"https://h{place}.example/")
        store.release.set()
    assert 100 <= clock.monotonic() <= 160  # 10,100 s without the pauses
    assert len(failures) <= 8


async def test_a_thousand_cold_origins_at_once_wait_for_one_limit() -> None:
    clock = ManualClock(autojump=True)
    store = FailingStore({}, "get", "put")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, store=store) as gate:
        failures = failures_of(gate)
        verdicts = await asyncio.gather(*(gate.check(f"https://h{place}.example/") for place in range(1_000)))
        store.release.set()
    assert all(verdicts)
    assert clock.monotonic() <= 5.0
    assert len(failures) == 1


async def test_a_thousand_cold_origins_at_once_wait_for_a_store_that_is_slow_as_long_as_one_does() -> None:
    took_s: list[float] = []
    for origins in (1, 1_000):
        clock = ManualClock(autojump=True)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, store=KeptStore({}, 4.9, clock)) as gate:
            failures = failures_of(gate)
            await asyncio.gather(*(gate.check(f"https://h{place}.example/") for place in range(origins)))
            took_s.append(clock.monotonic())
        assert failures == []
    assert took_s == pytest.approx([3 * 4.9, 3 * 4.9])  # to read the record and the host, and to write the record


async def test_record_of_another_origin_does_not_answer() -> None:
    records: dict[str, bytes] = {}
    other = "https://b.example"
    fetcher = ScriptedFetcher({SITE: "User-agent: *\nAllow: /\n", other: "User-agent: *\nDisallow: /\n"})
    async with Gatekeeper(UA, fetcher=fetcher, store=KeptStore(records)) as gate:
        assert (await gate.check(f"{SITE}/")).allowed
    records[other] = records[SITE]
    async with Gatekeeper(UA, fetcher=fetcher, store=KeptStore(records)) as gate:
        failures = failures_of(gate)
        assert not (await gate.check(f"{other}/")).allowed
        assert [str(failure.origin) for failure in failures] == [other]
    assert records[other] != records[SITE]


async def test_close_writes_the_record_of_a_check_that_was_answered() -> None:
    clock = ManualClock(autojump=True)
    store = KeptStore({}, 0.5, clock)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: FILE}), clock=clock, store=store) as gate:
        await gate.check(f"{SITE}/")
        forgetting = asyncio.ensure_future(gate.check("https://b.example/"))
        await settle()
    await asyncio.gather(forgetting, return_exceptions=True)
    assert SITE in store.records
    assert "pace/host/example.com" in store.records
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
async def test_calls_that_wait_for_a_busy_store_are_not_late() -> None:
    records: dict[str, bytes] = {}
    urls = [f"https://h{place}.example/" for place in range(3_000)]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(), store=KeptStore(records)) as gate:
        await asyncio.gather(*(gate.check(url) for url in urls))
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=BusyStore(records, 4.9, clock)) as gate:
        failures = failures_of(gate)
        assert all(await asyncio.gather(*(gate.check(url) for url in urls)))
    assert failures == []
    assert fetcher.requests == []


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
    assert failures == []
    assert fetcher.requests == []
