"""The tables of the standards: all their rows of one clause at once, as a test for each would cost more in pytest."""

import pytest

from politesse.robotrules import RobotRules, RobotRulesAnswer
from tests.rules.conformance.tables import DATA, Access, Entries, clauses, failing

ANSWERED_IN_PERL = "robot-rules-vectors"
TABLES = sorted(path.stem for path in DATA.glob("*.toml") if path.stem != ANSWERED_IN_PERL)


@pytest.mark.parametrize("entries", clauses(*TABLES))
def test_rows_of_a_clause_hold(entries: Entries) -> None:
    assert failing(entries) == {}


@pytest.mark.parametrize("entries", clauses(ANSWERED_IN_PERL))
def test_vectors_of_the_tests_of_www_robot_rules_hold(entries: Entries) -> None:
    """What is true there is not false here: questions about another site, whose answer is -1 in Perl, are UNKNOWN."""
    assert failing(entries, _holds_in_perl) == {}


def _holds_in_perl(row: Access) -> bool:
    rules = RobotRules(row.agent, perl_exact=True)
    rules.parse("http://foo/robots.txt", row.robots_txt)
    answer = rules.allowed(row.url)
    if row.url.startswith("http://bar/"):
        return row.allowed and answer is RobotRulesAnswer.UNKNOWN
    return bool(answer) is row.allowed and answer is not RobotRulesAnswer.UNKNOWN
