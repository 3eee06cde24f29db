"""politesse.testing: the judge of a trace, the clock, the scripted parts, and the hostile server.

What crawlers make of the hostile server is tested elsewhere.
"""

import asyncio
import gc
import gzip
import logging
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from politesse import Gatekeeper
from politesse.errors import ConfigurationError
from politesse.origin import Origin
from politesse.ports import FetchRequest, FetchResponse
from politesse.queue import PoliteQueue
from politesse.testing import (
    FAULTS,
    Call,
    Exchange,
    Fault,
    HostileServer,
    ManualClock,
    ScriptedFetcher,
    ScriptedResolver,
    assert_polite,
)
from politesse.testing.hostile import FILE, chain, gzip_bomb, response
from politesse.verdict import AccessResult
from tests.support.scripted import UA

SITE = "https://example.com"
OTHER = "https://example.com:8443"
ROBOTS = {SITE: "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"}
DAY_S = 86_400.0


def page(path: str, started: float, *, status: int = 200, retry_after_s: float | None = None) -> Exchange:
    return Exchange(f"{SITE}{path}", started, started + 1.0, status, retry_after_s)


def fetched(started: float, status: int = 200, **stated: Any) -> Exchange:
    return Exchange(f"{SITE}/robots.txt", started, started + 0.1, status, **stated)


FIRST = fetched(100.0)


def complaint(*trace: Exchange, robots: dict[str, str] = ROBOTS, agent: str = "x", **options: Any) -> str:
    """Return what ``assert_polite`` says of a trace; nothing, if it is polite."""
    try:
        assert_polite(trace, robots, agent=agent, **options)
    except AssertionError as error:
        return str(error)
    return ""


def test_polite_crawl_passes_and_an_empty_trace_proves_nothing() -> None:
    assert_polite([page("/b", 111.2), FIRST, page("/a", 105.2)], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match="empty"):
        assert_polite(iter(()), ROBOTS, agent="x")


def test_each_violation_is_named() -> None:
    table = {
        "before https://example.com/robots.txt": [page("/a", 99.0)],
        "against line 2": [FIRST, page("/private/x", 200.0)],
        "not 5 (crawl-delay": [FIRST, page("/a", 200.0), page("/b", 205.9)],
        "not 5": [FIRST, page("/a", 200.0), page("/b", 200.5)],
        "not 5 ": [FIRST, page("/a", 101.0)],
        "before Retry-After": [FIRST, page("/a", 200.0, status=429, retry_after_s=60), page("/b", 210.0)],
    }
    assert {words: found for words, trace in table.items() if words not in (found := complaint(*trace))} == {}


def test_robots_txt_waits_for_no_pace() -> None:
    assert complaint(FIRST, page("/a", 160.0), fetched(161.1)) == ""


def test_requests_for_robots_txt_to_one_host_are_judged() -> None:
    def of_ports(*starts: float) -> str:
        trace = [Exchange(f"{SITE}:{8000 + port}/robots.txt", at, at + 0.1) for port, at in enumerate(starts)]
        return complaint(*trace, robots={}, min_delay_s=1.0)

    assert of_ports(0.0, 0.1, 1.2, 62.0, 62.1) == ""
    assert "while another robots.txt of the host was under way: https://example.com:8001/" in of_ports(0.0, 0.05)
    too_soon = of_ports(0.0, 0.1, 0.9)
    assert "too soon after another robots.txt of the host: https://example.com:8002/" in too_soon
    assert " not 1)" in too_soon


def test_own_floor_counts_where_the_host_states_no_pace() -> None:
    trace = [FIRST, page("/a", 103.0), page("/b", 105.0)]
    assert complaint(*trace, robots={}, min_delay_s=1.0) == ""
    assert "not 2 (floor" in complaint(*trace, robots={}, min_delay_s=2.0)


def test_visit_outside_the_window_is_named() -> None:
    midnight = 1_800_000_000.0 - 1_800_000_000.0 % 86_400
    robots = {SITE: "User-agent: *\nVisit-time: 0600-0845\n"}
    first = Exchange(f"{SITE}/robots.txt", midnight, midnight)
    assert complaint(first, page("/a", midnight + 6 * 3600), robots=robots) == ""
    assert "Visit-time" in complaint(first, page("/a", midnight + 9 * 3600), robots=robots)


def test_rules_bind_an_origin_in_any_spelling() -> None:
    for key, origin in {
        "HTTPS://Example.COM:443": SITE,
        "https://example.com/": SITE,
        "https://example.com/robots.txt": SITE,
        "https://user@example.com": SITE,
        "http://b\u00fccher.example": "http://xn--bcher-kva.example",
        "http://xn--bcher-kva.example:80/": "http://B\u00dcCHER.example",
    }.items():
        trace = [Exchange(f"{origin}/robots.txt", 1.0, 1.1), Exchange(f"{origin}/private", 2.0, 2.1)]
        assert "against line 2" in complaint(*trace, robots={key: "User-agent: *\nDisallow: /private\n"}), key


def test_argument_that_cannot_be_used_is_refused() -> None:
    for key in ("example.com", "https://example.com/page", "ftp://example.com", ""):
        with pytest.raises(ValueError, match=r"example.com|''"):
            assert_polite([FIRST], {key: ""}, agent="x")
    with pytest.raises(ConfigurationError, match="twice"):
        assert_polite([FIRST], {SITE: "", f"{SITE}:443/": ""}, agent="x")
    for agent in ("", "*", " ", "Mozilla/5.0 (compatible; ExampleBot/1.0)"):
        with pytest.raises(ConfigurationError, match="product token"):
            assert_polite([FIRST], ROBOTS, agent=agent)
    for option in ("min_delay_s", "slack_s", "min_refetch_s", "max_age_s"):
        for value in (-1.0, float("nan")):
            with pytest.raises(ConfigurationError, match=option):
                assert_polite([FIRST], ROBOTS, agent="x", **{option: value})  # type: ignore[arg-type]


def test_requests_of_another_agent_are_named() -> None:
    trace = [fetched(100.0, agent="ExampleBot/1.0 (+https://example.com/bot)"), fetched(200.0, agent="curl/8.5")]
    found = complaint(*trace, agent="examplebot")
    assert found.startswith("1 violation:\nrequested under another User-Agent")
    assert "curl" in found
    assert complaint(trace[0], agent="ExampleBot-Image", user_agent="ExampleBot") == ""
    assert "another User-Agent" in complaint(trace[0], agent="Example")
    by_address = fetched(100.0, agent="OtherBot/1.0 (+https://bot.example/ExampleBot)")
    assert "another User-Agent" in complaint(by_address, agent="ExampleBot")


def test_page_after_a_robots_txt_that_closes_the_site_is_named() -> None:
    for status in (429, 500, 503, 599, 206, 999):
        trace = [fetched(100.0, status), page("/a", 200.0)]
        assert "without a usable robots.txt" in complaint(*trace), status
        assert complaint(trace[0], fetched(161.0), page("/a", 200.0)) == "", status
        assert complaint(fetched(0.0), *trace) == "", status  # within a day, the copy from before may serve
    for status in (200, 203, 304, 301, 400, 404, 410, 0):
        assert complaint(fetched(100.0, status), page("/a", 200.0)) == "", status


def test_page_while_the_first_robots_txt_is_under_way_is_named() -> None:
    for ended in (101.0, float("inf")):
        under_way = Exchange(f"{SITE}/robots.txt", 100.0, ended)
        assert "without a usable robots.txt" in complaint(under_way, page("/a", 100.5), robots={})


def test_page_with_a_copy_older_than_a_day_is_named() -> None:
    fresh, stale = page("/a", 100.1 + DAY_S), page("/b", 110.1 + DAY_S)
    assert complaint(FIRST, fresh) == ""
    found = complaint(FIRST, fresh, stale)
    assert found.startswith("1 violation:\n")
    assert f"robots.txt that is too old: {SITE}/b " in found
    for renewal in (fetched(100.0 + DAY_S, 304), fetched(100.0 + DAY_S, 404)):
        assert complaint(FIRST, renewal, stale) == ""
    assert "too old" in complaint(FIRST, fetched(100.0 + DAY_S, 503), stale)
    assert complaint(FIRST, stale, max_age_s=7 * DAY_S) == ""


def test_repeated_fetch_of_robots_txt_is_named() -> None:
    for status in (200, 404, 503, 0):
        trace = [fetched(100.0 + n, status) for n in range(4)]
        assert complaint(*trace).startswith("3 violations:\nrobots.txt requested again too soon"), status
        assert complaint(*(fetched(100.0 + 54 * n, status) for n in range(4))) == "", status
        assert complaint(*trace, min_refetch_s=1.0) == "", status
    assert "again too soon" in complaint(fetched(100.0), fetched(3_700.0), min_refetch_s=0.9 * DAY_S)


def test_robots_txt_that_another_one_redirects_to_is_not_fetched_again() -> None:
    www = "https://www.example.com/robots.txt"
    hop, own = Exchange(www, 100.2, 100.3), Exchange(www, 101.0, 101.1)
    for location in (www, None):
        moved = fetched(100.0, 301, location=location)
        assert complaint(moved, hop, own, page("/a", 200.0)) == ""
        again = replace(own, started=103.0, ended=103.1)
        assert complaint(moved, hop, own, again).startswith("1 violation:\nrobots.txt requested again")


def test_target_of_a_redirect_waits_for_no_pace_and_decides_for_the_first_origin() -> None:
    moved = fetched(100.0, 301, location="/file")
    target = Exchange(f"{SITE}/file", 100.2, 100.3)
    assert complaint(moved, target, page("/a", 200.0)) == ""
    assert "without a usable robots.txt" in complaint(moved, replace(target, status=503), page("/a", 200.0))


def test_robots_txt_during_retry_after_is_named() -> None:
    busy = page("/a", 200.0, status=503, retry_after_s=60)
    early = "robots.txt requested before Retry-After was over"
    assert early in complaint(FIRST, busy, fetched(210.0))
    assert early in complaint(fetched(100.0, 429, retry_after_s=120), fetched(210.0))
    assert complaint(FIRST, busy, fetched(261.0)) == ""


def test_request_that_was_sent_before_a_retry_after_was_read_passes() -> None:
    """A page and a robots.txt may be under way together, so one may reach the server after the other is answered."""
    other = Exchange(f"{OTHER}/robots.txt", 199.0, 200.0, 429, retry_after_s=60.0)
    early = "page requested before Retry-After was over"
    assert complaint(FIRST, other, page("/a", 200.5), page("/b", 261.0)) == ""
    for late in ([page("/a", 201.5)], [page("/a", 200.1), page("/b", 207.0)]):
        assert complaint(FIRST, other, *late).startswith(f"1 violation:\n{early}")
    earlier = page("/a", 150.0, status=429, retry_after_s=90.0)  # this one was read
    assert f"{early}: https://example.com/b (40" in complaint(FIRST, earlier, other, page("/b", 200.5))
    busy = page("/a", 200.0, status=429, retry_after_s=60.0)
    assert complaint(FIRST, busy, fetched(busy.ended + 0.5)) == ""
    assert complaint(FIRST, busy, fetched(busy.ended + 1.5)).startswith(
        "1 violation:\nrobots.txt requested before Retry"
    )


def test_exchange_that_ends_before_it_starts_is_named() -> None:
    for ended in (199.9, float("nan")):
        found = complaint(FIRST, Exchange(f"{SITE}/a", 200.0, ended))
        assert found.startswith("1 violation:\nexchange ends before it starts: https://example.com/a")


def test_copy_that_is_fetched_anew_does_not_restart_the_pace() -> None:
    assert complaint(FIRST, page("/a", 200.0), fetched(204.0), page("/b", 206.0)) == ""
    assert "not 5" in complaint(FIRST, page("/a", 200.0), fetched(204.0), page("/b", 205.0))


def test_host_is_bound_by_each_site_that_is_known() -> None:
    robots = {**ROBOTS, OTHER: "User-agent: *\nRequest-rate: 1/20\n"}
    known = Exchange(f"{OTHER}/robots.txt", 210.0, 210.1)
    assert complaint(FIRST, page("/a", 200.0), page("/b", 206.0), known, robots=robots) == ""
    assert "not 20 (request-rate" in complaint(FIRST, page("/a", 200.0), known, page("/b", 220.0), robots=robots)


def test_message_is_bounded() -> None:
    pages = [Exchange(f"{SITE}/{'a' * 1_000}", float(n), float(n)) for n in range(1_000)]
    lines = complaint(*pages, robots={}).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("1000 violations:", 52, "and 950 more")
    assert max(map(len, lines)) < 400


async def test_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(1_000.0)
    sleeper = asyncio.ensure_future(clock.sleep(10))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(9.99)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.01)
    await sleeper
    assert (clock.monotonic(), clock.wall()) == (10.0, 1_010.0)


async def test_manual_clock_calls_due_callbacks_in_order() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_later(5, lambda: seen.append(("five", clock.monotonic())))
    clock.call_later(2, lambda: seen.append(("two", clock.monotonic())))
    clock.call_later(3, lambda: seen.append(("never", clock.monotonic()))).cancel()
    clock.advance(20)
    assert seen == [("two", 2.0), ("five", 5.0)]
    assert clock.monotonic() == 20.0


async def test_autojump_advances_when_all_tasks_wait() -> None:
    clock = ManualClock(autojump=True)

    async def nap(seconds: float) -> float:
        await clock.sleep(seconds)
        return clock.monotonic()

    assert list(await asyncio.gather(nap(86_400), nap(5), nap(0))) == [86_400.0, 5.0, 0.0]


def test_a_clock_tells_both_times_and_does_not_go_back() -> None:
    clock = ManualClock(1_800_000_000.0)
    clock.advance(2.5)
    assert repr(clock) == "ManualClock(wall=1800000002.5, monotonic=2.5)"
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


async def test_scripted_fetcher_answers_for_robots_txt_by_origin_and_for_other_files_by_url() -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: *", f"{SITE}/data.txt": [500, 503, "Dataset: /d"]})
    origin = Origin.of(SITE)
    data_txt = FetchRequest(origin, 5, path="/data.txt")
    asked = [FetchRequest(origin, 5), data_txt, data_txt, data_txt, FetchRequest(origin, 5, path="/other.txt")]
    assert [await fetcher.fetch(request) for request in asked] == [
        FetchResponse(200, f"{SITE}/robots.txt", body=b"User-agent: *"),
        FetchResponse(500, f"{SITE}/data.txt"),
        FetchResponse(503, f"{SITE}/data.txt"),
        FetchResponse(200, f"{SITE}/data.txt", body=b"Dataset: /d"),
        FetchResponse(404, f"{SITE}/other.txt"),
    ]
    assert (fetcher.count(SITE), fetcher.count(f"{SITE}/data.txt")) == (1, 3)


def test_resolver_refuses_a_str_instead_of_a_list_of_addresses() -> None:
    with pytest.raises(ConfigurationError, match=r"give a list, as in \['127.0.0.1'\]"):
        ScriptedResolver({"a.example": "127.0.0.1"})


async def test_a_stalled_queue_reports_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    # To the second, 60 s are added with a loss: (t + 60.0) - t < 60.0.
    for start_s in (0.0, 4045.699504362398):
        caplog.clear()
        fetcher, clock = ScriptedFetcher({SITE: "User-agent: *\nCrawl-delay: 300\n"}), ManualClock(autojump=True)
        clock.advance(start_s)
        async with asyncio.timeout(5), Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
            queue = PoliteQueue[object](gate)
            await queue.put(f"{SITE}/1")
            async with queue.turn() as turn:
                assert turn.url == f"{SITE}/1"
        assert "no progress for 60 s" in caplog.text


async def test_a_positive_delay_moves_the_clock_however_short_it_is() -> None:
    clock = ManualClock(autojump=True)
    clock.advance(1e9)
    due_s = clock.monotonic() + 1e-9
    calls = list[float]()

    def look() -> None:
        calls.append(clock.monotonic())
        if clock.monotonic() <= due_s:
            clock.call_later(1e-9, look)

    look()
    async with asyncio.timeout(5):
        await clock.sleep(1.0)
    assert len(calls) == 2


async def test_a_timer_that_raises_stops_no_other_timer() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    clock = ManualClock(autojump=True)

    def fail() -> None:
        raise ValueError("a broken callback")

    clock.call_later(1.0, fail)
    async with asyncio.timeout(5):
        await clock.sleep(2.0)
    assert clock.monotonic() == 2.0
    assert [str(failure["exception"]) for failure in failures] == ["a broken callback"]


def test_a_clock_jumps_in_a_second_event_loop() -> None:
    clock = ManualClock(autojump=True)

    async def leave_a_timer() -> None:
        clock.call_later(5.0, lambda: None)

    async def sleep() -> None:
        async with asyncio.timeout(5):
            await clock.sleep(10.0)

    asyncio.run(leave_a_timer())
    asyncio.run(sleep())
    assert clock.monotonic() == 10.0


async def _raw(server: HostileServer, target: str = "/robots.txt") -> bytes:
    host, _, port = server.origin.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_pages_are_answered_and_logged() -> None:
    async with HostileServer(FAULTS["status-503"]) as server:
        async with aiohttp.ClientSession(headers={"User-Agent": "ExampleBot/1.0"}) as session:
            async with session.get(server.url()) as robots:
                assert robots.status == 503
            async with session.get(server.url("/page?q")) as page:
                assert await page.text() == "<p>a page</p>\n"
        assert server.pages == ["/page?q"]
        assert server.robots_requests == 1
        assert [exchange.status for exchange in server.log] == [503, 200]
        assert all(exchange.started <= exchange.ended for exchange in server.log)
        with pytest.raises(AssertionError, match="against line 2"):
            assert_polite(server.log, {server.origin: "User-agent: *\nDisallow: /page"}, agent="ExampleBot")


async def test_status_and_retry_after_of_an_answer_are_logged() -> None:
    async with HostileServer(FAULTS["429-seconds"]) as server:
        assert b"429" in await _raw(server)
        assert [(exchange.status, exchange.retry_after_s) for exchange in server.log] == [(429, 120.0)]


async def test_a_bomb_decodes_to_its_stated_size() -> None:
    bomb = Fault(name="bomb", robots=gzip_bomb(3 * 1024 * 1024), result=AccessResult.SUCCESSFUL)
    async with HostileServer(bomb) as server:
        body = (await _raw(server)).partition(b"\r\n\r\n")[2]
    assert len(body) < 5_000
    assert gzip.decompress(body) == FILE + b"\n" * (3 * 1024 * 1024)


async def test_flapping_fault_alternates_between_bad_and_good() -> None:
    async with HostileServer(FAULTS["5xx-flapping"]) as server:
        statuses = [(await _raw(server)).split()[1] for _ in range(4)]
    assert statuses == [b"503", b"200", b"503", b"200"]


async def test_a_chain_ends_in_a_file_after_so_many_redirects() -> None:
    async with HostileServer(chain(20)) as server, aiohttp.ClientSession() as session:
        async with session.get(server.url(), max_redirects=21) as response_:
            assert await response_.read() == FILE
            assert len(response_.history) == 20
        assert server.pages == []


async def test_a_connection_that_is_never_accepted_waits() -> None:
    async with HostileServer(FAULTS["never-accepts"]) as server:
        port = int(server.origin.rpartition(":")[2])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.04):
                await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_at_which_nobody_listens_refuses_and_is_given_to_nobody_else() -> None:
    async with HostileServer(FAULTS["refuses-connections"]) as server:
        port = int(server.origin.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(OSError, match="address already in use"):
            await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)


async def test_an_address_of_another_machine_leaves_no_socket() -> None:
    for name in ("refuses-connections", "never-accepts"):
        with pytest.raises(OSError, match="assign requested address"):
            await HostileServer(FAULTS[name], address="192.0.2.1").__aenter__()
    gc.collect()  # an open socket would warn


async def test_a_custom_handler_sees_the_request_and_its_count() -> None:
    seen: list[tuple[str, str, int]] = []

    async def handler(call: Call) -> None:
        seen.append((call.method, call.headers["host"], call.number))
        await call.send(response(204))

    async with HostileServer(FAULTS["status-404"], {"/page": handler}) as server:
        await _raw(server, "/page")
        await _raw(server, "/page")
    assert seen == [("GET", "127.0.0.1", 1), ("GET", "127.0.0.1", 2)]


async def test_leaving_a_server_ends_unfinished_answers() -> None:
    async with HostileServer(FAULTS["endless-body"]) as server:
        host, _, port = server.origin.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /robots.txt HTTP/1.1\r\n\r\n")
        await reader.readexactly(1000)
        assert server.open_connections == 1
    assert server.open_connections == 0
    writer.close()


class _KeepsUp(asyncio.StreamWriter):
    """To a client that takes in whatever is written, at once."""

    def __init__(self, written: list[bytes]) -> None:
        self.written = written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    async def drain(self) -> None:
        pass

    def __del__(self) -> None:
        pass


async def test_endless_answer_does_not_block_other_connections() -> None:
    events: list[bytes] = []
    call = Call("GET", "/robots.txt", {}, 1, asyncio.StreamReader(), _KeepsUp(events))

    async def other() -> None:
        events.append(b"other")

    task = asyncio.create_task(other())
    await call.send(b"first", b"second", b"third")
    await task
    assert events == [b"first", b"other", b"second", b"third"]
