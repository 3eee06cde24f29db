"""Splits the octets of a robots.txt into lines. Skips blank lines and comments; does not judge the other lines.

A line ends only at CR, LF or CRLF. Blanks are SP and HTAB (RFC 9309 2.2); a dialect may read other characters as
blanks, and a line with such a blank gets a quirk. An octet that is not UTF-8 is decoded to a lone surrogate, never to
U+FFFD. So encoding to UTF-8 with ``surrogateescape`` returns the exact octets.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.text import BLANKS
from politesse.robots.line import NO_QUIRKS, FieldName, FieldRow, Line, Quirk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from politesse.robots.traits import Syntax

_MAX_OCTETS_PER_CHARACTER: Final = 4
_NO_SEPARATOR: Final = (Quirk.NO_SEPARATOR,)
CONTROL_IN_ROW: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all control characters but HTAB, LF and CR
_CONTROL_OCTETS: Final = bytes(octet for octet in range(128) if CONTROL_IN_ROW.match(chr(octet)))
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|\?xml)\b", re.IGNORECASE)
_ANY_ASCII = re.compile(r"[\x01-\x7f]")
_BOMS: Final = (
    # The longer marks are first, because the mark of UTF-16 is a prefix of the mark of UTF-32.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FIRST_OCTETS: Final = frozenset({mark[:1] for mark, _ in _BOMS} | {codecs.BOM_UTF8[:1]})
_SKIPPED: Final = (codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1], *(mark for mark, _ in _BOMS))


class RowTexts(NamedTuple):
    """The rows of a decoded file, up to the limits of the dialect.

    Attributes:
        texts: the rows in the order of the file, with their comments.
        cut: numbers of the rows that were cut, because they are longer than the dialect permits.
        control: numbers of rows with a control character before the comment.
        odd: numbers of rows that had ``Syntax.odd_blanks`` around the field or the value; ``texts`` no longer has
            these.
    """

    texts: list[str]
    cut: frozenset[int]
    control: frozenset[int]
    odd: frozenset[int] = frozenset()


def quirks_of(text: str) -> tuple[Quirk, ...]:
    """Return LOOKS_LIKE_HTML if a file starts like a web page, otherwise no quirk."""
    return NO_QUIRKS if _HTML.match(text[:256]) is None else (Quirk.LOOKS_LIKE_HTML,)


def rows_of(text: str, syntax: Syntax) -> RowTexts:
    """Split a decoded file into its rows, and cut rows that are too long for the dialect."""
    texts = split_rows(text)
    cut = _cut_lines(texts, syntax.max_line_octets)
    odd = drop_odd_blanks(text, texts, syntax)
    octets = octets_of(text)
    if len(octets.translate(None, _CONTROL_OCTETS)) == len(octets):  # a third of the time of a regex search
        return RowTexts(texts, cut, frozenset(), odd)
    control = (number for number, row in enumerate(texts, 1) if CONTROL_IN_ROW.search(row.partition("#")[0]))
    return RowTexts(texts, cut, frozenset(control), odd)


def fields_of(texts: Iterable[str], first: int, syntax: Syntax) -> Iterator[FieldRow]:
    """Yield number, name and value of each row that is not blank and not only a comment.

    The lines of a RobotsTxt and the rows of an Outline both come from this function.

    Args:
        texts: the rows.
        first: the number of the first row.
        syntax: how rows are read.
    """
    # Field names repeat, so each spelling is stripped and looked up only once. Usual spellings are looked up in
    # advance.
    usual, others, bare = syntax.usual_names, dict[str, FieldName](), dict[str, FieldName]()
    for number, row in enumerate(texts, first):
        if "#" in row:
            row = row[: row.index("#")]  # noqa: PLW2901 - RFC 9309 2.2: "#" starts a comment, anywhere in a line
        spelling, colon, value = row.partition(":")
        if colon:
            name = usual.get(spelling) or others.get(spelling)
            if name is None:
                name = others[spelling] = syntax.name_of(spelling.strip(BLANKS))
            yield number, name, value.strip(BLANKS)
        elif spelling and (text := spelling.strip(BLANKS)):
            named = _without_colon(number, text, syntax, bare)
            yield (number, FieldName(text, "", _NO_SEPARATOR), "") if named is None else named


def lines_of(rows: RowTexts, syntax: Syntax) -> list[Line]:
    """Return a Line for each row that is neither blank nor only a comment."""
    lines = [
        Line(number, name.spelling, name.field, value, name.quirks)
        for number, name, value in fields_of(rows.texts, 1, syntax)
    ]
    marked = (rows.odd, Quirk.ODD_BLANK), (rows.control, Quirk.CONTROL_CHARACTER), (rows.cut, Quirk.LINE_CUT)
    for numbers, quirk in marked:
        for line in lines if numbers else ():
            if line.number in numbers:
                line.quirks += (quirk,)
    return lines


def split_rows(text: str) -> list[str]:
    """Split a decoded file at the ends of its lines.

    str.splitlines would also split at VT, FF, FS to US, NEL, U+2028 and U+2029, which are data here.
    """
    # RFC 9309 2.2: NL = %x0D / %x0A / %x0D.0A
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _cut_lines(rows: list[str], most: int | None) -> frozenset[int]:
    """Cut rows to ``most`` octets in place; return the numbers of the rows that were longer."""
    if most is None:
        return frozenset()
    long = [number for number, row in enumerate(rows, 1) if len(row) * _MAX_OCTETS_PER_CHARACTER > most]
    cut = frozenset(number for number in long if len(octets_of(rows[number - 1])) > most)
    for number in cut:
        rows[number - 1] = octets_of(rows[number - 1])[:most].decode("utf-8", "surrogateescape")
    return cut


def drop_odd_blanks(text: str, rows: list[str], syntax: Syntax) -> frozenset[int]:
    """Replace odd blanks around fields and values by spaces, in place; return the numbers of the changed rows.

    Args:
        text: the decoded file.
        rows: its rows.
        syntax: defines the odd blanks.
    """
    changed: list[int] = []
    odd = [blank for blank in syntax.odd_blanks if blank in text]
    blanks, spaces = BLANKS + "".join(odd), str.maketrans(dict.fromkeys(odd, " "))
    for number, row in enumerate(rows, 1) if odd else ():
        if row.isascii() or not any(blank in row for blank in odd):
            continue
        content, hash_sign, comment = row.partition("#")
        name, colon, value = content.partition(":")
        plain, stripped = name.translate(spaces), value.strip(blanks)
        if plain != name or stripped != value.strip(BLANKS):
            rows[number - 1] = plain + colon + stripped + hash_sign + comment
            changed.append(number)
    return frozenset(changed)


def blank_lines(rows: Sequence[str]) -> list[int]:
    """Return the numbers of the blank lines, from 1; a line with a comment is not blank."""
    return [number for number, row in enumerate(rows, 1) if not row.strip(BLANKS)]


def records(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each record, as indexes of rows. Blank lines separate the records."""
    start = 0
    for blank in blank_lines(texts):
        if blank - 1 > start:
            yield start, blank - 1
        start = blank
    if len(texts) > start:
        yield start, len(texts)


def _without_colon(number: int, text: str, syntax: Syntax, known: dict[str, FieldName]) -> FieldRow | None:
    """Return the field of a row without a colon, or None."""
    if not syntax.missing_colon:
        return None
    spelling, _, value = text.replace("\t", " ").partition(" ")
    value = value.strip(" ")
    # As in google/robotstxt, the row must have exactly two words: "disallow / now" is prose.
    if not value or " " in value:
        return None
    name = known.get(spelling)
    if name is None:
        name = syntax.name_of(spelling)
        if name.field not in syntax.fields:
            return None
        name = known[spelling] = FieldName(spelling, name.field, (*name.quirks, Quirk.MISSING_COLON))
    return number, name, value


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
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            text = body.decode(encoding, "replace")
            # Fields, colons and line ends are ASCII. If the text has no ASCII, the mark states the wrong encoding.
            if _ANY_ASCII.search(text) is not None:
                return text.encode(), (*quirks, Quirk.TRANSCODED)
    for mark in _SKIPPED:
        # A part of a mark is also skipped, as in google/robotstxt.
        if body.startswith(mark):
            body = body[len(mark) :]
            quirks += (Quirk.BYTE_ORDER_MARK,)
            break
    return body, quirks
