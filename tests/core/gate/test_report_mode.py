"""Report mode allows and counts; it fetches robots.txt and keeps the pace whatever a host policy says."""

import pytest

from politesse import Disallowed, FetchOptions, Gatekeeper, HostPolicy, PacingOptions, Reason
from politesse.errors import InvalidURL
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
SLOW = "User-agent: *\nCrawl-delay: 20\nDisallow: /private"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=True)


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: SLOW})


def gate_of(fetcher: ScriptedFetcher, clock: ManualClock, **options: object) -> Gatekeeper:
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report", **options)  # type: ignore[arg-type]
    gate.set_policy("example.com", HostPolicy(deny=True, reason="they asked us to"))
    return gate


@pytest.mark.parametrize("purposes", [set(), {"ai-train"}])
async def test_denied_host_is_requested_at_the_pace_of_its_robots_txt(
    fetcher: ScriptedFetcher, clock: ManualClock, purposes: set[str]
) -> None:
    starts = []
    async with gate_of(fetcher, clock, enforce_usage=purposes) as gate:
        for place in range(3):
            async with gate.turn(f"{SITE}/{place}") as turn:
                starts.append(clock.monotonic())
                assert turn.verdict.allowed
                assert (turn.verdict.reason, turn.verdict.note) == (Reason.POLICY_DENY, "they asked us to")
        assert gate.statistics().denied == {Reason.POLICY_DENY: 3}
    assert starts == [pytest.approx(20.0 * place) for place in (1, 2, 3)]
    assert [request.url for request in fetcher.requests] == [f"{SITE}/robots.txt"]


async def test_check_and_queue_fetch_the_robots_txt_of_a_denied_host(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with gate_of(fetcher, clock) as gate:
        assert gate.peek(f"{SITE}/page") is None
        assert (await gate.check(f"{SITE}/page")).denied_by_reason
        assert [request.url for request in fetcher.requests] == [f"{SITE}/robots.txt"]
    async with gate_of(fetcher, clock) as gate, PoliteQueue[None](gate) as queue:
        started = clock.monotonic()
        for place in range(2):
            await queue.put(f"{SITE}/{place}")
        for _ in range(2):
            async with queue.turn():
                pass
        assert clock.monotonic() - started >= 40.0


async def test_page_of_a_closed_host_waits_for_the_robots_txt_that_could_not_be_requested(clock: ManualClock) -> None:
    other = "https://example.com:8443"
    fetcher = ScriptedFetcher({SITE: "", other: "User-agent: *"})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        async with gate.turn(f"{SITE}/") as turn:
            turn.observe(429, {"Retry-After": "100"})
        async with gate.turn(f"{other}/page") as turn:
            assert fetcher.count(other) == 1
            assert not turn.verdict.denied_by_reason


async def test_page_goes_out_though_robots_txt_is_answered_with_429_each_time(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: 429})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate, gate.turn(f"{SITE}/") as turn:
        assert turn.verdict.reason is Reason.TOO_MANY_REQUESTS


async def test_denied_host_with_too_slow_a_pace_is_refused_as_in_enforce_mode(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    pacing = PacingOptions(max_crawl_delay_s=10.0, on_long_crawl_delay="skip")
    async with gate_of(fetcher, clock, pacing=pacing) as gate:
        with pytest.raises(Disallowed) as caught:
            await gate.take_turn(f"{SITE}/page")
    assert caught.value.verdict.reason is Reason.TOO_SLOW


async def test_exempt_host_needs_no_robots_txt_in_either_mode(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    async with gate_of(fetcher, clock) as gate:
        gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own server"))
        async with gate.turn(f"{SITE}/private") as turn:
            assert turn.verdict.reason is Reason.POLICY_EXEMPT
    assert fetcher.requests == []


@pytest.mark.parametrize("exempt", [None, "our own server"])
async def test_private_address_is_refused_in_report_mode_as_well(clock: ManualClock, exempt: str | None) -> None:
    options = FetchOptions(private_addresses="deny")
    async with Gatekeeper(UA, fetch=options, clock=clock, mode="report") as gate:
        for url in ("http://127.0.0.1:9/page", "http://[::1]:9/robots.txt"):
            with pytest.raises(Disallowed) as caught:
                await gate.take_turn(url, exempt=exempt)
            assert caught.value.verdict.reason is Reason.POLICY_DENY
            assert "is a private address" in caught.value.verdict.note
        assert gate.statistics().denied == {Reason.POLICY_DENY: 2}


async def test_invalid_url_of_a_denied_host_is_an_error(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    async with gate_of(fetcher, clock) as gate:
        with pytest.raises(InvalidURL):
            await gate.take_turn("https://example.com:port/")
