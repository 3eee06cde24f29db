"""Several processes that share a RedisStore fetch each robots.txt once, and all answer by it."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_hex

import pytest
from aiohttp import web
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
    """Many hosts."""

    async def respond(self, request: web.Request) -> web.Response:
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
    """Start an asker, which waits for a line."""
    process = await started("wire.fleet.asker", job.to_json(), str(number), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stack.push_async_callback(ended, process)
    return process


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
            assert asker.stdin is not None
            asker.stdin.write(b"go\n")
            await asker.stdin.drain()
        answers = await asyncio.gather(*map(answered, askers))
    assert answers == [right_answers(job, asker) for asker in range(4)]
    asked = Counter(seen.headers["Host"] for seen in site.seen)
    assert asked == {f"host{origin}.example:{port}": 1 for origin in range(origins)}
