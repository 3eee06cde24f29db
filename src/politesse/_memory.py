"""How much memory objects take: what bounds the cache."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROUNDED_UP: Final = 8  # memory is allocated in steps of 16 octets


def memory_of(objects: Iterable[object]) -> int:
    """Return the memory that objects take, without what they refer to; empty ones are shared and count nothing."""
    sizes = [getsizeof(one) for one in objects if one]
    return sum(sizes) + _ROUNDED_UP * len(sizes)
