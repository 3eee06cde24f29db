"""Letting the tasks of an event loop run."""

from __future__ import annotations

import asyncio


async def settle(rounds: int = 20) -> None:
    """Let every task run as far as it can without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)
