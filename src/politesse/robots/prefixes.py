"""Find the prefixes that a target starts with: one look-up among the sorted prefixes, then a walk along their links."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from politesse.verdict import Rule


def _enclosing(prefixes: list[str]) -> list[int]:
    """Return, for each sorted prefix, the index of the longest other one that it starts with, plus one; 0 for none."""
    links: list[int] = []
    for place, prefix in enumerate(prefixes):
        link = place
        while link and not prefix.startswith(prefixes[link - 1]):
            link = links[link - 1]
        links.append(link)
    return links


class PrefixIndex:
    """Sorted prefixes, each linked to the longest other one that it starts with.

    Args:
        prefixes: in any order, without duplicates.

    Attributes:
        prefixes: sorted.
        links: for each, the index of the longest other one that it starts with, plus one; 0 for none.
    """

    __slots__ = ("links", "prefixes")

    def __init__(self, prefixes: Iterable[str]) -> None:
        self.prefixes = sorted(prefixes)
        self.links = _enclosing(self.prefixes)

    def starts(self, target: str) -> Iterator[int]:
        """Yield the indexes of all prefixes that ``target`` starts with, the longest first."""
        place = bisect_right(self.prefixes, target)
        while place:
            place -= 1
            if target.startswith(self.prefixes[place]):
                yield place
            place = self.links[place]


class FirstPrefix:
    """Prefixes of which the first that matches decides, not the longest.

    Args:
        rules: in the order in which they are tried; no two have the same pattern.
    """

    __slots__ = ("_first", "_index")

    def __init__(self, rules: Iterable[Rule]) -> None:
        ranked = {rule.pattern: (rank, rule) for rank, rule in enumerate(rules)}
        self._index = PrefixIndex(ranked)
        # The first among a prefix and all that enclose it: a target that starts with it starts with them.
        first: list[tuple[int, Rule]] = []
        for prefix, link in zip(self._index.prefixes, self._index.links, strict=True):
            own = ranked[prefix]
            first.append(min(own, first[link - 1], key=itemgetter(0)) if link else own)
        self._first = [rule for _, rule in first]

    def find(self, target: str) -> Rule | None:
        """Return the first rule whose pattern ``target`` starts with."""
        longest = next(self._index.starts(target), None)
        return None if longest is None else self._first[longest]
