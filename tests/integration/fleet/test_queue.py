"""Queues and batches of a fleet on a real Redis."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from politesse import Gatekeeper, PacingOptions, PoliteQueue, Turn
from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.wire import RedisWire
from politesse.clock import SystemClock
from politesse.errors import ConfigurationError
from politesse.events import Publisher
from politesse.options import FleetOptions, Limit
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from politesse.verdict import NotYet
from tests.integration.fleet.crawls import Crawl, Host, violations
from tests.integration.fleet.site import ObservedSite
from tests.integration.sites import UA
from tests.support.pacing import HOST, Resolving, finish, wants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Redis

    from politesse._pacing.fleet.messages import Reply, ScriptCall
    from tests.integration.fleet.members import Members
    from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.realtime

ROOT: Final = Path(__file__).parents[3]
HOSTS: Final = tuple(Host(f"host{number}.example", 0.1, 0.02) for number in range(8))


class CountingWire(RedisWire):
    """Counts the round trips of scripts."""

    trips = 0

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        self.trips += 1
        return await super().exchange(calls)


async def test_two_processes_share_one_pace_through_their_queues(server: RedisServer, prefix: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    async with ObservedSite(HOSTS) as site:
        crawl = Crawl(server.url, prefix, site.port, HOSTS).to_json()
        command = (sys.executable, "-m", "tests.integration.fleet.queue_worker", crawl)
        workers = [
            await asyncio.create_subprocess_exec(*command, str(number), cwd=ROOT, env=environment)
            for number in range(2)
        ]
        try:
            async with asyncio.timeout(60.0):
                while any(
                    len({visit.worker for visit in site.visits if visit.host == host.name}) < 2
                    or sum(visit.host == host.name for visit in site.visits) < 12
                    for host in HOSTS
                ):
                    await asyncio.sleep(0.05)
        finally:
            for worker in workers:
                worker.kill()
                await worker.wait()
    assert list(violations(site.visits, HOSTS, 1.0)) == []


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


async def test_a_queue_waits_for_an_address_that_its_hosts_share(server: RedisServer, prefix: str) -> None:
    site = ScriptedFetcher({f"https://{name}.example": 404 for name in "abc"})
    resolver = Resolving({f"{name}.example": ["192.0.2.1"] for name in "abc"})
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, address=Limit(min_delay_s=0.1))
    fleet = FleetOptions(server.url, prefix=prefix)
    spans: list[tuple[float, float]] = []
    async with Gatekeeper(UA, fetcher=site, resolver=resolver, fleet=fleet, pacing=pacing) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        for page in range(2):
            for name in "abc":
                await queue.put(f"https://{name}.example/{page}")
        queue.close()

        async def work() -> None:
            with suppress(QueueClosed):
                while True:
                    async with queue.turn() as turn:
                        began_mono = time.monotonic()
                        turn.observe(200)
                        spans.append((began_mono, time.monotonic()))

        async with asyncio.timeout(30.0):
            await asyncio.gather(work(), work())
    spans.sort()
    assert len(spans) == 6
    assert all(after[0] - before[1] >= 0.1 for before, after in pairwise(spans))


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
    wire = CountingWire.of_url(server.url)
    # However busy this machine is, no answer is late.
    options = FleetOptions(server.url, prefix=prefix, timeout_s=30.0, slack=1.0, max_slack_s=30.0)
    pacer = fleet.member(link=FleetLink(wire, options, clock=SystemClock(), publisher=Publisher()))
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


async def test_a_start_that_was_reserved_and_is_not_taken_is_given_back(fleet: Members) -> None:
    one, other = fleet.member(), fleet.member()
    called: list[float] = []
    one.when_ready(wants(), lambda: called.append(time.monotonic()))
    async with asyncio.timeout(10.0):
        while not called:
            await asyncio.sleep(0.005)
    finish(await other.start(wants(), 5.0), 200)
    assert one.in_flight == 0


async def test_a_start_that_was_reserved_can_be_taken_a_step_after_the_call(fleet: Members) -> None:
    pacer = fleet.member(PacingOptions(min_delay_s=0.5, adaptive_factor=0.0))
    called = asyncio.Event()
    pacer.when_ready(wants(), called.set)
    async with asyncio.timeout(10.0):
        await called.wait()
    permit = pacer.try_start(wants())
    assert not isinstance(permit, NotYet)
    finish(permit, 200)
