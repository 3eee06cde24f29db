"""Rules and matching.

Invariant: for all octets and in every dialect, the verdict on a target is that of a slow, literal reading of the
dialect's text, which shares no code with the library. Only a target that no client could send has no verdict.

Exempt are files in the dialect PERL with a host beyond ASCII: the literal reading does not know IDNA.

Input: one octet for the dialect, then a line for the crawler, a line for the target, and the file.
"""

import re
from typing import Final

from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.robots import Dialect, Match, RobotsTxt, RuleSet
from politesse.verdict import Reason
from tests.fuzz.rows import canonical, rows, utf_8
from tests.fuzz.target import Target, choose, dictionary, text
from tests.rules.properties import reference
from tests.rules.properties.reference import Decision
from tests.rules.properties.reference_dialects import REFERENCES

_NO_ASCII_HOST: Final = re.compile(rb"//[^/?\r\n]*[\x80-\xff]")
_MOST_NEAR: Final = 4
_MOST_FILLED: Final = 8
_SITE: Final = Origin.of("http://example.com")


def check(octets: bytes) -> None:
    """Hold the verdicts to the invariant: on the target, and on targets made from the rules."""
    dialect = choose(octets[:1], tuple(Dialect))
    agent, _, rest = octets[1:].partition(b"\n")
    path, _, body = rest.partition(b"\n")
    if dialect is Dialect.PERL and _NO_ASCII_HOST.search(utf_8(body)) is not None:
        return
    robots = RobotsTxt.parse(body, dialect, origin=_SITE)
    by_the_letter = canonical(body, dialect)
    lines = rows(body, dialect)
    near = [near_target(line.value, path) for line in lines if line.field in {b"allow", b"disallow"}]
    named = [product_token(line.value) for line in lines if line.field == b"user-agent"]
    for name in {product_token(agent), *named[:1]}:
        rules = robots.rules_for(name.decode())
        for one in (path, *near[:_MOST_NEAR]):
            _check_verdict(rules, dialect, by_the_letter, name, one)


def product_token(agent: bytes) -> bytes:
    """Return the name as a product token: letters, "_" and "-" only (RFC 9309 2.2.1)."""
    return re.sub(rb"[^A-Za-z_-]", b"", agent) or b"ExampleBot"


def near_target(pattern: bytes, filler: bytes) -> bytes:
    """Return a target that a pattern may match: its stars filled in."""
    return pattern.removesuffix(b"$").replace(b"*", filler[:_MOST_FILLED])


def _check_verdict(rules: RuleSet, dialect: Dialect, by_the_letter: bytes, name: bytes, path: bytes) -> None:
    target = "/" + text(path).removeprefix("/")
    try:
        match = rules.match(target)
    except InvalidURL:
        assert not _can_be_sent(path), f"no verdict on {target!r}"
        return
    assert _can_be_sent(path), f"a verdict on {target!r}, which nobody can send"
    expected = REFERENCES[dialect](by_the_letter, name, target.encode())
    _compare(match, expected, dialect)
    assert rules.allowed(target) is rules.allowed(f"{_SITE}{target}") is expected.allowed


def _compare(match: Match, expected: Decision, dialect: Dialect) -> None:
    assert match.allowed is expected.allowed, f"{match}, and by the letter {expected}"
    assert (match.reason is Reason.ROBOTS_TXT) is expected.exempt, f"{match}, and by the letter {expected}"
    if expected.lines:
        assert match.rule is not None, f"no rule, and by the letter {expected}"
        assert match.rule.line in expected.lines, f"{match}, and by the letter {expected}"
    if dialect is Dialect.RFC9309:
        octets = None if match.rule is None else len(match.rule.pattern)
        assert octets == expected.octets, f"{match} of {octets} octets, and by the letter {expected}"


def _can_be_sent(path: bytes) -> bool:
    if any(octet in reference.CONTROL for octet in path):
        return False
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True


TARGET: Final = Target("matching", check, dictionary("matching"), 512)
