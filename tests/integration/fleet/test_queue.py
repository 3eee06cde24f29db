"""Queues and batches of a fleet on a real Redis."""

import asyncio
import time
from contextlib import suppress
from itertools import pairwise

import pytest
from redis.asyncio import Redis

from politesse import Gatekeeper, PacingOptions, PoliteQueue, Turn
from politesse.errors import ConfigurationError
from politesse.options import FleetOptions
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from politesse.verdict import NotYet
from tests.integration.fleet.members import CountingWire, Members
from tests.integration.sites import UA
from tests.support.pacing import HOST, finish, wants
from tests.support.redis_servers import RedisServer, client_at

pytestmark = pytest.mark.realtime


async def test_a_worker_of_a_queue_finds_no_turn_before_its_time(server: RedisServer, prefix: str) -> None:
    fleet = FleetOptions(server.url, prefix=prefix)
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)
    site = ScriptedFetcher({f"https://{name}.example": 404 for name in "abc"})
    spans: dict[str, list[tuple[float, float]]] = {}
    async with Gatekeeper(UA, fetcher=site, fleet=fleet, pacing=pacing) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for page in range(4):
            for name in "abc":
                await queue.put(f"https://{name}.example/{page}")
        queue.close()
        with suppress(QueueClosed):
            while True:
                async with queue.turn() as turn:
                    began_mono = time.monotonic()
                    turn.observe(200)
                spans.setdefault(turn.url[:16], []).append((began_mono, time.monotonic()))
    assert [len(visits) for visits in spans.values()] == [4, 4, 4]
    for visits in spans.values():
        assert all(after[0] - before[1] >= 0.2 for before, after in pairwise(visits))


async def test_a_key_that_cannot_be_used_is_an_error_of_the_queue(
    server: RedisServer, prefix: str, redis: Redis
) -> None:
    await redis.set(f"{prefix}host:{HOST}", "1")
    site = ScriptedFetcher({f"https://{HOST}": 404})
    async with Gatekeeper(UA, fetcher=site, fleet=FleetOptions(server.url, prefix=prefix)) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(f"https://{HOST}/")
        with pytest.raises(ConfigurationError, match="cannot be used"):
            async with asyncio.timeout(10.0), queue.turn():
                pytest.fail("a turn without a pace")


async def test_a_hundred_hosts_are_granted_in_one_round_trip(server: RedisServer, prefix: str, fleet: Members) -> None:
    wire = CountingWire(client_at(server.url))
    # However busy this machine is, no answer is late.
    options = FleetOptions(prefix=prefix, timeout_s=30.0, slack=1.0, max_slack_s=30.0)
    pacer = fleet.member(link=fleet.link_of(wire, options))
    await pacer.closed_until(HOST)  # it is connected
    wire.trips = 0
    answers = await pacer.try_starts([wants(host=f"host{number}.example") for number in range(100)])
    assert wire.trips == 1
    assert not any(isinstance(answer, NotYet) for answer in answers)
    for answer in answers:
        assert not isinstance(answer, NotYet)
        finish(answer, 200)


async def test_one_host_that_cannot_be_used_costs_no_other_its_turn(
    server: RedisServer, prefix: str, redis: Redis
) -> None:
    await redis.set(f"{prefix}host:b.example", "1")
    site = ScriptedFetcher({f"https://{name}.example": 404 for name in "abc"})
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    urls = [f"https://{name}.example/" for name in "abc"]
    async with Gatekeeper(UA, fetcher=site, pacing=pacing, fleet=FleetOptions(server.url, prefix=prefix)) as gate:
        await gate.check_batch(urls)
        first, second, third = await gate.try_turns(urls)
        assert isinstance(second, NotYet)
        for turn in (first, third):
            assert isinstance(turn, Turn)
            with turn:
                turn.observe(200)
