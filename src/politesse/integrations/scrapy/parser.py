"""A parser for the setting ``ROBOTSTXT_PARSER``, for Scrapy's own or any other middleware."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from scrapy.robotstxt import RobotParser as ScrapyRobotParser

from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class RobotParser(ScrapyRobotParser):
    r"""RFC 9309 behind the interface of Scrapy's parsers.

    Args:
        body: a robots.txt, as octets; parsed on first use.

    Example:
        >>> parser = RobotParser(b"User-agent: *\nDisallow: /private\n")
        >>> parser.allowed("https://example.com/private/page", "ExampleBot/1.0")
        False
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> Self:  # noqa: ARG003 - as Scrapy has it
        """Return the parser of a body; never raises, whatever the body is."""
        return cls(robotstxt_body)

    @cached_property
    def robots(self) -> RobotsTxt:
        """The parsed file."""
        return RobotsTxt.parse(self._body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Return whether ``user_agent``, a User-Agent or a product token, may request ``url``.

        Raises:
            InvalidURL: ``url`` is not an absolute http or https URL.
        """
        return self.robots.rules_for(_text(user_agent)).allowed(_text(url))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Return the Crawl-delay for ``user_agent`` in seconds, None if there is none."""
        return self.robots.rules_for(_text(user_agent)).crawl_delay


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
