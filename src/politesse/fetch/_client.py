"""The client session that all fetches of a fetcher share, one for each event loop, and its observed connections.

The session keeps no state of single fetches. A context variable holds the guard of the fetch, through which the
connector resolves names. Each fetch has its own time limits, and leaves no cookie and no open connection behind.

Theory of operation. A Wire observes the end of a connection and the octets that came over it, which aiohttp does not
report. For aiohttp, a body with neither Content-Length nor chunks is complete when the connection is lost for any
reason, including a reset or the closing of the session. asyncio passes this reason only to the protocol of the
transport. So a Wire stands between the transport and aiohttp's protocol while a response is read, and forwards every
call. A connection of a borrowed connector gets a Wire, too. If no Wire can be installed, such a body counts as
truncated.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage

from politesse.fetch._addresses import AddressGuard, CurrentGuard
from politesse.fetch._lookups import SystemResolver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

    from politesse.fetch._options import FetchOptions

MAX_HEAD_BYTES: Final = 64 * 1024
"""The longest head of a response in octets, including the status line."""

MAX_HEADERS: Final = MAX_HEAD_BYTES // len(b"a:\r\n")
"""More header lines than fit into such a head."""

_UNREAD_BYTES: Final = 1024 * 1024  # limits the octets that arrive before the body is read

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_INTERIM: Final = re.compile(rb"\s*HTTP/\d\.\d 1(?!01)\d\d\b")  # RFC 9110 15.2.2: no other head follows a 101


class Wire(asyncio.Protocol):
    """A protocol between a transport and the protocol of aiohttp.

    Args:
        protocol: the protocol of aiohttp.

    Attributes:
        most_bytes: how many octets may come after the head; more octets abort the connection. This bounds chunk
            extensions and trailers; the reader bounds the body itself.
    """

    def __init__(self, protocol: ResponseHandler) -> None:
        self.most_bytes = _UNREAD_BYTES
        self._protocol = protocol
        self._transport = transport = protocol.transport
        self._tls: ssl.SSLObject | None = None
        self._head: bytearray | None = bytearray()  # None after the end of the head
        self._finished = False
        if transport is not None:
            self._tls = transport.get_extra_info("ssl_object")
            # the transport cannot change its protocol, so the wire never sees the end
            with suppress(NotImplementedError):
                transport.set_protocol(self)

    def detach(self) -> None:
        """Reconnect the transport and aiohttp, unless another wire has been installed."""
        transport = self._transport  # a transport that is being closed needs no protocol
        if transport is not None and not transport.is_closing() and transport.get_protocol() is self:
            transport.set_protocol(self._protocol)

    @property
    def ended_cleanly(self) -> bool:
        """Whether the server closed the connection in an orderly way: with a FIN, and with TLS after a close_notify.

        RFC 9112 9.8: without a valid closure alert, a body that only the close delimits is incomplete.
        """
        return self._finished and (self._tls is None or _is_notified(self._tls))

    @property
    def peer(self) -> str | None:
        """The address of the peer; None if it is not an Internet address."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else None

    def data_received(self, data: bytes) -> None:
        """Forward data, within the bounds."""
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
        """Record that the data ended in an orderly way, and forward the call."""
        self._finished = True
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the call, which ends a body that has neither a length nor chunks."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward the call."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward the call."""
        self._protocol.resume_writing()

    def _is_too_long(self, head: bytearray, data: bytes) -> bool:
        """Append data to the current head and find its end; return whether a head exceeds the limit."""
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
    """A response over an observed connection.

    Attributes:
        wire: the observer of the connection; None before the response has started.
    """

    wire: Wire | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Observe the connection before the first octet of the response."""
        if connection.protocol is not None:
            self.wire = Wire(connection.protocol)
        return await super().start(connection)


def _is_notified(tls: ssl.SSLObject) -> bool:
    """Whether the server sent a close_notify; after a FIN alone, only the transport reports an end, not ``read``."""
    try:
        return tls.read(1) == b""
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


@dataclass(eq=False, repr=False)
class SharedClient:
    """Creates a session at the first fetch in an event loop, and again after ``aclose``.

    Args:
        options: proxy and TLS settings.
        headers: the headers of each request.
        session: the session whose connector is borrowed; None for a connector that checks addresses.
    """

    _options: FetchOptions
    _headers: Mapping[str, str]
    _session: aiohttp.ClientSession | None
    _clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # Prevents aiohttp's warning of an unclosed session. Between fetches our session has no connection.
        weakref.finalize(self, _detach, self._clients)

    def get(self) -> aiohttp.ClientSession:
        """Return the session of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(ended).detach()
            client = self._clients[loop] = self._create()
        return client

    async def aclose(self) -> None:
        """Close the session of the running event loop, with all connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _create(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector | None
        if self._session is not None:
            connector = self._session.connector
        else:
            connector = aiohttp.TCPConnector(
                # A proxy may have a private address, and resolves the names of sites itself.
                resolver=(
                    CurrentGuard()
                    if self._options.proxy is None
                    else AddressGuard(SystemResolver(), private_addresses="allow")
                ),
                use_dns_cache=False,
                force_close=True,
                limit=0,  # the gate has its own limits, so a fetch must not wait for another fetch here
                ssl=self._options.ssl_context or True,
            )
        client = aiohttp.ClientSession(
            connector=connector,
            connector_owner=self._session is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            trust_env=False,
            auto_decompress=False,  # aiohttp would accept a truncated gzip body as complete
            middlewares=(),
            response_class=WatchedResponse,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        if self._session is None:
            # aiohttp would repeat a request if the server closes the connection without a response. A borrowed
            # connector needs the repetition, because the server may have closed a connection that the connector reuses.
            client._retry_connection = False  # noqa: SLF001 - as aiohttp's own TestClient does
        return client


def _detach(clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession]) -> None:
    for client in clients.values():
        if not client.closed:
            client.detach()
