"""The crawler of the demo on one site, where the demo as a whole could not tell whether it does its part."""

from __future__ import annotations

from contextlib import AsyncExitStack

import aiohttp
import pytest

from politesse import Gatekeeper, PacingOptions
from politesse.cli.demo import USER_AGENT
from politesse.cli.demo.crawl import Crawler
from politesse.cli.demo.pages import Blueprint, Page, Site, SiteAnswer
from politesse.cli.demo.server import SiteServer
from politesse.testing import Call, Fault, HostileServer

pytestmark = pytest.mark.realtime  # a Retry-After is waited for


async def _crawl(*, busy_at: frozenset[int] = frozenset()) -> tuple[Crawler, list[tuple[str, int | None]]]:
    """Crawl a front page that links to a redirect and to no page; return what was requested, and how answered."""
    servers: list[SiteServer] = []

    async def answer(call: Call) -> None:
        await servers[0].answer(call)

    async with AsyncExitStack() as stack:
        fault = Fault(name="none", robots=answer)
        address = (await stack.enter_async_context(HostileServer(fault, every_page=answer))).origin
        robots = SiteAnswer(200, "User-agent: *\nDisallow: /private")
        site = Site(Blueprint("one", (robots,), (), busy_at=busy_at), address)
        hidden = Page(site, "/hidden", "/hidden", forbidden=False, rule="")
        private = Page(site, "/private", "/private", forbidden=True, rule="Disallow: /private")
        moved = Page(site, "/moved", "/moved", forbidden=False, rule="", redirects=True, redirect=hidden)
        lost = Page(site, "/lost", "/lost", forbidden=False, rule="", redirects=True, redirect=private)
        front = Page(site, "/", "/", forbidden=False, rule="", links=[moved, lost])
        site.pages = {page.target: page for page in (front, moved, lost, hidden, private)}
        servers.append(SiteServer(site, {}))
        gate = await stack.enter_async_context(
            Gatekeeper(USER_AGENT, pacing=PacingOptions(min_delay_s=0.0, backoff_min_s=0.1))
        )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        crawler = Crawler(gate, session, max_attempts=3)
        await crawler.crawl([f"{address}/"], tasks=2)
    return crawler, [(hit.target, hit.status) for hit in servers[0].log]


async def test_redirect_target_is_judged_and_requested_in_a_turn_of_its_own() -> None:
    crawler, requests = await _crawl()
    assert sorted(requests) == [("/", 200), ("/hidden", 200), ("/lost", 302), ("/moved", 302), ("/robots.txt", 200)]
    assert (crawler.refused, crawler.left, crawler.repeated, crawler.failed) == (1, 0, 0, 0)


async def test_a_page_that_is_answered_with_429_is_put_again() -> None:
    crawler, requests = await _crawl(busy_at=frozenset({1}))
    assert requests[1:3] == [("/", 429), ("/", 200)]
    assert (crawler.repeated, crawler.failed) == (1, 0)


async def test_a_page_that_is_always_answered_with_429_is_given_up() -> None:
    crawler, requests = await _crawl(busy_at=frozenset(range(1, 100)))
    assert requests == [("/robots.txt", 200), *[("/", 429)] * 3]
    assert (crawler.repeated, crawler.failed) == (2, 1)
