"""Proxies in front of Redis: one that takes its time, and one that moves its clients to another server."""

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


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whether the other end still reads or not."""
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


class SlowWay(Proxy):
    """Forwards what is sent either way after half of ``trip_s`` seconds, as a server on another continent does.

    Attributes:
        trip_s: may be changed at any time. What is under way then arrives when it was to arrive, and what is sent
            later not before it.
    """

    def __init__(self, backend_port: int, trip_s: float) -> None:
        super().__init__(backend_port)
        self.trip_s = trip_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, backend = await asyncio.open_connection("127.0.0.1", self.backend_port)
        ways = [asyncio.create_task(self._forward(*way)) for way in ((reader, backend), (answers, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _hang_up(backend)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(self._arrive(on_the_way, writer))
        try:
            data = b"-"
            while data:  # an empty one is the end
                data = await reader.read(65_536)
                on_the_way.put_nowait((asyncio.get_running_loop().time() + 0.5 * self.trip_s, data))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(self, on_the_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        data = b"-"
        while data:
            due, data = await on_the_way.get()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            writer.write(data)


class Switch(Proxy):
    """Moves its clients to another server without a word, as a failover behind it does.

    It can also swallow what it should forward, as a machine on the way that has lost its power.
    """

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
        await self.close_backend()
        reader, self.backend = await asyncio.open_connection("127.0.0.1", port)
        self._answers = asyncio.create_task(self._answer(reader))

    async def close_backend(self) -> None:
        if self._answers is not None:
            self._answers.cancel()
            await _hang_up(self.backend)

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65_536):
            if not self.is_swallowed:
                self._writer.write(data)
