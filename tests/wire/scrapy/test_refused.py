"""Crawls that do not start: the log has the error, and nothing is requested."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import pytest
from scrapy.settings import Settings

from tests.wire.scrapy.crawling import ADDON, USER_AGENT, Site, crawl, html, serving, start

pytestmark = [pytest.mark.realtime, pytest.mark.full]

SPIDER: Final = """
from scrapy import Spider

class OnSelect(Spider):
    name = "on_select"
    start_urls = ["{url}"]
"""
SELECT: Final = {
    "ADDONS": json.dumps(ADDON["ADDONS"]),
    "USER_AGENT": USER_AGENT,
    "TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor",
    "TELNETCONSOLE_ENABLED": "0",
}


async def log_of(process: asyncio.subprocess.Process) -> tuple[str, str]:
    """Return the log of a crawl, and its lines of the error that ended it."""
    _, err = await asyncio.wait_for(process.communicate(), 60)
    log = err.decode()
    error = "\n".join(line for line in log.splitlines() if "ConfigurationError: " in line)
    assert error
    assert "secret" not in log
    return log, error


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("POLITESSE_MAX_WAIT", "soon", ("POLITESSE_MAX_WAIT='soon': give a number of seconds, 0 or more",)),
        ("POLITESSE_FLEET", "http://:secret@127.0.0.1/0", ("fleet",)),
        ("POLITESSE_STORE", "foreign.db", ("no politesse file", "store POLITESSE_STORE")),
    ],
)
async def test_setting_that_is_refused_is_an_error_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str, why: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"something else" * 100)
    site = Site(404, {"/": html()})
    async with serving(site):
        task = {"urls": [f"{site.base}/"], "settings": ADDON | {name: given}}
        _, error = await log_of(await start(json.dumps(task)))
    assert [part for part in why if part not in error] == []
    assert site.paths == []
    assert foreign.read_bytes() == b"something else" * 100


async def test_crawl_on_another_reactor_does_not_start_and_says_so(tmp_path: Path) -> None:
    site = Site(404, {"/": html()})
    given = [part for name, value in SELECT.items() for part in ("-s", f"{name}={value}")]
    async with serving(site):
        spider = tmp_path / "on_select.py"
        spider.write_text(SPIDER.format(url=f"{site.base}/"))
        command = [sys.executable, "-m", "scrapy", "runspider", str(spider), *given]
        _, error = await log_of(await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE))
    assert "politesse needs asyncio, and Scrapy runs on another reactor: set" in error
    assert site.paths == []


@pytest.mark.skipif("TWISTED_REACTOR_ENABLED" not in Settings(), reason="this version of Scrapy needs a reactor")
async def test_crawl_without_a_reactor_is_as_any_other() -> None:
    site = Site("User-agent: *\nDisallow: /private\n", {"/": html("/a", "/private"), "/a": html(), "/private": html()})
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | {"DOWNLOAD_DELAY": 0, "TWISTED_REACTOR_ENABLED": False})
    assert site.paths == ["/robots.txt", "/", "/a"]
    assert set(done.ignored) == {f"{site.base}/private"}
