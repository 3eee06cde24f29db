"""When a robots.txt, or another file of a site, that was refused is asked for again, and how long one holds."""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from itertools import pairwise
from typing import TypeAlias

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions, Reason
from politesse.ports import FetchRequest, FetchResponse, FetchResult
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
FILE = "User-agent: *\nDisallow: /private\n"
DATA_TXT = f"{SITE}/data.txt"
EPOCH = "Thu, 01 Jan 1970 00:00:00 GMT"

Headers: TypeAlias = "Callable[[float], dict[str, str]]"


class Server(ScriptedFetcher):
    """Answers one URL with a status and the headers of that moment, and remembers when it was asked."""

    def __init__(self, clock: ManualClock, url: str, status: int, headers: Headers) -> None:
        super().__init__({SITE: FILE})
        self._clock = clock
        self._url = url
        self._status = status
        self._headers = headers
        self.asked_wall: list[float] = []

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if request.url != self._url:
            return await super().fetch(request)
        now_wall = self._clock.wall()
        self.asked_wall.append(now_wall)
        return FetchResponse(self._status, request.url, self._headers(now_wall), FILE.encode())

    @property
    def waits_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.asked_wall)]


async def each_second(gate: Gatekeeper, clock: ManualClock, seconds: int) -> None:
    """Ask the gate once a second, as somebody does who does not heed what it says."""
    for _ in range(seconds):
        await gate.check(f"{SITE}/")
        clock.advance(1.0)


def says(**headers: str) -> Headers:
    return lambda _: {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.clause("RFC 9110 10.2.3")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("retry_after", ["0", "1", "59", EPOCH])
async def test_short_retry_after_does_not_shorten_the_backoff_of_robots_txt(status: int, retry_after: str) -> None:
    clock = ManualClock()
    server = Server(clock, f"{SITE}/robots.txt", status, says(retry_after=retry_after))
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await each_second(gate, clock, 600)
    first, second, third = server.waits_s
    assert 60 <= first <= 67
    assert 120 <= second <= 133
    assert 240 <= third <= 265


@pytest.mark.parametrize("behind_s", [600, 7200, -600, -7200])
async def test_retry_after_as_a_date_is_read_by_the_clock_of_the_server(behind_s: float) -> None:
    clock = ManualClock()

    def headers(now_wall: float) -> dict[str, str]:
        theirs = now_wall - behind_s
        return {"date": formatdate(theirs, usegmt=True), "retry-after": formatdate(theirs + 300, usegmt=True)}

    server = Server(clock, f"{SITE}/robots.txt", 503, headers)
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        verdict = await gate.check(f"{SITE}/")
        assert verdict.not_before == clock.wall() + 300
        await each_second(gate, clock, 299)
        assert len(server.asked_wall) == 1
        await each_second(gate, clock, 2)
        assert len(server.asked_wall) == 2


@pytest.mark.parametrize("date", [None, "yesterday"])
async def test_retry_after_in_the_past_from_a_server_without_a_clock_does_not_shorten_the_backoff(
    date: str | None,
) -> None:
    clock = ManualClock()

    def headers(now_wall: float) -> dict[str, str]:
        said = {"retry-after": formatdate(now_wall - 600, usegmt=True)}
        return said if date is None else said | {"date": date}

    server = Server(clock, f"{SITE}/robots.txt", 503, headers)
    async with Gatekeeper(UA, fetcher=server, clock=clock) as gate:
        await each_second(gate, clock, 3000)
    assert len(server.asked_wall) == 6  # at 0, 60, 180, 420, 900 and 1860 s


@pytest.mark.parametrize("retry_after", ["0", "1", EPOCH])
async def test_short_retry_after_does_not_shorten_the_backoff_of_another_file(retry_after: str) -> None:
    clock = ManualClock(autojump=True)
    server = Server(clock, DATA_TXT, 500, says(retry_after=retry_after))  # 429 and 503 close the host for pages, too
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    async with Gatekeeper(UA, fetcher=server, clock=clock, pacing=pacing) as gate:
        until = clock.monotonic() + 600
        while clock.monotonic() < until:
            assert (await gate.datatxt(SITE)).file.outcome is FileOutcome.RETRY
            await clock.sleep(1.0)
    assert len(server.asked_wall) == 4


@pytest.mark.parametrize("behind_s", [3600, -3600])
async def test_page_refused_until_a_date_closes_its_host_by_the_clock_of_the_server(behind_s: float) -> None:
    clock = ManualClock(autojump=True)
    theirs = clock.wall() - behind_s
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: FILE}), clock=clock) as gate:
        async with gate.turn(f"{SITE}/1") as turn:
            theirs = clock.wall() - behind_s
            refused = {"Date": formatdate(theirs, usegmt=True), "Retry-After": formatdate(theirs + 500, usegmt=True)}
            turn.observe(503, refused)
            refused_wall = clock.wall()
        async with gate.turn(f"{SITE}/2"):
            assert 499 <= clock.wall() - refused_wall <= 501  # a date has no fractions of a second


@pytest.mark.parametrize("behind_s", [3600, -3600])
async def test_quota_reset_at_a_unix_time_is_read_by_the_clock_of_the_server(behind_s: float) -> None:
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: FILE}), clock=clock) as gate:
        async with gate.turn(f"{SITE}/1") as turn:
            theirs = clock.wall() - behind_s
            turn.observe(
                200,
                {
                    "Date": formatdate(theirs, usegmt=True),
                    "X-RateLimit-Remaining": "0",
                    "X-RateLimit-Reset": f"{theirs + 500:.0f}",
                },
            )
            spent_wall = clock.wall()
        async with gate.turn(f"{SITE}/2"):
            assert 499 <= clock.wall() - spent_wall <= 502


async def fetches_in(gate: Gatekeeper, clock: ManualClock, fetcher: Server, seconds: int) -> int:
    await each_second(gate, clock, seconds)
    return len(fetcher.asked_wall)


@pytest.mark.clause("RFC 9111 4.2.3")
@pytest.mark.parametrize(
    ("made_s_ago", "age", "fresh_s"),
    [
        (0, None, 1000),
        (600, None, 400),
        (600, "100", 400),
        (600, "800", 200),
        (-600, None, 1000),
        (-600, "700", 300),
        (990, None, 60),  # the least lifetime
        (86_400, None, 60),
    ],
)
async def test_answer_is_fresh_for_its_lifetime_less_the_larger_of_age_and_apparent_age(
    made_s_ago: float, age: str | None, fresh_s: int
) -> None:
    clock = ManualClock()

    def headers(now_wall: float) -> dict[str, str]:
        said = {"cache-control": "max-age=1000", "date": formatdate(now_wall - made_s_ago, usegmt=True)}
        return said if age is None else said | {"age": age}

    server = Server(clock, f"{SITE}/robots.txt", 200, headers)
    options = CacheOptions(refresh_after=1.0)
    async with Gatekeeper(UA, fetcher=server, clock=clock, cache=options) as gate:
        assert await fetches_in(gate, clock, server, fresh_s) == 1
        assert await fetches_in(gate, clock, server, 1) == 2


@pytest.mark.parametrize(
    "extension", ["x" * 8_000, "x" * 60_000, '"' + "no-store, max-age=60, " * 2_500 + '"'], ids=["8k", "60k", "quoted"]
)
@pytest.mark.parametrize(("directive", "fresh_s"), [("max-age=600", 600), ("no-store", 60)])
async def test_long_cache_control_is_read_to_its_end(extension: str, directive: str, fresh_s: int) -> None:
    clock = ManualClock()
    server = Server(clock, f"{SITE}/robots.txt", 200, says(cache_control=f"extension={extension}, {directive}"))
    options = CacheOptions(refresh_after=1.0)
    async with Gatekeeper(UA, fetcher=server, clock=clock, cache=options) as gate:
        assert await fetches_in(gate, clock, server, fresh_s) == 1
        assert await fetches_in(gate, clock, server, 1) == 2


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
