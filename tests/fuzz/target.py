"""What a fuzz target is, and how it makes choices from octets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

CORPUS: Final = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One invariant, and what helps to break it.

    Attributes:
        name: also that of its directory in the corpus.
        check: takes any octets whatsoever; raises AssertionError where the invariant does not hold.
        words: what a mutation may put in; the syntax of the input.
        max_octets: longer inputs are not tried, to keep the rate of trials high.
        short_runs: how many mutations of the corpus the ordinary tests try; about a second's worth.
    """

    name: str
    check: Callable[[bytes], None]
    words: tuple[bytes, ...]
    max_octets: int
    short_runs: int = 3_000

    @property
    def corpus(self) -> list[Path]:
        """The inputs that are kept in the tree."""
        return sorted((CORPUS / self.name).iterdir())


def choose(octet: bytes, options: Sequence[T]) -> T:
    """Choose by one octet, or by none; digits choose as people count, so that the corpus can be read."""
    return options[(octet[0] - ord("0") if octet else 0) % len(options)]


def text(octets: bytes) -> str:
    """Return octets as HTTP clients hand them on: those that are no UTF-8 as lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")
