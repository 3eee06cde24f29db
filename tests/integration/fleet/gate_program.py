"""A crawler in a process of its own: ``python -m tests.integration.fleet.gate_program KIND FLEET URL COUNT``.

It requests a URL so often, with a Gatekeeper or a PoliteSession that are told nothing but their fleet.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp

from politesse import Gatekeeper, PoliteSession
from tests.integration.sites import UA


async def by_gate(fleet: str, url: str, count: int) -> None:
    async with Gatekeeper(UA, fleet=fleet) as gate, aiohttp.ClientSession() as client:
        for _ in range(count):
            async with gate.turn(url) as turn, client.get(turn.url) as response:
                turn.observe(response.status, response.headers)
                await response.read()


async def by_session(fleet: str, url: str, count: int) -> None:
    async with PoliteSession(UA, fleet=fleet) as web:
        for _ in range(count):
            async with web.get(url) as response:
                await response.read()


if __name__ == "__main__":
    crawl = {"gate": by_gate, "session": by_session}[sys.argv[1]]
    asyncio.run(crawl(sys.argv[2], sys.argv[3], int(sys.argv[4])))
