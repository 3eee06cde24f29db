"""The lines of a robots.txt as the lexer emits them, without the quirks that groups and rules add."""

from politesse.robots import Line, Quirk
from politesse.robots.lexer import decode, lines_of, quirks_of, rows_of
from politesse.robots.traits import Syntax


def lex(body: bytes | str, syntax: Syntax) -> tuple[list[Line], tuple[Quirk, ...]]:
    """Return the lines of a file, and the quirks of the file as a whole."""
    text, quirks = decode(body, syntax.max_octets)
    return lines_of(rows_of(text, syntax), syntax), quirks + quirks_of(text)
