"""The judge of traces reads rules as the literal reading of the RFC does; the two share no code."""

import re
from typing import Final

from hypothesis import given, settings

from politesse.testing._literal import LiteralRules
from tests.property import reference
from tests.property.strategies import MANY_GROUPS, ONE_GROUP, Case

NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def _hold(case: Case, token: str) -> None:
    # What a percent sign may mean that begins no escape is a question for the parser, not for the judge.
    robots_txt = NO_ESCAPE.sub("x", case.robots_txt.decode("latin-1")).encode("latin-1")
    rules = LiteralRules(robots_txt, token)
    records = reference.records_for(robots_txt, token.encode())
    for target in (NO_ESCAPE.sub("x", target) for target in case.targets):
        expected = reference.decide(records, target.encode())
        against = rules.against(target.partition("#")[0])
        assert (against is None) is expected.allowed, (target, against)
        assert against is None or int(against.split()[2].rstrip(":")) in expected.lines, (target, against)


@settings(max_examples=2_000)
@given(ONE_GROUP)
def test_rules_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=500)
@given(MANY_GROUPS)
def test_groups_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    for token in ("FooBot", "BAR-bot", "OtherBot"):
        _hold(case, token)
