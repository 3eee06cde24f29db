import pytest

from politesse import Gatekeeper, Turn
from politesse.events import Decided, Event, TurnGranted
from politesse.queue import PoliteQueue
from politesse.testing import ScriptedFetcher

SITE = "https://example.com"


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: "User-agent: *\nCrawl-delay: 5"})


@pytest.fixture
def events(gate: Gatekeeper) -> list[Event]:
    events: list[Event] = []
    gate.subscribe(events.append)
    return events


def waits(events: list[Event]) -> list[tuple[str, float]]:
    return [(event.verdict.url, event.waited_s) for event in events if isinstance(event, TurnGranted)]


async def test_turn_tells_how_long_its_caller_waited(gate: Gatekeeper, events: list[Event]) -> None:
    for page in "ab":
        async with gate.turn(f"{SITE}/{page}"):
            pass
    assert waits(events) == [(f"{SITE}/a", 5.0), (f"{SITE}/b", 5.0)]


async def test_turn_is_published_after_its_decision(gate: Gatekeeper, events: list[Event]) -> None:
    async with gate.turn(f"{SITE}/a"):
        pass
    assert [type(event) for event in events if isinstance(event, Decided | TurnGranted)] == [Decided, TurnGranted]


async def test_calls_that_do_not_wait_publish_a_wait_of_zero(gate: Gatekeeper, events: list[Event]) -> None:
    await gate.check(f"{SITE}/a")
    await gate.clock.sleep(5.0)
    turn = gate.try_turn(f"{SITE}/a")
    assert isinstance(turn, Turn)
    assert not gate.try_turn(f"{SITE}/b")
    turn.end()
    await gate.clock.sleep(5.0)
    [again, other] = await gate.try_turns([f"{SITE}/c", f"{SITE}/d"])
    assert isinstance(again, Turn)
    assert not other
    again.end()
    assert waits(events) == [(f"{SITE}/a", 0.0), (f"{SITE}/c", 0.0)]


async def test_turn_of_a_queue_tells_how_long_its_worker_waited(gate: Gatekeeper, events: list[Event]) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate)
    await queue.put(f"{SITE}/a")
    await queue.put(f"{SITE}/b")
    for _ in range(2):
        async with queue.turn():
            pass
    assert waits(events) == [(f"{SITE}/a", 5.0), (f"{SITE}/b", 5.0)]
