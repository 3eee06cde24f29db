"""Stores numbers in little memory, and measures the memory of objects, for the bounds of the cache."""

from __future__ import annotations

from array import array
from sys import getsizeof
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MAX_TWO_OCTETS: Final = 65_535
_SHARED: Final = (tuple, str, bytes, int)
_STEP: Final = 16  # memory is allocated in multiples of this many octets


def memory_of(objects: Iterable[object]) -> int:
    """Return how many octets the objects take, without the objects that they refer to.

    Empty objects of the types of ``_SHARED`` count as 0, because all files share them.
    """
    return sum([getsizeof(item) + _STEP - 1 & -_STEP for item in objects if item or not isinstance(item, _SHARED)])


def flat(numbers: Sequence[int]) -> Sequence[int]:
    """Return an array of numbers that are 0 or more, with the least memory: one, two or four octets for each number."""
    try:
        return bytes(numbers)
    except ValueError:
        return array("H" if max(numbers) <= _MAX_TWO_OCTETS else "I", numbers)
