"""Other files of a site: data.txt, the sitemaps that robots.txt lists, and tdmrep.json with what it denies."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse import AgentView, CacheOptions, Gatekeeper, HostPolicy, NotYet, Origin, PacingOptions, Reason, Verdict
from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, TurnHeld
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse
from politesse.queue import PoliteQueue, QueueClosed
from politesse.robots import Quirk
from politesse.sites import DataRecord, DataTxt, FileOutcome
from politesse.testing import Answer
from politesse.usage import Preference, Purpose, Usage
from politesse.usage.model import NOTHING_STATED
from politesse.verdict import WITHOUT_RULE, AccessResult
from tests.core.gate.gates import CLOSED, PAGE, PRIVATE, ROBOTS_TXT, SITE, Answers, ScriptedGate, found, moved, refusal
from tests.support.scripted import UA
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


async def test_redirect_is_permitted_and_paced_at_each_hop_and_named_if_it_leaves_the_host(gate: ScriptedGate) -> None:
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


LISTING: Final = "Sitemap: https://cdn.test/a.xml\nUser-agent: *\nDisallow: /\nsitemap: /b.xml\nSITEMAP: http://h/C\n"


async def test_sitemaps_are_listed_for_every_agent(gate: ScriptedGate) -> None:
    gate.fetcher.answers[SITE] = [LISTING, "Sitemap: https://h/new.xml\n"]
    another = view(gate, "AnotherBot")
    listed = await gate.sitemaps(PAGE)
    assert listed.urls == ("https://cdn.test/a.xml", "http://h/C")
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


# A gate that enforces usage preferences denies what a site does not want its content used for, and says why


TDMREP: Final = f"{SITE}/.well-known/tdmrep.json"
OTHER: Final = "http://example.com:8080"
RESERVED: Final = '[{"location": "/page", "tdm-reservation": 1, "tdm-policy": "https://example.com/p"}]'
SIGNALS: Final = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nDisallow: /private\n"
EXTENDED: Final = """User-agent: ExampleBot
Allow: /
User-agent: ExampleBot-Extended
Disallow: /art
Allow: /art/free
"""
TOKENS: Final = {"ai-train": "ExampleBot-Extended"}


def usage_gate(answers: Answers, *purposes: str, **options: Any) -> ScriptedGate:
    return ScriptedGate(answers, jumps=True, enforce_usage=set(purposes), **options)


def tdm_gate(*answers: Answer, robots: Answer = "", **options: Any) -> ScriptedGate:
    """Return a gate that enforces ``tdm`` at a site with these successive answers for tdmrep.json."""
    return usage_gate({SITE: robots, TDMREP: answers}, "tdm", **options)


def preference(verdict: Verdict | None, purpose: Purpose = Purpose.AI_TRAIN) -> Preference:
    assert verdict is not None
    assert isinstance(verdict.usage, Usage)
    return verdict.usage.preference(purpose)


async def queued(gate: ScriptedGate, *urls: str) -> PoliteQueue[str]:
    queue: PoliteQueue[str] = PoliteQueue(gate)
    for url in urls:
        await queue.put(url)
    return queue


async def test_purpose_that_robots_txt_disallows_is_denied_with_the_line_that_says_so() -> None:
    async with usage_gate({SITE: SIGNALS}, "ai-train") as gate:
        other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")  # agents enforce the purposes of the gate
        for verdict in (await gate.check(PAGE), gate.known(PAGE), await other.check(PAGE)):
            assert (verdict.allowed, verdict.reason) == (False, Reason.USAGE_DISALLOWED)
            assert "ai-train, by robots.txt line 2: Content-Signal: search=yes, ai-train=no" in verdict.explain()
            assert preference(verdict) is Preference.DISALLOWED
        assert gate.statistics().denied == {Reason.USAGE_DISALLOWED: 3}
        assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE
        assert (await gate.check(f"{SITE}/robots.txt")).reason is Reason.ROBOTS_TXT


async def test_preference_is_only_reported_by_default_for_other_purposes_and_in_report_mode() -> None:
    rows: list[tuple[dict[str, Any], Reason]] = [
        ({}, Reason.NO_RULE),
        ({"enforce_usage": {"search", "ai-input"}}, Reason.NO_RULE),
        ({"enforce_usage": {"ai-train"}, "mode": "report"}, Reason.USAGE_DISALLOWED),
    ]
    for options, reason in rows:
        async with ScriptedGate({SITE: SIGNALS, TDMREP: RESERVED}, **options) as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason, preference(verdict)) == (True, reason, Preference.DISALLOWED)
            assert preference(verdict, Purpose.TDM) is Preference.UNSTATED


async def test_reservation_in_tdmrep_json_denies_the_paths_that_it_covers() -> None:
    web_page = found(RESERVED, TDMREP, content_type="text/html")  # its media type alone says nothing
    for answer in (RESERVED, web_page):
        async with tdm_gate(answer) as gate:
            verdict = await gate.check(PAGE)
            assert verdict.reason is Reason.USAGE_DISALLOWED
            assert "tdm, by tdmrep.json entry 1" in str(verdict)
            assert (await gate.check(f"{SITE}/other")).reason is Reason.NO_RULE


async def test_tdmrep_json_is_fetched_once_in_its_turn_and_only_for_tdm() -> None:
    for purposes, files in (((), 0), (("ai-train",), 0), (("tdm",), 1)):
        async with usage_gate({SITE: "User-agent: *\nCrawl-delay: 7\n", TDMREP: RESERVED}, *purposes) as gate:
            await asyncio.gather(*(gate.check(f"{SITE}/{n}") for n in range(5)))
            assert gate.asked == [f"{SITE}/robots.txt", TDMREP][: 1 + files]
            assert gate.clock.monotonic() == 7.0 * files


async def test_site_without_reservations_reserves_nothing() -> None:
    answers: list[Answer] = [
        *(404, 410, 403, "[]", "[{}]"),
        # A web page in its place:
        '<!doctype html><a href="/">home</a>',
        found("Sorry: there is no such page", TDMREP, content_type="text/html"),
        "\ufeff <html>",
        FetchResponse(200, TDMREP, {"content-type": "application/json"}, "<html>".encode("utf-16")),
    ]
    reasons = []
    for answer in answers:
        async with tdm_gate(answer) as gate:
            reasons.append((await gate.check(PAGE)).reason)
    assert reasons == [Reason.NO_RULE] * len(answers)
    async with tdm_gate(RESERVED, robots="User-agent: *\nDisallow: /.well-known/\n") as gate:
        assert await gate.check(PAGE)
        assert gate.known(PAGE)
        assert gate.fetcher.count(TDMREP) == 0


async def test_unfetchable_tdmrep_json_closes_the_gate_until_it_is_fetched_again() -> None:
    fault = FetchFault(FaultKind.TIMEOUT, "too late", TDMREP)
    answers: list[Answer] = [500, 503, 429, fault, RuntimeError("broken")]
    for answer in answers:
        async with tdm_gate(answer, "[]") as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.reason) == (False, Reason.USAGE_UNKNOWN)
            assert verdict.not_before is not None
            assert verdict.not_before > gate.clock.wall()
            assert "tdmrep.json could not be read" in verdict.explain()
            gate.clock.advance(verdict.not_before - gate.clock.wall() + 1)
            assert await gate.check(PAGE)


async def test_tdmrep_json_that_cannot_be_read_closes_the_gate() -> None:
    bodies: list[Answer] = ["12", "{}", "[", '"x"', "[" * 100_000, b"\x00\xff"]
    reasons = []
    for answer in (*bodies, FetchResponse(200, TDMREP, body=b"[]", truncated=True)):
        async with tdm_gate(answer) as gate:
            reasons += [(await gate.check(PAGE)).reason, gate.known(PAGE).reason]
    assert reasons == [Reason.USAGE_UNKNOWN] * 14


async def test_tdmrep_json_that_cannot_be_read_keeps_the_previous_reservations() -> None:
    for second in ("[", "<html>please log in</html>", "12"):
        async with tdm_gate(RESERVED, second, "[]") as gate:
            assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
            gate.clock.advance(86_400)
            assert (await gate.check(PAGE)).reason is Reason.USAGE_DISALLOWED
            gate.clock.advance(86_400)
            assert await gate.check(PAGE), "what can be read takes it back"


async def test_tdmrep_json_is_fetched_again_after_a_day() -> None:
    async with tdm_gate("[]", RESERVED) as gate:
        assert await gate.check(PAGE)
        gate.clock.advance(70_000)
        assert await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 1
        gate.clock.advance(16_500)
        assert not await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 2


async def test_try_turn_and_a_queue_start_the_fetch_of_both_files_and_then_grant_turns() -> None:
    async with tdm_gate(503, "[]") as gate, asyncio.timeout(20), (await queued(gate, PAGE)).turn() as waited:
        assert waited.url == PAGE
    async with tdm_gate(RESERVED) as gate, asyncio.timeout(10):
        while isinstance(turn := gate.try_turn(f"{SITE}/free"), NotYet):
            await gate.clock.sleep(0.1)
        turn.give_back()
        with pytest.raises(Disallowed):
            gate.try_turn(PAGE)
    async with tdm_gate("[" + " " * 70_000 + "]") as gate, asyncio.timeout(10):  # which is read in a thread
        while isinstance(turn := gate.try_turn(PAGE), NotYet):
            await asyncio.sleep(0.001)
        turn.give_back()
        assert gate.fetcher.count(TDMREP) == 1


async def test_queue_hands_out_usable_urls_and_refuses_the_rest() -> None:
    refused: list[str] = []
    free = ["https://free.example/a", "https://free.example/b"]
    async with usage_gate({SITE: SIGNALS, TDMREP: RESERVED}, "ai-train", "tdm") as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda url, _: refused.append(url))
        for url in (PAGE, *free):
            await queue.put(url)
        queue.close()
        got = []
        for _ in range(2):
            async with queue.turn() as turn:
                got.append(turn.url)
        await queue.join()
    assert (sorted(got), refused) == (free, [PAGE])


async def test_sites_whose_tdmrep_json_redirect_into_each_other_or_themselves_do_not_wait_for_each_other() -> None:
    other = "https://other.example"
    other_tdmrep = f"{other}/.well-known/tdmrep.json"
    answers: dict[str, Answer] = {TDMREP: moved(TDMREP, f"{other}/a"), other_tdmrep: moved(other_tdmrep, f"{SITE}/b")}
    async with usage_gate(answers | {f"{other}/a": RESERVED, f"{SITE}/b": "[]"}, "tdm") as gate, asyncio.timeout(10):
        verdicts = await gate.check_batch([PAGE, f"{other}/page"])
    own: Answers = {SITE: "", TDMREP: moved(TDMREP, f"{SITE}/"), f"{SITE}/": "<!doctype html>"}
    async with usage_gate(own, "tdm") as gate, asyncio.timeout(10):
        assert (await gate.check(PAGE)).reason is Reason.NO_RULE
    assert [verdict.reason for verdict in verdicts] == [Reason.USAGE_DISALLOWED, Reason.UNAVAILABLE]


async def test_redirect_of_data_txt_to_a_reserved_path_is_not_followed() -> None:
    data_txt = f"{SITE}/data.txt"
    answers: Answers = {SITE: "", TDMREP: RESERVED, data_txt: moved(data_txt, PAGE), PAGE: "Title: data\n"}
    async with usage_gate(answers, "tdm") as gate:
        answer = await gate.datatxt(SITE)
        assert "does not want its content used for tdm" in answer.file.fault
        assert gate.fetcher.count(PAGE) == 0


@pytest.mark.filterwarnings("ignore:none of the product tokens")
async def test_agent_has_turns_where_only_the_gatekeeper_may_not_fetch_tdmrep_json() -> None:
    robots = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: ExampleBot-Image\nAllow: /\n"
    async with tdm_gate(RESERVED, robots=robots) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate.agent(tokens="ExampleBot-Image"))
        await queue.put(PAGE)
        async with asyncio.timeout(10), queue.turn() as turn:
            assert turn.url == PAGE


async def test_try_turn_reports_a_site_that_is_too_slow_although_its_tdmrep_json_is_never_fetched() -> None:
    pacing = PacingOptions(max_crawl_delay_s=100.0, on_long_crawl_delay="skip")
    refused: list[Reason] = []
    async with usage_gate({SITE: "User-agent: *\nCrawl-delay: 9000\n"}, "tdm", pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=lambda _, verdict: refused.append(verdict.reason))
        await queue.put(PAGE)
        queue.close()
        with pytest.raises(QueueClosed):
            async with asyncio.timeout(10), queue.turn():
                pass
    assert refused == [Reason.TOO_SLOW]


async def test_tdmrep_json_larger_than_the_cache_closes_its_own_site_only() -> None:
    async with tdm_gate(b'["' + b"x" * (40 * 1024 * 1024) + b'"]') as gate:
        assert (await gate.check(PAGE)).reason is Reason.USAGE_UNKNOWN
        assert gate.peek(PAGE) is not None, "it is not read again for each question"
        assert await gate.check("https://free.example/")


async def test_tdmrep_json_that_expires_within_the_crawl_delay_does_not_block_the_site() -> None:
    expired = FetchResponse(404, TDMREP, {"cache-control": "no-cache"})
    async with tdm_gate(expired, robots="User-agent: *\nCrawl-delay: 120\n") as gate, asyncio.timeout(10):
        async with (await queued(gate, PAGE)).turn():
            assert gate.clock.monotonic() == 240, "one interval for tdmrep.json, one for the page"
        assert gate.fetcher.count(TDMREP) == 1
        gate.clock.advance(300)
        await gate.check(PAGE)
        assert gate.fetcher.count(TDMREP) == 2


async def test_tdmrep_json_that_changes_during_the_wait_for_a_turn_denies() -> None:
    short = found("[]", TDMREP, cache_control="max-age=400")
    async with tdm_gate(short, RESERVED, robots="User-agent: *\nCrawl-delay: 300\n") as gate, asyncio.timeout(10):
        async with gate.turn(PAGE):
            pass
        await gate.clock.sleep(110)
        renewal = asyncio.create_task(gate.usage(f"{SITE}/other"))
        await gate.clock.sleep(1)
        with pytest.raises(Disallowed, match="tdm"):
            await gate.take_turn(PAGE)
        assert gate.fetcher.count(TDMREP) == 2
        await renewal


async def test_usage_fetches_and_reports_both_files() -> None:
    stated = {
        Purpose.AI_TRAIN: Preference.DISALLOWED,
        Purpose.SEARCH: Preference.ALLOWED,
        Purpose.TDM: Preference.DISALLOWED,
        Purpose.AI_INPUT: Preference.UNSTATED,
    }
    async with usage_gate({SITE: SIGNALS, TDMREP: RESERVED}) as gate:
        usage = await gate.usage(PAGE)
        assert usage is not None
        assert {purpose: usage.preference(purpose) for purpose in stated} == stated
        assert usage.deciding(Purpose.TDM)[0].policy == "https://example.com/p"
        assert await gate.usage(f"{SITE}/private") is None


def test_unknown_purposes_and_invalid_tokens_are_refused_by_name() -> None:
    purposes: list[Any] = [{"ai_train"}, {"training"}, "ai-train", {"ai-train", ""}, 3, True]
    for wrong in purposes:
        with pytest.raises(ConfigurationError, match="enforce_usage"):
            Gatekeeper(UA, enforce_usage=wrong)
    for tokens in ({"training": "X"}, {"ai-train": "a token"}, {"ai-train": ""}):
        with pytest.raises(ConfigurationError, match=r"policy_tokens|token="):
            Gatekeeper(UA, policy_tokens=tokens)


async def test_groups_of_a_policy_token_speak_about_its_purpose() -> None:
    stated = {"/art/x": Preference.DISALLOWED, "/art/free": Preference.ALLOWED, "/news": Preference.UNSTATED}
    async with usage_gate({SITE: EXTENDED}, policy_tokens=TOKENS) as gate:
        checked = {path: await gate.check(SITE + path) for path in stated}
        for verdicts in (checked, {path: gate.known(SITE + path) for path in stated}):
            assert all(verdicts.values())
            assert {path: preference(verdict) for path, verdict in verdicts.items()} == stated
            assert {preference(verdict, Purpose.SEARCH) for verdict in verdicts.values()} == {Preference.UNSTATED}


async def test_policy_token_that_disallows_is_enforced_with_its_line() -> None:
    async with usage_gate({SITE: EXTENDED}, "ai-train", policy_tokens=TOKENS) as gate:
        verdict = await gate.check(f"{SITE}/art/x")
        assert verdict.reason is Reason.USAGE_DISALLOWED
        assert "ai-train, by robots.txt line 4: Disallow: /art" in str(verdict)
        assert await gate.check(f"{SITE}/art/free")
    star = "User-agent: ExampleBot\nAllow: /\nUser-agent: *\nDisallow: /\n"  # its group for the token
    for answer, reason in ((star, Reason.USAGE_DISALLOWED), (404, Reason.UNAVAILABLE)):
        async with usage_gate({SITE: answer}, "tdm", "ai-train", policy_tokens=TOKENS) as gate:
            assert (await gate.check(PAGE)).reason is reason


async def test_robots_txt_is_fetched_once_for_all_tokens_and_a_queue_hands_out() -> None:
    async with usage_gate({SITE: EXTENDED}, policy_tokens=TOKENS | {"search": "ExampleBot-Search"}) as gate:
        queue = await queued(gate, *(f"{SITE}/{n}" for n in range(3)))
        async with asyncio.timeout(20):
            for _ in range(3):
                async with queue.turn():
                    pass
        assert gate.fetcher.count(SITE) == 1


async def test_within_a_turn_a_deadlock_is_reported_and_the_file_fetched_in_the_background() -> None:
    answers = {SITE: "", TDMREP: "[]", OTHER: "", f"{OTHER}/.well-known/tdmrep.json": "[]"}
    async with usage_gate(answers, "tdm") as gate, asyncio.timeout(20):
        for turn in (gate.turn(PAGE), (await queued(gate, PAGE)).turn()):
            async with turn:
                verdict = await gate.check(f"{OTHER}/page")  # the same host, which has no second turn meanwhile
                assert verdict.reason is Reason.USAGE_UNKNOWN
                assert "within a turn of the same host" in str(verdict)
                assert await gate.check(f"{SITE}/known")
            assert await gate.check(f"{OTHER}/page")
            await gate.forget(OTHER)


async def test_task_started_within_a_turn_may_wait_after_the_turn() -> None:
    async with tdm_gate("[]") as gate, asyncio.timeout(20):
        ended = asyncio.Event()

        async def later() -> Reason:
            await ended.wait()
            return (await gate.check(f"{OTHER}/")).reason

        async with gate.turn(PAGE):
            task = asyncio.create_task(later())
        ended.set()
        assert await task is Reason.UNAVAILABLE


SILENT: Final = "https://silent.example"
STATED: Final = "User-agent: *\nDisallow: /private\nContent-Usage: train-ai=n\nContent-Usage: /open train-ai=y\n"
SITES: Final[Answers] = {SITE: STATED, SILENT: "User-agent: *\nDisallow: /private\n"}


async def test_preference_stands_beside_the_verdict_for_check_and_peek_in_any_spelling() -> None:
    async with ScriptedGate(SITES) as gate:
        verdict = await gate.check(PAGE)
        assert (verdict.allowed, verdict.reason, preference(verdict)) == (True, Reason.NO_RULE, Preference.DISALLOWED)
        assert preference(await gate.check(f"{SITE}/open/page")) is Preference.ALLOWED
        for url in (f"{SITE}/open", "HTTPS://EXAMPLE.com/open", f"{SITE}/%6Fpen", f"{SITE}/x/../open"):
            assert preference(gate.peek(url)) is Preference.ALLOWED, url
        verdict = gate.known(PAGE)
        await gate.forget(SITE)
        assert preference(verdict) is Preference.DISALLOWED  # it outlives the entry that it came from


async def test_preference_is_unstated_where_the_file_has_none_and_missing_where_a_page_is_denied() -> None:
    async with ScriptedGate(SITES) as gate, ScriptedGate(SITES, mode="report") as reporting:
        gate.set_policy("exempt.example", HostPolicy(exempt=True, reason="our own"))
        for url in (f"{SILENT}/page", "https://exempt.example/page", "https://none.example/page"):
            assert (await gate.check(url)).usage is NOTHING_STATED
        assert [verdict.usage for verdict in await gate.check_batch(["mailto:us", "https://"])] == [None, None]
        for asked, allowed in ((gate, False), (reporting, True)):
            verdict = await asked.check(f"{SITE}/private")
            assert (verdict.allowed, verdict.usage) == (allowed, None)


def test_usage_is_built_on_first_access() -> None:
    asked: list[str] = []

    class Said:
        def usage(self, url: str) -> Usage:
            asked.append(url)
            return NOTHING_STATED

    verdict = Verdict("/a", "x", allowed=True, match=WITHOUT_RULE[Reason.NO_RULE], site_usage=Said())
    assert bool(verdict)
    assert str(verdict)
    assert verdict.explain()
    assert asked == []
    assert verdict.usage is NOTHING_STATED
    assert asked == ["/a"]
