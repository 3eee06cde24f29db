"""Wildcard patterns, matched without backtracking.

Worst case: a match reads each octet of the target at most once for each octet of the pattern. ``str.find`` runs in
linear time for long needles and in needle times haystack for short ones, each segment is searched for only after the
one before, and the first segment that is not found ends the match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.robots.memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable

_NONE: Final = " "
_CUT_BEHIND_A_DIGIT = re.compile(r"%[013-9A-Fa-f](?=\*|\Z)")


class Wildcard:
    """A pattern in normal form with a ``*`` inside, cut at its stars.

    Attributes:
        head: text that the target must start with.
        needle: longest of the other segments; a target without it cannot match.
        searches: largest number of segments that a match searches for.
        restarts: number of them for which the search may restart after each ``%`` of the target.
    """

    __slots__ = ("_anchored", "_last", "_middle", "head", "needle", "restarts", "searches")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        self.head, *middle, self._last = pattern.removesuffix("$").split("*")
        self._middle = tuple(middle)
        self.needle = max((*middle, self._last), key=len)
        self.searches = len(middle) + 1
        self.restarts = 0

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that it takes."""
        segments = (self.head, *self._middle, self._last)
        return memory_of((self, self._middle, *[segment for segment in segments if len(segment) > 1]))

    def matches(self, target: str, find: Callable[[str, int], int] | None = None) -> bool:
        """Whether ``target``, in normal form, matches from its first octet.

        Args:
            target: the target.
            find: searches the target for a segment from an index on, or None for ``target.find``.
        """
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self._last)):
            return False
        position = len(self.head)
        if find is None:
            find = target.find
        for segment in self._middle:
            # The leftmost match leaves the most room for later segments.
            position = find(segment, position)
            if position < 0:
                return False
            position += len(segment)
        if self._anchored:
            return len(target) - len(self._last) >= position
        return find(self._last, position) >= 0


class _CutEscapes(Wildcard):
    """A wildcard with segments that end in ``%`` and one hex digit, for which a target has two spellings.

    ``%4`` is the start of ``%4F``, and also the text that targets hold as ``%254``. (For ``%2`` one spelling suffices:
    ``%25`` starts with it.) The search is for the common start of both, so that each place is passed once.
    """

    __slots__ = ("_digits",)

    def __init__(self, form: str) -> None:
        super().__init__(_CUT_BEHIND_A_DIGIT.sub("%", form))
        segments = form.removesuffix("$").split("*")
        # The hex digit at the end of each segment; a blank for none. A text for all segments takes the least memory.
        self._digits = "".join([one[-1] if _CUT_BEHIND_A_DIGIT.search(one) is not None else _NONE for one in segments])
        self.restarts = len(self._digits) - 1 - self._digits.count(_NONE, 1)

    @property
    def weight_bytes(self) -> int:
        """See ``Wildcard``."""
        return super().weight_bytes + memory_of((self._digits,))

    def matches(self, target: str, find: Callable[[str, int], int] | None = None) -> bool:
        """Do as ``Wildcard.matches`` does."""
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self._last)):
            return False
        if find is None:
            find = target.find
        position = _behind(target, len(self.head), _tails(self._digits[0]))
        segments = self._middle if self._anchored else (*self._middle, self._last)
        for segment, digit in zip(segments, self._digits[1:], strict=False):
            if position < 0:
                return False
            tails = _tails(digit)
            # The leftmost match is as good as any: the two spellings never overlap.
            place = find(segment, position)
            while place >= 0 and (position := _behind(target, place + len(segment), tails)) < 0:
                place = find(segment, place + 1)
            if place < 0:
                return False
        return position >= 0 and (not self._anchored or position <= len(target) - len(self._last))


def _tails(digit: str) -> tuple[str, ...]:
    """Return the texts that may follow an escape that was cut behind ``digit``."""
    return ("",) if digit == _NONE else (digit.upper(), f"25{digit}")


def _behind(target: str, place: int, tails: tuple[str, ...]) -> int:
    """Return the index after the one of ``tails`` that is at ``place``, or -1."""
    if not target.startswith(tails, place):  # once for each "%" of a target: no generator
        return -1
    return place + len(tails[0] if target.startswith(tails[0], place) else tails[1])


def wildcard_of(form: str) -> Wildcard:
    """Return the wildcard for a result of ``match_form`` that is not literal."""
    if "*" not in form:
        form += "*"  # a pattern that ends within an escape
    return _CutEscapes(form) if "%" in form and _CUT_BEHIND_A_DIGIT.search(form) is not None else Wildcard(form)
