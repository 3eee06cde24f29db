"""The spider of the guide to browsers, with scrapy-playwright and a real Chromium."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from politesse.testing import assert_polite
from tests.support.sites import UA, serving
from tests.wire.clients.browsers import HtmlSite, chromium

pytest.importorskip("scrapy_playwright")
pytestmark = [pytest.mark.full, pytest.mark.realtime]

GUIDE: Final = (Path(__file__).parents[3] / "src/politesse/guides/browsers.md").read_text()
[SPIDER] = [code for code in re.findall(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE) if "(scrapy.Sp" in code]
RUN: Final = """
import sys
from scrapy.crawler import AsyncCrawlerProcess

BrowserSpider.start_urls = sys.argv[2:]
options = {"executable_path": sys.argv[1], "chromium_sandbox": False}
process = AsyncCrawlerProcess({"LOG_LEVEL": "INFO", "PLAYWRIGHT_LAUNCH_OPTIONS": options, "RETRY_ENABLED": False})
process.crawl(BrowserSpider)
process.start()
"""


@pytest.fixture
async def site() -> AsyncIterator[HtmlSite]:
    async for site in serving(HtmlSite()):
        yield site


async def crawled(program: str, *urls: str) -> tuple[list[str], str]:
    """Run a spider, and return the lines that it prints, and its log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{program}\n{RUN}", chromium(), *urls),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            printed, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return sorted(printed.decode().splitlines()), log.decode()


async def test_spider_of_the_guide_uses_the_turns_of_its_requests(site: HtmlSite) -> None:
    site.redirects |= {"/moved": (302, "/target"), "/hidden": (302, "/private/x")}
    paths = ("/a", "/moved", "/hidden", "/private/y")
    printed, log = await crawled(SPIDER, *(site.base + path for path in paths))
    assert printed == [f"/a {site.base}/a", f"/target {site.base}/target"], log
    assert f"disallowed: {site.base}/private/x" in log
    assert sorted(site.pages) == ["/a", "/hidden", "/moved", "/target"]
    assert_polite(site.trace(), {site.base: site.robots}, agent="ExampleBot", min_delay_s=1.0, slack_s=0.01)
    assert {seen.headers["User-Agent"] for seen in site.seen} == {UA}


async def test_document_without_a_polite_page_is_not_requested(site: HtmlSite) -> None:
    failing = SPIDER.replace("await polite_page(page, robots.gate)", "raise RuntimeError('a fault')")
    assert failing != SPIDER
    printed, log = await crawled(failing, f"{site.base}/a")
    assert "a fault" in log
    assert (printed, site.paths) == ([], ["/robots.txt"])
