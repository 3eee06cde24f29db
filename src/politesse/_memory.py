"""How much memory objects take: what bounds the cache."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP: Final = 16  # octets in which memory is allocated


def memory_of(objects: Iterable[object]) -> int:
    """Return the memory that objects take, without what they refer to; empty ones are shared and count nothing."""
    return sum([getsizeof(one) + _STEP - 1 & -_STEP for one in objects if one])
