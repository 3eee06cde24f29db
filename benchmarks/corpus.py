"""The files that are read, and the URLs that are asked about."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from benchmarks.generator import generate
from benchmarks.words import trail, word
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.settings import Settings

MADE_UP_FILES: Final = 600
URLS_PER_FILE: Final = 20
MAX_BODY_BYTES: Final = 500 * 1024
"""What a crawler must read, and what politesse's fetcher cuts off at (RFC 9309 2.5)."""

_QUERY_SHARE: Final = 0.15
_ESCAPE_SHARE: Final = 0.03
_UNCHANGED: Final = "/?&=:@!$'()+,;~*%[]-._"


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """Attributes:
    host: whose it is; made up, one for each file.
    body: its octets.
    text: its octets decoded, for the peers that take text.
    patterns: the path patterns that bind everybody.
    """

    host: str
    body: bytes
    text: str
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, host: str, body: bytes) -> RobotsFile:
        """Make one of a body that was fetched."""
        body = body[:MAX_BODY_BYTES]
        lines = (line for group in RobotsTxt.parse(body).groups if "*" in group.agents for line in group.rules)
        return cls(host, body, body.decode("utf-8-sig", "ignore"), tuple(line.value for line in lines if line.value))


def load(settings: Settings) -> list[RobotsFile]:
    """Read the corpus, or make files up."""
    bodies = _read(settings.corpus) if settings.corpus is not None else generate(MADE_UP_FILES, settings.seed)
    files = [RobotsFile.of(f"www.site{number}.example", body) for number, body in enumerate(bodies)]
    if not files:
        raise SystemExit(f"{settings.corpus} holds no file; give a directory of robots.txt files")
    return files


def _read(directory: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file())


def fresh_urls(file: RobotsFile, seed: int, round_number: int) -> list[str]:
    """Return the URLs of a round: half of them extend patterns of the file, half know nothing of it.

    Each call makes new strings, equal for equal arguments: every contender gets the same questions, but neither a
    string that has its hash already nor one that a cache of a peer could have seen in an earlier round.
    """
    random = Random(f"{seed}/{round_number}/{file.host}")
    patterns = [pattern for pattern in file.patterns if pattern.startswith(("/", "*"))]
    targets: dict[str, None] = {}
    for attempt in count():
        if len(targets) == URLS_PER_FILE:
            break
        targets[_extended(random.choice(patterns), random) if patterns and attempt % 2 else _path(random)] = None
    return [f"https://{file.host}{target}" for target in targets]


def _path(random: Random) -> str:
    return _with_query("/" + trail(random, 1, 5), random)


def _extended(pattern: str, random: Random) -> str:
    """Return a target that the pattern alone would match, escaped as a browser would."""
    target = quote(pattern.removesuffix("$"), safe=_UNCHANGED, errors="surrogateescape")
    target = "".join(word(random) if character == "*" else character for character in target)
    target = target if target.startswith("/") else "/" + target
    return target if pattern.endswith("$") else _with_query(target + trail(random, 0, 3), random)


def _with_query(target: str, random: Random) -> str:
    if random.random() < _ESCAPE_SHARE:
        target += f"%C3%A9{word(random)}"
    if random.random() < _QUERY_SHARE:
        target += f"{'&' if '?' in target else '?'}{word(random)}={random.randrange(10_000)}"
    return target


def describe(files: Sequence[RobotsFile], origin: Path | None) -> str:
    """Return what was measured on, for the heading of a report."""
    rules = [len(file.patterns) for file in files]
    stars = sum("*" in pattern.rstrip("*") for file in files for pattern in file.patterns)
    return (
        f"{len(files)} {'made-up files' if origin is None else f'files of {origin}'}; "
        f"bytes: {_quantiles([len(file.body) for file in files])}; "
        f"rules for everybody: {_quantiles(rules)}; {stars / max(sum(rules), 1):.0%} with wildcards"
    )


def _quantiles(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99}
    return ", ".join(f"{name} {ordered[int(share * (len(ordered) - 1))]:,}" for name, share in shares.items())
