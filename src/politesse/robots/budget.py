"""Bounds the matching work of a decision, counted in octets; all implementations count in the same way.

Comparing all wildcards of a file of 500 KiB with a target of 20,480 octets may take as many steps as the product of the
two lengths. So wildcards are compared within a budget. The budget counts octets, not time, so that all machines agree.

A wildcard is a pattern with stars. The stars cut the pattern into texts: the head, which is the start of the pattern,
and the segments after the head (``PathPattern``). A wildcard costs nothing if the target is shorter than all these
texts together, or does not start with the head. The cost of any other wildcard is an upper bound on its work, and is
taken from the budget before the work. The cost is the sum of:

    1,000
    100 for each segment
    half the length of the target
    (the length of the longest segment + 4) for each octet of the target that equals the first octet of a segment

A segment that ends in an incomplete escape, such as ``%4``, counts as 17 segments and as 16 octets longer.

Each segment is searched for after the end of the previous segment. So the search passes each octet of the target once,
even if there are many segments.

The rules are tried in order of precedence, the most specific first, and the first matching rule decides. If the budget
does not suffice for a rule, neither this rule nor a later rule with a cost is compared. These rules are undecided: an
undecided Disallow counts as matching, an undecided Allow as not matching. So the first undecided Disallow that precedes
the best known match decides. A skipped comparison never turns a Disallow into an Allow. Proof:

* Suppose that, without the bound, a Disallow D decides. Then no rule before D matches. With the bound, if a Disallow
  before D is undecided, the first such Disallow decides. Otherwise D decides, because it matches or is undecided.
* Suppose that, with the bound, an Allow decides. Then this Allow matches, and each Disallow before it was compared and
  does not match. So without the bound an Allow decides, too.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Final

from politesse.robots.pattern import PathPattern, cut_at_stars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BUDGET: Final = 2_500_000
"""Octets that one decision may compare."""

USAGE_BUDGET: Final = BUDGET // 2
"""Octets that the look-up of preferences on use may compare, which comes after a decision."""

_PER_TRY: Final = 1_000
_PER_SEGMENT: Final = 100
_PASSED_AT_ONCE: Final = 2
_PER_START: Final = 4

WORK: Final = (BUDGET, _PER_TRY, _PER_SEGMENT, _PASSED_AT_ONCE, _PER_START)
"""The budget and the costs, for the compiled core."""


class Meter:
    """Compares patterns with the forms of one target within a budget.

    Args:
        forms: the target in normal form, and in another form with which wildcards are also compared.
        left: the budget, in octets.

    Attributes:
        forms: the forms of the target.
        left: how many octets of the budget are not spent.
        exhausted: whether the budget did not suffice for a comparison.
    """

    __slots__ = ("_starts", "exhausted", "forms", "left")

    def __init__(self, forms: Sequence[str], left: int) -> None:
        self.forms: Sequence[str] = forms
        self.left: int = left
        self.exhausted: bool = False
        self._starts: dict[tuple[str, str], int] = {}  # (form, octet) -> the count of the octet

    def matches(self, pattern: PathPattern) -> bool:
        """Whether a form matches a pattern; False if the budget did not suffice for the comparison."""
        if not pattern.segments:  # no star reaches into the query, so the other form means the same
            return self._pay(_PER_START) and pattern.matches(self.forms[0])
        for form in self.forms:
            if len(form) >= pattern.octets and form.startswith(pattern.head):
                if not self._pay(self._cost(pattern, form)):
                    return False
                if pattern.matches(form):
                    return True
        return False

    def may_match(self, pattern: PathPattern) -> bool:
        """Whether a comparison with a wildcard has a cost."""
        return any(len(form) >= pattern.octets and form.startswith(pattern.head) for form in self.forms)

    def _pay(self, octets: int) -> bool:
        """Take ``octets`` from the budget; return whether it sufficed."""
        if octets > self.left:
            self.exhausted = True  # for all that follows: nothing that has a cost is compared any more
        self.left -= octets
        return not self.exhausted

    def _cost(self, pattern: PathPattern, form: str) -> int:
        starts, (segments, longest, firsts) = 0, pattern.costs or pattern.reckoned()
        for first in firsts:
            if (form, first) not in self._starts:  # cached, because a count takes longer than a search
                self._starts[form, first] = form.count(first)
            starts += self._starts[form, first]
        without_starts = _PER_TRY + _PER_SEGMENT * segments + len(form) // _PASSED_AT_ONCE
        return without_starts + starts * (longest + _PER_START)


def metered_matcher(pattern: str) -> Callable[[Meter], bool]:
    """Return a predicate that matches the forms of a target with ``pattern``, the path of a Content-Usage line.

    If the budget does not suffice, the predicate returns False, and the meter is exhausted.
    """
    return methodcaller("matches", cut_at_stars(pattern))
