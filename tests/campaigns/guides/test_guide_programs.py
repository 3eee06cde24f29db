"""The programs of the guides to agents, jobs and crawling, and the tables of the guide on moving, with libraries."""

import asyncio
import contextlib
import os
import re
import runpy
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.error import URLError
from urllib.robotparser import RobotFileParser

import pytest
from aiohttp import ClientTimeout, web
from protego import Protego

from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.cli.demo import CACHE, FETCH, PACING, USER_AGENT
from politesse.cli.demo.report import audit
from politesse.cli.demo.web import LittleWeb
from politesse.testing import assert_polite
from tests.support.guides import blocks_of
from tests.support.ports import free_port
from tests.support.redis_servers import RedisServer
from tests.support.sites import EAGER, ROBOTS, UA, Server, Site
from tests.wire.scrapy.crawling import Site as ScrapySite
from tests.wire.scrapy.crawling import crawl, html
from tests.wire.scrapy.crawling import serving as serving_scrapy

pytestmark = [pytest.mark.weekly, pytest.mark.realtime]

Ask: TypeAlias = Callable[[str], Awaitable[str]]
Fetching = Callable[..., AbstractAsyncContextManager[Ask]]

GUIDES: Final = Path(__file__).parents[3] / "src/politesse/guides"


def guide(name: str) -> str:
    return (GUIDES / name).read_text()


def files(name: str) -> dict[str, str]:
    return {block.file: block.code for block in blocks_of(name, guide(name)) if block.file}


@dataclass
class TitledSite(Site):
    links: dict[str, list[str]] = field(default_factory=dict)

    async def page(self, request: web.Request) -> web.Response:
        if not self.links:
            return await super().page(request)
        anchors = "".join(f'<a href="{link}">' for link in self.links.get(request.path, []))
        return web.Response(text=f"<title>{request.path} &amp;</title>{anchors}", content_type="text/html")


@pytest.fixture
def site_class() -> type[Server]:
    return TitledSite


def assert_paced(site: Site) -> None:
    assert_polite(site.trace(), {site.base: ROBOTS}, agent="ExampleBot", min_delay_s=1.0, slack_s=0.003)


# The tool of the guide to agents returns a text, whatever the URL, the site and the pace.


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "polite_fetch.py"
    path.write_text(files("agents.md")["polite_fetch.py"])
    return runpy.run_path(str(path))


@pytest.fixture
def fetching(names: dict[str, Any]) -> Fetching:
    opened: Fetching = names["fetching"]
    return opened


async def test_pages_are_fetched_once_in_their_turns_and_no_disallowed_page(fetching: Fetching, site: Site) -> None:
    site.redirects = {"/moved": (302, "/private/moved")}
    paths = ["/private/a", "/a", "/moved", "/b"]
    async with fetching("redirects") as fetch_page:
        texts = await asyncio.gather(*(fetch_page(f"{site.base}{path}") for path in paths))
    assert sorted(site.pages) == ["/a", "/b", "/moved"]
    assert_paced(site)
    assert texts[1] == f"200 {site.base}/a\npage /a"
    assert texts[0].startswith(f"disallowed: {site.base}/private/a\n")
    assert texts[2].startswith(f"disallowed: {site.base}/private/moved\n")
    assert "line 2, 'Disallow: /private'" in texts[2]


async def test_text_says_when_the_turn_comes(fetching: Fetching, site: Site) -> None:
    site.robots += "Crawl-delay: 60\n"
    async with fetching("redirects") as fetch_page:
        text = await fetch_page(f"{site.base}/a")  # its Crawl-delay also counts from the request for robots.txt
    assert text.startswith("no turn at 127.0.0.1 within 10 s: not before ")
    found = re.search(r", by crawl-delay\. Ask again in (\d+) s\.$", text)
    assert found
    assert 30 < int(found[1]) <= 60
    assert site.paths == ["/robots.txt"]


async def test_own_network_is_refused_and_a_wrong_url_is_named(fetching: Fetching, site: Site) -> None:
    wrong = [
        "",
        "page",
        "file:///etc/passwd",
        "http://[",
        "http://a\0b/",
        "http://xn--/",
        f"http://a.test/{'x' * 70_000}",
    ]
    async with fetching() as fetch_page:
        assert "127.0.0.1 is a private address" in await fetch_page(f"{site.base}/a")
        texts = [await fetch_page(url) for url in wrong]
    assert site.paths == []
    assert [text for text in texts if "Invalid" not in text and not text.startswith("IDNAError: ")] == []


async def test_page_without_end_is_cut_and_its_turn_ends(names: dict[str, Any], fetching: Fetching, site: Site) -> None:
    names["page"].__globals__["MAX_CHARACTERS"] = length = len(f"200 {site.base}/slow\nfir")
    async with fetching("redirects") as fetch_page, asyncio.timeout(30):
        assert await fetch_page(f"{site.base}/slow") == f"200 {site.base}/slow\nfir"
        assert len(await fetch_page(f"{site.base}/other")) == length


@pytest.mark.skipif(find_spec("crawl4ai") is None, reason="crawl4ai is not installed: it takes 900 MB")
async def test_crawl4ai_requests_each_page_once_in_its_turn(site: Site, tmp_path: Path) -> None:
    site.redirects = {"/docs": (301, "/docs/")}
    code = files("agents.md")["polite_crawl.py"].replace("http://localhost:8000", site.base)
    (tmp_path / "polite_crawl.py").write_text(code)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "polite_crawl.py"),
        cwd=tmp_path,
        env={**os.environ, "CRAWL4_AI_BASE_DIRECTORY": str(tmp_path), "CRAWL4AI_NO_CLOUD_NOTICE": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0
    assert sorted(site.pages) == ["/1", "/2", "/docs", "/docs/"]
    assert_paced(site)
    for page in ("docs 200", "1 200", "2 200", "private/ None "):
        assert f"{site.base}/{page}" in printed
    assert f"Error: disallowed: {site.base}/private/ (" in printed


# The workers of a job queue: two processes request a site as one polite crawler.

# The queues themselves call redis-py in ways that redis-py deprecates, and Celery warns about root.
IGNORED: Final = ("-Wignore:Call to:DeprecationWarning", "-Wignore:You're running the worker with superuser")
PYTHON: Final = (sys.executable, "-W", "error", *IGNORED)
# Each has two processes: a worker of Celery is two processes, and the program for Dask starts two workers itself.
JOBS: Final[dict[str, tuple[str, list[tuple[str, ...]]]]] = {
    "celery": ("celery_jobs.py", [("celery", "-A", "celery_jobs", "worker", "--concurrency", "2")]),
    "arq": ("arq_jobs.py", [("arq", "arq_jobs.WorkerSettings")] * 2),
    "distributed": ("dask_jobs.py", []),
}


async def started(*command: str, folder: Path) -> Process:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (folder / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *PYTHON, *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
        )


@contextlib.asynccontextmanager
async def worker(*command: str, folder: Path) -> AsyncIterator[None]:
    """Run a worker, which Ctrl-C ends."""
    process = await started("-m", *command, folder=folder)
    try:
        yield
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("library", JOBS)
async def test_two_workers_request_each_page_once_and_at_one_pace(
    library: str, site: Site, redis_server: RedisServer, tmp_path: Path
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    site.redirects = {"/docs": (301, "/docs/")}
    name, workers = JOBS[library]
    pages = ["1", "2", "3", "4", "docs", "private/"]
    code = re.sub(r"pages = \(.*\)", f"pages = {pages}", files("jobs.md")[name])
    code = code.replace("http://localhost:8000", site.base).replace("redis://localhost:6379/0", redis_server.url)
    (tmp_path / name).write_text(code)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        for command in workers:
            await stack.enter_async_context(worker(*command, folder=tmp_path))
        program = await started(name, folder=tmp_path)
        printed, _ = await program.communicate()
        while "/docs/" not in site.paths:  # a redirect may be a job of its own
            await asyncio.sleep(0.05)
    logged = (tmp_path / "log").read_text()
    assert program.returncode == 0, logged
    assert "Warning" not in logged
    assert sorted(site.pages) == ["/1", "/2", "/3", "/4", "/docs", "/docs/"]
    assert site.paths.count("/robots.txt") == 1
    assert_paced(site)
    *numbered, docs, private = printed.decode().splitlines()
    assert numbered == [f"200 {site.base}/{number}" for number in range(1, 5)]
    assert docs in {f"301 {site.base}/docs", f"200 {site.base}/docs/"}
    assert private.startswith(f"disallowed: {site.base}/private/ (")


# The crawler of the guide on crawling, on a site and on the servers of the demo.

[PROGRAM] = (code for code in re.findall(r"```python\n(.*?)```", guide("crawling.md"), re.DOTALL) if "sys.argv" in code)


def program(**replaced: object) -> Callable[[list[str]], Any]:
    code: dict[str, Any] = {}
    exec(compile(PROGRAM.rpartition("\n\nasyncio.run")[0], "crawling.md", "exec"), code)  # noqa: S102 - our own guide
    code |= replaced
    main: Callable[[list[str]], Any] = code["main"]
    return main


async def test_the_program_has_at_most_40_lines_prints_each_page_once_and_stays_on_the_hosts_of_its_start(
    site: TitledSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 40
    elsewhere = f"{site.base.replace('127.0.0.1', 'localhost')}/elsewhere"
    front = ["/a", "/b?x=1&amp;y=2", "mailto:us@example.com", "#top"]
    site.links = {"/": front, "/a": ["/", "b?x=1&amp;y=2", "/c"], "/c": [elsewhere]}
    unpaced = program(PoliteSession=lambda user_agent: PoliteSession(Gatekeeper(user_agent, pacing=EAGER)))
    async with asyncio.timeout(30):
        await unpaced([f"{site.base}/"])
    *printed, report = capsys.readouterr().out.splitlines()
    pages = [f"200 {site.base}{path}" for path in ("/ / &", "/a /a &", "/b?x=1&y=2 /b &", "/c /c &")]
    assert sorted(printed) == pages
    assert report.startswith("4 pages, 0 failed")
    assert "/elsewhere" not in site.pages


async def test_the_servers_of_the_demo_find_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    # As in the demo, faults of robots.txt are waited for a second and not a minute.
    def eager(user_agent: str) -> PoliteSession:
        assert user_agent == USER_AGENT
        gate = Gatekeeper(user_agent, fetch=FETCH, cache=CACHE, pacing=PACING)
        return PoliteSession(gate, timeout=ClientTimeout(total=5))

    hasty = partial(PoliteQueue, max_unreachable_s=8.0)  # one site never answers
    async with LittleWeb(pages=60, seed=7) as little:
        async with asyncio.timeout(60):
            await program(PoliteSession=eager, PoliteQueue=hasty, USER_AGENT=USER_AGENT)(little.front_pages)
        rows = audit(little.logs(), PACING.min_delay_s)
    assert [violation for row in rows for violation in row.violations] == []
    assert sum(row.served for row in rows) > 20
    assert sum(row.missed for row in rows) == 0
    assert len(capsys.readouterr().out.splitlines()) > 20


# The tables of the guide on moving: the answers of the installed libraries, and of politesse.


def table(first: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head starts with this title: the cells after the first, by the first."""
    lines = guide("moving.md").partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    assert rows
    return {row[0]: row[1:] for row in rows}


def answer(allowed: bool) -> str:  # noqa: FBT001 - an answer of a library
    return "allowed" if allowed else "disallowed"


async def robotparser(url: str) -> str:
    robots = RobotFileParser(f"http://{url.split('/')[2]}/robots.txt")
    try:
        await asyncio.to_thread(robots.read)
    except URLError:
        return "an exception"
    return answer(robots.can_fetch(UA, url))


async def scrapy(url: str) -> str:
    done = await crawl([url], {"ROBOTSTXT_OBEY": True})
    return answer(done.ignored.get(url) != "IgnoreRequest: Forbidden by robots.txt")


async def crawlee(url: str) -> str:
    from crawlee.crawlers import HttpCrawler
    from crawlee.http_clients import ImpitHttpClient
    from crawlee.storage_clients import MemoryStorageClient

    from tests.wire.clients.clients import use_memory

    use_memory()
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
    async with Gatekeeper(UA) as gate:
        return answer(bool(await gate.check(url)))


ASKED: Final[dict[str, Ask]] = {
    "robotparser": robotparser,
    "Scrapy": scrapy,
    "Crawlee": crawlee,
    "politesse": politesse,
}


@pytest.mark.parametrize("library", ASKED)
async def test_libraries_answer_to_a_robots_txt_that_fails_as_the_table_says(library: str) -> None:
    found = {"no connection": await ASKED[library](f"http://127.0.0.1:{free_port()}/page")}
    for number in ("503", "404", "403", "429"):
        site = ScrapySite(int(number), {"/page": html()})
        async with serving_scrapy(site):
            found[number] = await ASKED[library](f"{site.base}/page")
    rows = table("robots.txt")
    assert found == {name: rows[name][list(ASKED).index(library)].partition(",")[0] for name in found}


@pytest.mark.parametrize("library", ["Protego", "robotparser", "Scrapy", "Crawlee"])
async def test_library_and_politesse_differ_about_the_url_of_the_table(library: str) -> None:
    rules, path, theirs, ours = table("library")[library]
    lines = re.findall("`([^`]+)`", rules)
    if not lines[0].startswith("User-agent"):
        lines.insert(0, "User-agent: *")
    robots = "\n".join(lines) + "\n"
    site = ScrapySite(robots, {path.strip("`"): html()})

    async def protego(url: str) -> str:
        return answer(Protego.parse(robots).can_fetch(url, "ExampleBot"))

    async with serving_scrapy(site):
        url = site.base + path.strip("`")
        assert await (ASKED | {"Protego": protego})[library](url) == theirs
        assert await politesse(url) == ours
    assert theirs != ours
