"""The cache of a gate without a store: what it keeps in memory, and when it makes another fetch."""

import json
import zlib

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions, Reason
from politesse.origin import Origin
from politesse.ports import FetchRequest, FetchResponse, FetchResult, Validators
from politesse.robots import Dialect
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.core.cache.caching import (
    BOT,
    DAY,
    FILE,
    HOUR,
    OTHER,
    SITE,
    UA,
    caching,
    file,
    not_modified,
    site_number,
    status,
)


async def test_nothing_is_encoded_or_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    def encoded(*_: object, **__: object) -> bytes:
        raise AssertionError("something is encoded")

    for module, name in ((zlib, "compress"), (zlib, "compressobj"), (json, "dumps"), (json.JSONEncoder, "encode")):
        monkeypatch.setattr(module, name, encoded)
    fetcher = ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        verdict = await gate.check(f"{SITE}/private")
        assert (verdict.reason, len(verdict.digest)) == (Reason.DISALLOW_RULE, 64)
        await gate.forget(SITE)
        await gate.check(f"{SITE}/private")
        assert fetcher.count(SITE) == 2


async def test_copy_is_confirmed_by_its_rules_alone() -> None:
    first = file(etag='"x"', cache_control="max-age=600")
    async with caching({SITE: [first, not_modified(), not_modified()]}) as bench:
        rules = (await bench.ask()).rules[BOT]
        for _ in range(2):
            bench.clock.advance(600)
            entry = await bench.ask()
            assert entry.rules[BOT] is rules
            assert entry.body is None
        asked = [request.validators for request in bench.scripted.requests]
        assert asked == [None, *[Validators(f"{SITE}/robots.txt", '"x"', "")] * 2]


async def test_agent_that_comes_later_causes_one_fetch_without_condition_and_no_more() -> None:
    async with caching({SITE: file(etag='"x"'), "https://two.example": FILE}) as bench:
        await bench.ask(agent=BOT)
        for agent in (OTHER, BOT, OTHER):
            assert (await bench.ask(agent=agent)).rules[agent].allowed("/private") is False
        assert [request.validators for request in bench.scripted.requests] == [None, None]
        for agent in (BOT, OTHER, "thirdbot"):  # from now on the files are kept
            assert (await bench.ask("https://two.example", agent)).answers(agent)
        assert bench.scripted.count("https://two.example") == 1


async def test_view_that_is_made_first_needs_no_fetch_of_its_own() -> None:
    fetcher = ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        other = gate.agent(tokens=OTHER, user_agent="otherbot/1.0")
        assert await gate.check(f"{SITE}/public")
        assert not await other.check(f"{SITE}/public")
    assert fetcher.count(SITE) == 1


async def test_fetch_for_a_later_agent_delays_no_page_that_is_due() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: FILE})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=10)) as gate:
        await gate.check(f"{SITE}/public")
        await clock.sleep(100)
        await gate.agent(tokens=OTHER, user_agent="otherbot/1.0").check(f"{SITE}/public")
        assert fetcher.count(SITE) == 2
        before_mono = clock.monotonic()
        async with gate.turn(f"{SITE}/public"):
            assert clock.monotonic() - before_mono < 1


async def test_agent_that_comes_while_the_site_fails_waits_for_the_backoff() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask(agent=BOT)
        for _ in range(3):
            assert (await bench.ask(agent=OTHER)).source.result is AccessResult.UNREACHABLE
            bench.clock.advance(10)
        assert bench.scripted.count(SITE) == 2
        bench.clock.advance(30)
        assert not (await bench.ask(agent=OTHER)).rules[OTHER].allowed("/public")
        assert bench.scripted.count(SITE) == 3


async def test_agent_that_comes_while_an_older_copy_serves_is_denied_until_the_next_fetch() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask(agent=BOT)
        assert (await bench.ask_after(0.95 * DAY)).source.result is AccessResult.SUCCESSFUL
        assert bench.scripted.count(SITE) == 2
        entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2, "the backoff holds for every agent"
        bench.clock.advance(60)
        assert (await bench.ask(agent=OTHER)).answers(OTHER)
        assert (await bench.ask(agent=BOT)).answers(BOT)
        assert bench.scripted.count(SITE) == 3


async def test_copy_that_does_not_serve_for_twelve_hours_serves_afterwards() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: [FILE, 503]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, dialect=Dialect.GOOGLE) as gate:
        assert not await gate.check(f"{SITE}/private")
        clock.advance(DAY)
        reasons = []
        for _ in range(14):
            reasons.append((await gate.check(f"{SITE}/private")).reason)
            clock.advance(HOUR)
        assert reasons == [Reason.UNREACHABLE] * 12 + [Reason.DISALLOW_RULE] * 2
        assert (await gate.check(f"{SITE}/public")).allowed


async def test_file_that_appears_is_read_for_the_agent_of_the_last_question() -> None:
    async with caching({SITE: [status(404, cache_control="max-age=600"), FILE]}) as bench:
        await bench.ask()
        await bench.ask_after(590)
        entry = bench.cache.valid(SITE)
        assert entry is not None
        assert not entry.rules[BOT].allowed("/private")
        assert bench.scripted.count(SITE) == 2


async def test_copies_that_were_evicted_last_are_found_again_within_a_bound() -> None:
    sites = [site_number(number) for number in range(20)]
    for rules, fetches in (("", 1), ("".join(f"Disallow: /{number}/{'x' * 90}\n" for number in range(2_000)), 2)):
        files: dict[str, Answer | list[Answer]] = {site: f"{FILE}{rules}# {site}" for site in sites}
        clock = ManualClock(autojump=True)
        async with caching(files, options=CacheOptions(max_entries_bytes=1), clock=clock) as bench:
            for _ in range(2):
                for site in sites:
                    assert not (await bench.ask(site, OTHER)).rules[OTHER].allowed("/public")
            assert len(bench.cache.entries) == 1
            assert [bench.scripted.count(site) for site in sites] == [fetches] * 20
            await bench.cache.forget(Origin.of(sites[0]))
            await bench.ask(sites[0])
            assert bench.scripted.count(sites[0]) == fetches + 1


async def test_policy_tokens_need_no_fetch_of_their_own() -> None:
    fetcher = ScriptedFetcher({SITE: FILE})
    tokens = {"ai-train": "Example-Train", "search": "Example-Search"}
    async with Gatekeeper(UA, fetcher=fetcher, policy_tokens=tokens) as gate:
        assert await gate.check(f"{SITE}/public")
    assert fetcher.count(SITE) == 1


async def test_wall_clock_that_is_set_back_shortens_no_wait_and_lengthens_no_lifetime() -> None:
    async with caching({SITE: [FILE, 503, FILE]}) as bench:
        await bench.ask()
        bench.clock.advance(DAY - 1)
        bench.clock.set_wall(bench.clock.wall() - 10 * DAY)
        held = bench.cache.valid(SITE)
        assert held is not None
        assert held.source.fetched_wall == bench.clock.wall() - (DAY - 1)
        bench.clock.advance(2)
        assert bench.cache.valid(SITE) is None
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE, "the file is older than a day"
        bench.clock.set_wall(bench.clock.wall() - 10 * DAY)
        bench.clock.advance(59)
        assert (await bench.ask()).source.result is AccessResult.UNREACHABLE
        bench.clock.advance(1)
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


async def test_all_times_of_a_source_move_with_a_wall_clock_that_is_set_back() -> None:
    rows: list[tuple[list[Answer], float]] = [([FILE, 503], 0.95 * DAY), ([503, 503], 100.0)]
    for answers, seconds in rows:
        async with caching({SITE: answers}) as bench:
            await bench.ask()
            await bench.ask_after(seconds)
            before = (await bench.ask()).source
            bench.clock.set_wall(bench.clock.wall() - HOUR)
            entry = await bench.ask()
            moved = {
                name: getattr(before, name) - getattr(entry.source, name)
                for name in ("fetched_wall", "fresh_until_wall", "not_before", "failing_since_wall")
                if getattr(before, name) is not None
            }
            assert set(moved.values()) == {HOUR}, moved
            assert len(moved) == (2 if before.failing_since_wall is None else 4)
            assert (entry.source.result, entry.source.fault) == (before.result, before.fault)


async def test_fetcher_that_follows_a_redirect_itself_closes_and_paces_the_host_that_answered() -> None:
    clock = ManualClock(autojump=True)

    class Following(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            await super().fetch(request)
            return FetchResponse(429, "https://cdn.example/r", {"retry-after": "600"})

    async with Gatekeeper(UA, fetcher=Following(), clock=clock) as gate:
        assert (await gate.check(f"{SITE}/page")).reason is Reason.TOO_MANY_REQUESTS
        verdict = await gate.check("https://cdn.example/page")
        assert verdict.reason is Reason.TOO_MANY_REQUESTS
        assert verdict.source is not None
        assert "no request is sent to cdn.example" in verdict.source.fault
