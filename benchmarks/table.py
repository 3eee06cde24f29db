"""Plain-text tables: the first column to the left, the others to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a header cell may have several lines."""
    heads = [cell.split("\n") for cell in header]
    height = max(map(len, heads))
    head_rows = [[([""] * (height - len(cell)) + cell)[at] for cell in heads] for at in range(height)]
    widths = [max(map(len, column)) for column in zip(*head_rows, *rows, strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([title, *(_row(row, widths) for row in head_rows), rule, *(_row(row, widths) for row in rows)])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *others]).rstrip()
