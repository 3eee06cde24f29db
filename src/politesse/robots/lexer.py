"""Octets in, lines out. Emits every line that says anything; judges none of them.

A line ends at CR, LF or CRLF and at nothing else; blanks are SP and HTAB and nothing else (RFC 9309 2.2). The
octets are held as text in which each octet that is not UTF-8 is a lone surrogate, so that nothing is lost,
nothing becomes U+FFFD, and the exact octets can be had again with ``encode("utf-8", "surrogateescape")``.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.robots.dialect import Syntax

_BLANKS: Final = " \t"
_MAX_OCTETS_PER_CHARACTER: Final = 4
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|\?xml)\b", re.IGNORECASE)
_ANY_ASCII = re.compile(r"[\x01-\x7f]")
_BOMS: Final = (
    # The longer marks first: the UTF-16 one is a prefix of the UTF-32 one.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SKIPPED: Final = (codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1], *(mark for mark, _ in _BOMS))


class Quirk(StrEnum):
    """A leniency that was used, or a fault that was passed over; recorded so that lint and explain can tell it."""

    BYTE_ORDER_MARK = "byte-order-mark"
    """The file starts with a UTF-8 byte order mark, a part of one, or another mark that it belies: skipped."""
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
    OUTSIDE_GROUP = "outside-group"
    """A rule or directive behind the blank line that ended its record: nobody's, where blank lines end records."""
    NO_LEADING_SLASH = "no-leading-slash"
    """A path pattern that starts with neither ``/`` nor ``*``: it matches nothing (RFC 9309 2.2)."""
    EMPTY_ALLOW = "empty-allow"
    """An Allow without a path: it says nothing."""
    NAMES_NOBODY = "names-nobody"
    """A user-agent line without a product token: its rules bind nobody who is not named beside it."""
    INVALID_VALUE = "invalid-value"
    """A directive with a value that cannot be meant: ignored."""
    MISPLACED_VERSION = "misplaced-version"
    """A Robot-version that is not the first header behind the user-agent lines: ignored (Conner 2.0)."""
    LINE_CUT = "line-cut"
    """A line that is longer than the dialect reads: what is behind that is not read."""
    MATCHING_BOUND = "matching-bound"
    """One decision would have compared more than is bearable: of the rules that were not compared, a Disallow counts as
    matching, an Allow as not. Told of a question, not of a line."""
    FILE_CUT = "file-cut"
    """A file that is longer than the dialect reads: what is behind that is not read."""


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
    """The lines of a file, the quirks of the file as a whole, and the numbers of its blank lines.

    Blank lines are told where they mean something, and a line with a comment only is none.
    """

    lines: list[Line]
    quirks: tuple[Quirk, ...]
    blank: Sequence[int] = ()


def lex(body: bytes | str, syntax: Syntax) -> Lexed:
    """Split a robots.txt into its lines. Raises on no content whatsoever; time and memory linear in its length."""
    text, quirks = decode(body, syntax.max_octets)
    if _HTML.match(text[:256]) is not None:
        quirks += (Quirk.LOOKS_LIKE_HTML,)
    rows = split_rows(text)
    cut = _cut_lines(rows, syntax.max_line_octets)
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
    for line in lines if cut else ():
        if line.number in cut:
            line.quirks += (Quirk.LINE_CUT,)
    return Lexed(lines, quirks, blank_lines(rows) if syntax.blank_lines else ())


def records(lexed: Lexed) -> Iterator[Sequence[Line]]:
    """Yield the lines between blank ones, where those mean something; else all lines at once."""
    numbers = [line.number for line in lexed.lines] if lexed.blank else []
    start = 0
    for blank in lexed.blank:
        end = bisect_right(numbers, blank, start)
        if end > start:
            yield lexed.lines[start:end]
        start = end
    yield lexed.lines[start:] if start else lexed.lines


def split_rows(text: str) -> list[str]:
    """Split a decoded file at the ends of its lines.

    Not str.splitlines: that also splits at VT, FF, FS to US, NEL, U+2028 and U+2029, which are data here.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _field(name: str, syntax: Syntax) -> tuple[str, str, tuple[Quirk, ...]]:
    lower = name.lower()
    if lower in syntax.fields:
        return name, lower, NO_QUIRKS
    if lower in syntax.misspelled_fields:
        return name, syntax.misspelled_fields[lower], (Quirk.MISSPELLED_FIELD,)
    for start, field in syntax.field_starts.items():
        if lower.startswith(start):
            return name, field, (Quirk.MISSPELLED_FIELD,)
    return name, lower, NO_QUIRKS


def _cut_lines(rows: list[str], most: int | None) -> frozenset[int]:
    """Cut the lines to so many octets in place; return the numbers of those that were longer."""
    if most is None:
        return frozenset()
    cut = []
    for number, row in enumerate(rows, 1):
        if len(row) * _MAX_OCTETS_PER_CHARACTER <= most:
            continue
        octets = row.encode("utf-8", "surrogateescape")
        if len(octets) > most:
            cut.append(number)
            rows[number - 1] = octets[:most].decode("utf-8", "surrogateescape")
    return frozenset(cut)


def blank_lines(rows: list[str]) -> list[int]:
    """Return the numbers of the lines with nothing on them, from 1; one with a comment only is none."""
    return [number for number, row in enumerate(rows, 1) if not row.strip(_BLANKS)]


def _without_colon(number: int, row: str, syntax: Syntax) -> Line:
    if syntax.missing_colon:
        name, _, value = row.replace("\t", " ").partition(" ")
        value = value.strip(" ")
        if value and " " not in value:
            # As Google's parser does, and for two words only: "disallow / now" is prose.
            name, field, quirks = _field(name, syntax)
            if field in syntax.fields:
                return Line(number, name, field, value, (*quirks, Quirk.MISSING_COLON))
    return Line(number, row, "", "", (Quirk.NO_SEPARATOR,))


def cut_at_line_end(body: bytes, limit: int) -> bytes:
    """Return the whole lines among the first ``limit`` octets: half a rule is another rule."""
    if body[limit : limit + 1] in {b"\n", b"\r"}:
        return body[:limit]
    return body[: max(body.rfind(b"\n", 0, limit), body.rfind(b"\r", 0, limit)) + 1]


def octets_of(text: str) -> bytes:
    """Return the octets of a file that was given as text."""
    try:
        return text.encode("utf-8", "surrogateescape")  # it may have been read from a file as Python reads file names
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(body: bytes | str, max_octets: int | None) -> tuple[str, tuple[Quirk, ...]]:
    """Return the text of a file, or of the whole lines among its first ``max_octets``, and the quirks of the whole."""
    if isinstance(body, str):
        body = octets_of(body)
    quirks = NO_QUIRKS
    if max_octets is not None and len(body) > max_octets:
        body = cut_at_line_end(body, max_octets)
        quirks = (Quirk.FILE_CUT,)
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            text = body.decode(encoding, "replace")
            # Fields, colons and line ends are ASCII. Where there is none, some editor has put the mark before octets.
            if _ANY_ASCII.search(text) is not None:
                return text, (*quirks, Quirk.TRANSCODED)
    for mark in _SKIPPED:
        # A part of a mark is skipped too, as Google's parser does.
        if body.startswith(mark):
            body = body[len(mark) :]
            quirks += (Quirk.BYTE_ORDER_MARK,)
            break
    return body.decode("utf-8", "surrogateescape"), quirks
