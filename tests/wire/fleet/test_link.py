"""The link of a process to the Redis of its fleet, on a wire that the test answers."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import pytest

from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.messages import Reply, ScriptCall, Server, WireLost
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import RedisWire
from politesse.clock import SystemClock
from politesse.errors import ClosedError
from politesse.events import Event, FleetAway, FleetBack, Publisher
from politesse.options import FleetOptions
from tests.support.tasks import ended, settle

NOBODY: Final[Any] = None  # a member that never joined


class SlowWire(RedisWire):
    """Answers an exchange when the test says so; what it is asked at a connection at once."""

    name = "slow"
    database = 0

    def __init__(self) -> None:
        self.under_way: list[tuple[list[str], asyncio.Future[None]]] = []
        self.opened = 0
        self.may_report = asyncio.Event()
        self.may_report.set()
        self.messages = asyncio.Queue[str]()

    async def open(self, *channels: str) -> Server:
        self.opened += 1
        return await self.server()

    async def server(self) -> Server:
        return Server("run", 1e6)

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        if [call for call in calls if call.script is not Script.MEMBER]:
            answered = asyncio.get_running_loop().create_future()
            keys = [call.key.removeprefix("f:") for call in calls if call.script is not Script.MEMBER]
            self.under_way.append((keys, answered))
            await answered
        else:
            await self.may_report.wait()
        at = str(round((1e6 + time.monotonic()) * 1e6))
        granted = ["granted", "ticket", at, "0", "0", "", "0", "0", "0", "0", "", ""]
        members = ["members", "", at, "0", "0", "", "epoch", ""]
        return [[*(members if call.script is Script.MEMBER else granted)] for call in calls]

    async def pushes(self) -> AsyncIterator[str]:
        while True:
            yield await self.messages.get()

    async def aclose(self) -> None:
        self.under_way.clear()

    def answer(self) -> None:
        """Answer all that is under way."""
        for _, answered in self.under_way:
            if not answered.done():
                answered.set_result(None)

    async def sent(self, batches: int) -> list[list[str]]:
        """Wait until so many batches are under way; return their keys."""
        async with asyncio.timeout(10.0):
            while len(self.under_way) < batches:
                await asyncio.sleep(0.001)
        return [keys for keys, _ in self.under_way]


@pytest.fixture
def wire() -> SlowWire:
    return SlowWire()


@pytest.fixture
def events() -> list[Event]:
    return []


def link_of(wire: SlowWire, publisher: Publisher | None = None) -> FleetLink:
    options = FleetOptions(prefix="f:", timeout_s=30.0)
    return FleetLink(wire, options, clock=SystemClock(), publisher=publisher or Publisher())


@pytest.fixture
async def link(wire: SlowWire, events: list[Event]) -> AsyncIterator[FleetLink]:
    publisher = Publisher()
    publisher.subscribe(events.append)
    link = link_of(wire, publisher)
    await link.tried()
    yield link
    wire.answer()
    await link.leave(NOBODY)


async def test_a_server_is_back_once_it_has_answered_though_there_is_always_more_to_send(
    link: FleetLink, wire: SlowWire, events: list[Event]
) -> None:
    link.post(Script.RELEASE, "key0")
    await wire.sent(1)
    wire.under_way[0][1].set_exception(WireLost("cut"))
    async with asyncio.timeout(10.0):
        while wire.under_way:
            await asyncio.sleep(0.001)
    await wire.sent(1)
    assert [type(event) for event in events] == [FleetAway]
    link.post(Script.RELEASE, "key1")
    wire.under_way[0][1].set_result(None)
    await wire.sent(2)
    assert [type(event) for event in events] == [FleetAway, FleetBack]


async def test_after_a_loss_nothing_starts_before_the_server_has_answered_the_report(
    link: FleetLink, wire: SlowWire
) -> None:
    assert link.hold_s(0.0) == 0.0
    wire.may_report.clear()
    link.post(Script.RELEASE, "key")
    await wire.sent(1)
    wire.under_way[0][1].set_exception(WireLost("cut"))
    async with asyncio.timeout(10.0):
        while wire.opened < 2 or not link.is_up:
            await asyncio.sleep(0.001)
    assert link.hold_s(0.0) is None
    wire.may_report.set()
    async with asyncio.timeout(10.0):
        while link.hold_s(0.0) is None:
            wire.answer()
            await asyncio.sleep(0.001)


# Others cancel its tasks


def tasks_of_link(*names: str) -> list[asyncio.Task[Any]]:
    """Return the tasks that the link has begun, as they are found by those who do not know them."""
    begun = [f"{room}.{name}" for room in ("FleetLink", "Session") for name in names or ("_run", "_read")]
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") in begun]


async def test_a_link_whose_task_is_cancelled_by_others_is_lost_and_found_again(
    link: FleetLink, wire: SlowWire
) -> None:
    link.post(Script.RELEASE, "posted")
    asked = asyncio.ensure_future(link.ask(Script.RESERVE, "asked"))
    await wire.sent(1)
    await ended(tasks_of_link("_run"))
    with pytest.raises(WireLost, match="cancelled"):
        await asked
    assert await wire.sent(1) == [["posted"]]
    assert (wire.opened, link.losses, link.is_up) == (2, 1, True)


async def test_a_link_whose_reader_is_cancelled_by_others_is_lost_and_found_again(
    link: FleetLink, wire: SlowWire
) -> None:
    await ended(tasks_of_link("_read"))
    link.post(Script.RELEASE, "posted")
    assert await wire.sent(1) == [["posted"]]
    assert (wire.opened, link.losses, link.is_up) == (2, 1, True)


@pytest.mark.parametrize(("ahead_s", "losses"), [(0.0, 0), (3600.0, 1), (-3600.0, 0)])
async def test_a_message_by_a_clock_that_was_set_forward_voids_all_answers(
    link: FleetLink, wire: SlowWire, ahead_s: float, losses: int
) -> None:
    link.post(Script.RELEASE, "posted")
    await wire.sent(1)
    wire.answer()
    await settle()
    at = str(round((1e6 + time.monotonic() + ahead_s) * 1e6))
    words = ["granted", f"{link.owner}.9", at, "0", "0", "", "0", "0", "0", "0", "", ""]
    wire.messages.put_nowait("\n".join(["f:host:example.com", *words]))
    await settle(30)
    assert link.losses == losses


@pytest.mark.parametrize(
    ("message", "losses"),
    [
        ("member other.1 1 2 epoch", 0),
        ("member other.1 1 2 another-epoch", 1),
        ("member other.1 1", 0),  # another program has sent it
        ("member other.1 1 2 another-epoch more", 0),
    ],
)
async def test_a_message_about_another_round_ends_the_session(
    link: FleetLink, wire: SlowWire, message: str, losses: int
) -> None:
    wire.messages.put_nowait("\n".join(["f:members", *message.split()]))
    await settle(30)
    assert link.losses == losses


async def test_a_link_whose_task_is_cancelled_before_it_began_connects_all_the_same() -> None:
    wire = SlowWire()
    link = link_of(wire)
    link.post(Script.RELEASE, "posted")
    await ended(tasks_of_link())
    assert await wire.sent(1) == [["posted"]]
    wire.answer()
    await link.leave(NOBODY)


async def test_a_link_whose_task_is_cancelled_as_it_is_closed_is_closed() -> None:
    wire = SlowWire()
    link = link_of(wire)
    await link.tried()
    asked = asyncio.ensure_future(link.ask(Script.RESERVE, "asked"))
    await wire.sent(1)
    closing = asyncio.ensure_future(link.leave(NOBODY))
    await settle()
    await ended(tasks_of_link())
    await closing
    with pytest.raises(ClosedError):
        await asked
    assert (wire.opened, tasks_of_link()) == (1, [])


@pytest.mark.parametrize("late", [0, 30])
def test_an_event_loop_that_ends_leaves_no_task_of_the_link_behind(late: int, caplog: pytest.LogCaptureFixture) -> None:
    wire = SlowWire()
    link = link_of(wire)
    requests = []

    async def request(began: asyncio.Event) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await settle(late)
            link.post(Script.RELEASE, "example.com")

    async def crawl() -> None:
        await link.tried()
        began = asyncio.Event()
        requests.append(asyncio.create_task(request(began)))
        await began.wait()

    gc.collect()  # of other tests
    caplog.clear()
    asyncio.run(crawl())
    gc.collect()
    assert requests[0].cancelled()
    assert wire.opened == 1
    assert not caplog.records
