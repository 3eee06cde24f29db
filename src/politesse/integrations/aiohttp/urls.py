"""Which URL is judged of what aiohttp sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs

from politesse.errors import InvalidURL
from politesse.integrations._request import same_site
from politesse.robots.pattern import has_dot_segments

if TYPE_CHECKING:
    from aiohttp import ClientRequest
    from multidict import CIMultiDict
    from yarl import URL


class ClientInvalidURL(InvalidURL, aiohttp.ClientError):
    """A hop leads where no robots.txt speaks; caught by those who catch what aiohttp raises, too."""


def judged_url(url: URL) -> str:
    """Return what is judged of a URL that is to be sent: a WebSocket is opened by a request of HTTP."""
    scheme = url.scheme
    if scheme.startswith("ws"):
        scheme = f"http{scheme[2:]}"
    # yarl keeps path and query as a text once they were asked for, and aiohttp is going to: less than str(url) costs.
    return f"{scheme}://{url.raw_authority}{url.raw_path_qs}"


def sent_url(request: ClientRequest) -> str:
    """Return the URL that is sent; raises ClientInvalidURL where what is judged would be another."""
    url = judged_url(request.url)
    # Such a path comes from URL(..., encoded=True): others are resolved. Looked for closely where there can be one.
    if ("/." in url or "/%2" in url) and has_dot_segments(request.url.raw_path):
        raise ClientInvalidURL(url, "would be sent with dot segments; resolve them first")
    other = _other_host(request.headers, request.url.raw_authority, url)
    if other is not None:
        problem = f"would be sent with the Host header {other!r:.100}: another site, whose rules count"
        raise ClientInvalidURL(url, problem)
    return url


def addressed_url(url: URL, headers: CIMultiDict[str]) -> str:
    """Return what would have to be judged of what is sent: the URL under the site that the Host header names."""
    judged = judged_url(url)
    other = _other_host(headers, url.raw_authority, judged)
    return judged if other is None else f"{judged.partition('://')[0]}://{other}{url.raw_path_qs}"


def _other_host(headers: CIMultiDict[str], authority: str, url: str) -> str | None:
    """Return the Host header that names another site than ``url``, or None.

    RFC 9112 3.2: a request with more than one Host header is invalid; servers that take it choose either.
    """
    for host in headers.getall(hdrs.HOST, ()):
        if host != authority and not same_site(host, url):
            return host
    return None
