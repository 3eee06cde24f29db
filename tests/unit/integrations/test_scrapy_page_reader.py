"""Which of Scrapy's responses have their directives in the meta."""

from __future__ import annotations

import pickle
from typing import Final

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.statscollectors import MemoryStatsCollector

from politesse.integrations.scrapy import RobotsTxtMiddleware
from politesse.integrations.scrapy.engine_fetcher import ROBOTS_TXT
from politesse.integrations.scrapy.page_reader import PAGE, PageReader
from politesse.page import PageDirectives

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
URL: Final = "https://example.com/page"
BODY: Final = b'<head><meta name="robots" content="noarchive"></head>'
HEADERS: Final = {"Content-Type": "text/html", "X-Robots-Tag": ["noindex", "otherbot: nofollow"]}


def middleware(**settings: object) -> RobotsTxtMiddleware:
    crawler = Crawler(Spider, {"USER_AGENT": UA, "ROBOTSTXT_OBEY": True, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    return RobotsTxtMiddleware.from_crawler(crawler)


def read(response: Response, method: str = "GET") -> PageDirectives:
    return PageReader().read(Request(URL, method=method), response, ("examplebot",))


def names(page: PageDirectives) -> list[str]:
    return [one.name for one in page.statements]


async def test_request_that_was_exempt_is_read_for_the_crawler_that_it_names() -> None:
    robots = middleware()
    for user_agent, expected in {UA: ["noindex"], "OtherBot/1.0": ["noindex", "nofollow"]}.items():
        request = Request(URL, headers={"User-Agent": user_agent}, meta={"dont_obey_robotstxt": True})
        assert await robots.process_request(request) is None
        response = HtmlResponse(URL, headers=HEADERS)
        assert robots.process_response(request, response) is response
        assert names(request.meta[PAGE]) == expected


async def test_robots_txt_itself_has_none() -> None:
    request = Request("https://example.com/robots.txt", meta={ROBOTS_TXT: 0, "dont_obey_robotstxt": True})
    middleware().process_response(request, HtmlResponse(request.url, headers=HEADERS, body=BODY))
    assert PAGE not in request.meta


async def test_setting_turns_it_off() -> None:
    request = Request(URL)
    middleware(POLITESSE_PAGE_DIRECTIVES=False).process_response(request, HtmlResponse(URL, headers=HEADERS))
    assert PAGE not in request.meta


async def test_request_that_is_ignored_keeps_none_of_the_page_whose_meta_it_has() -> None:
    request = Request("http://example.com/private/../page", meta={PAGE: PageDirectives(), "mine": 1})
    with pytest.raises(IgnoreRequest):
        await middleware().process_request(request)
    assert request.meta == {"mine": 1}


def test_body_counts_where_it_is_html() -> None:
    assert names(read(HtmlResponse(URL, headers=HEADERS, body=BODY))) == ["noindex", "noarchive"]
    assert names(read(Response(URL, headers={"X-Robots-Tag": "noindex"}, body=BODY))) == ["noindex", "noarchive"]
    other = read(Response(URL, headers=HEADERS | {"Content-Type": "text/plain"}, body=BODY))
    assert (names(other), other.truncated) == (["noindex"], False)


def test_compressed_head_has_headers_alone_and_no_more() -> None:
    page = read(Response(URL, headers=HEADERS | {"Content-Encoding": "gzip"}), "HEAD")
    assert (names(page), page.truncated) == (["noindex"], False)


def test_redirect_that_a_spider_handles_has_headers_alone() -> None:
    page = read(HtmlResponse(URL, 302, headers=HEADERS, body=BODY))
    assert (names(page), page.truncated) == (["noindex"], False)


@pytest.mark.parametrize("flag", ["dataloss", "download_stopped", "partial"])
def test_page_that_was_cut_off_may_say_more(flag: str) -> None:
    assert read(HtmlResponse(URL, headers=HEADERS, body=BODY, flags=[flag])).truncated
    assert not read(HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["cached"])).truncated


def test_directives_in_the_meta_can_be_pickled() -> None:
    page = read(HtmlResponse(URL, headers=HEADERS, body=BODY))
    assert pickle.loads(pickle.dumps(page, protocol=4)) == page  # noqa: S301 - our own
