"""The links of a page that may be followed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urljoin, urlsplit

from politesse._http.fields import Headers, header_pairs
from politesse.origin import StrOrURL, escaped, split, url_text
from politesse.page.directives import PageDirectives, content_type
from politesse.page.html import MAX_BYTES, read_html

MAX_URL: Final = 8_192
"""The longest URL that counts as a link, in characters. RFC 9110 4.1 recommends support for 8000 octets."""

_MAX_JOINED: Final = 8 * 1024 * 1024  # limits the joined characters; joining so many takes up to a second
_FOREIGN_WEIGHT: Final = 64  # a character of a non-ASCII host counts as this many characters

_NOT_FOLLOWED: Final = frozenset({"nofollow", "sponsored", "ugc"})
_NO_BASE: Final = frozenset({"data", "javascript"})  # WHATWG HTML 2.4.2
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # WHATWG URL 4.4: C0 controls and the blank
_DROPPED: Final = dict.fromkeys(map(ord, "\t\n\r"))


def followable_links(
    body: bytes | str,
    base_url: StrOrURL,
    *,
    headers: Headers = (),
    token: str | Sequence[str] = (),
    in_body: bool = False,
    max_bytes: int = MAX_BYTES,
    max_links: int = 10_000,
) -> list[str]:
    """Return the absolute http(s) URLs of the links of a page that may be followed.

    The list has the links of A and AREA, in order, each once, without fragments. Links with a ``rel`` of ``nofollow``,
    ``ugc`` or ``sponsored`` are omitted. The list is empty if the page or its headers say NOFOLLOW to the crawler.
    robots.txt is not checked. Invalid addresses are omitted. The list ends after eight million characters of addresses;
    the length of the base URL is added for each address.

    >>> followable_links(b'<a href="a">a</a> <a href="/b" rel="ugc">b</a>', "https://example.com/")
    ['https://example.com/a']

    Args:
        body: the octets of the page, without content coding, or its text.
        base_url: the URL of the page, after redirects; a ``<base href>`` has precedence.
        headers: the headers of the response; see ``politesse.page.Headers``.
        token: see ``PageDirectives.from_response``.
        in_body: see ``PageDirectives.from_response``.
        max_bytes: how many octets, or characters of a text, are read.
        max_links: the largest number of links to return.

    Raises:
        InvalidURL: ``base_url`` is not an absolute http(s) URL.
        TypeError: ``base_url`` is neither a str nor a yarl.URL.
        ImportError: the body is HTML, and the extra ``html`` is not installed.
    """
    base_url = url_text(base_url, "base_url")
    split(base_url)
    pairs = header_pairs(headers)
    html = read_html(body, content_type(pairs), in_body=in_body, links=True, max_bytes=max_bytes)
    if html is None or not PageDirectives.from_html(pairs, html, token).may_follow:
        return []
    base = document_base(html.base_href, base_url)
    hrefs = dict.fromkeys(
        link.href.partition("#")[0] for link in html.links if _NOT_FOLLOWED.isdisjoint(link.rel)
    )  # duplicates are removed before the slow joining
    found: dict[str, None] = {}
    room = _MAX_JOINED
    for href in hrefs:
        room -= _cost(base, href)
        if len(found) >= max_links or room < 0:
            break
        if (url := _joined(base, href)) is not None:
            found[url] = None
    return list(found)


def document_base(base_href: str | None, base_url: str) -> str:
    """Return the document base URL (WHATWG HTML 4.2.3); empty if it is too long."""
    if base_href is None:
        return base_url
    href = trimmed(base_href)
    try:
        base = urljoin(base_url, href)
        scheme = urlsplit(base).scheme
    except ValueError:
        return base_url
    if scheme in _NO_BASE:
        return base_url
    return base if len(base) <= MAX_URL else ""


def trimmed(href: str) -> str:
    """Return an address without the characters that a URL parser removes (WHATWG URL 4.4)."""
    return href.strip(_TRIMMED).translate(_DROPPED)


def _cost(base: str, href: str) -> int:
    """Return roughly how many characters are processed to join an address to its base."""
    host = href.partition("//")[2].partition("/")[0]
    return len(base) + len(href) + (0 if host.isascii() else _FOREIGN_WEIGHT * len(host))


def _joined(base: str, href: str) -> str | None:
    if len(href) > MAX_URL:
        return None
    try:
        origin, target = split(urljoin(base, trimmed(href)))
    except ValueError:  # includes InvalidURL and the errors of urljoin
        return None
    url = f"{origin}{escaped(target)}"
    return url if len(url) <= MAX_URL else None
