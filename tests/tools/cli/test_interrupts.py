"""Ctrl-C ends each command at any moment with the exit status 130, and without a traceback."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.programs import run_code
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Origin, serving, start

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(sys.platform == "win32", reason="needs signals")]

COMMANDS = [
    ("check", "http://127.0.0.1:9/"),
    ("crawl", "http://127.0.0.1:9/"),
    ("demo",),
    ("explain", "http://127.0.0.1:9/"),
    ("filter",),
    ("guide",),
    ("lint", "-"),
]
_LAST_IMPORT = 500  # there are some more


async def _end(process: asyncio.subprocess.Process) -> list[str]:
    """Interrupt a process, and return the lines of standard error that name no import."""
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err
    return [line for line in err.decode().splitlines() if not line.startswith("import time:")]


@pytest.mark.parametrize("command", first_of(1, COMMANDS), ids=lambda command: command[0])
async def test_ctrl_c_while_the_command_is_loaded_prints_nothing(command: tuple[str, ...]) -> None:
    """The moment is counted in imports, so that it does not depend on the speed of the machine."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", *COMMAND[1:], *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    while not (line := await process.stderr.readline()).endswith(b" politesse.cli\n"):
        assert line
    for _ in range(2 + random.Random(str(command)).randrange(_LAST_IMPORT)):
        await process.stderr.readline()
    assert await _end(process) == []


def test_nothing_is_loaded_before_the_command_can_be_interrupted() -> None:
    program = "import sys, politesse.cli; print({'aiohttp', 'asyncio', 'typer'} & sys.modules.keys())"
    assert run_code(program).stdout == "set()\n"


@pytest.mark.full
@pytest.mark.parametrize("command", ["crawl", "check", "explain", "lint"])  # of filter, its own tests show it
async def test_ctrl_c_while_a_server_does_not_answer(command: str) -> None:
    async with serving(Origin(status=None)) as origin:
        process = await start(command, f"{origin.base}/")
        while not origin.requests:
            await asyncio.sleep(0.01)
        told = await _end(process)
    interrupted = [line.rpartition("; ")[2] for line in told if "interrupted" in line]
    assert interrupted == ["interrupted"] * (command == "crawl")


@pytest.mark.full
async def test_an_echo_of_ctrl_c_does_not_end_the_command_at_once() -> None:
    async with serving(Origin(status=None)) as origin:
        process = await start("crawl", f"{origin.base}/")
        while not origin.requests:
            await asyncio.sleep(0.01)
        # Both come at once. The second is another signal, because a second SIGINT could be merged with the first.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        assert process.stderr is not None
        told = (await process.stderr.read()).decode().splitlines()
        assert await process.wait() in {130, 143}
    assert any("interrupted" in line for line in told)  # the summary of a crawl that ended in order


class _Slow(Origin):
    """Each page links to others, and ends when the test lets it."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return await super().answer(request)
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        self.requests.append(request)
        await response.write(b"<a href=/1>1</a><a href=/2>2</a>")
        await self.go_on.wait()
        return response


def _pages(out: Path) -> int:
    return out.read_text().count('"outcome": "page"')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_crawl_finishes_the_page_under_way_and_a_second_signal_ends_it_at_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    outcomes = []
    for again in (False, True):
        async with serving(_Slow()) as origin:
            process = await start("crawl", f"{origin.base}/", "--out", str(tmp_path / "out"))
            while len(origin.requests) < 2:
                await asyncio.sleep(0.01)
            process.send_signal(number)
            await asyncio.sleep(0.5)  # an echo would be ignored
            is_running = process.returncode is None
            if again:
                process.send_signal(number)
            else:
                origin.go_on.set()
            async with asyncio.timeout(20):
                _, err = await process.communicate()
        assert process.returncode == 128 + number
        outcomes.append((is_running, _pages(tmp_path / "out"), err.decode()))
    (*first, told), at_once = outcomes
    note = f"{number.name}: no more requests begin, and the pages under way are finished\n"
    assert (first, at_once) == ([True, 1], (True, 0, note))
    assert "1 page, 0 failed" in told
    assert told.endswith("2 URLs left at 1 host; interrupted\n")


@pytest.mark.full
async def test_ctrl_c_while_pages_wait_for_their_turn() -> None:
    async with serving(Origin()) as origin:
        process = await start("check", "--page", *(f"{origin.base}/{n}" for n in range(5)))
        while len(origin.requests) < 2:
            await asyncio.sleep(0.01)
        assert await _end(process) == []


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a list of threads")
@pytest.mark.parametrize("command", first_of(1, [("lint", "-"), ("explain", "http://127.0.0.1:9/", "--file", "-")]))
async def test_ctrl_c_while_it_reads_standard_input(command: tuple[str, ...]) -> None:
    process = await start(*command)
    threads = Path(f"/proc/{process.pid}/task")
    while len(list(threads.iterdir())) < 2:  # noqa: ASYNC240 - no file of a disk
        await asyncio.sleep(0.01)
    assert await _end(process) == []
