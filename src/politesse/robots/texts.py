"""Many short texts in little memory.

A str takes 49 octets beside its characters, and the pattern of a rule has 18 on average. So the patterns of a file that
has more than a few are kept as blocks of lines. The prefixes among them are compared as they are in a tuple, which is
made at a question and dropped after questions to other rule sets. So a busy rule set pays nothing for it, and a rare
question takes 2 us more (the mean of the corpus; 0.3 ms with the largest file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.robots.memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PER_BLOCK: Final = 32
_LEAST_PACKED: Final = 8
_MOST_PACKED: Final = 10_000  # more take too long to unpack within a question
_MOST_MEAN_OCTETS: Final = 100  # long texts take little more as they are


class PackedTexts:
    """Texts without line ends, by place."""

    __slots__ = ("_blocks", "_count")

    def __init__(self, texts: Sequence[str]) -> None:
        self._count = len(texts)
        starts = range(0, len(texts), _PER_BLOCK)
        self._blocks = tuple(["\n".join(texts[start : start + _PER_BLOCK]) for start in starts])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> str:
        at = place % _PER_BLOCK
        return self._blocks[place // _PER_BLOCK].split("\n", at + 1)[at]

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block.split("\n")

    def first(self, count: int) -> list[str]:
        """Return the first ``count`` texts."""
        blocks = self._blocks[: -(-count // _PER_BLOCK)]
        return "\n".join(blocks).split("\n")[:count] if count else []

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that they take."""
        return memory_of((self, self._blocks, *self._blocks))


def packed(texts: Sequence[str]) -> PackedTexts | None:
    """Return texts packed, or None if that saves little."""
    if not _LEAST_PACKED <= len(texts) <= _MOST_PACKED or sum(map(len, texts)) > _MOST_MEAN_OCTETS * len(texts):
        return None
    return PackedTexts(texts)
