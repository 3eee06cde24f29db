"""Files and URLs that are slow to match, and files that are slow to read.

Every character of a pattern occurs in the target: otherwise a decision would reject the pattern for that character.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _filled(start: str, filling: str, octets: int) -> str:
    missing = octets - len(start)
    return start + (filling * (missing // len(filling) + 1))[:missing]


@dataclass(frozen=True, slots=True)
class Attack:
    """A whole file against one decision.

    Attributes:
        lines: the rules, without end; the file is cut at 500 KiB.
        start: the first octets of each target.
        filling: repeated after the start.
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
    """Return another word for each number; words that differ late are equal for most of a search."""
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
    "Allows that match, Disallows that do not": Attack(
        _each(lambda n: f"Disallow:/x{n}*a" if n & 1 else f"Allow:*{n}"), "/", "1234567890"
    ),
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
