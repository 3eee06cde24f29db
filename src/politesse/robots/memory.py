"""Measures the memory of objects, for the bounds of the cache."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP: Final = 16  # memory is allocated in multiples of this many octets
_LARGEST_SHARED: Final = 256  # CPython has one object for each smaller number


def memory_of(objects: Iterable[object]) -> int:
    """Return how many octets the objects take, without the objects that they refer to; each object counts once."""
    return sum([getsizeof(one) + _STEP - 1 & -_STEP for one in {id(one): one for one in objects}.values() if _own(one)])


def _own(item: object) -> bool:
    """Whether the interpreter does not share an object among all that have such an object."""
    if isinstance(item, int):
        return item > _LARGEST_SHARED
    return len(item) > 1 if isinstance(item, (str, bytes)) else item != ()
