"""Turns that are taken without asking robots.txt, for a reason."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from politesse import (
    Bound,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    PacingOptions,
    Reason,
    TooFar,
)
from politesse.events import Decided, Event, TurnGranted
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
WHY = "by agreement"


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: "User-agent: *\nDisallow: /\nCrawl-delay: 7\n"})


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    pacing = PacingOptions(min_delay_s=2.0, adaptive_factor=0.0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        yield gate


async def test_exempt_request_fetches_no_robots_txt(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    async with gate.turn(f"{SITE}/page", exempt=WHY) as turn:
        assert (turn.url, turn.verdict.allowed) == (f"{SITE}/page", True)
        assert (turn.verdict.reason, turn.verdict.note) == (Reason.POLICY_EXEMPT, WHY)
        assert WHY in turn.verdict.explain()
    (await gate.take_turn("https://other.example/", exempt=WHY)).end()
    assert fetcher.requests == []


async def test_exempt_request_is_not_bound_by_known_rules(gate: Gatekeeper) -> None:
    with pytest.raises(Disallowed):
        await gate.take_turn(f"{SITE}/page")
    (await gate.take_turn(f"{SITE}/page", exempt=WHY, max_wait_s=7.0)).end()


@pytest.mark.parametrize("empty", ["", "  ", "\n", True, 5, b"ours"])
async def test_exemption_needs_a_reason_in_words(gate: Gatekeeper, fetcher: ScriptedFetcher, empty: str) -> None:
    with pytest.raises(ConfigurationError, match="give the reason"):
        await gate.take_turn(f"{SITE}/page", exempt=empty)
    with pytest.raises(ConfigurationError, match="give the reason"):
        async with gate.turn(f"{SITE}/page", exempt=empty):
            pass
    assert fetcher.requests == []
    assert gate.statistics().decisions == 0


async def test_exempt_request_keeps_the_pace_of_the_crawler(gate: Gatekeeper, clock: ManualClock) -> None:
    async with gate.turn(f"{SITE}/1", exempt=WHY):
        pass
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(f"{SITE}/2", exempt=WHY, max_wait_s=1.9)
    assert caught.value.not_yet.not_before == clock.wall() + 2.0
    (await gate.take_turn(f"{SITE}/2", exempt=WHY)).end()
    assert clock.monotonic() == pytest.approx(2.0)


async def test_exempt_request_keeps_the_crawl_delay_of_a_known_robots_txt(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(f"{SITE}/", exempt=WHY, max_wait_s=6.9)
    assert caught.value.not_yet.not_before == clock.wall() + 7.0


async def test_exempt_request_waits_for_retry_after(gate: Gatekeeper) -> None:
    async with gate.turn(f"{SITE}/", exempt=WHY) as turn:
        turn.observe(429, {"Retry-After": "600"})
    with pytest.raises(TooFar) as caught:
        await gate.take_turn(f"{SITE}/", exempt=WHY, max_wait_s=599)
    assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER


async def test_denying_policy_outranks_the_exemption(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    gate.set_policy("example.com", HostPolicy(deny=True, reason="they asked us to"))
    with pytest.raises(Disallowed) as caught:
        await gate.take_turn(f"{SITE}/", exempt=WHY)
    verdict = caught.value.verdict
    assert (verdict.reason, verdict.note) == (Reason.POLICY_DENY, "they asked us to")
    assert fetcher.requests == []
    (await gate.take_turn("https://other.example/", exempt=WHY)).end()


async def test_denying_policy_set_during_the_wait_outranks_the_exemption(gate: Gatekeeper) -> None:
    (await gate.take_turn(f"{SITE}/1", exempt=WHY)).end()
    waiting = asyncio.create_task(gate.take_turn(f"{SITE}/2", exempt=WHY))
    await asyncio.sleep(0)
    assert gate.statistics().waiting == 1
    gate.set_policy("example.com", HostPolicy(deny=True))
    with pytest.raises(Disallowed):
        await waiting
    assert gate.statistics().turns == 0


async def test_reason_of_the_request_replaces_that_of_an_exempting_policy(gate: Gatekeeper) -> None:
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="ours"))
    async with gate.turn(f"{SITE}/", exempt=WHY) as turn:
        assert turn.verdict.note == WHY


async def test_exempt_request_is_reported_and_counted(gate: Gatekeeper) -> None:
    events: list[Event] = []
    gate.subscribe(events.append)
    turn = await gate.take_turn(f"{SITE}/page", exempt=WHY)
    turn.end()
    verdict = turn.verdict
    assert events == [Decided(verdict), TurnGranted(verdict, 0.0)]
    assert (verdict.allowed, verdict.reason, verdict.note) == (True, Reason.POLICY_EXEMPT, WHY)
    gate.set_policy("example.com", HostPolicy(deny=True))
    with pytest.raises(Disallowed):
        await gate.take_turn(f"{SITE}/page", exempt=WHY)
    statistics = gate.statistics()
    assert (statistics.allowed, statistics.denied) == (1, {Reason.POLICY_DENY: 1})


async def test_invalid_url_is_not_exempt(gate: Gatekeeper) -> None:
    with pytest.raises(InvalidURL):
        await gate.take_turn("mailto:us", exempt=WHY)
    with pytest.raises(InvalidURL):
        gate.exempted("mailto:us", WHY)
    assert gate.statistics().turns == 0


async def test_another_agent_exempts_in_its_own_name(gate: Gatekeeper) -> None:
    images = gate.agent(tokens="ExampleBot-Image", user_agent="ExampleBot-Image/1.0")
    async with images.turn(f"{SITE}/", exempt=WHY) as turn:
        assert "examplebot-image" in str(turn.verdict.agent)
