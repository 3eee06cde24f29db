"""URLs in the shape of the web's: a quarter with a query, a tenth with escapes or octets that are not ASCII.

Half of them extend rule paths of the file, half are independent of it. The shares are drawn before the path is, and
rule paths are chosen to suit: so the shares hold for each file, whatever its rules look like.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from benchmarks.words import trail, word

if TYPE_CHECKING:
    from benchmarks.corpus import RobotsFile

URLS_PER_FILE: Final = 20

_QUERY_SHARE: Final = 0.25
_ESCAPE_SHARE: Final = 0.10
_UNCHANGED: Final = "/?&=:@!$'()+,;~*%[]-._"

# Escapes in URLs of the web, and their frequency: words of other alphabets first.
_LETTERS: Final = ("é", "ü", "ñ", "ж", "и", "ت", "日", "本", "ko", "st")
_RESERVED: Final = ("%2F", "%3A", "%26", "%3D", "%2C", "%7C")
_FORMS: Final = ("words", "words in lower case", "space", "reserved", "needless", "not escaped")
_FORM_WEIGHTS: Final = (35, 10, 20, 20, 5, 10)
_KEYS: Final = ("id", "page", "q", "lang", "sort", "utm_source", "utm_medium", "ref", "session_id", "category", "v")


class UrlKind(Enum):
    """The kind of a URL; ``ESCAPES`` goes before ``QUERY`` if it has both."""

    PLAIN = "plain"
    QUERY = "with a query"
    ESCAPES = "with escapes or not ASCII"


def kind_of(url: str) -> UrlKind:
    if "%" in url or not url.isascii():
        return UrlKind.ESCAPES
    return UrlKind.QUERY if "?" in url else UrlKind.PLAIN


def fresh_urls(file: RobotsFile, seed: int, round_number: int) -> list[str]:
    """Return the URLs of a round.

    Each call makes new strings, equal for equal arguments: every contender gets the same questions, but neither a
    string that has its hash already nor one that a cache of a peer has seen in an earlier round.
    """
    random = Random(f"{seed}/{round_number}/{file.host}")
    patterns = [pattern for pattern in file.patterns if pattern.startswith(("/", "*"))]
    targets: dict[str, None] = {}
    while len(targets) < URLS_PER_FILE:
        query, escapes = random.random() < _QUERY_SHARE, random.random() < _ESCAPE_SHARE
        # Patterns with parts that the URL must not have are left out.
        usable = [one for one in patterns if (query or "?" not in one) and (escapes or kind_of(one) != UrlKind.ESCAPES)]
        start = _extended(random.choice(usable), random) if usable and len(targets) % 2 else "/"
        targets[_finished(start, random, query=query, escapes=escapes)] = None
    return [f"https://{file.host}{target}" for target in targets]


def _extended(pattern: str, random: Random) -> str:
    """Return the start of a target that the pattern matches, escaped as a browser would; one with ``$`` is missed."""
    target = quote(pattern.removesuffix("$"), safe=_UNCHANGED, errors="surrogateescape")
    target = "".join(word(random) if character == "*" else character for character in target)
    return target if target.startswith("/") else "/" + target


def _finished(start: str, random: Random, *, query: bool, escapes: bool) -> str:
    """Return a target with a part that no other round has."""
    own = f"{random.randrange(10**9)}"
    if "?" in start:
        return f"{start}{_escaped(random) if escapes and '%' not in start else ''}&{random.choice(_KEYS)}={own}"
    target = f"{start}{trail(random, 0 if start != '/' else 1, 4).rstrip('/')}-{own}" + random.choice(
        ("", "/", ".html")
    )
    if escapes and (not query or random.random() < 1 / 2):
        target, escapes = f"{target}/{_escaped(random)}", False
    if not query:
        return target
    values = [f"{random.choice(_KEYS)}={word(random)}" for _ in range(random.randint(1, 3))]
    return f"{target}?{'&'.join(values)}{_escaped(random) if escapes else ''}"


def _escaped(random: Random) -> str:
    [form] = random.choices(_FORMS, _FORM_WEIGHTS)
    letters = "".join(random.choices(_LETTERS, k=random.randint(3, 12))) + "é"
    match form:
        case "words":
            return quote(letters)
        case "words in lower case":
            return quote(letters).lower()
        case "space":
            return "%20".join(word(random) for _ in range(random.randint(2, 4)))
        case "reserved":
            return word(random) + random.choice(_RESERVED) + word(random)
        case "needless":
            return f"%7E{word(random)}"
        case _:
            return letters
