"""The judge of traces reads rules as the literal reading of the RFC does; the two share no code."""

import re
from typing import Final

from hypothesis import given, settings

from politesse.testing import Exchange, assert_polite
from tests.rules.properties import reference
from tests.rules.properties.strategies import MANY_GROUPS, ONE_GROUP, Case

NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
SITE: Final = "https://example.com"


def _forbidding_line(robots_txt: bytes, target: str, token: str) -> int | None:
    """Return the number of the line that forbids a target, as the judge reads the file."""
    trace = [Exchange(f"{SITE}/robots.txt", 0.0, 0.0), Exchange(SITE + target, 60.0, 60.0)]
    try:
        assert_polite(trace, {SITE: robots_txt}, agent=token)
    except AssertionError as error:  # it may also tell that the page came too soon
        found = re.search(r"^forbidden page requested: .* \(against line (\d+): ", str(error), re.MULTILINE)
        return None if found is None else int(found[1])
    return None


def _hold(case: Case, token: str) -> None:
    # What a percent sign may mean that begins no escape is a question for the parser, not for the judge.
    robots_txt = NO_ESCAPE.sub("x", case.robots_txt.decode("latin-1")).encode("latin-1")
    records = reference.records_for(robots_txt, token.encode())
    for target in (NO_ESCAPE.sub("x", target) for target in case.targets):
        expected = reference.decide(records, target.encode())
        line = _forbidding_line(robots_txt, target, token)
        assert (line is None) is expected.allowed, (target, line)
        assert line is None or line in expected.lines, (target, line)


@settings(max_examples=2_000)
@given(ONE_GROUP)
def test_rules_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=500)
@given(MANY_GROUPS)
def test_groups_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    for token in ("FooBot", "BAR-bot", "OtherBot"):
        _hold(case, token)
