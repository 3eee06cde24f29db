"""The header fields of a response, in the types of various HTTP clients. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

HeaderText = str | bytes
HeaderValue = HeaderText | Iterable[HeaderText]


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

# RFC 9110 5.3: lines of Set-Cookie cannot be joined. A Location is one URL, and a URL may contain commas.
_UNJOINED: Final = frozenset({"location", "set-cookie"})


def joined_fields(headers: Headers) -> dict[str, str]:
    """Return the value of each field by its lower-case name. The lines of a field are joined with commas, in order.

    RFC 9110 5.3 permits this. Of several lines of Location or Set-Cookie, the first counts.
    """
    pairs = list(_pairs(headers))
    fields: dict[str, str] = {}
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str) or (key := name.lower()) in fields:
            break
        fields[key] = value
    else:
        return fields  # most answers end here
    lines: dict[str, list[str]] = {}
    for name, value in header_pairs(pairs):
        lines.setdefault(name, []).append(value)
    return {name: values[0] if name in _UNJOINED else ", ".join(values) for name, values in lines.items()}


def header_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return (lower-case name, value) pairs as a list, one per line, so callers can iterate twice."""
    return [
        (_text(name).strip().lower(), _text(line))
        for name, value in _pairs(headers)
        for line in ((value,) if isinstance(value, str | bytes) or not isinstance(value, Iterable) else value)
    ]


def _pairs(headers: Headers) -> Iterable[tuple[HeaderText, HeaderValue]]:
    # ``items`` of httpx.Headers joins lines with the same name, ``multi_items`` does not.
    items = getattr(headers, "multi_items", None) or getattr(headers, "items", None)
    return headers if items is None else items()  # type: ignore[return-value]  # without ``items`` these are pairs


def _text(value: HeaderText) -> str:
    # A number in place of text must not hide a refusal.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
