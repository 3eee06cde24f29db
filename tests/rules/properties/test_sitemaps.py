"""Each URL of a sitemap is crawled once, whatever the form and the chunks of its files."""

import asyncio
import gzip
from collections import Counter
from xml.sax.saxutils import escape

from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from politesse import Gatekeeper
from politesse.queue import CrawlReport, PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb

FORMS = {
    "text": ("", "{}\n", ""),
    "urlset": ("<urlset>", "<url><lastmod>2026-11-02</lastmod><loc>\n{} </loc></url>\n", "</urlset>"),
    "prefixed": ("<?xml version='1.0'?><s:urlset>", "<s:url><s:loc>{}</s:loc><i:loc>x</i:loc></s:url>", "</s:urlset>"),
    "CDATA": ("<urlset>", "<url><loc><![CDATA[{}]]></loc></url>", "</urlset>"),
    "Atom": ("<feed>", '<entry><link href="{}"/></entry>', "</feed>"),
    "RSS": ("\n<rss><channel>", "<item><link>{}</link></item>", "</channel></rss>"),
}
PATHS = st.text(st.sampled_from("ab/?&=.-~é"), max_size=12)


async def crawl(files: list[Reply]) -> tuple[list[str], CrawlReport]:
    """Crawl from an index of the files; return the URLs of the pages."""
    names = [f"{A}/{number}.xml" for number in range(len(files))]
    listed = "".join(f"<sitemap><loc>{name}</loc></sitemap>" for name in names)
    index = Reply(body=f"<sitemapindex>{listed}</sitemapindex>".encode(), chunk_octets=files[0].chunk_octets)
    pages = Pages()
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock(autojump=True)) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put_sitemaps(A)
        web = SimulatedWeb({f"{A}/sitemap.xml": index, **dict(zip(names, files, strict=True))})
        report = await queue.crawl(web, pages)
    return pages.urls, report


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FORMS)), st.lists(PATHS, min_size=1, max_size=8), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1, 2, 3, 17, 64, 10_000]),
)
def test_each_url_is_crawled_once(maps: list[tuple[str, list[str], bool]], chunk_octets: int) -> None:
    files, wanted = [], []
    for form, paths, is_packed in maps:
        begin, entry, end = FORMS[form]
        urls = [f"{A}/page/{path}" for path in paths]
        written = [url if form in {"text", "CDATA"} else escape(url) for url in urls]
        body = f"{begin}{''.join(entry.format(url) for url in written)}{end}".encode()
        files.append(Reply(body=gzip.compress(body) if is_packed else body, chunk_octets=chunk_octets))
        wanted += urls
    crawled, report = asyncio.run(crawl(files))
    assert Counter(str(URL(url)) for url in crawled) == Counter({str(URL(url)) for url in wanted})
    assert (report.sitemaps, report.failed, report.bad_links, report.left) == (len(files) + 1, 0, 0, 0)
