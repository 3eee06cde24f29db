"""The bound on the matching work of a decision, counted in octets.

The comparisons of a file of 500 KiB with a target of 20,480 octets may take as many steps as the product of both. So
rules with wildcards are compared within a budget. The budget counts octets, not time, so that all machines agree.

The cost of a search has an upper bound that is known before the search. ``str.find`` looks at each place of the target,
and compares further octets only if both the first and the last octet of the needle match; from 2,500 octets of
target and 100 of needle on it runs in linear time. A search whose upper bound exceeds the budget is not made. A search
that is made costs the places that it passed. Cheap and bounded work is not counted: the look-up of a literal
prefix, of a whole path or of the head of a wildcard among the sorted ones.

The rules are tried from the most specific to the least, so that the first that matches decides. When the budget is
exhausted, each remaining rule is undecided: a Disallow counts as matching, an Allow as not. So the first undecided
Disallow that precedes the best known match decides, and an Allow never wins through work that was not done:

* Suppose a Disallow D decides without a bound. With the bound, either all rules before D are compared and do not match,
  so that D decides or is undecided; or a Disallow before D is undecided. In each case a Disallow decides.
* An Allow that decides with the bound was compared, and so was each Disallow that precedes it: it decides without the
  bound, too.

Most files and targets need no counting. ``Wildcards.unmetered_octets`` is the length of a target up to which all rules
of a file, at their worst, take a third of the budget: escapes may have taken one third, and a second form takes one.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, TypeAlias

from politesse.robots.memory import flat, memory_of
from politesse.robots.pattern import is_literal, match_form, matcher
from politesse.robots.prefixes import PrefixIndex
from politesse.robots.rule_table import RuleTable
from politesse.robots.wildcard import Wildcard, wildcard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Batch: TypeAlias = "tuple[tuple[str, ...], Sequence[int]]"
"""(needles of some wildcards, their indexes)."""

BUDGET: Final = 2_500_000
"""Octets that one decision may compare."""

# Costs, in octets that str.find compares in the same time: of each escape of a target, each candidate rule, each rule
# that is compared, and each search.
_PER_ESCAPE: Final = 160
_PER_IN_QUESTION: Final = 100
_PER_RULE: Final = 500
_PER_SEARCH: Final = 900
_PER_SEARCH_UNMETERED: Final = 100
_PER_RESTART: Final = 34  # for each octet: a target in normal form has at most one "%" in three

_PER_PLACE: Final = 2  # the last octet and the first one are looked at
_COMPARED_AT_ONCE: Final = 6  # in the time of a single one
_SHORT: Final = 16  # from here on, counting the places where a needle can start pays off
_LINEAR_NEEDLE: Final = 100
_LINEAR_TARGET: Final = 2_500
_PER_PLACE_LINEAR: Final = 4
_NOT_LINEAR: Final = 2_500  # the last places, at which a long needle may still be compared octet by octet

_PROBED: Final = 8  # octets of a needle that are looked up among the octets of the target
_BLOCK: Final = 4  # octets; one block starts at each second place
_LEAST_BLOCKED: Final = _BLOCK + 1  # any run of so many octets covers a whole block
_BLOCKS_FROM: Final = 512  # octets of a target; a shorter one is searched faster than cut into blocks
_BLOCKS_FROM_QUESTIONS: Final = 20  # candidates; fewer needles are searched for faster
_USUAL_OCTETS: Final = 200  # of a usual target
_INDEXED_FROM: Final = 65  # wildcards; fewer are all candidates of a metered target
_BYTES_PER_QUESTION: Final = 100  # of a candidate, in the index for metered targets
_PER_BLOCK: Final = 80
_PER_OCTET: Final = 8  # to collect the distinct octets of a target


# The characters of normal form, from the rarest in targets on: any order is correct, this one is fast.
_RAREST_FIRST: Final = "~!'()[],;@:+$*?=&%QZXJKVYWUHGFLMNRTPIEOSDBCA_qjzxkvywfbgumhpdlrcnotsaie0987654321.-/"
_RARITY: Final = {character: rank for rank, character in enumerate(_RAREST_FIRST)}


class Wildcards:
    """The rules with wildcards of an agent, in the order in which they are tried.

    Args:
        places: places of the rules, in that order.
        cut: wildcard of each.
        table: the rules.

    Attributes:
        places: see above.
        cut: see above.
        needles: longest segment behind the head of each: a target without it does not match.
        heads: heads of more than ``/``, each once.
        rooted: wildcards with such a head.
        floating: the others, by the rarest character of their needles: a target without it matches none of them.
        unmetered_octets: length of the longest target for which all wildcards, at their worst, take a third of the
            budget.
    """

    __slots__ = ("_index", "_table", "cut", "floating", "heads", "needles", "places", "rooted", "unmetered_octets")

    def __init__(self, places: Sequence[int], cut: Sequence[Wildcard], table: RuleTable) -> None:
        self.places = places
        self.cut = tuple(cut)
        self._table = table
        self.needles = tuple([wildcard.needle for wildcard in cut])
        self.unmetered_octets = _unmetered_octets(cut)
        rooted, floating = _by_heads(cut)
        # Built at once: the index of 30,000 wildcards takes 20 ms, and a question is asked on the event loop.
        self._index = _CandidateIndex(rooted, floating) if len(cut) >= _INDEXED_FROM else None
        self.heads = tuple(rooted)
        self.rooted = self._batch(sorted(chain.from_iterable(rooted.values())))
        self.floating = tuple([(rarest, self._batch(indexes)) for rarest, indexes in floating.items()])

    def _batch(self, indexes: Sequence[int]) -> Batch:
        return tuple([self.needles[index] for index in indexes]), flat(indexes)

    def first(self, meter: Meter, end: int) -> int:
        """Return the index of the first candidate before ``end`` that matches the target of a meter; ``end`` for none.

        When the meter is exhausted, the first undecided Disallow counts as matching, and no Allow does.
        """
        finder = self._index
        candidates = range(len(self.needles)) if finder is None else finder.of(meter.target)
        candidates = candidates[: bisect_left(candidates, end)]
        if candidates:
            meter.expect(len(candidates))
        for number, index in enumerate(candidates):
            if meter.matches(self.needles[index], self.cut[index]):
                return index
            if meter.exhausted:
                allows, places = self._table.allows, self.places  # thousands of Allows may be left
                return next((undecided for undecided in candidates[number:] if not allows(places[undecided])), end)
        return end

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that they take, the index for metered targets included."""
        batches = [self.rooted, *[batch for _, batch in self.floating]]
        arrays = memory_of((self, self.places, self.cut, self.needles, self.heads, self.floating, *self.floating))
        indexed = memory_of(chain(batches, chain.from_iterable(batches)))
        metered = _BYTES_PER_QUESTION * len(self.needles) if len(self.needles) >= _INDEXED_FROM else 0
        return arrays + indexed + metered + sum([wildcard.weight_bytes for wildcard in self.cut])


class _CandidateIndex:
    """Finds the candidates that a target may match, by their heads and rarest characters."""

    __slots__ = ("_by_rarest", "_heads", "_rooted", "_starts")

    def __init__(self, rooted: Mapping[str, list[int]], floating: Mapping[str, list[int]]) -> None:
        self._by_rarest = floating
        self._heads = PrefixIndex(rooted)
        # The indexes of all heads in one array: the collector would visit a list for each head.
        by_head = [rooted[head] for head in self._heads.prefixes]
        self._rooted = flat(list(chain.from_iterable(by_head)))
        self._starts = flat([0, *accumulate(map(len, by_head))])

    def of(self, target: str) -> list[int]:
        """Return, in order, the indexes of the candidates whose heads and rarest characters ``target`` has."""
        starts = self._starts
        indexes = [
            index for head in self._heads.starts(target) for index in self._rooted[starts[head] : starts[head + 1]]
        ]
        for rarest, floating in self._by_rarest.items():
            if rarest in target:
                indexes += floating
        return sorted(indexes)


def _by_heads(wildcards: Sequence[Wildcard]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return the indexes of wildcards by their heads of more than ``/``; of the others by their rarest characters."""
    rooted: dict[str, list[int]] = {}
    floating: dict[str, list[int]] = {}
    for index, wildcard in enumerate(wildcards):
        if len(wildcard.head) > 1:
            rooted.setdefault(wildcard.head, []).append(index)
        else:
            floating.setdefault(_rarest(wildcard.needle), []).append(index)
    return rooted, floating


def _rarest(needle: str) -> str:
    """Return the rarest character of a needle; without a needle, a character that every target has."""
    return _RAREST_FIRST[min(map(_RARITY.__getitem__, needle))] if needle else "/"


def _unmetered_octets(wildcards: Iterable[Wildcard]) -> int:
    per_octet, once = 0, 0
    for wildcard in wildcards:
        # First the needle is searched for, then one segment after the other: each place is passed twice.
        per_octet += 2 * (_PER_PLACE + -(-len(wildcard.needle) // _COMPARED_AT_ONCE))
        per_octet += wildcard.restarts * _PER_RESTART
        once += _PER_SEARCH_UNMETERED * (1 + wildcard.searches)
    return max(0, BUDGET // 3 - once) // per_octet if per_octet else sys.maxsize


class Meter:
    """Matches wildcards with one target within the budget.

    Args:
        target: target in normal form.
        left: rest of the budget, in octets, or None for all of it.
        escapes: number of escapes of the target that were normalised.

    Attributes:
        target: the target.
        left: rest of the budget, in octets.
        exhausted: whether a comparison exceeded the budget.
    """

    __slots__ = ("_blocks", "_counts", "_octets", "exhausted", "left", "target")

    def __init__(self, target: str, left: int | None = None, escapes: int = 0) -> None:
        self.left = (BUDGET if left is None else left) - _PER_ESCAPE * escapes
        self.exhausted = False
        self.target = target
        self._octets = set(target)
        self._counts: dict[str, int] = {}
        self._blocks: set[str] | None = None
        self.pay(_PER_OCTET * len(target))

    def expect(self, questions: int) -> None:
        """Pay for ``questions`` candidates; cut the target into blocks if they are many."""
        self.pay(_PER_IN_QUESTION * questions)
        target = self.target
        if (
            questions >= _BLOCKS_FROM_QUESTIONS
            and len(target) >= _BLOCKS_FROM
            and self.pay(_PER_BLOCK * len(target) // 2)
        ):
            self._blocks = {target[at : at + _BLOCK] for at in range(0, len(target), 2)}

    def matches(self, needle: str, wildcard: Wildcard) -> bool:
        """Whether the target matches a wildcard that has ``needle``; False as well if the budget did not suffice."""
        return (
            len(needle) <= len(self.target)
            and self.pay(_PER_RULE)
            and self._octets.issuperset(needle[:_PROBED])
            and self._covers(needle)
            and wildcard.matches(self.target, self.find)
        )

    def find(self, segment: str, position: int) -> int:
        """Do as ``str.find`` of the target does; -1 as well if the budget did not suffice."""
        places = len(self.target) - len(segment) - position + 1
        if places <= 0 or not segment:
            return position if places > 0 else -1
        at_most = self._cost(segment, places)
        if at_most > self.left:
            self.exhausted = True
            return -1
        found = self.target.find(segment, position)
        self.left -= at_most if found < 0 else self._cost(segment, found - position + 1)
        return found

    def pay(self, octets: int) -> bool:
        """Take ``octets`` from the budget; return whether it has sufficed so far."""
        if octets > self.left:
            self.exhausted = True
        else:
            self.left -= octets
        return not self.exhausted

    def _cost(self, segment: str, places: int) -> int:
        """Return the upper bound on the cost of a search that passes ``places`` places."""
        length = len(segment)
        if length == 1:
            return _PER_SEARCH + places // _COMPARED_AT_ONCE
        if length < _SHORT:
            return _PER_SEARCH + places * (_PER_PLACE + length // _COMPARED_AT_ONCE)
        starts = min(places, self._count(segment[0]), self._count(segment[-1]))
        if length < _LINEAR_NEEDLE or len(self.target) < _LINEAR_TARGET:
            return _PER_SEARCH + places * _PER_PLACE + starts * length // _COMPARED_AT_ONCE
        compared = min(starts, _NOT_LINEAR) * length // _COMPARED_AT_ONCE
        return _PER_SEARCH + (places + length) * _PER_PLACE_LINEAR + compared

    def _count(self, octet: str) -> int:
        count = self._counts.get(octet)
        if count is None:
            count = self._counts[octet] = self.target.count(octet)
            self.left -= len(self.target) // 2  # a debt ends the next search
        return count

    def _covers(self, needle: str) -> bool:
        """Whether the target has the blocks that the start and the end of the needle cover at any place."""
        blocks = self._blocks
        if blocks is None or len(needle) < _LEAST_BLOCKED:
            return True
        end = needle[-_LEAST_BLOCKED:]
        return not (
            blocks.isdisjoint((needle[:_BLOCK], needle[1:_LEAST_BLOCKED])) or blocks.isdisjoint((end[:-1], end[1:]))
        )


def meters(*forms: str | None) -> list[Meter]:
    """Return a meter for each form of a target that is not None; they share half the budget.

    They are for patterns that are matched besides the rules.
    """
    targets = [form for form in forms if form is not None]
    return [Meter(target, BUDGET // 2 // len(targets)) for target in targets]


def metered_matcher(pattern: str) -> Callable[[Sequence[Meter]], bool]:
    """Return a predicate that matches the forms of a target with ``pattern``; for patterns that are no rules.

    A pattern is compared with the other forms as well if a star may reach into the query, or if it ends within an
    escape. The predicate returns False as well if the budget did not suffice; a meter is exhausted then.
    """
    form = match_form(pattern)
    if not is_literal(form):
        wildcard = wildcard_of(form)
        return lambda forms: any(one.pay(_PER_IN_QUESTION) and one.matches(wildcard.needle, wildcard) for one in forms)
    matches = matcher(pattern)
    return lambda forms: forms[0].pay(_PER_IN_QUESTION) and matches(forms[0].target)


NO_WILDCARDS: Final = Wildcards((), (), RuleTable((), ()))
"""Shared by the files without wildcards."""
