"""Resets HTTP/2 requests that httpx or httpx2 has given up. This module imports neither library.

RFC 9113 5.1: a server goes on with its answer until the client resets the stream. If a response is closed early, or a
request is cancelled or times out, httpcore and httpcore2 forget its stream, and send no reset. The turn of the request
must not end before the reset was sent, because the server would work on this request and on the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
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
        telling = [told for transport in transports for told in reset_given_up(transport)]
        if telling:  # ``wait`` lets the resets be sent even if this task is cancelled
            await asyncio.wait([asyncio.gather(*telling)])


def reset_given_up(transport: object) -> list[Coroutine[object, object, None]]:
    """Reset the HTTP/2 requests that were given up, and return coroutines that tell their servers.

    Args:
        transport: a transport of httpx or httpx2; for any other object, the list is empty.
    """
    telling: list[Coroutine[object, object, None]] = []
    pool: Any = getattr(transport, "_pool", None)  # neither library gives public access to connections and streams
    for connection in pool.connections if getattr(pool, "_http2", False) else ():
        http2: Any = getattr(connection, "_connection", None)
        h2: Any = None if connection.is_closed() else getattr(http2, "_h2_state", None)
        streams = () if h2 is None else tuple(h2.streams.items())
        given_up = [number for number, stream in streams if not stream.closed and number not in http2._events]  # noqa: SLF001 - as above
        for number in given_up if connection.is_available() else ():
            h2.reset_stream(number, _CANCEL)
        if given_up:
            telling.append(_tell(connection, http2))
    return telling


async def _tell(connection: Any, http2: Any) -> None:  # noqa: ANN401 - of httpcore or httpcore2
    """Send the resets of an HTTP/2 connection; close a connection that is broken, as after a read timeout."""
    sending = asyncio.ensure_future(http2._write_outgoing_data(_NO_TIMEOUTS))  # noqa: SLF001 - as above
    await asyncio.wait([sending], timeout=_RESET_S)
    if not sending.done() or sending.exception() is not None or not connection.is_available():
        sending.cancel()
        await connection.aclose()
