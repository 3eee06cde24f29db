"""The files and URLs of the measurements."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from benchmarks.generator import generate
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.settings import Settings

MADE_UP_FILES: Final = 600
MAX_BODY_BYTES: Final = 500 * 1024
"""The octets that a crawler must read (RFC 9309 2.5); politesse's fetcher cuts a file there."""

_QUICK_FILES: Final = 40


class FileSize(Enum):
    """The number of rules for all agents."""

    FEW = "up to 10 rules"
    SOME = "11 to 99 rules"
    MANY = "100 rules and more"


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """Attributes:
    host: whose it is; made up, one for each file.
    body: its octets.
    text: its octets decoded, for the peers that take text; a byte order mark states the encoding.
    patterns: the path patterns for all agents.
    """

    host: str
    body: bytes
    text: str
    patterns: tuple[str, ...]

    @property
    def size(self) -> FileSize:
        rules = len(self.patterns)
        return FileSize.FEW if rules <= 10 else FileSize.SOME if rules < 100 else FileSize.MANY

    @classmethod
    def of(cls, host: str, body: bytes) -> RobotsFile:
        """Make one of a body that was fetched."""
        body = body[:MAX_BODY_BYTES]
        lines = (line for group in RobotsTxt.parse(body).groups if "*" in group.agents for line in group.rules)
        return cls(
            host, body, in_utf_8(body).decode("utf-8-sig", "ignore"), tuple(line.value for line in lines if line.value)
        )


def in_utf_8(body: bytes) -> bytes:
    """Return a file in UTF-8 if its byte order mark states UTF-16 or UTF-32."""
    marks = {"utf-32": (BOM_UTF32_LE, BOM_UTF32_BE), "utf-16": (BOM_UTF16_LE, BOM_UTF16_BE)}  # the longer marks first
    for encoding, some in marks.items():
        if body.startswith(some):
            return body.decode(encoding, "ignore").encode()
    return body


def load(settings: Settings) -> list[RobotsFile]:
    """Read the corpus, or make files up."""
    bodies = _read(settings.corpus) if settings.corpus is not None else generate(MADE_UP_FILES, settings.seed)
    files = [RobotsFile.of(f"www.site{number}.example", body) for number, body in enumerate(bodies)]
    if not files:
        raise SystemExit(f"{settings.corpus} holds no file; give a directory of robots.txt files")
    return files[:: max(1, len(files) // _QUICK_FILES)] if settings.quick else files


def _read(directory: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file())


def describe(files: Sequence[RobotsFile], origin: Path | None) -> str:
    """Return a description of the files, for the heading of a report."""
    rules = [len(file.patterns) for file in files]
    stars = sum("*" in pattern.rstrip("*") for file in files for pattern in file.patterns)
    return (
        f"{len(files)} {'made-up files' if origin is None else f'files of {origin}'}; "
        f"bytes: {_quantiles([len(file.body) for file in files])}; "
        f"rules for all agents: {_quantiles(rules)}; {stars / max(sum(rules), 1):.0%} with wildcards"
    )


def _quantiles(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99}
    return ", ".join(f"{name} {ordered[int(share * (len(ordered) - 1))]:,}" for name, share in shares.items())
