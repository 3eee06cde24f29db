"""How requests for robots.txt and the pages after them keep the pace of their host."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest

from politesse import CacheOptions, Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Reason
from politesse.errors import StoreError
from politesse.events import Event, LongWait
from politesse.options import Limit
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.queue import PoliteQueue
from politesse.testing import Exchange, ManualClock, ScriptedFetcher, ScriptedResolver, assert_polite
from politesse.testing.scripted import Answer
from tests.support.stores import KeptStore

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SITE: Final = "https://example.com"
PAGE: Final = f"{SITE}/page"
DELAY: Final = "User-agent: *\nCrawl-delay: 5\n"
ABORT: Final = FetchFault(FaultKind.TRUNCATED, "the connection was closed", f"{SITE}/robots.txt")


class Server(ScriptedFetcher):
    """Takes a tenth of a second for each answer, and logs the requests."""

    def __init__(self, clock: ManualClock, answers: Mapping[str, Answer | Sequence[Answer]]) -> None:
        super().__init__(answers)
        self.clock = clock
        self.log: list[Exchange] = []

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started = self.clock.wall()
        await self.clock.sleep(0.1)
        result = await super().fetch(request)
        status = result.status or 0
        self.log.append(Exchange(request.url, started=started, ended=self.clock.wall(), status=status))
        return result

    def starts(self, host: str) -> list[float]:
        """When each request to a host started, in seconds after the first."""
        started = [one.started for one in self.log if host in one.url.split("/")[2]]
        return [round(one - started[0], 3) for one in started]

    def gaps(self, host: str) -> list[float]:
        """The seconds from the end of each request to a host to the start of the next."""
        log = [one for one in self.log if host in one.url.split("/")[2]]
        return [round(after.started - before.ended, 3) for before, after in pairwise(log)]


def redirect(url: str, to: str) -> FetchFault:
    return FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", url, 301, location=to)


def found(url: str, **headers: str) -> FetchResponse:
    return FetchResponse(200, url, {name.replace("_", "-"): value for name, value in headers.items()}, DELAY.encode())


async def visit(gate: Gatekeeper, server: Server, url: str = PAGE) -> None:
    async with gate.turn(url) as turn:
        started = server.clock.wall()
        turn.observe(200)
        server.log.append(Exchange(turn.verdict.url, started=started, ended=server.clock.wall()))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=True)


@pytest.mark.parametrize("failure", [503, 429, 500, ABORT])
@pytest.mark.parametrize("asked_between", [False, True])
async def test_the_page_after_a_robots_txt_that_reopened_its_site_waits_for_the_interval(
    clock: ManualClock, failure: Answer, *, asked_between: bool
) -> None:
    server = Server(clock, {SITE: [failure, DELAY]})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        assert not await gate.check(PAGE)
        if asked_between:
            await clock.sleep(70.0)
            turn = gate.try_turn(f"{SITE}/robots.txt")
            if not isinstance(turn, NotYet):
                turn.give_back()
        await clock.sleep(70.0)
        await visit(gate, server)
    assert server.count(SITE) == 2
    assert server.gaps("example.com")[-1] >= 5.0


async def test_the_first_page_waits_for_the_interval_where_addresses_are_known_at_once(clock: ManualClock) -> None:
    server = Server(clock, {SITE: DELAY})
    pacing = PacingOptions(address=Limit())
    resolver = ScriptedResolver({"example.com": ["192.0.2.1"]})
    async with Gatekeeper(UA, fetcher=server, clock=clock, pacing=pacing, resolver=resolver) as gate:
        await visit(gate, server)
    assert server.gaps("example.com") == [5.0]


async def test_a_refresh_does_not_restart_the_interval_of_a_page_that_is_due(clock: ManualClock) -> None:
    server = Server(clock, {SITE: found(f"{SITE}/robots.txt", cache_control="max-age=60")})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await visit(gate, server)
        await clock.sleep(56.0)
        assert await gate.check(PAGE)
        await visit(gate, server)
    assert server.count(SITE) == 2
    assert server.gaps("example.com")[1:] == [56.0, 0.0]


@pytest.mark.parametrize("delay_s", [86_400, 200_000])
async def test_a_copy_that_expires_while_a_page_waits_for_its_pace_does_not_restart_the_wait(
    clock: ManualClock, delay_s: int
) -> None:
    server = Server(clock, {SITE: f"User-agent: *\nCrawl-delay: {delay_s}\n"})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        for _ in range(3):
            await asyncio.wait_for(visit(gate, server), 10.0)
    assert_polite(server.log, {SITE: f"User-agent: *\nCrawl-delay: {delay_s}\n"}, agent="examplebot")
    assert clock.monotonic() <= 3.1 * delay_s


async def test_a_copy_that_expires_and_could_not_be_stored_does_not_restart_the_wait_for_its_page(
    clock: ManualClock,
) -> None:
    file = FetchResponse(
        200, f"{SITE}/robots.txt", {"cache-control": "max-age=60"}, b"User-agent: *\nCrawl-delay: 100\n"
    )
    store = KeptStore({}, fails={"put": StoreError("full")})
    starts = []
    async with Gatekeeper(UA, fetcher=Server(clock, {SITE: file}), clock=clock, store=store) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for place in range(3):
            await queue.put(f"{SITE}/{place}")
        for _ in range(3):
            async with asyncio.timeout(10), queue.turn():
                starts.append(round(clock.monotonic()))
    assert starts == [100, 200, 300]


async def test_a_site_that_forbade_everything_until_now_is_opened_like_any_other(clock: ManualClock) -> None:
    forbidden = FetchResponse(403, f"{SITE}/robots.txt", {"cache-control": "max-age=60"})
    server = Server(clock, {SITE: [forbidden, DELAY]})
    cache = CacheOptions(on_forbidden="disallow")
    async with Gatekeeper(UA, fetcher=server, clock=clock, cache=cache) as gate:
        assert not await gate.check(PAGE)
        await clock.sleep(100.0)
        await visit(gate, server)
    assert server.gaps("example.com")[-1] >= 5.0


async def test_a_crawl_delay_binds_a_page_whose_copy_the_cache_has_dropped(clock: ManualClock) -> None:
    sites = [f"https://{name}.example" for name in "abc"]
    server = Server(clock, dict.fromkeys(sites, DELAY))
    started = []
    async with Gatekeeper(UA, fetcher=server, clock=clock, cache=CacheOptions(max_entries_bytes=1)) as gate:

        async def page(site: str) -> None:
            async with gate.turn(f"{site}/page"):
                started.append(clock.monotonic())

        await asyncio.gather(*map(page, sites))
    assert len(started) == 3
    assert min(started) >= 0.1 + 5.0


async def test_a_robots_txt_that_waits_in_line_is_not_requested_if_a_policy_denies_its_host(clock: ManualClock) -> None:
    server = Server(clock, {})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        checks = [asyncio.create_task(gate.check(f"{scheme}://example.com/")) for scheme in ("https", "http")]
        await clock.sleep(0.05)
        gate.set_policy("example.com", HostPolicy(deny=True))
        verdicts = await asyncio.gather(*checks)
    assert [verdict.reason for verdict in verdicts] == [Reason.POLICY_DENY] * 2
    assert [one.url for one in server.log] == ["https://example.com/robots.txt"]


async def test_a_long_line_of_requests_for_robots_txt_is_published_once(clock: ManualClock) -> None:
    events: list[Event] = []
    async with Gatekeeper(UA, fetcher=Server(clock, {}), clock=clock) as gate:
        gate.subscribe(events.append)
        await asyncio.gather(*(gate.check(f"{origin}/page") for origin in ports(90)))
    assert [event.host for event in events if isinstance(event, LongWait)] == ["example.com"]


async def test_an_unreachable_port_does_not_hold_up_the_pages_of_its_host(clock: ManualClock) -> None:
    server = Server(clock, {SITE: "User-agent: *\nCrawl-delay: 100\n", f"{SITE}:8443": 500})
    cache = CacheOptions(retry_min_s=60.0, retry_max_s=60.0)
    async with Gatekeeper(UA, fetcher=server, clock=clock, cache=cache) as gate:
        await visit(gate, server)
        visiting = asyncio.ensure_future(visit(gate, server))
        for _ in range(8):
            await clock.sleep(70.0)
            assert not await gate.check(f"{SITE}:8443/page")
        assert visiting.done()


def ports(count: int) -> list[str]:
    return [f"{SITE}:{8000 + number}" for number in range(count)]


@pytest.mark.parametrize("floor_s", [1.0, 3.0])
async def test_requests_for_robots_txt_to_a_host_go_out_one_at_a_time_and_after_the_first_two_spaced(
    clock: ManualClock, floor_s: float
) -> None:
    server = Server(clock, dict.fromkeys(ports(5), "User-agent: *\nDisallow: /private\n"))
    async with Gatekeeper(UA, fetcher=server, clock=clock, pacing=PacingOptions(min_delay_s=floor_s)) as gate:
        assert all(await asyncio.gather(*(gate.check(f"{origin}/page") for origin in ports(5))))
    assert server.gaps("example.com") == [0.0, floor_s, floor_s, floor_s]
    assert_polite(server.log, {}, agent="ExampleBot", min_delay_s=floor_s)


async def test_a_host_that_was_left_alone_for_a_minute_is_sent_two_requests_at_once_again(clock: ManualClock) -> None:
    server = Server(clock, {})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        for origins in (ports(6)[:2], ports(6)[2:4], ports(6)[4:]):
            await asyncio.gather(*(gate.check(f"{origin}/page") for origin in origins))
            await clock.sleep(61.0)
    assert server.gaps("example.com")[::2] == [0.0, 0.0, 0.0]


async def test_many_origins_that_redirect_to_one_url_have_it_fetched_once_while_it_is_fresh(clock: ManualClock) -> None:
    origins = [f"https://host{number}.test" for number in range(30)]
    shared = "https://hoster.example/robots.txt"
    server = Server(clock, {origin: redirect(f"{origin}/robots.txt", shared) for origin in origins})
    server.answers["https://hoster.example"] = found(shared, cache_control="max-age=3600")
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        assert all(await asyncio.gather(*(gate.check(f"{origin}/page") for origin in origins[:20])))
        await clock.sleep(1_800.0)
        verdicts = [await gate.check(f"{origin}/page") for origin in origins[20:]]
        assert server.count("https://hoster.example") == 1
        assert verdicts[0].age_s == pytest.approx(1_800, abs=20)
        await clock.sleep(1_801.0)
        assert await gate.check(f"{origins[25]}/page")
        assert server.count("https://hoster.example") == 2


async def test_origins_that_redirect_to_many_files_of_one_host_wait_for_its_floor(clock: ManualClock) -> None:
    origins = [f"https://host{number}.test" for number in range(6)]
    server = Server(
        clock, {origin: redirect(f"{origin}/robots.txt", f"https://hoster.example/{origin[8:]}") for origin in origins}
    )
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await asyncio.gather(*(gate.check(f"{origin}/page") for origin in origins))
    assert server.gaps("hoster.example") == [0.0, 1.0, 1.0, 1.0, 1.0]


async def test_a_file_of_a_private_address_is_no_file_for_a_redirect_from_a_public_one(clock: ManualClock) -> None:
    shared = "https://hoster.example/robots.txt"
    server = Server(clock, {})
    for number, private in enumerate((True, False)):
        origin = f"https://host{number}.test"
        fault = redirect(f"{origin}/robots.txt", shared)
        server.answers[origin] = replace(fault, private=private)
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await gate.check("https://host0.test/page")
        await gate.check("https://host1.test/page")
    assert [one.redirected for one in server.requests if one.first_url] == [False, True]


async def test_a_page_that_waits_for_the_robots_txt_of_a_closed_host_is_told_so(clock: ManualClock) -> None:
    server = Server(clock, {})
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        async with gate.turn(PAGE) as turn:
            turn.observe(503, {"retry-after": "30"})
        opens_wall = clock.wall() + 30.0
        with pytest.raises(
            Disallowed, match=r"an answer such as 429 or 503 has closed the host, so its robots.txt and every page wait"
        ) as error:
            await gate.take_turn(f"{SITE}:8080/page")
        assert server.count(f"{SITE}:8080") == 0
        assert error.value.verdict.not_before == pytest.approx(opens_wall, abs=0.2)
        await clock.sleep(31.0)
        await visit(gate, server, f"{SITE}:8080/page")
    assert server.count(f"{SITE}:8080") == 1
