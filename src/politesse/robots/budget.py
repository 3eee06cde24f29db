"""Bounds the matching work of a decision, counted in octets; all implementations count in the same way.

Comparing all wildcards of a file of 500 KiB with a target of 20,480 octets may take as many steps as the product of the
two lengths. So wildcards are compared within a budget. The budget counts octets, not time, so that all machines agree.

A wildcard is a pattern with stars. The stars cut the pattern into texts: the head, which is the start of the pattern,
and the segments after the head. A wildcard costs nothing if the target is shorter than all these texts together, or
does not start with the head. The cost of any other wildcard is an upper bound on its work, and is taken from the budget
before the work. The cost is the sum of:

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

from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Final

from politesse.robots.matchers import wildcard_of
from politesse.robots.memory import memory_of
from politesse.robots.pattern import is_literal, match_form, matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from politesse.robots.matchers import Wildcard

BUDGET: Final = 2_500_000
"""Octets that one decision may compare."""

_PER_TRY: Final = 1_000
_PER_SEGMENT: Final = 100
_PASSED_AT_ONCE: Final = 2
_PER_START: Final = 4
_HEADS_AT_ONCE: Final = 100

WORK: Final = (BUDGET, _PER_TRY, _PER_SEGMENT, _PASSED_AT_ONCE, _PER_START)
"""The budget and the costs, for the compiled core."""


class Meter:
    """Compares wildcards with the forms of one target within a budget.

    Args:
        forms: the target in normal form, and in the other forms with which wildcards are compared.
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

    def matches(self, wildcard: Wildcard) -> bool:
        """Whether a form matches a wildcard; False if the budget did not suffice for the comparison."""
        for form in self.forms:
            if len(form) >= wildcard.octets and form.startswith(wildcard.head):
                if not self.pay(self._cost(wildcard, form)):
                    return False
                if wildcard.matches(form):
                    return True
        return False

    def pay(self, octets: int) -> bool:
        """Take ``octets`` from the budget; return whether it sufficed."""
        self.exhausted = self.exhausted or octets > self.left
        self.left -= octets
        return not self.exhausted

    def _cost(self, wildcard: Wildcard, form: str) -> int:
        starts, (segments, longest) = 0, wildcard.costs
        for first in {segment[:1] for segment in wildcard.segments if segment}:
            if (form, first) not in self._starts:  # cached, because a count takes longer than a search
                self._starts[form, first] = form.count(first)
            starts += self._starts[form, first]
        without_starts = _PER_TRY + _PER_SEGMENT * segments + len(form) // _PASSED_AT_ONCE
        return without_starts + starts * (longest + _PER_START)


class Wildcards:
    """Those rules of an agent that have wildcards, in the order in which they are tried.

    Args:
        places: the index of each rule in the RuleTable of the agent.
        cut: the pattern of each rule, cut at its stars.
        allows: whether each rule is an Allow.

    Attributes:
        places: the index of each rule in the RuleTable.
    """

    __slots__ = ("_allows", "_cut", "_per_octet", "_without_target", "places")

    def __init__(self, places: Sequence[int], cut: Sequence[Wildcard], allows: Sequence[bool]) -> None:
        self.places: Sequence[int] = places
        self._cut = tuple(cut)
        self._allows = bytes(allows)
        costs = [one.costs for one in cut]
        self._without_target = sum([_PER_TRY + _PER_SEGMENT * segments for segments, _ in costs])
        # The upper bound assumes that each octet of the target is the first octet of a segment.
        self._per_octet = sum([1 + longest + _PER_START for _, longest in costs])

    def __len__(self) -> int:
        return len(self._cut)

    def first(self, forms: Sequence[str], end: int) -> tuple[int, bool]:
        """Return the index of the first matching wildcard before ``end``, and whether the budget was exceeded.

        The index is ``end`` if no wildcard matches. If the budget was exceeded, the first undecided Disallow counts as
        matching.
        """
        if self._at_most(forms) <= BUDGET:
            for index, wildcard in enumerate(self._cut[:end]):
                for form in forms:
                    if form.startswith(wildcard.head) and wildcard.matches(form):
                        return index, False
            return end, False
        meter = Meter(forms, BUDGET)
        for index in self._candidates(forms, 0, end):
            if meter.matches(self._cut[index]):
                return index, False
            if meter.exhausted:
                start = self._allows.find(b"\0", index, end)
                return next(self._candidates(forms, end if start < 0 else start, end, disallows=True), end), True
        return end, False

    def _candidates(self, forms: Sequence[str], start: int, end: int, *, disallows: bool = False) -> Iterator[int]:
        """Yield the indexes of the wildcards that have to be compared, or only of the Disallows among these."""
        # A file may have 30,000 wildcards. So each step compares the heads of many wildcards in one call, and looks at
        # single wildcards only if a head fits.
        first, last = forms[0], forms[-1]
        for index in range(start, end, _HEADS_AT_ONCE):
            some = self._cut[index : min(index + _HEADS_AT_ONCE, end)]
            heads = tuple([one.head for one in some])
            if first.startswith(heads) or last.startswith(heads):
                yield from [
                    other
                    for other, one in enumerate(some, index)
                    if not (disallows and self._allows[other])
                    and (
                        (len(first) >= one.octets and first.startswith(one.head))
                        or (last is not first and len(last) >= one.octets and last.startswith(one.head))
                    )
                ]

    def _at_most(self, forms: Sequence[str]) -> int:
        """Return an upper bound on the cost of all wildcards. For nearly all files it is less than the budget."""
        return len(forms) * (self._without_target + self._per_octet * max(map(len, forms)))

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the wildcards take."""
        return memory_of((self, self.places, self._cut, self._allows)) + sum([one.weight_bytes for one in self._cut])


def metered_matcher(pattern: str) -> Callable[[Meter], bool]:
    """Return a predicate that matches the forms of a target with ``pattern``, the path of a Content-Usage line.

    A pattern is also compared with the other forms if a star may reach into the query, or if the pattern ends within an
    escape. If the budget does not suffice, the predicate returns False, and the meter is exhausted.
    """
    form = match_form(pattern)
    if not is_literal(form):
        return methodcaller("matches", wildcard_of(form))
    return partial(_matches_literal, matcher(pattern))


def _matches_literal(matches: Callable[[str], bool], meter: Meter) -> bool:
    return meter.pay(_PER_START) and matches(meter.forms[0])


def meter_of(normal: str, written: str | None) -> Meter:
    """Return a meter that compares the forms of a target with Content-Usage paths, within half the budget."""
    return Meter((normal,) if written is None else (normal, written), BUDGET // 2)
