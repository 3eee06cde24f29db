"""What a component raises that is no Exception ends nobody who waits: they get a verdict, and the subscribers an event.

KeyboardInterrupt and SystemExit stop the program all the same: asyncio raises them out of the event loop.
"""

import asyncio
from collections.abc import Sequence

import pytest

from politesse import Gatekeeper, PacingOptions, Reason
from politesse.events import AddressNotFound, ComponentFailed, Event
from politesse.options import Limit
from politesse.ports import FetchRequest, FetchResult
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import failures_of

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
URL = f"{SITE}/page"
TDMREP = "/.well-known/tdmrep.json"


class Odd(BaseException):
    """No Exception, and nothing that stops a program."""


class Unspeakable(Exception):
    """Has no words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


FOREIGN = [asyncio.CancelledError, GeneratorExit, Odd, Unspeakable]
STOPPING = [KeyboardInterrupt, SystemExit]


class OddStore(MemoryStore):
    """Raises an error once, after a while."""

    def __init__(self, method: str, error: type[BaseException]) -> None:
        super().__init__()
        self.method = method
        self.errors = [error]

    async def get(self, key: str, /) -> bytes | None:
        await self._fail("get")
        return await super().get(key)

    async def put(self, key: str, record: bytes, /) -> None:
        await self._fail("put")
        await super().put(key, record)

    async def _fail(self, method: str) -> None:
        await asyncio.sleep(0)
        if method == self.method and self.errors:
            raise self.errors.pop()


class OddFetcher(ScriptedFetcher):
    """Raises an error once where it is asked for a path."""

    def __init__(self, path: str, error: type[BaseException]) -> None:
        super().__init__()
        self.path = path
        self.errors = [error]

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await asyncio.sleep(0)
        if request.path == self.path and self.errors:
            raise self.errors.pop()
        return await super().fetch(request)


async def _closed_for_all(gate: Gatekeeper, clock: ManualClock) -> None:
    """Expect a closed verdict for all who wait, one event, and an open site once it may be asked again."""
    failures = failures_of(gate)
    waiting = [asyncio.ensure_future(gate.check(f"{URL}/{n}")) for n in range(3)]
    verdicts = await asyncio.gather(*waiting)
    assert {verdict.reason for verdict in verdicts} == {Reason.UNREACHABLE}
    assert len(failures) == 1
    clock.advance(3_600)
    assert (await gate.check(URL)).reason is Reason.UNAVAILABLE


@pytest.mark.parametrize("error", FOREIGN)
@pytest.mark.parametrize("method", ["get", "put"])
async def test_cancellation_raised_by_a_store_closes_the_site_and_cancels_no_caller(
    method: str, error: type[BaseException]
) -> None:
    clock = ManualClock()
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, store=OddStore(method, error)) as gate:
        await _closed_for_all(gate, clock)


@pytest.mark.parametrize("error", FOREIGN)
async def test_cancellation_raised_by_a_fetcher_closes_the_site_and_cancels_no_caller(
    error: type[BaseException],
) -> None:
    clock = ManualClock()
    async with Gatekeeper(UA, fetcher=OddFetcher("/robots.txt", error), clock=clock) as gate:
        await _closed_for_all(gate, clock)


@pytest.mark.parametrize("error", FOREIGN)
async def test_cancellation_raised_by_a_subscriber_is_logged_and_cancels_no_caller(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock()) as gate:
        told: list[Event] = []

        def fail(_: Event) -> None:
            raise error

        gate.subscribe(fail)
        gate.subscribe(told.append)
        verdicts = await asyncio.gather(*(gate.check(f"{URL}/{n}") for n in range(3)))
        assert {verdict.reason for verdict in verdicts} == {Reason.UNAVAILABLE}
        assert gate.peek(URL)
        assert len(told) == 5
        assert error.__name__ in caplog.text


@pytest.mark.parametrize("error", FOREIGN)
async def test_cancellation_raised_for_another_file_is_reported_and_cancels_no_caller(
    error: type[BaseException],
) -> None:
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=OddFetcher(TDMREP, error), clock=clock, enforce_usage={"tdm"}) as gate:
        failures = failures_of(gate)
        verdicts = await asyncio.gather(*(gate.check(f"{URL}/{n}") for n in range(3)))
        assert {verdict.reason for verdict in verdicts} == {Reason.USAGE_UNKNOWN}
        assert len(failures) == 1


@pytest.mark.parametrize("error", FOREIGN)
async def test_cancellation_raised_for_data_txt_is_an_answer_too(error: type[BaseException]) -> None:
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=OddFetcher("/data.txt", error), clock=clock) as gate:
        answers = await asyncio.gather(*(gate.datatxt(SITE) for _ in range(3)))
        assert {answer.outcome for answer in answers} == {FileOutcome.RETRY}


@pytest.mark.parametrize("error", FOREIGN)
async def test_error_raised_by_a_resolver_has_the_host_paced_by_its_name(error: type[BaseException]) -> None:
    class Confused:
        async def resolve(self, host: str, port: int, /) -> Sequence[str]:
            raise error

    pacing = PacingOptions(address=Limit())
    clock = ManualClock(autojump=True)
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing, resolver=Confused())
    events: list[Event] = []
    gate.subscribe(events.append)
    async with gate, gate.turn(URL) as turn:
        assert turn.verdict
    (event,) = (event for event in events if isinstance(event, AddressNotFound))
    assert event.host == "example.com"
    assert error.__name__ in event.error


async def test_cancellation_raised_by_a_delete_of_the_store_cancels_no_caller() -> None:
    class Unforgetful(MemoryStore):
        async def delete(self, key: str, /) -> None:
            raise asyncio.CancelledError

    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(), store=Unforgetful()) as gate:
        with pytest.raises(RuntimeError, match="the store raised CancelledError"):
            await gate.forget(SITE)


async def test_a_real_cancellation_of_the_caller_passes() -> None:
    fetcher = ScriptedFetcher()
    fetcher.gate.clear()
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock()) as gate:
        tasks = [asyncio.ensure_future(gate.check(URL)), asyncio.ensure_future(gate.take_turn(URL, max_wait_s=10))]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2


@pytest.mark.parametrize("error", STOPPING)
@pytest.mark.parametrize("where", ["store", "fetcher", "subscriber", "files"])
def test_exception_that_ends_the_program_passes_and_closes_the_site(where: str, error: type[BaseException]) -> None:
    store = OddStore("get", error) if where == "store" else MemoryStore()
    paths = {"fetcher": "/robots.txt", "files": TDMREP}
    fetcher = OddFetcher(paths[where], error) if where in paths else ScriptedFetcher()
    clock = ManualClock(autojump=True)
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store, enforce_usage={"tdm"} if where == "files" else ())
    errors = [error]

    def stop(event: Event) -> None:
        if where == "subscriber" and not isinstance(event, ComponentFailed) and errors:
            raise errors.pop()

    gate.subscribe(stop)
    loop = asyncio.new_event_loop()
    try:
        waiting = loop.create_task(gate.check(URL))
        with pytest.raises(error):
            loop.run_until_complete(waiting)
        # A notebook goes on with the same loop: who waits has a closed verdict then, and was not cancelled.
        verdict = loop.run_until_complete(waiting)
        assert verdict.reason is (Reason.USAGE_UNKNOWN if where == "files" else Reason.UNREACHABLE)
        loop.run_until_complete(gate.aclose())
    finally:
        loop.close()


async def test_fetch_cancelled_before_its_first_step_blocks_no_caller() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        first = asyncio.ensure_future(gate.check(f"{SITE}/"))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name().startswith("robots.txt of"):
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await gate.check(f"{SITE}/")
