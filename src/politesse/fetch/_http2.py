"""The internals of httpx, httpx2 and their httpcore: no other module uses an undocumented name of these libraries.

This module imports none of them. They may change these names in any version; the names are the same in httpx 0.28 with
httpcore 1.0.9, and in httpx2 2.16.

Reset of HTTP/2 requests. RFC 9113 5.1: a server goes on with its answer until the client resets the stream. If a
response is closed early, or a request is cancelled or times out, httpcore and httpcore2 forget its stream, and send no
reset. The turn of the request must not end before the reset was sent, because the server would work on this request and
on the next one. The libraries give no public access to their streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

_CANCEL: Final = 8  # RFC 9113 7: the response is no longer wanted
_RESET_S: Final = 5.0
_NO_TIMEOUTS: Final = SimpleNamespace(extensions={})  # takes the place of a request


@asynccontextmanager
async def resetting(clients: Callable[[], Iterable[object]]) -> AsyncGenerator[None]:
    """After the block, reset the HTTP/2 requests that the clients have given up.

    Args:
        clients: called after the block; returns clients of httpx or httpx2. Other objects are ignored.
    """
    try:
        yield
    finally:
        transports: list[object] = []
        for client in clients():
            transports += [getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values()]
        await reset_given_up(*transports)


async def reset_given_up(*transports: object) -> None:
    """Reset the HTTP/2 requests that were given up, and tell their servers.

    If there is nothing to reset, this function does not suspend the task. The resets are sent even if the task is
    cancelled meanwhile.

    Args:
        transports: transports of httpx or httpx2, also transports that wrap one; other objects are ignored.
    """
    telling: list[asyncio.Task[None]] = []
    for connection in (found for transport in transports for found in _http2_connections(transport)):
        http2: Any = getattr(connection, "_connection", None)
        h2: Any = None if connection.is_closed() else getattr(http2, "_h2_state", None)
        streams = () if h2 is None else tuple(h2.streams.items())
        permits: Any = getattr(getattr(http2, "_max_streams_semaphore", None), "_anyio_semaphore", None)
        if hasattr(permits, "_max_value"):
            # httpcore makes 100 permits and takes 99 back, one in each step of the event loop. If the request is
            # cancelled meanwhile, too many are left: a later ``release`` raises ValueError before httpcore forgets the
            # stream.
            permits._max_value = None  # noqa: SLF001 - without a maximum, ``release`` cannot fail
        given_up = [number for number, stream in streams if not stream.closed and number not in http2._events]  # noqa: SLF001
        for number in given_up if connection.is_available() else ():
            h2.reset_stream(number, _CANCEL)
        if given_up:
            telling.append(asyncio.ensure_future(_tell(connection, http2)))
    if telling:
        await asyncio.wait(telling)


def _http2_connections(sender: Any, depth: int = 3) -> Iterator[Any]:  # noqa: ANN401 - of httpcore or httpcore2
    """Yield the connections of a transport, or of the transports that it wraps, if they may be of HTTP/2."""
    if getattr(sender, "_http2", False) and hasattr(sender, "connections"):  # a pool
        _keep_connections(sender)
        yield from sender.connections
    for inner in getattr(sender, "__dict__", {}).values() if depth else ():
        if hasattr(inner, "handle_async_request"):
            yield from _http2_connections(inner, depth - 1)


def _keep_connections(pool: Any) -> None:  # noqa: ANN401 - of httpcore or httpcore2
    """Return connections to a pool that dropped them, although requests go on to use them.

    The pool drops a connection if any of its requests is cancelled while it is made; nothing would find its streams.
    """
    kept = {None, *pool.connections}
    for connection in {request.connection for request in pool._requests} - kept:  # noqa: SLF001
        for part in (connection, connection._connection):  # noqa: SLF001 - a tunnel has the flag one level deeper
            if hasattr(part, "_connect_failed"):
                part._connect_failed = False  # noqa: SLF001 - else the pool would drop it again
        pool._connections.append(connection)  # noqa: SLF001


async def _tell(connection: Any, http2: Any) -> None:  # noqa: ANN401 - of httpcore or httpcore2
    """Send the resets of an HTTP/2 connection; close a connection that is broken, as after a read timeout."""
    sending = asyncio.ensure_future(http2._write_outgoing_data(_NO_TIMEOUTS))  # noqa: SLF001 - as above
    await asyncio.wait([sending], timeout=_RESET_S)
    if not sending.done() or sending.exception() is not None or not connection.is_available():
        sending.cancel()
        await connection.aclose()


def replace_backend(transport: object, pool_class: type[Any], wrap: Callable[[Any], object]) -> bool:
    """Let a new transport connect through ``wrap(backend)``, of its own network backend; neither library has an option.

    Return False if the transport is not new, connects through a proxy or a Unix socket, or has another pool.
    """
    pool: Any = getattr(transport, "_pool", None)
    if type(pool) is not pool_class or getattr(pool, "_proxy", None) or pool._uds or pool.connections:  # noqa: SLF001
        return False
    pool._network_backend = wrap(pool._network_backend)  # noqa: SLF001
    return True
