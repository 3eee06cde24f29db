"""A small program passes the strict type checkers of its author."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import politesse

PROGRAM = """
from politesse import CrawlPage, Gatekeeper, PoliteQueue, PoliteSession
from politesse.options import FetchOptions, PrivateAddresses
from politesse.queue import QueuedTurn
import aiohttp


async def handle(page: CrawlPage, response: aiohttp.ClientResponse) -> None:
    print(page.url, page.item)


async def note(turn: QueuedTurn) -> None:
    print(turn.item)


async def crawl(private: PrivateAddresses) -> None:
    gate = Gatekeeper("ExampleBot/1.0", fetch=FetchOptions(private_addresses=private))
    async with PoliteSession(gate) as web, PoliteQueue(gate) as queue:
        await queue.put("https://example.com/", item={"depth": 1})
        await queue.crawl(web, handle)
        named = PoliteQueue[str](gate)
        await named.crawl(web, handle)
        async with queue.turn() as turn:
            await note(turn)
"""
MISTAKES = """
from politesse import Gatekeeper, PoliteQueue, PoliteSession


async def crawl(gate: Gatekeeper, web: PoliteSession) -> None:
    Gatekeeper("ExampleBot/1.0", min_delay_s=2)
    await gate.turn("https://example.com/")
    with gate:
        pass
    async for page in PoliteQueue(gate):
        pass
    web.cookie_jar
"""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--config-file", "", "program.py"],
    "pyright": [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
}
STRICT = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["program.py"]}
SOURCES = str(Path(politesse.__file__).parent.parent)  # pyright does not find an editable installation


def checked(checker: str, program: str, folder: Path) -> list[str]:
    """Return the lines that name an error."""
    (folder / "program.py").write_text(program)
    (folder / "pyrightconfig.json").write_text(json.dumps({**STRICT, "extraPaths": [SOURCES]}))
    done = subprocess.run(CHECKERS[checker], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert done.returncode in {0, 1}, done.stderr
    return [line for line in done.stdout.splitlines() if "error:" in line]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", CHECKERS)
def test_bare_queue_and_page_pass_a_strict_type_checker(checker: str, tmp_path: Path) -> None:
    assert checked(checker, PROGRAM, tmp_path) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_that_raise_an_error_are_found_by_a_type_checker(checker: str, tmp_path: Path) -> None:
    found = {int(line.split("program.py:")[1].split(":")[0]) for line in checked(checker, MISTAKES, tmp_path)}
    lines = MISTAKES.splitlines()
    wrong = ("min_delay_s", "gate.turn", "with gate", "async for", "cookie_jar")
    assert found >= {number for number, line in enumerate(lines, 1) if any(text in line for text in wrong)}
