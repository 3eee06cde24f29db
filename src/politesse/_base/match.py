"""The match of a target: the rule that decides, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from politesse._base.reasons import ALLOWING, Reason


# The class is not frozen, because a frozen class would double the time of a decision.
@dataclass(slots=True, unsafe_hash=True, repr=False)
class Rule:
    r"""One Allow or Disallow line of a file.

    >>> from politesse import RobotsTxt
    >>> rule = RobotsTxt.parse(b"User-agent: *\nDisallow: /private").rules_for("ExampleBot").match("/private/a").rule
    >>> rule.line, rule.value, rule.allow
    (2, '/private', False)

    Attributes:
        line: the line number, from 1.
        field: the field name as the file spells it.
        value: the path pattern as the file spells it.
        pattern: the path pattern in the normal form that is compared; a longer pattern, in octets, has precedence.
        allow: whether this is an Allow line.
    """

    line: int
    field: str
    value: str
    pattern: str
    allow: bool = dataclass_field(kw_only=True)

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"

    def __repr__(self) -> str:
        return f"<Rule line {self.line}: {str(self)!r}>"


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Match:
    r"""Whether a target is allowed, and the rule that decided. ``bool(match)`` is True if the target is allowed.

    >>> from politesse import RobotsTxt
    >>> RobotsTxt.parse(b"User-agent: *\nDisallow: /private").rules_for("ExampleBot").match("/private/a")
    Match(allowed=False, rule=<Rule line 2: 'Disallow: /private'>)

    Attributes:
        allowed: the answer.
        rule: the most specific match, or None if no rule decided.
        reason: the reason. If the rules of a file decide, it is ALLOW_RULE, DISALLOW_RULE, NOT_ALLOWED, NO_RULE or
            ROBOTS_TXT.
        bound_reached: whether the decision reached the bound on its matching work. In that case, the rules that were
            not compared count as follows: each Disallow is a match, and each Allow is not.
    """

    reason: Reason
    rule: Rule | None = None
    bound_reached: bool = dataclass_field(default=False, kw_only=True)
    allowed: bool = dataclass_field(init=False)

    def __post_init__(self) -> None:
        self.allowed = self.reason in ALLOWING

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return f"Match(allowed={self.allowed}, rule={self.rule!r})"


WITHOUT_RULE: Final = {reason: Match(reason) for reason in Reason}
"""Maps each reason to a match without a rule."""

_ALLOW_RULE, _DISALLOW_RULE = Reason.ALLOW_RULE, Reason.DISALLOW_RULE  # CPython 3.11 is slow to look up enum members


def match_of_rule(
    line: int,
    field: str,
    value: str,
    pattern: str,
    allow: bool,  # noqa: FBT001 - as of Rule
    bound_reached: bool,  # noqa: FBT001 - as of Match
) -> Match:
    """Return the match of a deciding rule.

    The function calls no constructor, because the constructors would take a fifth of the time of a decision.
    """
    rule, match = object.__new__(Rule), object.__new__(Match)
    rule.line = line
    rule.field = field
    rule.value = value
    rule.pattern = pattern
    rule.allow = match.allowed = allow
    match.reason = _ALLOW_RULE if allow else _DISALLOW_RULE
    match.rule = rule
    match.bound_reached = bound_reached
    return match
