"""A server on loopback that answers exactly as a test wants, well or badly, and logs the requests.

FAULTS lists the faults of a robots.txt and of its server, each with its access result by RFC 9309.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import re
import socket
import ssl
import struct
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Final, Self

from politesse._base.constants import ROBOTS_TXT
from politesse._base.text import needing
from politesse._judge import Exchange
from politesse.errors import ConfigurationError
from politesse.ports import FaultKind
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    import trustme

FILE: Final = b"User-agent: *\nDisallow: /private\n"
"""The robots.txt of every fault whose file can be read."""

LOOPBACK: Final = "127.0.0.1"
MAX_HEAD_BYTES: Final = 64 * 1024
MIB: Final = 1024 * 1024
_GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # RFC 1952 2.3: a head without name and time
_DRIP_S: Final = 1.0
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER with 0 seconds, so that closing sends a RST


_NOTHING: Final = Exchange("", 0.0, inf, status=0)
_EPOCH: Final = time.time() - time.monotonic()


def now() -> float:
    """Return the Unix time by the monotonic clock, so that the gaps in a log stay right if the wall clock is set."""
    return _EPOCH + time.monotonic()


@dataclass(slots=True)
class Logged:
    """A request in the log. The request ends before the server writes the last part of the answer.

    A client that has seen the whole answer also sees the end in the log.
    """

    exchange: Exchange = _NOTHING

    def end(self) -> None:
        """Record that the request ends now."""
        self.exchange = replace(self.exchange, ended=now())

    def note(self, piece: bytes) -> None:
        """Record the end; if this piece begins with a whole status line, record the head of the answer, too."""
        self.end()
        if self.exchange.status:
            return
        first, *lines = piece.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        status = re.match(r"HTTP/1\.[01] ([0-9]{3})(?: |$)", first)
        if status is None or (not lines and not piece.endswith(b"\r\n")):
            return
        fields = _fields(lines)
        retry_after = fields.get("retry-after", "")
        retry_after_s = float(retry_after) if retry_after.isdigit() else None
        self.exchange = replace(
            self.exchange, status=int(status[1]), retry_after_s=retry_after_s, location=fields.get("location")
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A request to answer, and the means to answer it.

    Attributes:
        method: the method, such as ``GET``.
        target: the path and query.
        headers: the headers, names in lower case.
        number: how many times this target has been requested, including this request.
        reader: the rest of the input.
        writer: writes to the client.
        logged: the record in the log of the server.

    Example:
        >>> async def busy(call: Call) -> None:
        ...     await call.send(response(503, Retry_After="60") if call.number == 1 else response(200, b"welcome"))
        >>> from politesse.testing import FAULTS, HostileServer
        >>> server = HostileServer(FAULTS["status-404"], {"/page": busy})
    """

    method: str
    target: str
    headers: Mapping[str, str]
    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    logged: Logged = field(default_factory=Logged)

    async def send(self, *pieces: bytes) -> None:
        """Write some octets, and wait until most of them have been sent to the client."""
        for piece in pieces:
            self.logged.note(piece)
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)  # other tasks must run during an endless answer, and drain() does not always wait

    async def silence(self) -> None:
        """Wait until the client closes the connection, without an answer."""
        while await self.reader.read(MAX_HEAD_BYTES):
            pass

    def reset(self) -> None:
        """End the connection with a RST."""
        self.logged.end()
        if not self.writer.transport.is_closing():  # skipped if the connection is closed already
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


Handler = Callable[[Call], Awaitable[None]]
Reply = bytes | Handler
"""The answer of a target: octets with the head, or a handler that writes until it returns or the client goes."""


def response(status: int | str, body: bytes = b"", *, length: int | str | None = None, **headers: str) -> bytes:
    """Return a whole response; underscores in header names stand for hyphens."""
    announced = f"Content-Length: {len(body) if length is None else length}"
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return head(announced, "Connection: close", *lines, status=f"{status} Status") + body


def head(*lines: str, status: str = "200 OK") -> bytes:
    """Return the head of a response with these header lines."""
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


def chunk(octets: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(octets), octets)


async def closes_at_once(call: Call) -> None:
    """Close the connection without an answer."""
    call.writer.close()


def drips(octets: bytes) -> Reply:
    """Answer with one octet at a time."""

    async def handler(call: Call) -> None:
        for octet in octets:
            await call.send(bytes([octet]))
            await asyncio.sleep(_DRIP_S)

    return handler


def _sends(pieces: Callable[[], Iterable[bytes]]) -> Reply:
    """Answer with pieces. ``pieces`` is called for each request."""

    async def handler(call: Call) -> None:
        for piece in pieces():
            await call.send(piece)

    return handler


def repeats(first: bytes, piece: bytes) -> Reply:
    """Answer with ``first``, and then send ``piece`` again and again, forever."""
    return _sends(lambda: itertools.chain([first], itertools.repeat(piece)))


def stalls(octets: bytes) -> Reply:
    """Answer with ``octets``, and then send nothing more."""

    async def handler(call: Call) -> None:
        await call.send(octets)
        await call.silence()

    return handler


def resets(octets: bytes) -> Reply:
    """Answer with ``octets``, and then reset the connection."""

    async def handler(call: Call) -> None:
        await call.send(octets)
        await asyncio.sleep(0.02)  # otherwise the RST would overtake the octets
        call.reset()

    return handler


def takes_turns(*answers: bytes) -> Reply:
    """Answer with each of several replies in turn."""

    async def handler(call: Call) -> None:
        await call.send(answers[(call.number - 1) % len(answers)])

    return handler


def gzip_bomb(decoded_bytes: int) -> Reply:
    """Answer with FILE and line ends, compressed by gzip to about a thousandth of ``decoded_bytes``."""
    encoder = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    start = encoder.compress(FILE) + encoder.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, a piece does not refer to earlier pieces, so the same piece can be sent repeatedly.
    blank = b"\n" * MIB
    piece = encoder.compress(blank) + encoder.flush(zlib.Z_FULL_FLUSH)
    end = encoder.flush()
    pieces = decoded_bytes // MIB

    async def handler(call: Call) -> None:
        await call.send(head("Content-Encoding: gzip"), _GZIP_HEAD, start)
        checksum = zlib.crc32(FILE)
        for _ in range(pieces):
            await call.send(piece)
            checksum = zlib.crc32(blank, checksum)
        await call.send(end, struct.pack("<LL", checksum, (len(FILE) + pieces * MIB) & 0xFFFF_FFFF))

    return handler


def long_line(length_bytes: int) -> Reply:
    """Answer with FILE, followed by a line of ``length_bytes`` octets."""
    return _sends(
        lambda: itertools.chain([head(), FILE, b"Disallow: /"], itertools.repeat(b"a" * MIB, length_bytes // MIB))
    )


def many_groups(number: int) -> Reply:
    """Answer with FILE and many groups, each for another crawler."""

    def groups() -> Iterator[bytes]:
        for first in range(0, number, 1000):
            yield b"".join(b"User-agent: a%d\nDisallow: /\n" % n for n in range(first, first + 1000))

    return _sends(lambda: itertools.chain([head(), FILE], groups()))


async def etag_that_lies(call: Call) -> None:
    """Always answer that the file has not changed."""
    known = call.headers.get("if-none-match")
    await call.send(response(304, ETag='"same"') if known else response(200, FILE, ETag='"same"'))


PUBLIC_NAME: Final = "public.example"
"""The host name of servers that count as public; a resolver must know this name."""

_CHUNKED: Final = head("Transfer-Encoding: chunked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A way in which a server may misbehave when robots.txt is requested.

    Example:
        >>> from politesse.testing import FAULTS
        >>> fault = FAULTS["status-404"]
        >>> fault.result.value, fault.allows_page
        ('unavailable', True)

    Attributes:
        name: the name, of letters and hyphens.
        robots: the reply to ``/robots.txt``.
        result: the access result by RFC 9309, as politesse reads it.
        kind: the kind of fault that a fetcher reports, or None if the fetcher returns a response.
        restricts: for a SUCCESSFUL result, whether ``/private`` is disallowed.
        waits: whether the fault lasts until the client gives up.
        hops: maps other targets, such as those of redirects, to their replies.
        host: the name of the server, if the fault needs one.
        certificate: makes the certificate of the server, for https.
        accepts: whether the server accepts connections.
        listens: whether a server listens at its port.
    """

    name: str
    robots: Reply = b""
    result: AccessResult = AccessResult.UNREACHABLE
    kind: FaultKind | None = None
    restricts: bool = True
    waits: bool = False
    hops: Mapping[str, Reply] = field(default_factory=dict)
    host: str = ""
    certificate: Callable[[], ssl.SSLContext] | None = None
    accepts: bool = True
    listens: bool = True

    @property
    def allows_page(self) -> bool:
        """Whether a page may be requested."""
        return self.result in {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE}

    @property
    def allows_private(self) -> bool:
        """Whether the paths that the file disallows may be requested."""
        return self.allows_page and not (self.result is AccessResult.SUCCESSFUL and self.restricts)


def authority_pem() -> bytes:
    """Return the certificate, in PEM, of the authority that signs all certificates but the self-signed certificate."""
    return _authority().cert_pem.bytes()


def trusted() -> ssl.SSLContext:
    """Return the TLS context of a server with a valid certificate."""
    return _context(_authority().issue_cert(LOOPBACK))


def expired() -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate expired yesterday."""
    now, day = datetime.now(UTC), timedelta(days=1)
    return _context(_authority().issue_cert(LOOPBACK, not_before=now - 9 * day, not_after=now - day))


def for_another_host() -> ssl.SSLContext:
    """Return the TLS context of a server with a valid certificate for another name."""
    return _context(_authority().issue_cert("other.example"))


def self_signed() -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate no client trusts."""
    return _context(_authority.__wrapped__().issue_cert(LOOPBACK))


@cache
def _authority() -> trustme.CA:
    with needing("a server with a certificate", "test", ConfigurationError):
        from trustme import CA  # noqa: PLC0415 - an extra
    return CA()


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


_good: Final = partial(Fault, result=AccessResult.SUCCESSFUL)
_protocol: Final = partial(Fault, kind=FaultKind.PROTOCOL)
_cut: Final = partial(Fault, kind=FaultKind.TRUNCATED)
_silent: Final = partial(Fault, kind=FaultKind.TIMEOUT, waits=True)
_too_many_redirects: Final = partial(Fault, result=AccessResult.UNAVAILABLE, kind=FaultKind.REDIRECT_LIMIT)


def chain(redirects: int) -> Fault:
    """Return a chain of redirects that ends with FILE."""
    targets = ["/robots.txt", *(f"/hop/{n}" for n in range(1, redirects)), "/file"]
    answers: dict[str, Reply] = {here: response(301, Location=there) for here, there in itertools.pairwise(targets)}
    answers["/file"] = response(200, FILE)
    robots = answers.pop("/robots.txt")
    name = f"redirect-chain-of-{redirects}"
    if redirects <= 5:  # noqa: PLR2004 - RFC 9309 2.3.1.2
        return _good(name=name, robots=robots, hops=answers)
    return _too_many_redirects(name=name, robots=robots, hops=answers)


def redirects_to(name: str, location: str, host: str = "") -> Fault:
    """Return a redirect that must not be followed; ``{port}`` stands for the port of the server itself."""

    async def robots(call: Call) -> None:
        port = call.writer.get_extra_info("sockname")[1]
        await call.send(response(302, Location=location.replace("{port}", str(port))))

    return Fault(name=f"redirect-to-{name}", robots=robots, kind=FaultKind.REDIRECT_TARGET, host=host)


def too_many_requests(name: str, *lines: str) -> Fault:
    """Return a 429 with these header lines."""
    answer = head("Content-Length: 0", *lines, status="429 Too Many Requests")
    return Fault(name=f"429-{name}", robots=answer, result=AccessResult.TOO_MANY_REQUESTS)


def _connections() -> Iterator[Fault]:
    yield Fault(name="refuses-connections", listens=False, kind=FaultKind.CONNECT)
    yield _silent(name="never-accepts", accepts=False)
    yield Fault(name="closes-at-once", robots=closes_at_once, kind=FaultKind.CONNECT)
    yield Fault(name="resets-at-once", robots=resets(b""), kind=FaultKind.CONNECT)
    yield _silent(name="never-answers", robots=Call.silence)
    whole = response(200, FILE)
    yield _silent(name="drips-head", robots=drips(whole))
    yield _silent(name="stalls-in-head", robots=stalls(whole[:20]))
    yield Fault(name="resets-in-head", robots=resets(whole[:20]), kind=FaultKind.CONNECT)


def _heads() -> Iterator[Fault]:
    yield _protocol(name="not-http", robots=b"SSH-2.0-OpenSSH_9.6\r\n")
    yield _protocol(name="body-without-head", robots=FILE)
    yield _protocol(name="status-of-letters", robots=b"HTTP/1.1 okay\r\n\r\n")
    policy = ("default-src 'self'; " * 3000)[:60_000]
    yield _good(name="headers-of-60-kb", robots=response(200, FILE, Content_Security_Policy=policy))
    yield _protocol(name="endless-headers", robots=repeats(b"HTTP/1.1 200 OK\r\n", b"X-Header: value\r\n" * 100))
    yield _protocol(name="endless-header-line", robots=repeats(b"HTTP/1.1 200 OK\r\nX-Header: ", b"v" * 10_000))
    yield _protocol(name="endless-status-line", robots=repeats(b"HTTP/1.1 200 ", b"O" * 10_000))
    yield _silent(name="endless-continue", robots=repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10))
    yield _protocol(name="content-length-of-letters", robots=response(200, FILE, length="many"))
    yield _protocol(name="content-length-negative", robots=response(200, FILE, length=-1))
    yield _protocol(name="two-content-lengths", robots=response(200, FILE, Content_length="7"))
    yield Fault(name="status-999", robots=response(999, FILE))
    yield Fault(name="status-206", robots=response(206, FILE))
    yield Fault(name="status-304-unasked", robots=response(304))
    for status in (500, 502, 503, 504, 599):
        yield Fault(name=f"status-{status}", robots=response(status, FILE))
    for status in (400, 401, 403, 404, 410, 451):
        yield Fault(name=f"status-{status}", robots=response(status, FILE), result=AccessResult.UNAVAILABLE)
    yield Fault(name="5xx-flapping", robots=takes_turns(response(503), response(200, FILE)))


def _bodies() -> Iterator[Fault]:
    yield _good(name="endless-body", robots=repeats(head() + FILE, b"Disallow: /private\n" * 1000))
    yield _good(name="100-mb-line", robots=long_line(100 * MIB))
    yield _good(name="million-groups", robots=many_groups(1_000_000))
    yield _good(name="no-content-length", robots=head() + FILE)
    # The octets after the end of the body are not an HTTP response.
    yield _protocol(name="content-length-too-short", robots=response(200, FILE, length=10))
    yield _cut(name="content-length-too-long", robots=response(200, FILE, length=1000))
    yield _cut(name="reset-in-body", robots=resets(response(200, FILE, length=1000)))
    yield _cut(name="reset-in-body-without-length", robots=resets(head() + FILE))
    yield _cut(name="reset-behind-head", robots=resets(head()))
    yield _silent(name="drips-body", robots=drips(_CHUNKED + chunk(FILE)))
    yield _silent(name="stalls-in-body", robots=stalls(response(200, FILE, length=1000)))
    yield _cut(name="chunk-missing", robots=_CHUNKED + chunk(FILE))
    yield _cut(name="chunk-cut", robots=_CHUNKED + chunk(FILE)[:10])
    yield _protocol(name="chunk-size-of-letters", robots=_CHUNKED + b"zz\r\n" + FILE)
    yield _cut(name="chunk-size-endless", robots=repeats(_CHUNKED + chunk(FILE), b"0" * 1000))
    trailers = repeats(_CHUNKED + chunk(FILE) + b"0\r\n", b"X-Trailer: value\r\n" * 100)
    yield _cut(name="trailers-endless", robots=trailers)


def _encodings() -> Iterator[Fault]:
    broken = partial(Fault, kind=FaultKind.ENCODING)
    packed = gzip.compress(FILE)
    yield _good(name="gzip-bomb-of-1-mb", robots=gzip_bomb(MIB))
    yield _good(name="gzip-bomb-of-1-gb", robots=gzip_bomb(1024 * MIB))
    twice = response(200, gzip.compress(packed), Content_Encoding="gzip, gzip")
    yield broken(name="gzip-in-gzip", robots=twice)
    yield broken(name="transfer-encoding-gzip", robots=head("Transfer-Encoding: gzip") + packed)
    yield broken(name="gzip-that-is-none", robots=response(200, FILE, Content_Encoding="gzip"))
    yield broken(name="encoding-not-asked-for", robots=response(200, packed, Content_Encoding="br"))
    yield _cut(name="gzip-cut", robots=response(200, packed[:-12], Content_Encoding="gzip"))
    html = b"<!doctype html><title>Not found</title><p>User-agent: * is not here</p>" * 100
    yield _good(name="html", robots=response(200, html, Content_Type="text/html"), restricts=False)
    yield _good(name="utf-16", robots=response(200, FILE.decode().encode("utf-16")))
    yield _good(name="utf-16-without-mark", robots=response(200, FILE.decode().encode("utf-16-le")), restricts=False)
    yield _good(name="nuls", robots=response(200, b"\x00" * 1000 + b"\nUser-agent: *\nDisallow: /a\x00b\n" + FILE))
    yield _good(name="binary", robots=response(200, bytes(range(256)) * 200), restricts=False)


def _caching() -> Iterator[Fault]:
    open_file = b"User-agent: *\nDisallow:\n"
    changing = takes_turns(response(200, FILE, ETag='"1"'), response(200, open_file, ETag='"2"'))
    yield _good(name="changes-between-fetches", robots=changing)
    yield _good(name="etag-that-lies", robots=etag_that_lies)
    later = formatdate(4_000_000_000, usegmt=True)
    yield _good(name="date-in-the-future", robots=response(200, FILE, Date=later, Last_Modified=later))
    century = response(200, FILE, Expires=later, Cache_Control="max-age=9" + "9" * 9)
    yield _good(name="expires-in-a-century", robots=century)
    yield _good(name="age-negative", robots=response(200, FILE, Age="-1", Cache_Control="max-age=-5"))
    yield _good(name="headers-of-garbage", robots=response(200, FILE, Date="?", Expires="0", Age="x", ETag="\xff"))


def _redirects() -> Iterator[Fault]:
    yield _too_many_redirects(name="redirect-to-itself", robots=response(301, Location="/robots.txt"))
    back = {"/elsewhere": response(301, Location="/robots.txt")}
    yield _too_many_redirects(name="redirect-loop", robots=response(301, Location="/elsewhere"), hops=back)

    async def onward(call: Call) -> None:
        await call.send(response(301, Location=f"/on/{call.number}"))

    numbers = {f"/on/{n}": response(301, Location=f"/on/{n + 1}") for n in range(1, 100)}
    yield _too_many_redirects(name="redirect-ever-onward", robots=onward, hops=numbers)
    yield from map(chain, (4, 5, 6, 20))
    target = partial(Fault, kind=FaultKind.REDIRECT_TARGET)
    yield target(name="redirect-without-location", robots=response(302))
    yield redirects_to("file", "file:///etc/passwd")
    for scheme in ("ftp", "gopher", "ws", "data", "javascript"):
        yield redirects_to(scheme, f"{scheme}://{LOOPBACK}:{{port}}/secret")
    yield redirects_to("no-host", "http:///robots.txt")
    yield redirects_to("odd-port", f"http://{LOOPBACK}:99999/robots.txt")
    for name, spelling in ODD_LOOPBACKS.items():
        yield redirects_to(f"loopback-spelt-{name}", f"http://{spelling}:{{port}}/secret")
    for name, address in PRIVATE_LITERALS.items():
        yield redirects_to(f"{name}-from-public", f"http://{address}:{{port}}/secret", host=PUBLIC_NAME)


ODD_LOOPBACKS: Final = {
    "hexadecimal": "0x7f.1",
    "octal": "0177.0.0.1",
    "short": "127.1",
    "one-number": "2130706433",
    "one-hexadecimal": "0x7f000001",
}
"""Spellings of 127.0.0.1 that some clients understand, but RFC 3986 does not define."""

PRIVATE_LITERALS: Final = {
    "loopback": "127.0.0.1",
    "loopback-6": "[::1]",
    "mapped-loopback": "[::ffff:127.0.0.1]",
    "translated-loopback": "[64:ff9b::7f00:1]",
    "private": "10.0.0.1",
    "metadata": "169.254.169.254",
    "link-local-6": "[fe80::1]",
    "unspecified": "0.0.0.0",  # noqa: S104 - nothing is bound to it
    "multicast": "224.0.0.1",
}
"""Private addresses to which a public server must not redirect."""


def _rates() -> Iterator[Fault]:
    yield too_many_requests("without-retry-after")
    yield too_many_requests("seconds", "Retry-After: 120")
    yield too_many_requests("zero", "Retry-After: 0")
    yield too_many_requests("negative", "Retry-After: -5")
    yield too_many_requests("fraction", "Retry-After: 1.5")
    yield too_many_requests("century", "Retry-After: 3153600000")
    yield too_many_requests("huge", f"Retry-After: {'9' * 5000}")
    yield too_many_requests("date", "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT")
    yield too_many_requests("rfc-850-date", "Retry-After: Friday, 01-Jan-38 00:00:00 GMT")
    yield too_many_requests("asctime-date", "Retry-After: Fri Jan  1 00:00:00 2100")
    yield too_many_requests("past-date", "Retry-After: Thu, 01 Jan 1998 00:00:00 GMT")
    yield too_many_requests("impossible-date", "Retry-After: Fri, 99 Jan 9999 99:99:99 GMT")
    yield too_many_requests("garbage", "Retry-After: soon")
    yield too_many_requests("empty", "Retry-After:")
    yield too_many_requests("two", "Retry-After: 1", "Retry-After: 60")


def _certificates() -> Iterator[Fault]:
    file = response(200, FILE)
    tls = partial(Fault, robots=file, kind=FaultKind.TLS)
    yield _good(name="certificate-good", robots=file, certificate=trusted)
    yield tls(name="certificate-expired", certificate=expired)
    yield tls(name="certificate-for-another-host", certificate=for_another_host)
    yield tls(name="certificate-self-signed", certificate=self_signed)


FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for faults in (_connections, _heads, _bodies, _encodings, _caching, _redirects, _rates, _certificates)
    for fault in faults()
}
"""Maps the name of each fault to the fault."""


PAGE: Final = head("Content-Type: text/html", "Content-Length: 14", "Connection: close") + b"<p>a page</p>\n"
"""The default answer of every page."""

_FILLING: Final = 4  # no connection is accepted, and this many fill the shortest queue of any system


class HostileServer:
    r"""An HTTP/1.1 server with a robots.txt that has a ``fault``, and with ordinary pages.

    Each connection gets one answer, and is then closed. ``log`` holds every request, so a test sees the URLs and the
    times of the requests::

        async with HostileServer(FAULTS["drips-body"]) as server, Gatekeeper(user_agent) as gate:
            assert not await gate.check(server.url("/page"))
        assert server.pages == []

    Example:
        >>> from politesse.testing import FAULTS
        >>> server = HostileServer(FAULTS["status-503"], {"/moved": b"HTTP/1.1 302 Found\r\nLocation: /page\r\n\r\n"})
        >>> server.pages, server.robots_requests
        ([], 0)

    Args:
        fault: the fault of robots.txt; one of ``FAULTS``, or your own Fault.
        answers: maps each target that is not an ordinary page to its reply.
        address: the address to listen at, in 127.0.0.0/8.
        every_page: the reply to a request for any ordinary page.

    Attributes:
        open_connections: the number of open connections.
        address: the address at which the server listens.

    Raises:
        ConfigurationError: on entry, if the fault has a certificate and trustme is not installed.
    """

    def __init__(
        self,
        fault: Fault,
        answers: Mapping[str, Reply] | None = None,
        *,
        address: str = LOOPBACK,
        every_page: Reply = PAGE,
    ) -> None:
        self.open_connections: int = 0
        self._log: list[Logged] = []
        self._fault = fault
        self._answers = {ROBOTS_TXT: fault.robots, **fault.hops, **(answers or {})}
        self._every_page = every_page
        self.address = address
        self._port = 0
        self._asked: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []

    @property
    def origin(self) -> str:
        """The origin of the server, such as ``http://127.0.0.1:8081``."""
        scheme = "http" if self._fault.certificate is None else "https"
        return f"{scheme}://{self._fault.host or self.address}:{self._port}"

    @property
    def log(self) -> list[Exchange]:
        """Every request so far, in the order in which they came.

        An exchange ends just before the last piece of its answer is written, so no client can have seen the end
        earlier. An exchange without an answer ends when the connection ends, or now if the connection is still open.
        The status is 0 if no status line was sent in one piece.
        """
        until = now()
        return [replace(one.exchange, ended=min(one.exchange.ended, until)) for one in self._log]

    @property
    def pages(self) -> list[str]:
        """The requested targets in order, without robots.txt and the targets of its redirects."""
        targets = [one.exchange.url.removeprefix(self.origin) for one in self._log]
        return [target for target in targets if target != ROBOTS_TXT and target not in self._fault.hops]

    @property
    def robots_requests(self) -> int:
        """How many times robots.txt was requested."""
        return self._asked[ROBOTS_TXT]

    def url(self, target: str = ROBOTS_TXT) -> str:
        """Return a URL of this server."""
        return self.origin + target

    async def __aenter__(self) -> Self:
        if not self._fault.listens:
            self._port = self._bound().getsockname()[1]  # until the end, so that nobody else listens there
        elif not self._fault.accepts:
            self._port = await self._fill_queue()
        else:
            context = None if self._fault.certificate is None else self._fault.certificate()
            self._server = await asyncio.start_server(
                self._accept, self.address, 0, ssl=context, limit=MAX_HEAD_BYTES, backlog=1024
            )
            self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for held in self._sockets:
            held.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def __repr__(self) -> str:
        return f"<HostileServer {self._fault.name} at {self.origin}: {len(self._log)} requests>"

    def _bound(self) -> socket.socket:
        """Return a socket that keeps a port until the end of the server."""
        bound = socket.socket()
        try:
            bound.bind((self.address, 0))
        except OSError:
            bound.close()
            raise
        self._sockets.append(bound)
        return bound

    async def _fill_queue(self) -> int:
        """Listen, and connect until the queue of connections is full; return the port."""
        listening = self._bound()
        listening.listen(0)
        for _ in range(_FILLING):
            filling = socket.socket()
            filling.setblocking(False)  # noqa: FBT003 - as it is called
            with suppress(BlockingIOError):
                filling.connect(listening.getsockname())
            self._sockets.append(filling)
        await asyncio.sleep(0.02)  # connecting on loopback is quick, but not instantaneous
        return int(listening.getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone
        finally:
            writer.transport.abort()
            self.open_connections -= 1

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started = now()
        method, target, headers = _parse(head)
        self._asked[target] += 1
        logged = Logged(Exchange(self.url(target), started, inf, status=0, agent=headers.get("user-agent")))
        self._log.append(logged)
        call = Call(method, target, headers, self._asked[target], reader, writer, logged)
        answer = self._answers.get(target, self._every_page)
        try:
            if isinstance(answer, bytes):
                await call.send(answer)
            else:
                await answer(call)
        finally:
            if logged.exchange.ended == inf:
                logged.end()
        if not writer.transport.is_closing():
            writer.write_eof() if writer.can_write_eof() else writer.close()
            await call.silence()


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ", 2)
    return method, target, _fields(lines)


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """Return the fields of a head, with names in lower case."""
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
