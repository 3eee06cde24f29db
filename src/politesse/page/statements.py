"""The words by which a page speaks to robots, and how a list of them is read. Pure.

The vocabulary is that of the Robots META tag, of Google's page "Robots meta tag, data-nosnippet, and X-Robots-Tag
specifications", and of draft-illyes-repext. Servers spell it in many ways, and a word that is not understood would
allow what was meant to be forbidden. So a list is read generously: by commas, semicolons and blanks, with ``_`` and
``-`` or without, with ``=`` for ``:``, with quotes around it, and by whatever else stands between two words that are
known, as in ``noindex/nofollow``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._text import printable
from politesse.robots.agents import product_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PLAIN: Final = frozenset(
    {"all", "follow", "index", "indexifembedded", "noai", "noarchive", "nocache", "nofollow", "noimageai"}
    | {"noimageindex", "noindex", "none", "nositelinkssearchbox", "nosnippet", "notranslate"}
)
"""The directives that take no value."""

VALUED: Final = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})
"""Those that take one, behind a colon."""

HISTORICAL: Final = frozenset({"noarchive", "nocache", "nositelinkssearchbox"})
"""Those that Google no longer uses; others may."""

_BY_LETTERS: Final = {name.replace("-", "").replace("_", ""): name for name in PLAIN | VALUED}
_SEPARATOR = re.compile(r"[:=]")
_LIST = re.compile(r"[,;]")
_SCOPE = re.compile(r"[A-Za-z0-9_.-]+(?:/[^ \t]*)?|\*")
_WORD = re.compile(r"[^\s:=]+")
_LETTERS = re.compile(r"[A-Za-z_-]+")
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?", re.IGNORECASE)
_QUOTES: Final = " \t\r\n\f\v\xa0\u200b\ufeff\"'"
_SHOWN: Final = 200
_EVERYBODY: Final = frozenset({"*", "robots"})


@dataclass(frozen=True, slots=True)
class Directive:
    """One word of a list.

    Attributes:
        name: as the vocabulary spells it; a word that is not in it in lower case.
        value: what stands behind its colon; empty where nothing does.
        scope: the product token of the crawler that it is for, in lower case; empty for everybody.
    """

    name: str
    value: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One directive that a page makes, and where it does.

    Attributes:
        directive: what it says.
        field: the header or the META: ``X-Robots-Tag``, ``Robots-Tag``, ``META robots``, ``META examplebot``.
        number: which header line of that name, or which META of those that have a name, from 1.
        text: the whole of that line or content.
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
        """The directive's value, empty where it has none."""
        return self.directive.value

    @property
    def historical(self) -> bool:
        """Whether Google no longer uses it."""
        return self.directive.name in HISTORICAL

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."
        return f"{self.field} {self.number}: {printable(text)}"


def parse_scoped(line: str) -> Iterator[Directive]:
    """Parse a line of ``X-Robots-Tag``: ``noindex``, or ``examplebot: nofollow, otherbot: noindex, nofollow``.

    A scope reaches to the next one, or to the end of the line. What stands before a colon, and is not one name of a
    crawler at the start of a list element, scopes nothing: what comes behind it is for everybody.
    """
    return _parse(_LIST.split(line), scoped=True)


def parse_unscoped(content: str) -> Iterator[Directive]:
    """Parse the content of a META: there are no scopes in it, and so every word counts."""
    return _parse(_LIST.split(content), scoped=False)


def parse_members(line: str) -> Iterator[Directive]:
    """Parse a line of ``Robots-Tag``: ``*=noindex, nosnippet; ExampleBot=nofollow`` (draft-illyes-repext-00 2.1.1).

    A member without a name, and one whose name cannot be read, is for everybody.
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
                    # RFC 822 and RFC 850 have a comma behind the day of the week: the next piece is the date.
                    piece = next(following, "")  # noqa: PLW2901
                    at = _value_end(name, piece, 0)
                    value = f"{value}, {piece[:at].strip(_QUOTES)}".rstrip(", ")
                yield Directive(name, value, scope)
            elif scoped and start == 0 and not before and _SCOPE.fullmatch(word) is not None:
                scope = _scope(word)
            else:
                scope = ""  # the name of no crawler: what comes behind it is for everybody
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
    """Return how the vocabulary spells a word; None where it does not know it."""
    return _BY_LETTERS.get(word.lower().replace("-", "").replace("_", ""))


def _scope(text: str) -> str:
    """Return the product token of a scope; empty for everybody."""
    token = product_token(text) if text.isascii() else ""
    return "" if token in _EVERYBODY else token


def _is_value(name: str, text: str, at: int) -> bool:
    """Whether a number or a date follows the name, or it looks like one that takes a value: it is no scope then."""
    found = _WORD.search(text, at)
    word = "" if found is None else found[0].strip(_QUOTES)
    if name.startswith("max-"):
        return _known(word) is None
    return word[:1].isdecimal() or word.startswith(("-", "+")) or _WEEKDAY.fullmatch(word) is not None


def _value_end(name: str, text: str, at: int) -> int:
    """Return where a value ends: a date before the next word of the vocabulary, all else at a blank."""
    if name != "unavailable_after":
        found = _WORD.search(text, at)
        return len(text) if found is None else found.end()
    known = (found.start() for found in _WORD.finditer(text, at) if _known(found[0].strip(_QUOTES)) is not None)
    return next(known, len(text))
