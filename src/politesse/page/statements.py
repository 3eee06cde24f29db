"""Parses lists of directives for robots: META robots, X-Robots-Tag, Robots-Tag. Pure.

The vocabulary comes from the Robots META tag, from Google's page "Robots meta tag, data-nosnippet, and X-Robots-Tag
specifications", and from draft-illyes-repext. Servers spell the directives in many ways, and an unrecognised word would
allow a use that the site meant to forbid. So the parser is lenient. Commas, semicolons and blanks separate directives.
``_`` and ``-`` are optional. ``=`` may replace ``:``. Quotes are ignored. Any other character between two known words
separates them, as in ``noindex/nofollow``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from politesse._base.text import shortened
from politesse.robots.agents import product_token

PLAIN: Final = frozenset(
    {"all", "follow", "index", "indexifembedded", "noai", "noarchive", "nocache", "nofollow", "noimageai"}
    | {"noimageindex", "noindex", "none", "nositelinkssearchbox", "nosnippet", "notranslate"}
)
"""The directives that take no value."""

VALUED: Final = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})
"""The directives that take a value after a colon."""

_BY_LETTERS: Final = {name.replace("-", "").replace("_", ""): name for name in PLAIN | VALUED}
_SEPARATOR = re.compile(r"[:=]")
_LIST = re.compile(r"[,;]")
_SCOPE = re.compile(r"[A-Za-z0-9_.-]+(?:/[^ \t]*)?|\*")
_WORD = re.compile(r"[^\s:=]+")
_LETTERS = re.compile(r"[A-Za-z_-]+")
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?", re.IGNORECASE)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
# In a date, a comma may follow the day of the week (RFC 822 5.1, RFC 850 2.1.4), or day and month.
_START_OF_DATE = re.compile(rf"{_WEEKDAY.pattern}|{_MONTH}\s*[0-9]{{1,2}}|[0-9]{{1,2}}\s*{_MONTH}", re.IGNORECASE)
_QUOTES: Final = " \t\r\n\f\v\xa0\u200b\ufeff\"'"
_EVERYBODY: Final = frozenset({"*", "robots"})
_MAX_NAMES: Final = 20  # a scope with more names is read as a scope for all crawlers, so that time stays linear


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive in a list of directives.

    >>> Directive("max-snippet", "50").value
    '50'

    Attributes:
        name: the name as the vocabulary spells it; an unknown word is in lower case.
        value: the text after the colon, or empty.
        scope: the product token of the addressed crawler, in lower case; empty for all crawlers.
    """

    name: str
    value: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class DirectiveStatement:
    """A directive of a page, and the header line or META that states it.

    >>> print(DirectiveStatement(Directive("noindex"), "X-Robots-Tag", 1, "noindex, nofollow"))
    X-Robots-Tag 1: noindex, nofollow

    Attributes:
        directive: the directive.
        field: the header or the META: ``X-Robots-Tag``, ``Robots-Tag``, ``META robots``, ``META examplebot``.
        number: the number of the header line among the lines of that name, or of the META among named METAs, from 1.
        text: the whole line or content; untrusted.
    """

    directive: Directive
    field: str
    number: int
    text: str

    @property
    def name(self) -> str:
        """The directive's name."""
        return self.directive.name

    @property
    def value(self) -> str:
        """The directive's value; empty without a value."""
        return self.directive.value

    def __str__(self) -> str:
        return f"{self.field} {self.number}: {shortened(self.text)}"


def parse_scoped(line: str) -> Iterator[Directive]:
    """Parse a line of ``X-Robots-Tag``: ``noindex``, or ``examplebot: nofollow, otherbot: noindex, nofollow``.

    A scope, such as ``examplebot:``, extends to the next scope or to the end of the line. Several names may share a
    scope, as in ``examplebot, otherbot: noindex``. Other text before a colon is not a scope; the directives after this
    text are for all crawlers.
    """
    return _parse(_LIST.split(line), scoped=True)


def parse_unscoped(content: str) -> Iterator[Directive]:
    """Parse the content of a META. A META has no scopes: every word counts."""
    return _parse(_LIST.split(content), scoped=False)


def parse_members(line: str) -> Iterator[Directive]:
    """Parse a line of ``Robots-Tag``: ``*=noindex, nosnippet; ExampleBot=nofollow`` (draft-illyes-repext-00 2.1.1).

    A member without a valid name addresses all crawlers.
    """
    for member in line.split(";"):
        name, equals, rules = member.partition("=")
        token = name.strip(_QUOTES)
        if not equals or _known(token) is not None or _SCOPE.fullmatch(token) is None:
            yield from _parse(member.split(","), scoped=False)
            continue
        scope = _scope(token)
        for directive in _parse(rules.split(","), scoped=False):
            yield Directive(directive.name, directive.value, scope)


def _parse(pieces: Sequence[str], *, scoped: bool) -> Iterator[Directive]:
    scopes: Sequence[str] = ("",)
    names: list[str] = []  # unknown words so far; if a scope follows, they are names of crawlers
    following = iter(pieces)
    for piece in following:
        at = 0
        if scoped and _is_name(piece.strip(_QUOTES)):
            names.append(piece.strip(_QUOTES))
            continue
        while (separator := _SEPARATOR.search(piece, at)) is not None:
            start = at
            *before, last = piece[start : separator.start()].split() or [""]
            word, at = last.strip(_QUOTES), separator.end()
            name = _known(word) or word.lower()
            valued = name in VALUED or (name and name not in PLAIN and _is_value(name, piece, at))
            if scoped and start == 0 and not before and not valued and _is_name(word):
                scopes = _scopes((*names, word))
                names.clear()
                continue
            yield from _words((*names, *before), scopes)
            names.clear()
            if name in PLAIN:
                yield from _scoped(name, "", scopes)
            elif valued:
                value, piece, at = _value(name, piece, at, following)  # noqa: PLW2901 - a date extends to the next one
                yield from _scoped(name, value, scopes)
            else:
                scopes = ("",)  # not a crawler name: the directives after it address all crawlers
                yield from _words([word], scopes)
        yield from _words((*names, *piece[at:].split()), scopes)
        names.clear()
    yield from _words(names, scopes)


def _is_name(word: str) -> bool:
    """Whether a word may be the name of a crawler."""
    return _SCOPE.fullmatch(word) is not None and _known(word) is None


def _scopes(names: Sequence[str]) -> Sequence[str]:
    """Return the product tokens of the crawlers before a colon; an empty token for all crawlers."""
    scopes = dict.fromkeys(map(_scope, names))
    return ("",) if "" in scopes or len(scopes) > _MAX_NAMES else tuple(scopes)


def _scoped(name: str, value: str, scopes: Iterable[str]) -> Iterator[Directive]:
    return (Directive(name, value, scope) for scope in scopes)


def _words(words: Iterable[str], scopes: Sequence[str]) -> Iterator[Directive]:
    for written in words:
        word = written.strip(_QUOTES)
        if not word:
            continue
        name = _known(word)
        parts = [] if name is not None else [known for part in _LETTERS.findall(word) if (known := _known(part))]
        for directive in parts or [name or word.lower()]:
            yield from _scoped(directive, "", scopes)


def _known(word: str) -> str | None:
    """Return the vocabulary's spelling of a word, or None."""
    return _BY_LETTERS.get(word.lower().replace("-", "").replace("_", ""))


def _scope(text: str) -> str:
    """Return the product token that a scope names; empty for all crawlers."""
    token = product_token(text) if text.isascii() else ""
    return "" if token in _EVERYBODY else token


def _is_value(name: str, text: str, at: int) -> bool:
    """Return whether a value follows ``name``, so that ``name`` is a directive and not a scope.

    A value is a number or a date. After a name that starts with ``max-``, every word is a value unless it is a known
    directive.
    """
    found = _WORD.search(text, at)
    word = "" if found is None else found[0].strip(_QUOTES)
    if name.startswith("max-"):
        return _known(word) is None
    return word[:1].isdecimal() or word.startswith(("-", "+")) or _WEEKDAY.fullmatch(word) is not None


def _value(name: str, text: str, at: int, following: Iterator[str]) -> tuple[str, str, int]:
    """Return a value, the list element in which the value ends, and the index of the end in that element."""
    end = _value_end(name, text, at)
    part = value = text[at:end].strip(_QUOTES)
    while name == "unavailable_after" and _START_OF_DATE.fullmatch(part) is not None:
        text = next(following, "")
        end = _value_end(name, text, 0)
        part = text[:end].strip(_QUOTES)
        value = f"{value}, {part}".rstrip(", ")
    return value, text, end


def _value_end(name: str, text: str, at: int) -> int:
    """Return the end of a value: a date extends to the next known word, other values to a blank."""
    if name != "unavailable_after":
        found = _WORD.search(text, at)
        return len(text) if found is None else found.end()
    known = (found.start() for found in _WORD.finditer(text, at) if _known(found[0].strip(_QUOTES)) is not None)
    return next(known, len(text))
