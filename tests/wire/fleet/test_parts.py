"""Parts of a member of a fleet, without a Redis: its options and URLs, the server's clock, the link."""

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection
from redis.exceptions import ResponseError

from politesse import PacingOptions, _redis
from politesse._pacing.fleet.messages import Reply, Script, ScriptCall, WireLost
from politesse._pacing.fleet.server_clock import ServerClock
from politesse._pacing.fleet.tickets import Tickets
from politesse._pacing.fleet.wire import ClusterWire, RedisWire
from politesse._pacing.hosts import Hosts
from politesse.clock import SystemClock
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.events import Event, FleetAway, FleetBack, Publisher
from politesse.options import FleetOptions
from tests.support.pacing import HOST, wants
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


async def test_error_of_a_script_on_a_cluster_is_the_reply_of_its_call() -> None:
    class Refusing:
        async def execute_command(self, *_: object) -> None:
            raise ResponseError("FOREIGN it is no host")

    client: Any = Refusing()
    [reply] = await ClusterWire(client).exchange([ScriptCall(Script.STEP, ("host:a",), ())], ())
    assert isinstance(reply, ResponseError)


# The link, on a wire that the test answers


class SlowWire(RedisWire):
    """Answers an exchange of steps when the test says so, and all else at once.

    Each start is granted, or waits for the request of another process if ``is_held``.
    """

    name = "slow"

    def __init__(self) -> None:
        self.under_way: list[tuple[list[str], asyncio.Future[None]]] = []
        self.opened = 0
        self.ahead_s: dict[str, float] = {}
        self.is_held = False
        self.may_report = asyncio.Event()
        self.may_report.set()

    async def open(self) -> str:
        self.opened += 1
        return "run"

    async def run_id(self) -> str:
        return "run"

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        if keys := [call.keys[0].removeprefix("f:2:host:") for call in calls if call.script is not Script.MEMBER]:
            answered = asyncio.get_running_loop().create_future()
            self.under_way.append((keys, answered))
            await answered
        elif calls:
            await self.may_report.wait()
        replies: list[Reply | Exception] = []
        for call in calls:
            at = str(round((1e6 + time.monotonic() + self.ahead_s.get(call.keys[0], 0.0)) * 1e6))
            if call.script is Script.MEMBER:
                replies.append(["members", at, "0", "epoch", "1", "1", "1", "999000000", "0"])
            elif self.is_held:
                replies.append(["wait", at, "50000", "in-flight", "0", "0", "0", "", "0"])
            else:
                replies.append(["granted", at, "0", "", "0", "0", "0", "", "0"])
        return [*replies, *(["epoch", "1", "1", "1"] for _ in rosters)]

    def clock_of(self, key: str, /) -> int:
        return sum(key.encode())

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
        """Wait until so many batches are under way; return their hosts."""
        await until(lambda: len(self.under_way) >= batches)
        return [keys for keys, _ in self.under_way]


@pytest.fixture
def wire() -> SlowWire:
    return SlowWire()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def unused(wire: SlowWire, events: list[Event]) -> Tickets:
    """Return the tickets of a process that has not connected yet."""
    publisher, clock = Publisher(), SystemClock()
    publisher.subscribe(events.append)
    tickets = Tickets(wire, FleetOptions(prefix="f:", timeout_s=30.0), clock=clock, publisher=publisher)
    Hosts(PacingOptions(), clock=clock, publisher=publisher, fleet=tickets)
    return tickets


@pytest.fixture
async def tickets(unused: Tickets, wire: SlowWire) -> AsyncIterator[Tickets]:
    await unused.link.tried()
    yield unused
    wire.answer()
    await unused.hosts.aclose()


def count(tickets: Tickets, host: str) -> None:
    """Let the process have something to tell."""
    tickets.count(f"host:{host}", time.monotonic())


async def test_after_a_loss_what_has_ended_is_told_again_and_the_server_is_back_once_it_has_answered_the_report(
    tickets: Tickets, wire: SlowWire, events: list[Event]
) -> None:
    link = tickets.link
    assert link.hold_s(0.0) == 0.0
    wire.may_report.clear()
    count(tickets, "one")
    await wire.sent()
    await wire.cut()
    assert await wire.sent() == [["one"]]
    assert (wire.opened, link.is_up, link.hold_s(0.0)) == (2, True, None)
    wire.answer()
    await settle()
    assert (link.hold_s(0.0), [type(event) for event in events]) == (None, [FleetAway])
    wire.may_report.set()
    await until(lambda: link.hold_s(0.0) == 0.0)
    assert [type(event) for event in events] == [FleetAway, FleetBack]


async def test_each_node_of_a_cluster_has_a_clock_of_its_own(
    tickets: Tickets, wire: SlowWire, events: list[Event]
) -> None:
    async def tell(host: str) -> None:
        wire.under_way.clear()
        count(tickets, host)
        await wire.sent()
        wire.answer()
        await settle()

    wire.ahead_s["f:2:host:one"] = 0.0
    wire.ahead_s["f:2:host:two"] = 86_400.0
    for host in ("one", "two", "one", "two"):
        await tell(host)
    assert events == []
    wire.ahead_s["f:2:host:one"] = 60.0
    await tell("one")
    assert [event.error for event in events if isinstance(event, FleetAway)] == ["its clock was set forward by 60.0 s"]


async def test_question_that_was_sent_ends_when_redis_is_lost(tickets: Tickets, wire: SlowWire) -> None:
    asked = asyncio.ensure_future(tickets.asked("host:one"))
    await wire.sent()
    await wire.cut()
    await asyncio.wait_for(asked, 10.0)


async def test_what_comes_while_a_batch_is_under_way_is_one_batch_after_it(tickets: Tickets, wire: SlowWire) -> None:
    count(tickets, "one")
    await wire.sent()
    for host in ("one", "two", "two", "three"):
        count(tickets, host)
    wire.answer()
    assert await wire.sent(2) == [["one"], ["one", "two", "three"]]


async def test_ticket_of_a_waiter_that_has_left_while_redis_was_asked_is_given_back(
    tickets: Tickets, wire: SlowWire
) -> None:
    waiting = asyncio.ensure_future(tickets.hosts.start(wants()))
    assert await wire.sent() == [[HOST]]
    await ended([waiting])
    wire.answer()
    assert await wire.sent(2) == [[HOST]] * 2
    wire.answer()
    await until(lambda: not tickets.active)
    assert not tickets.link.due


async def test_wait_for_another_process_keeps_its_name_while_redis_is_asked_again(
    tickets: Tickets, wire: SlowWire
) -> None:
    wire.is_held = True
    waiting = asyncio.ensure_future(tickets.hosts.start(wants(), 0.3))
    await wire.sent()
    wire.answer()
    await wire.sent(2)  # the second question gets no answer
    with pytest.raises(TooFar, match="by in-flight"):
        await waiting


def tasks_of_link() -> list[asyncio.Task[Any]]:
    """Return the tasks that the link has begun, as they are found by those who do not know them."""
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "FleetLink._run"]


async def test_link_whose_task_others_cancel_is_lost_and_found_again(tickets: Tickets, wire: SlowWire) -> None:
    count(tickets, "one")
    asked = asyncio.ensure_future(tickets.asked("host:two"))
    await wire.sent()
    await ended(tasks_of_link())
    await asked
    [hosts] = await wire.sent()
    assert "one" in hosts
    assert (wire.opened, tickets.link.is_up) == (2, True)


async def test_link_whose_task_is_cancelled_as_it_is_closed_is_closed(unused: Tickets, wire: SlowWire) -> None:
    await unused.link.tried()
    waiting = asyncio.ensure_future(unused.hosts.start(wants()))
    await wire.sent()
    closing = asyncio.ensure_future(unused.hosts.aclose())
    await settle()
    await ended(tasks_of_link())
    await closing
    with pytest.raises(ClosedError):
        await waiting
    assert (wire.opened, tasks_of_link()) == (1, [])


@pytest.mark.parametrize("late", [0, 30])
def test_event_loop_that_ends_leaves_no_task_of_the_link_behind(
    unused: Tickets, wire: SlowWire, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    requests = []

    async def request(began: asyncio.Event) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await settle(late)
            count(unused, "one")

    async def crawl() -> None:
        await unused.link.tried()
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
