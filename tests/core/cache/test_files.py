"""How long the other files of a site are kept: what is said of robots.txt, in memory only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from politesse import CacheOptions, Gatekeeper
from politesse.errors import PolitesseError
from politesse.events import Event, SiteFileFetched
from politesse.origin import Origin
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.sites import SiteFile
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import FileOutcome
from tests.core.gate.gates import DAY, HOUR
from tests.support.scripted import UA
from tests.support.tasks import settle

SITE = "https://example.com"
PATH = "/data.txt"
URL = f"{SITE}{PATH}"
FILE = "Dataset: /d.csv\n"
DRAFT = "A Method for Web Data Discovery"


class Bench:
    """The files of a gate, fetched without turns; waits have no jitter."""

    def __init__(
        self, answers: dict[str, Answer | list[Answer]], options: CacheOptions | None, fetcher: Fetcher | None
    ) -> None:
        self.clock = ManualClock()
        self.scripted = ScriptedFetcher(answers)
        self.events: list[Event] = []
        self.gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=self.clock, cache=options)
        self.gate.subscribe(self.events.append)
        self.files = self.gate.state.files
        self.files._fetcher = fetcher or self.scripted
        self.files._jitter = lambda: 0.0

    async def ask(self, site: str = SITE, path: str = PATH) -> SiteFile:
        return await self.files.get(Origin.of(site), path)

    def start(self) -> asyncio.Task[SiteFile]:
        return asyncio.create_task(self.ask())

    @property
    def asked(self) -> int:
        return len(self.scripted.requests)


@asynccontextmanager
async def keeping(
    *answers: Answer, options: CacheOptions | None = None, fetcher: Fetcher | None = None
) -> AsyncIterator[Bench]:
    before = asyncio.all_tasks()
    bench = Bench({URL: list(answers)} if answers else {}, options, fetcher)
    try:
        yield bench
    finally:
        await bench.gate.aclose()
    assert asyncio.all_tasks() == before


def respond(status: int, body: str = "", *, conditional: bool = False, **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(status, URL, named, body.encode(), conditional=conditional)


def fault(kind: FaultKind, status: int | None = None) -> FetchFault:
    return FetchFault(kind, "as the test says", URL, status)


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_missing_or_refused_file_is_unknown_and_fetched_again_after_a_day() -> None:
    for status in (400, 401, 403, 404, 410, 451, 499):
        async with keeping(status) as bench:
            file = await bench.ask()
            assert (file.outcome, file.status, file.body, file.not_before) == (FileOutcome.UNKNOWN, status, b"", None)
            bench.clock.advance(0.89 * DAY)
            assert (await bench.ask()).outcome is FileOutcome.UNKNOWN
            assert bench.asked == 1
            bench.clock.advance(0.11 * DAY)
            await bench.ask()
            assert bench.asked == 2


async def test_unsettled_file_is_retried_after_a_backoff_and_not_per_question() -> None:
    answers: list[Answer] = [respond(status) for status in (206, 304, 518, 500, 502, 503, 504, 429)]
    answers += [fault(kind) for kind in FaultKind if kind is not FaultKind.REDIRECT_LIMIT]
    for answer in [*answers, RuntimeError("bug")]:
        async with keeping(answer) as bench:
            file = await bench.ask()
            assert (file.outcome, file.body) == (FileOutcome.RETRY, b"")
            assert "RuntimeError: bug" in file.fault if isinstance(answer, RuntimeError) else file.fault
            assert file.not_before == bench.clock.wall() + 60
            bench.clock.advance(59)
            again = await bench.ask()
            assert (again.outcome, again.age_s, bench.asked) == (FileOutcome.RETRY, 59, 1)
            bench.clock.advance(1)
            assert (await bench.ask()).not_before == bench.clock.wall() + 120
            assert bench.asked == 2


@pytest.mark.clause(f"{DRAFT} 3.4")
async def test_a_file_is_kept_for_as_long_as_its_headers_say_or_a_week() -> None:
    rows: list[tuple[dict[str, str], float]] = [
        ({}, 7 * DAY),
        ({"cache-control": "max-age=3600"}, HOUR),
        ({"cache-control": "max-age=3600", "age": "3000"}, 600),
        ({"expires": "Fri, 15 Jan 2027 09:00:00 GMT", "date": "Fri, 15 Jan 2027 08:00:00 GMT"}, HOUR),
        ({"expires": "0"}, 60),
        ({"cache-control": "no-store"}, 60),
        ({"cache-control": "max-age=31536000"}, 7 * DAY),
    ]
    for headers, lifetime_s in rows:
        answers = [FetchResponse(200, URL, headers, body.encode()) for body in ("A: 1", "A: 2")]
        async with keeping(*answers, options=CacheOptions(refresh_after=1.0)) as bench:
            await bench.ask()
            bench.clock.advance(lifetime_s - 1)
            file = await bench.ask()
            assert (file.body, file.age_s, bench.asked) == (b"A: 1", lifetime_s - 1, 1)
            bench.clock.advance(1)
            assert ((await bench.ask()).body, bench.asked) == (b"A: 2", 2)


async def test_a_file_that_has_gone_is_unknown_at_once() -> None:
    async with keeping(respond(200, FILE, cache_control="max-age=3600"), 404) as bench:
        await bench.ask()
        bench.clock.advance(HOUR)
        file = await bench.ask()
        assert (file.outcome, file.body) == (FileOutcome.UNKNOWN, b"")


async def test_a_file_that_was_cut_says_so_for_as_long_as_it_is_kept() -> None:
    cut = FetchResponse(200, URL, {"etag": '"1"', "cache-control": "max-age=60"}, b"A: 1\n", truncated=True)
    whole = respond(200, FILE, conditional=True)
    async with keeping(cut, respond(304, conditional=True), 500, whole) as bench:
        truncated = []
        for _ in range(5):
            truncated.append((await bench.ask()).truncated)
            await settle()
            bench.clock.advance(60)
        # The fourth answer is still the copy that serves while the file is unreachable, asked for again behind it.
        assert truncated == [True, True, True, True, False]


async def test_only_files_of_the_forgotten_origin_are_fetched_again() -> None:
    other = "https://example.com.evil.example"
    async with keeping() as bench:
        for site in (SITE, other):
            await bench.ask(site)
        before = bench.files.weight_bytes
        bench.files.forget(Origin.of(SITE))
        assert 0 < bench.files.weight_bytes < before
        for site in (SITE, other):
            await bench.ask(site)
        assert (bench.scripted.count(URL), bench.scripted.count(f"{other}{PATH}")) == (2, 1)


async def test_a_look_is_a_use() -> None:
    sites = [f"https://host{number}.example" for number in range(10)]
    async with keeping(options=CacheOptions(max_site_files_bytes=50_000)) as bench:
        bench.scripted.answers |= {f"{site}{PATH}": b"A" * 10_000 for site in sites}
        for site in sites:
            await bench.ask(site)
            assert bench.files.peek(Origin.of(sites[0]), PATH) is not None


async def test_a_look_may_come_late_but_not_at_what_is_to_be_retried() -> None:
    for answer, late in ((respond(200, "A", cache_control="max-age=100"), True), (respond(503), False)):
        async with keeping(answer) as bench:
            await bench.ask()
            bench.clock.advance(150)
            assert bench.files.peek(Origin.of(SITE), PATH) is None
            assert (bench.files.peek(Origin.of(SITE), PATH, late_s=60) is not None) is late
            assert bench.files.peek(Origin.of(SITE), PATH, late_s=40) is None


async def test_every_request_is_published_as_an_event() -> None:
    async with keeping(404, fault(FaultKind.TIMEOUT)) as bench:
        await bench.ask()
        await bench.ask()
        bench.clock.advance(DAY)
        await bench.ask()
        assert bench.events == [
            SiteFileFetched(URL, 404, "", FileOutcome.UNKNOWN),
            SiteFileFetched(URL, None, "timeout: as the test says", FileOutcome.RETRY),
        ]


class _Refusing:
    """A fetcher that does not ask."""

    def __init__(self) -> None:
        self.times = 0

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.times += 1
        await asyncio.sleep(0)
        raise PolitesseError(f"not {request.url}")

    async def aclose(self) -> None:
        raise AssertionError("it is closed by its owner")


async def test_refusal_to_fetch_is_raised_in_all_waiters_and_not_kept() -> None:
    refusing = _Refusing()
    async with keeping(fetcher=refusing) as bench:
        answers = await asyncio.gather(bench.start(), bench.start(), return_exceptions=True)
        assert [str(answer) for answer in answers] == [f"not {URL}"] * 2
        with pytest.raises(PolitesseError, match="not https"):
            await bench.ask()
        assert (refusing.times, bench.events, bench.files.weight_bytes) == (2, [], 0)
