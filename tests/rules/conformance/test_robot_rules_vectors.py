"""The vectors of the tests of WWW::RobotRules 6.02 (CPAN, t/rules.t).

What is true there is not false here: the questions about another site, whose answer is -1 in Perl, are UNKNOWN.
"""

import pytest

from politesse.robotrules import RobotRules, RobotRulesAnswer
from tests.rules.conformance.tables import Access, entries


@pytest.mark.parametrize("rows", entries("robot-rules-vectors"))
def test_questions_about_a_file(rows: list[Access]) -> None:
    assert [row for row in rows if not _holds(row)] == []


def _holds(row: Access) -> bool:
    rules = RobotRules(row.agent, perl_exact=True)
    rules.parse("http://foo/robots.txt", row.robots_txt)
    answer = rules.allowed(row.url)
    if row.url.startswith("http://bar/"):
        return row.allowed and answer is RobotRulesAnswer.UNKNOWN
    return bool(answer) is row.allowed and answer is not RobotRulesAnswer.UNKNOWN
