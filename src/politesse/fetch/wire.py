"""What aiohttp does not report of a connection: how it ended, and how much came over it.

To aiohttp a body without Content-Length and without chunks is complete when its connection is lost, for whatever
reason: also by a reset, or because its session was closed here. The cause reaches the protocol of a transport only, so
one of our own stands between the transport and that of aiohttp while a response is read, over a borrowed connector
too. It passes everything on. Where it could not be put in place, it has seen no end, and the body counts as truncated.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

MAX_HEAD_BYTES: Final = 64 * 1024
"""The longest head of an answer, status line included."""

MAX_HEADERS: Final = MAX_HEAD_BYTES // len(b"a:\r\n")
"""More than fit."""

_UNREAD_BYTES: Final = 1024 * 1024  # while nobody reads the body: more than aiohttp takes in before it pauses

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_INTERIM: Final = re.compile(rb"\s*HTTP/\d\.\d 1(?!01)\d\d\b")  # 101 is the last of its kind (RFC 9110 15.2.2)


class Wire(asyncio.Protocol):
    """Stands between a transport and the protocol of aiohttp.

    Args:
        protocol: that of aiohttp.

    Attributes:
        most_bytes: how many octets may still come behind the head; then the connection is closed. What they stand for
            is bounded where it is read: this bounds chunk extensions and trailers, which nobody reads.
    """

    def __init__(self, protocol: ResponseHandler) -> None:
        self.most_bytes = _UNREAD_BYTES
        self._protocol = protocol
        self._transport = transport = protocol.transport
        self._tls: ssl.SSLObject | None = None
        self._head: bytearray | None = bytearray()  # None behind its end
        self._finished = False
        if transport is not None:
            self._tls = transport.get_extra_info("ssl_object")
            with suppress(NotImplementedError):  # then it sees no end
                transport.set_protocol(self)

    def detach(self) -> None:
        """Let the transport talk to aiohttp again, unless another wire has taken over."""
        transport = self._transport  # one that is closing is nobody's any more
        if transport is not None and not transport.is_closing() and transport.get_protocol() is self:
            transport.set_protocol(self._protocol)

    @property
    def ended_cleanly(self) -> bool:
        """Whether the server has ended the connection in an orderly way: by a FIN, over TLS behind a close_notify.

        RFC 9112 9.8: without a valid closure alert a body that nothing else delimits is incomplete.
        """
        return self._finished and (self._tls is None or _is_notified(self._tls))

    @property
    def peer(self) -> str | None:
        """The address at the other end; None where it is not of the Internet."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else None

    def data_received(self, data: bytes) -> None:
        """Pass on what came, within bounds."""
        if self._head is not None:
            if self._is_too_long(self._head, data):
                self._protocol.set_exception(BadHttpMessage(f"a head of more than {MAX_HEAD_BYTES} octets"))
                self._abort()
                return
        else:
            self.most_bytes -= len(data)
            if self.most_bytes < 0:
                self._abort()
                return
        self._protocol.data_received(data)

    def eof_received(self) -> None:
        """Note that the server has nothing more to say."""
        self._finished = True
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on: the protocol of aiohttp ends the body here, if nothing else did."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._protocol.resume_writing()

    def _is_too_long(self, head: bytearray, data: bytes) -> bool:
        """Add what came to the head that is under way, and look for its end; none is kept of the last one."""
        unseen = max(len(head) - len(b"\n\r"), 0)
        head += data
        while (end := _HEAD_END.search(head, unseen)) is not None:
            if end.end() > MAX_HEAD_BYTES:
                return True
            # RFC 9112 2.2: empty lines may stand before a head.
            if head[: end.end()].strip() and _INTERIM.match(head) is None:
                self._head = None
                return False
            del head[: end.end()]
            unseen = 0
        return len(head) > MAX_HEAD_BYTES

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class WatchedResponse(aiohttp.ClientResponse):
    """A response over a watched connection.

    Attributes:
        wire: what is seen of the connection; None before the response has started.
    """

    wire: Wire | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Watch the connection from before the first octet of the answer."""
        if connection.protocol is not None:
            self.wire = Wire(connection.protocol)
        return await super().start(connection)


def _is_notified(tls: ssl.SSLObject) -> bool:
    """Whether close_notify has come: it alone lets a reader see an end, where the transport would show any FIN."""
    try:
        return tls.read(1) == b""
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False
