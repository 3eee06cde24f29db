"""What a row of a table asks of the library."""

from collections.abc import Sequence
from typing import Final

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.usage.model import Preference, Purpose
from tests.rules.conformance.tables import Access, PathMatch, Preferences, Row

AGENT = "ExampleBot"

# An Allow beside a Disallow that decides if the Allow does not match; dialects that are not here know no such Allow.
ALLOWING: Final = {
    Dialect.RFC9309: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.GOOGLE: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_2019: "User-agent: *\nDisallow: *\nAllow: {}",
    Dialect.KOSTER_1996: "User-agent: *\nAllow: {}\nDisallow: /",
}


def check(rows: Sequence[Row]) -> None:
    """Hold the library to the rows of one entry; a failure lists all rows that do not hold."""
    assert [row for row in rows if not _holds(row)] == []


def _holds(row: Row) -> bool:
    if isinstance(row, Access):
        robots = RobotsTxt.parse(row.robots_txt, row.dialect, origin=row.origin)
        return robots.rules_for(row.agent).allowed(row.url) is row.allowed
    if isinstance(row, PathMatch):
        return _path_holds(row)
    if isinstance(row, Preferences):
        return _stated(row) == row.stated
    return Origin.of(row.url).robots_url == row.robots_url


def _path_holds(row: PathMatch) -> bool:
    disallowing = RobotsTxt.parse(f"User-agent: *\nDisallow: {row.path}", row.dialect).rules_for(AGENT)
    if disallowing.allowed(row.target) is row.matches:
        return False
    if row.dialect not in ALLOWING:
        return True
    allowing = RobotsTxt.parse(ALLOWING[row.dialect].format(row.path), row.dialect).rules_for(AGENT)
    return allowing.allowed(row.target) is row.matches


def _stated(row: Preferences) -> dict[str, str] | None:
    rules = RobotsTxt.parse(row.robots_txt, row.dialect).rules_for(row.agent)
    usage = rules.usage(row.url)
    assert (usage is not None) is rules.allowed(row.url)
    if usage is None:
        return None
    return {
        purpose: preference
        for purpose in Purpose
        if (preference := usage.preference(purpose)) is not Preference.UNSTATED
    }
