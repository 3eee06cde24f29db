"""``politesse.watch`` over HTTP: what a watcher reads, what an order changes, and who is refused."""

import asyncio
import gc
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from politesse import ConfigurationError, Gatekeeper, HostPolicy, PoliteQueue, Turn
from politesse.errors import ClosedError, ConfigurationTypeError
from politesse.ledger import LedgerReader
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Reason
from politesse.watch import WatchServer, app, serve
from tests.support.scripted import UA
from tests.support.sites import EAGER, until
from tests.wire.watch.watching import TOKEN, WITH_TOKEN, Browser, browsing, mounted, streaming

NOW: Final = 1_800_000_000.0
RULES: Final = "User-agent: *\nCrawl-delay: 10\nDisallow: /private\nAllow: /private/open\n"
STEERING: Final = "\x1b]0;owned\x07<img src=x onerror=alert(1)>"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({"https://a.example": RULES, "https://b.example": ""})


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=EAGER) as gate:
        yield gate


# The hosts


async def test_hosts_state_phase_pace_closure_turns_queue_and_robots_txt(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, clock: ManualClock
) -> None:
    await gate.check("https://a.example/")
    gate.set_policy("a.example", HostPolicy(min_delay_s=12.0, max_concurrent=1))
    await queue.put("https://a.example/1")
    await queue.put("https://a.example/2")
    turn = await gate.take_turn("https://user:secret@b.example/page#secret")
    turn.observe(503, {"Retry-After": "120"})
    clock.advance(5.0)
    page = await browser.ask("hosts")
    assert {name: page[name] for name in ("time", "total", "matching", "first")} == {
        "time": NOW + 5.0,
        "total": 2,
        "matching": 2,
        "first": 0,
    }
    assert page["phases"] == {"closed": 1, "busy": 0, "waiting": 1, "spaced": 0, "idle": 0}
    [a, b] = page["hosts"]
    [robots] = a.pop("robots")
    assert a == {
        "host": "a.example",
        "phase": "waiting",
        "interval_s": 12.0,
        "bound_by": "floor",
        "not_before": NOW + 12.0,
        "closed_until": None,
        "closed_by": None,
        "waiting": 0,
        "in_flight": 0,
        "held_by": "",
        "held_s": 0.0,
        "queued": 2,
        "refusal": None,
        "fleet": None,
        "policy": "at least 12 s between requests; at most 1 at once",
    }
    assert robots == {
        "origin": "https://a.example",
        "result": "successful",
        "status": 200,
        "fault": "",
        "age_s": 5.0,
        "fetching": False,
        "next_fetch": NOW + 0.9 * 86_400,
        "size": len(RULES),
    }
    facts = ("phase", "closed_until", "closed_by", "in_flight", "held_by", "held_s")
    assert [b[name] for name in facts] == ["closed", NOW + 120.0, "retry-after", 1, "https://b.example/page", 5.0]
    turn.end()


async def test_each_phase_is_named_by_what_holds_most(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, clock: ManualClock
) -> None:
    async def phase() -> str:
        clock.advance(12.0)  # a second is enough, unless the process was suspended while it made the last index
        page = await browser.ask("hosts")
        [row] = page["hosts"]
        assert page["phases"] == dict.fromkeys(page["phases"], 0) | {row["phase"]: 1}
        return str(row["phase"])

    await gate.check("https://b.example/")
    clock.advance(60.0)
    found = [await phase()]
    turn = await gate.take_turn("https://b.example/")
    found.append(await phase())
    turn.end()
    gate.set_policy("b.example", HostPolicy(min_delay_s=30.0))
    found.append(await phase())
    await queue.put("https://b.example/")
    found.append(await phase())
    gate.state.pacer.close_host("b.example", clock.wall() + 60.0, turn.verdict.reason)  # type: ignore[arg-type]
    found.append(await phase())
    assert found == ["idle", "busy", "spaced", "waiting", "closed"]


async def test_hosts_are_searched_filtered_sorted_and_paged(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser
) -> None:
    for host, urls in {"a.example": 1, "b.example": 3, "c.example": 2, "other.test": 0}.items():
        await gate.check(f"https://{host}/")
        for number in range(urls):
            await queue.put(f"https://{host}/{number}")
    all_hosts = ["a.example", "b.example", "c.example", "other.test"]
    assert await browser.hosts() == all_hosts
    assert await browser.hosts("?sort=-host") == all_hosts[::-1]
    assert await browser.hosts("?sort=-queued") == ["b.example", "c.example", "a.example", "other.test"]
    assert await browser.hosts("?sort=queued") == ["other.test", "a.example", "c.example", "b.example"]
    assert await browser.hosts("?sort=-interval") == ["a.example", "b.example", "c.example", "other.test"]
    assert await browser.hosts("?search=EXAMPLE&first=1&count=1") == ["b.example"]
    assert await browser.hosts("?phase=idle") == ["other.test"]
    assert await browser.hosts("?count=0") == await browser.hosts("?first=9") == []
    page = await browser.ask("hosts?search=b.ex&sort=-not_before")
    assert (page["matching"], page["total"]) == (1, 4)


async def test_open_hosts_come_last_in_both_orders_of_their_closing(
    gate: Gatekeeper, browser: Browser, clock: ManualClock
) -> None:
    for host, closed_s in {"b.example": 600, "d.example": 0}.items():
        async with gate.turn(f"https://{host}/") as turn:
            turn.observe(503 if closed_s else 200, {"Retry-After": str(closed_s)})
    held = await gate.take_turn("https://c.example/")
    held.observe(503, {"Retry-After": "300"})
    clock.advance(5.0)
    assert await browser.hosts("?sort=closed") == ["c.example", "b.example", "d.example"]
    assert await browser.hosts("?sort=-closed") == ["b.example", "c.example", "d.example"]
    assert await browser.hosts("?sort=-held") == ["c.example", "b.example", "d.example"]
    held.end()


async def test_a_host_whose_robots_txt_is_not_asked_for_yet_waits(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser
) -> None:
    for number in range(300):
        await queue.put(f"https://h{number:03}.example/")
    page = await browser.ask("hosts?count=200&sort=host")
    assert (page["total"], page["phases"]["waiting"], len(page["hosts"])) == (300, 300, 200)
    merged = await browser.ask("hosts?count=200&first=200&sort=-host")
    assert [row["host"] for row in merged["hosts"]] == [f"h{number:03}.example" for number in range(99, -1, -1)]


async def test_thousands_of_hosts_are_sorted_in_steps(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser
) -> None:
    names = [f"h{number}.example" for number in range(5_000)]
    for name in names:
        await queue.put(f"https://{name}/")
    assert await browser.hosts("?sort=-host&first=2500&count=200") == sorted(names, reverse=True)[2500:2700]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The processor time of each step of the event loop, without that of full collections of garbage."""
    steps: list[float] = []
    run_handle = asyncio.Handle._run  # asyncio has no other place to time each step

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run_handle(handle)
        steps.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.disable()
    yield steps
    gc.enable()


async def test_a_host_with_thousands_of_origins_is_shown_whole_in_small_steps(
    gate: Gatekeeper, fetcher: ScriptedFetcher, browser: Browser, steps: list[float]
) -> None:
    origins = [f"https://a.example:{number}" for number in range(1_000, 4_000)]
    fetcher.answers |= dict.fromkeys(origins, RULES)
    await gate.check_batch(f"{origin}/" for origin in origins)
    steps.clear()
    async with browser.http.get(f"{browser.url}events", headers=WITH_TOKEN) as response:
        text = b""
        while b"event: hosts" not in text or not text.endswith(b"\n\n"):
            text += await response.content.readany()
    assert max(steps) < sum(steps) / 4, sorted(steps)[-3:]
    *_, message = text.decode().splitlines()[:-1]
    [row] = json.loads(message.removeprefix("data: "))["hosts"]
    assert (row["host"], row["interval_s"], row["bound_by"]) == ("a.example", 10.0, "crawl-delay")
    assert {one["origin"] for one in row["robots"]} == set(origins)


@pytest.mark.parametrize(
    "query",
    [
        *("?count=201", "?count=-1", "?count=ten", "?count=1e2", "?first=-1", "?first=99999999999999999999", "?first="),
        *("?sort=size", "?sort=--host", "?sort=phase", "?phase=open", "?pages=2", f"?search={'a' * 201}", "?count=٣"),
    ],
)
async def test_a_parameter_that_is_not_valid_is_refused_by_name(browser: Browser, query: str) -> None:
    name = query[1:].partition("=")[0]
    for path in "hosts", "events":
        answer = await browser.ask(path + query, 400)
        assert name in answer["error"]
        assert "give" in answer["error"]


# Statistics and explanations


async def test_statistics_count_verdicts_by_reason_and_the_crawl(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, fetcher: ScriptedFetcher
) -> None:
    await gate.check("https://a.example/")
    await gate.check("https://a.example/private")
    fetcher.gate.clear()
    await queue.put("https://b.example/")
    found = await browser.ask("statistics")
    fetcher.gate.set()
    assert found.pop("version")
    assert found.pop("entries_bytes") > 0
    assert found == {
        "time": NOW,
        "agent": UA,
        "allowed": 1,
        "denied": {"disallow-rule": 1},
        "fetches": 1,
        "in_flight": 1,
        "origins": 1,
        "waiting": 0,
        "turns": 0,
        "can_steer": True,
        "crawl": {"queued": 1, "under_way": 0, "hosts": 1, "paused": False, "stopping": False},
    }


async def test_a_url_is_explained_with_the_lines_that_compete_and_is_not_counted(
    gate: Gatekeeper, browser: Browser
) -> None:
    await gate.check("https://a.example/")
    before = gate.statistics()
    found = await browser.ask("explain?url=https://user:secret@a.example/private/open/1%23secret")
    text = found.pop("text")
    assert found == {
        "url": "https://a.example/private/open/1",
        "allowed": True,
        "reason": "allow-rule",
        "rule": "Allow: /private/open",
        "line": 4,
        "lines": [
            {"line": 3, "text": "Disallow: /private", "matches": True, "wins": False},
            {"line": 4, "text": "Allow: /private/open", "matches": True, "wins": True},
        ],
    }
    assert text.startswith("allowed: https://a.example/private/open/1\n")
    assert text.endswith("\n  of 2 matches: the longest rule that matches decides, and at one length an Allow")
    assert "secret" not in str(found) + text
    assert gate.statistics() == before


async def test_an_unknown_robots_txt_is_fetched_only_on_request(browser: Browser, fetcher: ScriptedFetcher) -> None:
    found = await browser.ask("explain?url=https://a.example/private", 404)
    assert found == {"error": "robots.txt is not known yet; with fetch=1 it is fetched"}
    assert fetcher.requests == []
    found = await browser.ask("explain?url=https://a.example/private&fetch=1")
    assert (found["allowed"], found["line"], len(fetcher.requests)) == (False, 3, 1)


async def test_a_policy_is_explained_without_robots_txt(gate: Gatekeeper, browser: Browser) -> None:
    gate.set_policy("a.example", HostPolicy(deny=True, reason="paused"))
    found = await browser.ask("explain?url=https://a.example/")
    assert (found["allowed"], found["reason"], found["rule"], found["lines"]) == (False, "policy-deny", None, [])
    assert "paused" in found["text"]


async def test_of_many_rules_the_first_and_the_deciding_one_are_shown(
    browser: Browser, fetcher: ScriptedFetcher
) -> None:
    rules = "".join(f"Disallow: /{number}/\n" for number in range(3_000))
    fetcher.answers["https://many.example"] = f"User-agent: *\n{rules}"
    found = await browser.ask("explain?url=https://many.example/2999/&fetch=1")
    assert len(found["lines"]) == 1_001
    assert found["lines"][-1] == {"line": 3_001, "text": "Disallow: /2999/", "matches": True, "wins": True}
    assert found["text"].endswith("1,000 of 3,000 rules are shown")


@pytest.mark.parametrize("url", ["", "/path", "ftp://a.example/", "https://", "https://a.example/%00 "])
async def test_a_text_that_is_no_url_is_not_explained(browser: Browser, url: str) -> None:
    answer = await browser.ask(f"explain?url={url}", 400)
    assert answer["error"]


# The event stream


async def test_stream_sends_what_has_changed_every_two_seconds(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, clock: ManualClock
) -> None:
    await gate.check("https://a.example/")
    clock.advance(60.0)
    async with streaming(browser, "?count=10") as stream:
        first = await stream.messages("statistics", "hosts")
        assert first["hosts"]["hosts"][0]["robots"][0]["age_s"] == 60.0
        clock.advance(15.0)  # only the ages change
        assert await stream.comment() == ": nothing has changed"
        gate.set_policy("a.example", HostPolicy(deny=True, reason="paused"))
        clock.advance(2.0)
        assert (await stream.messages("hosts"))["hosts"]["hosts"][0]["policy"] == "denied (paused)"
        assert not gate.peek("https://a.example/private")
        assert not gate.peek("https://a.example/")
        clock.advance(2.0)
        second = await stream.messages("statistics", "refusals")
        urls = ["https://a.example/", "https://a.example/private"]
        assert [one["url"] for one in second["refusals"]] == urls
        assert second["refusals"][0] == {"time": NOW + 77.0, "url": urls[0], "reason": "policy-deny", "rule": None}


async def test_gate_tells_of_refusals_only_while_a_stream_is_open_and_makes_no_events(
    gate: Gatekeeper, browser: Browser, clock: ManualClock
) -> None:
    def subscribers() -> int:
        assert gate.state.publisher.subscribers == ()
        return len(gate.state.on_denied)

    assert subscribers() == 0
    async with streaming(browser) as one:
        await one.messages("statistics", "hosts")
        async with streaming(browser, "?sort=-host") as other:
            await other.messages("statistics", "hosts")
            assert subscribers() == 1
            for number in range(60):
                await gate.check(f"https://a.example/private/{number}")
            clock.advance(2.0)
            for stream in one, other:
                refusals = (await stream.messages("statistics", "hosts", "refusals"))["refusals"]
                assert [refusal["rule"] for refusal in refusals] == ["Disallow: /private"] * 50
                assert refusals[0]["url"].endswith("/59")
    await asyncio.sleep(0.01)
    clock.advance(2.0)
    await until(lambda: subscribers() == 0)
    assert (await browser.ask("statistics"))["denied"] == {Reason.DISALLOW_RULE: 60}


async def test_a_reader_that_leaves_before_the_first_octet_is_no_error(
    gate: Gatekeeper, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(browser.url.split(":")[-1].rstrip("/")))
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    writer.write_eof()
    await browser.ask("hosts")
    await until(lambda: not gate.state.publisher.subscribers)
    writer.close()
    assert caplog.messages == []


async def test_streams_end_with_the_gate(gate: Gatekeeper, browser: Browser) -> None:
    async with streaming(browser) as stream:
        await stream.messages("statistics", "hosts")
        async with asyncio.timeout(10):
            await gate.aclose()
            assert await stream.is_ended()
    with pytest.raises(aiohttp.ClientConnectionError):
        await browser.ask("statistics")
    with pytest.raises(ClosedError):
        await serve(gate, port=0)


async def test_a_mounted_app_says_that_the_gate_is_closed_for_good(gate: Gatekeeper, queue: PoliteQueue[None]) -> None:
    async with mounted(app(gate, queue, token=TOKEN)) as browser:
        async with streaming(browser) as stream:
            await stream.messages("statistics", "hosts")
            await gate.aclose()
            assert await stream.is_ended()
        for path in "hosts", "events", "explain?url=https://a.example/":
            assert (await browser.ask(path, 410)) == {"error": "the gatekeeper was closed"}
        assert await browser.order("pause", 410) == "the gatekeeper was closed"
        assert not queue.is_paused


async def test_an_app_in_another_event_loop_says_so_and_changes_nothing(
    gate: Gatekeeper, queue: PoliteQueue[None]
) -> None:
    await gate.check("https://a.example/")

    async def ask() -> None:
        async with mounted(app(gate, queue, TOKEN)) as browser:
            for path in "hosts", "statistics", "events", "explain?url=https://a.example/":
                assert "another event loop" in (await browser.ask(path, 503))["error"]
            for order in {"action": "pause"}, {"action": "deny", "host": "a.example"}:
                async with browser.http.post(
                    f"{browser.url}steer", json={**order, "reason": "none"}, headers=WITH_TOKEN
                ) as response:
                    assert response.status == 503
                    assert "another event loop" in (await response.json())["error"]

    await asyncio.to_thread(asyncio.run, ask())
    assert (gate.state.policies, queue.is_paused) == ({}, False)


# Orders


@pytest.fixture
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "politesse.watch")


async def test_pace_of_a_host_is_changed(gate: Gatekeeper, browser: Browser, clock: ManualClock) -> None:
    done = await browser.order("pace", host="b.example", min_delay_s=30, max_concurrent=2)
    assert done == "b.example: at least 30 s between requests; at most 2 at once"
    await gate.check("https://b.example/")
    starts = []
    for number in range(70):
        clock.advance(1.0)
        turn = gate.try_turn(f"https://b.example/{number}")
        if isinstance(turn, Turn):
            starts.append(number)
            turn.end()
    assert starts == [29, 59]
    row = await browser.row("b.example")
    assert (row["interval_s"], row["policy"]) == (30.0, done.partition(": ")[2])


async def test_deny_exempt_and_clear_change_the_verdicts_and_keep_the_pace(gate: Gatekeeper, browser: Browser) -> None:
    private = "https://a.example/private"
    assert await browser.order("pace", host="a.example", min_delay_s=30.5)
    assert await browser.order("deny", host="A.example") == "a.example: denied; at least 30.5 s between requests"
    verdict = await gate.check("https://a.example/")
    assert (verdict.reason, verdict.note) == (Reason.POLICY_DENY, "a reason")
    assert await browser.order("exempt", host="a.example") == "a.example: exempt; at least 30.5 s between requests"
    assert (await gate.check(private)).reason is Reason.POLICY_EXEMPT
    assert await browser.order("clear", host="a.example") == "a.example: no policy"
    assert (await gate.check(private)).reason is Reason.DISALLOW_RULE
    assert gate.state.policies == {}


async def test_robots_txt_of_an_origin_or_of_all_origins_of_a_host_is_forgotten(
    gate: Gatekeeper, browser: Browser, fetcher: ScriptedFetcher
) -> None:
    urls = ["https://a.example/", "http://a.example/", "https://b.example/"]
    await gate.check_batch(urls)
    assert await browser.order("forget", host="a.example") == (
        "https://a.example, http://a.example: robots.txt is forgotten"
    )
    assert [gate.peek(url) is None for url in urls] == [True, True, False]
    assert await browser.order("forget", host="https://b.example") == "https://b.example: robots.txt is forgotten"
    assert gate.peek(urls[2]) is None
    assert await browser.order("forget", host="unknown.example")


async def test_the_reason_to_forget_thousands_of_origins_is_noted_in_small_steps(
    gate: Gatekeeper,
    fetcher: ScriptedFetcher,
    browser: Browser,
    steps: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    origins = [f"https://a.example:{number}" for number in range(1_000, 4_000)]
    fetcher.answers |= dict.fromkeys(origins, RULES)
    await gate.check_batch(f"{origin}/" for origin in origins)
    steps.clear()
    done = await browser.order("forget", host="a.example")
    assert max(steps) < sum(steps) / 2, sorted(steps)[-3:]
    assert done.startswith(f"{origins[0]}, {origins[1]}, ")
    assert gate.statistics().origins == 0
    [note] = caplog.messages
    assert note == f"{done}, by a watcher at 127.0.0.1: a reason"


async def test_each_order_is_noted_with_its_reason(
    clock: ManualClock, fetcher: ScriptedFetcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    note = "a.example: denied, by a watcher at 127.0.0.1: the operator\\x1b[2J asked us"
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, ledger=path) as gate:
        async with await serve(gate, port=0, token=TOKEN) as server, browsing(server.url) as browser:
            with caplog.at_level(logging.WARNING, "politesse.watch"):
                await browser.order("deny", host="a.example", reason=" the operator\x1b[2J asked us ")
                await browser.order("deny", 400, host="a.example", reason=" ")
        assert [(one.name, one.getMessage()) for one in caplog.records] == [("politesse.watch", note)]
    with LedgerReader(path) as ledger:
        assert [(one.text, one.noted_wall) for one in ledger.notes()] == [(note, NOW)]


async def test_an_order_to_a_queue_is_logged_once_with_its_whole_reason(
    clock: ManualClock, fetcher: ScriptedFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    reason, host = "r" * 200, f"{'long.' * 30}example"
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        async with await serve(gate, queue, port=0, token=TOKEN) as server, browsing(server.url) as browser:
            with caplog.at_level(logging.WARNING):
                await browser.order("deny", host=host, reason=reason)
    assert [one.name for one in caplog.records] == ["politesse.queue"]
    assert caplog.messages[0].endswith(f": {reason}")


async def test_only_a_running_crawl_is_stopped(gate: Gatekeeper) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate)
    async with await serve(gate, queue, port=0, token=TOKEN) as server, browsing(server.url) as browser:
        assert "no crawl is running" in await browser.order("stop", 400)


async def test_a_ledger_of_ones_own_has_to_take_notes() -> None:
    methods = dict.fromkeys(("record", "record_file", "record_turn", "aclose"), print)
    own: Any = type("Own", (), methods)()
    with pytest.raises(ConfigurationError, match="note"):
        Gatekeeper(UA, ledger=own)


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ({"action": "burn", "host": "a.example"}, "action='burn'"),
        ({"action": None}, "action=None"),
        ({"action": ["deny"], "host": "a.example"}, "action=['deny']"),
        ({"action": "deny"}, "host=None"),
        ({"action": "deny", "host": 5}, "host=5"),
        ({"action": "pause", "host": "a.example"}, "host='a.example'"),
        ({"action": "deny", "host": "a.example/path"}, "is not a bare host"),
        ({"action": "deny", "host": ""}, "names no host"),
        ({"action": "deny", "host": f"{STEERING}.example"}, "\\x1b]0;owned\\x07<img"),
        ({"action": "deny", "host": "\ud800.example"}, "\\ud800"),
        ({"action": "deny", "host": "a.example", "min_delay_s": 5}, "only with pace"),
        ({"action": "pace", "host": "a.example"}, "give min_delay_s"),
        ({"action": "pace", "host": "a.example", "min_delay_s": "5"}, "min_delay_s='5'"),
        ({"action": "pace", "host": "a.example", "min_delay_s": True}, "min_delay_s=True"),
        ({"action": "pace", "host": "a.example", "min_delay_s": float("nan")}, "min_delay_s=nan"),
        ({"action": "pace", "host": "a.example", "min_delay_s": -1}, "min_delay_s=-1"),
        ({"action": "pace", "host": "a.example", "max_concurrent": 0}, "max_concurrent=0"),
        ({"action": "pace", "host": "a.example", "max_concurrent": [5]}, "as numbers"),
        ({"action": "deny", "host": "a.example", "reason": ""}, "reason=''"),
        ({"action": "deny", "host": "a.example", "reason": "x" * 201}, "1 to 200 characters"),
        ({"action": "deny", "host": "a.example", "reason": None}, "reason=None"),
        ({"action": "deny", "host": "a.example", "seconds": 5}, "member='seconds'"),
    ],
)
async def test_an_order_that_is_not_valid_changes_nothing_and_says_why(
    gate: Gatekeeper, browser: Browser, order: dict[str, object], named: str
) -> None:
    answer = await browser.order(**{"status": 400, **order})  # type: ignore[arg-type]
    assert named in answer
    assert "\x1b" not in answer
    assert gate.state.policies == {}


@pytest.mark.parametrize(
    "body", [b"", b"deny", b"[]", b'"deny"', b"[" * 60_000, b"\xff", b'{"action": "deny"'], ids=range(7)
)
async def test_a_body_that_is_no_order_is_refused(browser: Browser, body: bytes) -> None:
    async with browser.http.post(f"{browser.url}steer", data=body, headers=WITH_TOKEN) as response:
        assert response.status == 400
        assert (await response.json())["error"]


@pytest.mark.parametrize("name", ["action", "host", "reason", "min_delay_s", "max_concurrent"])
async def test_a_member_that_is_nested_deeply_is_refused(browser: Browser, name: str) -> None:
    order = {"action": '"pace"', "host": '"a.example"', "reason": '"none"', "min_delay_s": "1"}
    for depth in range(900, 1_010, 2):  # near the limit, JSON is read, but Python's repr of it fails
        body = "{" + ", ".join(f'"{key}": {value}' for key, value in {**order, name: "[" * depth + "]" * depth}.items())
        async with browser.http.post(f"{browser.url}steer", data=body + "}", headers=WITH_TOKEN) as response:
            assert response.status == 400, (depth, await response.text())
            assert (await response.json())["error"]


async def test_a_body_of_10_mb_is_refused(browser: Browser) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(160):
            yield b"x" * 65_536

    for body in (BytesIO(b'{"reason": "' + b"x" * 10_000_000 + b'"}'), endless()):
        async with browser.http.post(f"{browser.url}steer", data=body, headers=WITH_TOKEN) as response:
            assert response.status == 413
            assert (await response.json())["error"]


async def test_an_order_to_a_crawl_needs_a_queue(gate: Gatekeeper) -> None:
    async with await serve(gate, port=0, token=TOKEN) as server, browsing(server.url) as browser:
        for action in "pause", "continue", "stop":
            assert "this watch has no crawl" in await browser.order(action, 400)
        assert "this watch has no crawl" in await browser.order("give_up", 400, host="a.example")
        assert (await browser.ask("statistics"))["crawl"] is None


# Who may ask


PATHS: Final = ("hosts", "statistics", "events", "explain?url=https://a.example/", "nothing")


@pytest.mark.parametrize("given", ["", TOKEN, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer t\xf6ken"])
async def test_without_the_token_only_the_page_is_answered(browser: Browser, given: str) -> None:
    headers = {"Authorization": given} if given else {}
    for path in PATHS:
        async with browser.http.get(browser.url + path, headers=headers) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert await response.json() == {"error": "the token is wrong or missing"}
    async with browser.http.post(f"{browser.url}steer", json={"action": "stop"}, headers=headers) as response:
        assert response.status == 401
    async with browser.http.get(browser.url, headers=headers) as response:
        assert (response.status, response.content_type) == (200, "text/html")


async def test_without_a_token_nobody_steers_or_makes_the_crawler_fetch(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    async with await serve(gate, port=0) as server, browsing(server.url) as browser:
        assert "this watch can only read; see token= of app" in await browser.order("deny", 403, host="a.example")
        assert await browser.ask("explain?url=https://a.example/&fetch=1", 403)
        assert (await browser.ask("statistics"))["can_steer"] is False
    assert (gate.state.policies, fetcher.requests) == ({}, [])


async def test_a_foreign_host_header_is_refused(gate: Gatekeeper) -> None:
    async with mounted(app(gate, token=TOKEN, names=["Crawler.example"])) as browser:
        for host in "crawler.example:8900", "localhost", "LOCALHOST:80", "watch.localhost", "[::1]:8900", "10.0.0.7":
            assert await browser.ask("statistics", Host=host)
        for host in "evil.example", "crawler.example.evil.example", "localhost.evil.example", "127.0.0.1.evil.example":
            for path in ("", *PATHS):
                assert "is not a name of this server" in (await browser.ask(path, 403, Host=host))["error"]


async def test_a_request_of_another_site_is_refused(browser: Browser) -> None:
    own = browser.url.removesuffix("/")
    assert await browser.ask("statistics", Origin=own)
    for origin in "https://evil.example", "null", "http://127.0.0.1:1", f"{own}.evil.example", "":
        assert "comes from another site" in (await browser.ask("statistics", 403, Origin=origin))["error"]
        headers = WITH_TOKEN | {"Origin": origin}
        order = {"action": "deny", "host": "a.example", "reason": "none"}
        async with browser.http.post(f"{browser.url}steer", json=order, headers=headers) as response:
            assert response.status == 403
    for site, status in {"same-origin": 200, "none": 200, "same-site": 403, "cross-site": 403, "": 403}.items():
        assert await browser.ask("statistics", status, **{"Sec-Fetch-Site": site})
    async with browser.http.get(browser.url, headers={"Sec-Fetch-Site": "cross-site"}) as response:
        assert response.status == 200  # a link to the page


async def test_page_permits_its_own_script_and_style_only(browser: Browser) -> None:
    async with browser.http.get(browser.url) as response:
        policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
        assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
        assert policy["script-src"].startswith("'sha256-")
        assert policy["style-src"].startswith("'sha256-")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "unsafe" not in str(policy)


async def test_methods_and_paths_that_do_not_exist_are_refused_as_json(browser: Browser) -> None:
    assert (await browser.ask("nothing", 404))["error"]
    assert (await browser.ask("steer", 405))["error"]
    async with browser.http.post(f"{browser.url}hosts", headers=WITH_TOKEN) as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET")


async def test_mounted_at_a_prefix_the_page_finds_its_paths(gate: Gatekeeper) -> None:
    async with mounted(app(gate, token=TOKEN), "/ops/watch") as browser:
        assert (await browser.ask("statistics"))["agent"] == UA
        async with browser.http.get(browser.url.removesuffix("/")) as response:
            assert (response.status, str(response.url)) == (200, browser.url)
        assert await browser.ask("statistics", 403, Host="evil.example")


async def test_an_address_of_other_machines_needs_a_token(gate: Gatekeeper) -> None:
    for host in "192.0.2.1", "::", "crawler.example", "":
        with pytest.raises(ConfigurationError, match=f"host='{host}' is open to other machines: give a token"):
            await serve(gate, host=host, port=0)
    async with await serve(gate, host="localhost", port=0) as server:
        assert server.url.startswith(("http://127.0.0.1:", "http://[::1]:"))


async def test_arguments_that_are_not_valid_are_refused(gate: Gatekeeper) -> None:
    wrong: Any = "gate"
    for arguments in ({"gate": wrong}, {"gate": gate, "queue": wrong}, {"gate": gate, "token": 5}):
        with pytest.raises(ConfigurationTypeError):
            app(**arguments)
    for token in "", " padded", "t\xf6ken", "two\nlines":
        with pytest.raises(ConfigurationError, match="printable ASCII") as raised:
            app(gate, token=token)
        assert not token or token not in str(raised.value)
    with pytest.raises(ConfigurationTypeError):
        app(gate, names=[wrong, None])  # type: ignore[list-item]
    for name in "*", "*.example", "http://crawler.example", "crawler.example:8900", "a b":
        with pytest.raises(ConfigurationError, match=f"names: .*{re.escape(name)}"):
            app(gate, names=[name])
    for arguments in ({"host": None}, {"host": 5}, {"port": None}, {"port": "80"}, {"port": True}):
        with pytest.raises(ConfigurationTypeError, match=next(iter(arguments))):
            await serve(gate, **arguments)
    for port in -1, 65_536:
        with pytest.raises(ConfigurationError, match=f"port={port}"):
            await serve(gate, port=port)


async def test_a_port_that_is_in_use_is_an_error_and_leaves_nothing_open(gate: Gatekeeper) -> None:
    async with await serve(gate, port=0) as server:
        assert repr(server) == f"<WatchServer {server.url}>"
        with pytest.raises(OSError, match="address already in use"):
            await serve(gate, port=int(server.url.split(":")[-1].rstrip("/")))
        assert isinstance(server, WatchServer)
    await server.aclose()  # again


# Text of others


async def test_hostile_text_of_sites_is_short_and_printable(
    gate: Gatekeeper, browser: Browser, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    long = "x" * 5_000
    fetcher.answers["https://a.example"] = f"User-agent: *\nDisallow: /<img>{long}\nDisallow: /b\n"
    fetcher.answers["https://c.example"] = OSError(STEERING)
    url = f"https://a.example/b?{STEERING}"
    async with streaming(browser) as stream:
        await stream.messages("statistics", "hosts")
        await gate.check("https://a.example/b?%1b<img>")
        await gate.check("https://c.example/")
        turn = await gate.take_turn(f"https://user:{long}@b.example/<img>#secret")
        turn.observe(402, {"crawler-price": STEERING})
        clock.advance(2.0)
        messages = await stream.messages("statistics", "hosts", "refusals")
    turn.end()
    answer = await browser.ask("explain?url=https://a.example/b%3F<img>")
    texts = json.dumps([messages, answer, await browser.ask(f"explain?url={url}", 400)], ensure_ascii=False)
    assert texts.isprintable()
    assert "secret" not in texts
    assert len(texts) < 10_000
    assert "xxx..." in answer["lines"][0]["text"]
