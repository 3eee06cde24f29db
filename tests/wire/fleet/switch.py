"""A proxy in front of Redis that moves its clients to another server without a word, as a failover behind it does.

It can also swallow what it should forward, as a machine on the way that has lost its power.
"""

import asyncio

from tests.wire.fleet.proxy import Proxy, hang_up


class Switch(Proxy):
    """Forwards connections."""

    def __init__(self, backend_port: int) -> None:
        super().__init__(backend_port)
        self._clients: list[_Client] = []

    async def move(self, port: int) -> None:
        """Have every client served by another server from now on; none may wait for an answer."""
        self.backend_port = port
        for client in self._clients:
            await client.connect(port)

    def swallow(self, *, published_only: bool = False) -> None:
        """Forward nothing to the clients that are connected now; or only to those that have subscribed."""
        for client in self._clients:
            client.is_swallowed = client.has_subscribed or not published_only

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        self._clients.append(client)
        try:
            await client.connect(self.backend_port)
            while data := await reader.read(65_536):
                client.has_subscribed = client.has_subscribed or b"SUBSCRIBE" in data.upper()
                client.backend.write(data)
        finally:
            await client.close_backend()


class _Client:
    """One connection, and the one to the server behind it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._answers: asyncio.Task[None] | None = None
        self.backend: asyncio.StreamWriter
        self.has_subscribed = self.is_swallowed = False

    async def connect(self, port: int) -> None:
        if self._answers is not None:
            await self.close_backend()
        reader, self.backend = await asyncio.open_connection("127.0.0.1", port)
        self._answers = asyncio.create_task(self._answer(reader))

    async def close_backend(self) -> None:
        if self._answers is not None:
            self._answers.cancel()
            await hang_up(self.backend)

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65_536):
            if not self.is_swallowed:
                self._writer.write(data)
