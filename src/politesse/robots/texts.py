"""Many short texts in little memory, and the rule sets that have theirs at hand.

A str takes 49 octets beside its characters, and the pattern of a rule has 18 on average. So the patterns of a file that
has more than a few are kept as blocks of lines. The prefixes among them are compared as they are in a tuple, which is
made at a question and dropped when other rule sets were asked since: a rule set that is asked again and again pays
nothing for it, and one that is asked once in a while 2 us (the mean of the corpus; 0.3 ms with the largest file).
"""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from politesse._memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PER_BLOCK: Final = 32
_LEAST_PACKED: Final = 8
_MOST_PACKED: Final = 10_000  # more take too long to unpack within a question
_MOST_MEAN_OCTETS: Final = 100  # long texts take little more as they are
_UNPACKED_BYTES: Final = 200  # of those that were unpacked together: a tuple and a reference
_TEXT_BYTES: Final = 57  # of a str and its place in a tuple, beside the characters
_MOST_UNPACKED_BYTES: Final = 2 * 1024 * 1024  # 30,000 usual prefixes, of all rule sets of the process


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
    """Return texts packed; None where that is not worth it."""
    if not _LEAST_PACKED <= len(texts) <= _MOST_PACKED or sum(map(len, texts)) > _MOST_MEAN_OCTETS * len(texts):
        return None
    return PackedTexts(texts)


class Unpacked(Protocol):
    """What has unpacked texts."""

    def pack(self) -> None:
        """Drop them: they can be unpacked again."""


class LastUnpacked:
    """Whose texts were unpacked last; those before are packed again. Any thread may use it.

    Args:
        most_bytes: about how much memory unpacked texts may take; the last ones stay, however many they are.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._unpacked: deque[tuple[ref[Unpacked], int]] = deque()
        self._lock = RLock()  # reentrant: the garbage collector may run a finalizer that asks for a verdict

    def add(self, owner: Unpacked, texts: Sequence[str]) -> None:
        """Note that somebody has unpacked texts."""
        weight_bytes = _UNPACKED_BYTES + _TEXT_BYTES * len(texts) + sum(map(len, texts))
        with self._lock:
            self._unpacked.append((ref(owner), weight_bytes))
            self._bytes += weight_bytes
            while self._bytes > self._most_bytes and len(self._unpacked) > 1:
                reference, freed_bytes = self._unpacked.popleft()
                self._bytes -= freed_bytes
                if (oldest := reference()) is not None:
                    oldest.pack()


LAST_UNPACKED: Final = LastUnpacked(_MOST_UNPACKED_BYTES)
"""One for all rule sets of the process."""
