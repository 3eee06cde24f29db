"""A server on loopback that speaks HTTP/2 and knows which of its requests are under way."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RequestReceived, StreamReset


@dataclass
class Http2Site:
    """The server and what it saw.

    Attributes:
        base: its origin.
        started: the path of each request, and the paths of the requests that were under way when it came.
        under_way: the paths of the requests that are under way.
        ended: why each request ended early: ``reset`` or ``closed``.
    """

    base: str = ""
    started: list[tuple[str, list[str]]] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    transports: list[asyncio.Transport] = field(default_factory=list)

    @property
    def connections(self) -> int:
        return len(self.transports)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.started]

    @property
    def beside(self) -> list[list[str]]:
        """The requests that were under way whenever another request came."""
        return [others for _, others in self.started if others]


class _Connection(asyncio.Protocol):
    """A connection: /slow sends its head and no end, /silent nothing at all, and every other path a page."""

    def __init__(self, site: Http2Site) -> None:
        self.site = site
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.open: dict[int, str] = {}
        self.answered: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.site.transports.append(transport)
        self.h2.initiate_connection()
        transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self.begin(event.stream_id, dict(event.headers)[b":path"].decode())
            elif isinstance(event, StreamReset):
                self.end(event.stream_id, "reset")
            elif isinstance(event, ConnectionTerminated):
                self.transport.close()
        for stream_id in [stream_id for stream_id in self.open if stream_id not in self.answered]:
            self.answer(stream_id, self.open[stream_id])
        self.transport.write(self.h2.data_to_send())

    def connection_lost(self, error: Exception | None) -> None:
        for stream_id in list(self.open):
            self.end(stream_id, "closed")

    def begin(self, stream_id: int, path: str) -> None:
        self.site.started.append((path, list(self.site.under_way)))
        self.site.under_way.append(path)
        self.open[stream_id] = path

    def answer(self, stream_id: int, path: str) -> None:
        self.answered.add(stream_id)
        if path.startswith("/silent"):
            return
        self.h2.send_headers(stream_id, [(":status", "200"), ("content-type", "text/plain")])
        self.h2.send_data(stream_id, b"first ")
        if not path.startswith("/slow"):
            self.h2.end_stream(stream_id)
            self.site.under_way.remove(self.open.pop(stream_id))

    def end(self, stream_id: int, why: str) -> None:
        if stream_id in self.open:
            path = self.open.pop(stream_id)
            self.site.under_way.remove(path)
            self.site.ended.append((path, why))


@asynccontextmanager
async def serving_http2(tls: ssl.SSLContext | None = None) -> AsyncIterator[Http2Site]:
    """Serve HTTP/2 with prior knowledge, or over TLS."""
    site = Http2Site()
    server = await asyncio.get_running_loop().create_server(partial(_Connection, site), "127.0.0.1", 0, ssl=tls)
    try:
        site.base = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield site
    finally:
        server.close()
        for transport in site.transports:
            transport.abort()
        await asyncio.sleep(0)
