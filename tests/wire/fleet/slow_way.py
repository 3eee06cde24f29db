"""A proxy in front of Redis that takes its time, as a server on another continent does."""

import asyncio

from tests.wire.fleet.proxy import Proxy, hang_up


class SlowWay(Proxy):
    """Forwards what is sent either way after half of ``trip_s`` seconds, in the order in which it was sent.

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
            await hang_up(backend)

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
