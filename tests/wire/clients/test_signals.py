"""``crawl(stop_on_signals=True)`` in a process of its own, on a site that answers when the test lets it."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from politesse import ConfigurationError, Gatekeeper, PoliteQueue
from tests.core.queue.simulated import Pages, SimulatedWeb
from tests.support.programs import started
from tests.support.sites import Server, serving

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(sys.platform == "win32", reason="needs signals")]


class Slow(Server):
    """Sends the head of a page, and the rest when ``go_on`` is set."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await self.go_on.wait()
        return response


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    async for site in serving(Slow()):
        yield site


async def _begun(site: Slow, journal: Path, kind: str = "default") -> Process:
    """Start the program, and wait until its first page is under way."""
    process = await started("wire.clients.stopping", site.base, str(journal), kind, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun /0\n"
    return process


async def _end(process: Process) -> tuple[list[str], str]:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return out.decode().splitlines(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_finishes_the_page_under_way_and_the_journal_keeps_the_rest(
    slow: Slow, tmp_path: Path, number: signal.Signals
) -> None:
    process = await _begun(slow, tmp_path / "crawl.db")
    process.send_signal(number)
    assert process.stderr is not None
    assert await process.stderr.readline() == (
        f"{number.name}: no more requests begin, and the pages under way are finished\n".encode()
    )
    slow.go_on.set()
    [read, report, restored], err = await _end(process)
    assert (read, restored, err, process.returncode) == ("read /0", "restored: True", "", 0)
    assert report.startswith(f"1 pages, 3 left, stopped by {number.name}, ('20")
    [*_, report, restored], _ = await _end(await _begun_again(slow, tmp_path / "crawl.db"))
    assert report == "3 pages, 0 left, stopped by , ()"
    assert slow.pages == ["/0", "/1", "/2", "/3"]


async def _begun_again(site: Slow, journal: Path) -> Process:
    return await started("wire.clients.stopping", site.base, str(journal), stdout=PIPE, stderr=PIPE)


async def test_a_second_sigint_ends_the_program_as_ctrl_c_does_and_a_second_sigterm_does_nothing(
    slow: Slow, tmp_path: Path
) -> None:
    process = await _begun(slow, tmp_path / "crawl.db")
    assert process.stderr is not None
    process.send_signal(signal.SIGTERM)
    await process.stderr.readline()
    await asyncio.sleep(0.4)
    process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = await _end(process)
    assert out == ["cancelled"]
    assert err.splitlines()[-1].startswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


async def test_a_signal_that_follows_at_once_is_an_echo_of_the_first(slow: Slow, tmp_path: Path) -> None:
    process = await _begun(slow, tmp_path / "crawl.db", "echo")
    slow.go_on.set()
    [read, report, restored], _ = await _end(process)
    assert (read, restored) == ("read /0", "restored: True")
    assert report.startswith("1 pages, 3 left, stopped by SIGTERM")


@pytest.mark.parametrize("kind", ["own", "loop"])
async def test_handlers_of_the_program_are_set_aside_and_restored(slow: Slow, tmp_path: Path, kind: str) -> None:
    process = await _begun(slow, tmp_path / "crawl.db", kind)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    await process.stderr.readline()
    slow.go_on.set()
    [read, report, *rest], _ = await _end(process)
    assert (read, report[:15]) == ("read /0", "1 pages, 3 left")
    assert rest == ["restored: True", "own handler of SIGTERM"]


async def test_a_signal_that_another_thread_gets_wakes_the_event_loop(slow: Slow, tmp_path: Path) -> None:
    process = await _begun(slow, tmp_path / "crawl.db", "thread")
    assert process.stderr is not None
    async with asyncio.timeout(4):  # the pacer wakes it after five seconds
        assert (await process.stderr.readline()).startswith(b"SIGTERM: no more requests begin")
    slow.go_on.set()
    [_, report, restored], _ = await _end(process)
    assert report.startswith("1 pages, 3 left, stopped by SIGTERM")
    assert restored == "restored: True"


async def test_a_handler_that_is_added_to_the_event_loop_meanwhile_goes_on(slow: Slow, tmp_path: Path) -> None:
    process = await _begun(slow, tmp_path / "crawl.db", "added")
    slow.go_on.set()
    [_, report, restored, told], _ = await _end(process)
    assert report.startswith("1 pages, 3 left, stopped by SIGTERM")
    assert (restored, told) == ("restored: True", "added handler")


async def test_handlers_are_restored_after_an_error(slow: Slow, tmp_path: Path) -> None:
    process = await _begun(slow, tmp_path / "crawl.db", "failing")
    out, _ = await _end(process)
    assert out == ["failed", "restored: True"]


async def test_what_can_handle_no_signals_says_so(gate: Gatekeeper) -> None:
    def crawl_in_a_thread() -> None:
        async def crawl() -> None:
            async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as other:
                await PoliteQueue[object](other).crawl(SimulatedWeb(), Pages(), stop_on_signals=True)

        asyncio.run(crawl())

    with pytest.raises(ConfigurationError, match=r"stop_on_signals=True: only the main thread gets signals; in a h"):
        await asyncio.to_thread(crawl_in_a_thread)
    one, other = PoliteQueue[object](gate), PoliteQueue[object](gate)
    one.pause()
    await one.put("https://a.example/")
    crawl = asyncio.create_task(one.crawl(SimulatedWeb(), Pages(), stop_on_signals=True))
    await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match=r"another crawl of this process does so; in a handler of your own, c"):
        await other.crawl(SimulatedWeb(), Pages(), stop_on_signals=True)
    one.stop()
    assert (await crawl).left == 1
    with pytest.raises(ConfigurationError, match="stop_on_signals=1: give a bool"):
        await one.crawl(SimulatedWeb(), Pages(), stop_on_signals=1)  # type: ignore[arg-type]
