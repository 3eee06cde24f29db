"""Which of Scrapy's responses have their directives in the meta."""

import pickle
from typing import Final

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.statscollectors import MemoryStatsCollector

from politesse.integrations.scrapy import RobotsTxtMiddleware
from politesse.page import PageDirectives

PAGE: Final = "politesse_page"
UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
URL: Final = "https://example.com/page"
BODY: Final = b'<head><meta name="robots" content="noarchive"></head>'
BOTH: Final = (["noindex", "noarchive"], False)
ALONE: Final = (["noindex"], False)
HEADERS: Final = {"Content-Type": "text/html", "X-Robots-Tag": ["noindex", "otherbot: nofollow"]}


def middleware(**settings: object) -> RobotsTxtMiddleware:
    crawler = Crawler(Spider, {"USER_AGENT": UA, "ROBOTSTXT_OBEY": True, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    return RobotsTxtMiddleware.from_crawler(crawler)


def read(response: Response, method: str = "GET") -> PageDirectives:
    request = Request(URL, method=method)
    middleware().process_response(request, response)
    page: PageDirectives = request.meta[PAGE]
    return page


def names(page: PageDirectives) -> list[str]:
    return [one.name for one in page.statements]


async def test_request_that_was_exempt_is_read_for_the_crawler_that_it_names() -> None:
    robots = middleware()
    browser = "Mozilla/5.0 (X11)"  # it names no crawler, so the page is read for that of the gate
    expected_by_agent = {UA: ["noindex"], "OtherBot/1.0": ["noindex", "nofollow"], browser: ["noindex"]}
    for user_agent, expected in expected_by_agent.items():
        request = Request(URL, headers={"User-Agent": user_agent}, meta={"dont_obey_robotstxt": True})
        assert await robots.process_request(request) is None
        response = HtmlResponse(URL, headers=HEADERS)
        assert robots.process_response(request, response) is response
        assert names(request.meta[PAGE]) == expected


@pytest.mark.parametrize(("setting", "meta"), [(False, {}), (True, {"politesse_robots_txt": 0})])
async def test_setting_turns_it_off_and_robots_txt_itself_has_none(setting: object, meta: dict[str, object]) -> None:
    request = Request(URL, meta=meta)
    response = HtmlResponse(URL, headers=HEADERS, body=BODY)
    middleware(POLITESSE_PAGE_DIRECTIVES=setting).process_response(request, response)
    assert PAGE not in request.meta


async def test_request_that_is_ignored_keeps_none_of_the_page_whose_meta_it_has() -> None:
    request = Request("http://example.com/private/../page", meta={PAGE: PageDirectives(), "mine": 1})
    with pytest.raises(IgnoreRequest):
        await middleware().process_request(request)
    assert request.meta == {"mine": 1}


@pytest.mark.parametrize(
    ("response", "method", "expected"),
    [
        (HtmlResponse(URL, headers=HEADERS, body=BODY), "GET", BOTH),
        (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["cached"]), "GET", BOTH),
        (Response(URL, headers={"X-Robots-Tag": "noindex"}, body=BODY), "GET", BOTH),
        (Response(URL, headers=HEADERS | {"Content-Type": "text/plain"}, body=BODY), "GET", ALONE),
        (Response(URL, headers=HEADERS | {"Content-Encoding": "gzip"}), "HEAD", ALONE),
        (HtmlResponse(URL, 302, headers=HEADERS, body=BODY), "GET", ALONE),
        (Response(URL, headers=HEADERS | {"Content-Encoding": "gzip"}, body=b"zipped"), "GET", (["noindex"], True)),
        *(
            (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=[flag]), "GET", (BOTH[0], True))
            for flag in ("dataloss", "download_stopped", "partial")
        ),
    ],
)
def test_body_counts_if_it_is_a_page_and_truncated_says_if_a_part_is_missing(
    response: Response, method: str, expected: tuple[list[str], bool]
) -> None:
    page = read(response, method)
    assert (names(page), page.truncated) == expected


def test_directives_in_the_meta_can_be_pickled() -> None:
    page = read(HtmlResponse(URL, headers=HEADERS, body=BODY))
    assert pickle.loads(pickle.dumps(page, protocol=4)) == page  # noqa: S301 - our own
