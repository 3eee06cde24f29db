"""The gaps between the requests to a host, as its log would show them, through the public interface."""

from itertools import pairwise

import pytest

from politesse import AgentView, Gatekeeper, PoliteQueue
from politesse.ports import FetchResponse
from politesse.testing import ManualClock, ScriptedFetcher

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
        assert await log.visit(gate) == idle_s + after_s, "the new file has opened its site"


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
