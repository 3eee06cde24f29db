"""Splits the octets of a robots.txt into lines. Skips blank lines and comments; does not judge the other lines.

A line ends only at CR, LF or CRLF. Blanks are SP and HTAB (RFC 9309 2.2); a dialect may read other characters as
blanks, and a line with such a blank gets a quirk. An octet that is not UTF-8 is decoded to a lone surrogate, never to
U+FFFD. So encoding to UTF-8 with ``surrogateescape`` returns the exact octets.
"""

from __future__ import annotations

import codecs
import re
from sys import intern
from typing import TYPE_CHECKING, Final

from politesse._base.text import BLANKS
from politesse.robots.line import NO_QUIRKS, Line, Quirk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.robots.dialect import FieldName, Syntax

_NO_SEPARATOR: Final = (Quirk.NO_SEPARATOR,)
CONTROL_IN_ROW: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all control characters but HTAB, LF and CR
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|\?xml)\b", re.IGNORECASE)
_ANY_ASCII = re.compile(r"[\x01-\x7f]")
_MARKS: Final = (
    # The longer marks are first, because the mark of UTF-16 is a prefix of the mark of UTF-32.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    # A part of a mark is also skipped, as in google/robotstxt.
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF8[:2], ""),
    (codecs.BOM_UTF8[:1], ""),
)
_FIRST_OCTETS: Final = frozenset(mark[:1] for mark, _ in _MARKS)


def quirks_of(text: str) -> tuple[Quirk, ...]:
    """Return LOOKS_LIKE_HTML if a file starts like a web page, otherwise no quirk."""
    return NO_QUIRKS if _HTML.match(text[:256]) is None else (Quirk.LOOKS_LIKE_HTML,)


def read_lines(text: str, syntax: Syntax) -> Iterator[Line | None]:
    """Yield the lines of a decoded file with the quirks of their text, and None for each blank row.

    A blank row ends a record in some dialects. Nothing is yielded for a row that only has a comment.
    """
    names: dict[str, FieldName] = {}  # most lines of a file have one of a few names
    odd = "".join(blank for blank in syntax.odd_blanks if blank in text)
    spaces, has_control = str.maketrans(odd, " " * len(odd)), CONTROL_IN_ROW.search(text) is not None
    most = syntax.max_line_octets
    for number, row in enumerate(split_rows(text), 1):
        read = row if most is None else _cut(row, most)
        content, hash_sign, _ = read.partition("#")  # RFC 9309 2.2: "#" starts a comment, anywhere in a line
        name, colon, value = content.partition(":")
        marks: tuple[Quirk, ...] = NO_QUIRKS if read is row else (Quirk.LINE_CUT,)
        if has_control and CONTROL_IN_ROW.search(content) is not None:
            marks = (Quirk.CONTROL_CHARACTER, *marks)
        if odd and not content.isascii():
            plain, stripped = name.translate(spaces), value.strip(BLANKS + odd)
            if plain != name or stripped != value.strip(BLANKS):
                name, value, marks = plain, stripped, (Quirk.ODD_BLANK, *marks)
        if colon:
            found = names.get(name) or names.setdefault(name, syntax.name_of(name.strip(BLANKS)))
            value = value.strip(BLANKS)
        elif words := name.strip(BLANKS):
            found, value = _without_colon(words, syntax)
        else:
            if not hash_sign:
                yield None
            continue
        spelling, field, quirks = found
        yield Line(number, spelling, field, value, quirks + marks if marks else quirks)


def _cut(row: str, most: int) -> str:
    """Return the first ``most`` octets of a row; the row itself if it has no more."""
    octets = octets_of(row)
    return row if len(octets) <= most else octets[:most].decode("utf-8", "surrogateescape")


def _without_colon(words: str, syntax: Syntax) -> tuple[FieldName, str]:
    """Return the name and the value of a row without a colon."""
    spelling, _, value = words.replace("\t", " ").partition(" ")
    value = value.strip(" ")
    # As in google/robotstxt, the row must have exactly two words: "disallow / now" is prose.
    if syntax.missing_colon and value and " " not in value:
        _, field, quirks = syntax.name_of(spelling)
        if field in syntax.fields:
            return (intern(spelling), field, (*quirks, Quirk.MISSING_COLON)), value
    return (words, "", _NO_SEPARATOR), ""


def split_rows(text: str) -> list[str]:
    """Split a decoded file at the ends of its lines.

    str.splitlines would also split at VT, FF, FS to US, NEL, U+2028 and U+2029, which are data here.
    """
    # RFC 9309 2.2: NL = %x0D / %x0A / %x0D.0A
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def blank_lines(rows: Sequence[str]) -> list[int]:
    """Return the numbers of the blank lines, from 1; a line with a comment is not blank."""
    return [number for number, row in enumerate(rows, 1) if not row.strip(BLANKS)]


def cut_at_line_end(body: bytes, limit: int) -> bytes:
    """Return the complete lines in the first ``limit`` octets, because a cut rule would be a different rule."""
    if body[limit : limit + 1] in {b"\n", b"\r"}:
        return body[:limit]
    return body[: max(body.rfind(b"\n", 0, limit), body.rfind(b"\r", 0, limit)) + 1]


def octets_of(text: str) -> bytes:
    """Return the octets of a file that was passed as text."""
    try:
        return text.encode("utf-8", "surrogateescape")  # the text may have been decoded with surrogateescape
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(body: bytes | str, max_octets: int | None) -> tuple[str, tuple[Quirk, ...]]:
    """Return the text and the quirks of a file. A file of more than ``max_octets`` is cut after a complete line."""
    octets, quirks = utf_8_of(body, max_octets)
    return octets.decode("utf-8", "surrogateescape"), quirks


def utf_8_of(body: bytes | bytearray | str, max_octets: int | None) -> tuple[bytes, tuple[Quirk, ...]]:
    """Return the octets of a file in UTF-8, without a byte order mark, and the quirks of the file; see ``decode``."""
    if not isinstance(body, bytes):
        body = octets_of(body) if isinstance(body, str) else bytes(body)
    quirks = NO_QUIRKS
    if max_octets is not None and len(body) > max_octets:
        body = cut_at_line_end(body, max_octets)
        quirks = (Quirk.FILE_CUT,)
    if body[:1] not in _FIRST_OCTETS:
        return body, quirks
    marks = [(mark, encoding) for mark, encoding in _MARKS if body.startswith(mark)]
    for _, encoding in marks:
        text = body.decode(encoding, "replace") if encoding else ""
        # Fields, colons and line ends are ASCII. If the text has no ASCII, the mark states the wrong encoding.
        if _ANY_ASCII.search(text) is not None:
            return text.encode(), (*quirks, Quirk.TRANSCODED)
    return (body[len(marks[0][0]) :], (*quirks, Quirk.BYTE_ORDER_MARK)) if marks else (body, quirks)
