"""Measures the memory of objects, for the bounds of the cache."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED: Final = (tuple, str, bytes, int)
_STEP: Final = 16  # memory is allocated in multiples of this many octets


def memory_of(objects: Iterable[object]) -> int:
    """Return how many octets the objects take, without the objects that they refer to.

    Empty objects of the types of ``_SHARED`` count as 0, because all files share them.
    """
    return sum([getsizeof(item) + _STEP - 1 & -_STEP for item in objects if item or not isinstance(item, _SHARED)])
