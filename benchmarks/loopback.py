"""A server in a process of its own, so that its processor time is nobody's: it answers whatever is asked, at once."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
_ROBOTS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
_END: Final = b"\r\n\r\n"


@contextmanager
def serving(robots: bytes) -> Iterator[str]:
    """Serve while the block runs; yields the URL of the site, without a path."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    server = spawning.Process(target=_serve, args=(there, robots), daemon=True)
    server.start()
    there.close()  # so that a server that dies is heard
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        server.terminate()
        server.join()


def _serve(there: Connection, robots: bytes) -> None:
    asyncio.run(_listen(there, _ROBOTS % (len(robots), robots)))


async def _listen(there: Connection, robots: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Answering(robots), "127.0.0.1", 0)
    there.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Answering(asyncio.Protocol):
    def __init__(self, robots: bytes) -> None:
        self._robots = robots
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.WriteTransport):
            raise TypeError(f"{transport} cannot be written to")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._asked = (self._asked + data).split(_END)
        for request in requests:
            self._transport.write(self._robots if request.startswith(b"GET /robots.txt ") else _ANSWER)
