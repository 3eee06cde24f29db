"""Crawlee's PlaywrightCrawler with the polite request manager and polite pages, judged by the logs of the servers."""

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawlee import Request
from crawlee.storages import RequestQueue

from politesse import Disallowed, Gatekeeper, PacingOptions
from politesse.integrations.crawlee import PoliteRequestManager
from politesse.integrations.playwright import polite_page
from politesse.testing import assert_polite
from tests.support.sites import UA, turns
from tests.wire.clients.browsers import HtmlSite, chromium
from tests.wire.clients.crawlee_memory import use_memory

pytest.importorskip("browserforge")
from crawlee.crawlers import PlaywrightCrawler

pytestmark = [pytest.mark.full, pytest.mark.realtime]


@pytest.fixture
def site_class() -> type[HtmlSite]:
    return HtmlSite


@pytest.fixture(scope="module", autouse=True)
def _storage() -> None:
    use_memory()


@pytest.fixture
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[RequestQueue]:
    queue = await RequestQueue.open(alias=re.sub(r"[^a-z0-9]", "-", request.node.name))
    yield queue
    await queue.drop()


async def test_browser_crawl_uses_the_turns_of_the_manager(
    site: HtmlSite, other: HtmlSite, queue: RequestQueue
) -> None:
    site.html["/"] = "".join(f"<a href={path}>x</a>" for path in ("/a", "/moved", "/private/a", "/hidden"))
    site.redirects |= {"/moved": (302, f"{other.base}/b"), "/hidden": (302, "/private/b")}
    pages: list[tuple[str, str]] = []
    failed: list[tuple[str, type[Exception]]] = []
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)
    async with Gatekeeper(UA, pacing=pacing) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler: Any = PlaywrightCrawler(
            request_manager=manager,
            browser_launch_options={"executable_path": chromium(), "chromium_sandbox": False},
            browser_new_context_options={"user_agent": UA, "service_workers": "block"},
            fingerprint_generator=None,
            max_request_retries=0,
            configure_logging=False,
        )

        async def be_polite(context: Any) -> None:
            turn = manager.turn_of(context.request)
            assert turn is not None
            await polite_page(context.page, gate, turn=turn)

        async def handle(context: Any) -> None:
            pages.append((context.request.loaded_url, await context.page.title()))
            await context.enqueue_links(strategy="all")

        async def fail(context: Any, error: Exception) -> None:
            failed.append((context.request.url, type(error)))

        crawler.pre_navigation_hook(be_polite)
        crawler.router.default_handler(handle)
        crawler.failed_request_handler(fail)
        await crawler.run([Request.from_url(f"{site.base}/", headers={"X-Test": "of the request"})])
        assert turns(gate) == 0
    assert sorted(pages) == sorted([(f"{site.base}/", "/"), (f"{site.base}/a", "/a"), (f"{other.base}/b", "/b")])
    assert failed == [(f"{site.base}/hidden", Disallowed)]
    assert sorted(site.pages) == ["/", "/a", "/hidden", "/moved"]
    assert other.pages == ["/b"]
    robots = {site.base: site.robots, other.base: other.robots}
    assert_polite([*site.trace(), *other.trace()], robots, agent="ExampleBot", min_delay_s=0.2, slack_s=0.01)
    assert {seen.headers["User-Agent"] for seen in (*site.seen, *other.seen)} == {UA}


GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/crawlee.md").read_text()


async def test_crawler_of_the_guide_judges_and_paces_the_requests_of_its_handlers(
    site: HtmlSite, other: HtmlSite, queue: RequestQueue
) -> None:
    [code] = [block for block in re.findall(r"```py\n(.*?)```", GUIDE, re.DOTALL) if "def browser_crawler" in block]
    options: dict[str, Any] = {"browser_launch_options": {"executable_path": chromium(), "chromium_sandbox": False}}
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own guide
    names["PlaywrightCrawler"] = partial(PlaywrightCrawler, max_request_retries=0, configure_logging=False, **options)
    pacing = PacingOptions(min_delay_s=0.2, adaptive_factor=0.0)
    refused: list[str] = []
    async with Gatekeeper(UA, pacing=pacing) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = names["browser_crawler"](manager)

        async def handle(context: Any) -> None:
            for url in (f"{site.base}/api", f"{other.base}/api"):
                assert (await context.send_request(url)).status_code == 200
            try:
                await context.send_request(f"{site.base}/private/api")
            except Disallowed as error:
                refused.append(error.verdict.url)

        crawler.pre_navigation_hook(handle)
        crawler.router.default_handler(handle)
        await crawler.run([f"{site.base}/a", f"{site.base}/b"])
    assert refused == [f"{site.base}/private/api"] * 4
    assert sorted(site.pages) == ["/a", *["/api"] * 4, "/b"]
    assert other.pages == ["/api"] * 4
    robots = {site.base: site.robots, other.base: other.robots}
    assert_polite([*site.trace(), *other.trace()], robots, agent="ExampleBot", min_delay_s=0.2, slack_s=0.01)
    assert {seen.headers["User-Agent"] for seen in (*site.seen, *other.seen)} == {UA}
