"""Why Protego answers otherwise: each reason undoes one of its readings, and must turn one answer into the other.

The reasons are Protego's, where politesse answers as a literal reading of RFC 9309 does.
"""

from __future__ import annotations

import re
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

from benchmarks.engines import AGENT
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def explanation(file: RobotsFile, url: str, *, answer: bool) -> str | None:
    """Return why Protego gives this answer, which is not politesse's; None if no reason is known."""
    for names in chain.from_iterable(combinations(REASONS, length) for length in range(1, len(REASONS) + 1)):
        text, changed = file.text, url
        for name in names:
            text, changed = REASONS[name](text, changed)
        if RobotsTxt.parse(text).rules_for(AGENT).allowed(changed) == answer:
            return " and ".join(names)
    return None
