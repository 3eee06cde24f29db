"""A cache of pages around ``PoliteTransport``: a fresh page needs no request, each conditional request has its turn."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from hishel import AsyncSqliteStorage
from hishel.httpx import AsyncCacheTransport

from politesse import Gatekeeper, PacingOptions, PoliteQueue
from politesse.integrations.httpx import PoliteTransport
from politesse.queue import CrawlPage
from tests.support.sites import UA, Site

pytestmark = pytest.mark.realtime


@dataclass
class Tagged(Site):
    """Its pages have a tag, and are fresh for an hour below /fresh."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return await super().respond(request)
        headers = {"ETag": '"1"', "Cache-Control": "max-age=3600" if request.path == "/fresh" else "no-cache"}
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers=headers)
        return web.Response(text=request.path, headers=headers)


@pytest.fixture
def site_class() -> type[Tagged]:
    return Tagged


def cached(gate: Gatekeeper, folder: Path) -> httpx.AsyncClient:
    storage = AsyncSqliteStorage(database_path=str(folder / "pages.db"))
    return httpx.AsyncClient(transport=AsyncCacheTransport(PoliteTransport(gate), storage, rfc=True))


async def test_fresh_page_needs_no_request_and_each_question_has_its_turn(site: Tagged, tmp_path: Path) -> None:
    pacing = PacingOptions(min_delay_s=0.3, adaptive_factor=0.0)
    async with Gatekeeper(UA, pacing=pacing) as gate, cached(gate, tmp_path) as client:
        for path in ("/fresh", "/fresh", "/page", "/page", "/page"):
            response = await client.get(f"{site.base}{path}")
            assert (response.status_code, response.text) == (200, path)
    asked = [(seen.path, seen.status) for seen in site.seen[1:]]
    assert asked == [("/fresh", 200), ("/page", 200), ("/page", 304), ("/page", 304)]
    assert [later.started - earlier.ended >= 0.3 for earlier, later in pairwise(site.seen[1:])] == [True] * 3


async def test_second_crawl_asks_only_whether_the_pages_have_changed(site: Tagged, tmp_path: Path) -> None:
    texts: list[str] = []

    async def handle(page: CrawlPage[None], response: httpx.Response) -> None:
        texts.append(response.text)

    for _ in range(2):
        pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
        async with Gatekeeper(UA, pacing=pacing) as gate, cached(gate, tmp_path) as client:
            queue: PoliteQueue[None] = PoliteQueue(gate)
            for path in ("/fresh", "/page", "/private"):
                await queue.put(f"{site.base}{path}")
            report = await queue.crawl(client, handle)
            assert (report.pages, report.disallowed) == (2, 1)
    asked = [(seen.path, seen.status) for seen in site.seen if seen.path != "/robots.txt"]
    assert asked == [("/fresh", 200), ("/page", 200), ("/page", 304)]
    assert texts == ["/fresh", "/page"] * 2
