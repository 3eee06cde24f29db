"""Several processes that share a RedisStore fetch each robots.txt once, and all answer by it."""

import asyncio
import signal
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from secrets import token_hex

import pytest
from redis.asyncio import Redis

from tests.support.programs import started
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.tiers import first_of
from tests.wire.fleet.asker import Job
from tests.wire.fleet.robots_site import Robots, RobotsSite

pytestmark = pytest.mark.realtime

FIRST, *OTHERS = EXECUTABLES
# Starting processes takes long on a busy machine.
servers = pytest.mark.parametrize("server", [FIRST, *(pytest.param(name, marks=pytest.mark.weekly) for name in OTHERS)])


async def asker_of(stack: AsyncExitStack, job: Job, number: int) -> Process:
    """Start an asker, which waits for ``told``."""
    process = await started("fleet.asker", job.to_json(), str(number), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stack.push_async_callback(ended, process)
    return process


async def ended(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def told(process: Process) -> None:
    """Have an asker begin."""
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    await process.stdin.drain()


async def answered(process: Process) -> str:
    """Return the answers of an asker, of which nothing has failed."""
    printed, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    return printed.decode().strip()


def right_answers(job: Job, site: RobotsSite, asker: int) -> str:
    return "".join("01"[site.robots[origin].allows(path)] for origin, path in job.asked_by(asker))


async def check_one_fetch_each(server: str, *, origins: int, questions: int, is_fleet: bool = False) -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(RobotsSite([Robots.of_host(number) for number in range(origins)]))
        job = Job(shared_server(server).url, f"{token_hex(4)}:", site.port, origins, questions, is_fleet=is_fleet)
        askers = [await asker_of(stack, job, asker) for asker in range(4)]
        for asker in askers:
            await told(asker)
        answers = await asyncio.gather(*(answered(asker) for asker in askers))
        assert answers == [right_answers(job, site, asker) for asker in range(4)]
        assert {len(starts) for starts in site.starts.values()} == {1}
        assert site.requests == origins


@pytest.mark.full
@servers
@pytest.mark.parametrize("is_fleet", first_of(1, [True, False]))
async def test_four_processes_fetch_each_file_once_and_answer_right(server: str, *, is_fleet: bool) -> None:
    await check_one_fetch_each(server, origins=60, questions=600, is_fleet=is_fleet)


@pytest.mark.weekly
@pytest.mark.timeout(400)
@servers
@pytest.mark.full
async def test_50_000_questions_about_500_origins_make_500_requests(server: str) -> None:
    await check_one_fetch_each(server, origins=500, questions=12_500)


async def left_s(job: Job, origin: int) -> float:
    """Return for how long the lease of a file still lasts; 0 if there is none."""
    async with Redis.from_url(job.redis_url) as client:
        key = f"{job.prefix}{{record:http://host{origin}.example:{job.port}}}lease"
        return max(0.0, await client.pttl(key) / 1000)


@servers
@pytest.mark.full
@pytest.mark.parametrize("late_s", [pytest.param(0.1, marks=pytest.mark.weekly), 5.0])  # the machine may be busy
async def test_a_leader_that_is_killed_in_mid_fetch_is_replaced_when_its_lease_ends(server: str, late_s: float) -> None:
    lease_s = 2.0  # it is renewed in time on a busy machine, too
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(RobotsSite([Robots(200, "User-agent: *\nDisallow: /a", 0.0)]))
        job = Job(shared_server(server).url, f"{token_hex(4)}:", site.port, 1, 20, lease_s)
        leader, *others = [await asker_of(stack, job, asker) for asker in range(3)]
        site.hang.add(0)
        await told(leader)
        async with asyncio.timeout(30):
            while not site.requests:
                await asyncio.sleep(0.01)
        for other in others:
            await told(other)
        await asyncio.sleep(1.5 * lease_s)  # the lease is renewed: nobody else fetches
        assert site.requests == 1
        site.hang.clear()
        leader.send_signal(signal.SIGKILL)
        ends_mono = time.monotonic() + await left_s(job, 0)
        for place, other in enumerate(others, start=1):
            assert await answered(other) == right_answers(job, site, place)
        [_, second] = site.starts[0]
        assert -0.01 < second - ends_mono < late_s  # Redis counts whole milliseconds
