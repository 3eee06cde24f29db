"""Every hop of a robots.txt keeps the rules of its own host: closings, one request at a time, time limits."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from politesse import CacheOptions, ClosedError, Gatekeeper, NotYet, Reason
from politesse.events import ComponentFailed, Event
from politesse.fetch import Hops
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.testing import ManualClock
from tests.support.scripted import UA

CDN = "https://cdn.example"
CLOSED_FOR_AN_HOUR = FetchResponse(429, f"{CDN}/robots.txt", {"retry-after": "3600"})
DAY = 86_400.0
RULES = FetchResponse(200, f"{CDN}/robots.txt", body=b"User-agent: *\nDisallow: /private\n")


class Web:
    """A Fetcher over a web in which answers take time; it follows as many redirects as the request permits.

    Args:
        clock: goes on while an answer is awaited.
        answer: returns the answer of a URL: a response, or the URL to which it redirects.
        takes_s: for how long each answer is awaited.
    """

    def __init__(
        self,
        clock: ManualClock,
        answer: Callable[[str], FetchResponse | str],
        takes_s: Callable[[str], float] = lambda _: 0.01,
    ) -> None:
        self._clock = clock
        self._answer = answer
        self._takes_s = takes_s
        self.requests: list[FetchRequest] = []
        self.asked: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most_at_a_host = 0
        self.most_in_all = 0
        self.private: bool | None = None

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.requests.append(request)
        hops = Hops(request)
        while True:
            answer = await self._ask(hops.url)
            if isinstance(answer, FetchResponse):
                return answer
            target = hops.redirect(301, answer)
            if isinstance(target, FetchFault):
                return replace(target, status=301, private=self.private)
            hops.seen.append(target[1])

    async def _ask(self, url: str) -> FetchResponse | str:
        host = url.split("/")[2].partition(":")[0]
        self.asked[host] += 1
        self.in_flight[host] += 1
        self.most_at_a_host = max(self.most_at_a_host, self.in_flight[host])
        self.most_in_all = max(self.most_in_all, self.in_flight.total())
        try:
            await self._clock.sleep(self._takes_s(url))
        finally:
            self.in_flight[host] -= 1
        return self._answer(url)

    async def aclose(self) -> None:
        pass


def moving_to_cdn(answers: FetchResponse) -> Callable[[str], FetchResponse | str]:
    return lambda url: answers if url.startswith(CDN) else f"{CDN}/robots.txt"


def sites(number: int) -> list[str]:
    return [f"https://site{place}.example/page" for place in range(number)]


@pytest.mark.parametrize("number", [200, pytest.param(1000, marks=pytest.mark.weekly)])
async def test_a_host_that_says_429_is_asked_no_more_by_redirects_to_it(clock: ManualClock, number: int) -> None:
    web = Web(clock, moving_to_cdn(CLOSED_FOR_AN_HOUR))
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        verdicts = await gate.check_batch(sites(number))
        assert {verdict.reason for verdict in verdicts} == {Reason.TOO_MANY_REQUESTS}
        assert 1 <= web.asked["cdn.example"] <= 2
        assert all((verdict.not_before or 0) >= 1_800_000_000 + 3600 for verdict in verdicts)
        await clock.sleep(3700)
        await gate.check_batch(sites(number))
        assert web.asked["cdn.example"] <= 4


async def test_a_429_behind_a_redirect_does_not_close_the_host_that_redirects(clock: ManualClock) -> None:
    fresh = {"cache-control": "max-age=3600"}
    answers = [FetchResponse(200, f"{CDN}/robots.txt", fresh), CLOSED_FOR_AN_HOUR]
    web = Web(clock, lambda url: answers[min(web.asked["cdn.example"], 2) - 1] if CDN in url else f"{CDN}/robots.txt")
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        (site,) = sites(1)
        assert await gate.check(site)
        await clock.sleep(3300)
        assert await gate.check(site), "which has it fetched again behind the answer"
        await clock.sleep(5)
        assert web.asked["cdn.example"] == 2
        before_mono = clock.monotonic()
        async with gate.turn(site):
            assert clock.monotonic() - before_mono < 10
        assert isinstance(gate.try_turn(f"{CDN}/page"), NotYet)
        verdict = await gate.check(f"{CDN}/page")
        assert verdict.reason is Reason.TOO_MANY_REQUESTS


async def test_redirect_to_a_closed_host_sends_one_request_to_the_first_host_only(clock: ManualClock) -> None:
    web = Web(clock, moving_to_cdn(CLOSED_FOR_AN_HOUR))
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        await gate.check(f"{CDN}/page")
        assert gate.statistics().fetches == 1
        (site,) = sites(1)
        verdict = await gate.check(site)
        assert verdict.source is not None
        assert "no request is sent to cdn.example" in verdict.source.fault
        assert (web.asked["cdn.example"], web.asked["site0.example"]) == (1, 1)
        assert gate.statistics().fetches == 2, "somebody was asked"
        await gate.check("http://cdn.example/page")
        assert gate.statistics().fetches == 2, "nobody was asked"


async def test_a_url_that_many_redirect_to_is_asked_once(clock: ManualClock) -> None:
    web = Web(clock, moving_to_cdn(RULES))
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        verdicts = await gate.check_batch(sites(500))
        assert all(verdicts)
        assert (web.asked["cdn.example"], web.most_at_a_host) == (1, 1)
        again = sites(2)[1]
        await gate.forget(again)
        assert await gate.check(again)
        assert web.asked["cdn.example"] == 2, "an answer serves each origin once"


async def test_a_cancelled_fetch_of_a_url_that_many_redirect_to_harms_no_other_site(clock: ManualClock) -> None:
    web = Web(clock, moving_to_cdn(RULES), lambda url: 1.0 if url.startswith(CDN) else 0.01)
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        asking = [asyncio.ensure_future(gate.check(url)) for url in sites(3)]
        await clock.sleep(0.5)
        assert web.in_flight["cdn.example"] == 1
        (first,) = [task for task in asyncio.all_tasks() if task.get_name() == "robots.txt of https://site0.example"]
        first.cancel()
        verdicts = await asyncio.gather(*asking[1:])
        assert [verdict.reason for verdict in verdicts] == [Reason.NO_RULE] * 2
        await asyncio.wait(asking)
        assert (web.asked["cdn.example"], web.most_at_a_host) == (2, 1)


async def test_copies_with_different_validators_are_revalidated_each(clock: ManualClock) -> None:
    answers = iter(FetchResponse(200, f"{CDN}/robots.txt", {"etag": f'"{number}"'}) for number in range(4))
    web = Web(clock, lambda url: next(answers) if url.startswith(CDN) else f"{CDN}/robots.txt")
    async with Gatekeeper(UA, fetcher=web, clock=clock, cache=CacheOptions(refresh_after=1.0)) as gate:
        for site in sites(2):
            await gate.check(site)
            await clock.sleep(DAY)
        web.requests.clear()
        await clock.sleep(DAY)
        await gate.check_batch(sites(2))
    validators = [request.validators for request in web.requests if request.origin.text == CDN]
    assert {given.etag for given in validators if given is not None} == {'"0"', '"1"'}


async def test_answers_that_many_may_share_are_bounded_by_bytes(clock: ManualClock) -> None:
    large = FetchResponse(200, CDN, body=b"User-agent: *\nDisallow: /private\n" + b"#" * 400_000)
    web = Web(clock, lambda url: large if "cdn" in url else f"https://cdn{url.split('.')[1]}.example/robots.txt")
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        for origin in (*(f"https://first.{number}.example/" for number in range(12)), "https://second.11.example/"):
            assert await gate.check(origin)
        assert web.asked["cdn11.example"] == 1
        await gate.check("https://second.0.example/")
        assert web.asked["cdn0.example"] == 2
        large = replace(large, body=RULES.body + b"#" * 5_000_000)  # more than all answers may take
        assert await gate.check("https://first.12.example/")


async def test_a_host_that_closes_while_its_robots_txt_waits_for_a_place_is_not_asked(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, lambda _: 0.04)
    async with Gatekeeper(UA, fetcher=web, clock=clock, cache=CacheOptions(max_concurrent_fetches=1)) as gate:
        page = "http://site.example:8080/page"
        await gate.check(page)
        await clock.sleep(2)
        first = asyncio.ensure_future(gate.check("https://other.example/page"))
        waiting = asyncio.ensure_future(gate.check("https://site.example/page"))
        await clock.sleep(0.01)
        async with gate.turn(page) as turn:
            turn.observe(429, {"retry-after": "3600"})
        assert await first
        assert (await waiting).reason is Reason.TOO_MANY_REQUESTS
        assert web.asked["site.example"] == 1


async def test_the_oldest_request_does_not_starve_while_more_come_than_are_answered(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, lambda _: 0.04)
    async with Gatekeeper(UA, fetcher=web, clock=clock, cache=CacheOptions(max_concurrent_fetches=1)) as gate:
        asking = [asyncio.ensure_future(gate.check(url)) for url in sites(3)]
        for number in range(20):
            asking.append(asyncio.ensure_future(gate.check(f"https://new{number}.example/")))
            await clock.sleep(0.02)
        assert all(task.done() for task in asking[:3])
        await asyncio.gather(*asking)


async def test_the_newest_and_the_oldest_request_are_made_in_turn(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, lambda _: 0.04)
    async with Gatekeeper(UA, fetcher=web, clock=clock, cache=CacheOptions(max_concurrent_fetches=1)) as gate:
        await asyncio.gather(*(gate.check(url) for url in sites(5)))
    assert [request.origin.host for request in web.requests] == [f"site{n}.example" for n in (0, 4, 1, 3, 2)]
    assert web.most_in_all == 1


def stalling(url: str) -> float:
    return 0.01 if "healthy" in url else 30.0


async def test_a_healthy_site_is_answered_within_a_second_besides_a_thousand_that_stall(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, stalling)
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        stalled = asyncio.ensure_future(gate.check_batch(sites(1000)))
        for at_s in (0, 0.2, 1.0, 10.0):
            await clock.sleep(at_s)
            before_mono = clock.monotonic()
            assert await gate.check(f"https://healthy{at_s}.example/page")
            assert clock.monotonic() - before_mono <= 1.0
        await stalled
        assert clock.monotonic() < 35, "all of them were under way at the same time"


async def test_slow_requests_have_a_bound_at_which_the_oldest_is_given_up(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, stalling)
    cache = CacheOptions(max_concurrent_fetches=5)
    async with Gatekeeper(UA, fetcher=web, clock=clock, cache=cache) as gate:
        stalled = asyncio.ensure_future(gate.check_batch(sites(400)))
        await clock.sleep(1.5)
        before_mono = clock.monotonic()
        assert await gate.check("https://healthy.example/page")
        assert clock.monotonic() - before_mono <= 2.5
        verdicts = await stalled
        faults = [verdict.source.fault for verdict in verdicts if verdict.source is not None]
        assert web.most_in_all <= 5 + 20 * 5
        assert web.asked.total() == 401, "nobody starves, and nobody is asked twice"
        given_up = [fault for fault in faults if "others need its connection" in fault]
        assert 250 <= len(given_up) <= 300
        assert sum(map(bool, verdicts)) == 400 - len(given_up), "the last ones had all the time that they needed"


async def test_cancelled_waiters_release_their_places(clock: ManualClock) -> None:
    web = Web(clock, lambda _: RULES, lambda _: 0.04)
    gate = Gatekeeper(UA, fetcher=web, clock=clock, cache=CacheOptions(max_concurrent_fetches=1))
    asking = [asyncio.ensure_future(gate.check(url)) for url in [*sites(5), "https://site0.example:8443/"]]
    await clock.sleep(0.06)
    for task in asking[1:3]:
        task.cancel()
    assert await asking[4]
    assert await gate.check("https://another.example/page")
    waiting = [asyncio.ensure_future(gate.check(f"https://late{place}.example/")) for place in range(3)]
    await clock.sleep(0.01)
    await gate.aclose()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in ended] == [ClosedError] * 3
    assert web.in_flight.total() == 0


async def test_all_hops_of_a_fetch_together_have_its_time_limit(clock: ManualClock) -> None:
    web = Web(clock, moving_to_cdn(RULES), lambda _: 20.0)
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        (site,) = sites(1)
        verdict = await gate.check(site)
        assert verdict.reason is Reason.UNREACHABLE
        assert clock.monotonic() == pytest.approx(30)
        assert verdict.source is not None
        assert verdict.source.fault.startswith("timeout")


async def test_a_fetch_that_has_ended_in_time_is_not_given_up_later(clock: ManualClock) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with Gatekeeper(UA, fetcher=Web(clock, moving_to_cdn(RULES), lambda _: 1.0), clock=clock) as gate:
        assert await gate.check(*sites(1))
        await clock.sleep(60.0)
        assert await gate.check(*sites(1))
    assert failures == []


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_fifth_redirect_is_followed_and_a_sixth_opens_the_site(clock: ManualClock) -> None:
    for redirects, opens in ((5, False), (6, True)):
        hops = [f"https://hop{place}of{redirects}.example/robots.txt" for place in range(redirects + 1)]
        web = Web(clock, lambda url, hops=hops: dict(pairwise(hops)).get(url, RULES))  # type: ignore[misc]
        async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
            assert (await gate.check(hops[0].replace("robots.txt", "private"))).allowed is opens
        assert web.asked.total() == 6
        assert {request.max_redirects for request in web.requests} == {0}
        assert [request.first_url for request in web.requests][1:] == hops[:1] * 5


async def test_redirect_from_a_possibly_public_host_may_not_reach_a_private_address() -> None:
    first = "https://first.example"
    moves = {f"{first}/robots.txt": f"{first}/r", f"{first}/r": f"{CDN}/robots.txt"}
    redirected = {True: [False, False, False], False: [False, True, True], None: [False, False, True]}
    for private, expected in redirected.items():
        clock = ManualClock(autojump=True)
        web = Web(clock, lambda url: moves.get(url, RULES))
        web.private = private
        async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
            assert await gate.check(f"{first}/page")
        assert [request.redirected for request in web.requests] == expected, private


class Reserved(Web):
    """A Fetcher that follows redirects, and does not report the target of a redirect that it does not follow."""

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        result = await super().fetch(request)
        if isinstance(result, FetchFault):
            return FetchFault(result.kind, result.detail, result.final_url)
        return result


async def test_a_fetcher_that_does_not_say_where_a_redirect_leads_follows_it_itself(clock: ManualClock) -> None:
    web = Reserved(clock, moving_to_cdn(RULES))
    events: list[Event] = []
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        gate.subscribe(events.append)
        first, second = sites(2)
        verdict = await gate.check(first.replace("page", "private"))
        assert verdict.reason is Reason.DISALLOW_RULE
        assert [request.max_redirects for request in web.requests] == [0, 5]
        web._answer = moving_to_cdn(CLOSED_FOR_AN_HOUR)
        await gate.check(second)
        assert isinstance(gate.try_turn(f"{CDN}/page"), NotYet)
        assert (await gate.check(f"{CDN}/page")).reason is Reason.TOO_MANY_REQUESTS
    assert not [event for event in events if isinstance(event, ComponentFailed)]


async def test_a_fetcher_that_follows_a_redirect_itself_has_the_rest_of_the_time_limit(clock: ManualClock) -> None:
    async with Gatekeeper(UA, fetcher=Reserved(clock, moving_to_cdn(RULES), lambda _: 20.0), clock=clock) as gate:
        assert (await gate.check(*sites(1))).reason is Reason.UNREACHABLE
        assert clock.monotonic() == pytest.approx(30)


async def test_tdmrep_json_with_an_unreported_redirect_does_not_count_as_missing(clock: ManualClock) -> None:
    tdmrep = "https://site0.example/.well-known/tdmrep.json"
    web = Reserved(clock, lambda url: f"{CDN}/tdmrep.json" if url == tdmrep else RULES)
    async with Gatekeeper(UA, fetcher=web, clock=clock, enforce_usage={"tdm"}) as gate:
        verdict = await gate.check(sites(1)[0])
    assert (verdict.allowed, verdict.reason) == (False, Reason.USAGE_UNKNOWN)


async def test_a_fault_of_a_later_hop_closes_the_site(clock: ManualClock) -> None:
    def answer(url: str) -> FetchResponse | str:
        if url.startswith(CDN):
            raise ConnectionError("refused")
        return f"{CDN}/robots.txt"

    web = Web(clock, answer)
    async with Gatekeeper(UA, fetcher=web, clock=clock) as gate:
        verdict = await gate.check(sites(1)[0])
    assert verdict.reason is Reason.UNREACHABLE
    assert FaultKind.INTERNAL in (verdict.source.fault if verdict.source is not None else "")
