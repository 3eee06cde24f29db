"""RobotParser through the interface of Scrapy's parsers."""

from typing import Final

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.misc import build_from_crawler

from politesse.integrations.scrapy import RobotParser

BODY: Final = """User-agent: examplebot
Disallow: /private
Allow: /private/ope
Disallow: /søg

User-agent: *
Disallow: /
""".encode()


def parser(body: bytes) -> RobotParser:
    return build_from_crawler(RobotParser, Crawler(Spider), body)


@pytest.mark.parametrize("user_agent", ["ExampleBot", b"ExampleBot/1.0 (+https://example.com/bot)"])
@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.com/", True),
        ("https://example.com/private", False),
        ("https://example.com/private/open", True),
        (b"https://example.com/private/x", False),
        ("https://example.com/s%C3%B8g", False),
        ("https://example.com/søg".encode(), False),
    ],
)
def test_named_group_decides(url: str | bytes, user_agent: str | bytes, allowed: bool) -> None:  # noqa: FBT001
    assert parser(BODY).allowed(url, user_agent) is allowed


def test_other_crawlers_are_bound_by_the_group_for_all() -> None:
    assert parser(BODY).allowed("https://example.com/", "OtherBot/2.0") is False


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"<html>", b"Disallow: /\n"])
def test_file_without_rules_allows_everything(body: bytes) -> None:
    assert parser(body).allowed("https://example.com/page", "ExampleBot") is True
