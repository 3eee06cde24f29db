"""An event loop that stood still: nothing starts early, and no host is reported for the time that it could not use."""

import asyncio

import pytest

from politesse import Gatekeeper
from politesse.events import Event, LongWait, TurnExpired
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import apart, settle

UA = "ExampleBot/1.0 (+https://example.com/bot)"
HOSTS = [f"host{n}.example" for n in range(30)]


def stall(clock: ManualClock, seconds: float) -> None:
    """Move the clock without its timers, and then fire those that are due, all late."""
    clock._move_to(clock.monotonic() + seconds)
    clock.advance(0.0)


async def hold(gate: Gatekeeper, host: str, end: asyncio.Event) -> None:
    async with gate.turn(f"https://{host}/1") as turn:
        turn.observe(200)
        await end.wait()


@pytest.mark.parametrize("before_s", [0.0, 0.5, 4.5])
async def test_a_stall_is_no_long_wait(before_s: float) -> None:
    clock, events, end = ManualClock(), list[Event](), asyncio.Event()
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock) as gate:
        gate.subscribe(events.append)
        await gate.check_batch([f"https://{host}/" for host in HOSTS])
        clock.advance(2.0)
        holding = [apart(hold(gate, host, end)) for host in HOSTS]
        await settle()
        waiting = [apart(gate.take_turn(f"https://{host}/2")) for host in HOSTS]
        await settle()
        clock.advance(before_s)
        stall(clock, 6.0)
        assert not [event for event in events if isinstance(event, LongWait | TurnExpired)]
        stalled_mono = clock.monotonic()
        clock.advance(4.9)
        assert not [event for event in events if isinstance(event, LongWait)]
        clock.advance(1.2)
        held = [event for event in events if isinstance(event, LongWait)]
        assert {event.host for event in held} == set(HOSTS), "the turns are held by no stall"
        end.set()
        await asyncio.gather(*holding)
        assert not any(task.done() for task in waiting), "each interval counts from the end of the turn"
        clock.advance(1.0)
        await settle()
        for turn in await asyncio.gather(*waiting):
            turn.give_back()
        assert clock.monotonic() == pytest.approx(stalled_mono + 7.1)
