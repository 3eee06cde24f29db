"""Parts of a member of a fleet, without a Redis: its options and URLs, the server's clock, reservations, the link."""

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from math import inf
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection

from politesse import _redis
from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.messages import FleetAnswer, Reply, ScriptCall, Server, WireLost, microseconds
from politesse._pacing.fleet.reservation import FleetHostState, Reservation
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.server_clock import ServerClock, ServerClocks
from politesse._pacing.fleet.wire import RedisWire
from politesse.clock import SystemClock
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import Event, FleetAway, FleetBack, Publisher
from politesse.options import FleetOptions
from politesse.verdict import Bound
from tests.support.pacing import wants
from tests.support.sites import until
from tests.support.tasks import ended, settle

# Options


def test_slack_is_a_tenth_of_the_interval_and_50_ms_at_most() -> None:
    slack_s = {0.0: 0.0, 0.1: 0.01, 0.5: 0.05, 60.0: 0.05}
    assert {interval_s: pytest.approx(FleetOptions().slack_s(interval_s)) for interval_s in slack_s} == slack_s


def test_invalid_option_is_an_error_that_names_it() -> None:
    messages: list[tuple[dict[str, Any], str]] = [
        ({"lease_s": 0.5}, "lease_s=0.5: give 1 to 86400"),
        ({"timeout_s": 0}, "timeout_s=0: give 0.01 to 60"),
        ({"slack": 0.0}, "slack=0.0: give 0.001 to 1"),
        ({"max_slack_s": float("nan")}, "max_slack_s=nan"),
        ({"prefix": ""}, "prefix=''"),
        ({"prefix": "a\nb"}, "give printable text"),
        ({"prefix": "{a}:"}, "without '{'"),
        ({"prefix": 7}, "prefix=7: give a text"),
        ({"url": 7}, "url: give a text, as 'redis://host:6379/0', no int"),
    ]
    for options, message in messages:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            FleetOptions(**options)


# URLs


def client_of(url: str) -> Redis | RedisCluster:
    return _redis.client_of(url, argument="fleet")


def test_name_of_a_server_holds_no_password() -> None:
    names = {
        "redis://example.com": "redis://example.com:6379/0",
        "redis://user:secret@example.com:7000/3": "redis://example.com:7000/3",
        "redis://:secret@[2001:db8::1]:7000/3": "redis://[2001:db8::1]:7000/3",
        "rediss://example.com/": "redis://example.com:6379/0",
        "unix:///run/redis.sock?db=2&password=secret": "unix:///run/redis.sock",
        "redis+sentinel://:secret@a.example,b.example:26380/crawl/1": "the Redis 'crawl' of a Sentinel",
        # A cluster has asked none of its nodes yet.
        "redis+cluster://192.0.2.1:7000,192.0.2.2": "redis://192.0.2.1:7000,192.0.2.2:6379",
        "rediss+cluster://:secret@192.0.2.1/0": "redis://192.0.2.1:6379",
    }
    assert {url: _redis.name_of(client_of(url)) for url in names} == names


def test_url_says_how_to_connect() -> None:
    tls, unix = client_of("rediss://example.com"), client_of("unix:///run/redis.sock?db=2")
    assert isinstance(tls, Redis)
    assert tls.connection_pool.connection_class is SSLConnection
    assert isinstance(unix, Redis)
    assert unix.connection_pool.connection_class is UnixDomainSocketConnection
    assert unix.connection_pool.connection_kwargs["db"] == 2
    assert _redis.is_cluster("rediss+cluster://192.0.2.1")
    assert not _redis.is_cluster("redis://example.com/?x=+cluster")


def test_sentinels_are_asked_for_their_service() -> None:
    client = client_of("rediss+sentinel://user:secret@a.example,[2001:db8::2]:26380/crawl/1?sentinel_password=other")
    assert isinstance(client, Redis)
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert (pool.service_name, pool.connection_class) == ("crawl", SentinelManagedSSLConnection)
    kwargs = pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"], kwargs["db"]) == ("user", "secret", 1)
    found = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    addresses = [(of.connection_kwargs["host"], of.connection_kwargs["port"]) for of in found]
    assert addresses == [("a.example", 26379), ("2001:db8::2", 26380)]
    assert {of.connection_kwargs["password"] for of in found} == {"other"}
    assert {of.connection_class for of in found} == {SSLConnection}


def test_part_of_a_url_that_means_nothing_is_refused_without_its_secrets() -> None:
    problems = {
        "redis://secret@example.com:70000": "Port out of range",
        "redis://secret@example.com?socket_timeout=secret": "Invalid value for 'socket_timeout'",
        "redis+sentinel://secret@example.com,/crawl": "a host is missing",
        "redis+sentinel://secret@example.com/crawl/first": "'first' is no number of a database",
        "redis+sentinel://secret@example.com/crawl?pace=1": "unexpected keyword argument 'pace'",
        "http+cluster://secret@192.0.2.1": "must specify one of the following schemes",
        "redis+cluster://secret@192.0.2.1/1": "'db' must be 0",
        "redis+cluster://secret@192.0.2.1?pace=1": "unexpected keyword argument 'pace'",
    }
    for url, problem in problems.items():
        with pytest.raises(ConfigurationError, match=rf"^fleet=.*{problem}") as caught:
            client_of(url)
        assert "secret" not in str(caught.value)


# The clock of the server

DAY_US: Final = 86_400_000_000


def read(clock: ServerClock, at_s: float, sent_mono: float, received_mono: float) -> str:
    return clock.fault(DAY_US + round(at_s * 1e6), sent_mono, received_mono)


def test_clock_is_faulty_once_its_answers_show_that_it_was_set_however_late_they_come() -> None:
    rows: list[tuple[list[tuple[float, float, float]], str]] = [
        # This process was stopped, and then the server was.
        ([(5.0, 5.0, 65.0), (125.0, 65.0, 125.0), (125.01, 125.0, 125.02)], ""),
        ([(3601.0, 0.999, 1.001)], "forward by 3600.0 s"),
        ([(1.2, 0.999, 1.001)], "forward by 0.2 s"),
        ([(0.8, 0.999, 1.001)], "back by 0.2 s"),
        ([(-3599.0, 0.999, 1.001)], "back by 3600.0 s"),
        # A late answer does not widen the bounds.
        ([(1.0, 0.0, 60.0), (70.0, 60.999, 61.001)], "forward by 8.9 s"),
        # A message was long on its way, or the clock was set back: it shows only that a clock was set forward.
        ([(5.0, -inf, 65.0), (80.0, -inf, 66.0)], "forward by 13.9 s"),
    ]
    for answers, fault in rows:
        clock = ServerClock()
        *before, last = [read(clock, *answer) for answer in [(0.001, 0.0, 0.002), *answers]]
        assert {*before} == {""}, fault
        assert (last == "") == (fault == ""), fault
        assert fault in last


def test_two_good_clocks_may_drift_apart() -> None:
    clock = ServerClock()
    times = map(float, range(0, 86_400, 20))
    assert {read(clock, at_s * 1.0004, at_s - 0.001, at_s + 0.001) for at_s in times} == {""}
    assert clock.stretch == 1.0


def test_clock_that_runs_at_another_rate_is_a_fault_once_or_twice_and_intervals_are_stretched() -> None:
    for rate, said in ((1.01, "1.0% too fast"), (0.99, "1.0% too slowly"), (1.05, "5.0% too fast")):
        for pause_s in (0.1, 1.0, 5.0):
            clock = ServerClock()
            times = [place * pause_s for place in range(round(300.0 / pause_s))]
            faults = [fault for at_s in times if (fault := read(clock, at_s * rate, at_s - 0.001, at_s + 0.001))]
            assert len(faults) <= 2, (rate, pause_s)
            assert faults[0].startswith("its clock runs ")
            assert said[-8:] in faults[0]
            assert clock.stretch >= rate


def test_late_answer_makes_a_fast_clock_seem_no_faster_and_not_set() -> None:
    for late_s in (0.5, 1.0, 3.0):
        clock = ServerClock()
        read(clock, 0.0, 0.0, late_s)  # the server read its clock at once
        times = [late_s + 0.05 + place for place in range(60)]
        faults = [fault for at_s in times if (fault := read(clock, at_s * 1.02, at_s, at_s + 0.001))]
        assert [re.sub(r"[0-9.]+%", "N%", fault) for fault in faults] == ["its clock runs N% too fast"]
        assert 1.01 <= clock.stretch <= 1.03


@given(
    rate=st.floats(0.92, 1.08),
    delays=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 3), st.floats(0, 3)), min_size=2, max_size=30),
)
def test_delays_never_make_a_clock_seem_faster_than_it_is(
    rate: float, delays: list[tuple[float, float, float]]
) -> None:
    clock, now_mono = ServerClock(), 0.0
    for pause_s, there_s, back_s in delays:
        sent_mono = now_mono + pause_s
        at_mono = sent_mono + there_s
        now_mono = at_mono + back_s
        assert "was set" not in read(clock, at_mono * rate, sent_mono, now_mono)
        assert clock.stretch <= max(1.0, 1.0 + 1.5 * (rate - 1.0) + 1e-6)


def test_each_clock_is_one_of_its_own_and_all_can_be_forgotten() -> None:
    clocks = ServerClocks()
    assert clocks.fault(1, 0, 0.0, 0.0) == ""
    assert clocks.fault(2, DAY_US, 0.0, 0.0) == ""
    assert clocks.fault(1, DAY_US, 0.0, 0.0) != ""
    clocks.forget()
    assert clocks.fault(1, DAY_US, 0.0, 0.0) == ""


# Reservations


def test_patience_doubles_and_halves_within_bounds() -> None:
    line = FleetHostState()
    for _ in range(50):
        line.was_late()
    assert line.patience == 4096.0
    for _ in range(50):
        line.was_in_time()
    assert line.patience == 1.0


def test_answer_tells_what_binds() -> None:
    answer = FleetAnswer("queued", "a.1", 0, 0.0, 0, "interval")
    assert answer.bound(Bound.CRAWL_DELAY) is Bound.CRAWL_DELAY
    assert answer._replace(bound_by="adaptive").bound(Bound.FLOOR) is Bound.ADAPTIVE


def test_microseconds_are_rounded_up() -> None:
    us = {0.0: 0, 1.0: 1_000_000, 0.1: 100_000, 1.0000004: 1_000_001}
    assert {seconds: microseconds(seconds) for seconds in us} == us


def test_lateness_of_a_start_counts_from_the_question_by_the_newest_answer_or_message() -> None:
    reservation = Reservation("a.1", wants(), FleetHostState())
    assert reservation.late_s(0.0, 1.0) == inf, "without an answer it is always late"
    reservation.asked_mono, reservation.asked_at_us = 100.0, 5_000_000
    reservation.take(FleetAnswer("queued", "a.1", 5_000_000, 0.0, 0, "interval"), 100.001)
    message = FleetAnswer("granted", "a.1", 8_000_000, 0.5, 0, "interval")
    reservation.take(message, 107.0)  # sent 3 s after the question, and read 4 s later
    reservation.take(FleetAnswer("queued", "a.1", 7_000_000, 0.0, 0, "interval"), 107.1)
    assert reservation.answer is message
    assert reservation.starts_mono == pytest.approx(107.5)
    assert reservation.late_s(107.5, 1.0) == pytest.approx(4.0)


# The link, on a wire that the test answers

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
        if keys := [call.key.removeprefix("f:") for call in calls if call.script is not Script.MEMBER]:
            answered = asyncio.get_running_loop().create_future()
            self.under_way.append((keys, answered))
            await answered
        else:
            await self.may_report.wait()
        granted = ["granted", "ticket", self.at(), "0", "0", "", "0", "0", "0", "0", "", ""]
        members = ["members", "", self.at(), "0", "0", "", "epoch", ""]
        return [[*(members if call.script is Script.MEMBER else granted)] for call in calls]

    def at(self, ahead_s: float = 0.0) -> str:
        """Return the time of the server."""
        return str(round((1e6 + time.monotonic() + ahead_s) * 1e6))

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

    async def cut(self) -> None:
        """Break the connection in the call that is under way."""
        self.under_way[0][1].set_exception(WireLost("cut"))
        await until(lambda: not self.under_way)

    async def sent(self, batches: int = 1) -> list[list[str]]:
        """Wait until so many batches are under way; return their keys."""
        await until(lambda: len(self.under_way) >= batches)
        return [keys for keys, _ in self.under_way]


@pytest.fixture
def wire() -> SlowWire:
    return SlowWire()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def unused(wire: SlowWire, events: list[Event]) -> FleetLink:
    """Return a link that has not connected yet."""
    publisher = Publisher()
    publisher.subscribe(events.append)
    return FleetLink(wire, FleetOptions(prefix="f:", timeout_s=30.0), clock=SystemClock(), publisher=publisher)


@pytest.fixture
async def link(unused: FleetLink, wire: SlowWire) -> AsyncIterator[FleetLink]:
    await unused.tried()
    yield unused
    wire.answer()
    await unused.leave(NOBODY)


async def test_server_is_back_once_it_has_answered_though_there_is_always_more_to_send(
    link: FleetLink, wire: SlowWire, events: list[Event]
) -> None:
    link.post(Script.RELEASE, "key0")
    await wire.sent()
    await wire.cut()
    await wire.sent()
    assert [type(event) for event in events] == [FleetAway]
    link.post(Script.RELEASE, "key1")
    wire.answer()
    await wire.sent(2)
    assert [type(event) for event in events] == [FleetAway, FleetBack]


async def test_after_a_loss_nothing_starts_before_the_server_has_answered_the_report(
    link: FleetLink, wire: SlowWire
) -> None:
    assert link.hold_s(0.0) == 0.0
    wire.may_report.clear()
    link.post(Script.RELEASE, "key")
    await wire.sent()
    await wire.cut()
    await until(lambda: wire.opened == 2 and link.is_up)
    assert link.hold_s(0.0) is None
    async with asyncio.timeout(10.0):
        wire.may_report.set()
        while link.hold_s(0.0) is None:
            wire.answer()
            await asyncio.sleep(0.001)


def tasks_of_link(*names: str) -> list[asyncio.Task[Any]]:
    """Return the tasks that the link has begun, as they are found by those who do not know them."""
    begun = [f"{room}.{name}" for room in ("FleetLink", "Session") for name in names or ("_run", "_read")]
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") in begun]


@pytest.mark.parametrize(("ahead_s", "losses"), [(0.0, 0), (3600.0, 1), (-3600.0, 0)])
async def test_message_by_a_clock_that_was_set_forward_voids_all_answers(
    link: FleetLink, wire: SlowWire, ahead_s: float, losses: int
) -> None:
    link.post(Script.RELEASE, "posted")
    await wire.sent()
    wire.answer()
    await settle()
    words = ["granted", f"{link.owner}.9", wire.at(ahead_s), "0", "0", "", "0", "0", "0", "0", "", ""]
    wire.messages.put_nowait("\n".join(["f:host:example.com", *words]))
    await settle(30)
    assert link.losses == losses


async def test_message_about_another_round_ends_the_session(link: FleetLink, wire: SlowWire) -> None:
    # Those with another number of words are of another program.
    messages = ["1 2 epoch", "1", "1 2 another-epoch more", "1 2 another-epoch"]
    losses = []
    for message in messages:
        wire.messages.put_nowait("\n".join(["f:members", "member", "other.1", *message.split()]))
        await settle(30)
        losses.append(link.losses)
    assert losses == [0, 0, 0, 1]


async def test_link_of_which_others_cancel_a_task_is_lost_and_found_again(link: FleetLink, wire: SlowWire) -> None:
    await ended(tasks_of_link("_read"))
    link.post(Script.RELEASE, "posted")
    asked = asyncio.ensure_future(link.ask(Script.RESERVE, "asked"))
    await wire.sent()
    assert (wire.opened, link.losses, link.is_up) == (2, 1, True)
    await ended(tasks_of_link("_run"))
    with pytest.raises(WireLost, match="cancelled"):
        await asked
    assert await wire.sent() == [["posted"]]
    assert (wire.opened, link.losses, link.is_up) == (3, 2, True)


async def test_link_whose_task_is_cancelled_as_it_is_closed_is_closed(unused: FleetLink, wire: SlowWire) -> None:
    await unused.tried()
    asked = asyncio.ensure_future(unused.ask(Script.RESERVE, "asked"))
    await wire.sent()
    closing = asyncio.ensure_future(unused.leave(NOBODY))
    await settle()
    await ended(tasks_of_link())
    await closing
    with pytest.raises(ClosedError):
        await asked
    assert (wire.opened, tasks_of_link()) == (1, [])


@pytest.mark.parametrize("late", [0, 30])
def test_event_loop_that_ends_leaves_no_task_of_the_link_behind(
    unused: FleetLink, wire: SlowWire, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    requests = []

    async def request(began: asyncio.Event) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await settle(late)
            unused.post(Script.RELEASE, "example.com")

    async def crawl() -> None:
        await unused.tried()
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
