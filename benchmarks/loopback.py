"""Servers in processes of their own, apart from the time of the crawler, and one that answers at once."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
_ROBOTS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
_END: Final = b"\r\n\r\n"

P = ParamSpec("P")


@contextmanager
def serving(robots: bytes) -> Iterator[str]:
    """Serve while the block runs; yields the URL of the site, without a path."""
    with process_running(_serve, robots) as pipe:
        yield f"http://127.0.0.1:{pipe.recv()}"


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


def _serve(there: Connection, robots: bytes) -> None:
    asyncio.run(_listen(there, _ROBOTS % (len(robots), robots)))


async def _listen(there: Connection, robots: bytes) -> None:
    def answer(request: bytes) -> bytes:
        return robots if request.startswith(b"GET /robots.txt ") else _ANSWER

    server = await asyncio.get_running_loop().create_server(lambda: AnsweringProtocol(answer), "127.0.0.1", 0)
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
