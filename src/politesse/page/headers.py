"""The header lines of a response that several statements share. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
