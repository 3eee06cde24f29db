"""Why answers differ: each reason undoes one reading, and must turn one answer into the other.

``REASONS`` are Protego's; politesse answers as the standard says. ``LENIENCIES`` are politesse's: RFC 9309 2.2.4
permits them, and a literal reading does not have them.
"""

from __future__ import annotations

import re
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

from benchmarks.engines import AGENT
from politesse.robots import RobotsTxt
from politesse.testing._literal import LiteralRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from benchmarks.corpus import RobotsFile

    Change = Callable[[str, str], tuple[str, str]]

_COUNTED_AS_THREE: Final = re.compile(r"[?&:@!,;()'+\[\]|]")
_RESERVED: Final = re.compile(r"%(?:3[ABDF]|2[16789BC4]|40|5[BD])", re.IGNORECASE)
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


REASONS: Final[Mapping[str, Change]] = {
    "decodes escapes of reserved characters (RFC 9309 2.2.2 compares them as they are)": _decoded,
    "counts ?, & and others as the three octets of their escapes (RFC 9309 2.2.2: the most octets)": _three_octets,
}


LENIENCIES: Final[Mapping[str, tuple[re.Pattern[bytes], bytes]]] = {
    "reads misspelled names of Disallow": (
        re.compile(
            rb"^([ \t]*)(?:dissallow|dissalow|disalow|diasllow|disallaw)(?=[ \t]*[: \t])", re.IGNORECASE | re.MULTILINE
        ),
        rb"\1disallow",
    ),
    "reads two words without a colon": (
        re.compile(
            rb"^([ \t]*(?:user-agent|(?:dis)?allow))[ \t]+([^\s:#]\S*)(?=[ \t]*(?:#|\r?$))",
            re.IGNORECASE | re.MULTILINE,
        ),
        rb"\1:\2",
    ),
    "ignores lines with control characters": (
        re.compile(rb"^.*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f].*$", re.MULTILINE),
        b"",
    ),
    "reads a no-break space around a value as a blank": (
        re.compile(rb"[ \t]*(?:\xc2?\xa0[ \t]*)+(?=#|\r?$)|(?<=:)[ \t]*(?:\xc2?\xa0[ \t]*)+", re.MULTILINE),
        b"",
    ),
}


def explanation(file: RobotsFile, url: str, *, answer: bool) -> str | None:
    """Return why Protego does not answer as politesse does; None for no known reason."""
    for names in _combined(REASONS):
        text, changed = file.text, url
        for name in names:
            text, changed = REASONS[name](text, changed)
        if RobotsTxt.parse(text).rules_for(AGENT).allowed(changed) == answer:
            return " and ".join(names)
    return None


def leniency(file: RobotsFile, target: str, *, answer: bool) -> str | None:
    """Return why politesse does not answer as the literal reading does; None for no known reason."""
    if RobotsTxt.parse(file.body).rules_for(AGENT).match(target).bound_reached:
        return "has reached the bound on its matching work"
    for names in _combined(LENIENCIES):
        body = file.body
        for name in names:
            mistake, meant = LENIENCIES[name]
            body = mistake.sub(meant, body)
        if (LiteralRules(body, AGENT).against(target) is None) == answer:
            return " and ".join(names)
    return None


def _combined(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield each name, each pair of them, and so on."""
    some = list(names)
    return chain.from_iterable(combinations(some, length) for length in range(1, len(some) + 1))
