"""politesse's reading of a robots.txt for ``ROBOTSTXT_PARSER``, with Scrapy's or anybody's middleware around it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from scrapy.robotstxt import RobotParser as ScrapyRobotParser

from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class RobotParser(ScrapyRobotParser):
    """RFC 9309 behind the interface of Scrapy's parsers.

    Args:
        body: a robots.txt, as octets; read when the first question is asked.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> Self:  # noqa: ARG003 - as Scrapy has it
        """Return the parser of a body; raises on no content whatsoever."""
        return cls(robotstxt_body)

    @cached_property
    def robots(self) -> RobotsTxt:
        """The file."""
        return RobotsTxt.parse(self._body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Whether ``user_agent``, a User-Agent or a product token, may request ``url``; raises InvalidURL."""
        return self.robots.rules_for(_text(user_agent)).allowed(_text(url))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Return the Crawl-delay for ``user_agent`` in seconds, None where there is none."""
        return self.robots.rules_for(_text(user_agent)).crawl_delay


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
