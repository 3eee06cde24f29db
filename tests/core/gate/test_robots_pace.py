"""How requests for robots.txt and the pages after them keep the pace of their host."""

import asyncio
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Final

import pytest

from politesse import CacheOptions, Disallowed, HostPolicy, NotYet, PacingOptions, Reason
from politesse.errors import StoreError
from politesse.events import LongWait
from politesse.options import Limit
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.queue import PoliteQueue
from politesse.testing import Answer, Exchange, ManualClock, ScriptedResolver, assert_polite
from tests.core.gate.gates import PAGE, ROBOTS_TXT, SITE, Answers, ScriptedGate, TimedFetcher, found, lasting, moved
from tests.support.events import events_of
from tests.support.stores import KeptStore

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


async def test_crawl_delay_binds_a_page_whose_copy_the_cache_has_dropped() -> None:
    sites = [f"https://{name}.example" for name in "abc"]
    async with TimedGate(dict.fromkeys(sites, DELAY), cache=CacheOptions(max_entries_bytes=1)) as gate:
        await asyncio.gather(*(gate.visit(f"{site}/page") for site in sites))
        pages = [one.started - gate.log[0].started for one in gate.log if one.url.endswith("/page")]
    assert len(pages) == 3
    assert round(min(pages), 3) >= 0.1 + 5.0


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
    async with TimedGate({**answers, HOSTER: found(DELAY, shared, cache_control="max-age=3600")}) as gate:
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
