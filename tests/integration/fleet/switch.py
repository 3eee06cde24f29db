"""A proxy in front of Redis that moves its clients to another server without a word, as a failover behind it does.

It can also swallow what it should forward, as a machine on the way that has lost its power.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class Switch:
    """Forwards connections."""

    def __init__(self, port: int) -> None:
        self._backend_port = port
        self._clients: list[_Client] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for client in self._clients:
            client.close()

    async def move(self, port: int) -> None:
        """Have every client served by another server from now on; none may wait for an answer."""
        self._backend_port = port
        for client in self._clients:
            await client.connect(port)

    def swallow(self, *, published_only: bool = False) -> None:
        """Forward nothing to the clients that are connected now; or only to those that have subscribed."""
        for client in self._clients:
            client.is_swallowed = client.has_subscribed or not published_only

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        self._clients.append(client)
        await client.connect(self._backend_port)
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                client.has_subscribed = client.has_subscribed or b"SUBSCRIBE" in data.upper()
                client.backend.write(data)
        client.close()


class _Client:
    """One connection, and the one to the server behind it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._answers: asyncio.Task[None] | None = None
        self.backend: asyncio.StreamWriter
        self.has_subscribed = self.is_swallowed = False

    async def connect(self, port: int) -> None:
        if self._answers is not None:
            self.close_backend()
        reader, self.backend = await asyncio.open_connection("127.0.0.1", port)
        self._answers = asyncio.create_task(self._answer(reader))

    def close_backend(self) -> None:
        if self._answers is not None:
            self._answers.cancel()
            self.backend.close()

    def close(self) -> None:
        self.close_backend()
        self._writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65_536):
            if not self.is_swallowed:
                self._writer.write(data)
