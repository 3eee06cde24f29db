"""URLs that are neither http nor https: no robots.txt covers them, and their hosts are paced all the same."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.wire.scrapy.crawling import ADDON, Site, crawl, html, serving

pytestmark = [pytest.mark.realtime, pytest.mark.full]

SERVER: Final = Path(__file__).with_name("ftp_server.py")
HOST: Final = "127.0.0.2"  # of the first Site as well


@dataclass
class FtpSite:
    """An FTP server, and when each connection to it was made."""

    base: str = ""
    started: list[float] = field(default_factory=list)


@asynccontextmanager
async def serving_ftp(folder: Path) -> AsyncIterator[FtpSite]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, HOST, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        site = FtpSite(f"ftp://{HOST}:{json.loads(await process.stdout.readline())}")
        yield site
    finally:
        process.terminate()
        out, _ = await process.communicate()
    site.started += map(json.loads, out.splitlines())


async def test_files_of_ftp_are_paced_by_their_host_and_need_no_robots_txt(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_text("page")
    site = Site("User-agent: *\nDisallow: /0\n", {"/a": html(), "/b": html()})
    shut = Site(503, {"/": html()})
    async with serving(site), serving(shut), serving_ftp(tmp_path) as files:
        urls = [f"{files.base}/{number}" for number in range(3)] + [f"{site.base}/a", f"{site.base}/b"]
        done = await crawl(
            [*urls, f"{shut.base}/"],
            ADDON | {"DOWNLOAD_DELAY": 0.5, "POLITESSE_MAX_WAIT": 2, "POLITESSE_MAX_UNREACHABLE": 2},
        )
    assert set(done.pages) == set(urls)  # the robots.txt of another port of the host is unreachable
    assert set(done.ignored) == {f"{shut.base}/"}
    assert site.robots_count == 1
    assert len(files.started) == 3  # nothing has requested a robots.txt there
    starts = sorted([*files.started, *(exchange.started for exchange in site.page_exchanges)])
    assert min(after - before for before, after in pairwise(starts)) >= 0.5


async def test_urls_without_a_host_or_a_handler_have_no_delay_and_end_as_in_scrapy_itself(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("page")
    urls = [f"data:,{number}" for number in range(20)] + [f"{file.as_uri()}?{number}" for number in range(20)]
    unknown = ["foo://example.com/page", "foo://other.example/", "about:config"]
    delay: dict[str, object] = {
        "DOWNLOAD_DELAY": 30
    }  # with it, twenty pages take ten minutes, and ``crawl`` waits for less than two
    plain, done = await asyncio.gather(crawl(unknown, {}), crawl([*urls, *unknown], ADDON | delay))
    assert set(done.pages) == set(urls)
    assert done.ignored == plain.ignored
    assert set(done.ignored) == set(unknown)
    assert all(why.startswith("NotSupported: Unsupported URL scheme") for why in done.ignored.values())
    assert done.robots_stats() == {}
