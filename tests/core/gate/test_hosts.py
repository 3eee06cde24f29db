import asyncio

import pytest

from politesse import Bound, Gatekeeper, HostPolicy, Origin, PacingOptions
from politesse.events import Event
from politesse.ports import FetchResponse
from politesse.status import HostStatus, RobotsStatus
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.support.scripted import UA
from tests.support.tasks import apart, settle

SITE = "https://example.com"
FILE = "User-agent: *\nCrawl-delay: 10\nDisallow:\n\nUser-agent: OtherBot\nCrawl-delay: 20\nDisallow:\n"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    headers = {"cache-control": "max-age=1000"}
    return ScriptedFetcher({SITE: FetchResponse(200, f"{SITE}/robots.txt", headers, FILE.encode())})


async def test_nothing_is_known_before_the_first_question(gate: Gatekeeper) -> None:
    assert gate.hosts() == {}


async def test_host_of_which_only_robots_txt_was_fetched(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    clock.advance(4.0)
    assert gate.hosts() == {
        "example.com": HostStatus(
            "example.com",
            10.0,
            Bound.CRAWL_DELAY,
            not_before=clock.wall() + 6.0,
            robots=(
                RobotsStatus(
                    Origin.of(SITE),
                    AccessResult.SUCCESSFUL,
                    200,
                    age_s=4.0,
                    next_fetch=clock.wall() - 4.0 + 900.0,  # refreshed after 90 % of its lifetime
                ),
            ),
        )
    }


async def test_pace_is_that_of_the_agent_that_asks(gate: Gatekeeper) -> None:
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0 (+https://example.com/bot)")
    await other.check(f"{SITE}/")
    assert other.hosts()["example.com"].interval_s == 20.0


async def test_idle_host_stays_known_by_its_robots_txt(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    clock.advance(800.0)  # the pacer has forgotten it
    await settle()
    status = gate.hosts()["example.com"]
    assert (status.interval_s, status.bound_by, status.not_before) == (10.0, Bound.CRAWL_DELAY, clock.wall())


async def test_policy_of_a_host_sets_its_pace(clock: ManualClock) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock) as gate:
        gate.set_policy("example.com", HostPolicy(min_delay_s=3.0))
        await gate.check(f"{SITE}/")
        clock.advance(800.0)
        await settle()
        status = gate.hosts()["example.com"]
    assert (status.interval_s, status.bound_by) == (3.0, Bound.FLOOR)


async def test_waiting_requests_and_the_holder_are_named(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    clock.advance(10.0)
    async with gate.turn(f"{SITE}/1"):
        waiting = [apart(gate.take_turn(f"{SITE}/{n}")) for n in (2, 3)]
        await settle()
        clock.advance(5.0)
        status = gate.hosts()["example.com"]
    assert (status.waiting, status.in_flight, status.held_by, status.held_s) == (2, 1, f"{SITE}/1", 5.0)
    assert repr(status) == (
        f"<HostStatus example.com: every 10 s by crawl-delay, 2 waiting, held by {SITE}/1 for 5 s, "
        f"robots.txt of {SITE} successful (200), 15 s old>"
    )
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_repr_of_the_gate_names_the_turn_that_is_held_for_longest(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check_batch([f"{SITE}/", "https://other.test/"])
    assert repr(gate) == "<Gatekeeper examplebot (enforce): 2 origins known, 0 being fetched>"
    clock.advance(10.0)
    async with gate.turn(f"{SITE}/\u202e1"):
        clock.advance(5.0)
        async with gate.turn("https://other.test/"):
            waiting = apart(gate.take_turn(f"{SITE}/2"))
            await settle()
            held = rf"example.com held by {SITE}/\u202e1 for 5 s"
            assert f", 2 turns under way, 1 waiting, {held}>" in repr(gate)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def test_closed_host_says_until_when_and_by_what(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    clock.advance(10.0)
    async with gate.turn(f"{SITE}/1") as turn:
        turn.observe(503, {"Retry-After": "100"})
    status = gate.hosts()["example.com"]
    assert status.closed_by is Bound.RETRY_AFTER
    assert status.closed_until is not None
    assert 100.0 <= status.closed_until - clock.wall() <= 110.0  # jitter
    assert status.not_before == pytest.approx(status.closed_until)
    assert "closed until 2027-01-15T08:0" in str(status)


async def test_failing_robots_txt_and_one_that_is_being_fetched(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: 500})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(f"{SITE}/")
        fetcher.gate.clear()
        asking = asyncio.ensure_future(gate.check("http://example.com/"))
        await settle()
        clock.advance(1.0)
        failing, unknown = gate.hosts()["example.com"].robots
        assert failing.next_fetch is not None
        fetcher.gate.set()
        await asking
    assert (failing.result, failing.status, failing.age_s) == (AccessResult.UNREACHABLE, 500, 1.0)
    assert failing.fault == "the server answered with status 500"
    assert 59.0 <= failing.next_fetch - clock.wall() <= 66.0
    assert (unknown.origin, unknown.result, unknown.fetching) == (Origin.of("http://example.com"), None, True)
    assert repr(unknown) == "<RobotsStatus http://example.com: unknown, being fetched>"


async def test_refresh_under_way_is_reported_with_what_is_known(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    await gate.check(f"{SITE}/")
    clock.advance(950.0)
    fetcher.gate.clear()
    await gate.check(f"{SITE}/")
    [robots] = gate.hosts()["example.com"].robots
    assert (robots.result, robots.fetching, robots.next_fetch) == (AccessResult.SUCCESSFUL, True, clock.wall())
    fetcher.gate.set()


async def test_it_changes_nothing(gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    events: list[Event] = []
    await gate.check(f"{SITE}/")
    clock.advance(950.0)  # a question would start a refresh
    gate.subscribe(events.append)
    before = gate.statistics()
    assert gate.hosts() == gate.hosts()
    await settle()
    assert (gate.statistics(), events, len(fetcher.requests)) == (before, [], 1)


async def test_keys_of_pacing_by_domain_have_a_row_of_their_own(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    pacing = PacingOptions(key="domain", min_delay_s=2.0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        await gate.check("https://www.example.com/")
        hosts = gate.hosts()
    assert [(host, len(status.robots)) for host, status in hosts.items()] == [
        ("example.com", 0),
        ("www.example.com", 1),
    ]


async def test_closed_gate_knows_no_robots_txt(gate: Gatekeeper) -> None:
    await gate.check(f"{SITE}/")
    await gate.aclose()
    assert all(status.robots == () for status in gate.hosts().values())


async def test_remote_text_is_printable(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: RuntimeError("\x1b[2J\n" + "a" * 1_000)})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(f"{SITE}/")
        shown = repr(gate.hosts())
    assert shown.isprintable()
    assert len(shown) < 500
