"""The tables of the guide on moving: the answers of the installed libraries, and of politesse."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.error import URLError
from urllib.robotparser import RobotFileParser

import pytest
from _pytest.mark import ParameterSet
from crawlee.crawlers import HttpCrawler
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient
from protego import Protego

from politesse import Gatekeeper
from tests.support.ports import free_port
from tests.wire.clients.clients import use_memory
from tests.wire.scrapy.crawling import USER_AGENT, Site, crawl, html, serving

GUIDE: Final = (Path(__file__).parents[3] / "src/politesse/guides/moving.md").read_text()
Ask: TypeAlias = Callable[[str], Awaitable[str]]


@pytest.fixture(scope="module", autouse=True)
def _storage() -> None:
    use_memory()


def table(first: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head starts with this title: the cells after the first, by the first."""
    lines = GUIDE.partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    assert rows
    return {row[0]: row[1:] for row in rows}


async def robotparser(url: str) -> str:
    def ask() -> str:
        robots = RobotFileParser(f"http://{url.split('/')[2]}/robots.txt")
        try:
            robots.read()
        except URLError:
            return "an exception"
        return answer(robots.can_fetch(USER_AGENT, url))

    return await asyncio.to_thread(ask)


async def scrapy(url: str) -> str:
    done = await crawl([url], {"ROBOTSTXT_OBEY": True})
    return answer(done.ignored.get(url) != "IgnoreRequest: Forbidden by robots.txt")


async def crawlee(url: str) -> str:
    skipped = []
    crawler = HttpCrawler(
        http_client=ImpitHttpClient(),
        respect_robots_txt_file=True,
        storage_client=MemoryStorageClient(),
        configure_logging=False,
        max_request_retries=0,
    )

    @crawler.router.default_handler
    async def handle(context: object) -> None:
        pass

    @crawler.on_skipped_request
    async def note(skipped_url: str, _: object) -> None:
        skipped.append(skipped_url)

    await crawler.run([url])
    return answer(url not in skipped)


async def politesse(url: str) -> str:
    async with Gatekeeper(USER_AGENT) as gate:
        return answer(bool(await gate.check(url)))


ASKED: Final[dict[str, Ask]] = {
    "robotparser": robotparser,
    "Scrapy": scrapy,
    "Crawlee": crawlee,
    "politesse": politesse,
}


def answer(allowed: bool) -> str:  # noqa: FBT001 - an answer of a library
    return "allowed" if allowed else "disallowed"


def with_scrapy_in_full(libraries: Iterable[str]) -> list[ParameterSet]:
    """Return the libraries as parameters; a crawl of Scrapy is a process, so the short run has one, for the 503."""
    return [pytest.param(name, marks=[pytest.mark.full] * (name == "Scrapy")) for name in libraries]


async def check_failing(library: str, number: str) -> None:
    site = Site(int(number), {"/page": html()})
    async with serving(site):
        found = await ASKED[library](f"{site.base}/page")
    assert table("robots.txt")[number][list(ASKED).index(library)].partition(",")[0] == found


@pytest.mark.realtime
@pytest.mark.parametrize("library", ASKED)
async def test_libraries_answer_to_a_robots_txt_that_is_503_as_the_table_says(library: str) -> None:
    await check_failing(library, "503")


@pytest.mark.realtime
@pytest.mark.parametrize("library", with_scrapy_in_full(ASKED))
@pytest.mark.parametrize("number", ["404", "403", "429"])
async def test_libraries_answer_to_a_failing_robots_txt_as_the_table_says(library: str, number: str) -> None:
    await check_failing(library, number)


@pytest.mark.realtime
@pytest.mark.parametrize("library", with_scrapy_in_full(ASKED))
async def test_libraries_answer_without_a_connection_as_the_table_says(library: str) -> None:
    found = await ASKED[library](f"http://127.0.0.1:{free_port()}/page")
    assert table("robots.txt")["no connection"][list(ASKED).index(library)].partition(",")[0] == found


@pytest.mark.realtime
@pytest.mark.parametrize("library", with_scrapy_in_full(["Protego", "robotparser", "Scrapy", "Crawlee"]))
async def test_library_and_politesse_differ_about_the_url_of_the_table(library: str) -> None:
    rules, path, theirs, ours = table("library")[library]
    lines = re.findall("`([^`]+)`", rules)
    if not lines[0].startswith("User-agent"):
        lines.insert(0, "User-agent: *")
    robots = "\n".join(lines) + "\n"
    site = Site(robots, {path.strip("`"): html()})

    async def protego(url: str) -> str:
        return answer(Protego.parse(robots).can_fetch(url, "ExampleBot"))

    async with serving(site):
        url = site.base + path.strip("`")
        assert await (ASKED | {"Protego": protego})[library](url) == theirs
        assert await politesse(url) == ours
    assert theirs != ours
