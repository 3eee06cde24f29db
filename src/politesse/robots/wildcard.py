"""Matches wildcard patterns without backtracking.

Worst case: a match reads each octet of the target at most once for each octet of the pattern. Each segment is searched
for only after the previous segment, and the first segment that is not found ends the match.
"""

from __future__ import annotations

import re
from typing import Final

from politesse.robots.memory import memory_of

_NONE: Final = " "
_CUT_BEHIND_A_DIGIT = re.compile(r"%[013-9A-Fa-f](?=\*|\Z)")


class Wildcard:
    """A pattern in normal form with a ``*`` inside, cut at its stars.

    Attributes:
        head: text that the target must start with.
        middle: the texts between two stars, in order.
        last: the text after the last star.
        octets: the octets of all texts; no shorter target matches.
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
    """A wildcard with segments that end in ``%`` and one hex digit, for which a target has two spellings.

    ``%4`` is the start of ``%4F``, and also the text that targets hold as ``%254``. (For ``%2`` one spelling suffices:
    ``%25`` starts with it.) The search is for the common start of both, so that each place is passed once.
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

    def matches(self, target: str) -> bool:
        """See ``Wildcard.matches``."""
        if not target.startswith(self.head) or (self._anchored and not target.endswith(self.last)):
            return False
        position = _behind(target, len(self.head), _tails(self._digits[0]))
        for segment, digit in zip(self.middle if self._anchored else self.segments, self._digits[1:], strict=False):
            if position < 0:
                return False
            tails = _tails(digit)
            # The leftmost match is as good as any: the two spellings never overlap.
            place = target.find(segment, position)
            while place >= 0 and (position := _behind(target, place + len(segment), tails)) < 0:
                place = target.find(segment, place + 1)
            if place < 0:
                return False
        return position >= 0 and (not self._anchored or position <= len(target) - len(self.last))


def _tails(digit: str) -> tuple[str, ...]:
    """Return the texts that may follow an escape that was cut after ``digit``."""
    return ("",) if digit == _NONE else (digit.upper(), f"25{digit}")


def _behind(target: str, place: int, tails: tuple[str, ...]) -> int:
    """Return the index after the tail at ``place``, or -1 if none of ``tails`` is there."""
    if not target.startswith(tails, place):  # runs once for each "%" of a target, so without a generator
        return -1
    return place + len(tails[0] if target.startswith(tails[0], place) else tails[1])


def wildcard_of(form: str) -> Wildcard:
    """Return the wildcard for a result of ``match_form`` that is not literal."""
    if "*" not in form:
        form += "*"  # the pattern ends within an escape
    return _CutEscapes(form) if "%" in form and _CUT_BEHIND_A_DIGIT.search(form) is not None else Wildcard(form)
