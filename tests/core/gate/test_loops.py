"""A gatekeeper belongs to one event loop, and says so in any other."""

import asyncio
import sys
from collections.abc import Callable, Coroutine

import pytest

from politesse import AgentView, Gatekeeper, HostPolicy, Origin, PoliteQueue
from politesse.errors import WrongEventLoop
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
URL = f"{SITE}/page"


def make_gate() -> Gatekeeper:
    return Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock())


async def take(gate: Gatekeeper) -> None:
    turn = await gate.take_turn(URL, max_wait_s=1_000)
    turn.end()


async def settle_in(gate: Gatekeeper) -> None:
    await gate.check(URL)
    gate.try_turn(URL)  # which arms a timer


def test_waiting_for_a_fetch_of_another_loop_raises() -> None:
    fetcher = ScriptedFetcher()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=ManualClock())

    async def ask() -> asyncio.Task[object]:
        fetcher.gate.clear()
        task = asyncio.ensure_future(gate.check(URL))
        await asyncio.sleep(0.01)
        return task

    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        asked = loop.run_until_complete(ask())
        with pytest.raises(WrongEventLoop):
            other.run_until_complete(gate.check(URL))
        fetcher.gate.set()
        assert loop.run_until_complete(asked)
        loop.run_until_complete(gate.aclose())
    finally:
        loop.close()
        other.close()


def test_known_verdicts_are_returned_where_no_loop_runs() -> None:
    gate = make_gate()
    asyncio.run(settle_in(gate))
    assert gate.peek(URL)
    assert gate.peek("https://unknown.example/") is None


async def _turn(view: AgentView, url: str) -> None:
    async with view.turn(url, exempt="our own" if "partner" in url else None):
        pass


async def _sifted(view: AgentView, url: str) -> None:
    async for _ in view.filter([url]):
        pass


async def _from_queue(view: AgentView, _: str) -> None:
    async with PoliteQueue[None](view).turn():
        pass


USES: dict[str, Callable[[AgentView, str], Coroutine[object, object, object]]] = {
    "peek": lambda view, url: _later(lambda: view.peek(url)),
    "check": lambda view, url: view.check(url),
    "check_batch": lambda view, url: view.check_batch([url]),
    "filter": _sifted,
    "turn": _turn,
    "take_turn": lambda view, url: view.take_turn(url, max_wait_s=1_000),
    "try_turn": lambda view, url: _later(lambda: view.try_turn(url)),
    "try_turns": lambda view, url: view.try_turns([url]),
    "usage": lambda view, url: view.usage(url),
    "datatxt": lambda view, url: view.datatxt(url),
    "sitemaps": lambda view, url: view.sitemaps(url),
    "when_ready": lambda view, url: _later(lambda: view.when_ready(Origin.of(url), lambda: None)),
    "queue.put": lambda view, url: PoliteQueue[None](view).put(url),
    "queue.put_nowait": lambda view, url: _later(lambda: PoliteQueue[None](view).put_nowait(url)),
    "queue.turn": _from_queue,
    "queue.join": lambda view, _: PoliteQueue[None](view).join(),
}


async def _later(ask: Callable[[], object]) -> object:
    return ask()


@pytest.mark.parametrize("view", ["gate", "view"])
@pytest.mark.parametrize("url", [URL, "https://unknown.example/", "https://partner.example/", f"{SITE}/robots.txt"])
@pytest.mark.parametrize("use", USES)
def test_every_use_in_another_loop_raises(use: str, url: str, view: str) -> None:
    gate = make_gate()
    gate.set_policy("partner.example", HostPolicy(exempt=True, reason="a partner"))
    asyncio.run(settle_in(gate))
    with pytest.raises(WrongEventLoop, match="one for each"):
        asyncio.run(
            USES[use](gate if view == "gate" else gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0"), url)
        )


def test_use_in_a_second_loop_raises_while_both_run() -> None:
    async def ask_from_a_thread() -> None:
        async with make_gate() as gate:
            await gate.check(URL)
            for ask in (USES["peek"], USES["check"]):
                with pytest.raises(WrongEventLoop):
                    await asyncio.to_thread(asyncio.run, ask(gate, URL))
            assert await asyncio.to_thread(gate.peek, URL)

    asyncio.run(ask_from_a_thread())


def test_forget_and_set_policy_are_bound_to_the_loop_too() -> None:
    gate = make_gate()
    asyncio.run(settle_in(gate))
    for use in (gate.forget(URL), _later(lambda: gate.set_policy("example.com", None))):
        with pytest.raises(WrongEventLoop):
            asyncio.run(use)


def test_a_gate_entered_in_one_loop_cannot_be_used_in_another() -> None:
    gate = make_gate()

    async def enter() -> None:
        await gate.__aenter__()

    asyncio.run(enter())
    with pytest.raises(WrongEventLoop):
        asyncio.run(gate.check(URL))


def test_a_gate_whose_loop_is_gone_can_still_be_closed_in_another() -> None:
    fetcher = ScriptedFetcher()
    gate = Gatekeeper(UA, fetcher=fetcher)
    asyncio.run(settle_in(gate))
    asyncio.run(gate.aclose())
    asyncio.run(gate.aclose())
    assert fetcher.closed


def test_closing_a_gate_beside_its_running_loop_raises() -> None:
    async def close_from_a_thread() -> None:
        async with make_gate() as gate:
            await gate.check(URL)
            with pytest.raises(WrongEventLoop):
                await asyncio.to_thread(asyncio.run, gate.aclose())
            assert await gate.check(URL)

    asyncio.run(close_from_a_thread())


if sys.version_info >= (3, 12):  # which brought eager tasks

    async def test_eager_tasks_ask_once_for_each_agent() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
            assert await gate.check(f"{SITE}/")
            assert await gate.agent(tokens="OtherBot", user_agent="OtherBot/1").check(f"{SITE}/")
