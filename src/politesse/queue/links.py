"""The URLs of a crawl: what a link refers to, when two URLs count as one, and which have been seen."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Protocol

from yarl import URL

from politesse._http.redirects import resolved
from politesse._text import has_utf_8

_BLANKS: Final = " \t\n\r\f"  # ASCII whitespace of HTML, which authors leave around links
DIGEST_OCTETS: Final = 16  # two of a billion URLs share a digest with a probability of 10**-21


class Seen(Protocol):
    """What a crawl needs of ``seen``: a set has it, a Bloom filter or a table of a database may."""

    def __contains__(self, url: object, /) -> bool:
        """Return whether a URL, in its normal form, was added."""

    def add(self, url: str, /) -> object:
        """Add a URL in its normal form."""


class SeenUrls:
    """The default of ``seen``: the 16-octet digest of each URL.

    A set of digests takes about 80 octets for each URL, whatever its length; the texts would take twice that and more.

    >>> seen = SeenUrls()
    >>> seen.add("https://example.com/")
    >>> "https://example.com/" in seen, "https://example.com/a" in seen
    (True, False)
    """

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        self._digests: set[int] = set()  # an int of 16 octets is 20 octets smaller than bytes

    def __contains__(self, url: object, /) -> bool:
        return isinstance(url, str) and digest_of(url) in self._digests

    def add(self, url: str, /) -> None:
        """Add a URL in its normal form."""
        self._digests.add(digest_of(url))

    def __len__(self) -> int:
        return len(self._digests)


def resolved_link(base: str, link: str) -> str | None:
    """Return the http(s) URL that a link on the page ``base`` refers to, without a fragment; None if there is none."""
    if not has_utf_8(link):
        return None
    return resolved_location(base, link.strip(_BLANKS) or "#")  # RFC 3986 4.4: an empty reference is the page itself


def resolved_location(base: str, location: str) -> str | None:
    """Return the http(s) URL that a Location refers to; None if there is none."""
    try:
        return str(resolved(base, location)[1])
    except ValueError:  # also InvalidURL, and text without a UTF-8 form
        return None


def normal_form(url: str) -> str:
    """Return the form in which URLs are compared: RFC 3986 6.2.2 and 6.2.3 as yarl applies them.

    >>> normal_form("HTTP://Example.COM:80/%7euser/./a/../b?z=1&a=%31#part")
    'http://example.com/~user/b?z=1&a=1'
    """
    try:
        text = str(URL(url).with_fragment(None))
    except ValueError:  # a host that the gate accepts and yarl does not
        text = url.partition("#")[0]
    before, question, query = text.partition("?")
    if "/" not in before.partition("://")[2]:
        before += "/"  # RFC 3986 6.2.3: an empty path is "/"
    return before + question + query


def digest_of(url: str) -> int:
    """Return the digest of a URL in its normal form: a number of 16 octets."""
    return int.from_bytes(blake2b(url.encode(errors="surrogatepass"), digest_size=DIGEST_OCTETS).digest())
