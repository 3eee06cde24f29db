"""Splits a URL into its origin, which selects the robots.txt, and its request target, which rules match."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from politesse._base.checks import InvalidURL, check_types
from politesse._base.text import CONTROL, public_url, type_name

# Nearly all URLs are a str with a plain ASCII host. Only for others, the functions below import yarl, idna, ipaddress
# and urllib.parse: with these, a parser of robots.txt would take twice the time to load.
if TYPE_CHECKING:
    from yarl import URL

    StrOrURL: TypeAlias = str | URL
    """A URL as callers give it: a str, or a ``yarl.URL``, which is converted to a str."""
else:

    def __getattr__(name: str) -> object:
        """Return StrOrURL, for programs that evaluate annotations (PEP 562)."""
        if name != "StrOrURL":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        from yarl import URL  # noqa: PLC0415 - see above

        return str | URL


_HTTP: Final = "http"
_HTTPS: Final = "https"
DEFAULT_PORTS: Final = {_HTTP: 80, _HTTPS: 443}

MAX_URL_LENGTH: Final = 20_480
"""The longest URL in characters, and the longest request target in octets.

RFC 9110 4.1: all parties should support 8,000 octets. Few servers accept more than 16 KiB, and Google's parser keeps at
most 16,663 octets of a line. The cost of a decision is bounded by octets of patterns times octets of the target, so the
target must be bounded, too.
"""

# Names in DNS and in hosts files have only these characters. RFC 3986 3.2.2 allows further characters in a reg-name.
_HOST = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
# WHATWG URL 3.5: a host whose last label is a number is an IPv4 address, or invalid.
_NUMERIC_LABEL = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)", re.DOTALL)
_UNCHANGED: Final = "%/:=&?~+!$,;'@()*[]"
_MAX_PORT = 65535
_MAX_SUGGESTED: Final = 100  # a suggested URL is cut to this many characters
_MAX_HOST = 253  # RFC 1035 2.3.4: octets of a name, without the dot of the root
_MAX_HOST_TEXT = 1024  # a longer host is refused before the mapping to A-labels, which takes more than linear time
_MAX_KNOWN: Final = 16_384  # the table keeps this many origins; an origin with its key and texts takes 0.4 kB
_MAX_KNOWN_TEXT: Final = 300  # the table keeps no origin with more characters


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port: the scope of a robots.txt (RFC 9309 2.3).

    >>> origin = Origin.of("https://user@Example.com:443/page")
    >>> origin
    Origin(scheme='https', host='example.com', port=443)
    >>> origin.robots_url
    'https://example.com/robots.txt'

    Attributes:
        scheme: ``http`` or ``https``.
        host: lower case; A-labels; IPv6 in RFC 5952 form within brackets. A trailing dot is kept, because the
            server receives it in the Host header and may respond differently.
        port: 0 to 65535; the scheme's default if the URL has none.
        pacing_host: the host name under which requests are paced: ``host`` without a trailing dot.
        text: the origin as text without a default port, as ``str`` returns it.
    """

    scheme: str
    host: str
    port: int
    pacing_host: str = field(init=False, repr=False, compare=False)
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = f"{self.scheme}://{self.host}"
        derive = object.__setattr__  # the class is frozen
        derive(self, "text", text if self.port == DEFAULT_PORTS.get(self.scheme) else f"{text}:{self.port}")
        derive(self, "pacing_host", self.host.rstrip("."))

    @classmethod
    def of(cls, url: StrOrURL) -> Origin:
        """Return the origin of ``url``.

        Raises:
            InvalidURL: ``url`` is not an absolute http(s) URL.
            TypeError: ``url`` is neither a str nor a yarl.URL.
        """
        return split(url)[0]

    @classmethod
    def given(cls, origin: Origin | StrOrURL) -> Origin:
        """Return ``origin`` itself, or the origin of a URL.

        Raises:
            InvalidURL: the URL is not an absolute http(s) URL.
            TypeError: ``origin`` is neither an Origin nor a URL.
        """
        return origin if isinstance(origin, Origin) else split(origin, "origin")[0]

    @property
    def robots_url(self) -> str:
        """The URL of the robots.txt of this origin."""
        return f"{self}/robots.txt"

    def __str__(self) -> str:
        return self.text


def paced_host(host: str) -> str:
    """Return the host name under which the requests to a bare host are paced.

    Raises:
        InvalidURL: ``host`` is not the name or address of a host.
        TypeError: ``host`` is not a str.
    """
    check_types({"host": (host, str)}, required=True)
    origin, _ = split(f"https://{host}")
    # ``split`` accepts userinfo, a port, a path, a query and a fragment, which would be ignored here.
    if any(character in host for character in "/?#@") or (":" in host and not host.startswith("[")):
        raise InvalidURL(host, "is not a bare host; give it as in 'partner.example' or '[2001:db8::1]'")
    return origin.pacing_host


def url_text(url: StrOrURL, name: str = "url") -> str:
    """Return a URL as text; for a yarl.URL, with the escapes and A-labels that clients send.

    Args:
        url: the URL; its text is not validated.
        name: the name of the argument, for the error.

    Raises:
        InvalidURL: ``url`` is a yarl.URL with a raw blank, so that the server would read another target.
        TypeError: ``url`` is neither a str nor a yarl.URL.
    """
    if isinstance(url, str):
        return url
    # A program that has not imported yarl cannot give one of its URLs.
    if isinstance(url, getattr(sys.modules.get("yarl"), "URL", ())):
        text = str(url)
        if " " in text:  # URL(..., encoded=True) permits this; by RFC 9112 3.2 the target ends at a blank
            raise InvalidURL(text, "would be sent with a blank; percent-encode it as %20")
        return text
    raise TypeError(f"{name}={url!r:.100}: give a str or yarl.URL, not {type_name(url)}")


def split(url: StrOrURL, name: str = "url") -> tuple[Origin, str]:
    """Split an absolute http(s) URL into its origin and its request target.

    The target is the path and query as written, never empty, without the fragment (RFC 9309 2.2.2). Userinfo is
    dropped.

    Raises:
        InvalidURL: ``url`` is not such a URL, or is longer than MAX_URL_LENGTH.
        TypeError: see ``url_text``.
    """
    # The table of known origins is read first, because the URL of a request is split several times. A look-up in the
    # table takes a fifth of the time of ``_split`` (0.4 instead of 2.1 us), or a ninth if the host is an IP address
    # with a port.
    if isinstance(url, str):
        place = url.find("/", 8)  # the third slash, because the host begins after "https://" or "http://"
        if 0 < place <= _MAX_KNOWN_TEXT and len(url) <= MAX_URL_LENGTH and url.isprintable():
            try:
                return _known(url[:place]), url[place:] if "#" not in url else url[place:].partition("#")[0]
            except _InvalidPart:
                pass  # the error below names the whole URL
    text = url_text(url, name)
    try:
        return _split(text)
    except _InvalidPart as error:
        raise InvalidURL(text, str(error)) from None


def sent_exactly(url: str) -> str:
    """Return a URL as it is sent if all its escapes are kept: blanks and all that is not ASCII are escaped.

    >>> sent_exactly("https://example.com/\u00fc b%40c")
    'https://example.com/%C3%BC%20b%40c'
    """
    if url.isascii() and " " not in url:
        return url
    place = url.find("/", 8)
    site = url[:place] if place > 0 else url
    if not site.isascii():
        from yarl import URL  # noqa: PLC0415 - see the top

        return str(URL(site)) + escaped(url[len(site) :])
    return site + escaped(url[len(site) :])


def escaped(target: str) -> str:
    """Return a request target that a server sent, with only the octets escaped that are invalid in a URL."""
    from urllib.parse import quote  # noqa: PLC0415 - see the top

    return quote(target, safe=_UNCHANGED, errors="surrogateescape")


def target_of(url: StrOrURL, name: str = "url") -> str:
    """Return the request target of a URL; a text that starts with ``/`` is returned unchanged.

    Raises:
        InvalidURL: the text is neither a URL nor a target.
        TypeError: see ``url_text``.
    """
    text = url_text(url, name)
    return text if text[:1] == "/" else split(text)[1]


class _InvalidPart(Exception):
    """A part of a URL is invalid; the message becomes the ``problem`` of the InvalidURL."""


@lru_cache(maxsize=_MAX_KNOWN)
def _known(written: str) -> Origin:
    """Return the origin of ``written``, the URL before its path; raises _InvalidPart if it is invalid."""
    parts = _URL.fullmatch(written)
    if parts is None or parts["target"] or "@" in written:  # userinfo may be a secret, so it is not kept in the table
        raise _InvalidPart
    origin = _origin(parts)
    if origin.text == written:
        object.__setattr__(origin, "text", written)  # the origin and the table share one string, which saves 70 octets
    return origin


def _split(url: str) -> tuple[Origin, str]:
    if len(url) > MAX_URL_LENGTH:
        raise _InvalidPart(f"has {len(url)} characters; {MAX_URL_LENGTH} are more than servers take")
    if (control := CONTROL.search(url)) is not None:
        # Clients treat control characters differently (some drop tabs and line ends), so a verdict could be for another
        # URL.
        raise _InvalidPart(f"holds the control character {control.group()!r}; percent-encode it")
    parts = _URL.match(url)
    if parts is None:
        raise _InvalidPart(f"is not an absolute URL: write {_with_scheme(url)!r}")
    target = parts["target"]
    if not target.startswith("/"):
        target = "/" + target  # RFC 3986 6.2.3: an empty path is "/"
    return _origin(parts), target


def _with_scheme(url: str) -> str:
    """Return the probable URL for a text without a scheme, or an example of a URL."""
    suggested = public_url(f"{_HTTPS}://{url[:_MAX_SUGGESTED]}")
    parts = _URL.fullmatch(suggested)
    try:
        host = "" if parts is None else _origin(parts).host
    except _InvalidPart:
        host = ""
    return suggested if "." in host or host == "localhost" else "https://example.com/page"


def _origin(parts: re.Match[str]) -> Origin:
    scheme = parts["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise _InvalidPart(f"has the scheme {scheme!r:.50}; robots.txt applies to http and https only")
    scheme = _HTTP if scheme == _HTTP else _HTTPS  # all origins share one string for each scheme
    authority, default_port = parts["authority"], DEFAULT_PORTS[scheme]
    if "\\" in authority:
        # In RFC 3986 the backslash is a part of the userinfo. In WHATWG URL it ends the host, so another server is
        # named.
        raise _InvalidPart("has a backslash before its path; clients disagree about the host")
    host_port = authority.rpartition("@")[2]
    if host_port.startswith("["):
        literal, bracket, rest = host_port[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _InvalidPart("has an IPv6 literal that is not closed by ']' and an optional port")
        return Origin(scheme, _ipv6(literal), _port(rest[1:], default_port))
    host, _, port = host_port.partition(":")
    return Origin(scheme, _host(host), _port(port, default_port))


def _port(text: str, default_port: int) -> int:
    if not text:
        return default_port
    if not (text.isascii() and text.isdigit()):
        raise _InvalidPart("has a port that is not a number")  # it may be a password, as in https://user:pass/word@host
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(_MAX_PORT)) or int(digits) > _MAX_PORT:
        raise _InvalidPart(f"has the port {digits:.20}, which is not within 0 to {_MAX_PORT}")
    return int(digits)


def _ipv6(literal: str) -> str:
    import ipaddress  # noqa: PLC0415 - see the top

    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError:
        raise _InvalidPart(f"has the IPv6 literal {literal!r:.80}, which is not an address") from None
    if address.scope_id is not None:
        raise _InvalidPart("names a network interface; a zone has no meaning outside of this machine")
    if address.ipv4_mapped is not None:
        return f"[::ffff:{address.ipv4_mapped}]"  # RFC 5952 5; some Python versions print another form
    return f"[{address.compressed}]"


def _host(text: str) -> str:
    if not text:
        raise _InvalidPart("names no host")
    if len(text) > _MAX_HOST_TEXT:
        raise _InvalidPart(f"has a host of {len(text)} characters, which no server can have")
    name = _decoded(text) if "%" in text else text
    host = name.lower() if name.isascii() else _a_label(name)
    if len(host.removesuffix(".")) > _MAX_HOST or _HOST.fullmatch(host) is None:
        raise _InvalidPart(f"has the host {text!r:.80}, which no server can have")
    if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]) is not None:
        import ipaddress  # noqa: PLC0415 - see the top

        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise _InvalidPart(f"has the host {host!r:.80}: write an IPv4 address as four numbers") from None
    return host


def _decoded(text: str) -> str:
    """Return a host with its escapes decoded once (RFC 3986 3.2.2: the octets are UTF-8, before IDNA)."""
    from urllib.parse import unquote  # noqa: PLC0415 - see the top

    try:
        name = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _InvalidPart(f"has the host {text!r:.80}, whose escapes are not UTF-8") from None
    if name != text and not text.isascii():
        # Some clients map the host to A-labels before they decode the escapes, and get another host.
        raise _InvalidPart(f"has the host {text!r:.80}, which is partly escaped; clients disagree about it")
    return name


def _a_label(text: str) -> str:
    """Return the A-labels of ``text`` as aiohttp's URL library does, so that the origin is the requested server."""
    import idna  # noqa: PLC0415 - see the top

    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:
        pass  # IDNA 2008 forbids symbols, but names with emoji, for example, were registered under IDNA 2003
    try:
        return text.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise _InvalidPart(f"has the host {text!r:.80}, which has no A-label form: {error}") from None
