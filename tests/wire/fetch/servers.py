"""Servers on loopback that answer octet by octet as a test says, and requests of AiohttpFetcher to them."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import aiohttp
import trustme
from aiohttp.abc import AbstractResolver, ResolveResult

from politesse import FetchOptions, Gatekeeper, Reason
from politesse._http.redirects import follow
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult, Validators
from politesse.testing import ScriptedResolver
from tests.support.sites import EAGER, UA
from tests.support.tasks import settle

FILE = b"User-agent: *\nDisallow: /private\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PUBLIC = "93.184.216.34"
"""Stands behind 127.0.0.1 in mixed answers, so that a hop counts as public; it is never connected to."""


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
Row = Answer | dict[str, Answer]


def response(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    """Return a whole answer; underscores in header names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def gzipped(octets: bytes) -> bytes:
    return response(200, octets, Content_Encoding="gzip")


def chunked(*pieces: bytes) -> Handler:
    """Return the handler that sends the head of a chunked answer, and each piece in a write of its own."""
    return in_pieces(CHUNKED, *pieces)


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
        answers: by host and request target, or by request target; others are 404.
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

    def url(self, target: str = "/robots.txt", *, host: str = "127.0.0.1") -> str:
        return f"{'http' if self._ssl_context is None else 'https'}://{host}:{self.port}{target}"

    def origin(self, host: str = "127.0.0.1") -> Origin:
        return Origin.of(self.url(host=host))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._ssl_context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await settle()  # a connection that is being accepted
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = _parse(await reader.readuntil(b"\r\n\r\n"))
            self.requests.append(request)
            by_host = request.host.partition(":")[0] + request.target
            answer = self.answers.get(by_host, self.answers.get(request.target, response(404)))
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
    fields = (line.partition(":") for line in lines)
    return Request(method, target, {name.lower(): value.strip() for name, _, value in fields})


class Names(ScriptedResolver):
    """A Resolver for which all given names are on loopback."""

    def __init__(self, *names: str, **addresses: Sequence[str]) -> None:
        super().__init__({**dict.fromkeys(names, ("127.0.0.1",)), **addresses})


@cache
def bomb() -> bytes:
    """Return octets that decode to far more than any limit."""
    return gzip.compress(b"User-agent: *\n" + b"Disallow: /bomb\n" * 400_000)


class Loopback(AbstractResolver):
    """aiohttp's kind of resolver, for which every name is on loopback."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def borrowed(*, is_borrowed: bool = True) -> AsyncIterator[aiohttp.ClientSession | None]:
    """Return a session whose connector is lent, or None."""
    if not is_borrowed:
        yield None
        return
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as session:
        yield session


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> FetchOptions:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return FetchOptions(ssl_context=context)


async def fetch_from(
    server: Server,
    options: FetchOptions | None = None,
    *,
    host: str = "127.0.0.1",
    validators: Validators | None = None,
    **parts: Any,
) -> FetchResult:
    """Fetch robots.txt as a gate does, which follows the redirects of its fetcher."""
    fetcher = AiohttpFetcher(UA, options, **parts)
    try:
        request = FetchRequest(server.origin(host), 0, validators)
        result = await follow(request, await fetcher.fetch(request), 5, fetcher.fetch)
        assert result is not None, "a redirect without its target"
        return result
    finally:
        await fetcher.aclose()


def responded(result: FetchResult) -> FetchResponse:
    assert isinstance(result, FetchResponse), result
    return result


def faulted(result: FetchResult) -> FetchFault:
    assert isinstance(result, FetchFault), result
    return result


async def outcomes(rows: Mapping[str, Row], session: aiohttp.ClientSession | None = None) -> dict[str, str]:
    """Return what a gate decides for the answers of each row, which is a host of its own."""
    hosts = {name: f"host{place}.example" for place, name in enumerate(rows)}
    answers: dict[str, Answer] = {}
    for name, row in rows.items():
        of_row = row if isinstance(row, dict) else {"/robots.txt": row}
        answers |= {hosts[name] + target: answer for target, answer in of_row.items()}
    names = Names(*hosts.values())
    async with Server(answers) as server, Gatekeeper(UA, session=session, resolver=names, pacing=EAGER) as gate:
        found = {name: await _outcome(gate, server, host) for name, host in hosts.items()}
        assert gate.statistics().fetches == len(rows)
        asked = [(request.host, request.target) for request in server.requests]
        assert len(asked) == len(set(asked)), "a request was repeated"
    return found


async def _outcome(gate: Gatekeeper, server: Server, host: str) -> str:
    """Return the access result, the status, the reasons for /private and /public, and the kind of the fault."""
    *pages, robots = [await gate.check(server.url(path, host=host)) for path in ("/private", "/public", "/robots.txt")]
    assert (robots.allowed, robots.reason) == (True, Reason.ROBOTS_TXT)
    assert [page.allowed for page in pages] == [page.reason in {"no-rule", "unavailable"} for page in pages]
    source = pages[0].source
    assert source is not None
    assert source.robots_url == server.url(host=host)
    fault = source.fault.partition(": ")[0].partition(" http")[0]
    return " ".join([source.result, str(source.status), *(page.reason for page in pages), *([fault] if fault else [])])
