"""Servers on loopback that answer octet by octet as a test says."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Self

from politesse.origin import Origin
from politesse.testing import ScriptedResolver
from tests.support.tasks import settle

FILE = b"User-agent: *\nDisallow: /private\n"


@dataclass(frozen=True)
class Request:
    """A request that a server has received."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def host(self) -> str:
        return self.headers.get("host", "")


Handler = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Handler


def response(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    """Return a whole answer; underscores in header names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def gzipped(octets: bytes) -> bytes:
    return response(200, octets, Content_Encoding="gzip")


def chunked(*pieces: bytes) -> Handler:
    """Return the handler that sends the head of a chunked answer, and each piece in a write of its own."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return in_pieces(head, *pieces)


def in_pieces(*pieces: bytes) -> Handler:
    async def handler(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)  # so that they arrive one by one

    return handler


def endless(head: bytes, piece: bytes, *, pause_s: float = 0.0) -> Handler:
    """Return the handler that never stops sending ``piece``."""

    async def handler(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return handler


async def silence(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the other side gives up."""
    await reader.read()


def reset_after(octets: bytes) -> Handler:
    """Return the handler that sends ``octets`` and breaks the connection with a RST."""

    async def handler(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(octets)
        await writer.drain()
        await asyncio.sleep(0.005)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return handler


class Server:
    """An HTTP/1.1 server that closes each connection after an answer.

    Attributes:
        answers: by request target; others are 404.
        requests: the requests so far.
        port: the port of the server.
        closed_by_client: set when the client has closed a connection on which it was answered.
    """

    def __init__(self, answers: dict[str, Answer] | Answer = b"", ssl_context: ssl.SSLContext | None = None) -> None:
        self.answers = answers if isinstance(answers, dict) else {"/robots.txt": answers}
        self.requests: list[Request] = []
        self.port = 0
        self.closed_by_client = asyncio.Event()
        self._ssl_context = ssl_context
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def url(self, target: str = "/robots.txt", *, host: str = "127.0.0.1") -> str:
        return f"{'http' if self._ssl_context is None else 'https'}://{host}:{self.port}{target}"

    def origin(self, host: str = "127.0.0.1") -> Origin:
        return Origin.of(self.url(host=host))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._ssl_context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await settle()  # a connection that is being accepted
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = _parse(await reader.readuntil(b"\r\n\r\n"))
            self.requests.append(request)
            answer = self.answers.get(request.target, response(404))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(request, reader, writer)
            if not writer.transport.is_closing():
                writer.write_eof() if writer.can_write_eof() else writer.close()
                await reader.read()
                self.closed_by_client.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_client.set()
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()


def _parse(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, target, headers)


class Names(ScriptedResolver):
    """A Resolver for which all given names are on loopback."""

    def __init__(self, *names: str, **addresses: Sequence[str]) -> None:
        super().__init__({**dict.fromkeys(names, ("127.0.0.1",)), **addresses})


@cache
def bomb() -> bytes:
    """Return octets that decode to far more than any limit."""
    return gzip.compress(b"User-agent: *\n" + b"Disallow: /bomb\n" * 1_000_000)
