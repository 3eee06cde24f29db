"""The loop over a simulated web: what is requested, handed to ``handle``, queued, retried, left out and reported."""

import asyncio
import json
import re
from math import nan
from pathlib import Path
from typing import Any

import pytest

from politesse import ConfigurationError, HostPolicy
from politesse.audit import Audit, AuditOptions
from politesse.queue import CrawlPage, CrawlProgress, CrawlReport, PageFailed
from tests.core.queue.crawl import A, B, C, Queue, left, put, urls
from tests.core.queue.simulated import Errors, Pages, Reply, SimulatedWeb, crawled, follow_links, moved

# Links


async def test_links_are_followed_breadth_first_each_once(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1", "2", "/1", f"{A}/#top"]), f"{A}/1": Reply(links=["/", "/3", "2"])})
    report = await crawled(queue, web, pages)
    assert pages.urls == [f"{A}/", f"{A}/1", f"{A}/2", f"{A}/3"]
    assert set(web.requests.values()) == {1}
    assert (report.pages, report.failed, report.left) == (4, 0, 0)


async def test_put_returns_whether_the_link_was_new(queue: Queue) -> None:
    answers: list[bool] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        if page.url == f"{A}/":
            answers.extend(page.put(link) for link in ("/", "/1", "/1#part", "/2"))

    await crawled(queue, SimulatedWeb(), handle)
    assert answers == [False, True, False, True]


async def test_a_link_or_priority_of_another_type_is_an_error_of_page_put(queue: Queue) -> None:
    links: list[Any] = [b"/octets", 7, ["/a"]]
    wrong: list[tuple[Any, Any, str]] = [
        (link, 0, f"link={link!r}: give a str or yarl.URL, not {type(link).__name__}") for link in links
    ]
    wrong += [("/2", priority, f"priority={priority!r}: give a") for priority in ("1", None, (1, 2), 1j, nan)]
    for link, priority, problem in wrong:
        errors = Errors()

        async def handle(page: CrawlPage[object], _: Reply, link: Any = link, priority: Any = priority) -> None:
            page.put("/1")
            page.put(link, priority=priority)

        report = await crawled(queue, SimulatedWeb(), handle, on_error=errors)
        assert (report.pages, report.failed, report.left, report.bad_links) == (0, 2, 0, 0)
        assert [text[: len(problem)] for text in errors.texts] == [problem] * 2


async def test_a_link_that_is_no_url_is_counted_and_one_of_another_scheme_is_ignored(queue: Queue) -> None:
    # The last two are too long: some 10,000 octets, and three times that once they are escaped.
    bad = [None, "http://[", "http://", "//", "/lone\ud800surrogate", "/nul\x00", "http://a.example:99999/"]
    bad += ["/" + "x" * 30_000, "/" + "\u00e9" * 5_000]
    ignored = ["mailto:us@a.example", " JavaScript:void(0)", "tel:+44", "ftp://a.example/"]
    for link in (*bad, *ignored):
        report = await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=[link])}), follow_links)
        assert (link, report.bad_links) == (link, int(link in bad))
        assert (report.pages, report.failed, report.left) == (1, 0, 0)


async def test_links_are_followed_to_the_depth(queue: Queue) -> None:
    links = {"/": ["/1", "/2"], "/1": ["/2", "/3"], "/3": ["/", "/4"]}
    web = SimulatedWeb({A + path: Reply(links=found) for path, found in links.items()})
    for depth, paths in {0: "/", 1: "/ /1 /2", 2: "/ /1 /2 /3", None: "/ /1 /2 /3 /4"}.items():
        pages = Pages()
        await crawled(queue, web, pages, depth=depth)
        assert sorted(pages.urls) == [A + path for path in paths.split()]


async def test_the_depth_of_a_page_counts_links_and_neither_redirects_nor_attempts(queue: Queue, pages: Pages) -> None:
    two = [Reply(503), Reply(links=["/last"])]
    await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=["/m"]), f"{A}/m": moved(f"{B}/2"), f"{B}/2": two}), pages)
    assert [(page.url, page.depth) for page in pages.handled] == [(f"{A}/", 0), (f"{B}/2", 1), (f"{B}/last", 2)]


async def test_a_link_that_is_too_deep_is_followed_from_a_page_that_is_not(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1"]), f"{A}/1": Reply(links=["/2"]), f"{B}/": Reply(links=[f"{A}/2"])})
    await crawled(queue, web, pages, depth=1)
    assert pages.urls == [f"{A}/", f"{A}/1"]
    await queue.put(f"{B}/")
    await queue.crawl(web, pages, depth=1, seen={f"{A}/", f"{A}/1"})
    assert pages.urls[2:] == [f"{B}/", f"{A}/2"]


async def test_a_link_that_a_child_task_puts_after_the_end_is_left(queue: Queue) -> None:
    over = asyncio.Event()
    children: list[asyncio.Task[bool]] = []

    async def later(page: CrawlPage[object]) -> bool:
        await over.wait()
        return page.put("/late")

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        children.append(asyncio.create_task(later(page)))

    assert (await crawled(queue, SimulatedWeb(), handle)).left == 0
    over.set()
    assert await children[0] is True
    assert left(queue) == [f"{A}/late"]


async def test_put_within_handle_and_from_outside_ignores_what_was_seen(queue: Queue) -> None:
    handled: list[str] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        handled.append(page.url)
        for url in (f"{A}/", f"{A}/1", f"{A}/1#part"):
            await queue.put(url)
            queue.put_nowait(url)

    report = await crawled(queue, SimulatedWeb(), handle)
    assert handled == [f"{A}/", f"{A}/1"]
    assert report.pages == 2
    await queue.put(f"{A}/")
    assert queue.qsize() == 1  # the crawl is over


async def test_seen_may_be_the_set_of_an_earlier_crawl(queue: Queue, pages: Pages) -> None:
    seen = {f"{A}/1"}
    await queue.put("HTTPS://A.example:443")
    await queue.crawl(SimulatedWeb({"HTTPS://A.example:443": Reply(links=["/1", "/2"])}), pages, seen=seen)
    assert pages.urls == ["HTTPS://A.example:443", f"{A}/2"]
    assert seen == {f"{A}/", f"{A}/1", f"{A}/2"}


# Answers


async def test_every_status_but_redirects_and_those_of_a_busy_host_is_a_page(queue: Queue, pages: Pages) -> None:
    statuses = [200, 204, 300, 304, 400, 401, 403, 404, 410, 500, 501, 505]
    await put(queue, *(f"{A}/{status}" for status in statuses))
    web = SimulatedWeb({f"{A}/{status}": Reply(status) for status in statuses})
    assert (await queue.crawl(web, pages)).pages == len(statuses)


async def test_a_redirect_is_queued_with_its_item(queue: Queue) -> None:
    for status in (301, 302, 303, 307, 308):
        pages = Pages()
        await queue.put(f"{A}/old", "item")
        report = await queue.crawl(SimulatedWeb({f"{A}/old": moved(f"{B}/new", status)}), pages)
        [page] = pages.handled
        assert (page.url, page.item, page.hops, page.attempt) == (f"{B}/new", "item", (f"{A}/old",), 1)
        assert (report.pages, report.redirects) == (1, 1)


async def test_no_worker_waits_for_the_target_of_a_redirect(queue: Queue) -> None:
    queue.robots[B] = "User-agent: *\nCrawl-delay: 100\n"
    finished: list[tuple[str, float]] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        finished.append((page.url, queue.clock.monotonic()))

    await put(queue, f"{A}/moved", *urls(3, C))
    await queue.crawl(SimulatedWeb({f"{A}/moved": moved(f"{B}/")}), handle, workers=1)
    assert [url for url, _ in finished] == [*urls(3, C), f"{B}/"]
    assert finished[2][1] < 10


async def test_redirects_end_at_what_was_seen_and_not_at_another_spelling(queue: Queue, pages: Pages) -> None:
    await put(queue, f"{A}/", f"{A}/moved", f"{A}/%7euser")
    web = SimulatedWeb({f"{A}/moved": moved("/"), f"{A}/%7euser": moved("/~user")})
    report = await queue.crawl(web, pages)
    assert pages.urls == [f"{A}/", f"{A}/~user"]
    assert (report.redirects, report.failed) == (2, 0)


async def test_a_redirect_to_no_http_url_or_to_itself_is_reported(queue: Queue, errors: Errors) -> None:
    locations = ["ftp://a.example/", "mailto:us@a.example", "http://[", "http:", " "]
    await put(queue, *urls(5), f"{A}/cookie")
    web = SimulatedWeb({f"{A}/{place}": moved(location) for place, location in enumerate(locations)})
    web.replies |= {f"{A}/cookie": moved("/cookie#top", 302)}  # type: ignore[operator] # a dict
    report = await queue.crawl(web, follow_links, on_error=errors)
    assert (report.pages, report.failed, report.redirects) == (0, 6, 0)
    itself = f"{A}/cookie redirects to itself with 302, as sites do that want a cookie first"
    for (url, error), shown in zip(sorted(errors.seen), [*map(repr, locations), itself], strict=True):
        assert isinstance(error, PageFailed)
        assert (url, error.status) == (error.url, 302 if shown == itself else 301)
        assert shown in str(error)


async def test_10_000_redirects_over_two_hosts_end_with_a_report(queue: Queue, errors: Errors) -> None:
    def reply(url: str) -> Reply:
        host, place = url.rsplit("/", 1)
        return moved(f"{B if host == A else A}/{(int(place) + 1) % 10_000}")

    web = SimulatedWeb(reply)
    await queue.put(f"{A}/0")
    report = await queue.crawl(web, follow_links, on_error=errors)
    assert sum(web.requests.values()) == 11
    assert errors.texts == [f"{A}/10 is the end of 10 redirects, and redirects again"]
    assert (report.failed, report.redirects, report.left) == (1, 10, 0)


async def test_a_refused_request_is_repeated_when_its_host_opens(queue: Queue) -> None:
    for status, host in ((429, A), (503, B)):
        pages, started_mono = Pages(), queue.clock.monotonic()
        refusal = Reply(status, {"Retry-After": "100"})
        await queue.put(f"{host}/busy", "item")
        report = await queue.crawl(SimulatedWeb({f"{host}/busy": [refusal, refusal, Reply()]}), pages)
        assert [(page.item, page.attempt) for page in pages.handled] == [("item", 3)]
        assert queue.clock.monotonic() - started_mono >= 200
        assert (report.pages, report.retried, report.failed) == (1, 2, 0)


async def test_a_url_fails_after_five_attempts(queue: Queue, errors: Errors) -> None:
    web = SimulatedWeb({f"{A}/": Reply(503)})
    report = await crawled(queue, web, follow_links, on_error=errors)
    assert web.requests[f"{A}/"] == 5
    assert errors.texts == [f"{A}/ was answered with 503 to 5 attempts"]
    assert (report.pages, report.retried, report.failed) == (0, 4, 1)


async def test_a_request_that_fails_is_reported_and_others_go_on(queue: Queue, pages: Pages, errors: Errors) -> None:
    failures = dict(zip(urls(3), (TimeoutError("slow"), OSError("reset"), ValueError("no answer")), strict=True))
    await put(queue, *urls(4))
    report = await queue.crawl(SimulatedWeb(failures), pages, on_error=errors, stop_on_error=True)
    assert errors.seen == list(failures.items())
    assert pages.urls == [f"{A}/3"]
    assert (report.pages, report.failed) == (1, 3)


# Counts


async def test_disallowed_urls_are_counted(queue: Queue, pages: Pages) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /private\n"
    progress: list[CrawlProgress] = []
    web = SimulatedWeb({f"{A}/": Reply(links=["/private/0", "/private/1"])})
    report = await crawled(queue, web, pages, on_progress=progress.append)
    assert (report.pages, report.disallowed) == (1, 2)
    assert queue.refused.items == urls(2, f"{A}/private")
    assert [shown.disallowed for shown in progress] == [0, 1, 2]


async def test_a_refusal_after_the_end_of_a_crawl_is_none_of_that_crawl(queue: Queue, pages: Pages) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /private\n"
    progress: list[CrawlProgress] = []
    report = await crawled(queue, SimulatedWeb({f"{A}/": Reply()}), pages, on_progress=progress.append)
    shown = len(progress)
    await queue.put(f"{A}/private")
    await queue.put(f"{A}/a")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/a"
    assert (queue.refused.items, report.disallowed, len(progress)) == ([f"{A}/private"], 0, shown)


async def test_progress_is_reported_for_each_url_and_sums_up(queue: Queue) -> None:
    progress: list[CrawlProgress] = []
    web = SimulatedWeb(
        {
            f"{A}/": Reply(links=["/moved", "/busy", "/broken", "http://["]),
            f"{A}/moved": moved("/"),
            f"{A}/busy": [Reply(503), Reply()],
            f"{A}/broken": OSError("reset"),
        }
    )
    report = await crawled(queue, web, follow_links, on_progress=progress.append)
    shown = [(each.last_url, each.pages, each.redirects, each.retried, each.failed) for each in progress]
    assert shown == [
        (f"{A}/", 1, 0, 0, 0),
        (f"{A}/moved", 1, 1, 0, 0),
        (f"{A}/busy", 1, 1, 1, 0),
        (f"{A}/broken", 1, 1, 1, 1),
        (f"{A}/busy", 2, 1, 1, 1),
    ]
    first = progress[0]
    assert (first.queued, first.under_way, first.hosts, first.bad_links) == (3, 0, 1, 1)
    assert [each.elapsed_s for each in progress] == sorted(each.elapsed_s for each in progress)
    assert report.elapsed_s == queue.clock.monotonic()
    assert str(report).startswith("2 pages, 1 failed, 1 redirect, 0 disallowed, 0 given up, 0 left, 1 bad link, in ")
    assert isinstance(report, CrawlReport)


async def test_what_is_given_up_and_what_is_finished_are_counted_for_themselves(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /private"
    queue.robots[B] = 503
    queue = queue.made(max_unreachable_s=0)
    await put(queue, *urls(3), f"{A}/private", *urls(2, B))
    progress: list[CrawlProgress] = []
    report = await queue.crawl(SimulatedWeb(), follow_links, on_progress=progress.append)
    assert len(progress) == 6
    assert {now.pages + now.disallowed + now.given_up + now.queued + now.under_way for now in progress} == {6}
    assert str(report).startswith(
        "3 pages, 0 failed, 0 redirects, 1 disallowed, 2 given up, 0 left, 2 lost at 1 site, in "
    )
    again = await queue.crawl(SimulatedWeb(), follow_links)
    assert (again.disallowed, again.given_up) == (0, 0)


async def test_on_progress_lists_no_deferred_origins(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.robots[B] = 503
    await queue.gate.check(B)
    queue = queue.made(max_unreachable_s=100)
    monkeypatch.setattr(type(queue._dispatcher.robots), "deferred", property(lambda _: pytest.fail("listed")))
    progress: list[CrawlProgress] = []
    await put(queue, f"{A}/", f"{B}/")
    await queue.crawl(SimulatedWeb(), follow_links, on_progress=progress.append)
    assert [(now.pages, now.queued, now.hosts, now.given_up) for now in progress] == [(1, 1, 1, 0), (1, 0, 0, 1)]


# Arguments


async def test_handle_that_closes_the_queue_ends_the_crawl_when_it_is_empty(queue: Queue) -> None:
    handled: list[str] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        handled.append(page.url)
        if page.url.endswith("/2"):
            queue.close()
            assert not page.put("/late")

    await put(queue, f"{A}/1", f"{A}/2", f"{A}/busy")
    report = await queue.crawl(SimulatedWeb({f"{A}/busy": [Reply(503), Reply()]}), handle)
    assert handled == [f"{A}/1", f"{A}/2", f"{A}/busy"]
    assert (report.pages, report.failed, report.left) == (3, 0, 0)


async def test_a_second_crawl_at_once_is_an_error_and_one_after_the_other_is_not(queue: Queue) -> None:
    first = asyncio.create_task(crawled(queue, SimulatedWeb(), follow_links))
    await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="is being crawled"):
        await queue.crawl(SimulatedWeb(), follow_links)
    assert (await first).pages == 1
    assert (await crawled(queue, SimulatedWeb(), follow_links)).pages == 1


async def test_arguments_that_are_wrong_are_named_before_anything_is_requested(queue: Queue, tmp_path: Path) -> None:
    def plain(page: object, reply: object) -> None: ...

    async def without_page(response: object) -> None: ...

    async def write(record: dict[str, Any]) -> None: ...

    counts = {"workers": 0, "max_pages": 0, "depth": -1}
    patterns: dict[str, Any] = {
        "give several patterns": ["a.example", 7],
        "give patterns of type str": [[b"a.example"]],
        "give a host or a path": [[""], ["."], ["https://a.example/"]],
        "its host ": [["*.a.example"], ["a b/docs"]],
    }
    as_in = r"handle=.*: give .* as in 'async def handle\(page, response\)'"
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({name: value}, f"{name}={value!r}: give at least {value + 1}") for name, value in counts.items()),
        *(
            ({name: given}, f"{name}=.*{text}")
            for name in ("allow", "deny")
            for text in patterns
            for given in patterns[text]
        ),
        *(({"max_time_s": value}, f"max_time_s={value!r}") for value in (0, nan)),
        ({"max_pages_per_host": 0}, "max_pages_per_host=0"),
        ({"handle": plain}, as_in),
        ({"handle": without_page}, as_in),
        ({"on_error": follow_links}, "on_error=.*: give a function that is not asynchronous"),
        ({"out": 5}, "out=5: give the path of a file, or a function"),
        ({"out": write}, "out=.*: give a function that is not asynchronous"),
    ]
    web = SimulatedWeb()
    await queue.put(f"{A}/")
    for options, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            await queue.crawl(**{"web": web, "handle": follow_links, **options})
    with pytest.raises(IsADirectoryError):
        await queue.crawl(web, follow_links, out=tmp_path)
    assert not web.requests
    assert (await queue.crawl(web, follow_links)).pages == 1


# What a crawl leaves out: by pattern, by the pages of a host, and by its time


async def test_pattern_matches_hosts_and_paths(queue: Queue) -> None:
    rows = [
        (
            "example.com",
            "http://example.com/ https://EXAMPLE.com:8443/a",
            "http://www.example.com/ http://example.org/",
        ),
        (
            ".example.com",
            "http://example.com/ http://a.b.example.com/",
            "http://badexample.com/ http://example.com.org/",
        ),
        ("example.com:8443", "https://example.com:8443/", "https://example.com/ http://example.com/"),
        ("example.com:80", "http://example.com/", "https://example.com/"),
        ("[2001:db8::1]", "http://[2001:db8:0::1]:81/", "http://[2001:db8::2]/"),
        ("bücher.example", "http://xn--bcher-kva.example/", "http://bucher.example/"),
        ("/docs/", "http://a.example/docs/ https://b.example/docs/x", "http://a.example/docs http://a.example/a/docs/"),
        ("/*.pdf$", "http://a.example/a/b.pdf", "http://a.example/b.pdf?x http://a.example/pdf"),
        ("/caf\u00e9%7e", "http://a.example/caf%C3%A9~", "http://a.example/cafe~"),
        ("/caf%C3%A9", "http://a.example/café http://a.example/caf%c3%a9/", "http://a.example/cafe"),
        ("/*?page=", "http://a.example/x?page=2", "http://a.example/x?a=1&page=2 http://a.example/page=2"),
        (".example.com/docs", "http://a.example.com/docs/1", "http://a.example.com/ http://a.example/docs"),
        ("example.com/", "http://example.com http://example.com/x", "http://a.example.com/"),
    ]
    for pattern, inside, outside in rows:
        for name in ("allow", "deny"):
            for text in (inside, outside):
                web = SimulatedWeb({f"{A}/": Reply(links=text.split())})
                report = await crawled(queue, web, follow_links, **{name: [pattern]})
                followed = len(text.split()) if (text == inside) == (name == "allow") else 0
                assert (pattern, name, text, len(web.requests)) == (pattern, name, text, 1 + followed)
                assert report.skipped == len(text.split()) - followed


async def test_one_pattern_of_allow_suffices_and_deny_has_the_last_word(queue: Queue, pages: Pages) -> None:
    links = [f"{A}/x", f"{A}/public/old/1", f"{B}/public/", f"{C}/", f"{C}/public/"]
    web = SimulatedWeb({f"{A}/": Reply(links=links)})
    await crawled(queue, web, pages, allow=["a.example", "/public/"], deny=["/public/old/", "b.example"])
    assert sorted(pages.urls) == [f"{A}/", f"{A}/x", f"{C}/public/"]


async def test_links_and_redirects_out_of_scope_are_skipped_but_not_what_is_put(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1", "/2.pdf", f"{B}/", f"{C}/"]), f"{A}/1": moved(f"{C}/moved")})
    report = await crawled(queue, web, pages, allow=["a.example", "b.example"], deny=["/*.pdf$"])
    assert sorted(web.requests) == [f"{A}/", f"{A}/1", f"{B}/"]
    assert (report.pages, report.redirects, report.skipped, report.failed, report.left) == (2, 1, 3, 0, 0)
    assert ", 3 skipped, in" in str(report)
    assert (await crawled(queue, web, pages, allow=[])).pages == 1


async def test_max_pages_is_exact_and_the_rest_is_left(queue: Queue) -> None:
    web = SimulatedWeb({f"https://h{place}.example/": moved("/2") for place in range(0, 30, 2)})
    for workers in (1, 3, 20):
        pages = Pages()
        await put(queue, *(f"https://h{place}.example/" for place in range(30)))
        report = await queue.crawl(web, pages, workers=workers, max_pages=7)
        assert (report.pages, len(pages.handled)) == (7, 7)
        assert report.left == queue.qsize() == 30 - 7
        assert (await queue.crawl(web, pages)).left == 0
        assert len(pages.handled) == 30


async def test_a_host_gives_no_more_pages_than_it_may(queue: Queue, pages: Pages) -> None:
    links = [f"{host}/{number}" for number in range(5) for host in (A, B)]
    web = SimulatedWeb({f"{A}/": Reply(links=links), f"{A}/1": moved("/moved"), f"{B}/0": [Reply(503), Reply()]})
    report = await crawled(queue, web, pages, max_pages_per_host=3)
    assert [sum(url.startswith(host) for url in pages.urls) for host in (A, B)] == [3, 3]
    assert (report.pages, report.failed, report.left) == (6, 0, 0)
    assert report.skipped == 11 - 6  # a redirect and a busy host are no pages
    assert len(web.requests) == 6 + 2


async def test_concurrent_requests_get_no_more_pages_of_a_host_than_it_may_give(queue: Queue, pages: Pages) -> None:
    queue.gate.set_policy("a.example", HostPolicy(min_delay_s=0.1, max_concurrent=8))
    await put(queue, *urls(20))
    # The first two requests are no pages, so two more URLs may take their places.
    web = SimulatedWeb({f"{A}/0": moved("/moved"), f"{A}/1": ConnectionResetError()}, clock=queue.clock, took_s=2.0)
    report = await queue.crawl(web, pages, max_pages_per_host=5)
    assert (report.pages, report.redirects, report.failed, report.left) == (5, 1, 1, 0)
    assert report.skipped == 21 - 5 - 2
    assert len(web.requests) == 5 + 2


async def test_skipped_urls_cost_their_host_no_interval(queue: Queue, pages: Pages) -> None:
    await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=urls(100))}), pages, max_pages_per_host=2)
    assert queue.clock.monotonic() < 5


async def test_after_its_time_a_crawl_finishes_pages_and_leaves_the_rest(queue: Queue, pages: Pages) -> None:
    await put(queue, *urls(10), f"{B}/slow")
    report = await queue.crawl(SimulatedWeb(clock=queue.clock, took_s=4.0), pages, max_time_s=1.5)
    assert sorted(pages.urls) == [f"{A}/0", f"{B}/slow"]
    assert (report.pages, report.left, report.failed) == (2, 9, 0)
    assert report.elapsed_s == pytest.approx(1.0 + 4.0)  # the first pages begin a second after their robots.txt
    later = await queue.crawl(SimulatedWeb(), pages, max_time_s=3600.0)
    assert (later.pages, later.left) == (9, 0)
    assert later.elapsed_s < 100  # it does not wait for the end of its time


# Records: crawl(out=)


def records(path: Path) -> dict[str, dict[str, Any]]:
    """The records by URL; fails for a URL with two."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {record["url"]: record for record in lines}
    assert len(found) == len(lines)
    return found


async def test_each_url_appends_one_record_with_its_outcome(queue: Queue, tmp_path: Path) -> None:
    async def read(page: CrawlPage[object], _: Reply) -> dict[str, object] | None:
        if page.url.endswith("/raises"):
            raise LookupError("no title")
        return {"title": "A", "status": "lost"} if page.url.endswith("/a") else None

    out = tmp_path / "pages.jsonl"
    out.write_text('{"url": "of an earlier crawl"}\n')
    queue.robots[A] = f"User-agent: *\nDisallow: /private\nSitemap: {A}/map.xml"
    replies = {
        f"{A}/map.xml": Reply(body=f"<urlset><url><loc>{A}/a</loc></url></urlset>".encode()),
        f"{A}/moved": moved("/a"),
        f"{A}/busy": Reply(503, {"Retry-After": "1"}),
        f"{A}/gone": Reply(404),
    }
    await put(queue, *(f"{A}/{path}" for path in ("moved", "busy", "gone", "private", "raises")))
    await queue.put_sitemaps(A)
    report = await queue.crawl(SimulatedWeb(replies), read, out=out, workers=1)
    found = records(out)
    found.pop("of an earlier crawl")
    problem = "was answered with 503 to 5 attempts"
    request = {"hops": [], "attempt": 1, "depth": 0}
    without = {"url", "started", "request_s", "elapsed_s"}
    shown = {url: {name: record[name] for name in record if name not in without} for url, record in found.items()}
    assert {url.removeprefix(A): record for url, record in shown.items()} == {
        "/moved": {"outcome": "redirect", "status": 301, "location": "/a", **request},
        "/a": {"outcome": "page", "status": 200, **request, "hops": [f"{A}/moved"], "title": "A"},
        "/gone": {"outcome": "page", "status": 404, **request},
        "/busy": {"outcome": "failed", "status": 503, **request, "attempt": 5, "error": problem},
        "/raises": {"outcome": "failed", "status": 200, **request, "error": "LookupError: no title"},
        "/map.xml": {"outcome": "sitemap", "status": 200, **request},
        "/private": {
            "outcome": "disallowed",
            "reason": "disallow-rule",
            "rule": {"line": 2, "field": "Disallow", "value": "/private"},
            "robots_url": f"{A}/robots.txt",
            "note": "",
        },
    }
    requested = [record for record in found.values() if record["outcome"] != "disallowed"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["started"]) for record in requested)
    assert (report.pages, report.failed, report.redirects, report.sitemaps, report.disallowed) == (2, 2, 1, 1, 1)


async def test_a_function_gets_each_record_before_the_next_request(queue: Queue) -> None:
    seen: list[tuple[object, ...]] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        seen.append(("handled", page.url))

    await put(queue, *urls(2))
    await queue.crawl(SimulatedWeb(), handle, out=lambda record: seen.append((record["outcome"], record["url"])))
    assert seen == [(what, url) for url in urls(2) for what in ("handled", "page")]


async def test_a_site_that_refuses_is_recorded_as_refused(queue: Queue) -> None:
    found: list[dict[str, Any]] = []
    queue = queue.made(max_refusals=1)
    await put(queue, *urls(2))
    web = SimulatedWeb({f"{A}/0": Reply(403, {"cf-mitigated": "challenge"})})
    await queue.crawl(web, follow_links, out=found.append, workers=1)
    assert [(record["outcome"], record.get("reason")) for record in found] == [("page", None), ("refused", "refused")]
    assert "challenge" in found[1]["note"]


async def test_a_record_that_cannot_be_written_ends_the_crawl_and_its_url_is_queued_again(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /disallowed"
    web = SimulatedWeb({f"{A}/redirect": moved("/target"), f"{A}/failed": Reply(301, {"Location": "mailto:x"})})
    for failing in ("page", "redirect", "failed", "disallowed"):

        def full(record: dict[str, Any], failing: str = failing) -> None:
            if record["outcome"] == failing:
                raise OSError("no space left")

        queue = queue.made()
        await queue.put(f"{A}/{failing}")
        await queue.put(f"{B}/later", priority=1)
        with pytest.raises(OSError, match="no space left"):
            await queue.crawl(web, follow_links, out=full, workers=1)
        assert (failing, f"{A}/{failing}" in left(queue)) == (failing, failing != "disallowed")


async def test_what_handle_returns_must_fit_into_json(queue: Queue, tmp_path: Path) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> dict[str, object]:
        return {"page": page}

    with pytest.raises(TypeError, match="CrawlPage is not JSON serializable"):
        await crawled(queue, SimulatedWeb(), handle, out=tmp_path / "pages.jsonl")
    assert queue.qsize() == 1


async def test_polite_crawl_with_a_slow_handler_is_acquitted_by_its_own_records(queue: Queue, tmp_path: Path) -> None:
    async def parse(page: CrawlPage[object], _: Reply) -> None:
        await queue.clock.sleep(30.0)

    robots, out = "User-agent: *\nCrawl-delay: 5\n", tmp_path / "pages.jsonl"
    queue.robots[A] = robots
    await put(queue, *urls(3))
    await queue.crawl(SimulatedWeb(clock=queue.clock, took_s=2.0), parse, out=out, workers=3)
    audit = Audit(AuditOptions(agents=("ExampleBot",), robots={A: robots}))
    assert list(audit.findings([out])) == []
    assert audit.counts()["requests"] == 3
    assert [(record["request_s"], record["elapsed_s"]) for record in records(out).values()] == [(2.0, 32.0)] * 3
