"""Robots.txt files by lot, in the sizes that real ones have.

Octets: median 560, 90th percentile 3,890, 99th 75,000. Rules for all agents: 9, 68, 273. Wildcards: 18 % of the
rules, crowded in less than half of the files. The rest of the size goes to groups that shut one crawler
out, to comments and to sitemaps, as it does in the field.
"""

from __future__ import annotations

import math
from itertools import cycle, pairwise
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.words import word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BYTES: Final = ((0.0, 26), (0.5, 560), (0.9, 3_890), (0.99, 75_000), (1.0, 200_000))
_RULES: Final = ((0.0, 0), (0.5, 9), (0.9, 68), (0.99, 273), (1.0, 2_000))
_STAR_SHARES: Final = (0.41, 0.0, 0.41, 0.0, 0.41, 0.0, 0.41, 0.0, 0.0)  # by turns: 18 % in all
_ALLOWS: Final = 0.08


def generate(count: int, seed: int) -> Iterator[bytes]:
    """Yield ``count`` bodies, the same for the same seed.

    The places in the distribution are spread evenly, not drawn: few files carry most of the octets, and a lucky
    draw of them would change every result.
    """
    random = Random(seed)
    return (
        _body((at + 0.5) / count, star_share, random)
        for at, star_share in zip(range(count), cycle(_STAR_SHARES), strict=False)
    )


def _body(place: float, star_share: float, random: Random) -> bytes:
    size = round(_interpolate(_BYTES, place))
    lines = ["User-agent: *", *(_rule(star_share, random) for _ in range(round(_interpolate(_RULES, place))))]
    written = sum(len(line) + 1 for line in lines)
    while written < size:
        more = _beside_the_rules(random)
        lines += more
        written += sum(len(line) + 1 for line in more)
    return "\n".join([*lines, ""]).encode()


def _interpolate(points: Sequence[tuple[float, int]], place: float) -> float:
    """Return the quantile at ``place``, on a logarithmic scale between the known ones."""
    (low, low_value), (high, high_value) = next(pair for pair in pairwise(points) if place <= pair[1][0])
    share = (place - low) / (high - low)
    return math.expm1((1 - share) * math.log1p(low_value) + share * math.log1p(high_value))


def _rule(star_share: float, random: Random) -> str:
    field = "Allow" if random.random() < _ALLOWS else "Disallow"
    return f"{field}: {_wildcard(random) if random.random() < star_share else _literal(random)}"


def _literal(random: Random) -> str:
    path = "/" + "/".join(word(random) for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))))
    return path + random.choices(("", "/", ".html", ".php?", "?id=", "$"), (36, 50, 5, 4, 3, 2))[0]


def _wildcard(random: Random) -> str:
    one, other = word(random), word(random)
    shapes = (f"/*?{one}=", f"/*/{one}/", f"/{one}/*/{other}", f"/*.{one[:3]}$", f"/{one}/*?*{other}=", f"*/{one}")
    return random.choices(shapes, (3, 3, 4, 1, 2, 1))[0]


def _beside_the_rules(random: Random) -> list[str]:
    name = f"{word(random)}bot".replace("-", "")
    return random.choice(
        (
            ["", f"User-agent: {name.title()}", "Disallow: /"],
            ["", f"User-agent: {name}", "Crawl-delay: 10", f"Disallow: {_literal(random)}"],
            [f"# {' '.join(word(random) for _ in range(random.randint(1, 9)))}"],
            [f"Sitemap: https://www.{word(random)}.example/{word(random)}.xml"],
        )
    )
