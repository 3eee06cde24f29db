"""A copy is renewed by a 304 about the same file, and by no other."""

import pytest

from politesse import CacheOptions, Gatekeeper, Reason
from politesse.ports import FetchResponse
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
ROBOTS_TXT = f"{SITE}/robots.txt"
DATA_TXT = f"{SITE}/data.txt"
OPEN = "User-agent: *\nDisallow:\n"
CLOSED = "User-agent: *\nDisallow: /\n"
OPTIONS = CacheOptions(refresh_after=1.0)
HOUR = 3_600.0
EARLIER, LATER = "Sun, 31 Dec 2023 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 GMT"


def found(url: str, body: str, etag: str) -> FetchResponse:
    headers = {"cache-control": "max-age=3600"} | ({"etag": etag} if etag else {"last-modified": "then"})
    return FetchResponse(200, url, headers, body.encode())


def not_modified(url: str, etag: str) -> FetchResponse:
    return FetchResponse(304, url, {"etag": etag} if etag else {}, conditional=True)


def conditions(fetcher: ScriptedFetcher, url: str) -> list[bool]:
    """Return of each request for a URL whether it had conditions."""
    return [request.validators is not None for request in fetcher.requests if request.url == url]


@pytest.mark.clause("RFC 9111 4.3.4")
@pytest.mark.parametrize(
    ("kept", "named"), [('"open"', '"closed"'), ('W/"open"', '"closed"'), ('"open"', 'W/"closed"'), ("", '"closed"')]
)
async def test_304_about_another_file_causes_an_unconditional_fetch_of_robots_txt(kept: str, named: str) -> None:
    answers: list[Answer] = [
        found(ROBOTS_TXT, OPEN, kept),
        not_modified(ROBOTS_TXT, named),
        found(ROBOTS_TXT, CLOSED, named),
        not_modified(ROBOTS_TXT, named),
    ]
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        assert (await gate.check(f"{SITE}/")).allowed
        for _ in range(3):
            clock.advance(HOUR)
            assert (await gate.check(f"{SITE}/")).reason is Reason.DISALLOW_RULE
    # The new file is what the next conditions are about.
    assert conditions(fetcher, ROBOTS_TXT) == [False, True, False, True, True]
    assert fetcher.requests[-1].validators is not None
    assert fetcher.requests[-1].validators.etag == named


@pytest.mark.clause("RFC 9111 4.3.4")
@pytest.mark.parametrize(
    ("kept", "named"),
    [
        ({"etag": '"open"'}, {"etag": '"clos\u00e9"'}),
        ({"last-modified": LATER}, {"last-modified": EARLIER}),
        ({"etag": '"open"', "last-modified": LATER}, {"last-modified": EARLIER}),
    ],
    ids=["etag-that-is-no-ascii", "earlier-date", "earlier-date-and-no-etag"],
)
async def test_304_with_an_unexpected_validator_renews_nothing(kept: dict[str, str], named: dict[str, str]) -> None:
    answers: list[Answer] = [
        FetchResponse(200, ROBOTS_TXT, {"cache-control": "max-age=3600"} | kept, OPEN.encode()),
        FetchResponse(304, ROBOTS_TXT, named, conditional=True),
        FetchResponse(200, ROBOTS_TXT, named, CLOSED.encode()),
    ]
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        assert (await gate.check(f"{SITE}/")).allowed
        clock.advance(HOUR)
        assert (await gate.check(f"{SITE}/")).reason is Reason.DISALLOW_RULE
    assert conditions(fetcher, ROBOTS_TXT) == [False, True, False]


@pytest.mark.clause("RFC 9110 8.8.3.2")
@pytest.mark.parametrize(("kept", "named"), [('"x"', '"x"'), ('"x"', ""), ('"x"', 'W/"x"'), ('W/"x"', '"x"'), ("", "")])
async def test_304_about_the_same_file_renews_the_copy_by_one_request(kept: str, named: str) -> None:
    answers: list[Answer] = [found(ROBOTS_TXT, CLOSED, kept), not_modified(ROBOTS_TXT, named)]
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        for _ in range(4):
            assert (await gate.check(f"{SITE}/")).reason is Reason.DISALLOW_RULE
            clock.advance(HOUR)
    assert conditions(fetcher, ROBOTS_TXT) == [False, True, True, True]


async def test_304_to_an_unconditional_request_means_unreachable() -> None:
    answers: list[Answer] = [found(ROBOTS_TXT, OPEN, '"open"'), not_modified(ROBOTS_TXT, '"closed"')]
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        assert (await gate.check(f"{SITE}/")).allowed
        clock.advance(23 * HOUR)
        verdict = await gate.check(f"{SITE}/")
        assert verdict.allowed  # for the rest of the day in which a copy serves an unreachable site
        assert verdict.source is not None
        assert "304" in verdict.source.fault
        clock.advance(HOUR)
        assert (await gate.check(f"{SITE}/")).reason is Reason.UNREACHABLE
    assert conditions(fetcher, ROBOTS_TXT) == [False, True, False, True, False]


@pytest.mark.parametrize("lies", [True, False])
async def test_second_304_confirms_nothing_whatever_its_validator(*, lies: bool) -> None:
    second = FetchResponse(304, ROBOTS_TXT, {"etag": '"open"'}, conditional=lies)
    answers: list[Answer] = [found(ROBOTS_TXT, OPEN, '"open"'), not_modified(ROBOTS_TXT, '"closed"'), second]
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        await gate.check(f"{SITE}/")
        clock.advance(24 * HOUR)
        assert (await gate.check(f"{SITE}/")).reason is Reason.UNREACHABLE


async def test_304_about_another_file_does_not_renew_a_stored_copy() -> None:
    store = MemoryStore()
    clock = ManualClock()
    fetcher = ScriptedFetcher({SITE: found(ROBOTS_TXT, OPEN, '"open"')})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store) as gate:
        assert (await gate.check(f"{SITE}/")).allowed
    clock.advance(2 * HOUR)
    fetcher = ScriptedFetcher({SITE: [not_modified(ROBOTS_TXT, '"closed"'), found(ROBOTS_TXT, CLOSED, '"closed"')]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store) as gate:
        assert (await gate.check(f"{SITE}/")).reason is Reason.DISALLOW_RULE
    assert conditions(fetcher, ROBOTS_TXT) == [True, False]


async def test_304_about_another_file_causes_an_unconditional_fetch_of_a_site_file() -> None:
    answers: list[Answer] = [
        found(DATA_TXT, "Dataset: /old.csv\n", '"old"'),
        not_modified(DATA_TXT, '"new"'),
        found(DATA_TXT, "Dataset: /new.csv\n", '"new"'),
    ]
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({DATA_TXT: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        assert (await gate.datatxt(SITE)).file.body == b"Dataset: /old.csv\n"
        clock.advance(HOUR)
        file = (await gate.datatxt(SITE)).file
        assert (file.outcome, file.body) == (FileOutcome.FOUND, b"Dataset: /new.csv\n")
    assert conditions(fetcher, DATA_TXT) == [False, True, False]


async def test_site_file_answered_by_304_without_conditions_is_retried() -> None:
    answers: list[Answer] = [found(DATA_TXT, "Dataset: /old.csv\n", '"old"'), not_modified(DATA_TXT, '"new"')]
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({DATA_TXT: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=OPTIONS) as gate:
        await gate.datatxt(SITE)
        clock.advance(25 * HOUR)
        assert (await gate.datatxt(SITE)).file.outcome is FileOutcome.RETRY
    assert conditions(fetcher, DATA_TXT) == [False, True, False]
