"""The header lines of a response, in whichever form a client has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

HeaderText = str | bytes
HeaderValue = HeaderText | Iterable[HeaderText]


@runtime_checkable
class _Items(Protocol):
    """What tells its lines as pairs, and need not be a mapping."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = Mapping[str, HeaderValue] | Mapping[bytes, HeaderValue] | _Items | Iterable[tuple[HeaderText, HeaderValue]]
"""A mapping from names to values, or pairs of them; a value may be a list of several lines.

So aiohttp's and other multidicts, Scrapy's ``Headers``, ``httpx.Headers``, an ``email.message.Message`` and plain
dictionaries will do. Where a client has joined repeated lines by commas, as requests and urllib3 do, a scope that ends
with its line cannot be told from one that goes on: hand over the lines where there is a choice.
"""

MAX_OCTETS: Final = 65_536
"""So much of all lines of one name is read."""


@runtime_checkable
class _MultiItems(Protocol):
    def multi_items(self) -> Iterable[tuple[str, str]]: ...


def header_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return one pair of name and value for each line, names in lower case: to be read more often than an iterator."""
    return [
        (_text(name).strip().lower(), _text(line))
        for name, value in _pairs(headers)
        for line in ((value,) if isinstance(value, str | bytes) else value)
    ]


def header_lines(pairs: Iterable[tuple[str, str]], name: str) -> tuple[list[str], bool]:
    """Return the values of all lines with a name in lower case, and whether they were cut, as ``cut_lines`` does."""
    return cut_lines(value for key, value in pairs if key == name)


def content_type(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the value of ``Content-Type``; of several lines all, with commas between them."""
    return ", ".join(header_lines(pairs, "content-type")[0])


def cut_lines(values: Iterable[str], max_length: int = MAX_OCTETS) -> tuple[list[str], bool]:
    """Return the first lines, ``max_length`` characters together, and whether there were more.

    The last of them ends before a comma, a semicolon or a blank, so that no half of a word is read as a word.
    """
    lines: list[str] = []
    room = max_length
    for value in values:
        if len(value) > room:
            cut = value[:room]
            lines.append(cut[: max(*map(cut.rfind, ",; "), 0)])
            return lines, True
        lines.append(value)
        room -= len(value)
    return lines, False


def _pairs(headers: Headers) -> Iterable[tuple[HeaderText, HeaderValue]]:
    if isinstance(headers, _MultiItems):
        return headers.multi_items()  # the other views of httpx join the lines
    return headers.items() if isinstance(headers, Mapping | _Items) else headers


def _text(value: HeaderText) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
