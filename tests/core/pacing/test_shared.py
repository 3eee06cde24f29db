"""Gates that are given one SharedPacer share their pace; what waits at a gate ends with that gate."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from politesse import ClosedError, ConfigurationError, Gatekeeper, HostPolicy, NotYet, PacingOptions
from politesse.errors import TurnHeld
from politesse.events import Event, HeaderOverruled
from politesse.options import FleetOptions, Limit, SharedPacer
from politesse.testing import ManualClock, ScriptedFetcher, ScriptedResolver
from tests.support.pacing import Resolving, TurnRequest
from tests.support.tasks import settle

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def gate_of(pacer: SharedPacer, **options: Any) -> Gatekeeper:
    answers = {"https://example.com": 404, "https://a.example": 404, "https://b.example": 404}
    return Gatekeeper(UA, fetcher=ScriptedFetcher(answers), pacer=pacer, **options)


class Line:
    """Tasks that wait, and the names of those that were granted a turn, which they end at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.granted: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, gate: Gatekeeper, site: str = SITE) -> None:
        async def start() -> None:
            async with gate.turn(f"{site}/{name}"):
                self.granted.append(name)

        self.tasks[name] = asyncio.create_task(start())
        await settle()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()


async def known(clock: ManualClock, *gates: Gatekeeper, sites: Sequence[str] = (SITE,)) -> None:
    """Fetch robots.txt, so that only the line is waited for."""
    checks = [asyncio.ensure_future(gate.check(f"{site}/")) for gate in gates for site in sites]
    await settle()
    while not all(check.done() for check in checks):  # requests for robots.txt wait for each other, too
        clock.advance(1.0)
        await settle()


async def test_line_is_one_for_all_gates(clock: ManualClock) -> None:
    pacer, line = SharedPacer(PacingOptions(min_delay_s=5.0), clock=clock), Line(clock)
    async with gate_of(pacer) as one, gate_of(pacer) as other:
        await known(clock, one, other)
        for name, gate in (("one 1", one), ("other 1", other), ("one 2", one), ("other 2", other)):
            await line.ask(name, gate)
        assert (one.statistics().waiting, other.statistics().waiting) == (2, 2)
        for _ in range(4):
            await line.pass_time(5.01)
        assert line.granted == ["one 1", "other 1", "one 2", "other 2"]


async def test_gate_that_closes_while_its_waiter_is_the_head_holds_no_other_up() -> None:
    for woken in (False, True):
        clock = ManualClock()
        pacer, line = SharedPacer(PacingOptions(min_delay_s=5.0), clock=clock), Line(clock)
        one, other = gate_of(pacer), gate_of(pacer)
        await known(clock, one, other)
        for name, gate in (("one 1", one), ("other 1", other), ("one 2", one), ("other 2", other)):
            await line.ask(name, gate)
        if woken:
            clock.advance(5.01)  # the head is woken and has not run
        await one.aclose()
        await settle()
        for name in ("one 1", "one 2"):
            with pytest.raises(ClosedError):
                await line.tasks[name]
        await line.pass_time(5.01)
        await line.pass_time(5.01)
        assert line.granted == ["other 1", "other 2"]
        await other.aclose()


async def test_gates_share_the_pace_of_an_address() -> None:
    resolver = ScriptedResolver({"a.example": ["192.0.2.1"], "b.example": ["192.0.2.1"]})
    by_key = PacingOptions(min_delay_s=5.0, key="address")
    for options in (by_key, PacingOptions(min_delay_s=0.0, address=Limit(min_delay_s=5.0))):
        clock = ManualClock()
        pacer, line = SharedPacer(options, clock=clock, resolver=resolver), Line(clock)
        one, other = gate_of(pacer), gate_of(pacer)
        await known(clock, one, other, sites=["https://a.example", "https://b.example"])
        for name, gate, host in (("one", one, "a"), ("other", other, "b"), ("one again", one, "b")):
            await line.ask(name, gate, f"https://{host}.example")
        await line.pass_time(5.01)
        await line.pass_time(5.01)
        assert line.granted == ["one", "other"]
        await one.aclose()
        await settle()
        with pytest.raises(ClosedError):
            await line.tasks["one again"]
        answer = other.try_turn("https://a.example/x")
        assert isinstance(answer, NotYet)
        assert answer.not_before - clock.wall() == pytest.approx(5.0, abs=0.001)
        await other.aclose()


async def test_close_of_the_last_gate_ends_what_they_shared(clock: ManualClock) -> None:
    hanging = Resolving({})
    hanging.gate.clear()
    pacer = SharedPacer(PacingOptions(key="address"), clock=clock, resolver=hanging)
    first, last = gate_of(pacer), gate_of(pacer)
    before = asyncio.all_tasks()
    assert isinstance(last.try_turn(f"{SITE}/robots.txt"), NotYet)
    waiting = asyncio.create_task(first.take_turn(f"{SITE}/robots.txt"))  # the address of its host is looked up
    await settle()
    await first.aclose()
    with pytest.raises(ClosedError):
        await waiting
    assert len(asyncio.all_tasks() - before) == 1  # for the other gate
    await last.aclose()
    assert asyncio.all_tasks() == before


def test_pacer_serves_one_event_loop_after_the_other() -> None:
    pacer = SharedPacer(PacingOptions(min_delay_s=0.0))

    async def crawl() -> None:
        async with gate_of(pacer) as gate, gate.turn(f"{SITE}/1"):
            pass

    asyncio.run(crawl())
    asyncio.run(crawl())


def test_gate_that_contradicts_its_pacer_is_an_error() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"pacing": PacingOptions(max_concurrent=2)}, "not in max_concurrent=2 and max_concurrent=1"),
        ({"fleet": FleetOptions("redis://127.0.0.1:1/0")}, "give the fleet to the SharedPacer"),
        ({"clock": ManualClock()}, "must have the same clock"),
    ]
    for options, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            gate_of(SharedPacer(), **options)
    with pytest.raises(ConfigurationError, match=r"pacer=SharedPacer\(\.\.\.\)"):
        Gatekeeper(UA, pacing=PacingOptions(scope="crawl"))
    gate = gate_of(SharedPacer(PacingOptions(key="address"), resolver=ScriptedResolver({})))
    with pytest.raises(ConfigurationError, match="key='address'"):
        gate.set_policy("example.com", HostPolicy(min_delay_s=3.0))


async def test_pacer_of_a_closed_gate_starts_nothing_while_another_gate_goes_on(clock: ManualClock) -> None:
    pacer = SharedPacer(clock=clock)
    async with gate_of(pacer) as other:
        async with gate_of(pacer) as gate:
            await known(clock, gate, other)
        with pytest.raises(ClosedError):
            await gate.pacer.start(TurnRequest("example.com", SITE, "ExampleBot"))
        clock.advance(1.0)
        async with other.turn(f"{SITE}/"):
            pass


async def test_gate_that_was_not_built_has_no_share(clock: ManualClock) -> None:
    pacer = SharedPacer(clock=clock)
    with pytest.raises(ConfigurationError):
        gate_of(pacer, policy_tokens={"bogus": "Token"})
    assert repr(pacer).startswith("<SharedPacer of 0 gates")


async def test_second_turn_at_another_gate_is_an_error_at_once(clock: ManualClock) -> None:
    pacer = SharedPacer(clock=clock)
    async with gate_of(pacer) as one, gate_of(pacer) as other:
        await known(clock, one, other)
        clock.advance(1.0)
        async with one.turn(f"{SITE}/1"):
            with pytest.raises(TurnHeld, match=f"{SITE}/1"):
                async with other.turn(f"{SITE}/2"):
                    pass


async def test_events_are_logged_once_and_reach_each_gate(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    pacer, seen = SharedPacer(PacingOptions(min_delay_s=0.0), clock=clock), list[Event]()
    async with gate_of(pacer) as one, gate_of(pacer) as other:
        await known(clock, one, other)
        for gate in (one, other):
            gate.subscribe(seen.append)
        with caplog.at_level(logging.INFO, "politesse"):
            async with other.turn(f"{SITE}/2") as turn:
                turn.observe(429, {"retry-after": "soon"})
    assert len([event for event in seen if isinstance(event, HeaderOverruled)]) == 2
    assert len([text for text in caplog.messages if "retry-after" in text and "soon" in text]) == 1
