"""A server in a process of its own, so that its processor time is nobody's: it answers whatever is asked, at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from benchmarks.many_hosts.serving import permit_open_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
_ROBOTS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
_MOST_CONNECTIONS: Final = 5_000
_END: Final = b"\r\n\r\n"
_SITE: Final = re.compile(rb"\r\nHost: site(\d+)", re.IGNORECASE)


@contextmanager
def serving(bodies: Sequence[bytes], *, by_aiohttp: bool = False) -> Iterator[int]:
    """Serve while the block runs; yields the port, on 127.0.0.1.

    Args:
        bodies: the robots.txt of the hosts ``site0``, ``site1`` and so on, whatever follows in the name; they repeat.
        by_aiohttp: whether a server of aiohttp answers, which takes the time that a server takes.
    """
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    server = spawning.Process(target=_serve, args=(there, bodies, by_aiohttp), daemon=True)
    server.start()
    there.close()  # so that a server that dies is heard
    try:
        yield here.recv()
    finally:
        server.terminate()
        server.join()


def _serve(there: Connection, bodies: Sequence[bytes], by_aiohttp: bool) -> None:  # noqa: FBT001 - by position only
    permit_open_files(_MOST_CONNECTIONS)
    if by_aiohttp:
        asyncio.run(_listen_by_aiohttp(there, bodies))
    else:
        asyncio.run(_listen(there, [_ROBOTS % (len(body), body) for body in bodies]))


async def _listen_by_aiohttp(there: Connection, bodies: Sequence[bytes]) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        number = int(request.host.removeprefix("site").partition(".")[0])
        return web.Response(body=bodies[number % len(bodies)], content_type="text/plain")

    server = await asyncio.get_running_loop().create_server(web.Server(answer), "127.0.0.1", 0, backlog=1_000)
    there.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _listen(there: Connection, answers: Sequence[bytes]) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Answering(answers), "127.0.0.1", 0, backlog=1_000)
    there.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Answering(asyncio.Protocol):
    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = answers
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.WriteTransport):
            raise TypeError(f"{transport} cannot be written to")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._asked = (self._asked + data).split(_END)
        for request in requests:
            site = _SITE.search(request) if request.startswith(b"GET /robots.txt ") else None
            self._transport.write(_ANSWER if site is None else self._answers[int(site[1]) % len(self._answers)])
