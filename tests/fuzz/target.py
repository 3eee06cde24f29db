"""Fuzz targets, and how they choose by octets."""

from __future__ import annotations

import random
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fuzz.campaign import Outcome

T = TypeVar("T")

CORPUS: Final = Path(__file__).parent / "corpus"
WORDS: Final = Path(__file__).parent / "words"


@dataclass(frozen=True)
class Target:
    """An invariant, with words and sizes that help to break it.

    Attributes:
        name: also that of its directory in the corpus, unless it has ``seeds``.
        check: takes any octets; raises AssertionError if the invariant does not hold.
        words: words that a mutation may insert; the syntax of the input.
        max_octets: longer inputs are not tried, to keep the rate of trials high.
        short_runs: how many mutations of the corpus the ordinary tests try; about a second's worth.
        seeds: name of the target whose corpus it shares; empty for a corpus of its own.
        fuzz: fuzzes the target for so many seconds, with output to a directory; by default libFuzzer does.
    """

    name: str
    check: Callable[[bytes], None]
    words: tuple[bytes, ...]
    max_octets: int
    short_runs: int = 3_000
    seeds: str = ""
    fuzz: Callable[[Target, int, Path], Outcome] | None = None

    @property
    def directory(self) -> Path:
        """The directory of the inputs that are kept in the tree."""
        return CORPUS / (self.seeds or self.name)

    @property
    def corpus(self) -> list[Path]:
        """The inputs that are kept in the tree."""
        return sorted(self.directory.iterdir())


def dictionary(name: str) -> tuple[bytes, ...]:
    """Return the words of a file in the format of libFuzzer's dictionaries: a quoted word a line."""
    return tuple(literal_eval(f"b{line}") for line in (WORDS / f"{name}.dict").read_text(encoding="ascii").splitlines())


def choose(octet: bytes, options: Sequence[T]) -> T:
    """Choose by an octet, or the first option without an octet; digits count from 0, so that the corpus is readable."""
    return options[(octet[0] - ord("0") if octet else 0) % len(options)]


def text(octets: bytes) -> str:
    """Return octets as HTTP clients pass them on: invalid UTF-8 as lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")


def mutants(target: Target, count: int, seed: int = 9309) -> Iterator[bytes]:
    """Yield so many inputs, the same each time, each of a file of the corpus with up to four changes."""
    chance = random.Random(seed)
    corpus = [file.read_bytes() for file in target.corpus]
    for _ in range(count):
        octets = chance.choice(corpus)
        for _ in range(chance.randint(1, 4)):
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
