"""The clock of Redis is set while a fleet is at work: nothing starts early for it, and nothing waits for that long."""

import asyncio
import re
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest
from redis.asyncio import Redis

from politesse import PacingOptions
from politesse.errors import TooFar
from politesse.events import FleetAway
from politesse.ports import Pacer
from politesse.verdict import NotYet
from tests.support.pacing import HOST, finish, wants
from tests.support.redis_servers import RedisServer, client_at
from tests.wire.fleet.members import FastWire, Members, ShiftedWire, visit

pytestmark = [pytest.mark.realtime, pytest.mark.usefixtures("quick_looks")]

HOUR_S: Final = 3_600


@pytest.fixture
async def members(fleet: Members, server: RedisServer, prefix: str, request: pytest.FixtureRequest) -> Sequence[Pacer]:
    """Return two pacers that are connected."""
    wires = [ShiftedWire(server.url, f"{prefix}shift") for _ in range(2)]
    options = PacingOptions(adaptive_factor=0.0, **getattr(request, "param", {"min_delay_s": 0.1}))
    links = [fleet.link_of(wire) for wire in wires]
    pacers = [fleet.member(options, link) for link in links]
    async with asyncio.timeout(20.0):
        for link in links:
            while not link.is_up:
                await link.tried()
    return pacers


async def set_clock(redis: Redis, prefix: str, by_s: int) -> None:
    await redis.set(f"{prefix}shift", by_s)


def was_noticed(fleet: Members, way: str) -> bool:
    return any(f"its clock was set {way} by" in event.error for event in fleet.events if isinstance(event, FleetAway))


async def test_a_clock_that_is_right_is_never_reported(fleet: Members, members: Sequence[Pacer]) -> None:
    for _ in range(10):
        for pacer in members:
            await visit(pacer)
    await asyncio.sleep(0.6)
    assert fleet.events == []


@pytest.mark.full
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S, *(pytest.param(s, marks=pytest.mark.weekly) for s in (1, -1))])
@pytest.mark.parametrize("members", [{"min_delay_s": 3.0}], indirect=True)
async def test_an_interval_is_kept(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int
) -> None:
    one, other = members
    await visit(one)
    ended_mono = time.monotonic()
    await set_clock(redis, prefix, by_s)
    finish(await other.start(wants(), 15.0), 200)
    assert time.monotonic() - ended_mono >= 3.0
    assert was_noticed(fleet, "forward" if by_s > 0 else "back")


@pytest.mark.full
@pytest.mark.parametrize("by_s", [HOUR_S, pytest.param(-HOUR_S, marks=pytest.mark.weekly)])
async def test_a_request_under_way_keeps_the_others_away(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int
) -> None:
    one, other = members
    held = await one.start(wants())
    await set_clock(redis, prefix, by_s)
    with pytest.raises(TooFar):  # its process looks, and renews its lease, before the other one may start
        await other.start(wants(), 6.0)
    finish(held, 200)
    finish(await other.start(wants(), 5.0), 200)


@pytest.mark.weekly
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("members", [{"min_delay_s": 0.1, "backoff_min_s": 6.0}], indirect=True)
async def test_a_closed_host_stays_closed_and_no_longer_than_that(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str, by_s: int
) -> None:
    one, other = members
    await visit(one, 429)
    refused_mono = time.monotonic()
    await set_clock(redis, prefix, by_s)
    finish(await other.start(wants(), 30.0), 200)
    assert 5.9 <= time.monotonic() - refused_mono <= 25.0


@pytest.mark.full
async def test_who_waits_in_line_is_served_after_the_clock_was_set_back(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    one, other = members
    held = await one.start(wants())
    waiting = asyncio.create_task(other.start(wants()))
    await asyncio.sleep(0.2)
    await set_clock(redis, prefix, -HOUR_S)
    await asyncio.sleep(0.2)
    finish(held, 200)
    ended_mono = time.monotonic()
    finish(await asyncio.wait_for(waiting, 20.0), 200)
    assert time.monotonic() - ended_mono >= 0.1


@pytest.mark.full
async def test_a_fleet_that_starts_after_the_clock_was_set_back_waits_no_longer_than_an_interval(
    fleet: Members, members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    await set_clock(redis, prefix, HOUR_S)
    one, other = members
    await visit(one)
    await one.aclose()
    await set_clock(redis, prefix, 0)
    finish(await other.start(wants(), 5.0), 200)


@pytest.mark.full
@pytest.mark.parametrize("members", [{"min_delay_s": 0.1, "max_concurrent": 2, "backoff_min_s": 0.5}], indirect=True)
async def test_a_process_that_knows_of_a_closing_by_the_clock_before_goes_on(
    members: Sequence[Pacer], redis: Redis, prefix: str
) -> None:
    one, other = members
    held = await one.start(wants())  # so that this process remembers the closing
    await visit(other, 429)
    await one.closed_until(HOST)
    await set_clock(redis, prefix, -HOUR_S)
    async with asyncio.timeout(15.0):
        while isinstance(answer := (await one.try_starts([wants()]))[0], NotYet):
            await asyncio.sleep(0.01)
    finish(answer, 200)
    finish(held, 200)


@pytest.mark.full
async def test_a_clock_that_runs_too_fast_is_reported_and_the_fleet_goes_on(
    fleet: Members, server: RedisServer
) -> None:
    pacer = fleet.member(
        PacingOptions(min_delay_s=0.5, adaptive_factor=0.0), fleet.link_of(FastWire(client_at(server.url)))
    )
    starts = [await visit(pacer) for _ in range(14)]
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(starts)), starts
    errors = [event.error for event in fleet.events if isinstance(event, FleetAway)]
    said = [re.search(r"its clock runs ([0-9.]+)% too fast", error) for error in errors]
    assert said
    assert all(said), errors
    # The delays of a busy machine make a measured rate lower, never higher. Each further report allows for more.
    rates = [float(found[1]) for found in said if found]
    assert all(0.0 < rate <= 2.0 for rate in rates), rates
    assert all(later > earlier for earlier, later in pairwise(rates)), rates
