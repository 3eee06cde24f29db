"""What the proxies in front of Redis have in common: a server, and a task for each client."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

_ACCEPTED_S = 0.05  # until a client that was accepted just before the end has its task


class Proxy(ABC):
    """Listens on a port of its own.

    Attributes:
        backend_port: of the server behind it.
        url: where it is, for a client of Redis.
    """

    def __init__(self, backend_port: int) -> None:
        self.backend_port = backend_port
        self.url = ""
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.sleep(_ACCEPTED_S)
        while self._serving:
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until it is gone, or the proxy ends."""

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        # Not in the task: one that is cancelled before its first step does nothing.
        serving.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await self.serve(reader, writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whether the other end still reads or not."""
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()
