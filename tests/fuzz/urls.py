"""URLs and redirects.

Invariant: a text has no origin, and InvalidURL is raised; or its origin is the server that a client would connect to,
in one spelling: splitting a joined URL again gives the same parts. A redirect has no target, or the URL that a
literal reading of RFC 3986 5.2 gives.

Input: a line with a URL, and the Location of a redirect that its robots.txt is answered with.
"""

import ipaddress
import re
from typing import Final

import yarl

from politesse.errors import InvalidURL
from politesse.fetch import Hops
from politesse.origin import DEFAULT_PORTS, Origin, split
from politesse.ports import FaultKind, FetchFault, FetchRequest
from tests.fuzz.target import Target, dictionary, text
from tests.rules.properties.reference import UNRESERVED, remove_dot_segments
from tests.rules.properties.urls import server_of

_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PLAIN: Final = re.compile(r"(?i:https?)://[A-Za-z]{1,60}\.[A-Za-z]{1,60}(?::[0-9]{1,4})?(?:/[!-~]*)?")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:")
_RAW: Final = UNRESERVED + b"%/:=&?+!$,;'@()*[]"
_BASE: Final = Origin.of("https://example.com")


def check(octets: bytes) -> None:
    """Hold the splitting of URLs, and the joining of redirects, to the invariant."""
    url, _, location = octets.partition(b"\n")
    origin = _check_split(text(url)) or _BASE
    _check_redirect(origin, text(location))


def _check_split(url: str) -> Origin | None:
    try:
        origin, target = split(url)
    except InvalidURL:
        assert _PLAIN.fullmatch(url) is None, f"{url!r} has no origin"
        return None
    assert "\\" not in re.split("[/?#]", url.partition("://")[2])[0], "clients disagree about the end of the host"
    assert Origin.of(url) == origin
    assert target.startswith("/")
    assert "#" not in target
    _check_origin(origin)
    assert split(f"{origin}{target}") == (origin, target), f"{url!r} is split otherwise the second time"
    _check_server(origin, url)
    return origin


def _check_origin(origin: Origin) -> None:
    written = str(origin)
    assert _ORIGIN.fullmatch(written) is not None, f"{written!r} is not in normal form"
    assert not written.endswith(f":{DEFAULT_PORTS[origin.scheme]}"), f"{written!r} has its port"
    assert 0 <= origin.port <= 65535
    if origin.host.rstrip(".").rpartition(".")[2].isdigit():
        assert str(ipaddress.IPv4Address(origin.host)) == origin.host  # otherwise clients would disagree
    assert split(origin.robots_url) == (origin, "/robots.txt")


def _check_server(origin: Origin, url: str) -> None:
    """Compare with the server that aiohttp's URL library would connect to."""
    try:
        sent = yarl.URL(url)
    except ValueError:
        return  # no request follows
    assert (origin.scheme, origin.host, origin.port) == server_of(sent), (
        f"{url!r} is of {server_of(sent)}, not {origin}"
    )


def _check_redirect(origin: Origin, location: str) -> None:
    hops = Hops(FetchRequest(origin, max_redirects=2))
    answer = hops.redirect(301, location)
    if isinstance(answer, FetchFault):
        if answer.kind is not FaultKind.REDIRECT_TARGET:
            # A loop counts as the absence of a file, and opens the site: no other fault may pass for one.
            assert answer.kind is FaultKind.REDIRECT_LIMIT
            assert location.strip(" \t"), "nothing is no loop"
            assert _resolved(location) == "/robots.txt", f"{location!r} is no loop"
        return
    target, url = answer
    _check_origin(target)
    assert url.isascii()
    assert url.isprintable(), f"{url!r} cannot be sent"
    assert " " not in url
    assert url.removeprefix(str(target)) == _resolved(location), f"{location!r} leads to {url!r}"
    assert split(url) == (target, url.removeprefix(str(target))), f"{url!r} is not of {target}"
    assert server_of(yarl.URL(url, encoded=True)) == (target.scheme, target.host, target.port)  # as it is fetched
    hops.seen.append(url)
    again = hops.redirect(301, url)
    assert isinstance(again, FetchFault), f"{url!r} is requested again"
    assert again.kind is FaultKind.REDIRECT_LIMIT
    _check_joined(origin, location, target)


def _resolved(location: str) -> str:
    """RFC 3986 5.2.2, from /robots.txt: path and query, with the octets escaped that no URI holds."""
    octets = location.strip(" \t").encode("utf-8", "surrogateescape").partition(b"#")[0]
    octets = _SCHEME.sub(b"", octets, count=1) if _SCHEME.match(octets) else octets
    if octets.startswith(b"//"):
        place = min((place for place in map(octets[2:].find, (b"/", b"?")) if place >= 0), default=len(octets))
        octets = octets[2 + place :]
        octets = octets if octets.startswith(b"/") else b"/" + octets  # 6.2.3
    path, question, query = octets.partition(b"?")
    if not path:
        path = b"/robots.txt"
    elif not path.startswith(b"/"):
        path = b"/" + path
    whole = bytes(remove_dot_segments(list(path))) + question + query
    return "".join(chr(octet) if octet in _RAW else f"%{octet:02X}" for octet in whole)


def _check_joined(origin: Origin, location: str, target: Origin) -> None:
    """Compare with the target by aiohttp's URL library."""
    try:
        joined = yarl.URL(origin.robots_url).join(
            yarl.URL(location.strip(" \t"))
        )  # RFC 9110 5.5: blanks around are none of it
    except (ValueError, IndexError):  # yarl 1.25 looks for the first character of a host that is empty
        return
    if joined.scheme not in DEFAULT_PORTS:
        return  # no request follows
    assert server_of(joined) == (target.scheme, target.host, target.port), (
        f"{location!r} leads to {joined}, not {target}"
    )


TARGET: Final = Target("urls", check, dictionary("urls"), 512)
