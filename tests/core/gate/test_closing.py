"""Closing a gatekeeper: one step, which nothing stops half-way, and after which every method says so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from politesse import AgentView, ClosedError, Gatekeeper, HostPolicy, NotYet, Origin, PacingOptions, PoliteQueue
from politesse.errors import StoreError
from politesse.ports import FetchRequest, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
PARTNER = "https://partner.example"
UNKNOWN = "https://unknown.example"


class ClosingStore(MemoryStore):
    """Notes that it was closed, or raises instead."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.closed = False
        self.error = error

    async def aclose(self) -> None:
        self.closed = True
        if self.error is not None:
            raise self.error


class Lingering(ScriptedFetcher):
    """Takes its time to be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.fetching = asyncio.Event()

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.fetching.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.release.wait()
        raise AssertionError("it was cancelled")


async def _take(view: AgentView, url: str, exempt: str | None = None) -> None:
    async with view.turn(url, exempt=exempt):
        pass


async def _sifted(view: AgentView, *urls: str) -> None:
    async for _ in view.filter(urls):
        pass


async def _queued(view: AgentView, url: str) -> None:
    await PoliteQueue[None](view).put(url)


async def _from_queue(view: AgentView) -> None:
    async with PoliteQueue[None](view).turn():
        pass


async def _now(ask: Callable[[], object]) -> object:
    return ask()


URLS = {
    "known": f"{SITE}/",
    "unknown": f"{UNKNOWN}/",
    "exempt by policy": f"{PARTNER}/",
    "robots.txt": f"{SITE}/robots.txt",
    "no URL": "mailto:someone",
}
ASKED_OF_A_URL: dict[str, Callable[[AgentView, str], Awaitable[object]]] = {
    "peek": lambda view, url: _now(lambda: view.peek(url)),
    "check": lambda view, url: view.check(url),
    "check_batch": lambda view, url: view.check_batch([url]),
    "filter": _sifted,
    "turn": _take,
    "turn, exempt": lambda view, url: _take(view, url, "our own"),
    "take_turn": lambda view, url: view.take_turn(url),
    "try_turn": lambda view, url: _now(lambda: view.try_turn(url)),
    "try_turns": lambda view, url: view.try_turns([url]),
    "usage": lambda view, url: view.usage(url),
    "datatxt": lambda view, url: view.datatxt(url),
    "sitemaps": lambda view, url: view.sitemaps(url),
}
ASKED: dict[str, Callable[[AgentView], Awaitable[object]]] = {
    "check_batch of nothing": lambda view: view.check_batch([]),
    "try_turns of nothing": lambda view: view.try_turns([]),
    "filter of nothing": _sifted,
    "when_ready": lambda view: _now(lambda: view.when_ready(Origin.of(SITE), lambda: None)),
    "queue.put": lambda view: _queued(view, f"{SITE}/"),
    "queue.turn": _from_queue,
}
ASKED_OF_THE_GATE: dict[str, Callable[[Gatekeeper], Awaitable[object]]] = {
    "set_policy": lambda gate: _now(lambda: gate.set_policy("partner.example", HostPolicy(deny=True, reason="no"))),
    "withdraw a policy": lambda gate: _now(lambda: gate.set_policy("partner.example", None)),
    "forget": lambda gate: gate.forget(SITE),
    "agent": lambda gate: _now(lambda: gate.agent(tokens="OtherBot")),
    "subscribe": lambda gate: _now(lambda: gate.subscribe(lambda _: None)),
}


@pytest.fixture
async def closed() -> tuple[Gatekeeper, AgentView]:
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(autojump=True))
    gate.set_policy("partner.example", HostPolicy(exempt=True, reason="a partner"))
    view = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    for one in (gate, view):
        assert await one.check(f"{SITE}/")
        assert one.peek(f"{SITE}/")
    await gate.aclose()
    return gate, view


@pytest.mark.parametrize("whose", ["gate", "view"])
@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("method", ASKED_OF_A_URL)
async def test_a_closed_gate_answers_no_url(
    closed: tuple[Gatekeeper, AgentView], method: str, kind: str, whose: str
) -> None:
    view = closed[0] if whose == "gate" else closed[1]
    with pytest.raises(ClosedError):
        await ASKED_OF_A_URL[method](view, URLS[kind])


@pytest.mark.parametrize("method", ASKED)
async def test_a_closed_gate_does_nothing(closed: tuple[Gatekeeper, AgentView], method: str) -> None:
    for view in closed:
        with pytest.raises(ClosedError):
            await ASKED[method](view)


@pytest.mark.parametrize("method", ASKED_OF_THE_GATE)
async def test_a_closed_gate_cannot_be_changed(closed: tuple[Gatekeeper, AgentView], method: str) -> None:
    with pytest.raises(ClosedError):
        await ASKED_OF_THE_GATE[method](closed[0])


async def test_a_closed_gate_still_reports_its_statistics(closed: tuple[Gatekeeper, AgentView]) -> None:
    assert closed[0].statistics().decisions == 4
    assert "0 origins known" in repr(closed[0])


async def test_a_gate_is_closed_before_aclose_waits() -> None:
    fetcher = Lingering()
    gate = Gatekeeper(UA, fetcher=fetcher)
    pending = asyncio.ensure_future(gate.check(f"{UNKNOWN}/"))
    await fetcher.fetching.wait()
    closing = asyncio.ensure_future(gate.aclose())
    await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        gate.try_turn(f"{SITE}/")
    with pytest.raises(ClosedError):
        await pending
    assert not closing.done()
    fetcher.release.set()
    await closing


async def test_a_cancelled_close_closes_everything() -> None:
    fetcher, store = Lingering(), ClosingStore()
    gate = Gatekeeper(UA, fetcher=fetcher, store=store)
    pending = asyncio.ensure_future(gate.check(f"{UNKNOWN}/"))
    await fetcher.fetching.wait()
    closing = asyncio.ensure_future(gate.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ClosedError):
        await pending
    with pytest.raises(ClosedError):
        gate.peek(f"{SITE}/")
    fetcher.release.set()
    await gate.aclose()  # waits for the end of the first
    assert fetcher.closed
    assert store.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_part_that_fails_to_close_leaves_no_other_open() -> None:
    error = StoreError("the disk is full")
    fetcher, store = ScriptedFetcher(), ClosingStore(error)
    gate = Gatekeeper(UA, fetcher=fetcher, store=store, enforce_usage={"tdm"})

    async def broken() -> None:
        raise OSError("a fetcher that cannot be closed")

    fetcher.aclose = broken  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await gate.aclose()
    assert store.closed
    with pytest.raises(ClosedError):
        await gate.check(f"{SITE}/")


async def test_tearing_down_the_loop_during_the_close_leaves_nothing_open() -> None:
    fetchers: list[Lingering] = []
    store = ClosingStore()

    async def main() -> None:
        fetcher = Lingering()
        fetchers.append(fetcher)
        gate = Gatekeeper(UA, fetcher=fetcher, store=store)
        pending = asyncio.ensure_future(gate.check(f"{UNKNOWN}/"))
        await fetcher.fetching.wait()
        closing = asyncio.ensure_future(gate.aclose())
        await asyncio.sleep(0)
        pending.cancel()
        asyncio.get_running_loop().call_later(0.01, fetcher.release.set)
        closing.cancel()
        await asyncio.gather(closing, pending, return_exceptions=True)

    await asyncio.to_thread(asyncio.run, main())
    assert fetchers[0].closed
    assert store.closed


async def test_closing_the_gate_raises_closed_error_in_waiting_turns() -> None:
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=PacingOptions(min_delay_s=1_000), clock=ManualClock())
    await gate.check(f"{SITE}/")
    assert isinstance(gate.try_turn(f"{SITE}/"), NotYet)
    waiting = asyncio.ensure_future(gate.take_turn(f"{SITE}/"))
    queue = PoliteQueue[None](gate)
    await queue.put(f"{SITE}/")
    worker = asyncio.ensure_future(anext(_turns(queue)))
    await asyncio.sleep(0)
    await asyncio.gather(gate.aclose(), gate.aclose())
    for task in (waiting, worker):
        with pytest.raises(ClosedError):
            await task


async def _turns(queue: PoliteQueue[None]) -> AsyncIterator[object]:
    async with queue.turn() as turn:
        yield turn
