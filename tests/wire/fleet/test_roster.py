"""The roster of a fleet: what a report costs, and who is expected after a loss."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from politesse._pacing.fleet.messages import Script
from tests.support.redis_servers import RedisServer, text_of
from tests.wire.fleet.members import Members, visit

pytestmark = pytest.mark.realtime

LEASE_S: Final = 1.0
HOLD_S: Final = 0.2


@dataclass(slots=True)
class Process:
    """A process of which only its reports are seen. It remembers what it knew when requests could start."""

    redis: Redis
    prefix: str
    number: int
    known: tuple[str, ...] = ("", "0", "0", "0")
    wait_s: float = 0.0
    missing: int = 0

    async def report(self, act: str = "report", lease_s: float = LEASE_S) -> list[Any]:
        epoch, *counts = self.known
        run = (await self.redis.info("server"))["run_id"]
        keys = f"{self.prefix}{{members}}", f"{self.prefix}{{members}}:all"
        times = (round(lease_s * 1e6), round(HOLD_S * 1e6))
        words = (self.number, act, run, epoch, 0, *counts, *times)
        reply: list[Any] = await self.redis.eval(Script.MEMBER.source, 2, *keys, *words)
        _, _, wait, epoch, version, count, total, _, missing = map(text_of, reply)
        self.wait_s, self.missing = int(wait) / 1e6, int(missing)
        if not self.wait_s:
            self.known = epoch, version, count, total
        return reply


@pytest.fixture
async def members(redis: Redis, prefix: str) -> list[Process]:
    """Return three processes that know each other, in a round in which requests may start."""
    members = [Process(redis, prefix, 2**48 - 1 - number) for number in range(3)]
    for member in members:
        await member.report()
    await asyncio.sleep(HOLD_S)
    for member in members:
        await member.report()
        assert member.wait_s == 0.0
    return members


async def lose_all(redis: Redis, prefix: str) -> None:
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}*")])


async def test_first_process_of_a_fleet_waits_for_a_moment_and_a_later_one_does_not(redis: Redis, prefix: str) -> None:
    first, later = Process(redis, prefix, 1), Process(redis, prefix, 2)
    await first.report()
    assert 0.0 < first.wait_s <= HOLD_S
    await asyncio.sleep(first.wait_s)
    await first.report()
    await later.report()
    assert (first.wait_s, later.wait_s, later.known[2]) == (0.0, 0.0, "2")


async def test_report_costs_the_same_however_many_processes_there_are(redis: Redis, prefix: str) -> None:
    costs = []
    for count in (3, 300):
        for number in range(count):
            await Process(redis, f"{prefix}{count}", 2**47 + number).report(lease_s=60.0)
        await redis.config_resetstat()
        reply = await Process(redis, f"{prefix}{count}", 2**47).report(lease_s=60.0)
        stats = await redis.info("commandstats")
        costs.append((sum(stats[name]["calls"] for name in stats), len(reply)))
    assert costs[0] == costs[1]
    assert costs[0][0] < 15


async def test_after_a_loss_all_who_were_known_are_waited_for(
    members: list[Process], redis: Redis, prefix: str
) -> None:
    await lose_all(redis, prefix)
    first, second, third = members
    await first.report()
    await asyncio.sleep(HOLD_S)
    await first.report()
    assert (first.wait_s > 0.0, first.missing) == (True, 2)
    await second.report()
    await first.report()
    assert (first.wait_s > 0.0, first.missing) == (True, 1)
    await third.report()
    await first.report()
    assert (first.wait_s, first.missing) == (0.0, 0)


async def test_after_a_loss_a_process_that_does_not_come_back_is_waited_for_as_long_as_its_lease(
    members: list[Process], redis: Redis, prefix: str
) -> None:
    await lose_all(redis, prefix)
    await members[0].report()
    assert HOLD_S < members[0].wait_s <= LEASE_S
    await asyncio.sleep(members[0].wait_s)
    await members[0].report()
    assert members[0].wait_s == 0.0


async def test_second_loss_in_a_round_that_is_not_over_expects_the_same_processes(
    members: list[Process], redis: Redis, prefix: str
) -> None:
    for _ in range(2):
        await lose_all(redis, prefix)
        await members[0].report()
        await members[1].report()
    await asyncio.sleep(HOLD_S)
    await members[0].report()
    assert (members[0].wait_s > 0.0, members[0].missing) == (True, 1)


async def test_who_has_left_or_is_silent_is_not_expected(members: list[Process], redis: Redis, prefix: str) -> None:
    await members[2].report("leave")
    await asyncio.sleep(LEASE_S)  # meanwhile the second one is silent
    await members[0].report()
    assert members[0].known[2:] == ("1", str(members[0].number))
    await lose_all(redis, prefix)
    await members[0].report()
    await asyncio.sleep(HOLD_S)
    await members[0].report()
    assert members[0].wait_s == 0.0


@pytest.mark.full
async def test_server_that_goes_on_from_an_older_snapshot_expects_who_was_there(own_server: RedisServer) -> None:
    async with Redis.from_url(own_server.url) as redis:
        members = [Process(redis, "f:", number) for number in (1, 2)]
        for _ in range(2):
            for member in members:
                await member.report()
            await asyncio.sleep(HOLD_S)
        await redis.save()
        own_server.kill()
        own_server.start()
        await redis.connection_pool.disconnect()
        await members[0].report()
        await asyncio.sleep(HOLD_S)
        await members[0].report()
        assert members[0].missing == 1
        await members[1].report()
        await members[0].report()
        assert members[0].wait_s == 0.0


@pytest.mark.parametrize("words", [("SET", "x"), ("HSET", "colour", "red"), ("HSET", "format", "2", "ver", "nan")])
async def test_roster_that_another_program_has_written_is_replaced_and_all_report_again(
    fleet: Members, redis: Redis, prefix: str, words: tuple[str, ...]
) -> None:
    one, other = fleet.member(), fleet.member()
    for pacer in (one, other):
        await visit(pacer)
    key = f"{prefix}2:{{members}}"
    await redis.delete(key)
    await redis.execute_command(words[0], key, *words[1:])  # type: ignore[no-untyped-call] # redis-py gives it no types
    began_mono = time.monotonic()
    for pacer in (one, other):
        await visit(pacer)
    assert time.monotonic() - began_mono >= 0.5, "a new round"
    assert any("it has lost data" in error for error in fleet.aways)
