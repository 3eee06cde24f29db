"""HTTP/2 responses that are given up: the server stops before the next request of the host starts."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
import trustme
from crawlee.http_clients import HttpxHttpClient

from politesse import Gatekeeper, HostPolicy
from politesse.integrations.crawlee import PoliteHttpClient
from politesse.queue import CrawlPage, PoliteQueue
from politesse.testing import ScriptedFetcher
from tests.support.httpx_libraries import Library
from tests.support.sites import EAGER, UA, turns, until
from tests.wire.clients.http2_site import Http2Site, serving_http2

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
async def site() -> AsyncIterator[Http2Site]:
    async with serving_http2() as site:
        yield site


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, pacing=EAGER, fetcher=ScriptedFetcher()) as gate:
        yield gate


@pytest.fixture
async def client(gate: Gatekeeper, library: Library) -> AsyncIterator[httpx.AsyncClient]:
    sender = library.http.AsyncHTTPTransport(http1=False, http2=True)
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=sender)) as client:
        yield client


async def given_up(request: asyncio.Task[Any]) -> None:
    request.cancel()
    await asyncio.wait([request])
    assert request.cancelled()


async def test_response_that_is_given_up_is_reset(site: Http2Site, gate: Gatekeeper, client: httpx.AsyncClient) -> None:
    for reads in (False, True, False):
        async with client.stream("GET", f"{site.base}/slow") as response:
            assert turns(gate) == 1
            if reads:
                async for part in response.aiter_bytes():
                    assert part == b"first "
                    break
        assert turns(gate) == 0
        assert (await client.get(f"{site.base}/page")).text == "first "
    paths = ["/slow"] * 3
    for path in ("/silent", "/slow"):
        request = asyncio.create_task(client.get(f"{site.base}{path}"))
        await until(lambda: site.paths[-1] == path)  # noqa: B023 - called at once
        await given_up(request)
        assert turns(gate) == 0
        await client.get(f"{site.base}/page")
        paths.append(path)
    assert (site.beside, site.ended, site.connections) == ([], [(path, "reset") for path in paths], 1)


@pytest.mark.realtime
@pytest.mark.parametrize("path", ["/silent", "/slow"])
async def test_timeout_ends_the_stream(site: Http2Site, client: httpx.AsyncClient, library: Library, path: str) -> None:
    with pytest.raises(library.http.ReadTimeout):
        await client.get(f"{site.base}{path}", timeout=0.1)
    await client.get(f"{site.base}/page")
    assert (site.beside, [path for path, _ in site.ended]) == ([], [path])


async def test_stream_that_is_dropped_is_reset(site: Http2Site, gate: Gatekeeper, client: httpx.AsyncClient) -> None:
    async def drop() -> None:
        await client.send(client.build_request("GET", f"{site.base}/slow"), stream=True)
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"a response of .*/slow was dropped"):
        await drop()
    await until(lambda: turns(gate) == 0)
    await client.get(f"{site.base}/page")
    assert (site.beside, site.ended) == ([], [("/slow", "reset")])


async def test_others_on_the_connection_go_on(site: Http2Site, gate: Gatekeeper, client: httpx.AsyncClient) -> None:
    gate.set_policy("127.0.0.1", HostPolicy(max_concurrent=2))
    await client.get(f"{site.base}/page")
    request = asyncio.create_task(client.get(f"{site.base}/silent"))
    await until(lambda: "/silent" in site.paths)
    for _ in range(2):
        async with client.stream("GET", f"{site.base}/slow"):
            pass
        await client.get(f"{site.base}/page")
    assert (site.beside, site.ended) == ([["/silent"]] * 4, [("/slow", "reset")] * 2)
    assert (request.done(), site.connections) == (False, 1)
    request.cancel()


async def test_connection_on_which_no_reset_can_be_sent_is_closed(
    site: Http2Site, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.stream("GET", f"{site.base}/slow") as response:

        async def fail(*_: object) -> None:
            raise OSError("no route to host")

        monkeypatch.setattr(response.extensions["network_stream"], "write", fail)
    await client.get(f"{site.base}/page")
    assert (site.beside, site.ended, site.connections) == ([], [("/slow", "closed")], 2)


async def test_response_of_a_wrapped_transport_is_reset(site: Http2Site, gate: Gatekeeper, library: Library) -> None:
    class Logging(library.http.AsyncBaseTransport):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.sender = library.http.AsyncHTTPTransport(http1=False, http2=True)

        async def handle_async_request(self, request: httpx.Request) -> object:
            return await self.sender.handle_async_request(request)

        async def aclose(self) -> None:
            await self.sender.aclose()

    transport = library.polite.PoliteTransport(gate, wraps=Logging())
    async with library.http.AsyncClient(transport=transport) as client:
        async with client.stream("GET", f"{site.base}/slow"):
            pass
        await client.get(f"{site.base}/page")
    assert (site.beside, site.ended) == ([], [("/slow", "reset")])


# Requests at once, one of which is cancelled while their connection is made


@pytest.fixture
async def tls_site(authority: trustme.CA) -> AsyncIterator[Http2Site]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    tls.set_alpn_protocols(["h2"])
    async with serving_http2(tls) as site:
        yield site


@pytest.fixture
async def tls_client(gate: Gatekeeper, library: Library, authority: trustme.CA) -> AsyncIterator[httpx.AsyncClient]:
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    sender = library.http.AsyncHTTPTransport(http1=False, http2=True, verify=tls)
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=sender)) as client:
        yield client


@dataclass
class Stage:
    """Stops a request of httpx at one of the events that httpcore traces."""

    event: str
    socket: Any = None
    is_reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self.socket = info["return_value"]
        if event == self.event:
            self.is_reached.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                if event.startswith("connection.") and self.socket is not None:
                    await self.socket.aclose()  # httpcore leaves it open
                raise


@pytest.mark.parametrize(
    "event",
    [
        *(f"connection.{step}.{end}" for step in ("connect_tcp", "start_tls") for end in ("started", "complete")),
        *(f"http2.send_request_headers.{end}" for end in ("started", "complete")),
        "http2.receive_response_headers.complete",
        "http2.receive_response_body.started",
    ],
)
async def test_request_that_is_cancelled_at_a_stage_leaves_no_stream_that_cannot_be_reset(
    tls_site: Http2Site, gate: Gatekeeper, tls_client: httpx.AsyncClient, event: str
) -> None:
    gate.set_policy("127.0.0.1", HostPolicy(max_concurrent=3))
    stage = Stage(event)
    first, second, third = (
        asyncio.create_task(tls_client.get(f"{tls_site.base}/slow{number}", extensions=extensions))
        for number, extensions in enumerate([{"trace": stage.trace}, {}, {}])
    )
    await stage.is_reached.wait()
    await until(lambda: turns(gate) == 3)
    await given_up(first)
    await until(lambda: {"/slow1", "/slow2"} <= set(tls_site.paths))
    await given_up(second)
    await tls_client.get(f"{tls_site.base}/page")
    assert (tls_site.started[-1], third.done()) == (("/page", ["/slow2"]), False)
    await given_up(third)
    await tls_client.get(f"{tls_site.base}/page")
    assert tls_site.started[-1] == ("/page", [])
    assert all(len(others) < 3 for _, others in tls_site.started)


@pytest.mark.parametrize("event", ["connection.connect_tcp.started", "connection.start_tls.started"])
async def test_request_that_is_cancelled_as_it_waits_for_the_connection_of_another_hides_no_stream(
    tls_site: Http2Site, gate: Gatekeeper, tls_client: httpx.AsyncClient, event: str
) -> None:
    gate.set_policy("127.0.0.1", HostPolicy(max_concurrent=2))
    stage = Stage(event)
    first = asyncio.create_task(tls_client.get(f"{tls_site.base}/silent", extensions={"trace": stage.trace}))
    await stage.is_reached.wait()
    second = asyncio.create_task(tls_client.get(f"{tls_site.base}/page"))
    await until(lambda: turns(gate) == 2)
    await given_up(second)
    third = asyncio.create_task(tls_client.get(f"{tls_site.base}/slow"))
    await until(lambda: turns(gate) == 2)
    stage.go_on.set()
    await until(lambda: {"/silent", "/slow"} <= set(tls_site.paths))
    await given_up(first)
    await given_up(third)
    await tls_client.get(f"{tls_site.base}/page")
    assert (tls_site.started[-1], tls_site.connections) == (("/page", []), 1)


@pytest.mark.parametrize("library", ["httpx"], indirect=True)  # httpx2 counts its permits in one step
async def test_cancellation_as_permits_are_counted_hides_no_stream(site: Http2Site, client: httpx.AsyncClient) -> None:
    stage = Stage("http2.send_connection_init.complete")
    stage.go_on.set()
    first = asyncio.create_task(client.get(f"{site.base}/page", extensions={"trace": stage.trace}))
    await stage.is_reached.wait()
    await asyncio.sleep(0)
    await given_up(first)
    assert site.paths == []
    second = asyncio.create_task(client.get(f"{site.base}/slow"))
    await until(lambda: site.paths == ["/slow"])
    await given_up(second)
    await client.get(f"{site.base}/page")
    assert (site.beside, site.ended, site.connections) == ([], [("/slow", "reset")], 1)


# Clients that the library calls in its turns


@pytest.mark.realtime
async def test_page_of_a_crawl_that_times_out_is_closed(site: Http2Site, gate: Gatekeeper, library: Library) -> None:
    pages: list[str] = []

    async def handle(page: CrawlPage[str], response: object) -> None:
        pages.append(page.url)

    queue: PoliteQueue[str] = PoliteQueue(gate)
    for path in ("/silent", "/slow", "/page"):
        await queue.put(f"{site.base}{path}")
    async with library.http.AsyncClient(http1=False, http2=True, timeout=0.5) as web:
        await queue.crawl(web, handle, on_error=lambda *_: None)
    assert pages == [f"{site.base}/page"]
    assert (site.beside, site.ended) == ([], [("/silent", "closed"), ("/slow", "closed")])


@pytest.mark.realtime
async def test_request_of_crawlee_that_is_given_up_ends_at_the_server(site: Http2Site, gate: Gatekeeper) -> None:
    crawlee = PoliteHttpClient(gate, HttpxHttpClient(http1=False, follow_redirects=False))
    async with crawlee.stream(f"{site.base}/slow"):
        pass
    await crawlee.send_request(f"{site.base}/page")
    request = asyncio.create_task(crawlee.send_request(f"{site.base}/silent"))
    await until(lambda: site.paths[-1] == "/silent")
    await given_up(request)
    await crawlee.send_request(f"{site.base}/page")
    with pytest.raises(TimeoutError):
        await crawlee.send_request(f"{site.base}/silent", timeout=timedelta(seconds=0.1))
    await crawlee.send_request(f"{site.base}/page")
    assert (site.beside, site.ended) == ([], [("/slow", "reset"), ("/silent", "reset"), ("/silent", "closed")])
    await crawlee.cleanup()
