"""The reactor that a crawl runs on: asyncio's, or none; any other one is refused when the crawl starts."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from tests.integration.scrapy.crawling import ADDON, Site, crawl, html, serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime

SPIDER = """
from scrapy import Spider

class OnSelect(Spider):
    name = "on_select"
    start_urls = ["{url}"]
"""


async def test_crawl_on_another_reactor_does_not_start_and_says_so_in_one_line(tmp_path: Path) -> None:
    site = Site(404, {"/": html()})
    settings = {
        "ADDONS": json.dumps(ADDON["ADDONS"]),
        "USER_AGENT": "ExampleBot/1.0 (+https://example.com/bot)",
        "TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor",
        "TELNETCONSOLE_ENABLED": "0",
    }
    given = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    async with serving(site):
        spider = tmp_path / "on_select.py"
        spider.write_text(SPIDER.format(url=f"{site.base}/"))
        command = [sys.executable, "-m", "scrapy", "runspider", str(spider), *given]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, err = await asyncio.wait_for(process.communicate(), 60)
    log = err.decode()
    (error,) = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
    assert "The spider does not start: politesse needs asyncio, and Scrapy runs on another reactor: set" in error
    assert "[twisted]" not in log  # Twisted itself prints the Deferred that failed, beside the log
    assert site.paths == []


@pytest.mark.skipif("TWISTED_REACTOR_ENABLED" not in Settings(), reason="this version of Scrapy needs a reactor")
async def test_crawl_without_a_reactor_is_as_any_other() -> None:
    site = Site("User-agent: *\nDisallow: /private\n", {"/": html("/a", "/private"), "/a": html(), "/private": html()})
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | {"DOWNLOAD_DELAY": 0, "TWISTED_REACTOR_ENABLED": False})
    assert site.paths == ["/robots.txt", "/", "/a"]
    assert set(done.ignored) == {f"{site.base}/private"}
