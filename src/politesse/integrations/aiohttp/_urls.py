"""Finds the URL that is judged for a request of aiohttp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import ClientRequest, hdrs
from yarl import URL

from politesse.errors import InvalidURL
from politesse.integrations._request import check_sent, other_site
from politesse.origin import StrOrURL, split, url_text

if TYPE_CHECKING:
    from multidict import CIMultiDict


class ClientInvalidURL(InvalidURL, aiohttp.InvalidURL):
    """A request or a redirect has a URL that no robots.txt covers; also an ``aiohttp.InvalidURL``.

    Attributes:
        url: the URL that was not requested.
        problem: the fault of the URL, as a phrase.

    Example:
        >>> print(ClientInvalidURL("ftp://example.com/", "has the scheme 'ftp'"))
        'ftp://example.com/' has the scheme 'ftp'
    """

    url: str = ""  # in aiohttp this is a property, which cannot be set


def explained(error: aiohttp.InvalidUrlClientError, url: StrOrURL) -> aiohttp.InvalidURL:
    """Return an error that explains why aiohttp refuses a URL; return ``error`` itself if politesse accepts the URL."""
    text = url_text(url)
    try:
        split(f"http{text[2:]}" if text.startswith("ws") else text)
    except InvalidURL as invalid:
        return ClientInvalidURL(text, invalid.problem)
    return error


def judged_url(url: URL) -> str:
    """Return the URL to judge for ``url``: it has no userinfo, and the scheme http(s) for a WebSocket."""
    scheme = url.scheme
    if scheme[:2] == "ws":
        scheme = f"http{scheme[2:]}"
    return f"{scheme}://{url.raw_authority.rpartition('@')[2]}{url.raw_path_qs}"


def first_url(session: aiohttp.ClientSession, url: StrOrURL, params: Any) -> str | None:  # noqa: ANN401 - aiohttp's
    """Return the URL of the first hop to judge, as aiohttp will build it; None if aiohttp will refuse the request.

    The turn for this URL is taken early, outside of the timeout. If aiohttp builds another URL, RequestTurns takes a
    turn for that URL.

    Raises:
        TypeError: ``url`` is neither a str nor a yarl.URL.
    """
    try:
        built = URL(url)
        if not built.absolute and session._base_url is not None:  # noqa: SLF001 - there is no public accessor
            built = session._base_url.join(built)  # noqa: SLF001
        if params:
            built = built.extend_query(params)
        if built.scheme not in {"http", "https", "ws", "wss"} or not built.raw_host:
            return None
        return judged_url(built)
    except ValueError:
        return None
    except TypeError:  # aiohttp will refuse the URL or the ``params``
        url_text(url)
        return None


def spelt_url(url: str) -> str:
    """Return the URL that is judged when aiohttp requests ``url``, which is the URL of a turn."""
    return judged_url(URL(url))


def sent_url(request: ClientRequest) -> str:
    """Return the URL that is sent; raises InvalidURL if the server would read another URL from the request."""
    url = request.url
    judged, path, hosts = judged_url(url), url.raw_path, request.headers.getall(hdrs.HOST, ())
    # Only URL(..., encoded=True) can have blanks or dot segments here: yarl resolves those of all other URLs.
    if hosts != [url.raw_authority] or "/." in path or "%2" in path or " " in judged:
        check_sent(judged, path, hosts, url.raw_authority)
    return judged


def addressed_url(url: URL, headers: CIMultiDict[str]) -> str:
    """Return the URL that must be judged: ``url``, with the site of the Host header if there is such a header."""
    judged = judged_url(url)
    other = other_site(judged, headers.getall(hdrs.HOST, ()), url.raw_authority)
    return judged if other is None else f"{judged.partition('://')[0]}://{other}{url.raw_path_qs}"
