"""The answers and the log of a HostileServer: whole responses, and handlers that drip, stall or never end."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import inf
from typing import Final

from politesse._judge import Exchange

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
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
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
    lines = [f"HTTP/1.1 {status} Status", announced, "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def head(*lines: str) -> bytes:
    """Return the head of a valid response with these header lines."""
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode("latin-1")


def chunk(octets: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(octets), octets)


async def never_answers(call: Call) -> None:
    """Read the request, and never answer."""
    await call.silence()


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
    return _sends(lambda: chain([first], repeat(piece)))


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
    return _sends(lambda: chain([head(), FILE, b"Disallow: /"], repeat(b"a" * MIB, length_bytes // MIB)))


def many_groups(number: int) -> Reply:
    """Answer with FILE and many groups, each for another crawler."""

    def groups() -> Iterator[bytes]:
        for first in range(0, number, 1000):
            yield b"".join(b"User-agent: a%d\nDisallow: /\n" % n for n in range(first, first + 1000))

    return _sends(lambda: chain([head(), FILE], groups()))


async def etag_that_lies(call: Call) -> None:
    """Always answer that the file has not changed."""
    known = call.headers.get("if-none-match")
    await call.send(response(304, ETag='"same"') if known else response(200, FILE, ETag='"same"'))
