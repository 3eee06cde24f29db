"""Octets in, lines out. Emits every line that says anything; judges none of them.

A line ends at CR, LF or CRLF and at nothing else; blanks are SP and HTAB and nothing else (RFC 9309 2.2). The
octets are held as text in which each octet that is not UTF-8 is a lone surrogate, so that nothing is lost,
nothing becomes U+FFFD, and the exact octets can be had again with ``encode("utf-8", "surrogateescape")``.
"""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from politesse.robots.dialect import Syntax

_BLANKS: Final = " \t"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|\?xml)\b", re.IGNORECASE)
_BOMS: Final = (
    # The longer marks first: the UTF-16 one is a prefix of the UTF-32 one.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Quirk(StrEnum):
    """A leniency that was used, or a fault that was passed over; recorded so that lint and explain can tell it."""

    BYTE_ORDER_MARK = "byte-order-mark"
    """The file starts with a UTF-8 byte order mark, or a part of one: skipped."""
    TRANSCODED = "transcoded"
    """The file is UTF-16 or UTF-32 by its byte order mark: read as such (RFC 9309 2.2.2, MAY)."""
    LOOKS_LIKE_HTML = "looks-like-html"
    """The file starts like a web page; whatever lines parse are read all the same."""
    MISSPELLED_FIELD = "misspelled-field"
    """A field name that is read as the one it misspells."""
    MISSING_COLON = "missing-colon"
    """Two words without a colon, the first of them a field name: read as if it were there."""
    NO_SEPARATOR = "no-separator"
    """Neither a colon nor two such words: the line says nothing."""
    CONTROL_CHARACTER = "control-character"
    """A control character, which no path or token may hold: the line binds nobody (RFC 9309 3)."""
    BEFORE_ANY_GROUP = "before-any-group"
    """A rule or directive before the first user-agent line: nobody's (RFC 9309 2.2.2)."""
    NO_LEADING_SLASH = "no-leading-slash"
    """A path pattern that starts with neither ``/`` nor ``*``: it matches nothing (RFC 9309 2.2)."""
    EMPTY_ALLOW = "empty-allow"
    """An Allow without a path: it says nothing."""
    NAMES_NOBODY = "names-nobody"
    """A user-agent line without a product token: its rules bind nobody who is not named beside it."""
    INVALID_VALUE = "invalid-value"
    """A directive with a value that cannot be meant: ignored."""


NO_QUIRKS: Final[tuple[Quirk, ...]] = ()


class Line:
    """One line that says something.

    Attributes:
        number: from 1, as an editor counts.
        name: the field name as written, without blanks.
        field: the field that the name stands for, in lower case; empty where the line has none.
        value: the text after the colon, without comment and outer blanks.
        quirks: what was unusual about it.
    """

    __slots__ = ("field", "name", "number", "quirks", "value")

    def __init__(self, number: int, name: str, field: str, value: str, quirks: tuple[Quirk, ...] = NO_QUIRKS) -> None:
        self.number = number
        self.name = name
        self.field = field
        self.value = value
        self.quirks = quirks

    def __repr__(self) -> str:
        quirks = "".join(f" {quirk}" for quirk in self.quirks)
        return f"<Line {self.number}: {self.name!r}: {self.value!r}{quirks}>"


class Lexed(NamedTuple):
    """The lines of a file, and the quirks of the file as a whole."""

    lines: list[Line]
    quirks: tuple[Quirk, ...]


def lex(body: bytes | str, syntax: Syntax) -> Lexed:
    """Split a robots.txt into its lines. Raises on no content whatsoever; time and memory linear in its length."""
    text, quirks = _decode(body)
    if _HTML.match(text[:256]) is not None:
        quirks += (Quirk.LOOKS_LIKE_HTML,)
    # Not str.splitlines: that also splits at VT, FF, FS to US, NEL, U+2028 and U+2029, which are data here.
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    any_control = _CONTROL.search(text) is not None  # once for the file: nearly none has any
    # A file spells its few field names again and again: each spelling is stripped and looked up once.
    names: dict[str, tuple[str, str, tuple[Quirk, ...]]] = {}
    lines: list[Line] = []
    add = lines.append
    for number, row in enumerate(rows, 1):
        if "#" in row:
            row = row[: row.index("#")]  # noqa: PLW2901 - the comment is gone for good
        name, colon, value = row.partition(":")
        if colon:
            known = names.get(name)
            if known is None:
                known = names[name] = _field(name.strip(_BLANKS), syntax)
            line = Line(number, known[0], known[1], value.strip(_BLANKS), known[2])
        elif row.strip(_BLANKS):
            line = _without_colon(number, row.strip(_BLANKS), syntax)
        else:
            continue
        if any_control and _CONTROL.search(row) is not None:
            line.quirks += (Quirk.CONTROL_CHARACTER,)
        add(line)
    return Lexed(lines, quirks)


def _field(name: str, syntax: Syntax) -> tuple[str, str, tuple[Quirk, ...]]:
    lower = name.lower()
    if lower not in syntax.fields and lower in syntax.misspelled_fields:
        return name, syntax.misspelled_fields[lower], (Quirk.MISSPELLED_FIELD,)
    return name, lower, NO_QUIRKS


def _without_colon(number: int, row: str, syntax: Syntax) -> Line:
    if syntax.missing_colon:
        name, _, value = row.replace("\t", " ").partition(" ")
        name, field, quirks = _field(name, syntax)
        value = value.strip(" ")
        if field in syntax.fields and value and " " not in value:
            # As Google's parser does, and for two words only: "disallow / now" is prose.
            return Line(number, name, field, value, (*quirks, Quirk.MISSING_COLON))
    return Line(number, row, "", "", (Quirk.NO_SEPARATOR,))


def _octets(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # it may have been read from a file as Python reads file names
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _decode(body: bytes | str) -> tuple[str, tuple[Quirk, ...]]:
    if isinstance(body, str):
        body = _octets(body)
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body.decode(encoding, "replace"), (Quirk.TRANSCODED,)
    quirks = NO_QUIRKS
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]):
        # A part of a mark is skipped too, as Google's parser does.
        if body.startswith(mark):
            body = body[len(mark) :]
            quirks = (Quirk.BYTE_ORDER_MARK,)
            break
    return body.decode("utf-8", "surrogateescape"), quirks
