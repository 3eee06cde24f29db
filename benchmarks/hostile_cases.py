"""Pairs of rules and target that are chosen to be slow, in any size.

Each case gives literal text for patterns and target, so that nothing is normalised and the sizes are what is compared.
Every character of a pattern occurs in the target, so that none is rejected for its characters alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice, product
from math import isqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    number = isqrt(2 * pattern_octets)
    return ["/" + "a" * length for length in range(1, number)], _filled(f"/{'a' * (number // 2)}b", "a", target_octets)


def _nested_heads(pattern_octets: int, target_octets: int) -> Input:
    """As many heads that all fit, and what follows them stands in the wrong order."""
    number = isqrt(2 * pattern_octets)
    return [f"/{'a' * length}*bb*cc" for length in range(1, number)], _filled("/", "a", target_octets - 4) + "ccbb"


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
    patterns = list(islice(rules, pattern_octets // _OCTETS_PER_SHORT_RULE))
    return patterns, _filled("/", "n", target_octets - len(end)) + end


def _filled(start: str, filling: str, octets: int) -> str:
    missing = octets - len(start)
    return start + (filling * (missing // len(filling) + 1))[:missing]


CASES: Final[dict[str, Case]] = {
    "all segments, in reverse": Case(_reversed_segments, 2_000, 8_000),
    "*a*a...*a*b in a...a": Case(_many_stars, 2_000, 8_000),
    "*a...ab in a...a, short": Case(_last_differs, 96, 20_000),
    "*a...ab in a...a, long": Case(_last_differs, 2_000, 20_000),
    "*a..aba..a in a...a, short": Case(_middle_differs, 96, 20_000),
    "*a..aba..a in a...a, long": Case(_middle_differs, 2_000, 20_000),
    "*abab...ab in ab..abb, short": Case(_period_breaks, 96, 20_000),
    "*abab...ab in ab..abb, long": Case(_period_breaks, 2_000, 20_000),
    "*Fibonacci + c, short": Case(_fibonacci, 96, 20_000),
    "*Fibonacci + c, long": Case(_fibonacci, 2_000, 20_000),
    "/a, /aa, /aaa, ... (prefixes)": Case(_nested_prefixes, 480_000, 4_000),
    "/a*bb*cc, /aa*bb*cc, ...": Case(_nested_heads, 480_000, 4_000),
    "30,000 x *abcdef, absent": Case(_short_and_absent, _MANY, 2_000),
    "30,000 x *ab*xyz, misplaced": Case(_short_and_misplaced, _MANY, 4_000),
}


@dataclass(frozen=True, slots=True)
class Attack:
    """A whole file against one decision.

    Attributes:
        lines: the rules, without end; the file is cut at 500 KiB.
        start: what the targets start with.
        filling: what they go on with.
    """

    lines: Callable[[], Iterator[str]]
    start: str
    filling: str

    def body(self) -> str:
        """Return the file; Conner 2.0 reads its wildcards, the others read over its version."""
        text = ["User-agent: *", "Robot-version: 2.0.0"]
        octets = 0
        for line in self.lines():
            octets += len(line) + 1
            if octets > _FILE_OCTETS:
                break
            text.append(line)
        return "\n".join(text)

    def target(self, octets: int, *, escaped: bool) -> str:
        """Return a target of so many octets; with a query of escapes that has two forms, or without."""
        plain = _filled(self.start, self.filling, octets // 2 if escaped else octets)
        return _filled(f"{plain}?", "%2F", octets) if escaped else plain


_FILE_OCTETS: Final = 500 * 1024 - 100


def _word(number: int, octets: int, letters: str = "ab") -> str:
    """Return a word of its own for each number: those that differ late are alike to a search."""
    return "".join(letters[number >> place & 1] for place in range(octets))


def _each(line: Callable[[int], str]) -> Callable[[], Iterator[str]]:
    return lambda: map(line, count())


_LATE_TARGET: Final = "".join(_word(number, 16) for number in range(1_200))

ATTACKS: Final[dict[str, Attack]] = {
    "*a{20}b<binary>aa": Attack(_each(lambda n: f"Disallow:*{'a' * 20}b{_word(n, 16)}aa"), "/b", "a"),
    "*a{60}b<binary>a{20}": Attack(_each(lambda n: f"Disallow:*{'a' * 60}b{_word(n, 16)}{'a' * 20}"), "/b", "a"),
    "needles of 98": Attack(_each(lambda n: f"Disallow:*{'a' * 80}b{_word(n, 16)}a"), "/b", "a"),
    "needles of 98, near": Attack(_each(lambda n: f"Disallow:*{'a' * 80}b{_word(n, 16)}a"), "/", "a" * 80 + "b"),
    "needles of 138": Attack(_each(lambda n: f"Disallow:*{'a' * 120}b{_word(n, 16)}a"), "/", "a" * 119 + "b"),
    "needles of 1,400": Attack(_each(lambda n: f"Disallow:*{'a' * 1_400}b{_word(n, 16)}a"), "/b", "a"),
    "needles of 9,000": Attack(_each(lambda n: f"Disallow:*{'a' * 9_000}b{_word(n, 16)}a"), "/b", "a"),
    "needles of 18,000": Attack(_each(lambda n: f"Disallow:*{'a' * 18_000}b{_word(n, 16)}a"), "/", "a" * 18_001 + "b"),
    "short needles": Attack(_each(lambda n: f"Disallow:*{_word(n, 17)}"), "/", "aab"),
    "short needles, Allow": Attack(_each(lambda n: f"Allow:*{_word(n, 17)}"), "/", "ab"),
    "numbers, Allow": Attack(_each(lambda n: f"Allow:*{n}"), "/", "1234567890"),
    "Allow and Disallow tie": Attack(
        _each(lambda n: f"{('Disallow', 'Allow')[n & 1]}:*{_word(n >> 1, 17)}c"), "/c", "ab"
    ),
    "rare character shared": Attack(_each(lambda n: f"Disallow:*{_word(n, 3)}~{_word(n >> 3, 13)}"), "/", "abab~"),
    "50 stars": Attack(_each(lambda n: f"Disallow:/{'*a' * 50}*b{_word(n, 16)}"), "/b", "ab"),
    "200 stars, all but the last": Attack(_each(lambda n: f"Disallow:/{'*ab' * 200}*{_word(n, 16)}c"), "/c", "aab"),
    "240,000 stars": Attack(lambda: iter(["Disallow:/" + "*a" * 240_000 + "*b"]), "/b", "a"),
    "segments that are found late": Attack(
        _each(lambda n: f"Disallow:*{_word(n, 16)}*{_word(n + 1, 16)}*{_word(n + 2, 16)}"), "/", _LATE_TARGET
    ),
    "one head": Attack(_each(lambda n: f"Disallow:/a*{_word(n, 16)}c"), "/ac", "b"),
    "a head each": Attack(_each(lambda n: f"Disallow:/{n}*a"), "/1", "a"),
    "nested heads": Attack(lambda: (f"Disallow:/{'a' * n}*bb*cc" for n in range(1, 2_000)), "/", "a"),
    "anchored": Attack(_each(lambda n: f"Disallow:*{_word(n, 14)}*c$"), "/c", "abc"),
    "whole paths": Attack(_each(lambda n: f"Disallow:/{n}$"), "/", "1"),
    "prefixes": Attack(_each(lambda n: f"Disallow:/a{n}"), "/a", "1"),
    "nested prefixes": Attack(lambda: (f"Disallow:/{'a' * n}" for n in range(1, 2_000)), f"/{'a' * 499}b", "a"),
}


def _minutes(number: int) -> str:
    start, end = number % 1_440, number // 1_440 % 1_440
    return f"{start // 60:02}{start % 60:02}-{end // 60:02}{end % 60:02}"


TIMES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "Request-rates": _each(lambda n: f"Request-rate:1/{n % 9 + 1} {_minutes(n)}"),
    "Visit-times": _each(lambda n: f"Visit-time:{_minutes(n * 1_441)}"),
    "Crawl-delays": _each(lambda n: f"Crawl-delay:{n % 9}"),
}
"""Lines about the pace, without end."""

LINES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "one character": _each(lambda _: "a"),
    "fields without a name": _each(lambda _: ":"),
    "field names": _each(lambda n: f"x{n}:"),
    "user-agent lines": _each(lambda n: f"User-agent:a{n}"),
    "groups": _each(lambda n: f"User-agent:x\nDisallow:/{n}"),
    "prefixes": _each(lambda n: f"Disallow:/{n}"),
    "wildcards": _each(lambda n: f"Disallow:*{n}"),
    "wildcards with heads": _each(lambda n: f"Disallow:/{n}*a"),
    "whole paths": _each(lambda n: f"Disallow:/{n}$"),
    "escapes": _each(lambda n: f"Disallow:/%41{n}%2f"),
    "not ASCII": _each(lambda n: f"Disallow:/\N{LATIN SMALL LETTER E WITH ACUTE}{n}"),
    "control characters": _each(lambda n: f"Disallow:/\x01{n}"),
    "URLs": _each(lambda n: f"Disallow:http://h{n}.e/"),
    "URLs of foreign letters": _each(lambda n: f"Disallow:http://\N{LATIN SMALL LETTER E WITH ACUTE}{n}.e/"),
    "sitemaps": _each(lambda n: f"Sitemap:http://a/{n}"),
    "preferences": _each(lambda n: f"Content-usage:/{n} a=n"),
    **TIMES,
}
"""Lines that are slow to read, without end."""
