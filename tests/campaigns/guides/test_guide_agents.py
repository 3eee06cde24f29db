"""The tool of the guide to agents returns a text, whatever the URL, the site and the pace."""

import asyncio
import os
import re
import runpy
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from politesse.testing import assert_polite
from tests.support.guides import blocks_of
from tests.support.sites import ROBOTS, Site

FetchPage = Callable[[str], Awaitable[str]]
Fetching = Callable[..., AbstractAsyncContextManager[FetchPage]]

GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/agents.md").read_text()
FILES = {block.file: block.code for block in blocks_of("agents.md", GUIDE) if block.file}


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "polite_fetch.py"
    path.write_text(FILES["polite_fetch.py"])
    return runpy.run_path(str(path))


@pytest.fixture
def fetching(names: dict[str, Any]) -> Fetching:
    opened: Fetching = names["fetching"]
    return opened


@pytest.mark.realtime
async def test_pages_are_fetched_once_in_their_turns_and_no_disallowed_page(fetching: Fetching, site: Site) -> None:
    site.redirects = {"/moved": (302, "/private/moved")}
    paths = ["/private/a", "/a", "/moved", "/b"]
    async with fetching("redirects") as fetch_page:
        texts = await asyncio.gather(*(fetch_page(f"{site.base}{path}") for path in paths))
    assert sorted(site.pages) == ["/a", "/b", "/moved"]
    assert_polite(site.trace(), {site.base: ROBOTS}, agent="ExampleBot", min_delay_s=1.0, slack_s=0.003)
    assert texts[1] == f"200 {site.base}/a\npage /a"
    assert texts[0].startswith(f"disallowed: {site.base}/private/a\n")
    assert texts[2].startswith(f"disallowed: {site.base}/private/moved\n")
    assert "line 2, 'Disallow: /private'" in texts[2]


@pytest.mark.realtime
async def test_text_says_when_the_turn_comes(fetching: Fetching, site: Site) -> None:
    site.robots += "Crawl-delay: 60\n"
    async with fetching("redirects") as fetch_page:
        text = await fetch_page(f"{site.base}/a")  # its Crawl-delay also counts from the request for robots.txt
    assert text.startswith("no turn at 127.0.0.1 within 10 s: not before ")
    found = re.search(r", by crawl-delay\. Ask again in (\d+) s\.$", text)
    assert found
    assert 30 < int(found[1]) <= 60
    assert site.paths == ["/robots.txt"]


async def test_own_network_is_refused(fetching: Fetching, site: Site) -> None:
    async with fetching() as fetch_page:
        text = await fetch_page(f"{site.base}/a")
    assert "127.0.0.1 is a private address" in text
    assert site.paths == []


@pytest.mark.parametrize(
    "url",
    ["", "page", "file:///etc/passwd", "http://[", "http://a\0b/", "http://xn--/", f"http://a.test/{'x' * 70_000}"],
    ids=["empty", "relative", "file", "bracket", "control", "punycode", "long"],
)
async def test_wrong_url_is_named(fetching: Fetching, url: str) -> None:
    async with fetching() as fetch_page:
        assert "Invalid" in (text := await fetch_page(url)) or text.startswith("IDNAError: ")


@pytest.mark.realtime
async def test_page_without_end_is_cut_and_its_turn_ends(names: dict[str, Any], site: Site) -> None:
    fetching: Fetching = names["fetching"]
    names["page"].__globals__["MAX_CHARACTERS"] = length = len(f"200 {site.base}/slow\nfir")
    async with fetching("redirects") as fetch_page, asyncio.timeout(30):
        assert await fetch_page(f"{site.base}/slow") == f"200 {site.base}/slow\nfir"
        assert len(await fetch_page(f"{site.base}/other")) == length


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.skipif(find_spec("crawl4ai") is None, reason="crawl4ai is not installed: it takes 900 MB")
async def test_crawl4ai_requests_each_page_once_in_its_turn(site: Site, tmp_path: Path) -> None:
    site.redirects = {"/docs": (301, "/docs/")}
    (tmp_path / "polite_crawl.py").write_text(FILES["polite_crawl.py"].replace("http://localhost:8000", site.base))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "polite_crawl.py"),
        cwd=tmp_path,
        env={**os.environ, "CRAWL4_AI_BASE_DIRECTORY": str(tmp_path), "CRAWL4AI_NO_CLOUD_NOTICE": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0
    assert sorted(site.pages) == ["/1", "/2", "/docs", "/docs/"]
    assert_polite(site.trace(), {site.base: ROBOTS}, agent="ExampleBot", min_delay_s=1.0, slack_s=0.003)
    for page in ("docs", "1", "2"):
        assert f"{site.base}/{page} 200" in printed
    assert f"{site.base}/private/ None " in printed
    assert f"Error: disallowed: {site.base}/private/ (" in printed
