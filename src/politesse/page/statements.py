"""Parses lists of directives for robots: META robots, X-Robots-Tag, Robots-Tag. Pure.

The vocabulary is that of the Robots META tag, of Google's page "Robots meta tag, data-nosnippet, and X-Robots-Tag
specifications", and of draft-illyes-repext. Servers spell it in many ways, and an unknown word would allow what the
site meant to forbid. So the parser is lenient: commas, semicolons and blanks separate; ``_`` and ``-`` are optional;
``=`` may replace ``:``; quotes are ignored; and any other character between two known words separates them, as in
``noindex/nofollow``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._text import shortened
from politesse.robots.agents import product_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PLAIN: Final = frozenset(
    {"all", "follow", "index", "indexifembedded", "noai", "noarchive", "nocache", "nofollow", "noimageai"}
    | {"noimageindex", "noindex", "none", "nositelinkssearchbox", "nosnippet", "notranslate"}
)
"""The directives that take no value."""

VALUED: Final = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})
"""The directives that take a value after a colon."""

HISTORICAL: Final = frozenset({"noarchive", "nocache", "nositelinkssearchbox"})
"""The directives that Google no longer uses; other search engines may."""

_BY_LETTERS: Final = {name.replace("-", "").replace("_", ""): name for name in PLAIN | VALUED}
_SEPARATOR = re.compile(r"[:=]")
_LIST = re.compile(r"[,;]")
_SCOPE = re.compile(r"[A-Za-z0-9_.-]+(?:/[^ \t]*)?|\*")
_WORD = re.compile(r"[^\s:=]+")
_LETTERS = re.compile(r"[A-Za-z_-]+")
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?", re.IGNORECASE)
_QUOTES: Final = " \t\r\n\f\v\xa0\u200b\ufeff\"'"
_MAX_SHOWN: Final = 200
_EVERYBODY: Final = frozenset({"*", "robots"})


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive of a list.

    >>> Directive("max-snippet", "50").value
    '50'

    Attributes:
        name: as the vocabulary spells it; an unknown word in lower case.
        value: the text after the colon; empty if there is none.
        scope: the product token of the crawler that it addresses, in lower case; empty for all crawlers.
    """

    name: str
    value: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class DirectiveStatement:
    """One directive of a page, and where it stands.

    >>> print(DirectiveStatement(Directive("noindex"), "X-Robots-Tag", 1, "noindex, nofollow"))
    X-Robots-Tag 1: noindex, nofollow

    Attributes:
        directive: the directive.
        field: the header or the META: ``X-Robots-Tag``, ``Robots-Tag``, ``META robots``, ``META examplebot``.
        number: the number of the header line among those of that name, or of the META among those with a name, from 1.
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
        """The directive's value; empty if it has none."""
        return self.directive.value

    @property
    def historical(self) -> bool:
        """Whether Google no longer uses the directive."""
        return self.directive.name in HISTORICAL

    def __str__(self) -> str:
        return f"{self.field} {self.number}: {shortened(self.text, _MAX_SHOWN)}"


def parse_scoped(line: str) -> Iterator[Directive]:
    """Parse a line of ``X-Robots-Tag``: ``noindex``, or ``examplebot: nofollow, otherbot: noindex, nofollow``.

    A scope extends to the next scope or to the end of the line. Text before a colon that is not a single crawler name
    at the start of a list element is no scope: the directives after it address all crawlers.
    """
    return _parse(_LIST.split(line), scoped=True)


def parse_unscoped(content: str) -> Iterator[Directive]:
    """Parse the content of a META. It has no scopes: every word counts."""
    return _parse(_LIST.split(content), scoped=False)


def parse_members(line: str) -> Iterator[Directive]:
    """Parse a line of ``Robots-Tag``: ``*=noindex, nosnippet; ExampleBot=nofollow`` (draft-illyes-repext-00 2.1.1).

    A member without a name, or with an invalid one, addresses all crawlers.
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
    scope = ""
    following = iter(pieces)
    for piece in following:
        at = 0
        while (separator := _SEPARATOR.search(piece, at)) is not None:
            start = at
            *before, last = piece[start : separator.start()].split() or [""]
            yield from _words(before, scope)
            word, at = last.strip(_QUOTES), separator.end()
            name = _known(word) or word.lower()
            if name in PLAIN:
                yield Directive(name, "", scope)
            elif name in VALUED or (name and _is_value(name, piece, at)):
                end = _value_end(name, piece, at)
                value, at = piece[at:end].strip(_QUOTES), end
                if name == "unavailable_after" and _WEEKDAY.fullmatch(value) is not None:
                    # RFC 822 5.1, RFC 850 2.1.4: a comma follows the day of the week, so the next piece is the date.
                    piece = next(following, "")  # noqa: PLW2901
                    at = _value_end(name, piece, 0)
                    value = f"{value}, {piece[:at].strip(_QUOTES)}".rstrip(", ")
                yield Directive(name, value, scope)
            elif scoped and start == 0 and not before and _SCOPE.fullmatch(word) is not None:
                scope = _scope(word)
            else:
                scope = ""  # not a crawler name: the directives after it address all crawlers
                yield from _words([word], scope)
        yield from _words(piece[at:].split(), scope)


def _words(words: Iterable[str], scope: str) -> Iterator[Directive]:
    for written in words:
        word = written.strip(_QUOTES)
        if not word:
            continue
        name = _known(word)
        parts = [] if name is not None else [known for part in _LETTERS.findall(word) if (known := _known(part))]
        for directive in parts or [name or word.lower()]:
            yield Directive(directive, "", scope)


def _known(word: str) -> str | None:
    """Return the spelling of a word in the vocabulary; None for an unknown word."""
    return _BY_LETTERS.get(word.lower().replace("-", "").replace("_", ""))


def _scope(text: str) -> str:
    """Return the product token of a scope; empty for all crawlers."""
    token = product_token(text) if text.isascii() else ""
    return "" if token in _EVERYBODY else token


def _is_value(name: str, text: str, at: int) -> bool:
    """Whether a value follows the name, which is then not a scope: a number, a date, or anything after ``max-``."""
    found = _WORD.search(text, at)
    word = "" if found is None else found[0].strip(_QUOTES)
    if name.startswith("max-"):
        return _known(word) is None
    return word[:1].isdecimal() or word.startswith(("-", "+")) or _WEEKDAY.fullmatch(word) is not None


def _value_end(name: str, text: str, at: int) -> int:
    """Return the end of a value: a date extends to the next known word, other values to a blank."""
    if name != "unavailable_after":
        found = _WORD.search(text, at)
        return len(text) if found is None else found.end()
    known = (found.start() for found in _WORD.finditer(text, at) if _known(found[0].strip(_QUOTES)) is not None)
    return next(known, len(text))
