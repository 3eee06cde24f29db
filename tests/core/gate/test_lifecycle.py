"""A gatekeeper belongs to one event loop, is closed in one step that nothing stops half-way, and says so after both."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Final

import pytest

from politesse import AgentView, ClosedError, HostPolicy, NotYet, Origin, PacingOptions, PoliteQueue
from politesse.errors import StoreError, WrongEventLoop
from politesse.ports import FetchRequest, FetchResult
from politesse.testing import ScriptedFetcher
from tests.core.gate.gates import DAY, PAGE, SITE, ScriptedGate
from tests.support.stores import KeptStore
from tests.support.tasks import settle

UNKNOWN: Final = "https://unknown.example/"
URLS: Final = (PAGE, UNKNOWN, "https://partner.example/", f"{SITE}/robots.txt")  # a partner is exempt by policy

Use = Callable[[AgentView, str], Coroutine[object, object, object]]
Wrong = type[ClosedError] | type[WrongEventLoop]


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


async def now(ask: Callable[[], object]) -> object:
    return ask()


async def turn(view: AgentView, url: str, exempt: str | None = None) -> None:
    async with view.turn(url, exempt=exempt):
        pass


async def sifted(view: AgentView, *urls: str) -> None:
    async for _ in view.filter(urls):
        pass


async def from_queue(view: AgentView, _: str = "") -> None:
    async with PoliteQueue[None](view).turn():
        pass


USES: Final[dict[str, Use]] = {  # each with a URL
    "peek": lambda view, url: now(lambda: view.peek(url)),
    "check": lambda view, url: view.check(url),
    "check_batch": lambda view, url: view.check_batch([url]),
    "filter": sifted,
    "turn": turn,
    "turn, exempt": lambda view, url: turn(view, url, "our own"),
    "take_turn": lambda view, url: view.take_turn(url),
    "try_turn": lambda view, url: now(lambda: view.try_turn(url)),
    "try_turns": lambda view, url: view.try_turns([url]),
    "usage": lambda view, url: view.usage(url),
    "datatxt": lambda view, url: view.datatxt(url),
    "sitemaps": lambda view, url: view.sitemaps(url),
    "when_ready": lambda view, _: now(lambda: view.when_ready(Origin.of(SITE), lambda: None)),
    "queue.put": lambda view, _: PoliteQueue[None](view).put(PAGE),
    "queue.turn": from_queue,
}
IN_A_LOOP: Final[dict[str, Use]] = {
    "queue.put_nowait": lambda view, url: now(lambda: PoliteQueue[None](view).put_nowait(url)),
    "queue.join": lambda view, _: PoliteQueue[None](view).join(),
}
OF_NOTHING: Final[dict[str, Use]] = {
    "check_batch of nothing": lambda view, _: view.check_batch([]),
    "try_turns of nothing": lambda view, _: view.try_turns([]),
    "filter of nothing": lambda view, _: sifted(view),
}
CHANGES: Final[dict[str, Callable[[ScriptedGate], Coroutine[object, object, object]]]] = {
    "set_policy": lambda gate: now(lambda: gate.set_policy("partner.example", HostPolicy(deny=True, reason="no"))),
    "withdraw a policy": lambda gate: now(lambda: gate.set_policy("partner.example", None)),
    "forget": lambda gate: gate.forget(SITE),
    "agent": lambda gate: now(lambda: gate.agent(tokens="OtherBot")),
    "subscribe": lambda gate: now(lambda: gate.subscribe(lambda _: None)),
}


async def used() -> tuple[ScriptedGate, AgentView]:
    """Return a gate and a view of it, which have answered and wait for the pace of a host."""
    gate = ScriptedGate()
    gate.set_policy("partner.example", HostPolicy(exempt=True, reason="a partner"))
    view = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    for one in (gate, view):
        assert await one.check(f"{SITE}/")
        assert one.peek(f"{SITE}/")
    gate.refused(PAGE)  # it arms a timer
    return gate, view


async def unrefused(
    views: tuple[ScriptedGate, AgentView], uses: dict[str, Use], *urls: str, error: Wrong
) -> list[object]:
    """Return the uses that do not raise the error."""
    others: list[object] = []
    for view in views:
        for url in urls:
            for name, use in uses.items():
                try:
                    async with asyncio.timeout(1):
                        others.append((view, name, url, await use(view, url)))
                except error:
                    pass
                except Exception as other:  # noqa: BLE001 - the test reports it
                    others.append((view, name, url, other))
    return others


async def test_closed_gate_answers_nothing_but_its_statistics_and_cannot_be_changed() -> None:
    gate, view = await used()
    await gate.aclose()
    urls = (*URLS, "mailto:someone")
    assert await unrefused((gate, view), USES | OF_NOTHING, *urls, error=ClosedError) == []
    for change in CHANGES.values():
        with pytest.raises(ClosedError):
            await change(gate)
    assert gate.statistics().decisions == 5
    assert "0 origins known" in repr(gate)


async def test_gate_is_closed_before_aclose_waits_and_a_cancelled_close_closes_everything() -> None:
    fetcher, store = Lingering(), KeptStore({})
    gate = ScriptedGate(fetcher=fetcher, store=store)
    pending = asyncio.ensure_future(gate.check(UNKNOWN))
    await fetcher.fetching.wait()
    closing = asyncio.ensure_future(gate.aclose())
    await asyncio.sleep(0)
    for ask in (gate.try_turn, gate.peek):
        with pytest.raises(ClosedError):
            ask(PAGE)
    with pytest.raises(ClosedError):
        await pending
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    fetcher.release.set()
    await gate.aclose()  # waits for the end of the first
    assert (fetcher.closed, store.closed) == (True, True)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_part_that_fails_to_close_leaves_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise OSError("a fetcher that cannot be closed")

    store = KeptStore({}, fails={"aclose": StoreError("the disk is full")})
    gate = ScriptedGate(store=store, enforce_usage={"tdm"})
    monkeypatch.setattr(gate.fetcher, "aclose", broken)
    with pytest.raises(StoreError):
        await gate.aclose()
    assert store.calls[-1] == ("aclose", "")
    with pytest.raises(ClosedError):
        await gate.check(f"{SITE}/")


def test_tearing_down_the_loop_during_the_close_leaves_nothing_open() -> None:
    fetchers: list[Lingering] = []
    store = KeptStore({})

    async def main() -> None:
        fetchers.append(fetcher := Lingering())
        gate = ScriptedGate(fetcher=fetcher, store=store)
        pending = asyncio.ensure_future(gate.check(UNKNOWN))
        await fetcher.fetching.wait()
        closing = asyncio.ensure_future(gate.aclose())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, fetcher.release.set)
        for task in (pending, closing):
            task.cancel()
        await asyncio.gather(closing, pending, return_exceptions=True)

    asyncio.run(main())
    assert (fetchers[0].closed, store.closed) == (True, True)


async def test_closing_the_gate_raises_closed_error_in_waiting_turns() -> None:
    gate = ScriptedGate(pacing=PacingOptions(min_delay_s=1_000))
    await gate.check(PAGE)
    assert isinstance(gate.try_turn(PAGE), NotYet)
    queue = PoliteQueue[None](gate)
    await queue.put(PAGE)
    waiting = [asyncio.ensure_future(gate.take_turn(PAGE)), asyncio.ensure_future(queue.turn().__aenter__())]
    await asyncio.sleep(0)
    await asyncio.gather(gate.aclose(), gate.aclose())
    for task in waiting:
        with pytest.raises(ClosedError):
            await task


def test_every_use_in_another_loop_raises_whether_the_first_runs_or_has_ended() -> None:
    views = asyncio.run(used())
    gate, _ = views
    uses = USES | IN_A_LOOP
    assert asyncio.run(unrefused(views, uses, *URLS, error=WrongEventLoop)) == []
    for name in ("forget", "set_policy"):
        with pytest.raises(WrongEventLoop, match="one for each"):
            asyncio.run(CHANGES[name](gate))

    async def ask_from_a_thread() -> None:
        running = await used()
        async with running[0] as gate:
            for name in ("peek", "check"):
                with pytest.raises(WrongEventLoop):
                    await asyncio.to_thread(asyncio.run, USES[name](gate, PAGE))
            gate.clock.advance(0.95 * DAY)  # it would be refreshed in the event loop
            before = len(gate.asked)
            assert await asyncio.to_thread(gate.peek, PAGE)
            await settle()
            assert len(gate.asked) == before
            with pytest.raises(WrongEventLoop):
                await asyncio.to_thread(asyncio.run, gate.aclose())
            gate.fetcher.gate.clear()
            asking = asyncio.ensure_future(gate.check("https://slow.example/"))
            await settle()
            with pytest.raises(WrongEventLoop):  # it would wait for the fetch of this loop
                await asyncio.to_thread(asyncio.run, gate.check("https://slow.example/"))
            gate.fetcher.gate.set()
            assert await asking

    asyncio.run(ask_from_a_thread())


def test_gate_whose_loop_is_gone_still_returns_known_verdicts_and_can_be_closed_in_another() -> None:
    gate, _ = asyncio.run(used())
    assert gate.peek(PAGE)
    assert gate.peek(UNKNOWN) is None
    asyncio.run(gate.aclose())
    asyncio.run(gate.aclose())
    assert gate.fetcher.closed
    entered = ScriptedGate()
    asyncio.run(entered.__aenter__())
    with pytest.raises(WrongEventLoop):
        asyncio.run(entered.check(PAGE))


if sys.version_info >= (3, 12):  # which brought eager tasks

    async def test_eager_tasks_ask_once_for_each_agent() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with ScriptedGate() as gate:
            assert await gate.check(f"{SITE}/")
            assert await gate.agent(tokens="OtherBot", user_agent="OtherBot/1").check(f"{SITE}/")
