"""How requests keep the pace of their host: those of one gate, of several with one clock, and by header fields."""

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.message import Message
from itertools import pairwise, product
from typing import Any, Final

import httpx
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from scrapy.http.headers import Headers as ScrapyHeaders
from urllib3 import HTTPHeaderDict

from politesse import Bound, CacheOptions, Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Reason, TooFar
from politesse.errors import StoreError, TurnHeld
from politesse.events import HostClosed, LongWait, TurnExpired
from politesse.options import Limit, SharedPacer
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.queue import PoliteQueue
from politesse.robots import Dialect
from politesse.testing import Answer, Exchange, ManualClock, ScriptedFetcher, ScriptedResolver, assert_polite
from tests.core.gate import gates
from tests.core.gate.gates import PAGE, ROBOTS_TXT, SITE, Answers, ScriptedGate, TimedFetcher, lasting, moved
from tests.support.calls import calls_of
from tests.support.events import events_of
from tests.support.scripted import UA
from tests.support.stores import KeptStore
from tests.support.tasks import settle

DELAY: Final = "User-agent: *\nCrawl-delay: 5\n"
ABORT: Final = FetchFault(FaultKind.TRUNCATED, "the connection was closed", ROBOTS_TXT)
HOSTER: Final = "https://hoster.example"
PORTS: Final = [f"{SITE}:{8000 + number}" for number in range(90)]


class TimedGate(ScriptedGate):
    """A ScriptedGate whose answers take a tenth of a second, with a log of requests and pages."""

    def __init__(self, answers: Answers | None = None, **options: Any) -> None:
        clock = ManualClock(autojump=True)
        fetcher = TimedFetcher(clock, answers, takes_s=0.1)
        super().__init__(clock=clock, fetcher=fetcher, **options)
        self.log = fetcher.log

    def gaps(self, host: str = "example.com") -> list[float]:
        """Return the seconds from the end of each request to a host to the start of the next."""
        log = [one for one in self.log if host in one.url.split("/")[2]]
        return [round(after.started - before.ended, 3) for before, after in pairwise(log)]

    async def visit(self, url: str = PAGE) -> None:
        async with self.turn(url) as turn:
            turn.observe(200)
            self.log.append(Exchange(url, self.clock.wall(), self.clock.wall()))

    async def check_all(self, *origins: str) -> None:
        await self.check_batch(f"{origin}/page" for origin in origins)


async def test_page_after_a_robots_txt_that_reopened_its_site_waits_for_the_interval() -> None:
    failures: list[Answer] = [503, 429, 500, ABORT]
    for failure, asked_between in product(failures, (False, True)):
        async with TimedGate({SITE: [failure, DELAY]}) as gate:
            assert not await gate.check(PAGE)
            await gate.clock.sleep(70.0)
            if asked_between and not isinstance(turn := gate.try_turn(ROBOTS_TXT), NotYet):
                turn.give_back()
            await gate.clock.sleep(70.0)
            await gate.visit()
            assert gate.fetcher.count(SITE) == 2
            assert gate.gaps()[-1] >= 5.0


async def test_first_page_waits_for_the_interval_where_addresses_are_known_at_once() -> None:
    resolver = ScriptedResolver({"example.com": ["192.0.2.1"]})
    async with TimedGate({SITE: DELAY}, pacing=PacingOptions(address=Limit()), resolver=resolver) as gate:
        await gate.visit()
        assert gate.gaps() == [5.0]


async def test_refresh_does_not_restart_the_interval_of_a_page_that_is_due() -> None:
    async with TimedGate({SITE: lasting(60, DELAY)}) as gate:
        await gate.visit()
        await gate.clock.sleep(56.0)
        assert await gate.check(PAGE)
        await gate.visit()
        assert gate.fetcher.count(SITE) == 2
        assert gate.gaps()[1:] == [56.0, 0.0]


async def test_copy_that_expires_while_a_page_waits_for_its_pace_does_not_restart_the_wait() -> None:
    for delay_s in (86_400, 200_000):
        answers = {SITE: f"User-agent: *\nCrawl-delay: {delay_s}\n"}
        async with TimedGate(answers) as gate:
            for _ in range(3):
                await asyncio.wait_for(gate.visit(), 10.0)
            assert_polite(gate.log, answers, agent="examplebot")
            assert gate.clock.monotonic() <= 3.1 * delay_s


async def test_copy_that_expires_and_could_not_be_stored_does_not_restart_the_wait_for_its_page() -> None:
    store, starts = KeptStore({}, fails={"put": StoreError("full")}), []
    async with TimedGate({SITE: lasting(60, "User-agent: *\nCrawl-delay: 100\n")}, store=store) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for place in range(3):
            await queue.put(f"{SITE}/{place}")
        for _ in range(3):
            async with asyncio.timeout(10), queue.turn():
                starts.append(round(gate.clock.monotonic()))
    assert starts == [100, 200, 300]


async def test_site_that_forbade_everything_until_now_is_opened_like_any_other() -> None:
    forbidden = FetchResponse(403, ROBOTS_TXT, {"cache-control": "max-age=60"})
    async with TimedGate({SITE: [forbidden, DELAY]}, cache=CacheOptions(on_forbidden="disallow")) as gate:
        assert not await gate.check(PAGE)
        await gate.clock.sleep(100.0)
        await gate.visit()
        assert gate.gaps()[-1] >= 5.0


async def test_robots_txt_that_waits_in_line_is_not_requested_if_a_policy_denies_its_host() -> None:
    async with TimedGate() as gate:
        checks = [asyncio.create_task(gate.check(f"{scheme}://example.com/")) for scheme in ("https", "http")]
        await gate.clock.sleep(0.05)
        gate.set_policy("example.com", HostPolicy(deny=True))
        assert [verdict.reason for verdict in await asyncio.gather(*checks)] == [Reason.POLICY_DENY] * 2
        assert [one.url for one in gate.log] == [ROBOTS_TXT]


async def test_long_line_of_requests_for_robots_txt_is_published_once() -> None:
    async with TimedGate() as gate:
        waits = events_of(gate, LongWait)
        await gate.check_all(*PORTS)
    assert [event.host for event in waits] == ["example.com"]


async def test_a_long_wait_for_the_same_cause_is_published_again_after_a_short_wait() -> None:
    async with TimedGate({SITE: "User-agent: *\nCrawl-delay: 70\n"}) as gate:
        waits, numbers = events_of(gate, LongWait), []
        for pause_s in (0.0, 0.0, 50.0, 0.0, 0.0):
            await gate.clock.sleep(pause_s)
            await gate.visit()
            numbers.append(len(waits))
    assert numbers == [1, 1, 1, 2, 2]
    assert {event.bound_by for event in waits} == {Bound.CRAWL_DELAY}


async def test_unreachable_port_does_not_hold_up_the_pages_of_its_host() -> None:
    cache = CacheOptions(retry_min_s=60.0, retry_max_s=60.0)
    async with TimedGate({SITE: "User-agent: *\nCrawl-delay: 100\n", f"{SITE}:8443": 500}, cache=cache) as gate:
        await gate.visit()
        visiting = asyncio.ensure_future(gate.visit())
        for _ in range(8):
            await gate.clock.sleep(70.0)
            assert not await gate.check(f"{SITE}:8443/page")
        assert visiting.done()


async def test_requests_for_robots_txt_to_a_host_go_out_one_at_a_time_and_after_the_first_two_spaced() -> None:
    for floor_s in (1.0, 3.0):
        async with TimedGate(pacing=PacingOptions(min_delay_s=floor_s)) as gate:
            await gate.check_all(*PORTS[:5])
            assert gate.gaps() == [0.0, floor_s, floor_s, floor_s]
            assert_polite(gate.log, {}, agent="ExampleBot", min_delay_s=floor_s)


async def test_host_that_was_left_alone_for_a_minute_is_sent_two_requests_at_once_again() -> None:
    async with TimedGate() as gate:
        for place in (0, 2, 4):
            await gate.check_all(*PORTS[place : place + 2])
            await gate.clock.sleep(61.0)
        assert gate.gaps()[::2] == [0.0, 0.0, 0.0]


async def test_many_origins_that_redirect_to_one_url_have_it_fetched_once_while_it_is_fresh() -> None:
    origins, shared = [f"https://host{number}.test" for number in range(30)], f"{HOSTER}/robots.txt"
    answers = {origin: moved(f"{origin}/robots.txt", shared) for origin in origins}
    async with TimedGate({**answers, HOSTER: gates.found(DELAY, shared, cache_control="max-age=3600")}) as gate:
        await gate.check_all(*origins[:20])
        await gate.clock.sleep(1_800.0)
        verdicts = [await gate.check(f"{origin}/page") for origin in origins]
        assert all(verdicts)
        assert gate.fetcher.count(HOSTER) == 1
        assert verdicts[20].age_s == pytest.approx(1_800, abs=20)
        await gate.clock.sleep(1_801.0)
        assert await gate.check(f"{origins[25]}/page")
        assert gate.fetcher.count(HOSTER) == 2


async def test_origins_that_redirect_to_many_files_of_one_host_wait_for_its_floor() -> None:
    origins = [f"https://host{number}.test" for number in range(6)]
    async with TimedGate({one: moved(f"{one}/robots.txt", f"{HOSTER}/{one[8:]}") for one in origins}) as gate:
        await gate.check_all(*origins)
        assert gate.gaps("hoster.example") == [0.0, 1.0, 1.0, 1.0, 1.0]


async def test_file_of_a_private_address_is_no_file_for_a_redirect_from_a_public_one() -> None:
    answers = {}
    for number, private in enumerate((True, False)):
        origin = f"https://host{number}.test"
        answers[origin] = replace(moved(f"{origin}/robots.txt", f"{HOSTER}/robots.txt"), private=private)
    async with TimedGate(answers) as gate:
        for origin in answers:
            await gate.check_all(origin)
        assert [one.redirected for one in gate.fetcher.requests if one.first_url] == [False, True]


async def test_page_that_waits_for_the_robots_txt_of_a_closed_host_is_told_so() -> None:
    async with TimedGate() as gate:
        async with gate.turn(PAGE) as turn:
            turn.observe(503, {"retry-after": "30"})
        opens_wall = gate.clock.wall() + 30.0
        why = r"an answer such as 429 or 503 has closed the host, so its robots.txt and every page wait"
        with pytest.raises(Disallowed, match=why) as error:
            await gate.take_turn(f"{SITE}:8080/page")
        assert gate.fetcher.count(f"{SITE}:8080") == 0
        assert error.value.verdict.not_before == pytest.approx(opens_wall, abs=0.2)
        await gate.clock.sleep(31.0)
        await gate.visit(f"{SITE}:8080/page")
        assert gate.fetcher.count(f"{SITE}:8080") == 1


# Gates with the same clock share the pace of hosts, one after the other and side by side


WHY: Final = "a test"
LIMIT: Final = Limit(min_delay_s=1.0)
SITES: Final[Answers] = {SITE: ""}
ADDRESSES: Final = ScriptedResolver({f"{name}example.com": ["192.0.2.1"] for name in ("", "www.")})
ADDRESSES.addresses["b.example"] = ["192.0.2.2"]


def gate_of(clock: ManualClock, answers: Answers = SITES, **options: Any) -> ScriptedGate:
    return ScriptedGate(answers, clock=clock, resolver=ADDRESSES, **options)


async def request(gate: ScriptedGate, lasts_s: float = 0.0, *, exempt: str | None = WHY) -> float:
    """Request a page, and return when the request started."""
    async with gate.turn(PAGE, exempt=exempt):
        started = gate.clock.monotonic()
        await gate.clock.sleep(lasts_s)
    return started


async def allowed(gate: ScriptedGate, lasts_s: float = 0.0) -> float:
    """Request a page that robots.txt allows, and return when the request started."""
    return await request(gate, lasts_s, exempt=None)


def shortest(starts: Sequence[float]) -> float:
    return min(later - earlier for earlier, later in pairwise(sorted(starts)))


def test_gate_for_each_page_keeps_the_pace_in_one_event_loop_or_in_several(clock: ManualClock) -> None:
    async def visit(pacer: SharedPacer | None = None) -> float:
        async with gate_of(clock, pacer=pacer) as gate:
            return await request(gate)

    async def visits(pacer: SharedPacer | None = None) -> list[float]:
        return [await visit(pacer) for _ in range(5)]

    assert shortest([asyncio.run(visit()) for _ in range(5)]) == pytest.approx(1.0)
    for pacer in (None, SharedPacer(clock=clock)):
        assert shortest(asyncio.run(visits(pacer))) == pytest.approx(1.0)


def test_gate_that_its_program_never_closed_leaves_its_pace_as_well() -> None:
    clock = ManualClock()

    async def visit() -> float:
        gate = gate_of(clock)
        gate.set_policy("example.com", HostPolicy(exempt=True, reason=WHY))
        answer = gate.try_turn(PAGE)
        if isinstance(answer, NotYet):
            return answer.not_before - clock.wall()
        with answer:
            clock.advance(0.5)
        return 0.0

    assert [asyncio.run(visit()) for _ in range(3)] == [0.0, 1.0, 1.0]


async def test_gate_that_only_asks_for_a_turn_leaves_the_pace_of_the_gate_before_it(clock: ManualClock) -> None:
    async with gate_of(clock) as gate:
        await gate.check(PAGE)
    opened = clock.monotonic()
    async with gate_of(clock) as gate:
        with pytest.raises(TooFar):
            await gate.take_turn(PAGE, exempt=WHY, max_wait_s=0)
    async with gate_of(clock) as gate:
        assert await request(gate) == pytest.approx(opened + 1.0)


def test_many_gates_one_after_the_other_take_linear_time(clock: ManualClock) -> None:
    async def visit(hosts: range) -> None:
        for place in hosts:
            async with gate_of(clock) as gate, gate.turn(f"https://h{place}.example/", exempt=WHY):
                pass

    def visits(first: int, count: int) -> Callable[[], None]:
        return lambda: asyncio.run(visit(range(first, first + count)))

    visits(0, 10)()
    few = calls_of(visits(10, 10))
    visits(20, 130)()
    assert calls_of(visits(150, 10)) < 1.05 * few  # one call for each earlier host would be a tenth more


async def test_gate_that_joins_others_takes_little_time_for_each_of_its_policies(clock: ManualClock) -> None:
    async with gate_of(clock) as other, gate_of(clock) as gate:
        await other.check(PAGE)
        for place in range(100):
            gate.set_policy(f"h{place}.example", HostPolicy(exempt=True, reason=WHY, min_delay_s=3.0))
        assert calls_of(lambda: gate.try_turn("https://h0.example/").end()) < 100 * 60  # type: ignore[union-attr]


async def test_gates_side_by_side_wait_in_one_line(clock: ManualClock) -> None:
    async with gate_of(clock) as one, gate_of(clock) as other:
        starts = await asyncio.gather(*(allowed(gate, 0.25) for gate in (one, other, one, other)))
    assert shortest(starts) == pytest.approx(1.25)


async def test_host_that_asked_a_closed_gate_to_wait_is_closed_for_the_next(clock: ManualClock) -> None:
    async with gate_of(clock) as gate, gate.turn(PAGE) as turn:
        turn.observe(429, {"retry-after": "3600"})
    closed = clock.monotonic()
    async with gate_of(clock) as gate:
        assert (await gate.check(PAGE)).reason is Reason.TOO_MANY_REQUESTS  # its robots.txt waits as well
        assert await request(gate) == pytest.approx(closed + 3600)


async def test_robots_txt_of_a_host_is_requested_at_the_pace_by_each_gate(clock: ManualClock) -> None:
    fetched = []
    for _ in range(5):
        async with gate_of(clock) as gate:
            await gate.check(PAGE)
        fetched.append(clock.monotonic())
    assert fetched[1] - fetched[0] < 1.0  # the first two need no pause
    assert shortest(fetched[1:]) == pytest.approx(1.0)


async def test_long_crawl_delay_and_the_pace_of_a_slow_server_outlive_their_gate(clock: ManualClock) -> None:
    starts = []
    for _ in range(3):
        async with gate_of(clock, {SITE: "User-agent: *\nCrawl-delay: 3600"}) as gate:
            starts.append(await allowed(gate))
        await clock.sleep(1800)
    assert shortest(starts) >= 3600
    await clock.sleep(3600)
    async with gate_of(clock) as gate:
        await request(gate, lasts_s=8.0)
    async with gate_of(clock) as gate:
        assert await request(gate) >= starts[-1] + 5400 + 8.0 + 7.9


async def test_task_with_a_turn_of_a_closed_gate_gets_turns_of_other_hosts_alone(clock: ManualClock) -> None:
    async with gate_of(clock) as gate, gate_of(clock) as other:
        await other.check("https://www.example.com/")
        with await gate.take_turn(PAGE, exempt=WHY):
            await gate.aclose()
            async with other.turn("https://www.example.com/", exempt=WHY):
                pass
            with pytest.raises(TurnHeld):
                await other.take_turn(PAGE, exempt=WHY)
            async with gate_of(clock) as late:
                with pytest.raises(TurnHeld):
                    await late.take_turn(PAGE, exempt=WHY)
        with await other.take_turn(PAGE, exempt=WHY):
            await other.aclose()
            async with gate_of(clock, pacing=PacingOptions(max_concurrent=2)) as two, two.turn(PAGE, exempt=WHY):
                pass


PACINGS: Final = {
    "host": PacingOptions(),
    "address": PacingOptions(key="address"),
    "limit": PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=LIMIT),
}


async def test_turn_that_is_under_way_at_the_close_of_its_gate_holds_its_host() -> None:
    for paced_by, pacing in PACINGS.items():
        clock = ManualClock(autojump=True)
        gate, between, other = (gate_of(clock, pacing=pacing) for _ in range(3))
        turn = await gate.take_turn(PAGE, exempt=WHY)
        await gate.aclose()
        await between.check("https://b.example/")  # a gate that does not use the host passes the turn on
        await between.aclose()
        async with other:
            waiting = asyncio.create_task(request(other))
            await clock.sleep(30)
            assert other.hosts()["192.0.2.1" if paced_by == "address" else "example.com"].in_flight == 1
            turn.end()
            ended = clock.monotonic()
            assert ended >= 30
            assert await waiting >= ended + 1.0
        assert [used.statistics().turns for used in (gate, between, other)] == [0, 0, 0]
        assert all(status.in_flight == 0 for used in (gate, between, other) for status in used.hosts().values())


async def test_turn_that_never_ends_holds_its_host_until_it_expires_also_after_the_close_of_its_gate() -> None:
    for paced_by, opened_s in product(("host", "limit"), (100, 900)):
        clock = ManualClock(autojump=True)
        gate = gate_of(clock, pacing=PACINGS[paced_by])
        turn = await gate.take_turn(PAGE, exempt=WHY)
        await gate.aclose()
        await clock.sleep(opened_s)
        async with gate_of(clock, pacing=PACINGS[paced_by]) as other:
            expired = events_of(other, TurnExpired)
            assert await request(other) == pytest.approx(max(600, opened_s) + 1, abs=0.1)
            assert [event.url for event in expired] == [PAGE]
        assert not turn.under_way


async def test_turn_that_ends_while_no_gate_is_open_holds_its_host_for_one_interval_or_as_its_answer_asks() -> None:
    for answered, wait_s in ((None, 0.0), ({}, 1.0), ({"retry-after": "600"}, 600.0)):
        clock = ManualClock(autojump=True)
        gate = gate_of(clock)
        turn = await gate.take_turn(PAGE, exempt=WHY)
        await gate.aclose()
        await clock.sleep(30)
        if answered is None:
            turn.give_back()
        else:
            turn.observe(503 if answered else 200, answered)
            turn.end()
        async with gate_of(clock, pacing=PacingOptions(adaptive_factor=0.0)) as other:
            assert await request(other) == pytest.approx(30 + wait_s)


async def test_several_turns_that_are_under_way_at_the_close_of_their_gate_count_for_the_next() -> None:
    for address in (None, Limit(min_delay_s=0.0, max_concurrent=2)):
        clock = ManualClock(autojump=True)
        pacing = PacingOptions(max_concurrent=2, adaptive_factor=0.0, address=address)
        gate = gate_of(clock, pacing=pacing)
        first, second = [await gate.take_turn(PAGE, exempt=WHY) for _ in range(2)]
        await gate.aclose()
        async with gate_of(clock, pacing=pacing) as other:
            waiting = asyncio.create_task(request(other, 60.0))
            await clock.sleep(30)
            last = asyncio.create_task(request(other))
            second.end()
            ended = clock.monotonic()
            await clock.sleep(0.5)
            first.give_back()  # the request of this gate, which is later, sets the interval
            assert await waiting == pytest.approx(ended)
            assert await last == pytest.approx(ended + 1.0)
        assert all(timer.cancelled for *_, timer in clock._timers)


async def test_answer_in_a_turn_of_a_closed_gate_closes_the_host_for_the_next_gate(clock: ManualClock) -> None:
    gate = gate_of(clock)
    turn = await gate.take_turn(PAGE, exempt=WHY)
    await gate.aclose()
    async with gate_of(clock) as other:
        waiting = asyncio.create_task(request(other))
        await clock.sleep(30)
        turn.observe(503, {"retry-after": "600"})
        answered = clock.monotonic()
        turn.end()
        assert await waiting == pytest.approx(answered + 600)


def test_turn_of_an_event_loop_that_has_ended_holds_no_host(clock: ManualClock) -> None:
    pacer, turns = SharedPacer(clock=clock), []

    async def visit() -> float:
        async with gate_of(clock, pacer=pacer) as gate:
            turns.append(await gate.take_turn(PAGE, exempt=WHY))
            return clock.monotonic()

    starts = [asyncio.run(visit()) for _ in range(3)]
    for turn in turns:
        turn.end()
    assert shortest(starts) == pytest.approx(1.0)


async def test_hosts_of_an_address_keep_their_pace_over_several_gates(clock: ManualClock) -> None:
    for paced_by in ("address", "limit"):
        starts = []
        for url in (PAGE, "https://www.example.com/", PAGE):
            async with gate_of(clock, pacing=PACINGS[paced_by]) as gate, gate.turn(url):
                starts.append(clock.monotonic())
        assert shortest(starts) >= 1.0


async def test_each_gate_keeps_its_own_floor_on_a_host_of_both(clock: ManualClock) -> None:
    slow = PacingOptions(min_delay_s=5.0, adaptive_factor=0.0)
    async with gate_of(clock, pacing=slow) as patient, gate_of(clock, pacing=PacingOptions(min_delay_s=2.0)) as gate:
        await gate.check(PAGE)
        first = await allowed(patient)
        assert await allowed(gate) == pytest.approx(first + 2.0)
        assert await allowed(patient) == pytest.approx(first + 7.0)


async def test_no_host_gets_more_requests_at_once_than_each_gate_permits() -> None:
    many = PacingOptions(max_concurrent=3, min_delay_s=0.0, adaptive_factor=0.0)
    for opens_first in ("one", "many"):
        clock = ManualClock(autojump=True)
        one, other = gate_of(clock), gate_of(clock, pacing=many)
        async with one, other:
            for gate in (one, other) if opens_first == "one" else (other, one):
                await gate.check(PAGE)
            await clock.sleep(5.0)
            first = asyncio.create_task(allowed(other, 10.0))
            await clock.sleep(1.0)
            tasks = [first, *(asyncio.create_task(allowed(gate, 10.0)) for gate in (one, other))]
            assert shortest(await asyncio.gather(*tasks)) >= 10.0
            await one.aclose()
            assert shortest(await asyncio.gather(*(allowed(other, 10.0) for _ in range(3)))) == 0.0


async def test_policy_of_a_gate_does_not_quicken_another_gate(clock: ManualClock) -> None:
    async with gate_of(clock) as ours, gate_of(clock) as gate:
        ours.set_policy("example.com", HostPolicy(max_concurrent=5, min_delay_s=0.0))
        await asyncio.gather(ours.check(PAGE), gate.check(PAGE))
        assert shortest([await allowed(gate, 0.25) for _ in range(3)]) == pytest.approx(1.25)
        assert shortest(await asyncio.gather(allowed(ours, 10.0), allowed(gate))) >= 10.0


async def test_cap_of_a_gate_does_not_bind_a_gate_that_obeys(clock: ManualClock) -> None:
    sites = {SITE: "User-agent: *\nCrawl-delay: 30"}
    capped = PacingOptions(on_long_crawl_delay="cap", max_crawl_delay_s=2.0)
    async with gate_of(clock, sites, pacing=capped) as gate, gate_of(clock, sites) as other:
        await asyncio.gather(gate.check(PAGE), other.check(PAGE))
        first = await allowed(other)
        assert await allowed(other) == pytest.approx(first + 30.0)


async def test_gates_with_their_own_pacers_or_clocks_or_unhashable_ones_share_nothing(clock: ManualClock) -> None:
    class Clock(ManualClock):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return self is other

    unhashable = Clock(autojump=True)
    gates = [gate_of(clock), gate_of(clock, pacer=SharedPacer(clock=clock)), ScriptedGate(jumps=True)]
    for gate in (*gates, gate_of(unhashable), gate_of(unhashable)):
        assert await request(gate) == 0.0
    for gate in gates:
        await gate.aclose()


def test_gate_that_was_made_outside_of_an_event_loop_belongs_to_the_loop_that_uses_it_first(clock: ManualClock) -> None:
    made = gate_of(clock)
    made.set_policy("example.com", HostPolicy(min_delay_s=4.0))

    async def crawl() -> list[float]:
        async with made, gate_of(clock) as other:
            await asyncio.gather(made.check(PAGE), other.check(PAGE))
            await clock.sleep(5.0)
            return [await allowed(gate) for gate in (other, made, other)]

    first, second, third = asyncio.run(crawl())
    assert [second - first, third - second] == pytest.approx([4.0, 1.0])


def test_event_loops_in_threads_are_paced_apart_and_leave_their_pace() -> None:
    both, errors = threading.Barrier(2), list[BaseException]()

    async def crawl() -> None:
        async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
            for place in range(20):
                async with gate.turn(f"https://{place}.example/", exempt=WHY):
                    pass
            both.wait(10)
            gate.hosts()

    def run() -> None:
        try:
            asyncio.run(crawl())
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []

    async def next_start() -> object:
        async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
            return await gate.take_turn("https://1.example/", exempt=WHY, max_wait_s=0)

    with pytest.raises(TooFar, match=r"1\.example"):
        asyncio.run(next_start())


async def test_closed_gate_leaves_no_task_and_no_timer() -> None:
    before = asyncio.all_tasks()
    async with ScriptedGate() as gate:
        async with gate.turn(PAGE, exempt=WHY) as turn:
            turn.observe(429, {"retry-after": "3600"})
        waiting = asyncio.create_task(gate.take_turn(PAGE, exempt=WHY))
        await settle()
    await asyncio.gather(waiting, return_exceptions=True)
    await settle()
    assert asyncio.all_tasks() == before
    assert all(timer.cancelled for *_, timer in gate.clock._timers)


def test_event_loops_leave_nothing_but_marks() -> None:
    loops = weakref.WeakSet[asyncio.AbstractEventLoop]()

    async def visit(place: int) -> None:
        loops.add(asyncio.get_running_loop())
        gate = Gatekeeper(UA, fetcher=ScriptedFetcher())
        async with gate.turn(f"https://h{place}.example/", exempt=WHY):
            pass
        if place % 2:
            await gate.aclose()

    for place in range(20):
        asyncio.run(visit(place))
    gc.collect()
    assert len(loops) == 0


async def test_process_forgets_the_hosts_that_were_left_alone_for_long_and_no_others() -> None:
    async def visit(clock: ManualClock, hosts: int) -> int:
        async with gate_of(clock) as gate:
            for place in range(hosts):
                (await gate.take_turn(f"https://h{place}.example/", exempt=WHY)).end()
        gc.collect()
        return sum(type(found).__name__ == "Demand" for found in gc.get_objects())

    for passed_s, forgotten in ((2.0, False), (1_000_000.0, True)):
        clock = ManualClock(autojump=True)
        most = await visit(clock, 510)
        await clock.sleep(passed_s)
        assert (await visit(clock, 1) < most - 500) is forgotten


# How the gate reads the header fields of an answer: lines of one name, numbers, challenges


WALL: Final = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
BURST: Final = '"burst";r=0;t=100'
DAILY: Final = '"daily";r=1000;t=3600'


async def wait_after(status: int, headers: Any, **pacing: float) -> tuple[float, Bound]:
    """Return how long the next request waits after an answer, and what makes it wait."""
    options: Any = {"min_delay_s": 1.0, "adaptive_factor": 0.0, **pacing}
    async with ScriptedGate(clock=ManualClock(WALL - 60), pacing=PacingOptions(**options)) as gate:
        await gate.check(PAGE)
        gate.clock.advance(60)  # beyond the interval after robots.txt
        async with gate.turn(PAGE) as turn:
            turn.observe(status, headers)
        refused = gate.refused()
        return round(refused.not_before - WALL, 3), refused.bound_by


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_field_count_in_any_order_and_in_the_type_of_any_client() -> None:
    lines = [("Server", "x"), ("RateLimit", BURST), ("ratelimit", DAILY)]
    message, merged = Message(), HTTPHeaderDict()
    for name, value in lines:
        message[name] = value
        merged.add(name, value)
    kinds: dict[str, Any] = {
        "CIMultiDict": CIMultiDict(lines),
        "CIMultiDictProxy": CIMultiDictProxy(CIMultiDict(lines)),
        "httpx.Headers": httpx.Headers(lines),
        "raw octets": tuple((name.encode(), value.encode()) for name, value in lines),
        "pairs": lines,
        "pairs in another order": lines[::-1],
        "pairs that are read once": iter(lines),
        "http.client": message,
        "urllib3": merged,
        "Scrapy": ScrapyHeaders({"Server": "x", "RateLimit": [BURST, DAILY]}),
        "lists of lines": {"server": ["x"], "ratelimit": [BURST, DAILY]},
    }
    for no_text in ({"Content-Length": 5, "Server": None, "Retry-After": "60"}, {"Retry-After": 60}):
        assert await wait_after(429, no_text) == (60.0, Bound.RETRY_AFTER)
    waits = {kind: await wait_after(200, headers) for kind, headers in kinds.items()}
    assert waits == dict.fromkeys(kinds, (100.0, Bound.RATE_LIMIT))


def remains(remaining: str, reset: str) -> dict[str, str]:
    return {"x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset}


DATE: Final = "Fri, 15 Jan 2027 08:00:00 GMT"
IN_90_S: Final = "Fri, 15 Jan 2027 08:01:30 GMT"
BEFORE_90_S: Final = "Fri, 15 Jan 2027 07:58:30 GMT"
IN_MS: Final = {"ratelimit-remaining": "0", "ratelimit-reset": f"{WALL * 1000:.0f}", "date": BEFORE_90_S}
NUMBERS: Final[dict[str, tuple[dict[str, str], float]]] = {
    "no request remains, as a decimal": (remains("0.0", "90"), 90.0),
    "less than one request remains": (remains("0.4", "90"), 90.0),
    "a decimal remains": (remains("9.0", "90"), 10.0),
    "reset with a fraction": (remains("0", "90.5"), 90.5),
    "Unix time with a fraction": (remains("0", f"{WALL + 90.5:.3f}"), 90.5),
    "Unix time in ms": (remains("0", f"{(WALL + 90) * 1000:.0f}"), 90.0),
    "Unix time in ms, by Date": (IN_MS, 90.0),
    "reset with its unit": (remains("0", "90000ms"), 90.0),
    "reset with seconds as its unit": (remains("0", "90 s"), 90.0),
    "two lines of each": (remains("0, 99", "90, 7"), 90.0),
    "two lines of each, the other way round": (remains("99, 0", "7,90"), 90.0),
    "an unreadable line": (remains("many, 0", "soon, 90"), 90.0),
    "decimals of a member": ({"ratelimit": '"a";r=0.0;t=90.5'}, 90.5),
    "two members of one name": ({"ratelimit": '"a";r=0;t=90, "a";r=100;t=5'}, 90.0),
    "a parameter twice": ({"ratelimit": '"a";r=0;r=100;t=90;t=5'}, 90.0),
    "lines of the older form": ({"ratelimit": "limit=10, remaining=0, reset=90, limit=9, remaining=8, reset=7"}, 90.0),
    "a number at the limit of reading": ({"ratelimit": '"a";r=0;t=90, "' + "x" * 998 + '";r=0;t=4000'}, 90.0),
    "Retry-After with a fraction": ({"retry-after": "90.5"}, 90.5),
    "two lines of Retry-After": ({"retry-after": "2814, 2"}, 2814.0),
    "two lines of Retry-After, the other way round": ({"retry-after": "2,2814"}, 2814.0),
    "an unreadable Retry-After first": ({"retry-after": "soon, 90"}, 90.0),
    "seconds and a date": ({"retry-after": f"7, {IN_90_S}"}, 90.0),
    "two dates": ({"retry-after": f"{IN_90_S}, Fri, 15 Jan 2027 08:00:09 GMT"}, 90.0),
    "two lines of Date": ({"retry-after": DATE, "date": f"{DATE}, {BEFORE_90_S}"}, 90.0),
}


async def test_decimals_count_and_of_two_readings_the_slower_one() -> None:
    waits = {case: (await wait_after(200, headers))[0] for case, (headers, _) in NUMBERS.items()}
    assert waits == {case: wait_s for case, (_, wait_s) in NUMBERS.items()}


CHALLENGES: Final = {
    "cf-mitigated: challenge": (403, {"cf-mitigated": "challenge"}),
    "x-amzn-waf-action: challenge": (202, {"x-amzn-waf-action": "challenge"}),
    "x-amzn-waf-action: captcha": (405, {"x-amzn-waf-action": "captcha"}),
}


async def test_challenge_is_a_refusal_with_any_status() -> None:
    for (shown, (_, headers)), status in product(CHALLENGES.items(), (200, 202, 304, 403, 405, 503)):
        async with ScriptedGate(jumps=True) as gate, gate.turn(PAGE) as turn:
            turn.observe(status, {name.title(): value.title() for name, value in headers.items()})
            turn.end()
            refused = gate.refused()
            assert refused.not_before - gate.clock.wall() == pytest.approx(900.0, rel=0.2)
            told = f"refused 1 time in a row: {status}, {shown}"
            assert (refused.bound_by, str(refused.refusal)) == (Bound.REFUSED, told)
    for headers in ({"x-amzn-waf-action": "allow"}, {"cf-mitigated": "captcha"}):
        assert await wait_after(200, headers) == (1.0, Bound.FLOOR)


@pytest.mark.clause("RFC 9309 2.3.1.1")
async def test_challenge_in_place_of_robots_txt_closes_the_site_and_an_empty_answer_does_not() -> None:
    dialects = (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_1996)
    bodies = (b"", b"<html>", b"User-agent: *\nAllow: /\n")
    for dialect, (shown, (status, headers)), body in product(dialects, CHALLENGES.items(), bodies):
        answers = [FetchResponse(status, ROBOTS_TXT, headers, body), FetchResponse(404, ROBOTS_TXT)]
        async with ScriptedGate({SITE: answers}, dialect=dialect) as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
            assert verdict.source is not None
            assert verdict.source.fault == f"the server answered with status {status}, {shown}"
            assert verdict.not_before is not None
            gate.clock.advance(verdict.not_before - WALL)
            assert dialect is Dialect.GOOGLE or await gate.check(PAGE)  # Google closes a site for 12 hours
    for status in (202, 204):  # RFC 9309 2.3.1.1: an empty answer without a challenge is a file
        async with ScriptedGate({SITE: status}) as gate:
            assert await gate.check(PAGE)


async def test_challenge_in_place_of_robots_txt_does_not_replace_a_copy() -> None:
    status, headers = CHALLENGES["x-amzn-waf-action: challenge"]
    async with ScriptedGate({SITE: [gates.PRIVATE, FetchResponse(status, ROBOTS_TXT, headers)]}) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(23 * gates.HOUR)
        await gate.check(PAGE)
        await settle()
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        assert gate.fetcher.count(SITE) == 2


async def test_closing_for_900_s_or_by_a_refusal_is_a_warning_at_any_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.pacing")
    answers = [(403, {"cf-mitigated": "challenge"}), (200, {"retry-after": "900"})]
    for (status, headers), n in product(answers, range(40)):
        async with ScriptedGate() as gate:
            closed = events_of(gate, HostClosed)
            await gate.check(PAGE)
            gate.clock.advance(60 + n / 10 + n * n / 7)
            async with gate.turn(PAGE) as turn:
                turn.observe(status, headers)
            [closed_s] = [event.closed_s for event in closed]
            assert closed_s == 900.0 if status == 200 else 900.0 < closed_s <= 990.0  # a backoff has a jitter
    await wait_after(*answers[0], refused_min_s=60.0)
    levels = [record.levelname for record in caplog.records if "is closed until" in record.message]
    assert levels == ["WARNING"] * 81


async def test_a_host_that_closes_does_not_open_a_site_that_is_unreachable() -> None:
    unavailable, other = FetchResponse(403, ROBOTS_TXT, {"cache-control": "max-age=3600"}), "http://example.com"
    async with ScriptedGate({SITE: [unavailable, 500, 500], other: 404}, clock=ManualClock(autojump=True)) as gate:
        assert await gate.check(PAGE)
        assert await gate.check(f"{other}/page")
        gate.clock.advance(3300)
        await gate.check(PAGE)  # the refresh, which fails
        await settle()
        verdict = await gate.check(PAGE)
        assert verdict.reason is Reason.UNREACHABLE
        assert verdict.not_before is not None
        async with gate.turn(f"{other}/page") as turn:
            turn.observe(429, {"retry-after": "3600"})
        gate.clock.advance(verdict.not_before + 1.0 - gate.clock.wall())
        assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE


async def close_host(gate: ScriptedGate, url: str, hours: float) -> None:
    async with gate.turn(url) as turn:
        turn.observe(429, {"retry-after": f"{hours * 3600:.0f}"})


async def test_the_time_for_which_a_host_is_closed_is_none_of_failures() -> None:
    other = "http://example.com"
    options: dict[str, Any] = {"clock": ManualClock(autojump=True), "dialect": Dialect.GOOGLE}
    async with ScriptedGate({SITE: [500, "User-agent: *\nDisallow: /"], other: 404}, **options) as gate:
        assert not await gate.check(PAGE)
        await close_host(gate, f"{other}/page", 20)
        for _ in range(39):  # GOOGLE opens a site without a copy after twelve hours of failures
            gate.clock.advance(1800)
            assert not await gate.check(PAGE)
        assert gate.fetcher.count(SITE) == 1
        gate.clock.advance(3600)
        assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE


async def test_failures_before_and_after_a_closure_count_together() -> None:
    other = "http://example.com"
    options: dict[str, Any] = {"clock": ManualClock(autojump=True), "dialect": Dialect.GOOGLE}
    async with ScriptedGate({SITE: 500, other: 404}, **options) as gate:
        for _ in range(10):
            assert not await gate.check(PAGE)
            gate.clock.advance(3600)
        await close_host(gate, f"{other}/page", 20)
        reasons = []
        for _ in range(30):
            gate.clock.advance(3600)
            reasons.append((await gate.check(PAGE)).reason)
        opened = reasons.index(Reason.UNAVAILABLE)
        assert 20 <= opened <= 24  # twelve hours of failures, and twenty of closure


async def test_a_404_of_more_than_a_day_ago_opens_no_site_whose_host_is_closed() -> None:
    other = "http://example.com"
    rules = "User-agent: *\nDisallow: /page"
    options: dict[str, Any] = {"clock": ManualClock(autojump=True), "dialect": Dialect.KOSTER_2019}
    async with ScriptedGate({SITE: [rules, 404, rules], other: 404}, **options) as gate:
        assert not await gate.check(PAGE)
        assert await gate.check(f"{other}/page")
        gate.clock.advance(21.7 * 3600)
        await gate.check(PAGE)  # the refresh, which is answered with 404
        await settle()
        gate.clock.advance(1.9 * 3600)
        await close_host(gate, f"{other}/page", 24)
        gate.clock.advance(60)
        await gate.check(PAGE)
        await settle()
        gate.clock.advance(2 * 3600)
        assert (await gate.check(PAGE)).reason is Reason.TOO_MANY_REQUESTS
        gate.clock.advance(23 * 3600)
        assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE


async def test_a_policy_that_comes_and_goes_opens_no_site_that_is_unreachable() -> None:
    async with ScriptedGate({SITE: [404, 500]}) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(22 * 3600)
        await gate.check(PAGE)  # the refresh, which fails
        await settle()
        assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE
        gate.clock.advance(70)
        asking = [asyncio.create_task(gate.check(f"{origin}/page")) for origin in (*PORTS[:3], SITE)]
        await settle()  # the last one stands in line
        gate.set_policy("example.com", HostPolicy(deny=True))
        while not all(task.done() for task in asking):
            gate.clock.advance(1)
            await settle()
        gate.set_policy("example.com", None)
        assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE


async def test_the_response_time_of_an_earlier_gate_is_forgotten_with_its_rest() -> None:
    clock, gaps = ManualClock(autojump=True), []
    for rest_s in (10.0, 3600.0, 3600.0):
        async with ScriptedGate({SITE: 404}, clock=clock, pacing=PacingOptions(adaptive_factor=1.0)) as gate:
            await gate.check(PAGE)
            asked_mono = clock.monotonic()
            async with gate.turn(PAGE) as turn:
                gaps.append(clock.monotonic() - asked_mono)
                await clock.sleep(50.0)
                turn.observe(200)
        await clock.sleep(rest_s)
    assert gaps == [1.0, 50.0, 1.0]  # from the request for robots.txt


@pytest.mark.parametrize(
    ("statuses", "closings"),
    [
        ((503, 503, 503, 200, 503, 200, 200, 200, 503), (10, 20, 40, 40, 10)),  # the table of ``demand.py``
        ((500, 500, 200, 500, 500), ()),
        ((500, 500, 404, 500, 500, 500), (10,)),
        ((503, 404, 503), (10, 10)),
        (("robots.txt", 200, "robots.txt"), (60, 60)),
        (("robots.txt", 60.0, "robots.txt"), (60, 120)),
    ],
)
async def test_answers_between_failures_shorten_the_next_closing(
    statuses: Sequence[int | float | str], closings: Sequence[int]
) -> None:
    pacing = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0)
    busy = {f"{SITE}:{8000 + number}": 429 for number in range(len(statuses))}
    async with ScriptedGate(busy | {SITE: 404}, clock=ManualClock(autojump=True), pacing=pacing) as gate:
        closed = events_of(gate, HostClosed)
        await gate.check(PAGE)
        for origin, status in zip(busy, statuses, strict=True):
            if isinstance(status, str):  # of another origin of the host
                await gate.check(f"{origin}/page")
            elif isinstance(status, float):
                gate.clock.advance(status)
            else:
                async with gate.turn(PAGE) as turn:
                    turn.observe(status)
        assert len(closed) == len(closings)
        assert all(least <= event.closed_s <= 1.1 * least for event, least in zip(closed, closings, strict=True))


async def test_header_that_is_not_obeyed_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.pacing")
    for value, begin in {
        "12": "retry-after: 12 from example.com is too short, because the own backoff is longer; waiting 20 s",
        "soon": "retry-after: soon from example.com is unreadable; waiting 2",  # with the jitter of the backoff
        "999999": "retry-after: 999999 from example.com is too long; waiting 86400 s",
    }.items():
        await wait_after(429, {"retry-after": value}, backoff_min_s=20.0)
        assert [line for line in caplog.messages if line.startswith(begin)] != []
