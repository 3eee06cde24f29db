"""Matches targets against patterns: an index of literal prefixes, and wildcards without backtracking.

The prefixes of a target are found by one look-up among the sorted prefixes and a walk along their links. Matching a
wildcard pattern compares each octet of the target at most once with each octet of the pattern. Each segment is searched
for after the previous segment. If a segment is not found, the target does not match.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import add
from typing import TYPE_CHECKING, Final

from politesse.robots.memory import flat, memory_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NONE: Final = " "
_MORE_IF_CUT: Final = 16  # as in _native/rules.c
_FIRST_WIDTH: Final = 64  # of the part of a target that is searched first for the spellings of a cut escape
_CUT_BEHIND_A_DIGIT = re.compile(r"%[013-9A-Fa-f](?=\*|\Z)")


class PrefixIndex:
    """Sorted prefixes. A prefix that starts with other prefixes has a link to the longest of these.

    Args:
        prefixes: the prefixes in any order, without duplicates.

    Attributes:
        prefixes: the sorted prefixes.
    """

    __slots__ = ("_links", "prefixes")

    def __init__(self, prefixes: Iterable[str]) -> None:
        self.prefixes: tuple[str, ...] = tuple(sorted(prefixes))
        links: list[int] = []  # for each prefix: the index of the prefix at its link, plus one; 0 without a link
        for place, prefix in enumerate(self.prefixes):
            link = place
            while link and not prefix.startswith(self.prefixes[link - 1]):
                link = links[link - 1]
            links.append(link)
        self._links = flat(links)

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that this object takes, without the prefixes."""
        return memory_of((self, self.prefixes, self._links))

    def longest(self, target: str) -> int:
        """Return the index of the longest prefix of ``target``; -1 without a prefix."""
        prefixes = self.prefixes
        # The last prefix that sorts at or before the target either is the longest prefix of the target, or starts with
        # that longest prefix.
        place = bisect_right(prefixes, target)
        while place and not target.startswith(prefixes[place - 1]):
            place = self._links[place - 1]
        return place - 1

    def best(self, values: Sequence[int], ranks: Sequence[int]) -> list[int]:
        """Return, for each prefix, the value with the highest rank among its own value and the values along its links.

        Args:
            values: the value of each prefix.
            ranks: the rank of each value.
        """
        best: list[int] = []
        for own, link in zip(values, self._links, strict=True):
            best.append(best[link - 1] if link and ranks[best[link - 1]] > ranks[own] else own)
        return best


class FirstPrefix:
    """Finds the first prefix of a target in a given order, where PrefixIndex finds the longest prefix.

    Args:
        patterns: the prefixes in the order in which they are tried, without duplicates.
    """

    __slots__ = ("_first", "_index")

    def __init__(self, patterns: Iterable[str]) -> None:
        places = {pattern: place for place, pattern in enumerate(patterns)}
        self._index = PrefixIndex(places)
        own = [places[prefix] for prefix in self._index.prefixes]
        self._first = flat(self._index.best(own, range(len(own), 0, -1)))

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that this object takes, without the patterns."""
        return memory_of((self, self._first)) + self._index.weight_bytes

    def find(self, target: str) -> int:
        """Return the place of the first pattern that is a prefix of ``target``; -1 without such a pattern."""
        longest = self._index.longest(target)
        return -1 if longest < 0 else self._first[longest]


class Wildcard:
    """A pattern in normal form with a ``*`` inside, cut at its stars.

    Attributes:
        head: text that the target must start with.
        middle: the texts between two stars, in order.
        last: the text after the last star.
        octets: the total length of all texts; no shorter target matches.
        costs: the number of segments, and the length of the longest. 17, and 16 octets more, for a segment that
            ends in a cut escape: its two spellings are searched for step by step.
    """

    __slots__ = ("_anchored", "head", "last", "middle", "octets")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        head, *middle, last = pattern.removesuffix("$").split("*")
        self.head: str = head
        self.middle: tuple[str, ...] = tuple(middle)
        self.last: str = last
        self.octets: int = len(head) + sum(map(len, middle)) + len(last)

    @property
    def segments(self) -> tuple[str, ...]:
        """The texts after the head."""
        return (*self.middle, self.last)

    @property
    def costs(self) -> tuple[int, int]:
        """See the class."""
        return len(self.middle) + 1, max(map(len, self.segments))

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the wildcard takes."""
        texts = (self.head, *self.segments)
        return memory_of((self, self.middle, *[text for text in texts if len(text) > 1]))

    def matches(self, target: str) -> bool:
        """Whether ``target``, in normal form, matches from its first octet."""
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self.last)):
            return False
        position = len(self.head)
        for segment in self.middle:
            # The leftmost match leaves the most room for later segments.
            position = target.find(segment, position)
            if position < 0:
                return False
            position += len(segment)
        if self._anchored:
            return len(target) - len(self.last) >= position
        return target.find(self.last, position) >= 0


class _CutEscapes(Wildcard):
    """A wildcard with segments that end in ``%`` and one hex digit. A target has two spellings of such a segment.

    At the end of a segment, ``%4`` matches the start of an escape such as ``%4F``, and also the text ``%4``, which is
    ``%254`` in a target. (``%2`` needs only one spelling, because ``%25`` starts with ``%2``.)
    """

    __slots__ = ("_digits",)

    def __init__(self, form: str) -> None:
        super().__init__(_CUT_BEHIND_A_DIGIT.sub("%", form))
        texts = form.removesuffix("$").split("*")
        # The hex digit at the end of each text, or a blank. One str for all texts takes the least memory.
        self._digits = "".join([text[-1] if _CUT_BEHIND_A_DIGIT.search(text) is not None else _NONE for text in texts])

    @property
    def weight_bytes(self) -> int:
        """See ``Wildcard``."""
        return super().weight_bytes + memory_of((self._digits,))

    @property
    def costs(self) -> tuple[int, int]:
        """See ``Wildcard``."""
        more = [0 if digit == _NONE else _MORE_IF_CUT for digit in self._digits[1:]]
        return len(more) + sum(more), max(map(add, map(len, self.segments), more))

    def matches(self, target: str) -> bool:
        """See ``Wildcard.matches``."""
        head = tuple(self.head + tail for tail in _tails(self._digits[0]))
        if not target.startswith(head) or (self._anchored and not target.endswith(self.last)):
            return False
        position = len(head[0] if target.startswith(head[0]) else head[1])
        for segment, digit in zip(self.middle if self._anchored else self.segments, self._digits[1:], strict=False):
            position = _behind(target, [segment + tail for tail in _tails(digit)], position)
            if position < 0:
                return False
        return not self._anchored or position <= len(target) - len(self.last)


def _tails(digit: str) -> tuple[str, ...]:
    """Return the texts that may follow the ``%`` of a segment that ends in ``%`` and ``digit``."""
    return ("",) if digit == _NONE else (digit.upper(), f"25{digit}")


def _behind(target: str, spellings: Sequence[str], position: int) -> int:
    """Return the index after the leftmost of some texts, from ``position`` on; -1 if ``target`` has none of them.

    The search widens by and by. So one pass of the target suffices for all segments, also if one spelling is missing.
    """
    width = _FIRST_WIDTH if len(spellings) > 1 else len(target)
    while True:
        end = position + width
        found = [(place, len(text)) for text in spellings if (place := target.find(text, position, end)) >= 0]
        if found or end >= len(target):
            # The leftmost match leaves the most room for later segments; the two spellings never overlap.
            return sum(min(found, default=(-1,)))
        width *= 4


def wildcard_of(form: str) -> Wildcard:
    """Return the wildcard for a result of ``match_form`` that is not literal."""
    if "*" not in form:
        form += "*"  # the pattern ends within an escape
    return _CutEscapes(form) if "%" in form and _CUT_BEHIND_A_DIGIT.search(form) is not None else Wildcard(form)
