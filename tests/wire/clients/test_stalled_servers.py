"""A healthy site beside a thousand servers that accept connections and never answer."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from politesse import FetchOptions, Gatekeeper

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
TIMEOUT_S: Final = 15.0
# It has a process of its own: accepting a thousand connections is to cost the gate nothing. It listens at every
# address of loopback, and prints the ports of its silent and of its healthy server.
SERVER: Final = """
import asyncio

async def stall(reader, writer):
    await reader.read(-1)

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    body = b"User-agent: *\\nDisallow: /private\\n"
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    await writer.drain()
    writer.close()

async def main():
    servers = [await asyncio.start_server(handler, "0.0.0.0", 0, backlog=2000) for handler in (stall, answer)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, int]]:
    """Yield the ports of a server that never answers, and of one that does."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        stalled, healthy = (await process.stdout.readline()).split()
        yield int(stalled), int(healthy)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address there")
async def test_a_thousand_servers_that_never_answer_do_not_hold_up_a_healthy_one() -> None:
    options = FetchOptions(total_timeout_s=TIMEOUT_S)
    async with serving() as (stalled, healthy), Gatekeeper(UA, fetch=options) as gate:
        urls = [f"http://127.1.{place // 250}.{place % 250 + 1}:{stalled}/page" for place in range(1000)]
        asking = asyncio.ensure_future(gate.check_batch(urls))
        await asyncio.sleep(0)
        took_s = []
        for place in range(3):
            before = time.monotonic()
            assert await gate.check(f"http://127.2.0.{place + 1}:{healthy}/page")
            took_s.append(time.monotonic() - before)
            assert not asking.done(), "the others are still being waited for"
        asking.cancel()
    assert max(took_s) < TIMEOUT_S / 2, took_s  # not what it takes, but that nobody waits for the time limit
