"""Finds the prefixes of a target: one look-up among the sorted prefixes, then a walk along their links."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from politesse.robots.memory import flat, memory_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PrefixIndex:
    """Sorted prefixes, each with a link to the longest other prefix that is its own prefix.

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
        # The last prefix that sorts at or before the target is the longest, or starts with the longest.
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
    """Prefixes of which the first match decides, not the longest match.

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
