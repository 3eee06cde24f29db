"""What hosts have asked for holds after a restart: a new gate, with a new clock, on the store of an earlier one."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from politesse import Bound, ClosedError, HostPolicy, PacingOptions, PoliteQueue, Reason, TooFar, Turn
from politesse.errors import StoreError
from politesse.options import Limit, SharedPacer
from politesse.ports import Store
from politesse.queue import CrawlPage
from politesse.stores import MemoryStore
from politesse.testing import ManualClock
from tests.core.gate.gates import PAGE, PRIVATE, SITE, Answers, ScriptedGate
from tests.core.queue.simulated import Reply, SimulatedWeb
from tests.support.events import failures_of
from tests.support.pacing import Resolving
from tests.support.stores import FailingStore, KeptStore
from tests.support.tasks import settle

KEY: Final = "pace/host/example.com"
SLOW: Final[Answers] = {SITE: "User-agent: *\nCrawl-delay: 30\n"}
DIGEST_BYTES: Final = 16
PARTNER: Final = HostPolicy(exempt=True, reason="a partner")


class Machine:
    """A machine on which processes run one after the other: its wall clock goes on, and so does what is on its disk."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.clock = ManualClock(autojump=True)
        self.records: dict[str, bytes] = {}
        self.answers = dict(answers or {SITE: PRIVATE})

    def restart(self, after_s: float = 0.0) -> float:
        """Start the monotonic clock anew, as another process would find it, some seconds later; return the time."""
        self.clock = ManualClock(self.clock.wall() + after_s, autojump=True)
        return self.clock.wall()

    def gate(self, store: Store | None = None, *, exempt: bool = False, **options: Any) -> ScriptedGate:
        store = KeptStore(self.records) if store is None else store
        gate = ScriptedGate(self.answers, store=store, clock=self.clock, **options)
        if exempt:
            gate.set_policy("example.com", PARTNER)
        return gate

    def process(self, store: Store | None = None) -> ScriptedGate:
        """Return a gate as another process at the same time would have it: it shares the store alone."""
        return self.gate(store, pacer=SharedPacer(clock=self.clock))

    async def request(self, gate: ScriptedGate, status: int = 200, url: str = PAGE) -> float:
        """Request a page, which takes no time; return the Unix time."""
        async with gate.turn(url) as turn:
            turn.observe(status, {"retry-after": "3600"} if status == 429 else {})
            return self.clock.wall()

    async def closed(self, after_s: float = 0.0) -> float:
        """Have the host closed for an hour in one process, which ends; return when it opens."""
        async with self.gate() as gate:
            opens_wall = await self.request(gate, 429) + 3600
        self.restart(after_s)
        return opens_wall

    async def restarted(self, after_s: float = 0.0, *, exempt: bool = False) -> float:
        """Start the next process, some seconds later, and request a page; return the Unix time of that."""
        self.restart(after_s)
        async with self.gate(exempt=exempt) as gate:
            return await self.request(gate)

    def state(self) -> dict[str, object]:
        """Return the state that is kept of the host: JSON after the version and a digest."""
        state: dict[str, object] = json.loads(self.records[KEY].partition(b" ")[2][DIGEST_BYTES:])
        return state


class UpdatingStore(KeptStore):
    """A KeptStore that changes a record in one step, at the end of its delay."""

    async def update(self, key: str, change: Callable[[bytes | None], bytes], /) -> None:
        await self.call("update", key)
        self.records[key] = change(self.records.get(key))


def about(seconds: float) -> Any:
    """Equal to the hundredth of a second: relative to a Unix time, ``approx`` would pass half an hour."""
    return pytest.approx(seconds, rel=0.0, abs=0.01)


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def opens(gate: ScriptedGate) -> float:
    """Return when a turn is possible, once robots.txt and the host are known."""
    await gate.check(PAGE)
    answer = gate.refused()
    if answer.bound_by is Bound.STORE:
        await settle()
        answer = gate.refused()
    return answer.not_before


async def test_note_after_one_whose_writing_was_cancelled_before_it_began_is_written(machine: Machine) -> None:
    async with machine.gate() as gate:
        async with gate.turn(PAGE) as turn:
            await settle()
            others = asyncio.all_tasks()
            turn.observe(429, {"Retry-After": "3600"})
            for task in asyncio.all_tasks() - others:
                task.cancel()
            await settle()
            assert machine.state()["answers"] is None
        await settle()
        assert machine.state()["answers"] is not None


async def test_retry_after_of_a_page_holds_after_a_restart(machine: Machine) -> None:
    opens_wall = await machine.closed(after_s=600)
    async with machine.gate() as gate:
        assert await opens(gate) == opens_wall
        assert gate.refused().bound_by is Bound.RETRY_AFTER
        with pytest.raises(TooFar) as caught:
            await gate.take_turn(PAGE, max_wait_s=60)
        assert caught.value.not_yet.not_before == opens_wall
        assert gate.hosts()["example.com"].closed_until == opens_wall
        assert await machine.request(gate) == about(opens_wall)
        assert gate.asked == []


async def test_wait_that_is_too_long_is_refused_as_soon_as_the_host_is_recalled(machine: Machine) -> None:
    await machine.closed()
    async with machine.gate(KeptStore(machine.records, 0.5, machine.clock)) as gate:
        await gate.check(PAGE)
        asked_wall = machine.clock.wall()
        with pytest.raises(TooFar) as caught:
            await gate.take_turn(PAGE, max_wait_s=60)
        assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
        assert machine.clock.wall() == asked_wall + 0.5


async def test_backoff_is_forgotten_after_a_restart_when_a_running_crawler_would_have_forgotten_it() -> None:
    machine = Machine()
    async with machine.gate() as gate:
        await machine.request(gate, 503)
    machine.restart(after_s=60)
    async with machine.gate() as gate:
        refused_wall = await machine.request(gate, 503)
        assert 10 <= gate.hosts()["example.com"].not_before - refused_wall <= 11


async def test_process_that_is_killed_in_the_middle_of_a_request_keeps_its_pace_and_its_refusal() -> None:
    for status, wait_s in ((None, 30), (429, 3600 - 3 - 4)):
        machine = Machine(SLOW)
        gate = machine.gate()
        turn = await gate.take_turn(PAGE)
        if status is not None:
            turn.observe(status, {"Retry-After": "3600"})
        await machine.clock.sleep(3)
        on_disk = dict(machine.records)  # nothing that the first process does from now on is kept
        turn.end()
        await gate.aclose()
        machine.records = on_disk
        await machine.restarted(after_s=4)
        assert machine.clock.monotonic() == about(wait_s)


async def test_request_that_was_under_way_long_ago_delays_nothing() -> None:
    machine = Machine(SLOW)
    async with machine.gate() as gate:
        turn = await gate.take_turn(PAGE)
        await settle()
    turn.end()
    await machine.restarted(after_s=3_600)
    assert machine.clock.monotonic() == about(0.0)


async def test_gate_learns_what_a_host_has_asked_another_for_when_it_begins_with_it(machine: Machine) -> None:
    async with machine.gate() as one, machine.process() as other:
        await machine.request(other, url="https://b.example/")
        closed_wall = await machine.request(one, 429)
        await settle()
        assert await opens(other) == about(closed_wall + 3600)


async def test_two_processes_on_one_store_do_not_share_the_pace(machine: Machine) -> None:
    async with machine.gate() as one, machine.process() as other:
        await asyncio.gather(one.check(PAGE), other.check(PAGE))
        await machine.clock.sleep(60)
        starts = await asyncio.gather(machine.request(one), machine.request(other))
        assert starts[0] == about(starts[1])


async def test_address_is_remembered_whatever_the_host() -> None:
    limit = PacingOptions(address=Limit(min_delay_s=20.0))
    addresses = Resolving({"example.com": ["192.0.2.1"], "b.example": ["192.0.2.1"]})
    for pacing, status, wait_s in (PacingOptions(key="address"), 429, 3600), (limit, 200, 20):
        machine = Machine()
        async with machine.gate(pacing=pacing, resolver=addresses) as gate:
            asked_wall = await machine.request(gate, status)
        assert "pace/address/192.0.2.1" in machine.records
        machine.restart(after_s=5)
        async with machine.gate(pacing=pacing, resolver=addresses) as gate:
            gate.set_policy("b.example", PARTNER)
            assert await machine.request(gate, url="https://b.example/") == about(asked_wall + wait_s)


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
async def test_crawl_of_a_queue_goes_through_the_recall_of_its_hosts(machine: Machine, delay_s: float) -> None:
    async with machine.gate() as gate:
        asked = {url: await machine.request(gate, url=url) for url in (f"https://h{n}.example/" for n in range(10))}
    machine.restart(after_s=0.2)
    visited: dict[str, float] = {}

    async def handle(page: CrawlPage[None], _: Reply) -> None:
        visited[page.url] = machine.clock.wall()

    async with machine.gate(KeptStore(machine.records, delay_s, machine.clock)) as gate, asyncio.timeout(30):
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for url in asked:
            await queue.put(url)
        report = await queue.crawl(SimulatedWeb(), handle)
    assert (report.pages, report.left) == (10, 0)
    assert visited.keys() == asked.keys()
    assert all(visited[url] >= asked[url] + 0.999 for url in asked)


async def test_first_request_to_an_unknown_host_waits_for_the_store_alone_which_keeps_no_other_file() -> None:
    machine, store = Machine(), MemoryStore()
    await machine.restarted(exempt=True)
    assert machine.clock.monotonic() == about(0.0)
    async with machine.gate() as gate:
        await gate.datatxt(SITE)
    assert machine.records.keys() == {SITE, KEY}
    machine.restart()
    async with machine.gate(store) as gate:
        await machine.request(gate)
        await settle()
        assert (len(store), await store.get(KEY)) == (1, None)  # a memory keeps no state of hosts


async def test_turn_is_refused_for_a_moment_while_its_host_is_recalled_and_a_wait_names_it(machine: Machine) -> None:
    store = FailingStore(machine.records, "get")
    async with machine.gate(store, exempt=True) as gate:
        answer = gate.refused()
        assert answer.bound_by is Bound.STORE
        assert 0 < answer.not_before - machine.clock.wall() <= 0.1
        assert (gate.hosts()["example.com"].in_flight, gate.statistics().in_flight) == (0, 0)
        with pytest.raises(TooFar) as caught:
            await gate.take_turn(PAGE, max_wait_s=1)
        assert (caught.value.not_yet.bound_by, machine.clock.monotonic()) == (Bound.STORE, 1.0)
        store.release.set()
        await settle()
        turn = gate.try_turn(PAGE)
        assert isinstance(turn, Turn)
        turn.end()


async def test_cancelled_wait_for_the_recall_affects_no_other_caller(machine: Machine) -> None:
    store = FailingStore(machine.records, "get")
    async with machine.gate(store, exempt=True) as gate:
        impatient, patient = (asyncio.ensure_future(gate.take_turn(PAGE)) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.sleep(0)
        store.release.set()
        (await patient).end()
        assert impatient.cancelled()
        assert store.count("get", KEY) <= 2  # to recall, and to write


async def test_cancelled_question_during_the_recall_affects_no_other_caller(machine: Machine) -> None:
    store = FailingStore(machine.records, "get")
    async with machine.gate(store, exempt=True) as gate:
        turn = asyncio.ensure_future(gate.take_turn(PAGE))
        await asyncio.sleep(0)
        gate.set_policy("example.com", None)
        store.methods.clear()
        questions = [asyncio.ensure_future(gate.check(f"{SITE}/{place}")) for place in range(2)]
        await settle()
        questions[0].cancel()
        await asyncio.sleep(0)
        store.release.set()
        assert (await questions[1]).allowed
        (await turn).end()


async def test_closing_the_gate_ends_the_wait_for_the_recall(machine: Machine) -> None:
    store = FailingStore(machine.records, "get")
    gate = machine.gate(store)
    waiting = asyncio.ensure_future(gate.take_turn(PAGE, exempt="our own server"))
    question = asyncio.ensure_future(gate.check("http://example.com/"))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await gate.aclose()
    assert gate.asked == []
    for task in (waiting, question):
        with pytest.raises(ClosedError):
            await task
    assert store.closed


async def test_robots_txt_and_exempt_turns_wait_for_a_host_that_is_closed_by_memory(machine: Machine) -> None:
    opens_wall = await machine.closed(after_s=60)
    del machine.records[SITE]
    async with machine.gate() as gate:
        for url in (PAGE, "http://example.com/", "https://example.com:8443/"):
            verdict = await gate.check(url)
            assert verdict.reason is Reason.TOO_MANY_REQUESTS
            assert verdict.source is not None
            assert (verdict.source.not_before or 0.0) >= opens_wall
        assert gate.asked == []
        async with gate.turn(PAGE, exempt="our own server"):
            assert machine.clock.wall() == about(opens_wall)


async def test_refused_robots_txt_closes_its_host_after_a_restart(machine: Machine) -> None:
    machine.answers[SITE] = 429
    async with machine.gate() as gate:
        await gate.check(PAGE)
        until_wall = gate.hosts()["example.com"].closed_until
    assert until_wall is not None
    assert await machine.restarted(after_s=10, exempt=True) == about(until_wall)


async def test_forgetting_an_origin_does_not_open_its_host(machine: Machine) -> None:
    async with machine.gate() as gate:
        closed_wall = await machine.request(gate, 429)
        await gate.forget(SITE)
    assert await machine.restarted(exempt=True) == about(closed_wall + 3600)


async def test_damaged_state_counts_as_a_request_just_now(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.answers = dict(SLOW)
    await machine.restarted()
    machine.restart(after_s=3_600)
    machine.records[KEY] = machine.records[KEY][:-1]
    async with machine.gate() as gate:
        failures = failures_of(gate)
        await machine.request(gate)
        assert machine.clock.monotonic() == about(30)
        assert ([failure.component for failure in failures], caplog.text.count("The store failed")) == (["store"], 1)
    assert machine.state()["under_way"] is False  # it was written anew


async def test_state_of_another_host_is_not_believed(machine: Machine) -> None:
    await machine.closed()
    machine.records["pace/host/b.example"] = machine.records[KEY]
    async with machine.gate() as gate:
        failures = failures_of(gate)
        await machine.request(gate, url="https://b.example/")
        assert machine.clock.monotonic() == about(1)
        assert "example.com" in str(failures[0].error.__cause__ or failures[0].error)


async def test_closure_from_the_future_holds_for_its_whole_length_from_the_restart() -> None:
    for set_back_s in (200, 301, 86_400):
        machine = Machine()
        await machine.closed(after_s=-set_back_s)
        now_wall = machine.clock.wall()
        async with machine.gate(exempt=True) as gate:  # the robots.txt from the future counts for nothing
            assert await opens(gate) == about(now_wall + 3600)
        assert await machine.restarted(after_s=1800, exempt=True) == about(now_wall + 3600)  # not from each restart


async def test_wall_clock_that_is_set_opens_no_host_sooner_for_the_next_gate_of_the_process(machine: Machine) -> None:
    async with machine.gate() as gate:
        await machine.request(gate, 429)
    machine.clock.set_wall(machine.clock.wall() + 86_400)
    async with machine.gate(exempt=True) as gate:
        closed_mono = machine.clock.monotonic()
        await machine.request(gate)
        assert machine.clock.monotonic() - closed_mono == about(3600)


async def test_host_is_closed_for_no_longer_than_the_options_permit(machine: Machine) -> None:
    await machine.closed()
    async with machine.gate(pacing=PacingOptions(backoff_max_s=100.0)) as gate:
        await machine.request(gate)
        assert machine.clock.monotonic() == about(100)


async def test_store_that_hangs_neither_opens_a_host_at_once_nor_closes_it_for_good() -> None:
    for stubborn in (False, True):
        machine = Machine(SLOW)
        await machine.restarted()
        machine.restart(after_s=10)
        store = FailingStore(machine.records, "get", stubborn=stubborn)
        async with machine.gate(store, exempt=True) as gate:
            failures = failures_of(gate)
            await machine.request(gate)
            store.release.set()
            assert machine.clock.monotonic() == 5.0 + 1.0  # the limit, and one interval
            assert [(failure.origin, failure.component) for failure in failures[:1]] == [(None, "store")]


async def test_closed_host_is_written_again_when_its_store_is_well_again(machine: Machine) -> None:
    store = FailingStore(machine.records, "put")
    async with machine.gate(store) as gate:
        closed_wall = await machine.request(gate, 429)
        await machine.clock.sleep(20)
        assert KEY not in machine.records
        store.release.set()
        store.methods.clear()
        await machine.clock.sleep(60)
        assert KEY in machine.records
    assert await machine.restarted(exempt=True) == about(closed_wall + 3600)


async def test_closed_host_is_written_again_after_a_single_failure(machine: Machine) -> None:
    def fail() -> None:
        store.methods.clear()
        raise StoreError("busy")

    store = FailingStore(machine.records, fail=fail)
    async with machine.gate(store) as gate:
        async with gate.turn(PAGE) as turn:
            await machine.clock.sleep(1)
            closed_wall = machine.clock.wall()
            store.methods.add("put")
            turn.observe(429, {"Retry-After": "3600"})
        await machine.clock.sleep(60)
        assert store.methods == set()
    assert await machine.restarted() == about(closed_wall + 3600)


async def test_closed_host_is_written_when_its_gate_closes_before_the_next_attempt(machine: Machine) -> None:
    store = KeptStore(machine.records)
    async with machine.gate(store) as gate:
        await gate.check(PAGE)
        store.fails["put"] = StoreError("busy")
        closed_wall = await machine.request(gate, 429)
        await settle()
        store.fails.clear()
        await machine.clock.sleep(6)  # the pause of the store is over
    assert await machine.restarted() == about(closed_wall + 3600)


async def test_no_attempt_to_write_a_closed_host_is_left_when_its_gate_has_closed(machine: Machine) -> None:
    async with machine.gate(KeptStore({}, fails={"put": StoreError("busy")})) as gate:
        await machine.request(gate, 429)
    assert [timer for _, _, timer in machine.clock._timers if not timer.cancelled] == []


async def test_notes_of_one_moment_are_written_once(machine: Machine) -> None:
    store = KeptStore(machine.records, 0.2, machine.clock)
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    async with machine.gate(store, pacing=pacing) as gate:
        await gate.check(PAGE)
        before = store.count("put", KEY)
        for _ in range(100):
            await machine.request(gate)
        await machine.clock.sleep(5)
        assert store.count("put", KEY) - before <= 3


async def test_store_that_updates_is_called_once_for_a_note(machine: Machine) -> None:
    store = UpdatingStore(machine.records)
    async with machine.gate(store) as gate:
        await machine.request(gate)
        await settle()
        before = len(store.calls)
        async with gate.turn(PAGE):
            await settle()
        await settle()
        assert store.calls[before:] == [("update", KEY)] * 2  # of its start and of its end


async def test_closure_that_another_process_has_noted_outlives_all_notes_of_this_one() -> None:
    for make in (KeptStore, UpdatingStore):
        machine = Machine()
        async with machine.gate(make(machine.records)) as gate, machine.process(make(machine.records)) as other:
            await machine.request(other)  # it knows the host from now on
            closed_wall = await machine.request(gate, 429)
            for _ in range(3):
                await settle()
                await machine.request(other)  # its own pacer does not know of the closure
        assert await machine.restarted() == about(closed_wall + 3600)


async def test_closure_that_is_noted_while_another_note_waits_for_its_store_is_not_shortened(machine: Machine) -> None:
    slow = UpdatingStore(machine.records, 3.0, machine.clock)
    async with machine.process(slow) as other, machine.gate(UpdatingStore(machine.records)) as gate:
        await machine.request(other)
        await machine.clock.sleep(10)  # it is written
        async with gate.turn(PAGE) as turn:
            await machine.clock.sleep(10)
            async with other.turn(PAGE):
                await machine.clock.sleep(1)  # its start is being written
                closed_wall = machine.clock.wall()
                turn.observe(429, {"Retry-After": "3600"})
            await settle()
    assert await machine.restarted() == about(closed_wall + 3600)


async def test_shared_pace_is_kept_by_the_gates_that_are_left(machine: Machine) -> None:
    pacer = SharedPacer(clock=machine.clock)
    first, second = machine.gate(pacer=pacer), machine.gate(pacer=pacer)
    await machine.request(first)
    await machine.request(second)
    await first.aclose()
    closed_wall = await machine.request(second, 429)
    await second.aclose()
    machine.restart()
    async with machine.process() as gate:
        assert await machine.request(gate) == about(closed_wall + 3600)


async def test_gate_without_a_store_shares_the_memory_of_its_pacer(machine: Machine) -> None:
    pacer = SharedPacer(clock=machine.clock)
    async with machine.gate(pacer=pacer) as gate, machine.gate(MemoryStore(), pacer=pacer) as other:
        await gate.check(PAGE)
        closed_wall = await machine.request(other, 429)
    assert await machine.restarted(exempt=True) == about(closed_wall + 3600)


async def test_store_of_a_gate_keeps_the_hosts_of_the_gates_that_were_open_before(machine: Machine) -> None:
    async with machine.gate(MemoryStore()) as gate:
        await machine.request(gate)
        async with machine.gate() as other:
            await other.check(PAGE)
            closed_wall = await machine.request(gate, 429)
    assert await machine.restarted(exempt=True) == about(closed_wall + 3600)


async def test_closure_in_the_store_of_a_gate_holds_for_a_host_that_an_earlier_gate_has_requested() -> None:
    machine = Machine()
    opens_wall = await machine.closed(after_s=60)
    async with machine.gate(MemoryStore()) as gate:
        await machine.request(gate)  # this gate does not read the store of the earlier process
        async with machine.gate() as other:
            assert await opens(other) == about(opens_wall)


async def test_patience_of_a_queue_begins_with_the_queue_not_with_what_an_earlier_process_met(machine: Machine) -> None:
    machine.answers[SITE] = 503
    async with machine.gate() as gate:
        await gate.check(PAGE)
    machine.restart(after_s=30)
    machine.answers[SITE] = PRIVATE
    refused: list[str] = []
    async with machine.gate() as gate:
        queue = PoliteQueue[str](gate, max_unreachable_s=50, on_disallowed=lambda url, _: refused.append(url))
        await queue.put(PAGE)  # robots.txt is fetched again 60 s after the failure: 30 s from now
        async with queue.turn() as turn:
            assert turn.url == PAGE
    assert refused == []
