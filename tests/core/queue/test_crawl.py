"""The loop over a simulated web: what is requested, handed to ``handle``, queued, retried and reported."""

import asyncio
from math import nan
from typing import Any

import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse.queue import CrawlPage, CrawlProgress, CrawlReport, PageFailed, PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import A, B, C, Queue, Refusals, put
from tests.core.queue.simulated import Errors, Pages, Reply, SimulatedWeb, crawled, follow_links, moved


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


@pytest.mark.parametrize("wrong", ["1", None, (1, 2), 1j, nan])
async def test_a_priority_that_cannot_be_compared_is_an_error_of_page_put(
    queue: Queue, errors: Errors, wrong: Any
) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        page.put("/1")
        page.put("/2", priority=wrong)

    report = await crawled(queue, SimulatedWeb(), handle, on_error=errors)
    assert (report.pages, report.failed, report.left) == (0, 2, 0)
    assert all(text.startswith(f"priority={wrong!r}: give a") for text in errors.texts)


@pytest.mark.parametrize(
    "link",
    [
        None,
        "http://[",
        "http://",
        "//",
        "/lone\ud800surrogate",
        "/nul\x00",
        "http://a.example:99999/",
        "/" + "x" * 30_000,
        "/" + "\u00e9" * 5_000,  # some 10,000 octets, and three times that once they are escaped
    ],
)
async def test_a_link_that_is_no_url_is_counted_and_never_an_error(queue: Queue, link: object) -> None:
    report = await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=[link])}), follow_links)
    assert (report.pages, report.failed, report.bad_links) == (1, 0, 1)


@pytest.mark.parametrize(("depth", "paths"), [(0, "/"), (1, "/ /1 /2"), (2, "/ /1 /2 /3"), (None, "/ /1 /2 /3 /4")])
async def test_links_are_followed_to_the_depth(queue: Queue, pages: Pages, depth: int | None, paths: str) -> None:
    links = {"/": ["/1", "/2"], "/1": ["/2", "/3"], "/3": ["/", "/4"]}
    web = SimulatedWeb({A + path: Reply(links=found) for path, found in links.items()})
    await crawled(queue, web, pages, depth=depth)
    assert sorted(pages.urls) == [A + path for path in paths.split()]


async def test_the_depth_of_a_page_counts_links_and_neither_redirects_nor_attempts(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb(
        {
            f"{A}/": Reply(links=["/moved"]),
            f"{A}/moved": moved(f"{B}/busy"),
            f"{B}/busy": [Reply(503), Reply(links=["/last"])],
        }
    )
    await crawled(queue, web, pages)
    assert [(page.url, page.depth) for page in pages.handled] == [(f"{A}/", 0), (f"{B}/busy", 1), (f"{B}/last", 2)]


async def test_a_link_that_is_too_deep_is_followed_from_a_page_that_is_not(queue: Queue, pages: Pages) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1"]), f"{A}/1": Reply(links=["/2"]), f"{B}/": Reply(links=[f"{A}/2"])})
    await queue.put(f"{A}/")
    await queue.crawl(web, pages, depth=1)
    assert pages.urls == [f"{A}/", f"{A}/1"]
    seen = {f"{A}/", f"{A}/1"}
    await queue.put(f"{B}/")
    await queue.crawl(web, pages, depth=1, seen=seen)
    assert pages.urls[2:] == [f"{B}/", f"{A}/2"]


@pytest.mark.parametrize("link", ["mailto:us@a.example", " JavaScript:void(0)", "tel:+44", "ftp://a.example/"])
async def test_a_link_of_another_scheme_is_ignored(queue: Queue, link: str) -> None:
    report = await crawled(queue, SimulatedWeb({f"{A}/": Reply(links=[link])}), follow_links)
    assert (report.pages, report.failed, report.left, report.bad_links) == (1, 0, 0, 0)


@pytest.mark.parametrize("link", [b"/octets", 7, ["/a"]])
async def test_a_link_of_another_type_is_an_error_of_page_put(queue: Queue, errors: Errors, link: Any) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        page.put(link)

    report = await crawled(queue, SimulatedWeb(), handle, on_error=errors)
    assert (report.failed, report.bad_links) == (1, 0)
    assert errors.texts == [f"link={link!r}: give a str or yarl.URL, not {type(link).__name__}"]


async def test_every_status_but_redirects_and_those_of_a_busy_host_is_a_page(queue: Queue, pages: Pages) -> None:
    statuses = [200, 204, 300, 304, 400, 401, 403, 404, 410, 500, 501, 505]
    web = SimulatedWeb({f"{A}/{status}": Reply(status) for status in statuses})
    for status in statuses:
        await queue.put(f"{A}/{status}")
    assert (await queue.crawl(web, pages)).pages == len(statuses)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_queued_with_its_item(queue: Queue, pages: Pages, status: int) -> None:
    await queue.put(f"{A}/old", "item")
    report = await queue.crawl(SimulatedWeb({f"{A}/old": moved(f"{B}/new", status)}), pages)
    [page] = pages.handled
    assert (page.url, page.item, page.hops, page.attempt) == (f"{B}/new", "item", (f"{A}/old",), 1)
    assert (report.pages, report.redirects) == (1, 1)


async def test_no_worker_waits_for_the_target_of_a_redirect(
    queue: Queue, clock: ManualClock, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[B] = "User-agent: *\nCrawl-delay: 100\n"
    finished: list[tuple[str, float]] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        finished.append((page.url, clock.monotonic()))

    await put(queue, f"{A}/moved", f"{C}/1", f"{C}/2", f"{C}/3")
    await queue.crawl(SimulatedWeb({f"{A}/moved": moved(f"{B}/")}), handle, workers=1)
    assert [url for url, _ in finished] == [f"{C}/1", f"{C}/2", f"{C}/3", f"{B}/"]
    assert finished[2][1] < 10


async def test_a_redirect_to_what_was_seen_ends_there(queue: Queue, pages: Pages) -> None:
    await queue.put(f"{A}/")
    await queue.put(f"{A}/moved")
    report = await queue.crawl(SimulatedWeb({f"{A}/moved": moved("/")}), pages)
    assert pages.urls == [f"{A}/"]
    assert (report.redirects, report.failed) == (1, 0)


async def test_a_redirect_to_another_spelling_of_its_url_is_followed(queue: Queue, pages: Pages) -> None:
    await queue.put(f"{A}/%7euser")
    await queue.crawl(SimulatedWeb({f"{A}/%7euser": moved("/~user")}), pages)
    assert pages.urls == [f"{A}/~user"]


@pytest.mark.parametrize("location", ["ftp://a.example/", "mailto:us@a.example", "http://[", "http:", " "])
async def test_a_redirect_to_no_http_url_is_reported(queue: Queue, pages: Pages, errors: Errors, location: str) -> None:
    await queue.put(f"{A}/moved")
    report = await queue.crawl(SimulatedWeb({f"{A}/moved": moved(location)}), pages, on_error=errors)
    assert (report.pages, report.failed) == (0, 1)
    [(url, error)] = errors.seen
    assert isinstance(error, PageFailed)
    assert (url, error.url, error.status) == (f"{A}/moved", f"{A}/moved", 301)
    assert repr(location) in str(error)


async def test_a_redirect_to_itself_is_reported(queue: Queue, pages: Pages, errors: Errors) -> None:
    await queue.put(f"{A}/cookie")
    report = await queue.crawl(SimulatedWeb({f"{A}/cookie": moved("/cookie#top", 302)}), pages, on_error=errors)
    assert (report.pages, report.failed, report.redirects) == (0, 1, 0)
    assert errors.texts == [f"{A}/cookie redirects to itself with 302, as sites do that want a cookie first"]


async def test_a_link_that_a_child_task_puts_after_the_end_is_left(queue: Queue) -> None:
    over = asyncio.Event()
    children: list[asyncio.Task[bool]] = []

    async def later(page: CrawlPage[object]) -> bool:
        await over.wait()
        return page.put("/late")

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        children.append(asyncio.create_task(later(page)))

    await queue.put(f"{A}/")
    assert (await queue.crawl(SimulatedWeb(), handle)).left == 0
    over.set()
    assert await children[0] is True
    assert [url for url, _, _ in queue.left()] == [f"{A}/late"]


async def test_on_progress_costs_the_same_however_many_origins_are_deferred(
    gate: Gatekeeper, fetcher: ScriptedFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call listed all of them."""
    fetcher.answers[B] = 503
    await gate.check(B)
    queue: Queue = PoliteQueue(gate, max_unreachable_s=100)
    monkeypatch.setattr(type(queue._dispatcher.robots), "deferred", property(lambda _: pytest.fail("listed")))
    progress: list[CrawlProgress] = []
    for origin in (A, B):
        await queue.put(f"{origin}/")
    await queue.crawl(SimulatedWeb(), Pages(), on_progress=progress.append)
    assert [(now.pages, now.queued, now.hosts, now.given_up) for now in progress] == [(1, 1, 1, 0), (1, 0, 0, 1)]


async def test_10_000_redirects_over_two_hosts_end_with_a_report(queue: Queue, pages: Pages, errors: Errors) -> None:
    def reply(url: str) -> Reply:
        host, place = url.rsplit("/", 1)
        return moved(f"{B if host == A else A}/{(int(place) + 1) % 10_000}")

    web = SimulatedWeb(reply)
    await queue.put(f"{A}/0")
    report = await queue.crawl(web, pages, on_error=errors)
    assert sum(web.requests.values()) == 11
    assert errors.texts == [f"{A}/10 is the end of 10 redirects, and redirects again"]
    assert (report.failed, report.redirects, report.left) == (1, 10, 0)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refused_request_is_repeated_when_its_host_opens(
    queue: Queue, pages: Pages, clock: ManualClock, status: int
) -> None:
    refusal = Reply(status, {"Retry-After": "100"})
    await queue.put(f"{A}/busy", "item")
    report = await queue.crawl(SimulatedWeb({f"{A}/busy": [refusal, refusal, Reply()]}), pages)
    [page] = pages.handled
    assert (page.url, page.item, page.attempt) == (f"{A}/busy", "item", 3)
    assert clock.monotonic() >= 200
    assert (report.pages, report.retried, report.failed) == (1, 2, 0)


async def test_a_url_fails_after_five_attempts(queue: Queue, pages: Pages, errors: Errors) -> None:
    web = SimulatedWeb({f"{A}/busy": Reply(503)})
    await queue.put(f"{A}/busy")
    report = await queue.crawl(web, pages, on_error=errors)
    assert web.requests[f"{A}/busy"] == 5
    assert errors.texts == [f"{A}/busy was answered with 503 to 5 attempts"]
    assert (report.pages, report.retried, report.failed) == (0, 4, 1)


@pytest.mark.parametrize("error", [TimeoutError("slow"), OSError("reset"), ValueError("no answer")])
async def test_a_request_that_fails_is_reported_and_the_crawl_goes_on(
    queue: Queue, pages: Pages, errors: Errors, error: Exception
) -> None:
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    report = await queue.crawl(SimulatedWeb({f"{A}/1": error}), pages, on_error=errors, stop_on_error=True)
    assert errors.seen == [(f"{A}/1", error)]
    assert pages.urls == [f"{A}/2"]
    assert (report.pages, report.failed) == (1, 1)


async def test_disallowed_urls_are_counted(gate: Gatekeeper, pages: Pages, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    refusals = Refusals()
    queue: Queue = PoliteQueue(gate, on_disallowed=refusals)
    progress: list[CrawlProgress] = []
    await queue.put(f"{A}/")
    web = SimulatedWeb({f"{A}/": Reply(links=["/private/1", "/private/2"])})
    report = await queue.crawl(web, pages, on_progress=progress.append)
    assert (report.pages, report.disallowed) == (1, 2)
    assert refusals.items == [f"{A}/private/1", f"{A}/private/2"]
    assert [shown.disallowed for shown in progress] == [0, 1, 2]


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


@pytest.mark.parametrize("workers", [1, 3, 20])
async def test_max_pages_is_exact_and_the_rest_is_left(queue: Queue, pages: Pages, workers: int) -> None:
    await put(queue, *(f"https://h{place}.example/" for place in range(30)))
    web = SimulatedWeb({f"https://h{place}.example/": moved("/2") for place in range(0, 30, 2)})
    report = await queue.crawl(web, pages, workers=workers, max_pages=7)
    assert (report.pages, len(pages.handled)) == (7, 7)
    assert report.left == queue.qsize() == 30 - 7
    assert (await queue.crawl(web, pages)).left == 0
    assert len(pages.handled) == 30


async def test_handle_that_closes_the_queue_ends_the_crawl_when_it_is_empty(queue: Queue) -> None:
    handled: list[str] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        handled.append(page.url)
        if page.url.endswith("/2"):
            queue.close()
            assert not page.put("/late")

    for path in ("/1", "/2", "/busy"):
        await queue.put(f"{A}{path}")
    report = await queue.crawl(SimulatedWeb({f"{A}/busy": [Reply(503), Reply()]}), handle)
    assert handled == [f"{A}/1", f"{A}/2", f"{A}/busy"]
    assert (report.pages, report.failed, report.left) == (3, 0, 0)


async def test_a_second_crawl_at_once_is_an_error_and_one_after_the_other_is_not(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    first = asyncio.create_task(queue.crawl(SimulatedWeb(), follow_links))
    await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="is being crawled"):
        await queue.crawl(SimulatedWeb(), follow_links)
    assert (await first).pages == 1
    await queue.put(f"{A}/1")
    assert (await queue.crawl(SimulatedWeb(), follow_links)).pages == 1


async def test_progress_is_reported_for_each_url_and_sums_up(queue: Queue, clock: ManualClock) -> None:
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
    assert report.elapsed_s == clock.monotonic()
    assert str(report).startswith("2 pages, 1 failed, 1 redirect, 0 disallowed, 0 given up, 0 left, 1 bad link, in ")
    assert isinstance(report, CrawlReport)


async def test_what_is_given_up_and_what_is_finished_are_counted_for_themselves(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private"
    fetcher.answers[B] = 503
    queue: Queue = PoliteQueue(gate, max_unreachable_s=0)
    await put(queue, f"{A}/1", f"{A}/2", f"{A}/3", f"{A}/private", f"{B}/1", f"{B}/2")
    progress: list[CrawlProgress] = []
    report = await queue.crawl(SimulatedWeb(), Pages(), on_progress=progress.append)
    assert len(progress) == 6
    assert {now.pages + now.disallowed + now.given_up + now.queued + now.under_way for now in progress} == {6}
    assert str(report).startswith("3 pages, 0 failed, 0 redirects, 1 disallowed, 2 given up, 0 left, in ")
    again = await queue.crawl(SimulatedWeb(), Pages())
    assert (again.disallowed, again.given_up) == (0, 0)


@pytest.mark.parametrize("options", [{"workers": 0}, {"max_pages": 0}, {"depth": -1}])
async def test_numbers_that_are_no_counts_are_refused(queue: Queue, options: dict[str, int]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(ConfigurationError, match=f"{name}={value!r}: give at least {value + 1}"):
        await queue.crawl(SimulatedWeb(), follow_links, **options)  # type: ignore[arg-type]


async def test_callbacks_of_the_wrong_kind_are_refused(queue: Queue, pages: Pages) -> None:
    def plain(page: object, reply: object) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handle=.*: give .* as in 'async def handle\(page, response\)'"):
        await queue.crawl(SimulatedWeb(), plain)  # type: ignore[arg-type]

    async def without_page(response: object) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handle=.*: give .* as in 'async def handle\(page, response\)'"):
        await queue.crawl(SimulatedWeb(), without_page)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"on_error=.*: give a function that is not asynchronous"):
        await queue.crawl(SimulatedWeb(), pages, on_error=follow_links)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on_progress=5: give a function"):
        await queue.crawl(SimulatedWeb(), pages, on_progress=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"seen=.*: give a set"):
        await queue.crawl(SimulatedWeb(), pages, seen=["a"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="web=5: give a PoliteSession"):
        await queue.crawl(5, pages)  # type: ignore[arg-type]
