"""Several processes that share a RedisStore fetch each robots.txt once, and all answer by it."""

import asyncio
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_hex

import pytest
from aiohttp import web
from redis.asyncio import Redis
from yarl import URL

from tests.support.programs import started
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.sites import Server, serving
from tests.wire.fleet.asker import PATHS, Job

pytestmark = [pytest.mark.realtime, pytest.mark.full]

FIRST, *OTHERS = EXECUTABLES
# Starting processes takes long on a busy machine.
servers = pytest.mark.parametrize("server", [FIRST, *(pytest.param(name, marks=pytest.mark.weekly) for name in OTHERS)])


def status_of(origin: int) -> int:
    """Return the status of the robots.txt of an origin: most have a file, each of its neighbours another one."""
    return {17: 404, 18: 503, 19: 429}.get(origin % 20, 200)


class Sites(Server):
    """Many hosts, which answer nothing while ``hangs`` is set."""

    hangs = False

    async def respond(self, request: web.Request) -> web.Response:
        if self.hangs:
            await asyncio.sleep(3_600)
        origin = int(request.host.partition(".")[0].removeprefix("host"))
        await asyncio.sleep(0.05 * (origin % 7) / 7)
        text = f"User-agent: *\nDisallow: /{origin % PATHS}\n"
        return web.Response(status=status_of(origin), text=text, headers={"Retry-After": "600"})


def right_answers(job: Job, asker: int) -> str:
    def allows(origin: int, path: int) -> bool:
        return status_of(origin) == 404 or (status_of(origin) == 200 and path != origin % PATHS)

    return "".join("01"[allows(*question)] for question in job.asked_by(asker))


async def ended(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def asker_of(stack: AsyncExitStack, job: Job, number: int) -> Process:
    """Start an asker, which waits for ``told``."""
    process = await started("wire.fleet.asker", job.to_json(), str(number), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stack.push_async_callback(ended, process)
    return process


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


FEW = (60, 600)
MANY = pytest.param(500, 12_500, False, marks=[pytest.mark.weekly, pytest.mark.timeout(400)])  # 50,000 questions


@servers
@pytest.mark.parametrize(("origins", "questions", "is_fleet"), [(*FEW, True), (*FEW, False), MANY])
async def test_four_processes_fetch_each_file_once_and_answer_right(
    server: str, origins: int, questions: int, *, is_fleet: bool
) -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(asynccontextmanager(serving)(Sites()))
        port = URL(site.base).port or 0
        job = Job(shared_server(server).url, f"{token_hex(4)}:", port, origins, questions, is_fleet=is_fleet)
        askers = [await asker_of(stack, job, asker) for asker in range(4)]
        for asker in askers:
            await told(asker)
        answers = await asyncio.gather(*map(answered, askers))
    assert answers == [right_answers(job, asker) for asker in range(4)]
    asked = Counter(seen.headers["Host"] for seen in site.seen)
    assert asked == {f"host{origin}.example:{port}": 1 for origin in range(origins)}


@servers
@pytest.mark.parametrize("late_s", [pytest.param(0.1, marks=pytest.mark.weekly), 5.0])  # the machine may be busy
async def test_leader_that_is_killed_in_mid_fetch_is_replaced_when_its_lease_ends(server: str, late_s: float) -> None:
    lease_s = 2.0  # it is renewed in time on a busy machine, too
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(asynccontextmanager(serving)(Sites()))
        job = Job(shared_server(server).url, f"{token_hex(4)}:", URL(site.base).port or 0, 1, 20, lease_s)
        leader, *others = [await asker_of(stack, job, asker) for asker in range(3)]
        site.hangs = True
        await told(leader)
        async with asyncio.timeout(30):
            while not site.seen:
                await asyncio.sleep(0.01)
        for other in others:
            await told(other)
        await asyncio.sleep(1.5 * lease_s)  # the lease is renewed: nobody else fetches
        assert len(site.seen) == 1
        site.hangs = False
        leader.send_signal(signal.SIGKILL)
        async with Redis.from_url(job.redis_url) as client:
            left_ms = await client.pttl(f"{job.prefix}{{record:http://host0.example:{job.port}}}lease")
        ends_mono = time.monotonic() + max(0, left_ms) / 1000
        for place, other in enumerate(others, start=1):
            assert await answered(other) == right_answers(job, place)
    assert len(site.seen) == 2
    assert -0.01 < site.seen[1].started - ends_mono < late_s  # Redis counts whole milliseconds
