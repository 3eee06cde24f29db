"""``put_sitemaps``: which files are queued, which of their URLs are crawled, and what is said about the others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse._gate.turn import entered_turns
from politesse.errors import ClosedError, InvalidURL
from politesse.queue import CrawlPage, CrawlProgress, CrawlReport, PageFailed, PoliteQueue, QueueClosed
from politesse.queue._journal import Change, Journal
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue, Refusals
from tests.core.queue.simulated import Errors, Pages, Replies, Reply, SimulatedWeb, moved


def urlset(*urls: str) -> Reply:
    return Reply(body=f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode())


def index(*urls: str) -> Reply:
    files = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return Reply(body=f"<sitemapindex>{files}</sitemapindex>".encode())


async def crawl(queue: Queue, pages: Pages, replies: Mapping[str, Replies], **options: Any) -> CrawlReport:
    return await queue.crawl(SimulatedWeb(replies), pages, **options)


# Which files


async def test_the_sitemaps_that_robots_txt_lists_are_the_start_of_a_crawl(
    queue: Queue, fetcher: ScriptedFetcher, pages: Pages
) -> None:
    fetcher.answers[A] = f"User-agent: *\nDisallow: /private\nSitemap: {A}/maps/1.xml\nSitemap: {B}/2.xml"
    assert await queue.put_sitemaps(A, item="item", priority=3) == 2
    assert queue.left() == [(f"{A}/maps/1.xml", "item", 3), (f"{B}/2.xml", "item", 3)]
    one = urlset(f"{A}/1", f"{A}/private/1", f"{A}/maps/1")
    report = await crawl(queue, pages, {f"{A}/maps/1.xml": one, f"{B}/2.xml": urlset(f"{A}/2", f"{B}/2")})
    assert sorted(pages.urls) == [f"{A}/1", f"{A}/2", f"{A}/maps/1", f"{B}/2"]
    assert {(page.item, page.depth, page.attempt, page.hops) for page in pages.handled} == {("item", 0, 1, ())}
    assert (report.pages, report.sitemaps, report.disallowed, report.failed, report.left) == (4, 2, 1, 0, 0)
    assert ", 0 given up, 2 sitemaps, 0 left, in " in str(report)


@pytest.mark.parametrize("url", [A, f"{A}/", f"{A}#top"])
async def test_without_a_list_there_is_sitemap_xml(queue: Queue, url: str) -> None:
    assert await queue.put_sitemaps(url) == 1
    assert queue.left() == [(f"{A}/sitemap.xml", None, 0)]


@pytest.mark.parametrize("url", [f"{A}/maps/b.xml", f"{A}/?map=1"])
async def test_the_url_of_a_file_is_that_file(queue: Queue, fetcher: ScriptedFetcher, url: str) -> None:
    fetcher.answers[A] = f"Sitemap: {A}/a.xml"
    assert await queue.put_sitemaps(url) == 1
    assert queue.left() == [(url, None, 0)]


async def test_lines_and_files_that_cannot_be_used_are_logged(
    queue: Queue, fetcher: ScriptedFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    fetcher.answers[A] = "Sitemap: /one.xml\nSitemap: two.xml"
    fetcher.answers[B] = 503
    assert (await queue.put_sitemaps(A), await queue.put_sitemaps(B)) == (1, 1)
    first, second = (record.getMessage() for record in caplog.records if record.name == "politesse.queue")
    assert first.startswith(f"refused 2 sitemaps of {A}/robots.txt, line 1: /one.xml is not an absolute URL")
    assert second == f"{B}/robots.txt could not be read, so its sitemaps are unknown; trying /sitemap.xml"


async def test_a_file_is_logged_for_neither(queue: Queue, fetcher: ScriptedFetcher, caplog: Any) -> None:
    fetcher.answers[A], fetcher.answers[B] = "Sitemap: /one.xml", 503
    await queue.put_sitemaps(f"{A}/a.xml")
    await queue.put_sitemaps(f"{B}/b.xml")
    assert not [record for record in caplog.records if record.name == "politesse.queue"]


@pytest.mark.parametrize("since", ["2026-11-01", 0, datetime(2026, 11, 1), timedelta(1)])  # noqa: DTZ001 - no zone
async def test_a_since_without_a_zone_is_refused(queue: Queue, since: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"since=.*give a datetime with a zone"):
        await queue.put_sitemaps(A, since=since)
    assert not queue.qsize()


async def test_arguments_and_states_are_checked_as_by_put(queue: Queue, gate: Gatekeeper) -> None:
    with pytest.raises(InvalidURL):
        await queue.put_sitemaps("a.example")
    with pytest.raises(TypeError):
        await queue.put_sitemaps(A, priority="1")  # type: ignore[arg-type] # on purpose
    queue.close()
    with pytest.raises(QueueClosed):
        await queue.put_sitemaps(A)
    await gate.aclose()
    with pytest.raises(ClosedError):
        await queue.put_sitemaps(A)


async def test_a_disallowed_file_goes_to_on_disallowed(
    queue: Queue, fetcher: ScriptedFetcher, refused: Refusals, pages: Pages
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /sitemap"
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {})
    assert (refused.items, report.disallowed, report.sitemaps) == ([f"{A}/sitemap.xml"], 1, 0)


# Which URLs


@pytest.mark.parametrize(
    ("file", "listed", "crawled"),
    [
        (f"{A}/maps/1.xml", [f"{A}/maps/1", f"{A}/maps/a/2", f"{A}/3", f"{A}/mapsx"], ["/maps/1", "/maps/a/2"]),
        (f"{A}/1.xml", [f"{A}/1", f"{A}:444/2", f"{B}/5", "http://a.example/3", "https://www.a.example/4"], ["/1"]),
        (f"{A}/1.xml?x=/maps/", [f"{A}/1", f"{A}?a"], ["/1", "/?a"]),
        (f"{A}/%6Daps/1.xml", ["HTTPS://A.example:443/m%61ps/1", f"{A}/maps/../2"], ["/m%61ps/1"]),
    ],
)  # fmt: skip
async def test_a_file_lists_urls_below_its_folder(
    queue: Queue, pages: Pages, caplog: pytest.LogCaptureFixture, file: str, listed: list[str], crawled: list[str]
) -> None:
    await queue.put_sitemaps(file)
    report = await crawl(queue, pages, {file: urlset(*listed)})
    assert [url.removeprefix(A) for url in pages.urls] == crawled
    outside = len(listed) - len(crawled)
    assert (report.skipped, report.bad_links, report.failed) == (outside, 0, 0)
    messages = [message for message in caplog.messages if "refused; the first, " in message]
    assert len(messages) == bool(outside)
    assert all(message.startswith(f"{file}: {outside} URL") for message in messages)


async def test_a_file_that_its_own_robots_txt_lists_may_be_in_any_folder(
    queue: Queue, fetcher: ScriptedFetcher, pages: Pages
) -> None:
    fetcher.answers[A] = f"Sitemap: {A}/maps/1.xml"
    await queue.put_sitemaps(f"{A}/maps/1.xml")
    await crawl(queue, pages, {f"{A}/maps/1.xml": urlset(f"{A}/1", f"{B}/1")})
    assert pages.urls == [f"{A}/1"]


async def test_an_index_lists_files_of_its_site_and_of_the_listing_site(
    queue: Queue, fetcher: ScriptedFetcher, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    fetcher.answers[A] = f"Sitemap: {B}/maps/index.xml"
    await queue.put_sitemaps(A)
    files = index(f"{B}/other/1.xml", f"{A}/2.xml", "https://c.example/3.xml")
    one, two = urlset(f"{A}/1", f"{B}/other/1", f"{B}/1"), urlset(f"{A}/2", f"{B}/2")
    replies = {f"{B}/maps/index.xml": files, f"{B}/other/1.xml": one, f"{A}/2.xml": two}
    report = await crawl(queue, pages, replies)
    assert sorted(pages.urls) == [f"{A}/1", f"{A}/2", f"{B}/other/1"]
    assert (report.sitemaps, report.skipped) == (3, 3)
    assert f"{B}/maps/index.xml: 1 URL refused; the first, 'https://c.example/3.xml', is not below" in caplog.text


async def test_files_of_the_sitemap_xml_of_an_origin_may_list_all_its_urls(queue: Queue, pages: Pages) -> None:
    replies = {f"{A}/sitemap.xml": index(f"{A}/maps/1.xml"), f"{A}/maps/1.xml": urlset(f"{A}/1", f"{B}/1")}
    await queue.put_sitemaps(A)
    assert (await crawl(queue, pages, replies)).skipped == 1
    assert pages.urls == [f"{A}/1"]
    await queue.put_sitemaps(f"{A}/sitemap.xml")
    assert (await crawl(queue, pages, replies)).skipped == 2
    assert pages.urls == [f"{A}/1"]


async def test_after_a_redirect_the_folder_of_the_url_that_was_put_counts(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(f"{A}/maps/1.xml")
    replies = {f"{A}/maps/1.xml": moved(f"{B}/2.xml"), f"{B}/2.xml": urlset(f"{A}/maps/1", f"{A}/1", f"{B}/1")}
    report = await crawl(queue, pages, replies)
    assert pages.urls == [f"{A}/maps/1"]
    assert (report.redirects, report.sitemaps, report.skipped) == (1, 1, 2)


async def test_entries_that_are_no_urls_are_bad_links(queue: Queue, pages: Pages, caplog: Any) -> None:
    await queue.put_sitemaps(A)
    bad = ["/relative", "", "ftp://a.example/", f"{A}:99999/", "https://", f"{A}/{'x' * 21_000}"]
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": urlset(*bad, f"{A}/1")})
    assert (pages.urls, report.bad_links, report.failed) == ([f"{A}/1"], 6, 0)
    assert f"{A}/sitemap.xml: 6 URLs refused; the first, '/relative', is no http(s) URL" in caplog.text


async def test_patterns_leave_out_urls_but_no_files(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    replies = {
        f"{A}/sitemap.xml": moved("/index.xml"),
        f"{A}/index.xml": index(f"{A}/1.xml"),
        f"{A}/1.xml": urlset(f"{A}/docs/1", f"{A}/docs/2.pdf", f"{A}/1"),
    }
    report = await crawl(queue, pages, replies, allow=["/docs/"], deny=["/*.pdf$"], depth=0)
    assert (pages.urls, report.skipped, report.sitemaps) == ([f"{A}/docs/1"], 2, 2)


def dated(kind: str, dates: Mapping[str, str]) -> Reply:
    """Return a urlset or a sitemapindex with a date for each URL."""
    entry = {"urlset": "url", "sitemapindex": "sitemap"}[kind]
    entries = (f"<{entry}><loc>{url}</loc><lastmod>{date}</lastmod></{entry}>" for url, date in dates.items())
    return Reply(body=f"<{kind}>{''.join(entries)}</{kind}>".encode())


async def test_since_leaves_out_urls_with_an_older_date(queue: Queue, pages: Pages) -> None:
    since = datetime(2026, 11, 2, 1, tzinfo=timezone(timedelta(hours=1)))
    await queue.put_sitemaps(A, since=since)
    dates = {
        f"{A}/{date}": date
        for date in ("2026-11-01", "2026-11-02", "2026", "2025", "today", "", "2026-11-02T00:59+01:00")
    }
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": dated("urlset", dates)})
    assert sorted(pages.urls) == [f"{A}/{date}" for date in ("", "2026", "2026-11-02", "today")]
    assert (report.skipped, report.bad_links, report.failed) == (3, 0, 0)


async def test_since_leaves_out_files_of_an_index_and_is_handed_on_to_the_others(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A, since=datetime(2026, 11, 2, tzinfo=UTC))
    replies = {
        f"{A}/sitemap.xml": dated("sitemapindex", {f"{A}/old.xml": "2026-11-01", f"{A}/new.xml": "2026-11-02"}),
        f"{A}/new.xml": dated("urlset", {f"{A}/1": "2026-11-01", f"{A}/2": "2026-11-03"}),
    }
    report = await crawl(queue, pages, replies)
    assert (pages.urls, report.skipped, report.sitemaps, report.failed) == ([f"{A}/2"], 2, 2, 0)


# The crawl


async def test_files_wait_behind_all_pages_of_their_host(queue: Queue) -> None:
    web = SimulatedWeb(
        {f"{A}/{n}.xml": urlset(f"{A}/{n}1", f"{A}/{n}2") for n in (1, 2)} | {f"{A}/11": Reply(links=["/link"])}
    )
    await queue.put_sitemaps(f"{A}/1.xml", priority=-1)
    await queue.put_sitemaps(f"{A}/2.xml", priority=-2)
    await queue.put(f"{A}/page", priority=5)
    sizes = []

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        sizes.append(queue.qsize())
        for link in reply.links:
            page.put(str(link))

    await queue.crawl(web, handle)
    paths = ["/page", "/2.xml", "/21", "/22", "/1.xml", "/11", "/12", "/link"]
    assert web.urls == [A + path for path in paths]
    assert max(sizes) == 2


async def test_files_do_not_count_as_pages(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    replies = {f"{A}/sitemap.xml": index(f"{A}/1.xml", f"{A}/2.xml"), f"{A}/1.xml": urlset(f"{A}/1", f"{A}/2")}
    report = await crawl(queue, pages, replies, max_pages=1)
    assert (pages.urls, report.pages, report.sitemaps, report.left) == ([f"{A}/1"], 1, 2, 2)
    report = await crawl(queue, pages, replies | {f"{A}/2.xml": urlset(f"{B}/")}, max_pages_per_host=1)
    # The host has given its page, so its other file is not requested.
    assert (pages.urls, report.pages, report.sitemaps, report.skipped) == ([f"{A}/1", f"{A}/2"], 1, 0, 1)


async def test_a_file_is_requested_again_after_503_and_its_urls_are_crawled_once(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    await queue.put_sitemaps(A)
    await queue.put(f"{A}/1")
    web = SimulatedWeb({f"{A}/sitemap.xml": [Reply(503), urlset(f"{A}/1", f"{A}/2", f"{A}/2#x", f"{A}/sitemap.xml")]})
    progress: list[CrawlProgress] = []
    report = await queue.crawl(web, pages, on_progress=progress.append)
    assert web.requests == {f"{A}/1": 1, f"{A}/2": 1, f"{A}/sitemap.xml": 3}
    assert (report.retried, report.sitemaps, progress[-1].sitemaps) == (1, 2, 2)


async def test_the_crawl_adds_urls_beyond_maxsize(gate: Gatekeeper, pages: Pages) -> None:
    queue: Queue = PoliteQueue(gate, maxsize=2)
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": urlset(*(f"{A}/{n}" for n in range(10)))})
    assert (report.pages, report.left) == (10, 0)


async def test_a_handler_puts_sitemaps_and_each_only_once(queue: Queue, pages: Pages) -> None:
    counts = []

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        counts.append(await queue.put_sitemaps(A))
        await pages(page, reply)

    await queue.put(f"{A}/")
    await queue.crawl(SimulatedWeb({f"{A}/sitemap.xml": urlset(f"{A}/1")}), handle)
    assert (counts, pages.urls) == ([1, 0], [f"{A}/", f"{A}/1"])


async def test_the_turn_of_a_file_lasts_until_its_body_is_read(queue: Queue, pages: Pages, clock: ManualClock) -> None:
    meanwhile = []

    class SlowFile(Reply):
        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            yield self.body[:-9]
            await clock.sleep(100)
            meanwhile.append((web.urls, queue.qsize()))
            yield self.body[-9:]

    web = SimulatedWeb({f"{A}/1.xml": SlowFile(body=urlset(f"{A}/1").body), f"{A}/2.xml": urlset(f"{A}/2")})
    await queue.put_sitemaps(f"{A}/1.xml")
    await queue.put_sitemaps(f"{A}/2.xml")
    await queue.crawl(web, pages)
    assert meanwhile == [([f"{A}/1.xml"], 2)]
    assert web.urls == [f"{A}/{name}" for name in ("1.xml", "1", "2.xml", "2")]


class EagerWeb(SimulatedWeb):
    """Its responses end the turns, as those of a PoliteSession do once the body has arrived."""

    @asynccontextmanager
    async def stream(self, *given: Any, **options: Any) -> AsyncIterator[Reply]:
        async with super().stream(*given, **options) as reply:
            for turn in entered_turns():
                turn.observe(200)
                turn.end()
            yield reply


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_file_waits_for_the_file_that_is_being_read(
    queue: Queue, pages: Pages, clock: ManualClock, *, is_cancelled: bool
) -> None:
    class SlowFile(Reply):
        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            yield self.body[:20]
            await clock.sleep(100)
            yield self.body[20:]

    slow = SlowFile(body=urlset(f"{A}/1", f"{A}/2").body)
    web = EagerWeb({f"{A}/1.xml": slow, f"{A}/2.xml": urlset(f"{A}/3"), f"{A}/3.xml": urlset()})
    for number in (1, 2, 3):
        await queue.put_sitemaps(f"{A}/{number}.xml")
    crawling = asyncio.ensure_future(queue.crawl(web, pages))
    if is_cancelled:
        await clock.sleep(50)
        assert sorted(web.urls) == [f"{A}/1.xml"]
        assert queue.qsize() == 1  # the other file is with a worker, which waits
        crawling.cancel()
    await asyncio.wait([crawling])
    if is_cancelled:
        assert sorted(url for url, *_ in queue.left()) == [f"{A}/{number}.xml" for number in (1, 2, 3)]
    else:
        names = ("1.xml", "1", "2", "2.xml", "3", "3.xml")
        assert sorted(web.urls) == sorted(f"{A}/{name}" for name in names)
        assert web.urls.index(f"{A}/2.xml") > web.urls.index(f"{A}/2")
        assert set(web.requests.values()) == {1}


# Faults


@pytest.mark.parametrize("status", [204, 206, 304, 404, 410, 500])
async def test_a_file_that_is_answered_with_an_error_has_failed(
    queue: Queue, pages: Pages, errors: Errors, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    await queue.put_sitemaps(f"{A}/sitemap.xml")
    body = b"" if status == 204 else urlset(f"{A}/1").body
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": Reply(status, body=body)}, on_error=errors)
    assert (report.failed, report.pages, report.sitemaps) == (1, 0, 0)
    [(url, error)] = errors.seen
    assert isinstance(error, PageFailed)
    assert (url, error.status) == (f"{A}/sitemap.xml", status)
    [record] = [record for record in caplog.records if "sitemap.xml" in record.getMessage()]
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize(("status", "failed"), [(404, 0), (410, 0), (500, 1)])
async def test_a_site_that_lists_no_sitemap_needs_no_sitemap_xml(
    queue: Queue, pages: Pages, status: int, failed: int
) -> None:
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": Reply(status)})
    assert (report.failed, report.pages) == (failed, 0)


async def test_a_connection_that_breaks_keeps_the_urls_before(
    queue: Queue, pages: Pages, errors: Errors, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.put_sitemaps(A)
    body = urlset(f"{A}/1", "/bad").body
    reply = Reply(body=body, breaks_off=OSError("reset"))
    report = await crawl(queue, pages, {f"{A}/sitemap.xml": reply}, on_error=errors)
    assert (pages.urls, errors.texts, report.failed, report.sitemaps) == ([f"{A}/1"], ["reset"], 1, 0)
    levels = [record.levelno for record in caplog.records if "sitemap.xml" in record.getMessage()]
    assert levels == [logging.WARNING, logging.WARNING]  # the refused entry, and the error


async def test_on_error_tells_files_from_pages(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(f"{A}/sitemap.xml")
    replies: dict[str, Replies] = {f"{A}/sitemap.xml": [Reply(503), moved("/a.xml")], f"{A}/a.xml": Reply(404)}
    seen = []
    await crawl(queue, pages, replies, on_error=lambda page, _: seen.append(page))
    await queue.put(f"{B}/")
    await crawl(queue, pages, {f"{B}/": moved("/")}, on_error=lambda page, _: seen.append(page))
    assert [(page.url, page.is_sitemap, page.hops, page.attempt) for page in seen] == [
        (f"{A}/a.xml", True, (f"{A}/sitemap.xml",), 1),
        (f"{B}/", False, (), 1),
    ]


async def test_an_error_of_seen_ends_the_crawl_and_keeps_the_file(queue: Queue, pages: Pages) -> None:
    class Full(set[str]):
        def add(self, url: str, /) -> None:
            if url.endswith("/2"):
                raise OSError("full")
            super().add(url)

    await queue.put_sitemaps(A)
    replies = {f"{A}/sitemap.xml": urlset(f"{A}/1", f"{A}/2")}
    with pytest.raises(OSError, match="full"):
        await crawl(queue, pages, replies, seen=Full())
    assert sorted(url for url, *_ in queue.left()) == [f"{A}/1", f"{A}/sitemap.xml"]
    await crawl(queue, pages, replies)
    assert sorted(pages.urls) == [f"{A}/1", f"{A}/2"]


# The journal


async def test_a_journal_keeps_files_as_files(tmp_path: Path, pages: Pages) -> None:
    """Each run ends after one answer, so the mark of each file is read from the journal."""
    web = SimulatedWeb(
        {
            f"{B}/sitemap.xml": [Reply(503), moved(f"{B}/maps/index.xml")],
            f"{B}/maps/index.xml": dated("sitemapindex", {f"{B}/old.xml": "2026-10", f"{A}/new.xml": "2026-11-02"}),
            f"{A}/new.xml": dated("urlset", {f"{A}/1": "2026-11-02", f"{A}/2": "2026-11-01", f"{B}/3": "2026-11-02"}),
        }
    )
    fetcher = ScriptedFetcher({A: f"Sitemap: {B}/sitemap.xml"})
    put, left = [], 1

    def end(_: CrawlProgress) -> None:
        raise EOFError

    while left:
        async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate:
            queue: Queue = PoliteQueue(gate, journal=tmp_path / "crawl.db")
            put.append(await queue.put_sitemaps(A, since=datetime(2026, 11, 2, tzinfo=UTC)))
            with suppress(EOFError):
                await queue.crawl(web, pages, workers=1, on_progress=end)
            left = queue.qsize()
    assert web.requests == {f"{B}/sitemap.xml": 2, f"{B}/maps/index.xml": 1, f"{A}/new.xml": 1, f"{A}/1": 1}
    assert put == [1, 0, 0, 0, 0]
    assert pages.urls == [f"{A}/1"]


async def test_a_file_waits_for_a_journal_that_is_far_behind(
    tmp_path: Path, gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, sizes = Journal.commit, []

    async def commit_late(journal: Journal, changes: Sequence[Change]) -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)
        await commit(journal, changes)

    def slow_commit(journal: Journal, changes: Sequence[Change]) -> asyncio.Future[None]:
        sizes.append(len(changes))
        return asyncio.ensure_future(commit_late(journal, changes))

    monkeypatch.setattr(Journal, "commit", slow_commit)
    monkeypatch.setattr("politesse.queue._journal._MAX_BEHIND", 100)
    async with PoliteQueue[object](gate, journal=tmp_path / "crawl.db") as queue:
        await queue.put_sitemaps(A)
        body = "".join(f"{A}/{number}\n" for number in range(3_000)).encode()
        await crawl(queue, Pages(), {f"{A}/sitemap.xml": Reply(body=body, chunk_octets=10**6)}, max_pages=1)
        assert queue.qsize() == 2_999
    assert max(sizes) < 100 + 8_192 / len(f"{A}/1\n")  # and the entries of one slice
