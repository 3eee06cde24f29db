"""Octets in, lines out: every line that is neither blank nor a comment only, and no judgement of any.

A line ends at CR, LF or CRLF and at nothing else; blanks are SP and HTAB and nothing else (RFC 9309 2.2). The
octets are decoded to text in which each octet that is not UTF-8 is a lone surrogate, so that no octet becomes U+FFFD,
and ``encode("utf-8", "surrogateescape")`` returns the exact octets.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._text import BLANKS
from politesse.robots.line import NO_QUIRKS, Line, Quirk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.robots.traits import Syntax

_MAX_OCTETS_PER_CHARACTER: Final = 4
CONTROL_IN_ROW: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # not HTAB, LF and CR
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


class Lexed(NamedTuple):
    """A file, split into lines.

    Attributes:
        lines: in the order of the file.
        quirks: what is unusual about the file as a whole.
        blank: numbers of the blank lines, in dialects where they mean something; a line with a comment is not blank.
    """

    lines: list[Line]
    quirks: tuple[Quirk, ...]
    blank: Sequence[int] = ()


def lex(body: bytes | str, syntax: Syntax) -> Lexed:
    """Split a robots.txt into its lines. Never raises on content; time and memory are linear in its length."""
    text, quirks = decode(body, syntax.max_octets)
    if _HTML.match(text[:256]) is not None:
        quirks += (Quirk.LOOKS_LIKE_HTML,)
    rows = split_rows(text)
    cut = _cut_lines(rows, syntax.max_line_octets)
    any_control = CONTROL_IN_ROW.search(text) is not None  # once for the file: nearly none has any
    # Field names repeat: each spelling is stripped and looked up once.
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
                known = names[name] = _field(name.strip(BLANKS), syntax)
            line = Line(number, known[0], known[1], value.strip(BLANKS), known[2])
        elif row.strip(BLANKS):
            line = _without_colon(number, row.strip(BLANKS), syntax)
        else:
            continue
        if any_control and CONTROL_IN_ROW.search(row) is not None:
            line.quirks += (Quirk.CONTROL_CHARACTER,)
        add(line)
    for line in lines if cut else ():
        if line.number in cut:
            line.quirks += (Quirk.LINE_CUT,)
    return Lexed(lines, quirks, blank_lines(rows) if syntax.blank_lines else ())


def records(lexed: Lexed) -> Iterator[Sequence[Line]]:
    """Yield the lines between blank ones if blank lines mean something in the dialect; otherwise all lines at once."""
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
    """Cut the rows to ``most`` octets in place; return the numbers of those that were longer."""
    if most is None:
        return frozenset()
    long = [number for number, row in enumerate(rows, 1) if len(row) * _MAX_OCTETS_PER_CHARACTER > most]
    cut = frozenset(number for number in long if len(octets_of(rows[number - 1])) > most)
    for number in cut:
        rows[number - 1] = octets_of(rows[number - 1])[:most].decode("utf-8", "surrogateescape")
    return cut


def blank_lines(rows: list[str]) -> list[int]:
    """Return the numbers of the blank lines, from 1; a line with a comment is not blank."""
    return [number for number, row in enumerate(rows, 1) if not row.strip(BLANKS)]


def _without_colon(number: int, row: str, syntax: Syntax) -> Line:
    if syntax.missing_colon:
        name, _, value = row.replace("\t", " ").partition(" ")
        value = value.strip(" ")
        if value and " " not in value:
            # As in google/robotstxt, for two words only: "disallow / now" is prose.
            name, field, quirks = _field(name, syntax)
            if field in syntax.fields:
                return Line(number, name, field, value, (*quirks, Quirk.MISSING_COLON))
    return Line(number, row, "", "", (Quirk.NO_SEPARATOR,))


def cut_at_line_end(body: bytes, limit: int) -> bytes:
    """Return the complete lines among the first ``limit`` octets: half a rule would be a different rule."""
    if body[limit : limit + 1] in {b"\n", b"\r"}:
        return body[:limit]
    return body[: max(body.rfind(b"\n", 0, limit), body.rfind(b"\r", 0, limit)) + 1]


def octets_of(text: str) -> bytes:
    """Return the octets of a file that was passed as text."""
    try:
        return text.encode("utf-8", "surrogateescape")  # text that was decoded with surrogateescape
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(body: bytes | str, max_octets: int | None) -> tuple[str, tuple[Quirk, ...]]:
    """Return the text of a file, or of the complete lines in its first ``max_octets``, and the quirks of the file."""
    if isinstance(body, str):
        body = octets_of(body)
    quirks = NO_QUIRKS
    if max_octets is not None and len(body) > max_octets:
        body = cut_at_line_end(body, max_octets)
        quirks = (Quirk.FILE_CUT,)
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            text = body.decode(encoding, "replace")
            # Fields, colons and line ends are ASCII. Without any, the file is in another encoding than its mark says.
            if _ANY_ASCII.search(text) is not None:
                return text, (*quirks, Quirk.TRANSCODED)
    for mark in _SKIPPED:
        # A part of a mark is skipped too, as in google/robotstxt.
        if body.startswith(mark):
            body = body[len(mark) :]
            quirks += (Quirk.BYTE_ORDER_MARK,)
            break
    return body.decode("utf-8", "surrogateescape"), quirks
