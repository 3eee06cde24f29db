"""The lines of a robots.txt as the lexer emits them, without the quirks that groups and rules add."""

from politesse.robots import Line, Quirk
from politesse.robots.dialect import Syntax
from politesse.robots.lexer import decode, quirks_of, read_lines


def lex(body: bytes | str, syntax: Syntax) -> tuple[list[Line], tuple[Quirk, ...]]:
    """Return the lines of a file, and the quirks of the file as a whole."""
    text, quirks = decode(body, syntax.max_octets)
    return [line for line in read_lines(text, syntax) if line is not None], quirks + quirks_of(text)
