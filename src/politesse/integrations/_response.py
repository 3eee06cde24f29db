"""Decides from which part of a response the directives of a page are read, the same for every client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from politesse._http.redirects import REDIRECTS
from politesse.page import Headers, PageDirectives, may_be_html
from politesse.page.headers import content_type, header_pairs

_BODILESS: Final = frozenset({204, 304})  # RFC 9110 6.4.1: these statuses never have content
_AS_IT_IS: Final = frozenset({"", "identity"})


def may_have_page(method: str, status: int, headers: Headers) -> bool:
    """Return whether the body may be a page; if not, only the headers are read.

    RFC 9110 15.4: the content of a redirect is a short note with a link, not the page.
    """
    if method == "HEAD" or status in _BODILESS or status in REDIRECTS:
        return False
    return may_be_html(content_type(header_pairs(headers)))


def content_codings(headers: Headers) -> set[str]:
    """Return the content codings of a response in lower case, without ``identity`` (RFC 9110 8.4.1)."""
    lines = (value for name, value in header_pairs(headers) if name == "content-encoding")
    return {coding.strip().lower() for line in lines for coding in line.split(",")} - _AS_IT_IS


def headers_alone(headers: Headers, tokens: Sequence[str]) -> PageDirectives:
    """Return the directives in the headers, marked as truncated because the body cannot be read."""
    return replace(PageDirectives.from_response(headers, None, tokens), truncated=True)
