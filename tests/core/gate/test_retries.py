"""When a robots.txt, or another file of a site, that was refused is asked for again, and how long one holds."""

import asyncio
from itertools import pairwise

import pytest

from politesse import Gatekeeper, PacingOptions, Reason
from politesse.ports import FetchRequest, FetchResponse, FetchResult
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
FILE = "User-agent: *\nDisallow: /private\n"
DATA_TXT = f"{SITE}/data.txt"
EPOCH = "Thu, 01 Jan 1970 00:00:00 GMT"


class Server(ScriptedFetcher):
    """Refuses one URL with Retry-After, and remembers when it was asked."""

    def __init__(self, clock: ManualClock, url: str, status: int, retry_after: str) -> None:
        answered = url.removesuffix("/robots.txt")  # a robots.txt is that of its origin
        super().__init__({SITE: FILE} | {answered: FetchResponse(status, url, {"retry-after": retry_after})})
        self._clock = clock
        self._url = url
        self.asked_wall: list[float] = []

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if request.url == self._url:
            self.asked_wall.append(self._clock.wall())
        return await super().fetch(request)

    @property
    def waits_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.asked_wall)]


async def each_second(gate: Gatekeeper, clock: ManualClock, seconds: int) -> None:
    """Ask the gate once a second, as somebody does who does not heed what it says."""
    for _ in range(seconds):
        await gate.check(f"{SITE}/")
        clock.advance(1.0)


@pytest.mark.clause("RFC 9110 10.2.3")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("retry_after", ["0", "1", "59", EPOCH])
async def test_short_retry_after_does_not_shorten_the_backoff_of_robots_txt(status: int, retry_after: str) -> None:
    clock = ManualClock()
    server = Server(clock, f"{SITE}/robots.txt", status, retry_after)
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await each_second(gate, clock, 600)
    first, second, third = server.waits_s
    assert 60 <= first <= 67
    assert 120 <= second <= 133
    assert 240 <= third <= 265


@pytest.mark.parametrize("retry_after", ["0", "1", EPOCH])
async def test_short_retry_after_does_not_shorten_the_backoff_of_another_file(retry_after: str) -> None:
    clock = ManualClock(autojump=True)
    server = Server(clock, DATA_TXT, 500, retry_after)  # 429 and 503 close the host for pages, too
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    async with Gatekeeper(UA, fetcher=server, clock=clock, pacing=pacing) as gate:
        until = clock.monotonic() + 600
        while clock.monotonic() < until:
            assert (await gate.datatxt(SITE)).file.outcome is FileOutcome.RETRY
            await clock.sleep(1.0)
    assert len(server.asked_wall) == 4


async def test_429_defers_although_an_older_copy_served_while_robots_txt_was_unreachable() -> None:
    clock = ManualClock()
    url = f"{SITE}/robots.txt"
    answers: list[FetchResponse | int] = [
        FetchResponse(200, url, {"cache-control": "max-age=600"}, b"User-agent: *\nDisallow: /x"),
        503,
        FetchResponse(429, url, {"retry-after": "3000"}),
    ]
    fetcher = ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert await gate.check(f"{SITE}/a")
        clock.advance(700)
        assert await gate.check(f"{SITE}/a")  # unreachable: the copy serves within a day
        clock.advance(70)
        gate.peek(f"{SITE}/a")
        while gate.statistics().in_flight:
            await asyncio.sleep(0)
        assert fetcher.count(SITE) == 3
        assert (await gate.check(f"{SITE}/a")).reason is Reason.TOO_MANY_REQUESTS


@pytest.mark.parametrize(("passed", "reason"), [(550, Reason.NO_RULE), (700, Reason.TOO_MANY_REQUESTS)])
async def test_record_that_the_store_lost_makes_a_429_no_more_lenient(passed: float, reason: Reason) -> None:
    clock, store = ManualClock(), MemoryStore()
    url = f"{SITE}/robots.txt"
    fresh = FetchResponse(200, url, {"cache-control": "max-age=600"}, b"User-agent: *\nDisallow: /x")
    fetcher = ScriptedFetcher({SITE: [fresh, 503, FetchResponse(429, url, {"retry-after": "3000"})]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store) as gate:
        await gate.check(f"{SITE}/a")
        clock.advance(passed - 70)
        if passed > 600:
            await gate.check(f"{SITE}/a")
        else:
            fetcher.answers[SITE] = FetchResponse(429, url, {"retry-after": "3000"})
        clock.advance(70)
        await store.delete(SITE)
        gate.peek(f"{SITE}/a")
        while gate.statistics().in_flight:
            await asyncio.sleep(0)
        assert (await gate.check(f"{SITE}/a")).reason is reason


@pytest.mark.parametrize("answer", [503, ConnectionError("refused")])
async def test_an_unreachable_robots_txt_at_one_port_delays_no_other_port_of_the_host(answer: int | Exception) -> None:
    dead, live = "http://host.example:1", "http://host.example"
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher({dead: answer, live: ""})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert not await gate.check(f"{dead}/page")
        before = clock.monotonic()
        async with gate.turn(f"{dead}/robots.txt"):  # which is always allowed
            pass
        async with gate.turn(f"{live}/page"):
            assert clock.monotonic() - before < 5.0
