"""What a row of a table asks of the library."""

from typing import Final

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.usage.model import Preference, Purpose
from tests.conformance.tables import Access, Address, PathMatch, Preferences

AGENT = "ExampleBot"

# An Allow beside a Disallow that decides if the Allow does not match; dialects that are not here know no such Allow.
ALLOWING: Final = {
    Dialect.RFC9309: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.GOOGLE: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_2019: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_1996: "User-agent: *\nAllow: {}\nDisallow: /",
}


def check_usage(row: Preferences) -> None:
    """Hold the library to one row about the use of content."""
    rules = RobotsTxt.parse(row.robots_txt, row.dialect).rules_for(row.agent)
    usage = rules.usage(row.url)
    assert rules.allowed(row.url) is (row.stated is not None)
    if usage is None:
        assert row.stated is None
    else:
        assert row.stated == {
            purpose: preference
            for purpose in Purpose
            if (preference := usage.preference(purpose)) is not Preference.UNSTATED
        }


def check(row: Access | PathMatch | Address) -> None:
    """Hold the library to one row."""
    if isinstance(row, Access):
        robots = RobotsTxt.parse(row.robots_txt, row.dialect, origin=row.origin)
        assert robots.rules_for(row.agent).allowed(row.url) is row.allowed
    elif isinstance(row, PathMatch):
        disallowing = RobotsTxt.parse(f"User-agent: *\nDisallow: {row.path}", row.dialect).rules_for(AGENT)
        assert disallowing.allowed(row.target) is not row.matches
        if row.dialect in ALLOWING:
            allowing = RobotsTxt.parse(ALLOWING[row.dialect].format(row.path), row.dialect).rules_for(AGENT)
            assert allowing.allowed(row.target) is row.matches
    else:
        assert Origin.of(row.url).robots_url == row.robots_url
