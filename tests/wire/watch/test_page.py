"""The page of ``politesse.watch`` in a real Chromium, over real crawls of servers on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientResponse
from playwright.async_api import Browser, Locator, Page, expect
from yarl import URL

from politesse import Gatekeeper, PoliteSession
from politesse.queue import CrawlPage, CrawlReport, PoliteQueue
from politesse.watch import app, serve
from tests.support.sites import UA, Site, serving, slow_gate, until
from tests.wire.clients.browsers import browsing, context_of
from tests.wire.watch.watching import TOKEN, mounted

pytestmark = [pytest.mark.realtime, pytest.mark.full]
expect.set_options(timeout=30_000)

HOSTILE = """<img src=x onerror="document.title='hit'"></td>\u202e"""
REASON = "their operator has asked us"
PAGES = 3_000  # of a site: more than a test sees


class Tab:
    """A page of the browser, with what it has requested and what its console says."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def __getitem__(self, name: str) -> Locator:
        return self.page.locator(f"#{name}")

    def row(self, host: str) -> Locator:
        """Return the row of a host."""
        return self["rows"].get_by_role("row").filter(has=self.page.get_by_role("button", name=host, exact=True))

    async def order(self, button: str, *, sure: bool = False, **fields: str) -> None:
        """Press a button and fill in its dialog."""
        await self.page.get_by_role("button", name=button, exact=True).click()
        for name, text in {**fields, "reason": REASON}.items():
            await self[name].fill(text)
        if sure:
            await self["sure"].check()
        await self["go"].click()
        await expect(self["order"]).to_be_hidden()

    async def order_for(self, host: str, button: str, *, sure: bool = False, **fields: str) -> None:
        await self.row(host).get_by_role("button").click()
        await self.order(button, sure=sure, **fields)
        await expect(self["detail"].locator(".said")).to_contain_text(host)
        await self["leave"].click()

    async def explain(self, url: str) -> None:
        await self["url"].fill(url)
        await self["url"].press("Enter")


@dataclass
class Crawl:
    """A crawl of sites that are hosts of their own, and the address of its watch."""

    gate: Gatekeeper
    queue: PoliteQueue[None]
    sites: list[Site]
    base: str
    report: asyncio.Task[CrawlReport] = field(init=False)

    def __post_init__(self) -> None:
        self.report = asyncio.create_task(self.run())

    async def run(self) -> CrawlReport:
        async def handle(page: CrawlPage[None], response: ClientResponse) -> None:
            await response.read()

        async with PoliteSession(self.gate) as session:
            return await self.queue.crawl(session, handle)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest.fixture
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    context = await context_of(browser)
    tab = Tab(await context.new_page())
    yield tab
    await context.close()


@pytest.fixture
async def crawl() -> AsyncIterator[Crawl]:
    async with AsyncExitStack() as stack:
        sites = []
        for place in range(2, 6):
            address = f"127.0.0.{place}"
            sites.append(await stack.enter_async_context(asynccontextmanager(serving)(Site(), address, address)))
        gate = await stack.enter_async_context(slow_gate(0.05))
        queue = PoliteQueue[None](gate)
        for site in sites:
            for number in range(PAGES):
                queue.put_nowait(f"{site.base}/page/{number}")
        server = await stack.enter_async_context(await serve(gate, queue, port=0, token=TOKEN))
        crawl = Crawl(gate, queue, sites, server.url)
        yield crawl
        crawl.report.cancel()
        await asyncio.wait([crawl.report])


async def test_states_of_hosts_and_the_lines_of_a_file_are_shown(crawl: Crawl, tab: Tab) -> None:
    held, closed, refusing, _ = crawl.sites
    crawl.queue.put_nowait(f"{held.base}/silent", priority=-1)
    crawl.queue.put_nowait(f"{closed.base}/503", priority=-1)
    await tab.page.goto(f"{crawl.base}#token={TOKEN}")
    await expect(tab["state"]).to_have_text("running")
    crawl.queue.put_nowait(f"{refusing.base}/private/<b>")
    await expect(tab["agent"]).to_have_text(UA)
    await expect(tab.row(held.host)).to_contain_text("busy")
    await expect(tab.row(closed.host)).to_contain_text("left, Retry-After")
    await expect(tab.row(closed.host)).to_contain_text("successful (200)")
    await expect(tab["refused"]).to_contain_text("Disallow: /private")
    await expect(tab["reasons"]).to_contain_text("disallow rule")

    await tab.page.get_by_label("closed 1").check()
    await expect(tab["rows"].get_by_role("row")).to_have_count(1)
    await tab.page.get_by_label("all 4").check()
    await tab.page.get_by_role("button", name="Queued").click()
    await expect(tab.page.get_by_role("columnheader", name="Queued")).to_have_attribute("aria-sort", "descending")
    await tab["text"].fill(held.host)
    await expect(tab["rows"].get_by_role("row")).to_have_count(1)
    await tab.row(held.host).get_by_role("button").click()
    await expect(tab["facts"]).to_contain_text(f"{held.base}/silent")
    await tab.page.keyboard.press("Escape")

    await tab.explain(f"{refusing.base}/private/1")
    await expect(tab["verdict"]).to_have_text("Refused: disallow rule")
    await expect(tab["lines"].locator(".wins")).to_have_text("2Disallow: /privatedecides")
    await tab.explain(f"{refusing.base}/public")
    await expect(tab["verdict"]).to_contain_text("Allowed")
    await expect(tab["lines"].locator(".wins")).to_have_count(0)
    assert tab.page.url == crawl.base  # the token is gone
    assert {url for url in tab.requests if not url.startswith(crawl.base)} == set()
    assert tab.complaints == []


async def test_page_slows_denies_pauses_and_stops(crawl: Crawl, tab: Tab) -> None:
    slow, denied, usual, _ = crawl.sites
    await tab.page.goto(f"{crawl.base}#token={TOKEN}")
    await tab.order_for(slow.host, "Change pace…", delay="3600", most="1")
    await expect(tab.row(slow.host)).to_contain_text("every 1 h 0 min")
    await tab.order_for(denied.host, "Deny…", sure=True)
    await expect(tab.row(denied.host)).to_contain_text(f"denied ({REASON})")
    begun = len(slow.pages), len(denied.pages), len(usual.pages)
    await until(lambda: len(usual.pages) > begun[2] + 20)
    assert (len(slow.pages), len(denied.pages)) == begun[:2]

    await tab.order("Pause")
    await expect(tab["state"]).to_have_text("paused")
    await until(lambda: all(seen.ended for seen in usual.seen))
    paused = len(usual.pages)
    await asyncio.sleep(0.3)
    assert len(usual.pages) == paused
    await tab.order("Continue")
    await until(lambda: len(usual.pages) > paused)
    assert tab.complaints == []

    await tab.order("Stop", sure=True)
    report = await asyncio.wait_for(crawl.report, 30)
    assert report.pages == sum(len(site.pages) for site in crawl.sites)
    assert all(REASON in note for note in report.notes)
    assert len(report.notes) == 5


async def test_texts_of_sites_are_text(tab: Tab) -> None:
    async with slow_gate(0.0) as gate, await serve(gate, port=0, token=TOKEN) as server:
        numbers = dict.fromkeys(("interval_s", "not_before", "waiting", "in_flight", "held_s", "queued"), 1)
        texts = dict.fromkeys(("host", "bound_by", "held_by", "refusal", "fleet", "policy"), HOSTILE)
        nothing = {"status": None, "next_fetch": None}
        robots = {
            **dict.fromkeys(("origin", "result", "fault"), HOSTILE),
            **nothing,
            "age_s": 1,
            "fetching": True,
            "size": 1,
        }
        host = {**numbers, **texts, "phase": "busy", "closed_until": None, "closed_by": None, "robots": [robots]}
        phases = dict.fromkeys(("closed", "busy", "waiting", "spaced", "idle"), 0)
        hosts = {"time": 1.0, "total": 1, "matching": 1, "phases": phases, "first": 0, "hosts": [host]}
        refusals = [{"time": 1.0, "url": HOSTILE, "reason": HOSTILE, "rule": HOSTILE}]
        line = {"line": 1, "text": HOSTILE, "matches": True, "wins": True}
        found = {"url": HOSTILE, "allowed": False, "reason": HOSTILE, "text": HOSTILE, "rule": HOSTILE, "line": 1}
        events = f"event: hosts\ndata: {json.dumps(hosts)}\n\nevent: refusals\ndata: {json.dumps(refusals)}\n\n"
        await tab.page.route("**/events?*", lambda route: route.fulfill(body=events, content_type="text/event-stream"))
        await tab.page.route("**/explain?*", lambda route: route.fulfill(json={**found, "lines": [line]}))
        await tab.page.goto(server.url)
        await expect(tab["rows"].get_by_role("button")).to_have_text(HOSTILE)
        await tab["rows"].get_by_role("button").click()
        await expect(tab["facts"]).to_contain_text(HOSTILE)
        await expect(tab["files"]).to_contain_text(HOSTILE)
        await tab["leave"].click()
        await expect(tab["refused"].get_by_role("button")).to_have_text(HOSTILE)
        await tab.explain("http://example.com/")
        await expect(tab["asked"]).to_have_text(HOSTILE)
        await expect(tab["lines"]).to_contain_text(HOSTILE)
        assert await tab.page.locator("img").count() == 0
        assert await tab.page.title() == "politesse watch"
        assert tab.complaints == []


async def test_wrong_token_asks_again(tab: Tab) -> None:
    async with slow_gate(0.0) as gate, await serve(gate, port=0, token=TOKEN) as server:
        await tab.page.goto(f"{server.url}#token=wrong")
        await expect(tab["login-text"]).to_contain_text("The token is wrong.")
        await expect(tab["content"]).to_be_hidden()
        await tab["token"].fill(TOKEN)
        await tab["token"].press("Enter")
        await expect(tab["state"]).to_have_text("no crawl")
        await tab.page.reload()
        await expect(tab["state"]).to_have_text("no crawl")


async def test_without_a_token_the_page_only_reads(site: Site, tab: Tab) -> None:
    async with slow_gate(0.0) as gate, await serve(gate, PoliteQueue[None](gate), port=0) as server:
        await gate.check(f"{site.base}/")
        await tab.page.goto(server.url)
        await expect(tab["cannot"]).to_be_visible()
        await expect(tab["stop"]).to_be_hidden()
        await tab.row(site.host).get_by_role("button").click()
        await expect(tab["facts"]).to_be_visible()
        await expect(tab["steering"]).to_be_hidden()


async def test_unknown_file_is_fetched_on_demand(site: Site, tab: Tab) -> None:
    async with slow_gate(0.0) as gate, await serve(gate, port=0, token=TOKEN) as server:
        await tab.page.goto(f"{server.url}#token={TOKEN}")
        await tab.explain("no URL")
        await expect(tab["verdict"]).to_contain_text("no URL")
        await tab.explain(f"{site.base}/private")
        await tab["fetch"].click()
        await expect(tab["verdict"]).to_have_text("Refused: disallow rule")
        await expect(tab["fetch"]).to_be_hidden()
        assert site.paths == ["/robots.txt"]


async def test_lost_connection_is_said_and_tried_again(tab: Tab) -> None:
    async with slow_gate(0.0) as gate:
        async with await serve(gate, port=0, token=TOKEN) as server:
            await tab.page.goto(f"{server.url}#token={TOKEN}")
            await expect(tab["state"]).to_have_text("no crawl")
        await expect(tab.page.locator("main > .lost")).to_contain_text("No connection to the crawl.")
        async with await serve(gate, port=URL(server.url).port or 0, token=TOKEN):
            await expect(tab["again"]).to_be_hidden()
            await expect(tab["quiet"]).to_have_text("Connected again")


async def test_page_of_a_mounted_application(tab: Tab) -> None:
    async with slow_gate(0.0) as gate, mounted(app(gate, token=TOKEN), "/watch") as client:
        for path in "", "/":
            await tab.page.goto(f"{client.url.rstrip('/')}{path}#token={TOKEN}")
            await expect(tab["state"]).to_have_text("no crawl")
        assert tab.complaints == []


async def test_a_closed_gate_ends_the_watch_of_a_mounted_application(tab: Tab) -> None:
    async with slow_gate(0.0) as gate, mounted(app(gate, token=TOKEN), "/watch") as client:
        await tab.page.goto(f"{client.url}#token={TOKEN}")
        await expect(tab["state"]).to_have_text("no crawl")
        await gate.aclose()
        await expect(tab.page.locator("main > .lost")).to_contain_text(
            "The watch has ended: the gatekeeper was closed."
        )
        await expect(tab["state"]).to_have_text("ended")
        await expect(tab.page).to_have_title("ended: politesse watch")
