"""Fuzz targets, and how they choose by octets."""

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
    """An invariant, with words and sizes that help to break it.

    Attributes:
        name: also that of its directory in the corpus.
        check: takes any octets; raises AssertionError if the invariant does not hold.
        words: words that a mutation may insert; the syntax of the input.
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
    """Choose by an octet, or the first option without an octet; digits count from 0, so that the corpus is readable."""
    return options[(octet[0] - ord("0") if octet else 0) % len(options)]


def text(octets: bytes) -> str:
    """Return octets as HTTP clients pass them on: invalid UTF-8 as lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")
