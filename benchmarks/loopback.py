"""Servers in processes of their own, apart from the time of the crawler: one answers at once, one is aiohttp's."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
_ROBOTS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
_END: Final = b"\r\n\r\n"
_SITE: Final = re.compile(rb"\r\nHost: site(\d+)", re.IGNORECASE)
_BACKLOG: Final = 1_000

P = ParamSpec("P")


@contextmanager
def serving(bodies: Sequence[bytes], *, by_aiohttp: bool = False) -> Iterator[int]:
    """Serve while the block runs; yields the port, on 127.0.0.1.

    Args:
        bodies: the robots.txt of the hosts ``site0``, ``site1`` and so on, whatever follows in the name; they repeat.
        by_aiohttp: whether a server of aiohttp answers, which takes the time that a server takes.
    """
    with process_running(_serve_by_aiohttp if by_aiohttp else _serve, bodies) as pipe:
        yield pipe.recv()


@contextmanager
def process_running(
    serve: Callable[Concatenate[Connection, P], None], *args: P.args, **kwargs: P.kwargs
) -> Iterator[Connection]:
    """Run ``serve(pipe, ...)`` in a process of its own while the block runs; yields the other end of the pipe."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=serve, args=(there, *args), kwargs=kwargs, daemon=True)
    process.start()
    there.close()  # so that a process that dies ends recv()
    try:
        yield here
    finally:
        process.terminate()
        process.join()


def _serve(there: Connection, bodies: Sequence[bytes]) -> None:
    robots = [_ROBOTS % (len(body), body) for body in bodies]

    def answer(request: bytes) -> bytes:
        site = _SITE.search(request) if request.startswith(b"GET /robots.txt ") else None
        return _ANSWER if site is None else robots[int(site[1]) % len(robots)]

    asyncio.run(_listen(there, lambda: AnsweringProtocol(answer)))


def _serve_by_aiohttp(there: Connection, bodies: Sequence[bytes]) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        number = int(request.host.removeprefix("site").partition(".")[0])
        return web.Response(body=bodies[number % len(bodies)], content_type="text/plain")

    async def listen() -> None:
        await _listen(there, web.Server(answer))

    asyncio.run(listen())


async def _listen(there: Connection, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=_BACKLOG)
    there.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class AnsweringProtocol(asyncio.Protocol):
    """Answers each request of a connection at once.

    Args:
        answer: returns the response to a request, whose octets it gets without the empty line at their end.
    """

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.WriteTransport):
            raise TypeError(f"{transport} cannot be written to")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(_END)
        for request in requests:
            self._transport.write(self._answer(request))
