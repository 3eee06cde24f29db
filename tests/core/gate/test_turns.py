"""Turns: those that are exempt, those of report mode, their events, and the status of hosts."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, Final

import pytest

from politesse import Bound, FetchOptions, Gatekeeper, HostPolicy, Origin, PacingOptions, PoliteQueue, Reason, Turn
from politesse.errors import ConfigurationError, Disallowed, InvalidURL, TooFar
from politesse.events import Decided, Event, TurnGranted
from politesse.status import HostStatus, RobotsStatus
from politesse.verdict import AccessResult
from tests.core.gate.gates import PAGE, ROBOTS_TXT, SITE, ScriptedGate, found, lasting, refusal
from tests.support.events import events_of
from tests.support.scripted import UA
from tests.support.tasks import apart, ended, settle

WHY: Final = "by agreement"

# Turns that are taken without asking robots.txt, for a reason


@pytest.fixture
async def gate() -> AsyncIterator[ScriptedGate]:
    pacing = PacingOptions(min_delay_s=2.0, adaptive_factor=0.0)
    async with ScriptedGate({SITE: "User-agent: *\nDisallow: /\nCrawl-delay: 7\n"}, jumps=True, pacing=pacing) as gate:
        yield gate


async def too_far(gate: ScriptedGate, max_wait_s: float) -> tuple[Bound, float]:
    """Return what an exempt request waits for, and for how long, which is more than it may wait."""
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(PAGE, exempt=WHY, max_wait_s=max_wait_s)
    return caught.value.not_yet.bound_by, caught.value.not_yet.not_before - gate.clock.wall()


async def test_exempt_request_fetches_no_robots_txt_and_is_reported_and_counted(gate: ScriptedGate) -> None:
    events: list[Event] = []
    gate.subscribe(events.append)
    async with gate.turn(PAGE, exempt=WHY) as turn:
        verdict = turn.verdict
        assert (turn.url, verdict.allowed, verdict.reason, verdict.note) == (PAGE, True, Reason.POLICY_EXEMPT, WHY)
        assert WHY in verdict.explain()
    assert events == [Decided(verdict), TurnGranted(verdict, 0.0)]
    (await gate.take_turn("https://other.example/", exempt=WHY)).end()
    images = gate.agent(tokens="ExampleBot-Image", user_agent="ExampleBot-Image/1.0")
    async with images.turn(PAGE, exempt=WHY) as turn:
        assert "examplebot-image" in str(turn.verdict.agent)
    assert (gate.asked, gate.statistics().allowed) == ([], 3)


async def test_exempt_request_is_not_bound_by_known_rules(gate: ScriptedGate) -> None:
    with pytest.raises(Disallowed):
        await gate.take_turn(PAGE)
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="ours"))  # the reason of the request replaces it
    async with gate.turn(PAGE, exempt=WHY, max_wait_s=7.0) as turn:
        assert turn.verdict.note == WHY


async def test_exemption_needs_a_reason_in_words_and_a_valid_url(gate: ScriptedGate) -> None:
    for reason in ("", "  ", "\n"):
        with pytest.raises(ConfigurationError, match="give the reason"):
            await gate.take_turn(PAGE, exempt=reason)
        with pytest.raises(ConfigurationError, match="give the reason"):
            async with gate.turn(PAGE, exempt=reason):
                pass
    with pytest.raises(InvalidURL):
        await gate.take_turn("mailto:us", exempt=WHY)
    with pytest.raises(InvalidURL):
        gate.exempted("mailto:us", WHY)
    assert (gate.asked, gate.statistics().turns, gate.statistics().decisions) == ([], 0, 0)


async def test_exempt_request_keeps_the_pace_of_the_crawler_and_of_the_host(gate: ScriptedGate) -> None:
    (await gate.take_turn(f"{SITE}/1", exempt=WHY)).end()
    assert await too_far(gate, 1.9) == (Bound.FLOOR, 2.0)
    async with gate.turn(PAGE, exempt=WHY) as turn:
        assert gate.clock.monotonic() == pytest.approx(2.0)
        turn.observe(429, {"Retry-After": "600"})
    assert await too_far(gate, 599) == (Bound.RETRY_AFTER, 600.0)


async def test_exempt_request_keeps_the_crawl_delay_of_a_known_robots_txt(gate: ScriptedGate) -> None:
    await gate.check(PAGE)
    assert await too_far(gate, 6.9) == (Bound.CRAWL_DELAY, 7.0)


async def test_denying_policy_outranks_the_exemption_also_during_its_wait(gate: ScriptedGate) -> None:
    (await gate.take_turn(f"{SITE}/1", exempt=WHY)).end()
    waiting = asyncio.create_task(gate.take_turn(PAGE, exempt=WHY))
    await asyncio.sleep(0)
    assert gate.statistics().waiting == 1
    gate.set_policy("example.com", HostPolicy(deny=True, reason="they asked us to"))
    for refused in (waiting, gate.take_turn(PAGE, exempt=WHY)):
        with pytest.raises(Disallowed) as caught:
            await refused
        verdict = caught.value.verdict
        assert (verdict.reason, verdict.note) == (Reason.POLICY_DENY, "they asked us to")
    assert gate.statistics().denied == {Reason.POLICY_DENY: 2}
    assert (gate.asked, gate.statistics().turns) == ([], 0)
    (await gate.take_turn("https://other.example/", exempt=WHY)).end()


# Report mode allows and counts; it fetches robots.txt and keeps the pace whatever a host policy says


def reporting(**options: Any) -> ScriptedGate:
    """Return a gate in report mode with a policy that denies the host."""
    slow = "User-agent: *\nCrawl-delay: 20\nDisallow: /private"
    gate = ScriptedGate({SITE: slow}, jumps=True, mode="report", **options)
    gate.set_policy("example.com", HostPolicy(deny=True, reason="they asked us to"))
    return gate


async def test_denied_host_is_requested_at_the_pace_of_its_robots_txt_in_report_mode() -> None:
    for purposes in (set[str](), {"ai-train"}):
        async with reporting(enforce_usage=purposes) as gate:
            for place in range(3):
                async with gate.turn(f"{SITE}/{place}") as turn:
                    assert gate.clock.monotonic() == pytest.approx(20.0 * (place + 1))
                    verdict = turn.verdict
                    assert (verdict.allowed, verdict.reason) == (True, Reason.POLICY_DENY)
                    assert verdict.note == "they asked us to"
            assert gate.statistics().denied == {Reason.POLICY_DENY: 3}
            assert gate.asked == [ROBOTS_TXT]


async def test_check_and_queue_fetch_the_robots_txt_of_a_denied_host_in_report_mode() -> None:
    async with reporting() as gate:
        assert gate.peek(PAGE) is None
        assert (await gate.check(PAGE)).denied_by_reason
        assert gate.asked == [ROBOTS_TXT]
        with pytest.raises(InvalidURL):
            await gate.take_turn("https://example.com:port/")
    async with reporting() as gate:
        gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own server"))
        async with gate.turn(f"{SITE}/private") as turn:
            assert turn.verdict.reason is Reason.POLICY_EXEMPT
        assert gate.asked == []
    async with reporting() as gate, PoliteQueue[None](gate) as queue:
        for place in range(2):
            await queue.put(f"{SITE}/{place}")
        for _ in range(2):
            async with queue.turn():
                pass
        assert gate.clock.monotonic() >= 40.0


async def test_page_of_a_closed_host_waits_for_its_robots_txt_but_not_for_each_429_in_report_mode() -> None:
    other = f"{SITE}:8443"
    async with ScriptedGate({SITE: "", other: "User-agent: *"}, jumps=True, mode="report") as gate:
        async with gate.turn(f"{SITE}/") as turn:
            turn.observe(429, {"Retry-After": "100"})
        async with gate.turn(f"{other}/page") as turn:
            assert gate.fetcher.count(other) == 1
            assert not turn.verdict.denied_by_reason
    async with ScriptedGate({SITE: 429}, jumps=True, mode="report") as gate, gate.turn(PAGE) as turn:
        assert turn.verdict.reason is Reason.TOO_MANY_REQUESTS


async def test_robots_txt_is_fetched_when_its_host_opens_though_the_wall_clock_is_just_behind_in_report_mode() -> None:
    other = f"{SITE}:8443"
    async with ScriptedGate({SITE: refusal(429, "200"), other: ""}, jumps=True, mode="report") as gate:
        await gate.check(PAGE)
        gate.clock.call_later(150.0, lambda: gate.clock.set_wall(gate.clock.wall() - 0.005))
        async with gate.turn(f"{other}/page") as turn:
            assert gate.fetcher.count(other) == 1
            assert not turn.verdict.denied_by_reason
            assert gate.clock.monotonic() == pytest.approx(201.0)


async def test_robots_txt_refused_just_before_its_host_opens_comes_before_the_page_in_report_mode() -> None:
    other = f"{SITE}:8443"
    for before_s in (0.5, 0.01):
        async with ScriptedGate({SITE: "", other: ""}, jumps=True, mode="report") as gate:
            async with gate.turn(f"{SITE}/") as turn:
                turn.observe(429, {"Retry-After": "100"})
            closed_until = gate.clock.monotonic() + 100.0
            await gate.clock.sleep(100.0 - before_s)
            await gate.check(f"{other}/page")
            async with gate.turn(f"{other}/page") as turn:
                assert gate.fetcher.count(other) == 1
                assert not turn.verdict.denied_by_reason
                assert closed_until <= gate.clock.monotonic() <= closed_until + 1.01


async def test_pace_of_the_last_robots_txt_stays_in_force_while_it_is_unreachable_in_report_mode() -> None:
    slow = "User-agent: *\nCrawl-delay: 20"
    async with ScriptedGate({SITE: [slow, 503]}, jumps=True, mode="report") as gate:
        starts, reasons = [], []
        for place in range(4):
            async with gate.turn(f"{SITE}/{place}") as turn:
                starts.append(gate.clock.monotonic())
                reasons.append(turn.verdict.reason)
            if place == 0:
                await gate.forget(SITE)
        assert reasons == [Reason.NO_RULE, *[Reason.UNREACHABLE] * 3]
        assert all(after - before >= 20.0 for before, after in pairwise(starts))


async def test_pace_of_an_expired_robots_txt_stays_in_force_while_the_next_is_refused_in_report_mode() -> None:
    slow = found("User-agent: *\nCrawl-delay: 20", ROBOTS_TXT, cache_control="max-age=60")
    async with ScriptedGate({SITE: [slow, refusal(429, "100")]}, jumps=True, mode="report") as gate:
        async with gate.turn(PAGE):
            pass
        await gate.clock.sleep(1_000.0)  # the host is forgotten
        starts = []
        for place in range(3):
            async with gate.turn(f"{SITE}/{place}") as turn:
                starts.append(gate.clock.monotonic())
                assert turn.verdict.reason is Reason.TOO_MANY_REQUESTS
        assert all(after - before >= 20.0 for before, after in pairwise(starts))


async def test_denied_host_with_too_slow_a_pace_is_refused_in_report_mode_as_well() -> None:
    async with reporting(pacing=PacingOptions(max_crawl_delay_s=10.0, on_long_crawl_delay="skip")) as gate:
        with pytest.raises(Disallowed) as caught:
            await gate.take_turn(PAGE)
    assert caught.value.verdict.reason is Reason.TOO_SLOW


async def test_private_address_is_refused_in_report_mode_as_well() -> None:
    async with Gatekeeper(UA, fetch=FetchOptions(private_addresses="deny"), mode="report") as gate:
        for url in ("http://127.0.0.1:9/page", "http://[::1]:9/robots.txt"):
            for exempt in (None, WHY):
                with pytest.raises(Disallowed, match="is a private address") as caught:
                    await gate.take_turn(url, exempt=exempt)
                assert caught.value.verdict.reason is Reason.POLICY_DENY
        assert gate.statistics().denied == {Reason.POLICY_DENY: 4}


# How long the caller of a turn waited


async def test_turn_tells_how_long_its_caller_or_the_worker_of_its_queue_waited() -> None:
    for through_queue in (False, True):
        async with ScriptedGate({SITE: "User-agent: *\nCrawl-delay: 5"}, jumps=True) as gate:
            granted, queue = events_of(gate, TurnGranted), PoliteQueue[None](gate)
            for page in "ab" if through_queue else "":
                await queue.put(f"{SITE}/{page}")
            for page in "ab":
                async with queue.turn() if through_queue else gate.turn(f"{SITE}/{page}"):
                    pass
            waits = [(event.verdict.url, event.waited_s) for event in granted]
            assert waits == [(f"{SITE}/a", 5.0), (f"{SITE}/b", 5.0)]


async def test_calls_that_do_not_wait_publish_a_wait_of_zero_after_their_decision() -> None:
    async with ScriptedGate({SITE: "User-agent: *\nCrawl-delay: 5"}) as gate:
        await gate.check(PAGE)
        events: list[Event] = []
        gate.subscribe(events.append)
        gate.clock.advance(5.0)
        turn = gate.try_turn(PAGE)
        assert isinstance(turn, Turn)
        gate.refused(f"{SITE}/b")
        turn.end()
        gate.clock.advance(5.0)
        [again, other] = await gate.try_turns([f"{SITE}/c", f"{SITE}/d"])
        assert isinstance(again, Turn)
        assert not other
        again.end()
        granted = [event for event in events if isinstance(event, TurnGranted)]
        assert [(event.verdict.url, event.waited_s) for event in granted] == [(PAGE, 0.0), (f"{SITE}/c", 0.0)]
        assert [type(event) for event in events[:2]] == [Decided, TurnGranted]


# The status of hosts

HEAD: Final = "User-agent: *\nCrawl-delay: 10\nDisallow:\n\nUser-agent: OtherBot\nCrawl-delay: 20\nDisallow:\n"


@pytest.fixture
async def known() -> AsyncIterator[ScriptedGate]:
    """A gate that knows the robots.txt of the host."""
    async with ScriptedGate({SITE: lasting(1_000, HEAD)}) as gate:
        assert gate.hosts() == {}
        await gate.check(PAGE)
        yield gate


async def test_host_of_which_only_robots_txt_was_fetched(known: ScriptedGate) -> None:
    known.clock.advance(4.0)
    now_wall = known.clock.wall()
    next_fetch = now_wall - 4.0 + 900.0  # after 90 % of its lifetime
    robots = RobotsStatus(
        Origin.of(SITE), AccessResult.SUCCESSFUL, 200, age_s=4.0, next_fetch=next_fetch, size=len(HEAD)
    )
    status = HostStatus("example.com", 10.0, Bound.CRAWL_DELAY, not_before=now_wall + 6.0, robots=(robots,))
    assert known.hosts() == {"example.com": status}
    await known.aclose()
    assert all(status.robots == () for status in known.hosts().values())


async def test_pace_is_that_of_the_agent_that_asks(known: ScriptedGate) -> None:
    other = known.agent(tokens="OtherBot", user_agent="OtherBot/1.0 (+https://example.com/bot)")
    await other.check(PAGE)
    assert other.hosts()["example.com"].interval_s == 20.0


async def test_idle_host_stays_known_by_its_robots_txt_and_its_policy(known: ScriptedGate) -> None:
    for policy_s, bound in ((None, Bound.CRAWL_DELAY), (13.0, Bound.FLOOR)):
        known.set_policy("example.com", HostPolicy(min_delay_s=policy_s))
        known.clock.advance(800.0)  # the pacer has forgotten it
        await settle()
        status = known.hosts()["example.com"]
        assert (status.interval_s, status.bound_by, status.not_before) == (policy_s or 10.0, bound, known.clock.wall())


async def test_waiting_requests_and_the_holder_are_named(known: ScriptedGate) -> None:
    assert repr(known) == "<Gatekeeper examplebot (enforce): 1 origins known, 0 being fetched>"
    known.clock.advance(10.0)
    async with known.turn(f"{SITE}/\u202e1"):
        waiting = [apart(known.take_turn(f"{SITE}/{n}")) for n in (2, 3)]
        await settle()
        known.clock.advance(5.0)
        status = known.hosts()["example.com"]
        assert (status.waiting, status.in_flight, status.held_by, status.held_s) == (2, 1, f"{SITE}/\u202e1", 5.0)
        held = rf"held by {SITE}/\u202e1 for 5 s"
        assert repr(status) == (
            f"<HostStatus example.com: every 10 s by crawl-delay, 2 waiting, {held}, "
            f"robots.txt of {SITE} successful (200), 15 s old>"
        )
        async with known.turn("https://other.test/", exempt=WHY):  # which is held for a shorter time
            assert f", 2 turns under way, 2 waiting, example.com {held}>" in repr(known)
        await ended(waiting)


async def test_closed_host_says_until_when_and_by_what(known: ScriptedGate) -> None:
    known.clock.advance(10.0)
    async with known.turn(f"{SITE}/1") as turn:
        turn.observe(503, {"Retry-After": "100"})
    status = known.hosts()["example.com"]
    assert status.closed_by is Bound.RETRY_AFTER
    assert status.closed_until is not None
    assert 100.0 <= status.closed_until - known.clock.wall() <= 110.0  # jitter
    assert status.not_before == pytest.approx(status.closed_until)
    assert "closed until 2027-01-15T08:0" in str(status)


async def test_failing_robots_txt_and_one_that_is_being_fetched() -> None:
    async with ScriptedGate({SITE: 500}) as gate:
        await gate.check(PAGE)
        gate.fetcher.gate.clear()
        asking = asyncio.ensure_future(gate.check("http://example.com/"))
        await settle()
        gate.clock.advance(1.0)
        failing, unknown = gate.hosts()["example.com"].robots
        gate.fetcher.gate.set()
        await asking
        assert (failing.result, failing.status, failing.age_s) == (AccessResult.UNREACHABLE, 500, 1.0)
        assert failing.fault == "the server answered with status 500"
        assert failing.next_fetch is not None
        assert 59.0 <= failing.next_fetch - gate.clock.wall() <= 66.0
    assert (unknown.origin, unknown.result, unknown.fetching) == (Origin.of("http://example.com"), None, True)
    assert repr(unknown) == "<RobotsStatus http://example.com: unknown, being fetched>"
    async with ScriptedGate({SITE: RuntimeError("\x1b[2J\n" + "a" * 1_000)}) as gate:
        await gate.check(PAGE)
        shown = repr(gate.hosts())
    assert (shown.isprintable(), len(shown) < 500) == (True, True)


async def test_status_changes_nothing_and_reports_a_refresh_that_is_under_way(known: ScriptedGate) -> None:
    known.clock.advance(950.0)  # a question would start a refresh
    events: list[Event] = []
    known.subscribe(events.append)
    before = known.statistics()
    assert known.hosts() == known.hosts()
    await settle()
    assert (known.statistics(), events, known.asked) == (before, [], [ROBOTS_TXT])
    known.fetcher.gate.clear()
    await known.check(PAGE)
    [robots] = known.hosts()["example.com"].robots
    shown = (robots.result, robots.fetching, robots.next_fetch)
    assert shown == (AccessResult.SUCCESSFUL, True, known.clock.wall())
    known.fetcher.gate.set()


async def test_keys_of_pacing_by_domain_have_a_row_of_their_own() -> None:
    async with ScriptedGate(pacing=PacingOptions(key="domain", min_delay_s=2.0)) as gate:
        await gate.check("https://www.example.com/")
        rows = {host: len(status.robots) for host, status in gate.hosts().items()}
    assert list(rows.items()) == [("example.com", 0), ("www.example.com", 1)]
