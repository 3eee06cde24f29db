"""Parts that hang hold up nobody for longer than they would wait, and what a part raises ends nobody who waits.

KeyboardInterrupt and SystemExit stop the program all the same: asyncio raises them out of the event loop.
"""

import asyncio
import gc
from itertools import product
from typing import Final

import pytest

from politesse import Bound, CacheOptions, ClosedError, HostPolicy, PacingOptions, PoliteQueue, Reason, TooFar
from politesse.errors import StoreError
from politesse.events import AddressNotFound, ComponentFailed, Event, RobotsFetched
from politesse.options import Limit
from politesse.ports import FetchRequest, FetchResult
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.gate.gates import PAGE, PRIVATE, SITE, ScriptedGate
from tests.support.events import events_of, failures_of
from tests.support.pacing import Resolving
from tests.support.stores import FailingStore
from tests.support.tasks import ended, settle

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
