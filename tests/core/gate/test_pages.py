import asyncio
from itertools import pairwise

import pytest

from politesse import (
    AgentView,
    CacheOptions,
    ClosedError,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    Origin,
    PacingOptions,
    Reason,
)
from politesse.errors import TurnHeld
from politesse.events import ComponentFailed, Event
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse
from politesse.sites import DataRecord, FileOutcome
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
URL = f"{SITE}/data.txt"
DATA = "User-agent: *\nDisallow: /\n\nDataset: /d.csv\n"
DRAFT = "A Method for Web Data Discovery"


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: "User-agent: *\nDisallow: /private\n", URL: DATA})


def moved(url: str, location: str) -> FetchFault:
    return FetchFault(FaultKind.REDIRECT_LIMIT, "more than 0 redirects", url, 301, location=location)


def view(gate: Gatekeeper, token: str) -> AgentView:
    return gate.agent(tokens=token, user_agent=f"{token}/1.0 (+https://example.com/bot)")


def asked(fetcher: ScriptedFetcher) -> list[str]:
    return [request.url for request in fetcher.requests]


@pytest.mark.clause(f"{DRAFT} 3.1")
@pytest.mark.parametrize(
    ("site", "url"),
    [
        ("https://datatxt.org/", "https://datatxt.org/data.txt"),
        ("http://www.bar.com:8001/", "http://www.bar.com:8001/data.txt"),
        ("https://datatxt.org/any/page?x#y", "https://datatxt.org/data.txt"),
    ],
)
async def test_data_txt_is_fetched_from_the_scheme_host_and_port_of_its_site(
    gate: Gatekeeper, fetcher: ScriptedFetcher, site: str, url: str
) -> None:
    assert (await gate.datatxt(site)).file.url == url
    assert asked(fetcher) == [Origin.of(site).robots_url, url]
    assert (await gate.datatxt(Origin.of(site))).file.url == url
    assert len(fetcher.requests) == 2


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_data_txt_is_read(gate: Gatekeeper) -> None:
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.status, answer.text) == (FileOutcome.FOUND, 200, DATA)
    assert answer.records == (
        DataRecord(("*",), (("User-agent", "*"), ("Disallow", "/"))),
        DataRecord((), (("Dataset", "/d.csv"),)),
    )
    named = await gate.datatxt(SITE, fields={"dataset": "distribution"})
    assert named.records[1].fields == (("distribution", "/d.csv"),)


@pytest.mark.clause(f"{DRAFT} 3.1")
@pytest.mark.parametrize("status", [403, 404, 410])
async def test_missing_data_txt_means_unknown(gate: Gatekeeper, fetcher: ScriptedFetcher, status: int) -> None:
    fetcher.answers[URL] = status
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.status, answer.records, answer.text) == (FileOutcome.UNKNOWN, status, (), "")


PAGE_OF_HTML = "<!doctype html>\n<title>Not found: x</title>\n"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=utf-8", PAGE_OF_HTML),
        ("TEXT/HTML", "Sorry: there is no such page\n"),
        ("application/xhtml+xml", '<?xml version="1.0"?><html/>'),
        ("text/plain", PAGE_OF_HTML),
        ("", "\ufeff\r\n <HTML><body>Error: 404"),
        ("", "<center><h1>Error: 404</h1></center>"),
        ("text/plain", "<html>".encode("utf-16") + "Error: 404".encode("utf-16-le")),
    ],
)
async def test_web_page_in_place_of_data_txt_means_unknown(
    gate: Gatekeeper, fetcher: ScriptedFetcher, content_type: str, body: str | bytes
) -> None:
    octets = body.encode() if isinstance(body, str) else body
    headers = {"content-type": content_type} if content_type else {}
    fetcher.answers[URL] = FetchResponse(200, URL, headers, octets)
    for _ in range(2):  # asked, and known
        answer = await gate.datatxt(SITE)
        assert (answer.outcome, answer.status, answer.records, answer.text) == (FileOutcome.UNKNOWN, 200, (), "")
        assert "web page" in answer.file.fault


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/octet-stream"])
async def test_data_txt_of_another_media_type_is_found(
    gate: Gatekeeper, fetcher: ScriptedFetcher, content_type: str
) -> None:
    fetcher.answers[URL] = FetchResponse(200, URL, {"content-type": content_type}, b"Dataset: /<d>.html\n")
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.file.content_type) == (FileOutcome.FOUND, content_type)
    assert answer.records == (DataRecord((), (("Dataset", "/<d>.html"),)),)


async def test_exception_of_the_fetcher_is_reported_and_ends_its_turn(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    events: list[Event] = []
    gate.subscribe(events.append)
    fetcher.answers[URL] = OSError("broken")
    assert "broken" in (await gate.datatxt(SITE)).file.fault
    assert [event.component for event in events if isinstance(event, ComponentFailed)] == ["fetcher"]
    assert gate.statistics().turns == 0


async def test_data_txt_changes_no_verdict(gate: Gatekeeper) -> None:
    assert await gate.check(f"{SITE}/page")
    assert "Disallow: /" in (await gate.datatxt(SITE)).text
    assert await gate.check(f"{SITE}/page")


@pytest.mark.clause("RFC 9309 2.2.2")
async def test_data_txt_is_not_exempt_from_robots_txt(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = "User-agent: *\nDisallow: /\n"
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.status, answer.records) == (FileOutcome.DISALLOWED, None, ())
    assert answer.file.verdict is not None
    assert answer.file.verdict.reason is Reason.DISALLOW_RULE
    assert (answer.file.url, answer.file.fault) == (URL, str(answer.file.verdict))
    assert asked(fetcher) == [f"{SITE}/robots.txt"]


async def test_unreachable_robots_txt_has_data_txt_retried(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[SITE] = [FetchResponse(503, f"{SITE}/robots.txt", {"retry-after": "900"}), ""]
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.file.not_before) == (FileOutcome.RETRY, clock.wall() + 900)
    assert answer.file.verdict is not None
    assert fetcher.count(URL) == 0
    await clock.sleep(901)
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND


async def test_data_txt_is_fetched_where_robots_txt_does_not_mention_it(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    del fetcher.answers[SITE]
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND


async def test_denying_host_policy_prevents_the_fetch_of_data_txt(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    gate.set_policy("example.com", HostPolicy(deny=True, reason="by request"))
    answer = await gate.datatxt(SITE)
    assert answer.outcome is FileOutcome.DISALLOWED
    assert "by request" in answer.file.fault
    assert fetcher.requests == []


async def test_data_txt_of_a_site_that_is_too_slow_is_not_fetched(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[SITE] = "User-agent: *\nCrawl-delay: 1000\n"
    pacing = PacingOptions(on_long_crawl_delay="skip")
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        answer = await gate.datatxt(SITE)
        assert answer.outcome is FileOutcome.DISALLOWED
        assert answer.file.verdict is not None
        assert answer.file.verdict.reason is Reason.TOO_SLOW
        assert fetcher.count(URL) == 0


async def test_each_agent_is_bound_by_its_own_groups(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = "User-agent: ExampleBot-Image\nDisallow: /data.txt\n"
    image = view(gate, "ExampleBot-Image")
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND
    assert (await image.datatxt(SITE)).outcome is FileOutcome.DISALLOWED


async def test_denied_gatekeeper_makes_no_request_for_its_agents(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: ExampleBot-Image\nAllow: /\n"
    answer = await view(gate, "ExampleBot-Image").datatxt(SITE)
    assert answer.outcome is FileOutcome.DISALLOWED
    assert answer.file.verdict is not None
    assert answer.file.verdict.agent == "examplebot"
    assert fetcher.count(URL) == 0


async def test_agents_share_one_request(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    views = [gate, view(gate, "ExampleBot-Image"), view(gate, "ExampleBot-News")]
    answers = await asyncio.gather(*(view.datatxt(SITE) for view in views for _ in range(10)))
    assert {answer.outcome for answer in answers} == {FileOutcome.FOUND}
    assert fetcher.count(URL) == 1


async def test_report_mode_fetches_disallowed_files(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[SITE] = "User-agent: *\nDisallow: /\n"
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND


async def test_data_txt_waits_for_its_turn_and_the_next_page_waits_for_it(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[SITE] = "User-agent: *\nCrawl-delay: 20\n"
    await gate.datatxt(SITE)
    assert clock.monotonic() == 20  # after robots.txt
    async with gate.turn(f"{SITE}/page"):
        assert clock.monotonic() == 40
        waiting = asyncio.ensure_future(gate.datatxt(SITE))
        assert (await waiting).outcome is FileOutcome.FOUND  # it is kept, and needs no turn
    assert clock.monotonic() == 40


async def test_permission_is_checked_again_after_the_wait(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[SITE] = "User-agent: *\nCrawl-delay: 20\n"
    waiting = asyncio.ensure_future(gate.datatxt(SITE))
    await clock.sleep(10)
    gate.set_policy("example.com", HostPolicy(deny=True))
    assert (await waiting).outcome is FileOutcome.DISALLOWED
    assert fetcher.count(URL) == 0


@pytest.mark.parametrize("status", [429, 503])
async def test_status_that_closes_a_host_closes_it_for_its_pages(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, status: int
) -> None:
    fetcher.answers[URL] = FetchResponse(status, URL, {"retry-after": "300"})
    answer = await gate.datatxt(SITE)
    asked_mono = clock.monotonic()
    assert (answer.outcome, answer.file.not_before) == (FileOutcome.RETRY, clock.wall() + 300)
    async with gate.turn(f"{SITE}/page"):
        assert clock.monotonic() == asked_mono + 300


async def test_cancelled_wait_for_a_turn_affects_no_other(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = "User-agent: *\nCrawl-delay: 20\n"
    first, second = (asyncio.ensure_future(gate.datatxt(SITE)) for _ in range(2))
    while gate.statistics().waiting == 0:
        await asyncio.sleep(0)
    first.cancel()
    assert (await second).outcome is FileOutcome.FOUND
    assert first.cancelled()
    assert fetcher.count(URL) == 1


async def test_redirect_is_permitted_and_paced_at_each_hop(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    www = "https://www.example.com"
    fetcher.answers |= {
        URL: moved(URL, f"{www}/data.txt?v=2"),
        f"{www}/data.txt?v=2": moved(f"{www}/data.txt?v=2", f"{www}/d"),
        www: "User-agent: *\nCrawl-delay: 20\n",
        f"{www}/d": "Dataset: /x\n",
    }
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.text) == (FileOutcome.FOUND, "Dataset: /x\n")
    assert asked(fetcher) == [*(f"{SITE}/robots.txt", URL), *(f"{www}/robots.txt", f"{www}/data.txt?v=2", f"{www}/d")]
    assert clock.monotonic() == 1 + 20 + 20  # the floor, and two Crawl-delays
    files = [request for request in fetcher.requests if request.path != "/robots.txt"]
    assert [(request.max_redirects, request.redirected) for request in files] == [(0, False), (0, True), (0, True)]


async def test_redirect_within_a_host_does_not_count_as_redirected_elsewhere(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers |= {URL: moved(URL, "http://example.com/d"), "http://example.com/d": DATA}
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND
    assert [request.redirected for request in fetcher.requests] == [False] * 4


async def test_redirect_to_a_disallowed_url_is_not_followed(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[URL] = moved(URL, f"{SITE}/private/d")
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.file.verdict) == (FileOutcome.RETRY, None)
    assert "/private" in answer.file.fault
    await gate.datatxt(SITE)
    assert asked(fetcher) == [f"{SITE}/robots.txt", URL]


@pytest.mark.parametrize(
    ("location", "outcome"),
    [
        (f"{SITE}/data.txt", FileOutcome.UNKNOWN),  # a loop
        ("", FileOutcome.RETRY),  # a fetcher that does not tell
        ("ftp://example.com/data.txt", FileOutcome.RETRY),
    ],
)
async def test_redirect_that_leads_nowhere_is_not_followed(
    gate: Gatekeeper, fetcher: ScriptedFetcher, location: str, outcome: FileOutcome
) -> None:
    fetcher.answers[URL] = moved(URL, location)
    assert (await gate.datatxt(SITE)).outcome is outcome
    assert fetcher.count(URL) == 1


@pytest.mark.parametrize(("redirects", "outcome"), [(5, FileOutcome.FOUND), (6, FileOutcome.UNKNOWN)])
async def test_fifth_redirect_is_followed_and_the_sixth_is_not(
    gate: Gatekeeper, fetcher: ScriptedFetcher, redirects: int, outcome: FileOutcome
) -> None:
    urls = [URL, *(f"{SITE}/{number}" for number in range(1, redirects + 1))]
    fetcher.answers |= {url: moved(url, then) for url, then in pairwise(urls)}
    fetcher.answers[urls[-1]] = DATA
    assert (await gate.datatxt(SITE)).outcome is outcome
    assert len(fetcher.requests) == 1 + 6


async def test_unknown_file_of_a_host_whose_turn_the_task_holds_is_an_error_at_once(gate: Gatekeeper) -> None:
    async with gate.turn(f"{SITE}/page"):
        with pytest.raises(TurnHeld) as caught:
            await gate.datatxt(SITE)
    assert (caught.value.url, caught.value.held_by) == (URL, f"{SITE}/page")
    known = await gate.datatxt(SITE)
    async with gate.turn(f"{SITE}/page"):
        assert (await gate.datatxt(SITE)).text == known.text


async def test_other_files_are_fetched_in_the_same_way(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    tdm = f"{SITE}/.well-known/tdmrep.json"
    fetcher.answers[tdm] = "[]"
    file = await gate.site_file(gate.state.tdm_files, Origin.of(SITE), "/.well-known/tdmrep.json")
    assert (file.outcome, file.body) == (FileOutcome.FOUND, b"[]")
    fetcher.answers[SITE] = "User-agent: *\nDisallow: /.well-known/\n"
    await gate.forget(SITE)
    file = await gate.site_file(gate.state.tdm_files, Origin.of(SITE), "/.well-known/tdmrep.json")
    assert (file.outcome, file.body) == (FileOutcome.DISALLOWED, b"")


async def test_data_txt_is_fetched_again_after_forget(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    await gate.datatxt(SITE)
    await gate.forget(SITE)
    await gate.datatxt(SITE)
    assert (fetcher.count(SITE), fetcher.count(URL)) == (2, 2)


async def test_requests_in_flight_are_bounded_by_the_options(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=CacheOptions(max_concurrent_fetches=2)) as gate:
        sites = [f"https://host{number}.example" for number in range(5)]
        await gate.check_batch(f"{site}/" for site in sites)
        fetcher.gate.clear()
        waiting = [asyncio.ensure_future(gate.datatxt(site)) for site in sites]
        await clock.sleep(1.02)  # the pace, and less than makes a request slow
        assert len(fetcher.requests) == 5 + 2
        fetcher.gate.set()
        await asyncio.gather(*waiting)
        assert len(fetcher.requests) == 5 + 5


@pytest.mark.parametrize("held_back", [True, False], ids=["at the server", "waiting for its turn"])
async def test_closing_ends_the_wait_with_a_closed_error(
    fetcher: ScriptedFetcher,
    held_back: bool,  # noqa: FBT001 - as pytest hands it in
) -> None:
    clock = ManualClock()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    await gate.check(f"{SITE}/")
    clock.advance(10 if held_back else 0)
    fetcher.gate.clear()
    waiting = [asyncio.ensure_future(gate.datatxt(SITE)) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert fetcher.count(URL) == held_back
    await gate.aclose()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ClosedError] * 2
    for question in (gate.datatxt, gate.sitemaps):
        with pytest.raises(ClosedError):
            await question(SITE)
    assert gate.statistics().turns == 0


async def test_invalid_url_has_neither_data_txt_nor_sitemaps(gate: Gatekeeper) -> None:
    for question in (gate.datatxt, gate.sitemaps):
        with pytest.raises(InvalidURL):
            await question("example.com")


LISTING = "Sitemap: https://cdn.example/a.xml\nUser-agent: *\nDisallow: /\nsitemap: /b.xml\nSITEMAP: https://h/C.xml\n"


async def test_sitemaps_are_listed_for_every_agent(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = LISTING
    listed = await gate.sitemaps(f"{SITE}/page")
    assert listed.urls == ("https://cdn.example/a.xml", "https://h/C.xml")
    assert [(one.line, one.value) for one in listed.rejected] == [(4, "/b.xml")]
    assert (listed.known, listed.verdict) == (True, None)
    assert listed.source is not None
    assert listed.source.status == 200
    other = await view(gate, "AnotherBot").sitemaps(Origin.of(SITE))
    assert (other.urls, other.rejected) == (listed.urls, listed.rejected)
    assert asked(fetcher) == [f"{SITE}/robots.txt"]


async def test_origins_with_the_same_file_list_the_same_sitemaps(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    sites = [f"https://host{number}.example" for number in range(3)]
    fetcher.answers |= dict.fromkeys(sites, LISTING)
    listed = [await gate.sitemaps(site) for site in sites]
    assert {one.urls for one in listed} == {("https://cdn.example/a.xml", "https://h/C.xml")}


@pytest.mark.parametrize("answer", ["User-agent: *\n", 404, 403])
async def test_robots_txt_without_sitemaps_lists_none(
    gate: Gatekeeper, fetcher: ScriptedFetcher, answer: str | int
) -> None:
    fetcher.answers[SITE] = answer
    listed = await gate.sitemaps(SITE)
    assert (listed.urls, listed.rejected, listed.known) == ((), (), True)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (500, AccessResult.UNREACHABLE),
        (429, AccessResult.TOO_MANY_REQUESTS),
        (FetchFault(FaultKind.TLS, "expired", f"{SITE}/robots.txt"), AccessResult.UNREACHABLE),
    ],
)
async def test_unreachable_robots_txt_leaves_sitemaps_unknown(
    gate: Gatekeeper, fetcher: ScriptedFetcher, answer: int | FetchFault, result: AccessResult
) -> None:
    fetcher.answers[SITE] = answer
    listed = await gate.sitemaps(SITE)
    assert (listed.urls, listed.known) == ((), False)
    assert listed.source is not None
    assert listed.source.result is result


async def test_forbidden_robots_txt_that_closes_the_site_leaves_sitemaps_unknown(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[SITE] = 403
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=CacheOptions(on_forbidden="disallow")) as gate:
        assert not (await gate.sitemaps(SITE)).known


async def test_sitemaps_of_a_denied_host_are_not_fetched(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[SITE] = LISTING
    gate.set_policy("example.com", HostPolicy(deny=True))
    listed = await gate.sitemaps(SITE)
    assert (listed.urls, listed.known, listed.source) == ((), False, None)
    assert listed.verdict is not None
    assert listed.verdict.reason is Reason.POLICY_DENY
    assert fetcher.requests == []
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own"))
    assert (await gate.sitemaps(SITE)).urls


async def test_copy_that_replaces_another_lists_its_own_sitemaps(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[SITE] = [LISTING, "Sitemap: https://h/new.xml\n"]
    await gate.sitemaps(SITE)
    await clock.sleep(86_401)
    assert (await gate.sitemaps(SITE)).urls == ("https://h/new.xml",)


async def test_fetch_request_names_its_file() -> None:
    request = FetchRequest(Origin.of("HTTP://Example.com:80/x"), 5)
    assert request.url == "http://example.com/robots.txt"
    assert FetchRequest(request.origin, 5, path="/data.txt").url == "http://example.com/data.txt"
