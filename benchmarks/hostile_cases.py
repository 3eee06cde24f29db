"""Pairs of rules and target that are chosen to be slow, in any size.

Each case gives literal text for patterns and target, so that nothing is normalised and the sizes are what is compared.
Every character of a pattern occurs in the target, so that none is rejected for its characters alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, product
from math import isqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Input = tuple[list[str], str]

_OCTETS_PER_SHORT_RULE: Final = 7  # 30,000 lines "Disallow:/*abcde" are just below 500 KiB
_MANY: Final = 30_000 * _OCTETS_PER_SHORT_RULE


@dataclass(frozen=True, slots=True)
class Case:
    """Attributes:
    build: makes patterns of about so many octets in all, and a target of about so many.
    pattern_octets: the larger size of the patterns; half of it is measured as well.
    target_octets: the larger size of the target; half of it is measured as well.
    """

    build: Callable[[int, int], Input]
    pattern_octets: int
    target_octets: int


def _reversed_segments(pattern_octets: int, target_octets: int) -> Input:
    segments = [f"{number:05}-" for number in range(pattern_octets // 7)]
    return ["/*" + "*".join(segments)], _filled("/", "".join(reversed(segments)), target_octets)


def _many_stars(pattern_octets: int, target_octets: int) -> Input:
    return ["/" + "*a" * (pattern_octets // 2) + "*b"], _filled("/b", "a", target_octets)


def _last_differs(pattern_octets: int, target_octets: int) -> Input:
    return ["/*" + "a" * pattern_octets + "b"], _filled("/b", "a", target_octets)


def _middle_differs(pattern_octets: int, target_octets: int) -> Input:
    half = "a" * (pattern_octets // 2)
    return [f"/*{half}b{half}"], _filled("/b", "a", target_octets)


def _period_breaks(pattern_octets: int, target_octets: int) -> Input:
    """A periodic needle, and a target of pieces that are one period short of it."""
    periods = pattern_octets // 2
    return ["/*" + "ab" * periods], _filled("/", "ab" * (periods - 1) + "b", target_octets)


def _fibonacci(pattern_octets: int, target_octets: int) -> Input:
    """The Fibonacci word: periods within periods, the least favourable case of a two-way search."""
    last, word = "b", "a"
    while len(word) < max(pattern_octets, target_octets):
        last, word = word, word + last
    return ["/*" + word[:pattern_octets] + "c"], "/c" + word[:target_octets]


def _nested_prefixes(pattern_octets: int, target_octets: int) -> Input:
    """A chain of prefixes of which the longer half differs from the target only in the middle."""
    count = isqrt(2 * pattern_octets)
    return ["/" + "a" * length for length in range(1, count)], _filled(f"/{'a' * (count // 2)}b", "a", target_octets)


def _nested_heads(pattern_octets: int, target_octets: int) -> Input:
    """As many heads that all fit, and what follows them stands in the wrong order."""
    count = isqrt(2 * pattern_octets)
    return [f"/{'a' * length}*bb*cc" for length in range(1, count)], _filled("/", "a", target_octets - 4) + "ccbb"


def _short_and_absent(pattern_octets: int, target_octets: int) -> Input:
    needles = islice(product("abcdefgh", repeat=5), 1, pattern_octets // _OCTETS_PER_SHORT_RULE + 1)
    return [f"*{''.join(needle)}a" for needle in needles], _filled("/b-c-d-e-f-g-h-", "a", target_octets)


def _short_and_misplaced(pattern_octets: int, target_octets: int) -> Input:
    """Rules in two segments, both of which occur, the first one behind the last place of the second."""
    firsts = ["".join(letters) for letters in islice(product("abcdefghijklm", repeat=2), 150)]
    seconds = ["".join(letters) for letters in islice(product("nopqrstuvwxyz", repeat=3), 200)]
    rules = (f"*{first}*{second}" for second in seconds for first in firsts)
    repeats = target_octets // 2_000  # so that all places move with the size
    end = "".join(seconds) * repeats + "".join(firsts) * repeats
    count = pattern_octets // _OCTETS_PER_SHORT_RULE
    return list(islice(rules, count)), _filled("/", "n", target_octets - len(end)) + end


def _filled(start: str, filling: str, octets: int) -> str:
    missing = octets - len(start)
    return start + (filling * (missing // len(filling) + 1))[:missing]


CASES: Final[dict[str, Case]] = {
    "all segments, in reverse": Case(_reversed_segments, 2_000, 8_000),
    "*a*a...*a*b in a...a": Case(_many_stars, 2_000, 8_000),
    "*a...ab in a...a, short": Case(_last_differs, 96, 24_000),
    "*a...ab in a...a, long": Case(_last_differs, 2_000, 40_000),
    "*a..aba..a in a...a, short": Case(_middle_differs, 96, 24_000),
    "*a..aba..a in a...a, long": Case(_middle_differs, 2_000, 40_000),
    "*abab...ab in ab..abb, short": Case(_period_breaks, 96, 24_000),
    "*abab...ab in ab..abb, long": Case(_period_breaks, 2_000, 40_000),
    "*Fibonacci + c, short": Case(_fibonacci, 96, 24_000),
    "*Fibonacci + c, long": Case(_fibonacci, 2_000, 40_000),
    "/a, /aa, /aaa, ... (prefixes)": Case(_nested_prefixes, 480_000, 4_000),
    "/a*bb*cc, /aa*bb*cc, ...": Case(_nested_heads, 480_000, 4_000),
    "30,000 x *abcdef, absent": Case(_short_and_absent, _MANY, 2_000),
    "30,000 x *ab*xyz, misplaced": Case(_short_and_misplaced, _MANY, 4_000),
}
