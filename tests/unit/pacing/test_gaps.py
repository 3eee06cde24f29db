"""The gaps between the requests to a host, as its log would show them, through the public interface."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from politesse import ClosedError, ConfigurationError, FetchOptions, Gatekeeper, HostPolicy, PacingOptions, PoliteQueue
from politesse.ports import FetchResponse
from politesse.testing import ManualClock, ScriptedFetcher, ScriptedResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse._gate.view import AgentView

UA = "ExampleBot/1.0 (+https://example.com/bot) Slow/1.0 Quick/1.0"
SITE = "https://example.com"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=True)


def robots(body: str, **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(200, f"{SITE}/robots.txt", named, body.encode())


class Log:
    """When each request started, and the gap from the end of the one before."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.gaps_s: list[float] = []
        self.ended_mono = 0.0

    async def visit(self, view: AgentView, *, status: int | None = 200, takes_s: float = 0.0) -> float:
        async with view.turn(f"{SITE}/x") as turn:
            self.gaps_s.append(round(self.clock.monotonic() - self.ended_mono, 3))
            await self.clock.sleep(takes_s)
            if status is not None:
                turn.observe(status)
        self.ended_mono = self.clock.monotonic()
        return self.gaps_s[-1]


async def test_two_agents_on_one_origin_keep_their_own_gaps(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: Slow\nCrawl-delay: 10\n\nUser-agent: Quick\nDisallow:\n"})
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        slow, quick = gate.agent(tokens="Slow"), gate.agent(tokens="Quick")
        await log.visit(quick)
        gaps = [(await log.visit(slow), await log.visit(quick), await log.visit(quick)) for _ in range(3)]
    assert gaps == [(10.0, 1.0, 1.0)] * 3


async def test_agent_that_comes_later_does_not_hurry_one_that_waits(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: Slow\nCrawl-delay: 10\n\nUser-agent: Quick\nDisallow:\n"})
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        slow, quick = gate.agent(tokens="Slow"), gate.agent(tokens="Quick")
        await log.visit(quick)
        for _ in range(3):
            waiting = asyncio.ensure_future(log.visit(slow))
            await clock.sleep(0.5)
            await asyncio.gather(waiting, log.visit(quick))
    assert log.gaps_s == [1.0, *[10.0, 1.0] * 3]


@pytest.mark.parametrize(("before_s", "idle_s", "after_s"), [(1, 5.0, 30), (1, 320.0, 600)])
async def test_pace_learnt_while_the_host_was_idle_binds_the_next_request(
    clock: ManualClock, before_s: int, idle_s: float, after_s: int
) -> None:
    fetcher = ScriptedFetcher({SITE: [f"User-agent: *\nCrawl-delay: {s}\n" for s in (before_s, after_s)]})
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await log.visit(gate)
        await clock.sleep(idle_s)
        await gate.forget(SITE)
        await gate.check(f"{SITE}/x")
        assert await log.visit(gate) == after_s


async def test_robots_txt_that_always_expires_does_not_stretch_the_gaps(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: robots("User-agent: *\nCrawl-delay: 30\n", cache_control="max-age=0")})
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        for _ in range(20):
            await log.visit(gate)
    assert log.gaps_s == [30.0] * 20
    assert fetcher.count(SITE) <= 1 + 600 / 60  # it holds for a minute at least


@pytest.mark.parametrize("delay_s", [30, 120])
async def test_queue_keeps_the_gaps_though_robots_txt_always_expires(clock: ManualClock, delay_s: int) -> None:
    fetcher = ScriptedFetcher({SITE: robots(f"User-agent: *\nCrawl-delay: {delay_s}\n", cache_control="max-age=0")})
    starts = [0.0]
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for number in range(10):
            await queue.put(f"{SITE}/{number}")
        for _ in range(10):
            async with queue.turn():
                starts.append(clock.monotonic())
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([delay_s] * 10, abs=0.1)


@pytest.mark.parametrize("status", [200, 304, 404, None])
async def test_adaptive_delay_falls_after_any_fast_answer_but_a_refusal(clock: ManualClock, status: int | None) -> None:
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock) as gate:
        await log.visit(gate, takes_s=40.0)
        gaps = [await log.visit(gate, status=status, takes_s=0.1) for _ in range(10)]
    assert gaps[0] == 40.0
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == 1.0


async def test_adaptive_delay_has_a_ceiling(clock: ManualClock) -> None:
    log = Log(clock)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock) as gate:
        await log.visit(gate, status=None, takes_s=500.0)
        assert await log.visit(gate) == 60.0


async def test_gates_that_name_the_same_scope_share_their_pace(clock: ManualClock) -> None:
    pacing = PacingOptions(min_delay_s=5.0, scope="crawl")
    log = Log(clock)
    async with AsyncExitStack() as stack:
        gates = [
            await stack.enter_async_context(
                Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: 404}), clock=clock, pacing=pacing)
            )
            for _ in range(2)
        ]
        for gate in gates * 3:
            await log.visit(gate)
        assert log.gaps_s == [5.0] * 6
        await gates[0].aclose()
        assert await log.visit(gates[1]) == 5.0


async def test_gates_of_one_scope_must_have_the_same_options(clock: ManualClock) -> None:
    first = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=PacingOptions(scope="crawl"))
    async with first:
        with pytest.raises(ConfigurationError, match=r"not min_delay_s=1\.0 and min_delay_s=9\.0$"):
            Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=PacingOptions(scope="crawl", min_delay_s=9.0))
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=PacingOptions(scope="other")):
            pass
    async with Gatekeeper(
        UA, fetcher=ScriptedFetcher(), clock=clock, pacing=PacingOptions(scope="crawl", min_delay_s=9.0)
    ):
        pass


async def test_close_of_the_last_gate_of_a_scope_ends_what_they_shared(clock: ManualClock) -> None:
    class Hanging:
        async def resolve(self, host: str, port: int, /) -> Sequence[str]:
            await asyncio.Event().wait()
            return []

    pacing = PacingOptions(key="address", scope="crawl")
    first, last = (
        Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing, resolver=Hanging()) for _ in range(2)
    )
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(first.take_turn(f"{SITE}/robots.txt"))  # the address of its host is looked up
    await asyncio.sleep(0.01)
    await first.aclose()
    with pytest.raises(ClosedError):
        await waiting
    assert len(asyncio.all_tasks() - before) == 1  # for the other gate
    await last.aclose()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "refused",
    [{"policy_tokens": {"bogus": "Token"}}, {"fetch": FetchOptions(private_addresses="deny"), "session": True}],
    ids=["policy_tokens", "session"],
)
async def test_gate_that_was_not_built_is_none_of_its_scope(clock: ManualClock, refused: dict[str, Any]) -> None:
    async with aiohttp.ClientSession() as session:
        if "session" in refused:
            refused = refused | {"session": session}
        with pytest.raises(ConfigurationError) as kept:  # and with its traceback all that was built
            Gatekeeper(UA, clock=clock, pacing=PacingOptions(scope="crawl"), **refused)
        pacing = PacingOptions(scope="crawl", min_delay_s=9.0)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing):
            pass
        assert "scope" not in str(kept.value)


def test_limits_of_a_host_that_cannot_be_kept_are_refused_at_once(clock: ManualClock) -> None:
    pacing = PacingOptions(key="address", scope="crawl")
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), resolver=ScriptedResolver({}), clock=clock, pacing=pacing)
    with pytest.raises(ConfigurationError, match="key='address'"):
        gate.set_policy("example.com", HostPolicy(min_delay_s=3.0))
