"""What a row of a table asks of the library."""

from __future__ import annotations

from politesse.origin import Origin
from politesse.robots import RobotsTxt
from tests.conformance.tables import Access, Address, PathMatch

AGENT = "ExampleBot"


def check(row: Access | PathMatch | Address) -> None:
    """Hold the library to one row."""
    if isinstance(row, Access):
        assert RobotsTxt.parse(row.robots_txt).rules_for(row.agent).allowed(row.url) is row.allowed
    elif isinstance(row, PathMatch):
        # As the only Disallow, and as an Allow above a Disallow that anything outranks.
        disallowing = RobotsTxt.parse(f"User-agent: *\nDisallow: {row.path}").rules_for(AGENT)
        assert disallowing.allowed(row.target) is not row.matches
        allowing = RobotsTxt.parse(f"User-agent: *\nDisallow: *\nAllow: {row.path}").rules_for(AGENT)
        assert allowing.allowed(row.target) is row.matches
    else:
        assert Origin.of(row.url).robots_url == row.robots_url
