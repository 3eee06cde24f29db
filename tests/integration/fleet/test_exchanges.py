"""Several exchanges are under way at once: replies belong to their calls, and scripts run in order."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.fleet.messages import ScriptCall, WireLost
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import RedisWire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redis.asyncio import Redis

    from politesse._pacing.fleet.messages import Reply
    from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.realtime


@pytest.fixture
async def wire(server: RedisServer) -> AsyncIterator[RedisWire]:
    wire = RedisWire.of_url(server.url)
    await wire.open(f"{token_hex(6)}:to:one")
    yield wire
    await wire.aclose()


async def visits(wire: RedisWire, key: str, many: int, pause_s: float) -> list[Reply | Exception]:
    """Reserve and end a request in an exchange each, many times; return the replies."""
    common = (f"{key}:to:", 0, 0)
    times = (0, 0, 0, 1, 60_000_000, "", 60_000_000)
    exchanges = []
    for place in range(many):
        ticket = f"one.{place}"
        for script, words in ((Script.RESERVE, times), (Script.RELEASE, ("end", 1, -1, 0, 0, 0))):
            exchange = wire.exchange([ScriptCall(script, key, (*common, ticket, *words))])
            exchanges.append(asyncio.ensure_future(exchange))
            await asyncio.sleep(pause_s)
    return [reply for (reply,) in await asyncio.gather(*exchanges)]


@pytest.mark.parametrize("pause_s", [0.0, 0.0001])
@pytest.mark.parametrize("forgotten", ["never", "before", "meanwhile"])
async def test_each_end_comes_after_its_start(wire: RedisWire, redis: Redis, pause_s: float, forgotten: str) -> None:
    async def forget(after_s: float) -> None:
        await asyncio.sleep(after_s)
        await redis.script_flush()

    key = token_hex(6)
    if forgotten == "before":
        await forget(0.0)
    forgetting = asyncio.create_task(forget(0.003 if forgotten == "meanwhile" else 3600.0))
    replies = await visits(wire, key, 50, pause_s)
    forgetting.cancel()
    found = [reply[:2] if isinstance(reply, list) else reply for reply in replies]
    assert found == [[kind, f"one.{place}"] for place in range(50) for kind in ("granted", "released")]


async def test_a_connection_that_was_closed_is_not_opened_again_by_a_call(wire: RedisWire, redis: Redis) -> None:
    await redis.client_kill_filter(_type="normal", skipme=True)
    call = ScriptCall(Script.PROBE, token_hex(6), ("to:", 0, 0, "one"))
    for _ in range(3):
        with pytest.raises(WireLost):
            await wire.exchange([call])
