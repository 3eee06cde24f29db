"""The formats, the faults and the limits of sitemap files, and their dates."""

import asyncio
import gzip
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.sax.saxutils import escape

import pytest

from politesse.queue import CrawlReport
from tests.core.queue.crawl import A, Queue
from tests.core.queue.simulated import Errors, Pages, Reply, SimulatedWeb
from tests.support.tiers import first_of

MAP: Final = f"{A}/sitemap.xml"
ONE: Final = f"<url><loc>{A}/1</loc></url>"
BOTH: Final = f"{ONE}<url><loc>{A}/2</loc></url>"
NAMESPACE: Final = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@contextmanager
def at_most_bytes(limit: int) -> Iterator[None]:
    """Fail if the block allocates more at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


async def read(
    queue: Queue, pages: Pages, body: bytes | str, errors: Errors | None = None, chunk_octets: int = 10
) -> CrawlReport:
    """Crawl from a sitemap file."""
    octets = body.encode() if isinstance(body, str) else body
    await queue.put_sitemaps(A)
    return await queue.crawl(SimulatedWeb({MAP: Reply(body=octets, chunk_octets=chunk_octets)}), pages, on_error=errors)


FORMATS: Final[dict[str, bytes | str]] = {
    "namespace": f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {NAMESPACE}>{BOTH}</urlset>\n',
    "no namespace": f"<urlset>{BOTH}</urlset>",
    "wrong namespace": f'<urlset xmlns="http://www.google.com/schemas/sitemap/0.84">{BOTH}</urlset>',
    "prefix": f"<s:urlset xmlns:s='x'>{BOTH}</s:urlset>".replace("<url>", "<s:url>")
    .replace("</url>", "</s:url>")
    .replace("loc>", "s:loc>"),
    "blank lines before": f"\n \r\n<?xml version='1.0'?><urlset>{BOTH}</urlset>",
    "byte order mark": f"\ufeff<?xml version='1.0'?><urlset>{BOTH}</urlset>",
    "UTF-16": f"<?xml version='1.0' encoding='UTF-16'?><urlset>{BOTH}</urlset>".encode("utf-16"),
    "Windows-1252": f"<?xml version='1.0' encoding='Windows-1252'?><!-- \u20ac --><urlset>{BOTH}</urlset>".encode(
        "cp1252"
    ),
    "blanks": f"<urlset>{BOTH}</urlset>".replace("<loc>", "<loc>\n\t ").replace("</loc>", "\n </loc>"),
    "CDATA": f"<urlset>{BOTH}</urlset>".replace("<loc>", "<loc><![CDATA[").replace("</loc>", "]]></loc>"),
    "comments": f"<urlset>{BOTH}</urlset>".replace("/a.example", "/<!-- x -->a.example").replace(
        "<url>", "<!-- --><url>"
    ),
    "character references": f"<urlset>{BOTH}</urlset>".replace("://", "&#58;&#x2f;/"),
    "extensions": f"<urlset xmlns:i='x'>{BOTH}</urlset>".replace(
        "</url>",
        "<i:loc>https://a.example/i</i:loc><i:image><i:loc>https://a.example/3</i:loc><loc>https://a.example/4</loc>"
        "</i:image><lastmod><loc>x</loc></lastmod></url>",
    ),
    "other elements": f"<urlset><meta><url><loc>{A}/3</loc></url></meta>{BOTH}<loc>{A}/4</loc></urlset>",
    "text": f"{A}/1\n{A}/2",
    "text with other line ends": f"\ufeff\r\n\n{A}/1\r\n \r\n\t{A}/2 \r",
    "text with old line ends": f"{A}/1\r{A}/2\r",
    "RSS": f"<rss version='2.0'><channel><link>{A}/</link><item><title>One</title><link>{A}/1</link>"
    f"<pubDate>Mon, 02 Nov 2026 10:00:00 GMT</pubDate></item><item><link>{A}/2</link></item></channel></rss>",
    "Atom": f"<feed xmlns='http://www.w3.org/2005/Atom'><link href='{A}/'/><entry><link href='{A}/1'/><link rel='edit' "
    f"href='{A}/e'/></entry><entry><link rel='edit' href='{A}/e'/><link rel='alternate' href='{A}/2'/></entry></feed>",
}
PACKED: Final = {
    f"{name}, packed": gzip.compress(body if isinstance(body, bytes) else body.encode())
    for name, body in FORMATS.items()
    if name in {"no namespace", "text", "UTF-16"}
} | {
    "members": gzip.compress(b"<urlset>") + gzip.compress(f"{BOTH}</urlset>".encode()),
    "padding": gzip.compress(f"<urlset>{BOTH}</urlset>".encode()) + b"\0" * 100,
}


@pytest.mark.parametrize("chunk_octets", [1, 7, 1_000])
@pytest.mark.parametrize("name", [*FORMATS, *PACKED])
async def test_every_format_is_read(queue: Queue, pages: Pages, name: str, chunk_octets: int) -> None:
    report = await read(queue, pages, {**FORMATS, **PACKED}[name], chunk_octets=chunk_octets)
    assert pages.urls == [f"{A}/1", f"{A}/2"]
    assert (report.failed, report.sitemaps, report.bad_links) == (0, 1, 0)


# As ElementTree, lxml and .NET write it, whatever its registered name.
NAMES: Final = {
    "é": [
        "utf8",
        "UTF8",
        "utf_8",
        "U8",
        "utf-8",
        "utf-8-sig",
        "utf_8_sig",
        "utf16",
        "UTF-16",
        "utf_16_le",
        "latin1",
        "iso8859-1",
        "cp1252",
        "us-ascii",
    ],
    "я": ["utf8", "windows-1251", "cp1251", "koi8-r", "koi8_r", "iso-8859-5", "utf16", "gb18030"],
    "本": [
        "utf8",
        "GB18030",
        "gbk",
        "gb2312",
        "big5",
        "Shift_JIS",
        "sjis",
        "cp932",
        "euc-jp",
        "EUC_JP",
        "euc_kr",
        "utf16",
    ],
}


@pytest.mark.parametrize("chunk_octets", [1, 1_000])
@pytest.mark.parametrize(("letter", "name"), [(letter, name) for letter, names in NAMES.items() for name in names])
async def test_the_encoding_is_read_by_each_name_that_libraries_write(
    queue: Queue, pages: Pages, letter: str, name: str, chunk_octets: int
) -> None:
    root = Element("urlset")
    for path in ("1", letter * 2_000, "2"):
        SubElement(SubElement(root, "url"), "loc").text = f"{A}/{path}"
    body = tostring(root, encoding=name, xml_declaration=True)
    assert name.encode() in body.replace(b"\0", b"")
    report = await read(queue, pages, body, chunk_octets=chunk_octets)
    assert pages.urls == [f"{A}/1", f"{A}/{quote(letter * 2_000)}", f"{A}/2"]
    assert (report.failed, report.bad_links) == (0, 0)


@pytest.mark.parametrize("name", ["utf-16", "UTF-16", "utf16", "ucs-2"])
async def test_a_file_in_utf_8_that_states_utf_16_is_read(queue: Queue, pages: Pages, name: str) -> None:
    await read(queue, pages, f"<?xml version='1.0' encoding='{name}'?><urlset>{ONE}{ONE.replace('1<', 'é<')}</urlset>")
    assert pages.urls == [f"{A}/1", f"{A}/%C3%A9"]


async def test_invalid_octets_of_another_encoding_spoil_their_own_url_only(queue: Queue, pages: Pages) -> None:
    body = f"<?xml version='1.0' encoding='gbk'?><urlset>{ONE}<url><loc>{A}/_</loc></url>{BOTH}</urlset>".encode()
    await read(queue, pages, body.replace(b"_", b"\xff"))
    assert {f"{A}/1", f"{A}/2"} <= set(pages.urls)


@pytest.mark.parametrize("path", ["/\u00e9?a=1&b=2", "/%C3%A9", "/a b"])
async def test_urls_are_escaped_as_links_are(queue: Queue, pages: Pages, path: str) -> None:
    await read(queue, pages, f"<urlset><url><loc>{escape(A + path)}</loc></url></urlset>")
    await queue.crawl(SimulatedWeb({f"{A}/": Reply(links=[path])}), pages)
    assert pages.urls == [A + path.replace("\u00e9", "%C3%A9").replace(" ", "%20")]


async def test_a_url_with_elements_is_no_url(queue: Queue, pages: Pages) -> None:
    report = await read(queue, pages, f"<urlset><url><loc>{A}/3<b>x</b></loc></url>{BOTH}</urlset>")
    assert (pages.urls, report.bad_links, report.failed) == ([f"{A}/1", f"{A}/2"], 1, 0)


@pytest.mark.parametrize("octets", [b"", b" \n "])
async def test_an_empty_urlset_is_no_fault_but_an_empty_file_is(
    queue: Queue, pages: Pages, errors: Errors, octets: bytes
) -> None:
    assert (await read(queue, pages, "<urlset/>", errors)).sitemaps == 1
    assert (await read(queue, pages, octets, errors)).failed == 1
    assert errors.texts == [f"{MAP} is empty"]


BOMB: Final = """<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>"""
DEEP: Final = "<a>" * 40
FAULTS: Final[dict[str, tuple[bytes | str, str, int]]] = {
    "truncated": (f"<urlset>\n{BOTH}\n<url>", "line 3: ends early", 2),
    "truncated before any": ("<urlset", "line 1: ends early", 0),
    "mismatched": (f"\n\n<urlset>\n{ONE}</url>{BOTH}</urlset>", "line 4: mismatched tag", 1),
    "two roots": (f"<urlset>{ONE}</urlset>\n<urlset/>", "line 2: junk after document element", 1),
    "octets that are not UTF-8": (
        f"<urlset>{ONE}\n<url>\udcff".encode(errors="surrogateescape"),
        "line 2: not well-formed (invalid token)",
        1,
    ),
    "undefined entity": (f"<urlset>{ONE}<url><loc>{A}/&nbsp;</loc>", "line 1: undefined entity", 1),
    "document type": (f"{BOMB}<urlset><url><loc>{A}/&b;</loc></url></urlset>", "line 1: has a document type, ", 0),
    "external document type": (
        '<!DOCTYPE urlset SYSTEM "file:///etc/passwd"><urlset/>',
        "line 1: has a document type, ",
        0,
    ),
    "HTML": (f"<!doctype html>\n<title>Not found</title>{BOTH}", "is an HTML page", 0),
    "HTML without a document type": ("<HTML><head></head></HTML>", "is an HTML page", 0),
    "XHTML": ("<?xml version='1.0'?>\n<html xmlns='x'><p/></html>", "line 2: is an HTML page", 0),
    "another root": (f"<?xml version='1.0'?><urls>{BOTH}</urls>", "line 1: its root is <urls>", 0),
    "JSON": (
        '\n{"error": "\x1b[31mnot found"}',
        'line 2: is neither XML nor a list of URLs: \'{"error": "\\x1b[31m\'',
        0,
    ),
    "unknown encoding": (
        f"<?xml version='1.0' encoding='x-unknown'?><urlset>{BOTH}</urlset>",
        "line 1: unknown encoding",
        0,
    ),
    "no text encoding": (
        f"<?xml version='1.0' encoding='zlib'?><urlset>{BOTH}</urlset>",
        "line 1: ",
        0,
    ),
    "nested elements": (f"<urlset>{ONE}{DEEP}", "line 1: has more than 32 elements in each other", 1),
    "long tag": (f"<urlset>{ONE}\n<url a='{'x' * 60_000}'/>{BOTH}", "line 2: has a tag of more than 32,768 octets", 1),
    "many names": (
        f"<urlset>{ONE}{''.join(f'<a{n}/>' for n in range(2_000))}{BOTH}",
        "line 1: has more than 1,000 different names",
        1,
    ),
    "damaged gzip": (
        gzip.compress(f"<urlset>{ONE}".encode())[:20] + b"\xff" * 100,
        "is damaged: Error -3 while decompressing data: ",
        0,
    ),
    "truncated gzip": (
        gzip.compress(f"<urlset>{BOTH}</urlset>".encode())[:-9],
        "is damaged: its gzip data ends early",
        2,
    ),
    "rubbish after gzip": (
        gzip.compress(f"<urlset>{BOTH}".encode()) + b"\0rubbish",
        "is damaged: Error -3 while decompressing data: ",
        2,
    ),
}


@pytest.mark.parametrize("chunk_octets", [3, 100_000])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_the_file_and_keeps_the_urls_before_it(
    queue: Queue, pages: Pages, errors: Errors, caplog: pytest.LogCaptureFixture, name: str, chunk_octets: int
) -> None:
    body, message, urls = FAULTS[name]
    report = await read(queue, pages, body, errors, chunk_octets)
    [text] = errors.texts
    assert text.startswith(f"{MAP} {message}")
    assert (len(pages.urls), report.failed, report.sitemaps, report.left) == (urls, 1, 0, 0)
    [record] = [record for record in caplog.records if MAP in record.getMessage()]
    assert (record.levelno, message[:20] in record.getMessage()) == (logging.WARNING, True)


async def test_an_index_in_an_index_is_refused(queue: Queue, pages: Pages, errors: Errors) -> None:
    def nested(name: str) -> Reply:
        return Reply(body=f"<sitemapindex>\n<sitemap><loc>{A}/{name}</loc></sitemap></sitemapindex>".encode())

    await queue.put_sitemaps(A)
    web = SimulatedWeb({MAP: nested("1.xml"), f"{A}/1.xml": nested("2.xml")})
    report = await queue.crawl(web, pages, on_error=errors)
    assert web.urls == [MAP, f"{A}/1.xml"]
    assert errors.texts == [f"{A}/1.xml line 1: is an index, and is listed in an index"]
    assert (report.sitemaps, report.failed) == (1, 1)


@pytest.mark.parametrize("is_packed", first_of(1, [False, True]))
async def test_no_more_octets_are_read_than_a_file_may_have(
    queue: Queue, pages: Pages, errors: Errors, *, is_packed: bool
) -> None:
    blanks, file = 52_428_800 - len(f"<urlset>{ONE}{ONE}</urlset>"), (f"<urlset>{ONE}", f"{ONE}</urlset>")
    for more in (0, 1):
        body = f"{file[0]}{' ' * (blanks + more)}{file[1]}".encode()
        await read(queue, pages, gzip.compress(body, 1) if is_packed else body, errors, 2**20)
    assert errors.texts == [f"{MAP} has more than 52,428,800 octets"]


async def test_a_chunk_is_unpacked_in_slices(queue: Queue, pages: Pages) -> None:
    body = gzip.compress(f"<urlset>{' ' * 20_000_000}{BOTH}</urlset>".encode())
    with at_most_bytes(1_500_000):
        await read(queue, pages, body, chunk_octets=len(body))
    assert len(pages.urls) == 2


@pytest.mark.full
@pytest.mark.parametrize("form", ["<url><loc>{}</loc></url>", "{}\n"])
async def test_no_more_entries_are_read_than_a_file_may_have(
    queue: Queue, pages: Pages, errors: Errors, form: str
) -> None:
    root = ("<urlset>", "</urlset>") if "<" in form else ("", "")
    entries = "".join(form.format(f"{A}/{number % 3}") for number in range(50_000))
    assert (await read(queue, pages, entries.join(root), errors, 100_000)).failed == 0
    report = await read(queue, pages, f"{root[0]}{entries}{form.format(f'{A}/4')}{root[1]}", errors, 100_000)
    assert errors.texts == [f"{MAP} {'line 1: ' * bool(root[0])}has more than 50,000 entries"]
    assert (report.failed, f"{A}/4" in pages.urls) == (1, False)


@pytest.mark.parametrize("begin", ["<urlset><url><loc>", ""])
async def test_a_long_url_is_no_url_and_keeps_its_memory_bounded(
    queue: Queue, pages: Pages, errors: Errors, begin: str
) -> None:
    end = "</loc></url></urlset>" if begin else ""
    entry = f"{'</loc></url><url><loc>' if begin else chr(10)}{A}/2"
    body = f"{begin}{A}/{'x' * 5_000_000}{entry}{end}".encode()
    with at_most_bytes(1_500_000):
        report = await read(queue, pages, body, errors, 100_000)
    assert (pages.urls, report.bad_links, errors.texts) == ([f"{A}/2"], 1, [])


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

    for entries in (1, 50_000):
        body = gzip.compress("".join(f"{A}/{entries}\n" for _ in range(entries)).encode())
        await queue.put_sitemaps(A)
        rounds = 0
        ticking = asyncio.ensure_future(tick())
        await queue.crawl(SimulatedWeb({MAP: Reply(body=body, chunk_octets=10**9)}), handle)
        ticking.cancel()
    small, large = at_first_page
    assert large > small + 10


DATES: Final = {
    "2026-11-02T10:00:00Z": "2026-11-02T10:00:00Z",
    "2026-11-02T10:00:00.123456789+00:00": "2026-11-02T10:00:00.123456Z",
    "2026-11-02T10:00+05:30": "2026-11-02T04:30:00Z",
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


@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("form", ["urlset url loc lastmod", "rss item link pubDate", "feed entry link updated"])
async def test_a_date_is_the_latest_time_that_it_can_mean(queue: Queue, pages: Pages, date: str, form: str) -> None:
    root, entry, loc, dated = form.split()
    begin, end = f"<{root}>" + "<channel>" * (root == "rss"), "</channel>" * (root == "rss") + f"</{root}>"
    latest = datetime.fromisoformat(DATES[date])
    for seconds, is_new in ((0, True), (1, False)):
        since = datetime.fromtimestamp(latest.timestamp() + seconds, UTC)
        body = f"{begin}<{entry}><{dated}> {date}\n</{dated}><{loc}>{A}/{seconds}</{loc}></{entry}>{end}".encode()
        await queue.put_sitemaps(A, since=since)
        report = await queue.crawl(SimulatedWeb({MAP: Reply(body=body)}), pages)
        assert (f"{A}/{seconds}" in pages.urls, report.skipped) == (is_new, not is_new)


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "2020-13",
        "2020-00",
        "2020-02-30",
        "0000",
        "9999",
        "9999-12-31",
        "20200101",
        "2020-W01",
        "2020-01-01T",
        "2020-01-01T25:00Z",
        "1:2",
        ":",
        "\u0662\u0660\u0662\u0660",
        "2020-01-01T10:00+99:99",
        "x" * 30_000,
        ", : " * 5_000,
    ],
)
async def test_an_unreadable_date_leaves_nothing_out(queue: Queue, pages: Pages, date: str) -> None:
    body = f"<urlset><url><lastmod>{date}</lastmod><loc>{A}/1</loc></url></urlset>"
    await queue.put_sitemaps(A, since=datetime(2026, 11, 2, tzinfo=UTC))
    await queue.crawl(SimulatedWeb({MAP: Reply(body=body.encode())}), pages)
    assert pages.urls == [f"{A}/1"]
