"""The header lines of a response, in the types of various HTTP clients. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

HeaderText = str | bytes
HeaderValue = HeaderText | Iterable[HeaderText]


@runtime_checkable
class _Items(Protocol):
    """A type that is not a mapping, but whose ``items`` returns the header lines as pairs."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = Mapping[str, HeaderValue] | Mapping[bytes, HeaderValue] | _Items | Iterable[tuple[HeaderText, HeaderValue]]
"""A mapping from names to values, or pairs of name and value; a value may be a list of several lines.

Multidicts such as aiohttp's, Scrapy's ``Headers``, ``httpx.Headers``, ``email.message.Message`` and plain dictionaries
are accepted. Some clients, such as requests and urllib3, join repeated lines with commas. Directives after the name of
a crawler, as in ``X-Robots-Tag: otherbot: noindex``, extend to the end of the line, and this end is lost in joined
lines. Pass separate lines if your client has them.
"""

MAX_OCTETS: Final = 65_536
"""How many octets are read of all lines with the same name."""


def header_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return (lower-case name, value) pairs as a list, one per line, so callers can iterate twice."""
    return [
        (_text(name).strip().lower(), _text(line))
        for name, value in _pairs(headers)
        for line in ((value,) if isinstance(value, str | bytes) else value)
    ]


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


def _pairs(headers: Headers) -> Iterable[tuple[HeaderText, HeaderValue]]:
    if isinstance(headers, list):  # this check comes first, because the check for ``_Items`` takes ten times as long
        return headers
    if (multi_items := getattr(headers, "multi_items", None)) is not None:
        return list(multi_items())  # ``items`` of httpx.Headers joins lines with the same name
    return headers.items() if isinstance(headers, Mapping | _Items) else headers


def _text(value: HeaderText) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
