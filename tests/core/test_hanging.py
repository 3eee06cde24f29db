"""What hangs holds up nobody for longer than they would wait, nor the close of the gate; and it opens nothing."""

import asyncio
import gc
from typing import Any

import pytest

from politesse import (
    Bound,
    CacheOptions,
    ClosedError,
    Gatekeeper,
    HostPolicy,
    PacingOptions,
    PoliteQueue,
    Reason,
    TooFar,
)
from politesse.errors import StoreError
from politesse.options import Limit
from politesse.ports import FetchRequest, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import failures_of
from tests.support.pacing import Resolving
from tests.support.stores import FailingStore
from tests.support.tasks import settle

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
URL = f"{SITE}/page"
ROBOTS = "User-agent: *\nDisallow: /private\n"
TIMEOUT = 5.0  # the default of CacheOptions.store_timeout_s


class HangingFetcher(ScriptedFetcher):
    """Answers no request for a path that it was told to hang at."""

    def __init__(self, answers: dict[str, Any], *paths: str) -> None:
        super().__init__(answers)
        self.paths = paths
        self.release = asyncio.Event()

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if request.path in self.paths:
            self.requests.append(request)
            await self.release.wait()
        return await super().fetch(request)


async def _too_far(gate: Gatekeeper, clock: ManualClock, url: str = URL, max_wait_s: float = 1.0) -> TooFar:
    """Return the error of a turn that comes too late, which has to be told in time."""
    asked_mono = clock.monotonic()
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(url, max_wait_s=max_wait_s)
    assert clock.monotonic() == asked_mono + max_wait_s
    return caught.value


async def test_max_wait_bounds_the_fetch_of_robots_txt_which_goes_on_for_the_others(clock: ManualClock) -> None:
    fetcher = HangingFetcher({SITE: ROBOTS}, "/robots.txt")
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        patient = asyncio.ensure_future(gate.check(URL))
        error = await _too_far(gate, clock)
        assert (error.host, error.not_yet.bound_by) == ("example.com", Bound.ROBOTS_TXT)
        fetcher.release.set()
        assert (await patient).reason is Reason.NO_RULE
        async with gate.turn(URL, max_wait_s=5):
            pass
        assert len(fetcher.requests) == 2  # what hung has asked once, and been answered once


async def test_max_wait_bounds_a_store_that_hangs(clock: ManualClock) -> None:
    store = FailingStore({}, "get")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: ROBOTS}), clock=clock, store=store) as gate:
        assert (await _too_far(gate, clock)).not_yet.bound_by is Bound.ROBOTS_TXT


async def test_max_wait_bounds_the_fetch_of_tdmrep_json(clock: ManualClock) -> None:
    fetcher = HangingFetcher({SITE: ROBOTS}, "/.well-known/tdmrep.json")
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate:
        assert (await _too_far(gate, clock, max_wait_s=100)).not_yet.bound_by is Bound.ROBOTS_TXT
        fetcher.release.set()
        async with gate.turn(URL, max_wait_s=100):
            pass


async def test_max_wait_bounds_the_lookup_of_the_address_that_a_host_is_paced_by(clock: ManualClock) -> None:
    hanging = Resolving({})
    hanging.gate.clear()
    pacing = PacingOptions(address=Limit())
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing, resolver=hanging) as gate:
        gate.set_policy("example.com", HostPolicy(exempt=True, reason="a partner"))
        assert (await _too_far(gate, clock)).not_yet.bound_by is Bound.ADDRESS


async def test_max_wait_of_zero_uses_only_known_answers(clock: ManualClock) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: ROBOTS}), clock=clock) as gate:
        await gate.check(URL)
        await clock.sleep(5)
        async with gate.turn(URL, max_wait_s=0):
            pass
    hanging = HangingFetcher({SITE: ROBOTS}, "/robots.txt")
    async with Gatekeeper(UA, fetcher=hanging, clock=clock) as gate:
        await _too_far(gate, clock, max_wait_s=0)


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("method", ["get", "put"])
async def test_a_store_that_hangs_is_reported_and_bypassed(method: str, clock: ManualClock, *, stubborn: bool) -> None:
    store = FailingStore({}, method, stubborn=stubborn)
    fetcher = ScriptedFetcher({SITE: ROBOTS})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store) as gate:
        failures = failures_of(gate)
        assert (await gate.check(URL)).reason is Reason.NO_RULE
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        assert clock.monotonic() == TIMEOUT
        assert fetcher.count(SITE) == 1
        store.release.set()
        await settle()
        (failure,) = failures  # in ``put``, that of the record or of the host: both hang
        assert str(failure.origin) in ({SITE} if method == "get" else {SITE, "None"})
        assert failure.component == "store"
        assert isinstance(failure.error, StoreError)
        assert "store_timeout_s=5" in str(failure.error)


async def test_the_timeout_of_a_store_is_an_option(clock: ManualClock) -> None:
    options = CacheOptions(store_timeout_s=0.25)
    store = FailingStore({}, "get")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, store=store, cache=options) as gate:
        await gate.check(URL)
        assert clock.monotonic() == 0.25


async def test_forgetting_does_not_hang_on_the_store(clock: ManualClock) -> None:
    store = FailingStore({}, "delete")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, store=store) as gate:
        failures = failures_of(gate)
        await gate.check(URL)
        await gate.forget(SITE)
        assert clock.monotonic() == TIMEOUT
        assert [failure.component for failure in failures] == ["store"]


async def test_cancellation_during_a_failure_of_the_store_leaves_no_error(clock: ManualClock) -> None:
    class BrokenStore(FailingStore):
        async def delete(self, key: str, /) -> None:
            await super().delete(key)
            raise StoreError("broken")

    store, left = BrokenStore({}, "delete"), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context["message"]))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: ROBOTS}), clock=clock, store=store) as gate:
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


@pytest.mark.parametrize("stubborn", [False, True])
async def test_closing_does_not_hang_on_the_store(clock: ManualClock, *, stubborn: bool) -> None:
    store = FailingStore({}, "get", "aclose", stubborn=stubborn)
    fetcher = ScriptedFetcher()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store)
    failures = failures_of(gate)
    pending = asyncio.ensure_future(gate.check(URL))
    for _ in range(5):
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await gate.aclose()
    store.release.set()
    assert clock.monotonic() == TIMEOUT * (2 if stubborn else 1)
    assert fetcher.closed
    assert [(failure.origin, failure.component) for failure in failures] == [(None, "store")]
    with pytest.raises(ClosedError):
        await pending


async def test_a_queue_does_not_hang_on_the_store(clock: ManualClock) -> None:
    store = FailingStore({}, "get", "put", "delete")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: ROBOTS}), clock=clock, store=store) as gate:
        queue = PoliteQueue[None](gate)
        await queue.put(URL)
        async with asyncio.timeout(30), queue.turn() as turn:
            assert turn.url == URL
            assert clock.monotonic() <= 3 * TIMEOUT


async def test_a_store_whose_clock_moves_while_it_answers_is_believed() -> None:
    clock = ManualClock()

    class Slow(MemoryStore):
        async def get(self, key: str, /) -> bytes | None:
            clock.advance(2 * TIMEOUT)
            return await super().get(key)

    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: ROBOTS}), clock=clock, store=Slow()) as gate:
        assert (await gate.check(URL)).reason is Reason.NO_RULE
