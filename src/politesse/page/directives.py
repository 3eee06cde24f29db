"""The directives of a page for robots: META robots, X-Robots-Tag, Robots-Tag. Pure.

A crawler knows the directives of a page only if it may fetch the page. If robots.txt disallows the page, its directives
stay unknown.

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
from itertools import chain
from typing import Final

from politesse._base.text import shortened
from politesse._http.fields import Headers, header_pairs
from politesse._http.freshness import http_date, iso_date
from politesse.page.html import MAX_BYTES, Html, Meta, read_html
from politesse.robots.agents import product_token

MAX_OCTETS: Final = 65_536
"""How many octets are read of all lines with the same name."""


def header_lines(pairs: Iterable[tuple[str, str]], name: str) -> tuple[list[str], bool]:
    """Return the values of all header lines with this lower-case name, and whether ``cut_lines`` has cut them."""
    return cut_lines(value for key, value in pairs if key == name)


def content_type(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the value of ``Content-Type``; several lines are joined with commas."""
    return ", ".join(header_lines(pairs, "content-type")[0])


def cut_lines(values: Iterable[str]) -> tuple[list[str], bool]:
    """Return the first lines, at most ``MAX_OCTETS`` characters in all, and whether more followed.

    A cut line ends before a comma, a semicolon or a blank, so that no part of a word is read as a whole word.
    """
    lines: list[str] = []
    room = MAX_OCTETS
    for value in values:
        if len(value) > room:
            cut = value[:room]
            lines.append(cut[: max(*map(cut.rfind, ",; "), 0)])
            return lines, True
        lines.append(value)
        room -= len(value)
    return lines, False


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


_HEADERS: Final = (("X-Robots-Tag", parse_scoped), ("Robots-Tag", parse_members))
_NAMES = re.compile(r"[\s,;\"'\u2018\u2019\u201c\u201d\u200b\ufeff]+")  # the separators include typographic quotes
_NUMBER = re.compile(r"-1|[0-9]{1,10}")
_DAYS = re.compile(r"([0-9]{1,5})\s*(?:days?)?", re.IGNORECASE)
_PREVIEWS: Final = ("none", "standard", "large")  # the most restrictive comes first
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Whether a page allows a use, with the deciding statements. The answer is true if the use is allowed.

    >>> page = PageDirectives.from_response([("X-Robots-Tag", "nofollow")], None)
    >>> print(page.may_follow)
    must not follow: X-Robots-Tag 1: nofollow

    Attributes:
        to: the use, such as ``index``, ``follow`` or ``show a snippet``.
        against: the statements that forbid the use; empty if it is allowed.
    """

    to: str
    against: tuple[DirectiveStatement, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the use is allowed."""
        return not self.against

    def __bool__(self) -> bool:
        return self.allowed

    def __str__(self) -> str:
        if self.allowed:
            return f"may {self.to}: nothing on the page forbids it"
        return f"must not {self.to}: " + "; ".join(map(str, self.against))


@dataclass(frozen=True, slots=True)
class PageDirectives:
    """The directives of a page for one crawler: directives that name this crawler, and directives for all crawlers.

    If statements contradict each other, the most restrictive applies (Google's page on the Robots META tag;
    draft-illyes-repext-00 2.2).

    >>> page = PageDirectives.from_response({"X-Robots-Tag": "noindex, max-snippet:50"}, None, "ExampleBot")
    >>> page.may_index(now=1_800_000_000.0).allowed, page.may_follow.allowed, page.max_snippet
    (False, True, 50)

    Attributes:
        statements: all directives for the crawler, headers first, including directives without a meaning here, such as
            ``noai``.
        metas: all METAs with a name, including METAs for other crawlers and other purposes.
        truncated: whether directives may be missing: the page or a header exceeded a limit, or the body could not be
            read.
        licenses: the addresses of ``<link rel="license">`` (RSL), as written.
        base_href: the ``<base href>`` of the page, as written, or None; ``licenses`` are relative to it.
    """

    statements: tuple[DirectiveStatement, ...] = ()
    metas: tuple[Meta, ...] = ()
    truncated: bool = False
    licenses: tuple[str, ...] = ()
    base_href: str | None = None

    @classmethod
    def from_response(
        cls,
        headers: Headers,
        body: bytes | str | None,
        token: str | Sequence[str] = (),
        *,
        in_body: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> PageDirectives:
        """Read the directives of a response. No content raises an error.

        Args:
            headers: see ``politesse.page.Headers``.
            body: the octets of the body, without content coding, or its text, or None to read only the headers.
            token: the crawler's product token, its User-Agent string, or several tokens: a directive for any of them
                counts.
            in_body: whether METAs in BODY also count, as they do for Google. Other specifications read only HEAD,
                because visitors of a site may write into BODY.
            max_bytes: how many octets of the body, or characters of a text, are read.

        Raises:
            ImportError: the body is HTML, and the extra ``html`` is not installed.
        """
        pairs = header_pairs(headers)
        html = read_html(body, content_type(pairs), in_body=in_body, max_bytes=max_bytes) if body else None
        return cls.from_html(pairs, html, token)

    @classmethod
    def from_html(cls, headers: Headers, html: Html | None, token: str | Sequence[str] = ()) -> PageDirectives:
        """Return the directives in headers and in a page (None if it is not HTML); see ``from_response``."""
        names = {product_token(name) for name in ([token] if isinstance(token, str) else token)} - {""}
        html = html or Html()
        pairs = header_pairs(headers)
        statements: list[DirectiveStatement] = []
        truncated = html.truncated
        for field, parse in _HEADERS:
            lines, cut = header_lines(pairs, field.lower())
            truncated |= cut
            for number, line in enumerate(lines, 1):
                statements += (
                    DirectiveStatement(directive, field, number, line)
                    for directive in dict.fromkeys(parse(line))
                    if not directive.scope or directive.scope in names
                )
        mine = [(number, meta) for number, meta in enumerate(html.metas, 1) if _speaks_to(meta, names)]
        contents, cut = cut_lines(meta.content for _, meta in mine)
        for (number, meta), content in zip(mine, contents, strict=False):
            field = f"META {meta.name.lower()}"
            directives = dict.fromkeys(parse_unscoped(content))
            statements += (DirectiveStatement(directive, field, number, content) for directive in directives)
        return cls(tuple(statements), html.metas, truncated or cut, html.licenses, html.base_href)

    def named(self, *names: str) -> tuple[DirectiveStatement, ...]:
        """Return the statements with the given names, in the spelling of the vocabulary."""
        return tuple(statement for statement in self.statements if statement.name in names)

    def may_index(self, now: float, *, embedded: bool = False) -> PageAnswer:
        """Whether the page may be indexed at the Unix time ``now``: NOINDEX, NONE, and ``unavailable_after``.

        If ``embedded`` is true, the page is shown in an IFRAME of another page, so that ``indexifembedded`` cancels
        NOINDEX.
        """
        lifted = embedded and bool(self.named("indexifembedded"))
        forbidding = () if lifted else self.named("noindex", "none")
        # The comparison is not "now >= date", so that a ``now`` of NaN forbids indexing.
        expired = (statement for statement, date in self._expiries() if not now < date)
        return PageAnswer("index", (*forbidding, *expired))

    @property
    def may_follow(self) -> PageAnswer:
        """Whether the links of the page may be followed: NOFOLLOW, NONE."""
        return PageAnswer("follow", self.named("nofollow", "none"))

    @property
    def may_archive(self) -> PageAnswer:
        """Whether a cached copy may be shown: NOARCHIVE, and ``nocache``, Bing's name for it."""
        return PageAnswer("archive", self.named("noarchive", "nocache"))

    @property
    def may_snippet(self) -> PageAnswer:
        """Whether a part of the page's text or video may be shown: ``nosnippet``, and ``max-snippet:0``."""
        zero = (statement for statement, limit in self._limits("max-snippet") if limit == 0)
        return PageAnswer("show a snippet", (*self.named("nosnippet"), *zero))

    @property
    def may_translate(self) -> PageAnswer:
        """Whether a translation of the page may be offered: ``notranslate``."""
        return PageAnswer("translate", self.named("notranslate"))

    @property
    def may_index_images(self) -> PageAnswer:
        """Whether the images on the page may be indexed: ``noimageindex``."""
        return PageAnswer("index images", self.named("noimageindex"))

    @property
    def max_snippet(self) -> int | None:
        """How many characters of text may be shown, or None without a limit."""
        return self._least("max-snippet") if self.may_snippet else 0

    @property
    def max_video_preview_s(self) -> int | None:
        """How many seconds of a video may be shown, 0 for a still image, or None without a limit."""
        return self._least("max-video-preview")

    @property
    def max_image_preview(self) -> str | None:
        """The largest preview of an image: ``none``, ``standard`` or ``large``, or None without a limit."""
        sizes = {statement.value.lower() for statement in self.named("max-image-preview")}
        return next((size for size in _PREVIEWS if size in sizes), None)

    @property
    def unavailable_after(self) -> float | None:
        """The Unix time after which the page must not be indexed (the earliest, if several), or None."""
        return min((date for _, date in self._expiries()), default=None)

    @property
    def description(self) -> str:
        """The META DESCRIPTION, or empty."""
        return next((content.strip() for content in self._contents("description")), "")

    @property
    def keywords(self) -> tuple[str, ...]:
        """The words of all META KEYWORDS, in order."""
        words = chain.from_iterable(content.split(",") for content in self._contents("keywords"))
        return tuple(word.strip() for word in words if word.strip())

    @property
    def revisit_after_days(self) -> int | None:
        """The days of META REVISIT-AFTER (the largest number, if several), or None."""
        found = (_DAYS.fullmatch(content.strip()) for content in self._contents("revisit-after"))
        return max((int(days[1]) for days in found if days is not None), default=None)

    def _contents(self, name: str) -> Iterator[str]:
        return (meta.content for meta in self.metas if meta.name.lower() == name)

    def _limits(self, name: str) -> Iterator[tuple[DirectiveStatement, int]]:
        """Yield the valid limits, except -1, which stands for no limit."""
        for statement in self.named(name):
            if _NUMBER.fullmatch(statement.value) is not None and (limit := int(statement.value)) != _NO_LIMIT:
                yield statement, limit

    def _least(self, name: str) -> int | None:
        return min((limit for _, limit in self._limits(name)), default=None)

    def _expiries(self) -> Iterator[tuple[DirectiveStatement, float]]:
        for statement in self.named("unavailable_after"):
            date = page_date(statement.value)
            if date is not None:
                yield statement, date


def page_date(text: str) -> float | None:
    """Return the date of ``unavailable_after`` as Unix time: RFC 822, RFC 850 or ISO 8601; None for any other text.

    A date without a time means the start of the day; a date without a zone is in UTC.
    """
    if (date := iso_date(text)) is not None:
        return date
    spelled = (text, text.replace(",", ""))  # "25 June, 2010" has a comma that no RFC permits
    forms = (f"{one}{time}" for one in spelled for time in ("", " 00:00:00 GMT"))
    return next((date for form in forms if (date := http_date(form)) is not None), None)


def _speaks_to(meta: Meta, names: Iterable[str]) -> bool:
    said = set(_NAMES.split(meta.name.lower()))
    return "robots" in said or not said.isdisjoint(names)
