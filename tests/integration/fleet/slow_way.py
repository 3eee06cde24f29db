"""A proxy in front of Redis that takes its time, as a server on another continent does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class SlowWay:
    """Forwards what is sent either way after half of ``trip_s`` seconds."""

    def __init__(self, port: int, trip_s: float) -> None:
        self._port = port
        self.trip_s = trip_s
        self._clients: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = await asyncio.open_connection("127.0.0.1", self._port)
        for way in (self._forward(reader, backend[1]), self._forward(backend[0], writer)):
            self._clients.add(asyncio.create_task(way))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            with suppress(ConnectionError):
                while data := await reader.read(65_536):
                    loop.call_later(0.5 * self.trip_s, writer.write, data)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
