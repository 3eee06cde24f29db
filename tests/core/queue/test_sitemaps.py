"""``put_sitemaps``: which files are queued, how they are read, and which of their URLs are crawled."""

import asyncio
import gzip
import logging
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.sax.saxutils import escape

import pytest

from politesse import ConfigurationError, PacingOptions
from politesse.errors import ClosedError, InvalidURL
from politesse.queue import CrawlPage, CrawlProgress, CrawlReport, PageFailed, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import A, B, Queue, left, made
from tests.core.queue.simulated import Errors, Pages, Replies, Reply, SimulatedWeb, follow_links, moved
from tests.support.tiers import first_of

MAP: Final = f"{A}/sitemap.xml"
SINCE: Final = datetime(2026, 11, 2, tzinfo=UTC)


def urlset(*urls: str) -> Reply:
    return Reply(body=f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode())


def index(*urls: str) -> Reply:
    files = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return Reply(body=f"<sitemapindex>{files}</sitemapindex>".encode())


def dated(kind: str, dates: Mapping[str, str]) -> Reply:
    """Return a urlset or a sitemapindex with a date for each URL."""
    entry = {"urlset": "url", "sitemapindex": "sitemap"}[kind]
    entries = (f"<{entry}><loc>{url}</loc><lastmod>{date}</lastmod></{entry}>" for url, date in dates.items())
    return Reply(body=f"<{kind}>{''.join(entries)}</{kind}>".encode())


async def crawl(queue: Queue, pages: Pages, replies: Mapping[str, Replies], **options: Any) -> CrawlReport:
    return await queue.crawl(SimulatedWeb(replies), pages, **options)


async def read(queue: Queue, body: bytes | str, chunk_octets: int = 10) -> tuple[list[str], list[str], CrawlReport]:
    """Crawl from a sitemap file; return the URLs of its pages, its errors, and the report."""
    pages, errors = Pages(), Errors()
    reply = Reply(body=body.encode() if isinstance(body, str) else body, chunk_octets=chunk_octets)
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {MAP: reply}, on_error=errors)
    return pages.urls, errors.texts, report


# Which files


async def test_the_sitemaps_that_robots_txt_lists_are_the_start_of_a_crawl(queue: Queue, pages: Pages) -> None:
    queue.robots[A] = f"User-agent: *\nDisallow: /private\nSitemap: {A}/maps/1.xml\nSitemap: {B}/2.xml"
    assert await queue.put_sitemaps(A, item="item", priority=3) == 2
    assert queue.left() == [(f"{A}/maps/1.xml", "item", 3), (f"{B}/2.xml", "item", 3)]
    one = urlset(f"{A}/1", f"{A}/private/1", f"{A}/maps/1")
    report = await crawl(queue, pages, {f"{A}/maps/1.xml": one, f"{B}/2.xml": urlset(f"{A}/2", f"{B}/2")})
    assert sorted(pages.urls) == [f"{A}/1", f"{A}/2", f"{A}/maps/1", f"{B}/2"]
    assert {(page.item, page.depth, page.attempt, page.hops) for page in pages.handled} == {("item", 0, 1, ())}
    assert (report.pages, report.sitemaps, report.disallowed, report.failed, report.left) == (4, 2, 1, 0, 0)
    assert ", 0 given up, 2 sitemaps, 0 left, in " in str(report)


async def test_an_origin_without_a_list_has_sitemap_xml_and_any_other_url_is_the_file(queue: Queue) -> None:
    queue.robots[B] = f"Sitemap: {B}/a.xml"
    files = {A: MAP, f"{A}/": MAP, f"{A}#top": MAP} | {url: url for url in (f"{B}/maps/b.xml", f"{B}/?map=1")}
    found = {}
    for url in files:
        queue = queue.made()
        assert await queue.put_sitemaps(url) == 1
        [(found[url], item, priority)] = queue.left()
        assert (item, priority) == (None, 0)
    assert found == files


async def test_bad_lists_are_logged_unless_a_file_is_named(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.robots[A], queue.robots[B] = "Sitemap: /one.xml\nSitemap: two.xml", 503
    await queue.put_sitemaps(f"{A}/a.xml")
    await queue.put_sitemaps(f"{B}/b.xml")
    assert not [record for record in caplog.records if record.name == "politesse.queue"]
    assert (await queue.put_sitemaps(A), await queue.put_sitemaps(B)) == (1, 1)
    first, second = (record.getMessage() for record in caplog.records if record.name == "politesse.queue")
    assert first.startswith(f"refused 2 sitemaps of {A}/robots.txt, line 1: /one.xml is not an absolute URL")
    assert second == f"{B}/robots.txt could not be read, so its sitemaps are unknown; trying /sitemap.xml"


async def test_arguments_and_states_are_checked_as_by_put(queue: Queue) -> None:
    wrong: list[Any] = ["2026-11-01", 0, datetime(2026, 11, 1), timedelta(1)]  # noqa: DTZ001 - no zone
    for since in wrong:
        with pytest.raises(ConfigurationError, match=r"since=.*give a datetime with a zone"):
            await queue.put_sitemaps(A, since=since)
    with pytest.raises(InvalidURL):
        await queue.put_sitemaps("a.example")
    with pytest.raises(TypeError):
        await queue.put_sitemaps(A, priority="1")  # type: ignore[arg-type] # on purpose
    assert not queue.qsize()
    queue.close()
    with pytest.raises(QueueClosed):
        await queue.put_sitemaps(A)
    await queue.gate.aclose()
    with pytest.raises(ClosedError):
        await queue.put_sitemaps(A)


async def test_a_disallowed_file_goes_to_on_disallowed(queue: Queue, pages: Pages) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /sitemap"
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {})
    assert (queue.refused.items, report.disallowed, report.sitemaps) == ([MAP], 1, 0)


# Which URLs


async def test_a_file_lists_urls_below_its_folder(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    one, maps = f"{A}/1.xml", f"{A}/maps/1.xml"
    others = [f"{A}:444/2", f"{B}/5", "http://a.example/3", "https://www.a.example/4"]
    for file, listed, outside in [
        (maps, ["/maps/1", "/maps/a/2"], [f"{A}/3", f"{A}/mapsx"]),
        (one, ["/1"], others),
        (f"{one}?x=/maps/", ["/1", "/?a"], []),
        (f"{A}/%6Daps/1.xml", ["/m%61ps/1"], [f"{A}/maps/../2"]),
    ]:
        caplog.clear()
        pages = Pages()
        await queue.put_sitemaps(file)
        report = await crawl(
            queue, pages, {file: urlset(*(f"HTTPS://A.example:443{path}" for path in listed), *outside)}
        )
        assert [url.removeprefix(A) for url in pages.urls] == listed
        assert (report.skipped, report.bad_links, report.failed) == (len(outside), 0, 0)
        messages = [message for message in caplog.messages if "refused; the first, " in message]
        assert len(messages) == bool(outside)
        assert all(message.startswith(f"{file}: {len(outside)} URL") for message in messages)


INDEX: Final = {MAP: index(f"{A}/maps/1.xml"), f"{A}/maps/1.xml": urlset(f"{A}/1", f"{B}/1")}
OF_SITES: Final = {
    f"{B}/maps/index.xml": index(f"{B}/other/1.xml", f"{A}/2.xml", "https://c.example/3.xml"),
    f"{B}/other/1.xml": urlset(f"{A}/1", f"{B}/other/1", f"{B}/1"),
    f"{A}/2.xml": urlset(f"{A}/2", f"{B}/2"),
}
REDIRECTED: Final = {f"{A}/maps/1.xml": moved(f"{B}/2.xml"), f"{B}/2.xml": urlset(f"{A}/maps/1", f"{A}/1", f"{B}/1")}
# What robots.txt says, the URL that is put, the files; the URLs that are crawled, and how many are skipped.
LISTINGS: Final[list[tuple[str, str, Mapping[str, Reply], list[str], int]]] = [
    # A file that its own robots.txt lists may be in any folder.
    (f"Sitemap: {A}/maps/1.xml", f"{A}/maps/1.xml", {f"{A}/maps/1.xml": urlset(f"{A}/1", f"{B}/1")}, [f"{A}/1"], 1),
    # Files of the sitemap.xml of an origin may list all its URLs.
    ("", A, INDEX, [f"{A}/1"], 1),
    ("", MAP, INDEX, [], 2),
    # After a redirect, the folder of the URL that was put counts.
    ("", f"{A}/maps/1.xml", REDIRECTED, [f"{A}/maps/1"], 2),
    # An index lists files of its site, and of the site whose robots.txt lists it.
    (f"Sitemap: {B}/maps/index.xml", A, OF_SITES, [f"{A}/1", f"{A}/2", f"{B}/other/1"], 3),
]


async def test_which_urls_a_file_may_list_depends_on_who_lists_it(caplog: pytest.LogCaptureFixture) -> None:
    for robots, put, files, crawled, skipped in LISTINGS:
        pages = Pages()
        async with made() as queue:
            queue.robots[A] = robots
            await queue.put_sitemaps(put)
            report = await crawl(queue, pages, files)
        assert (put, sorted(pages.urls), report.skipped, report.failed) == (put, crawled, skipped, 0)
    assert f"{B}/maps/index.xml: 1 URL refused; the first, 'https://c.example/3.xml', is not below" in caplog.text


async def test_entries_that_are_no_urls_are_bad_links(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    bad = ["/relative", "", "ftp://a.example/", f"{A}:99999/", "https://", f"{A}/{'x' * 21_000}", f"{A}/3<b>x</b>"]
    urls, errors, report = await read(queue, urlset(*bad, f"{A}/1").body)
    assert (urls, errors, report.bad_links, report.failed) == ([f"{A}/1"], [], 7, 0)
    assert f"{MAP}: 7 URLs refused; the first, '/relative', is no http(s) URL" in caplog.text


async def test_patterns_leave_out_urls_but_no_files(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    one = urlset(f"{A}/docs/1", f"{A}/docs/2.pdf", f"{A}/1")
    replies = {MAP: moved("/index.xml"), f"{A}/index.xml": index(f"{A}/1.xml"), f"{A}/1.xml": one}
    report = await crawl(queue, pages, replies, allow=["/docs/"], deny=["/*.pdf$"], depth=0)
    assert (pages.urls, report.skipped, report.sitemaps) == ([f"{A}/docs/1"], 2, 2)


async def test_since_leaves_out_files_of_an_index_and_is_handed_on_to_the_others(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A, since=SINCE)
    replies = {
        MAP: dated("sitemapindex", {f"{A}/old.xml": "2026-11-01", f"{A}/new.xml": "2026-11-02"}),
        f"{A}/new.xml": dated("urlset", {f"{A}/1": "2026-11-01", f"{A}/2": "2026-11-03"}),
    }
    report = await crawl(queue, pages, replies)
    assert (pages.urls, report.skipped, report.sitemaps, report.failed) == ([f"{A}/2"], 2, 2, 0)


async def test_a_date_is_the_latest_time_that_it_can_mean(queue: Queue, pages: Pages) -> None:
    dates = {
        "2026-11-02T10:00:00Z": "2026-11-02T10:00:00Z",
        "2026-11-02T10:00:00.123456789+00:00": "2026-11-02T10:00:00.123456Z",
        "2026-11-02T10:00+05:30": "2026-11-02T04:30:00Z",
        "2026-11-02T00:59+01:00": "2026-11-01T23:59:00Z",
        "2026-11-02T10:00:00": "2026-11-02T10:00:00Z",
        "2026-11-02": "2026-11-02T23:59:59Z",
        "2026-11": "2026-11-30T23:59:59Z",
        "2024-02": "2024-02-29T23:59:59Z",
        "2026-12": "2026-12-31T23:59:59Z",
        "2024": "2024-12-31T23:59:59Z",
        "2026": "2026-12-31T23:59:59Z",
        "Mon, 02 Nov 2026 10:00:00 -0500": "2026-11-02T15:00:00Z",
        "2 Nov 2026 10:00:00 GMT": "2026-11-02T10:00:00Z",
    }
    forms = [
        "<urlset><url><lastmod> {}\n</lastmod><loc>{}</loc></url></urlset>",
        "<rss><channel><item><pubDate> {}\n</pubDate><link>{}</link></item></channel></rss>",
        "<feed><entry><updated> {}\n</updated><link>{}</link></entry></feed>",
    ]
    for form in forms:
        for date, latest in dates.items():
            for seconds in (0, 1):
                since = datetime.fromisoformat(latest).astimezone(timezone(timedelta(hours=1)))
                await queue.put_sitemaps(A, since=since + timedelta(seconds=seconds))
                body = form.format(date, f"{A}/{quote(date)}/{seconds}").encode()
                assert (await crawl(queue, pages, {MAP: Reply(body=body)})).skipped == seconds, (form, date)
    assert pages.urls == [f"{A}/{quote(date)}/0" for date in dates] * 3


async def test_an_unreadable_date_leaves_nothing_out(queue: Queue, pages: Pages) -> None:
    dates = (
        *("", "yesterday", "2020-13", "2020-00", "2020-02-30", "0000", "9999", "9999-12-31", "20200101", "2020-W01"),
        *("2020-01-01T", "2020-01-01T25:00Z", "1:2", ":", "\u0662\u0660\u0662\u0660", "2020-01-01T10:00+99:99"),
        *("x" * 30_000, ", : " * 5_000),
    )
    await queue.put_sitemaps(A, since=SINCE)
    await crawl(queue, pages, {MAP: dated("urlset", {f"{A}/{n}": date for n, date in enumerate(dates)})})
    assert pages.urls == [f"{A}/{n}" for n in range(len(dates))]


# Formats

ONE: Final = f"<url><loc>{A}/1</loc></url>"
BOTH: Final = f"{ONE}<url><loc>{A}/2</loc></url>"
PLAIN: Final = f"<urlset>{BOTH}</urlset>"
EXTENSION: Final = (
    f"<i:loc>{A}/i</i:loc><i:image><i:loc>{A}/3</i:loc><loc>{A}/4</loc></i:image><lastmod><loc>x</loc></lastmod></url>"
)
FORMATS: Final[dict[str, bytes | str]] = {
    "namespace": f'<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{BOTH}</urlset>\n',
    "no namespace": PLAIN,
    "wrong namespace": f'<urlset xmlns="http://www.google.com/schemas/sitemap/0.84">{BOTH}</urlset>',
    "prefix": f"<s:urlset xmlns:s='x'>{BOTH.replace('<', '<s:').replace('<s:/', '</s:')}</s:urlset>",
    "blank lines before": f"\n \r\n<?xml version='1.0'?>{PLAIN}",
    "byte order mark": f"\ufeff<?xml version='1.0'?>{PLAIN}",
    "UTF-16": f"<?xml version='1.0' encoding='UTF-16'?>{PLAIN}".encode("utf-16"),
    "Windows-1252": f"<?xml version='1.0' encoding='Windows-1252'?><!-- \u20ac -->{PLAIN}".encode("cp1252"),
    "blanks": PLAIN.replace("<loc>", "<loc>\n\t ").replace("</loc>", "\n </loc>"),
    "CDATA": PLAIN.replace("<loc>", "<loc><![CDATA[").replace("</loc>", "]]></loc>"),
    "comments": PLAIN.replace("/a.example", "/<!-- x -->a.example").replace("<url>", "<!-- --><url>"),
    "character references": PLAIN.replace("://", "&#58;&#x2f;/"),
    "extensions": f"<urlset xmlns:i='x'>{BOTH}</urlset>".replace("</url>", EXTENSION),
    "other elements": f"<urlset><meta><url><loc>{A}/3</loc></url></meta>{BOTH}<loc>{A}/4</loc></urlset>",
    "text": f"{A}/1\n{A}/2",
    "text with other line ends": f"\ufeff\r\n\n{A}/1\r\n \r\n\t{A}/2 \r",
    "text with old line ends": f"{A}/1\r{A}/2\r",
    "RSS": f"<rss version='2.0'><channel><link>{A}/</link><item><title>One</title><link>{A}/1</link>"
    f"<pubDate>Mon, 02 Nov 2026 10:00:00 GMT</pubDate></item><item><link>{A}/2</link></item></channel></rss>",
    "Atom": f"<feed xmlns='http://www.w3.org/2005/Atom'><link href='{A}/'/><entry><link href='{A}/1'/><link rel='edit' "
    f"href='{A}/e'/></entry><entry><link rel='edit' href='{A}/e'/><link rel='alternate' href='{A}/2'/></entry></feed>",
    "packed": gzip.compress(PLAIN.encode()),
    "packed text": gzip.compress(f"{A}/1\n{A}/2".encode()),
    "packed UTF-16": gzip.compress(f"<?xml version='1.0' encoding='UTF-16'?>{PLAIN}".encode("utf-16")),
    "members": gzip.compress(b"<urlset>") + gzip.compress(f"{BOTH}</urlset>".encode()),
    "padding": gzip.compress(PLAIN.encode()) + b"\0" * 100,
}


async def test_every_format_is_read(queue: Queue) -> None:
    for chunk_octets in (1, 7, 1_000):
        found = {}
        for name, body in FORMATS.items():
            urls, errors, report = await read(queue, body, chunk_octets)
            found[name] = urls, errors, report.failed, report.sitemaps, report.bad_links
        assert found == dict.fromkeys(FORMATS, ([f"{A}/1", f"{A}/2"], [], 0, 1, 0))


# As ElementTree, lxml and .NET write it, whatever its registered name.
NAMES: Final = {
    "é": "utf8 UTF8 utf_8 U8 utf-8 utf-8-sig utf_8_sig utf16 UTF-16 utf_16_le latin1 iso8859-1 cp1252 us-ascii",
    "я": "utf8 windows-1251 cp1251 koi8-r koi8_r iso-8859-5 utf16 gb18030",
    "本": "utf8 GB18030 gbk gb2312 big5 Shift_JIS sjis cp932 euc-jp EUC_JP euc_kr utf16",
}


async def test_the_encoding_is_read_by_each_name_that_libraries_write(queue: Queue) -> None:
    wrong = {}
    names = [(letter, name) for letter, names in NAMES.items() for name in names.split()]
    for (letter, name), (letters, chunk_octets) in product(names, ((50, 1), (2_000, 1_000))):
        paths, root = ["1", letter * letters, "2"], Element("urlset")
        for path in paths:
            SubElement(SubElement(root, "url"), "loc").text = f"{A}/{path}"
        body = tostring(root, encoding=name, xml_declaration=True)
        assert name.encode() in body.replace(b"\0", b"")
        urls, errors, _ = await read(queue, body, chunk_octets)
        if urls != [f"{A}/{quote(path)}" for path in paths] or errors:
            wrong[letter, name, letters] = urls, errors
    assert wrong == {}


async def test_a_file_in_utf_8_that_states_utf_16_is_read(queue: Queue) -> None:
    entries = f"{ONE}{ONE.replace('1<', 'é<')}"
    for name in ("utf-16", "UTF-16", "utf16", "ucs-2"):
        urls, *_ = await read(queue, f"<?xml version='1.0' encoding='{name}'?><urlset>{entries}</urlset>")
        assert (name, urls) == (name, [f"{A}/1", f"{A}/%C3%A9"])


async def test_invalid_octets_of_another_encoding_spoil_their_own_url_only(queue: Queue) -> None:
    body = f"<?xml version='1.0' encoding='gbk'?><urlset>{ONE}<url><loc>{A}/_</loc></url>{BOTH}</urlset>".encode()
    urls, *_ = await read(queue, body.replace(b"_", b"\xff"))
    assert {f"{A}/1", f"{A}/2"} <= set(urls)


async def test_urls_are_escaped_as_links_are(queue: Queue, pages: Pages) -> None:
    paths = {"/\u00e9?a=1&b=2": "/%C3%A9?a=1&b=2", "/%C3%A9": "/%C3%A9", "/a b": "/a%20b"}
    for path, escaped in paths.items():
        for body in (urlset(escape(A + path)).body, A + path):
            urls, *_ = await read(queue, body, 1)
            assert urls == [A + escaped], body
        await queue.put(f"{A}/")
        await crawl(queue, pages, {f"{A}/": Reply(links=[path])})
    assert pages.urls == [url for escaped in paths.values() for url in (f"{A}/", A + escaped)]


# Faults and limits

BOMB: Final = """<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>"""
ZIPPED: Final = gzip.compress(PLAIN.encode())
DAMAGED: Final = "is damaged: Error -3 while decompressing data: "
FAULTS: Final[dict[str, tuple[bytes | str, str, int]]] = {
    "empty": (b"", "is empty", 0),
    "blank": (b" \n ", "is empty", 0),
    "truncated": (f"<urlset>\n{BOTH}\n<url>", "line 3: ends early", 2),
    "truncated before any": ("<urlset", "line 1: ends early", 0),
    "mismatched": (f"\n\n<urlset>\n{ONE}</url>{BOTH}</urlset>", "line 4: mismatched tag", 1),
    "two roots": (f"<urlset>{ONE}</urlset>\n<urlset/>", "line 2: junk after document element", 1),
    "no UTF-8": (f"<urlset>{ONE}\n<url>".encode() + b"\xff", "line 2: not well-formed (invalid token)", 1),
    "undefined entity": (f"<urlset>{ONE}<url><loc>{A}/&nbsp;</loc>", "line 1: undefined entity", 1),
    "document type": (f"{BOMB}<urlset><url><loc>{A}/&b;</loc></url></urlset>", "line 1: has a document type, ", 0),
    "external type": ('<!DOCTYPE urlset SYSTEM "file:///etc/passwd"><urlset/>', "line 1: has a document type, ", 0),
    "HTML": (f"<!doctype html>\n<title>Not found</title>{BOTH}", "is an HTML page", 0),
    "HTML without a document type": ("<HTML><head></head></HTML>", "is an HTML page", 0),
    "XHTML": ("<?xml version='1.0'?>\n<html xmlns='x'><p/></html>", "line 2: is an HTML page", 0),
    "another root": (f"<?xml version='1.0'?><urls>{BOTH}</urls>", "line 1: its root is <urls>", 0),
    "JSON": ('\n{"error": "\x1b[31mno', 'line 2: is neither XML nor a list of URLs: \'{"error": "\\x1b[31m\'', 0),
    "unknown encoding": (f"<?xml version='1.0' encoding='x-unknown'?>{PLAIN}", "line 1: unknown encoding", 0),
    "no text encoding": (f"<?xml version='1.0' encoding='zlib'?>{PLAIN}", "line 1: ", 0),
    "nested elements": (f"<urlset>{ONE}{'<a>' * 40}", "line 1: has more than 32 elements in each other", 1),
    "long tag": (f"<urlset>{ONE}\n<url a='{'x' * 45_000}'/>{BOTH}", "line 2: has a tag of more than 32,768 octets", 1),
    "many names": (
        f"<urlset>{ONE}{''.join(f'<a{n}/>' for n in range(2_000))}{BOTH}",
        "line 1: has more than 1,000 different names",
        1,
    ),
    "damaged gzip": (ZIPPED[:20] + b"\xff" * 100, DAMAGED, 0),
    "truncated gzip": (ZIPPED[:-9], "is damaged: its gzip data ends early", 2),
    "rubbish after gzip": (gzip.compress(f"<urlset>{BOTH}".encode()) + b"\0rubbish", DAMAGED, 2),
}


async def test_a_fault_ends_the_file_and_keeps_urls_before_it(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    for chunk_octets in (5, 100_000):
        found = {}
        for name, (body, message, _) in FAULTS.items():
            caplog.clear()
            urls, [error], report = await read(queue, body, chunk_octets)
            found[name] = body, error.removeprefix(f"{MAP} ")[: len(message)], len(urls)
            assert (report.failed, report.sitemaps, report.left) == (1, 0, 0)
            [record] = [record for record in caplog.records if MAP in record.getMessage()]
            assert (record.levelno, message[:20] in record.getMessage()) == (logging.WARNING, True)
        assert found == FAULTS
        assert (await read(queue, "<urlset/>", chunk_octets))[2].sitemaps == 1  # this one is no fault


async def test_an_index_in_an_index_is_refused(queue: Queue, pages: Pages, errors: Errors) -> None:
    await queue.put_sitemaps(A)
    web = SimulatedWeb({MAP: index(f"{A}/1.xml"), f"{A}/1.xml": index(f"{A}/2.xml")})
    report = await queue.crawl(web, pages, on_error=errors)
    assert web.urls == [MAP, f"{A}/1.xml"]
    assert errors.texts == [f"{A}/1.xml line 1: is an index, and is listed in an index"]
    assert (report.sitemaps, report.failed) == (1, 1)


@pytest.mark.parametrize("is_packed", first_of(1, [False, True]))
async def test_no_more_octets_are_read_than_a_file_may_have(queue: Queue, *, is_packed: bool) -> None:
    for more, errors in ((0, []), (1, [f"{MAP} has more than 52,428,800 octets"])):
        body = f"{A}/1\n".encode().ljust(52_428_800 + more, b"x")  # a long line is no fault
        assert (await read(queue, gzip.compress(body, 1) if is_packed else body, 2**20))[1] == errors


@pytest.mark.parametrize("filler", first_of(1, [b"\0", gzip.compress(b""), b"\0\0\0\xff\xff"]), ids=len)
async def test_no_more_packed_octets_are_read_that_unpack_to_nothing(queue: Queue, filler: bytes) -> None:
    body = gzip.compress(f"<urlset>{BOTH}</urlset>".encode())
    if filler.endswith(b"\xff"):  # empty blocks, within the only member; RFC 1951 3.2.4
        body = gzip.compress(b"")[:10] + b"\0\x12\0\xed\xff" + f"<urlset>{' ' * 10}".encode()
    body += filler * (53_000_000 // len(filler))
    assert (await read(queue, body, 2**20))[1] == [f"{MAP} has more than 52,428,800 octets"]


@contextmanager
def at_most_bytes(limit: int) -> Iterator[None]:
    """Fail if the block allocates more at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


async def test_a_chunk_is_unpacked_in_slices(queue: Queue) -> None:
    body = gzip.compress(f"<urlset>{' ' * 4_000_000}{BOTH}</urlset>".encode())
    with at_most_bytes(1_500_000):
        urls, *_ = await read(queue, body, len(body))
    assert len(urls) == 2


async def test_a_long_url_is_no_url_and_keeps_its_memory_bounded(queue: Queue) -> None:
    for begin, between, end in (
        ("<urlset><url><loc>", "</loc></url><url><loc>", "</loc></url></urlset>"),
        ("", "\n", ""),
    ):
        body = f"{begin}{A}/{'x' * 2_500_000}{between}{A}/2{end}".encode()
        with at_most_bytes(1_500_000):
            urls, errors, report = await read(queue, body, 100_000)
        assert (urls, report.bad_links, errors) == ([f"{A}/2"], 1, [])


@pytest.mark.full
@pytest.mark.parametrize("form", ["<url><loc>{}</loc></url>", "{}\n"])
async def test_no_more_entries_are_read_than_a_file_may_have(queue: Queue, form: str) -> None:
    begin, end = ("<urlset>", "</urlset>") if "<" in form else ("", "")
    entries = "".join(form.format(f"{A}/{number % 3}") for number in range(50_000))
    assert (await read(queue, f"{begin}{entries}{end}", 100_000))[2].failed == 0
    urls, errors, report = await read(queue, f"{begin}{entries}{form.format(f'{A}/4')}{end}", 100_000)
    assert errors == [f"{MAP} {'line 1: ' * bool(begin)}has more than 50,000 entries"]
    assert (report.failed, f"{A}/4" in urls) == (1, False)


async def test_other_tasks_run_while_a_large_chunk_is_read(queue: Queue) -> None:
    rounds = 0
    at_first_page: list[int] = []

    async def tick() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def handle(*_: object) -> None:
        at_first_page.append(rounds)

    for entries in (1, 20_000):
        body = gzip.compress(f"{A}/{entries}\n".encode() * entries)
        await queue.put_sitemaps(A)
        rounds = 0
        ticking = asyncio.ensure_future(tick())
        await queue.crawl(SimulatedWeb({MAP: Reply(body=body, chunk_octets=10**9)}), handle)
        ticking.cancel()
    small, large = at_first_page
    assert large > small + 10


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
        await follow_links(page, reply)

    await queue.crawl(web, handle)
    assert web.urls == [A + path for path in ("/page", "/2.xml", "/21", "/22", "/1.xml", "/11", "/12", "/link")]
    assert max(sizes) == 2


async def test_files_do_not_count_as_pages(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    replies = {MAP: index(f"{A}/1.xml", f"{A}/2.xml"), f"{A}/1.xml": urlset(f"{A}/1", f"{A}/2")}
    report = await crawl(queue, pages, replies, max_pages=1)
    assert (pages.urls, report.pages, report.sitemaps, report.left) == ([f"{A}/1"], 1, 2, 2)
    report = await crawl(queue, pages, replies | {f"{A}/2.xml": urlset(f"{B}/")}, max_pages_per_host=1)
    # The host has given its page, so its other file is not requested.
    assert (pages.urls, report.pages, report.sitemaps, report.skipped) == ([f"{A}/1", f"{A}/2"], 1, 0, 1)


async def test_a_file_is_requested_again_after_503_and_its_urls_are_crawled_once(queue: Queue, pages: Pages) -> None:
    await queue.put_sitemaps(A)
    await queue.put_sitemaps(A)
    await queue.put(f"{A}/1")
    web = SimulatedWeb({MAP: [Reply(503), urlset(f"{A}/1", f"{A}/2", f"{A}/2#x", MAP)]})
    progress: list[CrawlProgress] = []
    report = await queue.crawl(web, pages, on_progress=progress.append)
    assert web.requests == {f"{A}/1": 1, f"{A}/2": 1, MAP: 3}
    assert (report.retried, report.sitemaps, progress[-1].sitemaps) == (1, 2, 2)


async def test_the_crawl_adds_urls_beyond_maxsize(queue: Queue, pages: Pages) -> None:
    queue = queue.made(maxsize=2)
    await queue.put_sitemaps(A)
    report = await crawl(queue, pages, {MAP: urlset(*(f"{A}/{n}" for n in range(10)))})
    assert (report.pages, report.left) == (10, 0)


async def test_a_handler_puts_sitemaps_and_each_only_once(queue: Queue, pages: Pages) -> None:
    counts = []

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        counts.append(await queue.put_sitemaps(A))
        await pages(page, reply)

    await queue.put(f"{A}/")
    await queue.crawl(SimulatedWeb({MAP: urlset(f"{A}/1")}), handle)
    assert (counts, pages.urls) == ([1, 0], [f"{A}/", f"{A}/1"])


def slow(clock: ManualClock, body: bytes, cut: int, meanwhile: Callable[[], object] = str) -> Reply:
    """Return a file that comes in two parts."""

    class SlowFile(Reply):
        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            yield body[:cut]
            await clock.sleep(100)
            meanwhile()
            yield body[cut:]

    return SlowFile()


async def test_the_turn_of_a_file_lasts_until_its_body_is_read(queue: Queue, pages: Pages) -> None:
    meanwhile = []
    one = slow(queue.clock, urlset(f"{A}/1").body, -9, lambda: meanwhile.append((web.urls, queue.qsize())))
    web = SimulatedWeb({f"{A}/1.xml": one, f"{A}/2.xml": urlset(f"{A}/2")})
    await queue.put_sitemaps(f"{A}/1.xml")
    await queue.put_sitemaps(f"{A}/2.xml")
    await queue.crawl(web, pages)
    assert meanwhile == [([f"{A}/1.xml"], 2)]
    assert web.urls == [f"{A}/{name}" for name in ("1.xml", "1", "2.xml", "2")]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_file_waits_for_the_file_that_is_being_read_though_the_turn_has_ended(
    pages: Pages, clock: ManualClock, *, is_cancelled: bool
) -> None:
    files = [f"{A}/{number}.xml" for number in (1, 2, 3)]
    first = slow(clock, urlset(f"{A}/1", f"{A}/2").body, 20)
    web = SimulatedWeb({files[0]: first, files[1]: urlset(f"{A}/3"), files[2]: urlset()})
    async with made(clock, pacing=PacingOptions(max_turn_s=10.0)) as queue:
        for file in files:
            await queue.put_sitemaps(file)
        crawling = asyncio.ensure_future(queue.crawl(web, pages))
        await clock.sleep(15)
        assert web.urls == files[:1]
        assert queue.qsize() == 1  # the second file is with a worker, which waits
        if is_cancelled:
            crawling.cancel()
        await asyncio.wait([crawling])
        assert left(queue) == (files if is_cancelled else [])
    if not is_cancelled:
        assert sorted(web.urls) == sorted([f"{A}/1", f"{A}/2", f"{A}/3", *files])
        assert web.urls.index(files[1]) > web.urls.index(f"{A}/2")
        assert set(web.requests.values()) == {1}


async def test_a_file_that_is_answered_with_an_error_has_failed_unless_it_is_a_guess(
    queue: Queue, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    for status in (204, 206, 304, 404, 410, 500):
        caplog.clear()
        errors = Errors()
        await queue.put_sitemaps(MAP)
        reply = Reply(status, body=b"" if status == 204 else urlset(f"{A}/1").body)
        report = await crawl(queue, pages, {MAP: reply}, on_error=errors)
        assert (report.failed, report.pages, report.sitemaps) == (1, 0, 0)
        [(url, error)] = errors.seen
        assert isinstance(error, PageFailed)
        assert (url, error.status) == (MAP, status)
        [record] = [record for record in caplog.records if "sitemap.xml" in record.getMessage()]
        assert record.levelno == logging.WARNING
    for status, failed in ((404, 0), (410, 0), (500, 1)):
        await queue.put_sitemaps(A)
        report = await crawl(queue, pages, {MAP: Reply(status)})
        assert (status, report.failed, report.pages) == (status, failed, 0)


async def test_a_connection_that_breaks_keeps_the_urls_before(
    queue: Queue, pages: Pages, errors: Errors, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.put_sitemaps(A)
    reply = Reply(body=urlset(f"{A}/1", "/bad").body, breaks_off=OSError("reset"))
    report = await crawl(queue, pages, {MAP: reply}, on_error=errors)
    assert (pages.urls, errors.texts, report.failed, report.sitemaps) == ([f"{A}/1"], ["reset"], 1, 0)
    levels = [record.levelno for record in caplog.records if "sitemap.xml" in record.getMessage()]
    assert levels == [logging.WARNING, logging.WARNING]  # the refused entry, and the error


async def test_on_error_tells_files_from_pages(queue: Queue, pages: Pages) -> None:
    seen = []
    await queue.put_sitemaps(MAP)
    await queue.put(f"{B}/")
    replies: dict[str, Replies] = {MAP: [Reply(503), moved("/a.xml")], f"{A}/a.xml": Reply(404), f"{B}/": moved("/")}
    await crawl(queue, pages, replies, on_error=lambda page, _: seen.append(page))
    assert {(page.url, page.is_sitemap, page.hops, page.attempt) for page in seen} == {
        (f"{A}/a.xml", True, (MAP,), 1),
        (f"{B}/", False, (), 1),
    }


async def test_an_error_of_seen_ends_the_crawl_and_keeps_the_file(queue: Queue, pages: Pages) -> None:
    class Full(set[str]):
        def add(self, url: str, /) -> None:
            if url.endswith("/2"):
                raise OSError("full")
            super().add(url)

    await queue.put_sitemaps(A)
    replies = {MAP: urlset(f"{A}/1", f"{A}/2")}
    with pytest.raises(OSError, match="full"):
        await crawl(queue, pages, replies, seen=Full())
    assert left(queue) == [f"{A}/1", MAP]
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
    put, size = [], 1

    def end(_: CrawlProgress) -> None:
        raise EOFError

    while size:
        async with made(fetcher=fetcher, journal=tmp_path / "crawl.db") as queue:
            put.append(await queue.put_sitemaps(A, since=SINCE))
            with suppress(EOFError):
                await queue.crawl(web, pages, workers=1, on_progress=end)
            size = queue.qsize()
    assert web.requests == {f"{B}/sitemap.xml": 2, f"{B}/maps/index.xml": 1, f"{A}/new.xml": 1, f"{A}/1": 1}
    assert put == [1, 0, 0, 0, 0]
    assert pages.urls == [f"{A}/1"]


async def test_a_file_waits_for_a_journal_that_is_far_behind(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("politesse.queue._journal._MAX_BEHIND", 100)
    path, body = tmp_path / "crawl.db", "".join(f"{A}/{number}\n" for number in range(3_000)).encode()
    async with made(journal=path) as queue:
        await queue.put_sitemaps(A)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # no write of the journal ends before this
            reply = Reply(body=body, chunk_octets=10**6)
            crawling = asyncio.create_task(crawl(queue, pages, {MAP: reply}, max_pages=1))
            while queue.qsize() < 100:
                await asyncio.sleep(0)
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert queue.qsize() <= 100 + 8_192 / len(f"{A}/1\n")  # and the entries of one slice
        await crawling
        assert queue.qsize() == 2_999
