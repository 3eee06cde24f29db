"""Which of many prefixes a target starts with: one look-up among the sorted ones, then a walk along their links."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from politesse.verdict import Rule


def _enclosing(prefixes: list[str]) -> list[int]:
    """For each of the sorted prefixes, return the place after the longest other one that it starts with; 0 for none."""
    links: list[int] = []
    for place, prefix in enumerate(prefixes):
        link = place
        while link and not prefix.startswith(prefixes[link - 1]):
            link = links[link - 1]
        links.append(link)
    return links


class PrefixIndex:
    """Prefixes, each with its place among the sorted ones.

    Args:
        prefixes: in any order, each once.

    Attributes:
        prefixes: sorted.
        links: for each, the place after the longest other one that it starts with; 0 for none.
    """

    __slots__ = ("links", "prefixes")

    def __init__(self, prefixes: Iterable[str]) -> None:
        self.prefixes = sorted(prefixes)
        self.links = _enclosing(self.prefixes)

    def starts(self, target: str) -> Iterator[int]:
        """Yield the places of all that ``target`` starts with, the longest first."""
        place = bisect_right(self.prefixes, target)
        while place:
            place -= 1
            if target.startswith(self.prefixes[place]):
                yield place
            place = self.links[place]


class FirstPrefix:
    """Prefixes of which the first in order, not the longest, decides.

    Args:
        rules: in the order in which they are to be tried; no two have the same pattern.
    """

    __slots__ = ("_first", "_index")

    def __init__(self, rules: Iterable[Rule]) -> None:
        ranked = {rule.pattern: (rank, rule) for rank, rule in enumerate(rules)}
        self._index = PrefixIndex(ranked)
        # Of a prefix and of all that enclose it: what starts with it starts with them.
        first: list[tuple[int, Rule]] = []
        for prefix, link in zip(self._index.prefixes, self._index.links, strict=True):
            own = ranked[prefix]
            first.append(min(own, first[link - 1], key=itemgetter(0)) if link else own)
        self._first = [rule for _, rule in first]

    def find(self, target: str) -> Rule | None:
        """Return the first rule whose pattern ``target`` starts with."""
        longest = next(self._index.starts(target), None)
        return None if longest is None else self._first[longest]
