"""The line of a host, through the public interface: first come, first served, each agent at its own pace."""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from politesse import AgentView, Gatekeeper, HostPolicy, NotYet, PacingOptions, PoliteQueue
from politesse.events import Event, LongWait
from politesse.options import Limit, SharedPacer
from politesse.testing import ManualClock, ScriptedFetcher, ScriptedResolver
from tests.support.pacing import MIDNIGHT
from tests.support.tasks import ended

UA = "ExampleBot/1.0 (+https://example.com/bot) Slow/1.0 Quick/1.0"
SITE = "https://example.com"
PORT = "https://example.com:8443"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT, autojump=True)


def gate_of(clock: ManualClock, answers: Mapping[str, Any], **options: Any) -> Gatekeeper:
    return Gatekeeper(UA, fetcher=ScriptedFetcher(answers), clock=clock, **options)


async def for_a_while(clock: ManualClock, seconds: float, *loops: Coroutine[object, object, None]) -> None:
    """Run endless loops for a time."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    await clock.sleep(seconds)
    await ended(tasks)
    for task in tasks:
        assert task.cancelled()


async def visit_again_and_again(view: AgentView, url: str, starts: list[str]) -> None:
    while True:
        async with view.turn(url) as turn:
            starts.append(url)
            turn.observe(200)


async def take_again_and_again(queue: PoliteQueue[Any], starts: list[str]) -> None:
    while True:
        async with queue.turn() as turn:
            starts.append(turn.url)
            turn.observe(200)


async def filled(gate: AgentView, urls: list[str]) -> PoliteQueue[Any]:
    queue: PoliteQueue[Any] = PoliteQueue(gate)
    for url in urls:
        await queue.put(url)
    return queue


async def test_agents_whose_visit_times_never_meet_take_turns_every_day(clock: ManualClock) -> None:
    answers = {
        SITE: "User-agent: Slow\nVisit-time: 0100-0200\nCrawl-delay: 600\n",
        PORT: "User-agent: Quick\nVisit-time: 0300-0400\nCrawl-delay: 600\n",
    }
    starts: list[str] = []
    async with gate_of(clock, answers) as gate:
        slow, quick = gate.agent(tokens="Slow"), gate.agent(tokens="Quick")
        await for_a_while(
            clock,
            10 * 86_400.0,
            visit_again_and_again(slow, f"{SITE}/x", starts),
            visit_again_and_again(quick, f"{PORT}/x", starts),
        )
    # Six intervals fit into a window, and the robots.txt that has to be fetched again takes one of them.
    assert 50 <= starts.count(f"{SITE}/x") <= 70
    assert 50 <= starts.count(f"{PORT}/x") <= 70


async def test_two_queues_at_one_host_take_turns(clock: ManualClock) -> None:
    for workers in (1, 2):
        starts: list[str] = []
        async with gate_of(clock, {SITE: 404}, pacer=SharedPacer(clock=clock)) as gate:
            queues = [await filled(gate, [f"{SITE}/{name}/{number}" for number in range(50)]) for name in "ab"]
            await for_a_while(clock, 30.5, *(take_again_and_again(queue, starts) for queue in queues * workers))
        names = [url.split("/")[3] for url in starts]
        assert len(names) >= 28
        assert max(abs(names[:place].count("a") - names[:place].count("b")) for place in range(len(names))) <= 1


async def test_hosts_that_share_an_address_or_a_domain_take_turns(clock: ManualClock) -> None:
    hosts = [f"h{number}.example.com" for number in range(5)]
    resolver = ScriptedResolver({host: ["192.0.2.1"] for host in hosts})
    answers = {f"https://{host}": 404 for host in hosts}
    by_key = PacingOptions(key="address"), PacingOptions(key="domain")
    for pacing in (*by_key, PacingOptions(address=Limit()), PacingOptions(domain=Limit())):
        starts: list[str] = []
        pacer = SharedPacer(pacing, clock=clock, resolver=resolver)
        async with gate_of(clock, answers, pacer=pacer) as gate:
            queue = await filled(gate, [f"https://{host}/{number}" for host in hosts for number in range(20)])
            await for_a_while(clock, 60.5, *(take_again_and_again(queue, starts) for _ in range(3)))
        named = [url.split("/")[2] for url in starts]
        assert 50 <= len(named) <= 61, "a turn a second at the most"
        for place in range(5, len(named) - 5):
            assert max(Counter(named[place : place + 5]).values()) == 1, (pacing, named)


async def test_a_lower_concurrency_binds_a_request_that_waits_for_its_address(clock: ManualClock) -> None:
    hosts = ("a.example", "b.example")
    resolver = ScriptedResolver({host: ["192.0.2.1"] for host in hosts})
    pacing = PacingOptions(
        min_delay_s=0.0, max_concurrent=2, adaptive_factor=0.0, address=Limit(min_delay_s=0.0, max_concurrent=2)
    )
    async with gate_of(clock, {f"https://{h}": 404 for h in hosts}, resolver=resolver, pacing=pacing) as gate:
        for host in hosts:
            await gate.check(f"https://{host}/")
        first, other = await gate.take_turn("https://a.example/1"), await gate.take_turn("https://b.example/1")
        second = asyncio.ensure_future(gate.take_turn("https://a.example/2"))
        await clock.sleep(1.0)
        gate.set_policy("a.example", HostPolicy(max_concurrent=1))
        other.end()
        await clock.sleep(1.0)
        assert not second.done(), "two requests at once, where one is allowed"
        first.end()
        await clock.sleep(1.0)
        assert second.done()
        (await second).end()


async def test_polls_of_a_closed_host_leave_nothing(clock: ManualClock) -> None:
    async with gate_of(clock, {SITE: 404}) as gate:
        async with gate.turn(f"{SITE}/") as turn:
            turn.observe(503, {"retry-after": "80000"})

        def poll(times: int) -> None:
            for _ in range(times):
                assert isinstance(gate.try_turn(f"{SITE}/x"), NotYet)
                clock.advance(1.000_1)

        poll(100)
        tracemalloc.start()
        try:
            poll(2_000)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 40_000


# Clocks that change between two of their readings


class RestlessClock(ManualClock):
    """At the reading with a number, it shows another time; readings are counted from ``arm`` on."""

    number = left = 0
    for_one_reading_s = from_then_on_s = 0.0

    def arm(self) -> None:
        self.left = self.number

    def _read(self) -> float:
        self.left -= 1
        if self.left != 0:
            return 0.0
        self._wall += self.from_then_on_s
        self._monotonic += self.from_then_on_s
        return self.for_one_reading_s

    def wall(self) -> float:
        shift_s = self._read()
        return super().wall() + shift_s

    def monotonic(self) -> float:
        self._read()
        return super().monotonic()


@pytest.mark.parametrize("number", range(1, 25))
async def test_a_wall_clock_that_is_set_back_for_a_moment_leaves_no_waiter_behind(number: int) -> None:
    clock = RestlessClock(MIDNIGHT, autojump=True)
    clock.number, clock.for_one_reading_s = number, -0.001
    async with gate_of(clock, {SITE: "User-agent: *\nVisit-time: 0100-0200"}) as gate:
        await gate.check(f"{SITE}/")
        clock.call_later(3_599.9, clock.arm)
        async with gate.turn(f"{SITE}/", max_wait_s=3_700.0):
            assert clock.wall() == pytest.approx(MIDNIGHT + 3_600.0, abs=5.0)


@pytest.mark.parametrize("number", range(1, 25))
async def test_a_window_that_ends_while_a_turn_is_asked_for_makes_a_long_wait_that_is_told(number: int) -> None:
    clock, told = RestlessClock(MIDNIGHT, autojump=True), list[Event]()
    clock.number, clock.from_then_on_s = number, 1.0
    async with gate_of(clock, {SITE: "User-agent: *\nVisit-time: 0000-0200"}) as gate:
        await gate.check(f"{SITE}/")
        clock.advance(7_259.5)  # the window has its last minute, too
        gate.subscribe(told.append)
        clock.arm()
        async with gate.turn(f"{SITE}/"):
            is_late = clock.wall() > MIDNIGHT + 20_000.0
    assert any(isinstance(event, LongWait) for event in told) is is_late
