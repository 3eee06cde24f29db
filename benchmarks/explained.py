"""Why answers differ: each reason undoes one reading, and must turn one answer into the other.

``REASONS`` are Protego's; politesse answers as the standard says. ``LENIENCIES`` are politesse's: RFC 9309 2.2.4
permits them, and a literal reading does not have them.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from functools import partial
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import in_utf_8
from benchmarks.engines import AGENT
from politesse import Dialect
from politesse.robots import RobotsTxt
from politesse.robots.lexer import split_rows
from politesse.testing.trace import LiteralRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from benchmarks.corpus import RobotsFile

    Change = Callable[[str, str], tuple[str, str]]
    Reading = Callable[[bytes, str], tuple[bytes, str]]

_COUNTED_AS_THREE: Final = re.compile(r"[?&:@!,;()'+\[\]|]")
_RESERVED: Final = re.compile(r"%(?:3[ABDF]|2[16789BC4]|40|5[BD])", re.IGNORECASE)
_WITHOUT_GROUPS: Final = frozenset({"user-agent", "sitemap", "host"})
_TEXT: Final = "gets a text that lacks the octets that are not UTF-8"
_STARS: Final = "counts each of several stars in a row (as Google does)"
_RULE: Final = re.compile(r"^([ \t]*(?:dis)?allow[ \t]*:)(.*)$", re.IGNORECASE | re.MULTILINE)


def _three_octets(text: str, url: str) -> tuple[str, str]:
    def lengthened(value: str) -> str:
        return _COUNTED_AS_THREE.sub(lambda found: f"~{ord(found[0]):02x}", value)

    scheme, host, target = re.split(r"(?<=://)([^/]+)", url, maxsplit=1)
    return _RULE.sub(lambda found: found[1] + lengthened(found[2]), text), f"{scheme}{host}{lengthened(target)}"


def _decoded(text: str, url: str) -> tuple[str, str]:
    def decoded(value: str) -> str:
        return _RESERVED.sub(lambda found: chr(int(found[0][1:], 16)), value)

    return _RULE.sub(lambda found: found[1] + decoded(found[2]), text), decoded(url)


def _split(text: str, url: str) -> tuple[str, str]:
    """End the group after each field that lint reports as ``field-between-agents``, but for Sitemap and Host."""
    robots, rows = RobotsTxt.parse(text), split_rows(text)
    for group in reversed([group for group in robots.groups if group.heads]):
        first, last = group.heads[0].number, group.heads[-1].number
        for line in reversed(robots.lines):
            if first < line.number < last and line.field not in _WITHOUT_GROUPS:
                rows.insert(line.number, "Disallow:")
    return "\n".join(rows), url


REASONS: Final[Mapping[str, Change]] = {
    "decodes escapes of reserved characters (RFC 9309 2.2.2 compares them as they are)": _decoded,
    "counts ?, & and others as the three octets of their escapes (RFC 9309 2.2.2: the most octets)": _three_octets,
    "starts another group after a field between user-agent lines (RFC 9309 2.2.4: it must not interfere)": _split,
}


def _sub(pattern: bytes, meant: bytes) -> Reading:
    sub = partial(re.compile(pattern, re.IGNORECASE | re.MULTILINE).sub, meant)
    return lambda body, target: (sub(body), target)


LENIENCIES: Final[Mapping[str, Reading]] = {
    "reads UTF-16 and UTF-32": lambda body, target: (in_utf_8(body), target),
    "reads misspelled names of Disallow": _sub(
        rb"^([ \t]*)(?:dissallow|dissalow|disalow|diasllow|disallaw)(?=[ \t]*[: \t])", rb"\1disallow"
    ),
    "reads two words without a colon": _sub(
        rb"^([ \t]*(?:user-agent|(?:dis)?allow))[ \t]+([^\s:#]\S*)(?=[ \t]*(?:#|\r?$))", rb"\1:\2"
    ),
    "ignores lines with control characters": _sub(rb"^.*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f].*$", b""),
    "reads a no-break space around a value as a blank": _sub(
        rb"[ \t]*(?:\xc2?\xa0[ \t]*)+(?=#|\r?$)|(?<=:)[ \t]*(?:\xc2?\xa0[ \t]*)+", b""
    ),
    "lets a pattern end within an escape": lambda body, target: (body, target.replace("%", "%25")),
}


def explanation(file: RobotsFile, url: str, *, answer: bool) -> str | None:
    """Return why Protego does not answer as politesse does; None for no known reason."""
    if RobotsTxt.parse(file.text).rules_for(AGENT).allowed(url) == answer:
        is_complete = in_utf_8(file.body).removeprefix(BOM_UTF8) == file.text.encode()
        return None if is_complete else _TEXT  # no change of a text explains the answer that the text has unchanged
    for names in _combined(REASONS):
        text, changed = file.text, url
        for name in names:
            text, changed = REASONS[name](text, changed)
        if RobotsTxt.parse(text).rules_for(AGENT).allowed(changed) == answer:
            return " and ".join(names)
    found = RobotsTxt.parse(file.text, Dialect.GOOGLE).rules_for(AGENT).match(url)
    counts_stars = found.rule is not None and "**" in found.rule.value and found.allowed == answer
    return _STARS if counts_stars else None


def leniency(file: RobotsFile, target: str, *, answer: bool) -> str | None:
    """Return why politesse does not answer as the literal reading does; None for no known reason."""
    if RobotsTxt.parse(file.body).rules_for(AGENT).match(target).bound_reached:
        return "has reached the bound on its matching work"
    for names in _combined(LENIENCIES):
        body, read = file.body, target
        for name in names:
            body, read = LENIENCIES[name](body, read)
        if (LiteralRules(body, AGENT).against(read) is None) == answer:
            return " and ".join(names)
    return None


def _combined(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield each name, each pair of them, and so on."""
    some = list(names)
    return chain.from_iterable(combinations(some, length) for length in range(1, len(some) + 1))
