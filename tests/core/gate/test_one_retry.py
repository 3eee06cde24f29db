"""After a refusal of robots.txt, the verdict, the status of the host, the queue and the next fetch name one moment."""

from typing import Any, Final, Literal

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.queue import PoliteQueue
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from tests.support.stores import KeptStore

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
HOST: Final = "example.com"
SITE: Final = "https://example.com"
PAGE: Final = f"{SITE}/page"
FILE: Final = "User-agent: *\nAllow: /\n"


class TimedFetcher(ScriptedFetcher):
    """A ScriptedFetcher that records the time of each request."""

    def __init__(self, clock: ManualClock, answers: dict[str, Answer | list[Answer]]) -> None:
        super().__init__(answers)
        self.clock = clock
        self.walls: list[float] = []

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.walls.append(self.clock.wall())
        return await super().fetch(request)


def refusal(status: int, retry_after: str = "", url: str = f"{SITE}/robots.txt") -> FetchResponse:
    return FetchResponse(status, url, {"retry-after": retry_after} if retry_after else {})


def about(wall: float | None) -> object:
    """Return a Unix time for a comparison to the millisecond."""
    return pytest.approx(wall, rel=0.0, abs=0.001)


REFUSALS: Final = {
    "429": refusal(429),
    "429, soon": refusal(429, "1"),
    "429, later": refusal(429, "20"),
    "429, late": refusal(429, "500"),
    "503": refusal(503),
    "503, soon": refusal(503, "1"),
    "503, later": refusal(503, "20"),
    "500": refusal(500),
}
CACHES: Final = {
    "default": CacheOptions(),
    "retry_min_s=2": CacheOptions(retry_min_s=2),
    "retry_min_s=200": CacheOptions(retry_min_s=200),
}
PACINGS: Final = {
    "default": PacingOptions(),
    "backoff_min_s=2": PacingOptions(backoff_min_s=2),
    "backoff_min_s=300": PacingOptions(backoff_min_s=300),
    "key=domain": PacingOptions(backoff_min_s=2, key="domain"),
}


def gate_of(clock: ManualClock, fetcher: TimedFetcher, **arguments: Any) -> Gatekeeper:
    return Gatekeeper(UA, fetcher=fetcher, clock=clock, **arguments)


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("cache", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("pacing", PACINGS.values(), ids=PACINGS)
async def test_the_verdict_the_host_and_the_next_fetch_agree(
    answer: FetchResponse, cache: CacheOptions, pacing: PacingOptions
) -> None:
    clock = ManualClock(autojump=True)
    fetcher = TimedFetcher(clock, {SITE: [answer, answer, FILE]})
    async with gate_of(clock, fetcher, cache=cache, pacing=pacing) as gate:
        for fetches in (1, 2):
            verdict = await gate.check(PAGE)
            assert not verdict
            assert verdict.not_before is not None
            host = gate.hosts()[HOST]
            assert host.not_before == about(verdict.not_before)
            assert host.robots[0].next_fetch == about(verdict.not_before)
            assert host.closed_until is None or host.closed_until <= verdict.not_before
            await clock.sleep(verdict.not_before - clock.wall() - 0.01)
            assert not await gate.check(PAGE)
            assert len(fetcher.walls) == fetches
            await clock.sleep(0.0101)
            await gate.check(PAGE)
            assert fetcher.walls[fetches:] == [about(verdict.not_before)]
        assert await gate.check(PAGE)


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
async def test_the_queue_asks_again_at_the_moment_of_the_verdict(answer: FetchResponse) -> None:
    clock = ManualClock(autojump=True)
    fetcher = TimedFetcher(clock, {SITE: [answer, FILE]})
    options = {"cache": CacheOptions(retry_min_s=2), "pacing": PacingOptions(backoff_min_s=2)}
    async with gate_of(clock, fetcher, **options) as gate:
        queue = PoliteQueue[str](gate, max_wait_s=None)
        await queue.put(PAGE)
        verdict = await gate.check(PAGE)
        async with queue.turn() as turn:
            assert turn.url == PAGE
        assert verdict.not_before is not None
        assert fetcher.walls[1:] == [about(verdict.not_before)]


async def test_a_host_to_which_robots_txt_redirects_is_waited_for() -> None:
    clock = ManualClock(autojump=True)
    target = "https://target.example"
    there = f"{target}/robots.txt"
    moved = FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", f"{SITE}/robots.txt", 301, location=there)
    fetcher = TimedFetcher(clock, {SITE: moved, target: [refusal(429, url=there), FILE]})
    async with gate_of(clock, fetcher, cache=CacheOptions(retry_min_s=2)) as gate:
        verdict = await gate.check(PAGE)
        assert verdict.not_before is not None
        assert gate.hosts()["target.example"].closed_until == about(verdict.not_before)
        await clock.sleep(verdict.not_before - clock.wall())
        assert await gate.check(PAGE)


async def test_the_next_process_names_the_same_moment() -> None:
    clock, records = ManualClock(autojump=True), dict[str, bytes]()
    fetcher = TimedFetcher(clock, {SITE: [refusal(429), FILE]})
    options = CacheOptions(retry_min_s=2)
    async with gate_of(clock, fetcher, cache=options, store=KeptStore(records)) as gate:
        first = await gate.check(PAGE)
    async with gate_of(clock, fetcher, cache=options, store=KeptStore(records)) as gate:
        second = await gate.check(PAGE)
        assert second.not_before == first.not_before
        assert second.not_before is not None
        await clock.sleep(second.not_before - clock.wall())
        assert await gate.check(PAGE)


async def test_a_file_that_is_requested_like_a_page_is_not_due_before_its_host_opens() -> None:
    clock = ManualClock(autojump=True)
    busy = refusal(429, url=f"{SITE}/data.txt")
    fetcher = TimedFetcher(clock, {SITE: FILE, f"{SITE}/data.txt": [busy, "dataset: x\n"]})
    async with gate_of(clock, fetcher, cache=CacheOptions(retry_min_s=2)) as gate:
        answer = await gate.datatxt(SITE)
        closed_until = gate.hosts()[HOST].closed_until
        assert answer.file.not_before == about(closed_until)


@pytest.mark.parametrize("other", [FILE, 404])
async def test_another_origin_of_the_host_does_not_wait_for_that_moment(other: Answer) -> None:
    clock = ManualClock(autojump=True)
    fetcher = TimedFetcher(clock, {SITE: 500, "http://example.com": other})
    async with gate_of(clock, fetcher) as gate:
        assert not await gate.check(PAGE)
        assert await gate.check("http://example.com/page")
        assert gate.hosts()[HOST].not_before <= clock.wall() + 1


@pytest.mark.parametrize("key", ["host", "domain"])
async def test_a_page_of_another_origin_that_closes_the_host_later_counts_too(key: Literal["host", "domain"]) -> None:
    clock = ManualClock(autojump=True)
    fetcher = TimedFetcher(clock, {SITE: [500, FILE], "http://example.com": FILE})
    async with gate_of(clock, fetcher, pacing=PacingOptions(key=key)) as gate:
        assert not await gate.check(PAGE)
        async with gate.turn("http://example.com/page") as turn:
            turn.observe(429, {"Retry-After": "600"})
        verdict, host = await gate.check(PAGE), gate.hosts()[HOST]
        assert not verdict
        assert verdict.not_before == about(host.closed_until)
        assert host.not_before == about(host.closed_until)
        assert [robots.next_fetch for robots in host.robots if robots.fault] == [about(host.closed_until)]
        assert verdict.not_before is not None
        await clock.sleep(verdict.not_before - clock.wall() + 0.001)
        assert await gate.check(PAGE)
