"""A permission that a gate has made is not used after any of its inputs has changed: one test for each input."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from politesse import CacheOptions, ClosedError, Disallowed, HostPolicy, PacingOptions, Reason
from politesse.origin import Origin
from politesse.stores import MemoryStore
from politesse.testing import ManualClock
from politesse.verdict import Bound
from tests.core.gate.gates import CLOSED, DAY, OPEN, PAGE, PRIVATE, SITE, ScriptedGate, TimedFetcher, lasting, refusal
from tests.core.gate.test_site_files import SIGNALS
from tests.support.tasks import settle

OTHER_SPELLING: Final = "HTTPS://Example.com:443/page"
RESERVED: Final = '[{"location": "/", "tdm-reservation": 1}]'
FREE: Final = '[{"location": "/", "tdm-reservation": 0}]'
TDMREP: Final = f"{SITE}/.well-known/tdmrep.json"


@pytest.fixture
async def gate() -> AsyncIterator[ScriptedGate]:
    """A gate that has answered about PAGE twice: its permission is made, and was used."""
    async with ScriptedGate({SITE: [OPEN, CLOSED]}, pacing=PacingOptions(min_delay_s=1.0)) as made:
        assert await made.check(PAGE)
        assert made.peek(PAGE)
        yield made


async def test_replaced_copy(gate: ScriptedGate) -> None:
    gate.clock.advance(0.95 * DAY)
    assert gate.peek(PAGE)  # the copy is due: this starts the refresh
    await settle()
    assert not gate.known(PAGE)
    assert not gate.known(OTHER_SPELLING)


async def test_expired_copy(gate: ScriptedGate) -> None:
    gate.clock.advance(DAY)
    assert gate.peek(PAGE) is None
    assert gate.peek(OTHER_SPELLING) is None
    assert not await gate.check(PAGE)


async def test_copy_that_expired_by_the_wall_clock(gate: ScriptedGate) -> None:
    gate.clock.set_wall(gate.clock.wall() + DAY)
    assert gate.peek(PAGE) is None


async def test_forgotten_copy(gate: ScriptedGate) -> None:
    await gate.forget(SITE)
    assert gate.peek(PAGE) is None
    assert not await gate.check(PAGE)


async def test_copy_that_is_forgotten_during_a_fetch_that_fails() -> None:
    """It does not serve in place of the answer, as an older copy would that nobody has told to forget."""
    clock = ManualClock(autojump=True)
    for is_forgotten in (False, True):
        fetcher = TimedFetcher(clock, {SITE: [lasting(60), 503]}, takes_s=2.0)
        async with ScriptedGate(clock=clock, fetcher=fetcher) as gate:
            assert await gate.check(PAGE)
            await clock.sleep(100.0)
            checking = asyncio.ensure_future(gate.check(PAGE))
            await clock.sleep(1.0)
            if is_forgotten:
                await gate.forget(SITE)
            assert (await checking).allowed is not is_forgotten
            assert len(gate.asked) == 2


async def test_evicted_copy() -> None:
    """It is freed at once, because its permission does not keep it; a copy that a store has does not linger."""
    sites = [f"https://h{place}.example" for place in range(100)]
    cache = CacheOptions(max_entries_bytes=20_000)
    async with ScriptedGate(dict.fromkeys(sites, OPEN), cache=cache, store=MemoryStore()) as gate:
        for site in sites:
            assert await gate.check(site)
            assert gate.peek(site)
        known = sum(gate.peek(site) is not None for site in sites)
        assert known == gate.statistics().origins < len(sites)


async def test_policy_that_denies_exempts_and_is_withdrawn(gate: ScriptedGate) -> None:
    gate.set_policy("example.com", HostPolicy(deny=True, reason="paused"))
    assert [gate.known(url).reason for url in (PAGE, OTHER_SPELLING)] == [Reason.POLICY_DENY] * 2
    assert gate.known(PAGE).note == "paused"
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="ours"))
    assert (gate.known(PAGE).reason, gate.known(PAGE).note) == (Reason.POLICY_EXEMPT, "ours")
    gate.set_policy("example.com", None)
    assert gate.known(PAGE).reason is Reason.NO_RULE


async def test_policy_of_another_host(gate: ScriptedGate) -> None:
    gate.set_policy("www.example.com", HostPolicy(deny=True))
    assert gate.known(PAGE)


async def test_floor_of_a_policy(gate: ScriptedGate) -> None:
    for floor_s in (5.0, 1.0, 7.0):
        gate.set_policy("example.com", HostPolicy(min_delay_s=floor_s))
        gate.clock.advance(10.0)
        turn = gate.try_turn(PAGE)
        assert turn
        turn.end()
        refused = gate.refused()
        assert (refused.bound_by, refused.not_before) == (Bound.FLOOR, gate.clock.wall() + floor_s)


@pytest.mark.parametrize("changes", ["copy", "policy"])
async def test_turn_whose_permission_changes_while_it_waits(gate: ScriptedGate, changes: str) -> None:
    gate.clock.advance(10.0)
    first = await gate.take_turn(PAGE)
    waiting = asyncio.ensure_future(gate.take_turn(f"{SITE}/second"))
    await settle()
    if changes == "copy":
        await gate.forget(SITE)
        assert not await gate.check(PAGE)
    else:
        gate.set_policy("example.com", HostPolicy(deny=True))
    first.end()
    gate.clock.advance(60.0)
    await settle()
    with pytest.raises(Disallowed):
        await waiting
    assert gate.statistics().turns == 0


async def test_turn_whose_stated_pace_changes_while_it_waits() -> None:
    answers = {SITE: [OPEN, "User-agent: *\nCrawl-delay: 30\n"]}
    async with ScriptedGate(answers, pacing=PacingOptions(min_delay_s=1.0)) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(10.0)
        first = await gate.take_turn(PAGE)
        waiting = asyncio.ensure_future(gate.take_turn(f"{SITE}/second"))
        await settle()
        await gate.forget(SITE)
        assert await gate.check(PAGE)
        first.end()
        for seconds, is_done in ((29.0, False), (1.0, True)):
            gate.clock.advance(seconds)
            await settle()
            assert waiting.done() == is_done
        (await waiting).end()


async def test_tdmrep_json() -> None:
    answers = {SITE: OPEN, TDMREP: [FREE, RESERVED, FREE]}
    async with ScriptedGate(answers, jumps=True, enforce_usage={"tdm"}) as gate:
        for reason in (Reason.NO_RULE, Reason.USAGE_DISALLOWED, Reason.NO_RULE):
            assert (await gate.check(PAGE)).reason is reason
            assert gate.known(PAGE).reason is reason
            assert gate.known(f"{SITE}/robots.txt").reason is Reason.ROBOTS_TXT
            gate.clock.advance(DAY)
            await settle()


async def test_wall_clock_that_is_set_back_moves_the_end_of_a_denial() -> None:
    async with ScriptedGate({SITE: refusal(429, "600")}) as gate:
        assert not await gate.check(PAGE)
        ends_wall = gate.clock.wall() + 600.0
        assert gate.known(PAGE).not_before == ends_wall
        gate.clock.set_wall(gate.clock.wall() + -300.0)
        assert gate.known(PAGE).not_before == pytest.approx(ends_wall - 300.0, abs=1.0)


async def test_agents_that_ask_in_turn() -> None:
    file = "User-agent: examplebot\nDisallow: /private\n\nUser-agent: other\nDisallow: /page\nCrawl-delay: 7\n"
    async with ScriptedGate({SITE: file}) as gate:
        other = gate.agent(tokens=["other"], user_agent="other/1.0")
        for _ in range(3):
            for view, refused in ((gate, f"{SITE}/private"), (other, PAGE)):
                assert not await view.check(refused)
                for url in (PAGE, f"{SITE}/private"):
                    verdict = view.peek(url)
                    assert verdict is not None
                    assert (bool(verdict), verdict.agent) == (url != refused, view.name)


async def test_gates_in_report_mode() -> None:
    async with ScriptedGate({SITE: PRIVATE}, mode="report") as gate:
        for _ in range(2):
            verdict = await gate.check(f"{SITE}/private")
            assert (verdict.allowed, verdict.reason) == (True, Reason.DISALLOW_RULE)
        gate.set_policy("example.com", HostPolicy(deny=True, reason="paused"))
        for _ in range(2):
            verdict = gate.known(PAGE)
            assert (verdict.allowed, verdict.reason, verdict.note) == (True, Reason.POLICY_DENY, "paused")
            assert (verdict.source, verdict.age_s) == (None, 0.0)


async def test_closed_gate(gate: ScriptedGate) -> None:
    await gate.aclose()
    for url in (PAGE, OTHER_SPELLING):
        with pytest.raises(ClosedError):
            gate.peek(url)
        with pytest.raises(ClosedError):
            await gate.take_turn(url)


async def test_copy_that_is_used_is_not_evicted() -> None:
    sites = [f"https://h{place}.example" for place in range(100)]
    async with ScriptedGate(dict.fromkeys(sites, OPEN), cache=CacheOptions(max_entries_bytes=20_000)) as gate:
        for site in sites:
            assert await gate.check(f"{site}/page")
            assert gate.peek(f"{sites[0]}/page")
        assert gate.fetcher.count(sites[0]) == 1


async def test_robots_txt_is_permitted_while_tdmrep_json_is_unknown() -> None:
    async with ScriptedGate({SITE: OPEN, TDMREP: FREE}, enforce_usage={"tdm"}) as gate:
        await gate.sitemaps(SITE)  # needs robots.txt alone
        assert gate.peek(PAGE) is None
        assert gate.known(f"{SITE}/robots.txt").reason is Reason.ROBOTS_TXT


async def test_wait_for_a_turn_has_the_pace_of_its_own_agent() -> None:
    file = "User-agent: examplebot\nDisallow: /private\n\nUser-agent: other\nCrawl-delay: 7\n"
    async with ScriptedGate({SITE: file}) as gate:
        other, called = gate.agent(tokens=["other"], user_agent="other/1.0"), asyncio.Event()
        assert await gate.check(PAGE)
        assert await other.check(PAGE)
        gate.clock.advance(10.0)
        turn = gate.try_turn(PAGE)
        assert turn
        turn.end()
        assert other.peek(PAGE)  # the copy keeps the permission of this agent
        gate.when_ready(Origin.of(SITE), called.set)
        gate.clock.advance(2.0)
        await settle()
        assert called.is_set()


async def test_robots_txt_is_permitted_whatever_the_use() -> None:
    async with ScriptedGate({SITE: SIGNALS}, enforce_usage={"ai-train"}) as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
        for url in (f"{SITE}/robots.txt", f"{SITE}/robots.txt#rules"):
            assert gate.known(url).reason is Reason.ROBOTS_TXT
