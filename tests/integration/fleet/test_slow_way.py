"""The proxy that takes its time is no worse than TCP: it keeps the order of what is sent."""

from __future__ import annotations

import asyncio
import time
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.integration.fleet.slow_way import SlowWay

pytestmark = pytest.mark.realtime

TRIP_S: Final = 0.2


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def test_what_is_sent_arrives_in_its_order_and_in_its_time_though_the_way_becomes_shorter() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, SlowWay(server.sockets[0].getsockname()[1], TRIP_S) as way:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(way.url).port)
        sent_mono = time.monotonic()
        for octet in range(50):
            writer.write(bytes([octet]))
            await asyncio.sleep(0.001)
            way.trip_s = max(0.0, TRIP_S - 0.02 * octet)
        async with asyncio.timeout(10.0):
            assert await reader.readexactly(1) == bytes([0])
            assert time.monotonic() - sent_mono >= 0.5 * TRIP_S
            assert await reader.readexactly(49) == bytes(range(1, 50))
        writer.close()
