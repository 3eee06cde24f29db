"""Inputs like those of the corpus: the same each time, made without atheris."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fuzz.target import Target

_MOST_CHANGES = 4


def mutants(target: Target, count: int, seed: int = 9309) -> Iterator[bytes]:
    """Yield so many inputs, each of a file of the corpus with up to four changes."""
    chance = random.Random(seed)
    corpus = [file.read_bytes() for file in target.corpus]
    for _ in range(count):
        octets = chance.choice(corpus)
        for _ in range(chance.randint(1, _MOST_CHANGES)):
            octets = _changed(octets, chance, target.words, corpus)
        yield octets[: target.max_octets]


def _changed(octets: bytes, chance: random.Random, words: Sequence[bytes], corpus: Sequence[bytes]) -> bytes:
    start = chance.randint(0, len(octets))
    end = min(start + chance.choice((0, 1, 1, 2, 8, 40)), len(octets))
    other = chance.choice(corpus)
    cut = chance.randint(0, len(other))
    piece = chance.choice(
        (
            b"",  # left out
            chance.choice(words),
            chance.choice(words),
            chance.randbytes(chance.randint(1, 3)),
            octets[start:end] * 2,
            other[cut : cut + 40],
            octets[start:end][::-1],
        )
    )
    return octets[:start] + piece + octets[end:]
