"""Which links of a page may be followed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from politesse.origin import escaped, split
from politesse.page.directives import PageDirectives
from politesse.page.headers import content_type, header_pairs
from politesse.page.html import MAX_BYTES, read_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.page.headers import Headers

MAX_URL: Final = 8_192
"""Characters of a URL; a longer one is no link. RFC 9110 4.1 has everybody support 8000."""

_MAX_JOINED: Final = 8 * 1024 * 1024  # characters of bases and addresses that are joined, which takes up to a second
_FOREIGN_WEIGHT: Final = 64  # a host name in foreign letters is so much dearer

_NOT_FOLLOWED: Final = frozenset({"nofollow", "sponsored", "ugc"})
_NO_BASE: Final = frozenset({"data", "javascript"})  # WHATWG HTML 2.4.2
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # WHATWG URL 4.4: C0 controls and the blank
_DROPPED: Final = dict.fromkeys(map(ord, "\t\n\r"))


def followable_links(
    body: bytes,
    base_url: str,
    *,
    headers: Headers = (),
    token: str | Sequence[str] = (),
    in_body: bool = False,
    max_bytes: int = MAX_BYTES,
    max_links: int = 10_000,
) -> list[str]:
    """Return the absolute http(s) URLs that a page links to, and whose links may be followed.

    Those of A and AREA, in their order, each once, without fragments; not those with a ``rel`` of ``nofollow``,
    ``ugc`` or ``sponsored``, and none at all where the page or its headers say NOFOLLOW to the crawler. Whether
    robots.txt allows them is another question. Addresses that cannot be requested are left out, and so are those that
    come after the first eight million characters of addresses, each counted with the base that it is joined to.

    Args:
        body: the octets of the page, without content coding.
        base_url: the URL that it came from, after redirects; a ``<base href>`` goes before it.
        headers: those of the response; see ``politesse.page.Headers``.
        token: as in ``PageDirectives.from_response``.
        in_body: as there.
        max_bytes: the octets of the body that are read.
        max_links: how many to return at most.

    Raises:
        InvalidURL: for a ``base_url`` that is no absolute http(s) URL.
        ImportError: where there is HTML to read, and the extra ``html`` is missing.
    """
    split(base_url)
    pairs = header_pairs(headers)
    html = read_html(body, content_type(pairs), in_body=in_body, links=True, max_bytes=max_bytes)
    if html is None or not PageDirectives.from_html(pairs, html, token).may_follow:
        return []
    base = document_base(html.base_href, base_url)
    hrefs = dict.fromkeys(
        link.href.partition("#")[0] for link in html.links if _NOT_FOLLOWED.isdisjoint(link.rel)
    )  # each once, before it is joined, for that takes its time
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
    """Return the URL that addresses are relative to (WHATWG HTML 4.2.3); empty for one that is too long."""
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
    """Return an address without what a parser of URLs drops (WHATWG URL 4.4)."""
    return href.strip(_TRIMMED).translate(_DROPPED)


def _cost(base: str, href: str) -> int:
    """Return about how many characters have to be looked at to join an address to its base."""
    host = href.partition("//")[2].partition("/")[0]
    return len(base) + len(href) + (0 if host.isascii() else _FOREIGN_WEIGHT * len(host))


def _joined(base: str, href: str) -> str | None:
    if len(href) > MAX_URL:
        return None
    try:
        origin, target = split(urljoin(base, trimmed(href)))
    except ValueError:  # InvalidURL is one, and so is what urljoin raises
        return None
    url = f"{origin}{escaped(target)}"
    return url if len(url) <= MAX_URL else None
