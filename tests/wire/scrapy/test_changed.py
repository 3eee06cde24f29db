"""Rules or requests that change between the judgement and the turn."""

from typing import Final

import pytest

from tests.wire.scrapy.crawling import OPEN, QUICK, Site, answering, crawl, html, in_turn, serving, text

pytestmark = [pytest.mark.realtime, pytest.mark.full]

OTHER_SITE: Final = " (it would be sent with the Host header 'other.example': the rules of that site would apply)"


async def test_request_that_is_not_permitted_as_it_is_sent_is_ignored_and_counted_once_with_the_reason() -> None:
    sites = {
        # The rules are fetched anew between the judgement and the turn.
        "/forget": Site(answering(in_turn(text(OPEN), text("User-agent: *\nDisallow: /forget\n")))),
        "/deny": Site(404, {"/deny": html()}),
        "/header#other-host": Site(404, {"/header": html()}),
        "/host": Site(404, {"/host": html()}),
    }
    reasons = {"/forget": "", "/deny": " (a host policy denies this host)"}
    replaced, same = Site("User-agent: *\nDisallow: /private\n", {"/private": html()}), Site(404, {"/page": html()})
    async with serving(*sites.values(), replaced, same):
        urls = [f"{site.base}{path}" for path, site in sites.items()]
        urls += [f"{replaced.base}/replace", f"{same.base}/page#same-host"]
        done = await crawl(urls, QUICK | {"DOWNLOADER_MIDDLEWARES": {"meddling.Meddler": 900}})
    for path, site in sites.items():
        url, why = f"{site.base}{path}", reasons.get(path, OTHER_SITE)
        assert site.page_paths == []
        assert done.ignored[url] == f"IgnoreRequest: Forbidden by robots.txt{why}"
        assert done.log.count(f"Forbidden by robots.txt: <GET {url}>{why}\n") == 1
    # A request that a middleware behind returns is judged as any other.
    assert replaced.paths == ["/robots.txt"]
    assert done.ignored[f"{replaced.base}/private"] == "IgnoreRequest: Forbidden by robots.txt"
    # A Host header that names the same site is sent.
    assert done.pages == [f"{same.base}/page"]
    assert sites["/forget"].robots_count == 2
    assert done.robots_stats()["robotstxt/forbidden"] == len(done.ignored) == 5
    assert done.stats["finish_reason"] == "finished"
