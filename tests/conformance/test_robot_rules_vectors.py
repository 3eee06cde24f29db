"""The vectors of the tests of WWW::RobotRules 6.02 (CPAN, t/rules.t).

What is true there is not false here: the questions about another site, whose answer is -1 in Perl, are UNKNOWN.
"""

import pytest

from politesse.robotrules import RobotRules, RobotRulesAnswer
from tests.conformance.tables import Access, rows


@pytest.mark.parametrize("row", rows("robot-rules-vectors"))
def test_question(row: Access) -> None:
    rules = RobotRules(row.agent, perl_exact=True)
    rules.parse("http://foo/robots.txt", row.robots_txt)
    answer = rules.allowed(row.url)
    if row.url.startswith("http://bar/"):
        assert (row.allowed, answer) == (True, RobotRulesAnswer.UNKNOWN)
    else:
        assert bool(answer) is row.allowed
        assert answer is not RobotRulesAnswer.UNKNOWN
