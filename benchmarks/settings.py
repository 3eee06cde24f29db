"""The options of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Attributes:
    corpus: a directory of robots.txt files; None for made-up ones.
    rounds: how often all contenders are timed.
    seed: of all that is drawn by lot.
    hosts: how many are crawled.
    memory: whether the memory of a crawl is measured instead of its time.
    origins: how many origins are cached at once at most, by ``growth``.
    simulate: whether ``fleet`` does the arithmetic of a large crawl instead of racing its peers.
    quick: whether sizes are as small as in a test; then the figures mean nothing.
    """

    corpus: Path | None
    rounds: int
    seed: int
    hosts: int = 5_000
    memory: bool = False
    origins: int = 1_000_000
    simulate: bool = False
    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        """Return the size for this run."""
        return quick if self.quick else full
