"""Other files of a site: data.txt and the sitemaps that robots.txt lists."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse import AgentView, CacheOptions, ClosedError, HostPolicy, InvalidURL, Origin, PacingOptions, Reason
from politesse.errors import TurnHeld
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse
from politesse.robots import Quirk
from politesse.sites import DataRecord, DataTxt, FileOutcome
from politesse.testing import Answer
from politesse.verdict import AccessResult
from tests.core.gate.gates import CLOSED, PAGE, PRIVATE, ROBOTS_TXT, SITE, ScriptedGate, found, moved, refusal
from tests.support.events import failures_of
from tests.support.tasks import settle

URL: Final = f"{SITE}/data.txt"
DATA: Final = "User-agent: *\nDisallow: /\n\nDataset: /d.csv\n"
SLOW: Final = "User-agent: *\nCrawl-delay: 20\n"
DRAFT: Final = "A Method for Web Data Discovery"
RECORDS: Final = """\
# what we publish
User-agent: webcrawler
User-agent: infoseek
Allow:    /old/ok.html
Disallow: /user/foo

# the list
Dataset: /d.csv   # by year
  Title : Rain, 1990: by day
Dataset: /e.csv
"""


def gate_of(**options: Any) -> ScriptedGate:
    return ScriptedGate({SITE: PRIVATE, URL: DATA}, jumps=True, **options)


@pytest.fixture
async def gate() -> AsyncIterator[ScriptedGate]:
    async with gate_of() as gate:
        yield gate


def view(gate: ScriptedGate, token: str) -> AgentView:
    return gate.agent(tokens=token, user_agent=f"{token}/1.0 (+https://example.com/bot)")


# The format


@pytest.mark.clause(f"{DRAFT} 3.2")
def test_records_are_runs_of_fields_between_blank_lines() -> None:
    agents = (("User-agent", "webcrawler"), ("User-agent", "infoseek"))
    assert DataTxt.parse(RECORDS).records == (
        DataRecord(("webcrawler", "infoseek"), (*agents, ("Allow", "/old/ok.html"), ("Disallow", "/user/foo"))),
        DataRecord((), (("Dataset", "/d.csv"), ("Title", "Rain, 1990: by day"), ("Dataset", "/e.csv"))),
    )


@pytest.mark.clause(f"{DRAFT} 3.2")
@pytest.mark.clause(f"{DRAFT} 5.2")
def test_lines_have_the_fields_of_the_table() -> None:
    lines = {
        "A: 1\n# a comment does not end a record\nB: 2\n": [(("A", "1"), ("B", "2"))],
        "useragent: x\ndisalow: /a\ndisallow /b": [(("useragent", "x"), ("disalow", "/a"))],  # as written
        "All our data\n\nDataset: /d\n": [(("Dataset", "/d"),)],
        "": [],
    } | {  # lines end as on any platform
        f"A: 1{end}{end} \t{end}B: 2{end}C: 3": [(("A", "1"),), (("B", "2"), ("C", "3"))]
        for end in ("\n", "\r", "\r\n")
    }
    assert {text: [record.fields for record in DataTxt.parse(text).records] for text in lines} == lines


def test_fields_can_be_given_other_names_which_hide_no_agent() -> None:
    [record] = DataTxt.parse("DataSet: /d\nTitle: x", fields={"dataset": "distribution"}).records
    assert record.fields == (("distribution", "/d"), ("Title", "x"))
    [record] = DataTxt.parse("DataSet: /d\nTitle: x", fields=str.upper).records
    assert record.fields == (("DATASET", "/d"), ("TITLE", "x"))
    [record] = DataTxt.parse("DATASET: /D.csv\nTitle: x\ndataset: /e.csv").records  # found in any case
    assert (record.values("Dataset"), record.values("licence")) == (("/D.csv", "/e.csv"), ())
    [record] = DataTxt.parse("User-agent: x", fields={"user-agent": "robot"}).records
    assert record == DataRecord(("x",), (("robot", "x"),))


@pytest.mark.clause(f"{DRAFT} 2")
def test_text_is_the_file_with_its_comments_and_layout_and_is_safe_to_print() -> None:
    texts: dict[str | bytes, str] = {
        "# hello\r\n\r\nTitle:\tRéunion\n": "# hello\n\nTitle:\tRéunion\n",
        "All our data\n": "All our data\n",
        b"Title: \x1b[2J\x00\xff \xe2\x80\xae\n": "Title: \\x1b[2J\\x00\\udcff \\u202e\n",
    }
    assert {body: DataTxt.parse(body).text for body in texts} == texts
    assert DataTxt.parse("<!DOCTYPE html>\n<p>Not found: x</p>").quirks == (Quirk.LOOKS_LIKE_HTML,)


@given(
    st.binary(max_size=300) | st.lists(st.sampled_from([b"a", b":", b"#", b"\n", b"\r", b" ", b"\xff"])).map(b"".join)
)
def test_parsing_raises_for_no_content_and_invents_no_field(body: bytes) -> None:
    read = DataTxt.parse(body)
    assert len([field for record in read.records for field in record.fields]) <= body.count(b":")
    assert all(record.fields for record in read.records)
    assert all(character.isprintable() or character in "\t\n" for character in read.text)
    assert repr(read) == f"<DataTxt: {len(read.records)} records>"


# The request


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_data_txt_is_fetched_from_the_scheme_host_and_port_of_its_site(gate: ScriptedGate) -> None:
    for site, url in {
        "https://datatxt.org/": "https://datatxt.org/data.txt",
        "http://www.bar.com:8001/": "http://www.bar.com:8001/data.txt",
        "https://example.com/any/page?x#y": URL,
    }.items():
        before = len(gate.asked)
        assert (await gate.datatxt(site)).file.url == url
        assert (await gate.datatxt(Origin.of(site))).file.url == url
        assert gate.asked[before:] == [Origin.of(site).robots_url, url]
    for question in (gate.datatxt, gate.sitemaps):
        with pytest.raises(InvalidURL):
            await question("example.com")
    request = FetchRequest(Origin.of("HTTP://Example.com:80/x"), 5)
    assert request.url == "http://example.com/robots.txt"
    assert FetchRequest(request.origin, 5, path="/data.txt").url == "http://example.com/data.txt"


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_data_txt_is_read_and_changes_no_verdict(gate: ScriptedGate) -> None:
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.status, answer.text) == (FileOutcome.FOUND, 200, DATA)
    agents = DataRecord(("*",), (("User-agent", "*"), ("Disallow", "/")))
    assert answer.records == (agents, DataRecord((), (("Dataset", "/d.csv"),)))
    named = await gate.datatxt(SITE, fields={"dataset": "distribution"})
    assert named.records[1].fields == (("distribution", "/d.csv"),)
    assert await gate.check(PAGE)
    await gate.forget(SITE)
    del gate.fetcher.answers[SITE]
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND  # without a robots.txt, too
    assert gate.asked == [ROBOTS_TXT, URL] * 2


HTML: Final = "<!doctype html>\n<title>Not found: x</title>\n"


@pytest.mark.clause(f"{DRAFT} 3.1")
async def test_missing_data_txt_and_a_web_page_in_its_place_mean_unknown() -> None:
    answers: list[Answer] = [
        *(403, 404, 410),
        found(HTML, URL, content_type="text/html; charset=utf-8"),
        found("Sorry: there is no such page\n", URL, content_type="TEXT/HTML"),
        found('<?xml version="1.0"?><html/>', URL, content_type="application/xhtml+xml"),
        found(HTML, URL, content_type="text/plain"),
        *("\ufeff\r\n <HTML><body>Error: 404", "<center><h1>Error: 404</h1></center>"),
        FetchResponse(200, URL, {"content-type": "text/plain"}, "<html>Error: 404".encode("utf-16")),
    ]
    for place, answer in enumerate(answers):
        async with gate_of() as gate:
            gate.fetcher.answers[URL] = answer
            status = answer if isinstance(answer, int) else 200
            for _ in range(2):  # asked, and known
                told = await gate.datatxt(SITE)
                shown = (place, told.outcome, told.status, told.records, told.text)
                assert shown == (place, FileOutcome.UNKNOWN, status, (), "")
                assert ("web page" in told.file.fault) is (status == 200)


async def test_data_txt_of_another_media_type_is_found() -> None:
    for content_type in ("text/plain", "", "application/octet-stream"):
        async with gate_of() as gate:
            gate.fetcher.answers[URL] = found("Dataset: /<d>.html\n", URL, content_type=content_type)
            answer = await gate.datatxt(SITE)
            assert (answer.outcome, answer.file.content_type) == (FileOutcome.FOUND, content_type)
            assert answer.records == (DataRecord((), (("Dataset", "/<d>.html"),)),)


async def test_exception_of_the_fetcher_is_reported_and_ends_its_turn(gate: ScriptedGate) -> None:
    failures = failures_of(gate)
    gate.fetcher.answers[URL] = OSError("broken")
    assert "broken" in (await gate.datatxt(SITE)).file.fault
    assert [failure.component for failure in failures] == ["fetcher"]
    assert gate.statistics().turns == 0


async def denied(gate: ScriptedGate) -> tuple[Reason | None, str]:
    """Return why data.txt may not be fetched, and for which agent; it must not be requested."""
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.status, answer.records) == (FileOutcome.DISALLOWED, None, ())
    assert answer.file.verdict is not None
    assert answer.file.fault == str(answer.file.verdict)
    assert gate.fetcher.count(URL) == 0
    return answer.file.verdict.reason, answer.file.verdict.agent


@pytest.mark.clause("RFC 9309 2.2.2")
async def test_data_txt_that_robots_txt_or_a_policy_denies_is_not_requested(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = CLOSED
    assert await denied(gate) == (Reason.DISALLOW_RULE, "examplebot")
    assert (await gate.datatxt(SITE)).file.url == URL
    gate.set_policy("example.com", HostPolicy(deny=True))
    await gate.forget(SITE)
    assert await denied(gate) == (Reason.POLICY_DENY, "examplebot")
    assert gate.asked == [ROBOTS_TXT]
    async with gate_of(pacing=PacingOptions(on_long_crawl_delay="skip")) as slow:
        slow.fetcher.answers[SITE] = "User-agent: *\nCrawl-delay: 1000\n"
        assert await denied(slow) == (Reason.TOO_SLOW, "examplebot")
        assert (await slow.datatxt(SITE)).file.url == URL
    async with gate_of(mode="report") as reporting:
        reporting.fetcher.answers[SITE] = CLOSED
        assert (await reporting.datatxt(SITE)).outcome is FileOutcome.FOUND


async def test_each_agent_is_bound_by_its_own_groups_and_by_those_of_its_gatekeeper() -> None:
    image = "User-agent: ExampleBot-Image\n"
    for robots, outcome, agent in (
        (f"{image}Disallow: /data.txt\n", FileOutcome.FOUND, "examplebot-image"),
        (f"User-agent: ExampleBot\nDisallow: /\n\n{image}Allow: /\n", FileOutcome.DISALLOWED, "examplebot"),
    ):
        async with gate_of() as gate:
            gate.fetcher.answers[SITE] = robots
            assert (await gate.datatxt(SITE)).outcome is outcome
            answer = await view(gate, "ExampleBot-Image").datatxt(SITE)
            assert answer.outcome is FileOutcome.DISALLOWED
            assert answer.file.verdict is not None
            assert answer.file.verdict.agent == agent


async def test_unreachable_robots_txt_has_data_txt_retried(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = [refusal(503, "900"), ""]
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.file.not_before) == (FileOutcome.RETRY, gate.clock.wall() + 900)
    assert answer.file.verdict is not None
    assert gate.fetcher.count(URL) == 0
    await gate.clock.sleep(901)
    assert (await gate.datatxt(SITE)).outcome is FileOutcome.FOUND


async def test_agents_share_one_request(gate: ScriptedGate) -> None:
    views = [gate, view(gate, "ExampleBot-Image"), view(gate, "ExampleBot-News")]
    answers = await asyncio.gather(*(view.datatxt(SITE) for view in views for _ in range(10)))
    assert {answer.outcome for answer in answers} == {FileOutcome.FOUND}
    assert gate.fetcher.count(URL) == 1


async def test_data_txt_waits_for_its_turn_and_the_next_page_waits_for_it(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = SLOW
    await gate.datatxt(SITE)
    assert gate.clock.monotonic() == 20  # after robots.txt
    async with gate.turn(PAGE):
        assert gate.clock.monotonic() == 40
        assert (await asyncio.ensure_future(gate.datatxt(SITE))).outcome is FileOutcome.FOUND  # it is kept
    assert gate.clock.monotonic() == 40


async def test_permission_is_checked_again_after_the_wait(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = SLOW
    waiting = asyncio.ensure_future(gate.datatxt(SITE))
    await gate.clock.sleep(10)
    gate.set_policy("example.com", HostPolicy(deny=True))
    assert (await waiting).outcome is FileOutcome.DISALLOWED
    assert gate.fetcher.count(URL) == 0


async def test_status_that_closes_a_host_closes_it_for_its_pages() -> None:
    for status in (429, 503):
        async with gate_of() as gate:
            gate.fetcher.answers[URL] = refusal(status, "300", URL)
            answer = await gate.datatxt(SITE)
            asked_mono = gate.clock.monotonic()
            assert (answer.outcome, answer.file.not_before) == (FileOutcome.RETRY, gate.clock.wall() + 300)
            async with gate.turn(PAGE):
                assert gate.clock.monotonic() == asked_mono + 300


async def test_cancelled_wait_for_a_turn_affects_no_other(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = SLOW
    first, second = (asyncio.ensure_future(gate.datatxt(SITE)) for _ in range(2))
    while gate.statistics().waiting == 0:
        await asyncio.sleep(0)
    first.cancel()
    assert (await second).outcome is FileOutcome.FOUND
    assert first.cancelled()
    assert gate.fetcher.count(URL) == 1


async def test_redirect_is_permitted_and_paced_at_each_hop_and_is_named_if_it_leaves_the_host(
    gate: ScriptedGate,
) -> None:
    www = "https://www.example.com"
    hop = f"{www}/data.txt?v=2"
    gate.fetcher.answers |= {URL: moved(URL, hop), hop: moved(hop, f"{www}/d"), www: SLOW, f"{www}/d": "Dataset: /x\n"}
    answer = await gate.datatxt(SITE)
    assert (answer.outcome, answer.text) == (FileOutcome.FOUND, "Dataset: /x\n")
    assert gate.asked == [ROBOTS_TXT, URL, f"{www}/robots.txt", hop, f"{www}/d"]
    assert gate.clock.monotonic() == 1 + 20 + 20  # the floor, and two Crawl-delays
    files = [request for request in gate.fetcher.requests if request.path != "/robots.txt"]
    assert [(request.max_redirects, request.redirected) for request in files] == [(0, False), (0, True), (0, True)]
    async with gate_of() as other:  # within a host
        other.fetcher.answers |= {URL: moved(URL, "http://example.com/d"), "http://example.com/d": DATA}
        assert (await other.datatxt(SITE)).outcome is FileOutcome.FOUND
        assert [request.redirected for request in other.fetcher.requests] == [False] * 4


async def test_redirect_that_leads_nowhere_is_not_followed() -> None:
    places = {
        f"{SITE}/private/d": FileOutcome.RETRY,
        f"{SITE}/data.txt": FileOutcome.UNKNOWN,  # a loop
        "": FileOutcome.RETRY,  # a fetcher that does not tell
        "ftp://example.com/data.txt": FileOutcome.RETRY,
    }
    for location, outcome in places.items():
        async with gate_of() as gate:
            gate.fetcher.answers[URL] = moved(URL, location)
            for answer in [await gate.datatxt(SITE) for _ in range(2)]:
                assert (location, answer.outcome, answer.file.verdict) == (location, outcome, None)
                assert "private" not in location or "/private" in answer.file.fault
            assert gate.asked == [ROBOTS_TXT, URL]


async def test_fifth_redirect_is_followed_and_the_sixth_is_not() -> None:
    for redirects, outcome in ((5, FileOutcome.FOUND), (6, FileOutcome.UNKNOWN)):
        async with gate_of() as gate:
            urls = [URL, *(f"{SITE}/{number}" for number in range(1, redirects + 1))]
            gate.fetcher.answers |= {url: moved(url, then) for url, then in pairwise(urls)} | {urls[-1]: DATA}
            assert (await gate.datatxt(SITE)).outcome is outcome
            assert len(gate.asked) == 1 + 6


async def test_unknown_file_of_a_host_whose_turn_the_task_holds_is_an_error_at_once(gate: ScriptedGate) -> None:
    async with gate.turn(PAGE):
        with pytest.raises(TurnHeld) as caught:
            await gate.datatxt(SITE)
    assert (caught.value.url, caught.value.held_by) == (URL, PAGE)
    known = await gate.datatxt(SITE)
    async with gate.turn(PAGE):
        assert (await gate.datatxt(SITE)).text == known.text


async def test_other_files_are_fetched_in_the_same_way(gate: ScriptedGate) -> None:
    path = "/.well-known/tdmrep.json"
    gate.fetcher.answers[SITE + path] = "[]"
    file = await gate.site_file(gate.state.tdm_files, Origin.of(SITE), path)
    assert (file.outcome, file.body) == (FileOutcome.FOUND, b"[]")
    gate.fetcher.answers[SITE] = "User-agent: *\nDisallow: /.well-known/\n"
    await gate.forget(SITE)
    file = await gate.site_file(gate.state.tdm_files, Origin.of(SITE), path)
    assert (file.outcome, file.body) == (FileOutcome.DISALLOWED, b"")


async def test_requests_in_flight_are_bounded_by_the_options() -> None:
    async with gate_of(cache=CacheOptions(max_concurrent_fetches=2)) as gate:
        sites = [f"https://host{number}.example" for number in range(5)]
        await gate.check_batch(f"{site}/" for site in sites)
        gate.fetcher.gate.clear()
        waiting = [asyncio.ensure_future(gate.datatxt(site)) for site in sites]
        await gate.clock.sleep(1.02)  # the pace, and less than makes a request slow
        assert len(gate.asked) == 5 + 2
        gate.fetcher.gate.set()
        await asyncio.gather(*waiting)
        assert len(gate.asked) == 5 + 5


async def test_closing_ends_the_wait_for_the_server_or_for_a_turn_with_a_closed_error() -> None:
    for at_server in (True, False):
        gate = ScriptedGate()
        await gate.check(PAGE)
        gate.clock.advance(10 if at_server else 0)
        gate.fetcher.gate.clear()
        waiting = [asyncio.ensure_future(gate.datatxt(SITE)) for _ in range(2)]
        await settle()
        assert gate.fetcher.count(URL) == at_server
        await gate.aclose()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ClosedError] * 2
        assert gate.statistics().turns == 0


# Sitemaps


LISTING: Final = (
    "Sitemap: https://cdn.example/a.xml\nUser-agent: *\nDisallow: /\nsitemap: /b.xml\nSITEMAP: https://h/C.xml\n"
)


async def test_sitemaps_are_listed_for_every_agent(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = [LISTING, "Sitemap: https://h/new.xml\n"]
    another = view(gate, "AnotherBot")
    listed = await gate.sitemaps(PAGE)
    assert listed.urls == ("https://cdn.example/a.xml", "https://h/C.xml")
    assert [(one.line, one.value) for one in listed.rejected] == [(4, "/b.xml")]
    assert (listed.known, listed.verdict) == (True, None)
    assert listed.source is not None
    assert listed.source.status == 200
    other = await another.sitemaps(Origin.of(SITE))
    assert (other.urls, other.rejected) == (listed.urls, listed.rejected)
    assert gate.asked == [ROBOTS_TXT]
    gate.fetcher.answers["http://example.com"] = LISTING  # the same file, at another origin
    assert (await gate.sitemaps("http://example.com")).urls == listed.urls
    await gate.clock.sleep(86_401)
    assert (await gate.sitemaps(SITE)).urls == ("https://h/new.xml",)


async def test_sitemaps_of_an_unreachable_robots_txt_are_unknown_and_those_of_a_missing_one_are_none() -> None:
    fault = FetchFault(FaultKind.TLS, "expired", ROBOTS_TXT)
    strict = CacheOptions(on_forbidden="disallow")
    rows: list[tuple[Answer, CacheOptions | None, bool, AccessResult]] = [
        ("User-agent: *\n", None, True, AccessResult.SUCCESSFUL),
        (404, None, True, AccessResult.UNAVAILABLE),
        (403, None, True, AccessResult.UNAVAILABLE),
        (403, strict, False, AccessResult.FORBIDDEN),
        (500, None, False, AccessResult.UNREACHABLE),
        (429, None, False, AccessResult.TOO_MANY_REQUESTS),
        (fault, None, False, AccessResult.UNREACHABLE),
    ]
    told = []
    for answer, cache, *_ in rows:
        async with ScriptedGate({SITE: answer}, cache=cache) as gate:
            listed = await gate.sitemaps(SITE)
            assert (listed.urls, listed.rejected) == ((), ())
            told.append((answer, cache, listed.known, listed.source and listed.source.result))
    assert told == rows


async def test_sitemaps_of_a_denied_host_are_not_fetched(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = LISTING
    gate.set_policy("example.com", HostPolicy(deny=True))
    listed = await gate.sitemaps(SITE)
    assert (listed.urls, listed.known, listed.source) == ((), False, None)
    assert listed.verdict is not None
    assert listed.verdict.reason is Reason.POLICY_DENY
    assert gate.asked == []
    gate.set_policy("example.com", HostPolicy(exempt=True, reason="our own"))
    assert (await gate.sitemaps(SITE)).urls
