"""What all clients need to know of a request before it is judged."""

from __future__ import annotations

from typing import Final

from politesse.errors import InvalidURL
from politesse.origin import Origin

_NO_AUTHORITY: Final = frozenset("/?#@")  # RFC 9110 7.2: Host is host and port alone


def same_site(host: str, url: str) -> bool:
    """Whether a Host header names the site of ``url``: the rules of another would count (RFC 9309 2.3)."""
    if not _NO_AUTHORITY.isdisjoint(host):
        return False
    scheme, _, _ = url.partition(":")
    try:
        return Origin.of(f"{scheme}://{host}") == Origin.of(url)
    except InvalidURL as error:
        return error.url == url  # the URL is refused for what is wrong with it
