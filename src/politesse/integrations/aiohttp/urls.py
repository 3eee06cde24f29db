"""Which URL is judged for a request that aiohttp sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import aiohttp
from aiohttp import ClientRequest, hdrs
from yarl import URL

from politesse.errors import InvalidURL
from politesse.integrations._request import check_sent, other_site
from politesse.origin import split, url_text

if TYPE_CHECKING:
    from multidict import CIMultiDict

    from politesse.origin import StrOrURL


Hop: TypeAlias = tuple[URL, str]
"""A URL for aiohttp, and the same as text, as it is judged."""


class ClientInvalidURL(InvalidURL, aiohttp.InvalidURL):
    """A request or a redirect has a URL that no robots.txt covers; also an ``aiohttp.InvalidURL``.

    Attributes:
        url: the URL that was not requested.
        problem: what is wrong with it, as a phrase.

    Example:
        >>> print(ClientInvalidURL("ftp://example.com/", "has the scheme 'ftp'"))
        'ftp://example.com/' has the scheme 'ftp'
    """

    url: str = ""  # that of aiohttp is a property, which cannot be set


def explained(error: aiohttp.InvalidUrlClientError, url: StrOrURL) -> aiohttp.InvalidURL:
    """Return an error that says what is wrong with a URL that aiohttp refuses; ``error`` if politesse accepts it."""
    text = url_text(url)
    try:
        split(f"http{text[2:]}" if text.startswith("ws") else text)
    except InvalidURL as invalid:
        return ClientInvalidURL(text, invalid.problem)
    return error


def judged_url(url: URL) -> str:
    """Return the URL that is judged for ``url``: a WebSocket is opened by an HTTP request."""
    scheme = url.scheme
    if scheme[:2] == "ws":
        scheme = f"http{scheme[2:]}"
    # yarl caches raw_path_qs, and aiohttp reads it anyway: cheaper than str(url).
    return f"{scheme}://{url.raw_authority}{url.raw_path_qs}"


def spelt_url(url: str) -> str:
    """Return the URL that is judged where aiohttp is given ``url``, for which a turn was granted."""
    return judged_url(URL(url).with_user(None))


def sent_url(request: ClientRequest, prepared: Hop | None = None) -> str:
    """Return the URL that is sent; raises InvalidURL if the server would read another one from the request.

    ``prepared`` is the hop that is expected: its URL need not be written again.
    """
    url = request.url
    judged = prepared[1] if prepared is not None and prepared[0] is url else judged_url(url)
    hosts, authority, path = request.headers.getall(hdrs.HOST, ()), url.raw_authority, url.raw_path
    # Only URL(..., encoded=True) can have dot segments here: yarl resolves all others. Mostly, the call is saved.
    if hosts != [authority] or "/." in path or "/%2" in path:
        check_sent(judged, path, hosts, authority)
    return judged


def addressed_url(url: URL, headers: CIMultiDict[str]) -> str:
    """Return the URL that should have been judged: ``url``, at the site that the Host header names."""
    judged = judged_url(url)
    other = other_site(judged, headers.getall(hdrs.HOST, ()), url.raw_authority)
    return judged if other is None else f"{judged.partition('://')[0]}://{other}{url.raw_path_qs}"
