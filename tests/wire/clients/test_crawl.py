"""queue.crawl over real servers, with every client that it takes: what the servers' logs say."""

import asyncio
import gzip
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from aiohttp import web

from politesse import ConfigurationError, Gatekeeper, PoliteSession
from politesse.events import HostClosed
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.integrations.httpx2 import PoliteTransport as Httpx2Transport
from politesse.queue import CrawlPage, PoliteQueue
from politesse.testing import ScriptedFetcher, assert_polite
from tests.support.ports import free_port
from tests.support.sites import EAGER, UA, Server, Site, slow_gate, turns, until
from tests.support.tiers import first_of


class LinkedSite(Site):
    """A site whose front page links to the others."""

    links: tuple[str, ...] = ()
    files: Mapping[str, tuple[bytes, dict[str, str]]] = MappingProxyType({})

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.files:
            body, headers = self.files[request.path]
            return web.Response(body=body, headers=headers)
        if request.path == "/broken.xml":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(urlset(f"{self.base}/6"))
            assert request.transport is not None
            request.transport.close()
            return response
        response = await super().respond(request)
        if request.path == "/":
            assert hasattr(response, "text")
            response.text = " ".join(f'<a href="{link}">' for link in self.links)
        return response


def urlset(*urls: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode()


OF_HTTPX = ["httpx.AsyncClient", "httpx2.AsyncClient", "httpx.PoliteTransport", "httpx2.PoliteTransport"]
CLIENTS = ["PoliteSession", "ClientSession", "RobotsMiddleware", *OF_HTTPX]


@pytest.fixture
def site_class() -> type[Server]:
    return LinkedSite


@pytest.fixture(params=CLIENTS)
async def web_client(request: pytest.FixtureRequest, gate: Gatekeeper) -> AsyncIterator[Any]:
    clients: dict[str, Callable[[], Any]] = {
        "PoliteSession": lambda: PoliteSession(gate),
        "ClientSession": aiohttp.ClientSession,
        "RobotsMiddleware": lambda: aiohttp.ClientSession(middlewares=[RobotsMiddleware(gate, pace=True)]),
        "httpx.AsyncClient": httpx.AsyncClient,
        "httpx2.AsyncClient": httpx2.AsyncClient,
        "httpx.PoliteTransport": lambda: httpx.AsyncClient(transport=PoliteTransport(gate), follow_redirects=True),
        "httpx2.PoliteTransport": lambda: httpx2.AsyncClient(transport=Httpx2Transport(gate), follow_redirects=True),
    }
    async with clients[request.param]() as web:
        yield web


async def body(response: Any) -> str:
    return await response.text() if isinstance(response, aiohttp.ClientResponse) else response.text


class Pages:
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.statuses: list[int] = []

    async def __call__(self, page: CrawlPage[object], response: Any) -> None:
        text = await body(response)
        self.urls.append(page.url)
        self.statuses.append(response.status if isinstance(response, aiohttp.ClientResponse) else response.status_code)
        for link in re.findall(r'href="([^"]*)"', text):
            page.put(link)


@pytest.mark.realtime
async def test_every_client_crawls_and_the_servers_find_no_fault(
    gate: Gatekeeper, web_client: Any, site: LinkedSite, other: LinkedSite
) -> None:
    site.links = ("/a", "/private/x", "/moved", "/404", "/%7Euser?%26", f"{other.base}/", "mailto:us", "/a#part")
    site.redirects = {"/moved": (301, f"{other.base}/far")}
    other.links = ("/b", site.base)
    pages, queue = Pages(), PoliteQueue[object](gate)
    await queue.put(f"{site.base}/")
    async with asyncio.timeout(30):
        report = await queue.crawl(web_client, pages)
    assert sorted(pages.urls) == sorted(
        [f"{site.base}{path}" for path in ("/", "/a", "/404", "/%7Euser?%26")]
        + [f"{other.base}{path}" for path in ("/", "/b", "/far")]
    )
    assert sorted(pages.statuses) == [200] * 6 + [404]
    assert (report.pages, report.redirects, report.disallowed, report.bad_links) == (7, 1, 1, 0)
    assert (report.failed, report.left, turns(gate)) == (0, 0, 0)
    assert sorted(site.pages) == sorted(["/", "/a", "/moved", "/404", "/%7Euser?%26"])
    assert {seen.headers["User-Agent"] for server in (site, other) for seen in server.seen} == {UA}
    assert_polite(
        (*site.trace(), *other.trace()), {site.base: site.robots, other.base: other.robots}, agent=UA, min_delay_s=0.0
    )


@pytest.mark.realtime
async def test_request_of_a_record_ends_before_the_work_of_the_handler(
    gate: Gatekeeper, web_client: Any, site: LinkedSite
) -> None:
    async def work(_: CrawlPage[object], response: Any) -> None:
        await body(response)
        await asyncio.sleep(0.2)

    found: list[dict[str, Any]] = []
    queue = PoliteQueue[object](gate)
    await queue.put(f"{site.base}/")
    async with asyncio.timeout(30):
        await queue.crawl(web_client, work, out=found.append)
    [record] = found
    assert record["elapsed_s"] - record["request_s"] > 0.19


@pytest.mark.realtime
@pytest.mark.parametrize("web_client", first_of(1, CLIENTS), indirect=True)
async def test_every_client_reads_sitemaps_as_streams(
    gate: Gatekeeper, web_client: Any, site: LinkedSite, other: LinkedSite
) -> None:
    maps = ("/one.xml.gz", "/two", "/moved.xml", "/404.xml", "/broken.xml")
    site.robots += "".join(f"Sitemap: {site.base}{path}\n" for path in maps) + f"Sitemap: {other.base}/index.xml\n"
    site.redirects = {"/moved.xml": (302, f"{other.base}/four.xml")}
    many = [f"{site.base}/1?{number:07}" for number in range(2)]
    site.files = {
        "/one.xml.gz": (gzip.compress(urlset(*many[:1] * 40_000, many[1])), {"Content-Type": "application/gzip"}),
        "/two": (gzip.compress(urlset(f"{site.base}/2")), {"Content-Encoding": "gzip", "Content-Type": "text/xml"}),
        "/404.xml": (b"<urlset><url><loc>", {}),
    }
    other.files = {
        "/index.xml": (
            urlset(f"{other.base}/three.txt").replace(b"urlset", b"sitemapindex").replace(b"url>", b"sitemap>"),
            {},
        ),
        "/three.txt": (f"{site.base}/3\n{other.base}/3\n".encode(), {"Content-Type": "text/plain"}),
        "/four.xml": (urlset(f"{site.base}/4", f"{other.base}/4"), {}),
    }
    pages, errors, queue = Pages(), [], PoliteQueue[object](gate)
    assert await queue.put_sitemaps(site.base) == 6
    async with asyncio.timeout(30):
        report = await queue.crawl(web_client, pages, on_error=lambda page, error: errors.append((page.url, error)))
    wanted = [*many, *(f"{site.base}/{n}" for n in (2, 3, 4, 6)), f"{other.base}/3"]
    assert sorted(pages.urls) == sorted(wanted)
    assert (report.pages, report.sitemaps, report.redirects, report.failed, report.left) == (7, 5, 1, 2, 0)
    # The turn of a file lasts until its last URL is queued, and files come after pages.
    assert site.pages.index("/1?0000001") < site.pages.index("/two")
    assert {url for url, _ in errors} == {f"{site.base}/404.xml", f"{site.base}/broken.xml"}
    assert turns(gate) == 0
    assert_polite(
        (*site.trace(), *other.trace()), {site.base: site.robots, other.base: other.robots}, agent=UA, min_delay_s=0.0
    )


@pytest.mark.realtime
async def test_urls_as_people_write_them_are_requested(gate: Gatekeeper, web_client: Any, site: LinkedSite) -> None:
    pages, queue = Pages(), PoliteQueue[object](gate)
    urls = [site.base.replace("http", "HTTP"), f"{site.base}/é b", f"{site.base}/x?", f"{site.base}/y#part"]
    for url in urls:
        await queue.put(url)
    async with asyncio.timeout(30):
        report = await queue.crawl(web_client, pages)
    assert (report.pages, report.failed) == (4, 0)
    assert sorted(path.rstrip("?") for path in site.pages) == ["/", "/%C3%A9%20b", "/x", "/y"]


@pytest.mark.realtime
async def test_a_request_that_fails_is_logged_in_the_words_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    url = f"http://127.0.0.1:{free_port()}/"
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate, PoliteSession(gate) as web_client:
        queue = PoliteQueue[object](gate)
        await queue.put(url)
        report = await queue.crawl(web_client, Pages())
    [line] = caplog.messages
    assert line.startswith(f"{url} failed: aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host ")
    assert f"{url[7:-1]} [Connect call failed" in line
    assert report.failed == 1


@pytest.mark.realtime
async def test_a_refusal_closes_its_host_once_and_the_url_is_left(
    gate: Gatekeeper, web_client: Any, site: LinkedSite
) -> None:
    closures: list[HostClosed] = []
    gate.subscribe(lambda event: closures.append(event) if isinstance(event, HostClosed) else None)
    queue = PoliteQueue[object](gate)
    await queue.put(f"{site.base}/503")
    crawl = asyncio.create_task(queue.crawl(web_client, Pages()))
    await until(lambda: queue.qsize() == 1 and bool(site.pages))
    crawl.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawl
    recorded = [closure.status for closure in closures]
    assert (queue.qsize(), site.pages, recorded) == (1, ["/503"], [503])


@pytest.mark.realtime
async def test_a_body_that_is_read_frees_its_host_before_handle_returns(
    gate: Gatekeeper, web_client: Any, site: LinkedSite
) -> None:
    queue, under_way = PoliteQueue[object](gate), 0
    both = asyncio.Event()

    async def handle(page: CrawlPage[object], response: Any) -> None:
        nonlocal under_way
        await body(response)
        under_way += 1
        if under_way == 2:
            both.set()
        await both.wait()

    await queue.put(f"{site.base}/1")
    await queue.put(f"{site.base}/2")
    async with asyncio.timeout(30):
        assert (await queue.crawl(web_client, handle)).pages == 2


@pytest.mark.realtime
async def test_a_session_that_is_closed_meanwhile_ends_the_crawl(
    gate: Gatekeeper, web_client: Any, site: LinkedSite
) -> None:
    queue = PoliteQueue[object](gate)

    async def handle(page: CrawlPage[object], response: Any) -> None:
        await (web_client.aclose() if hasattr(web_client, "aclose") else web_client.close())

    for place in range(3):
        await queue.put(f"{site.base}/{place}")
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="the session of the crawl is closed"):
            await queue.crawl(web_client, handle, workers=1)
        with pytest.raises(RuntimeError, match="the session of the crawl is closed"):
            await queue.crawl(web_client, handle)
    assert queue.qsize() == 2
    assert turns(gate) == 0


@pytest.mark.realtime
async def test_a_server_that_hangs_up_is_a_failure_with_its_url(
    gate: Gatekeeper, web_client: Any, site: LinkedSite
) -> None:
    errors: list[str] = []
    site.drops = 99
    queue, pages = PoliteQueue[object](gate), Pages()
    await queue.put(f"{site.base}/drop")
    await queue.put(f"{site.base}/page")
    async with asyncio.timeout(30):
        report = await queue.crawl(web_client, pages, on_error=lambda page, _: errors.append(page.url))
    assert (report.pages, report.failed, errors) == (1, 1, [f"{site.base}/drop"])


@pytest.mark.realtime
async def test_the_pace_is_kept_whatever_the_number_of_workers(site: LinkedSite) -> None:
    site.links = tuple(f"/{place}" for place in range(8))
    async with slow_gate(0.1) as gate, PoliteSession(gate) as web:
        queue, pages = PoliteQueue[object](gate), Pages()
        await queue.put(f"{site.base}/")
        async with asyncio.timeout(30):
            await queue.crawl(web, pages, workers=20)
    assert len(pages.urls) == 9
    assert_polite(site.trace(), {site.base: site.robots}, agent=UA, min_delay_s=0.1)


async def test_a_session_of_another_gatekeeper_is_refused(gate: Gatekeeper) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as other, PoliteSession(other) as web:
        with pytest.raises(ConfigurationError, match=r"create the queue with PoliteQueue\(web.gate\)"):
            await PoliteQueue[object](gate).crawl(web, Pages())


async def test_a_session_over_a_view_of_the_gate_is_that_of_the_queue(gate: Gatekeeper, site: LinkedSite) -> None:
    view = gate.agent(tokens=["ExampleBot"])
    async with PoliteSession(view) as web:
        queue, pages = PoliteQueue[object](gate), Pages()
        await queue.put(f"{site.base}/")
        assert (await queue.crawl(web, pages)).pages == 1


async def test_a_client_that_is_not_asynchronous_is_refused(gate: Gatekeeper) -> None:
    with httpx.Client() as web, pytest.raises(ConfigurationError, match=r"give a PoliteSession, an aiohttp.ClientSes"):
        await PoliteQueue[object](gate).crawl(web, Pages())  # type: ignore[arg-type]
