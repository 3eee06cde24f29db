"""Sites that demand signatures are crawled by each client; http-message-signatures verifies every request."""

import asyncio
import io
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import aiohttp
import pytest
import requests
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from http_message_signatures import InvalidSignature
from multidict import CIMultiDict

from politesse import FetchOptions, Gatekeeper, PacingOptions
from politesse.clock import SystemClock
from politesse.events import HostClosed
from politesse.integrations.aiohttp import PoliteSession, RobotsMiddleware
from politesse.integrations.requests import PoliteAdapter
from politesse.signing import WebBotAuth, directory_app
from politesse.sync import Gate
from tests.support.events import events_of
from tests.support.httpx_libraries import Library
from tests.support.signatures import AGENT, COVERED, Key, key_file, public_keys, request, verified
from tests.support.sites import EAGER, UA, Site, serving
from tests.wire.scrapy.crawling import QUICK, crawl

DEMAND: Final = 'sig1=("@authority" "@method" "@path");tag="web-bot-auth"'
SIGNED: Final = {"Signature", "Signature-Input", "Signature-Agent"}
HOST: Final = {"Host": "bot.example"}  # of AGENT
CLIENTS: Final = ("PoliteSession", "RobotsMiddleware", "httpx", "httpx2")


@dataclass
class Strict(Site):
    """Answers only requests with a valid signature that was not used before; asks the directory for unknown keys."""

    directory: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    nonces: set[str | None] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    refusal: tuple[int, Mapping[str, str]] = (401, {})
    open_paths: frozenset[str] = frozenset()
    is_endless: bool = False
    takes_nonces: bool = True

    def begin(self) -> "Strict":
        """Forget the requests of an earlier client."""
        for known in (self.seen, self.refused, self.nonces):
            known.clear()
        return self

    async def respond(self, request_: web.Request) -> web.StreamResponse:
        if request_.path not in self.open_paths:
            try:
                await self.verify(request_)
            except InvalidSignature:
                self.refused.append(request_.path)
                if self.is_endless:
                    return await self.endless(request_)
                return web.Response(status=self.refusal[0], headers=self.refusal[1])
        return await super().respond(request_)

    async def endless(self, request_: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.refusal[0], headers=self.refusal[1])
        await response.prepare(request_)
        with suppress(ConnectionError):
            while not self.go_on.is_set():
                await response.write(b"x")
                await asyncio.sleep(0.01)
        return response

    async def verify(self, request_: web.Request) -> None:
        kid = re.search('keyid="([^"]+)"', request_.headers.get("Signature-Input", ""))
        if kid is not None and kid[1] not in self.keys:
            async with aiohttp.ClientSession() as session, session.get(self.directory, headers=HOST) as response:
                self.keys = public_keys(await response.json(content_type=None))
        message = request(request_.method, str(request_.url), request_.headers)
        found = verified(message, self.keys, *COVERED, '"signature-agent";key="sig1"')
        if not self.takes_nonces or found.nonce in self.nonces:
            raise InvalidSignature("a replay")
        self.nonces.add(found.nonce)


@pytest.fixture(autouse=True)
def _keys_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse.signing._keys._LOOK_S", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return key_file(tmp_path / "bot.pem", Key())


@pytest.fixture(scope="session")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture(scope="session")
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def directory(path: Path) -> AsyncIterator[str]:
    async with TestServer(directory_app(path, agent=AGENT)) as server:
        yield str(server.make_url("/.well-known/http-message-signatures-directory"))


@pytest.fixture
async def strict(directory: str, tls: ssl.SSLContext) -> AsyncIterator[Strict]:
    async for site in serving(Strict(directory=directory), tls=tls):
        yield site


@pytest.fixture
async def other(directory: str, tls: ssl.SSLContext) -> AsyncIterator[Strict]:
    async for site in serving(Strict(directory=directory), "localhost", tls=tls):
        yield site


@pytest.fixture
def signer(path: Path) -> WebBotAuth:
    return WebBotAuth(path, agent=AGENT)


@pytest.fixture
def asked(path: Path) -> WebBotAuth:
    return WebBotAuth(path, agent=AGENT, when="asked")


Opened = Callable[..., AbstractAsyncContextManager[tuple[Gatekeeper, Callable[..., Any]]]]


@pytest.fixture
def opened(trust: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Return a function that opens a gate with a signer, and one of the clients; it yields a function that requests."""

    @asynccontextmanager
    async def open_client(
        kind: str, signer: WebBotAuth, pacing: PacingOptions = EAGER
    ) -> AsyncIterator[tuple[Gatekeeper, Callable[..., Any]]]:
        monkeypatch.setattr(SystemClock, "run", token_hex(8))  # the pace of an earlier client is over
        async with AsyncExitStack() as stack:
            fetch = FetchOptions(ssl_context=trust)
            gate = await stack.enter_async_context(Gatekeeper(UA, pacing=pacing, fetch=fetch, signer=signer))
            if "httpx" in kind:
                library = Library(kind)
                transport = library.polite.PoliteTransport(gate, wraps=library.http.AsyncHTTPTransport(verify=trust))
                web: Any = library.http.AsyncClient(transport=transport, follow_redirects=True)
            elif kind == "PoliteSession":
                web = PoliteSession(gate, connector=aiohttp.TCPConnector(ssl=trust))
            else:
                middlewares = (RobotsMiddleware(gate, pace=True),)
                web = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), middlewares=middlewares)
            await stack.enter_async_context(web)

            async def get(
                url: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: object = None
            ) -> int:
                content = {"content" if "httpx" in kind else "data": body}
                response = await web.request(method, url, headers=headers, **content)
                if "httpx" not in kind:
                    await response.read()
                status: int = getattr(response, "status", None) or response.status_code
                return status

            yield gate, get

    return open_client


async def test_site_that_demands_signatures_is_crawled_while_keys_rotate(
    opened: Opened, strict: Strict, path: Path
) -> None:
    old, new = Key(), Key(time.time() - 60)
    for kind in CLIENTS:
        key_file(path, old)
        strict.begin()
        async with opened(kind, WebBotAuth(path, agent=AGENT)) as (_, get):
            for number in range(6):
                if number == 3:
                    key_file(path, old, new)
                assert await get(f"{strict.base}/{number}") == 200
        assert strict.paths == ["/robots.txt", *(f"/{number}" for number in range(6))]
        assert strict.refused == []
        used = [re.findall('keyid="([^"]+)"', seen.headers["Signature-Input"])[0] for seen in strict.seen]
        assert used == [old.thumbprint] * 4 + [new.thumbprint] * 3


async def test_redirect_to_another_authority_gets_a_signature_of_its_own(
    opened: Opened, strict: Strict, other: Strict, signer: WebBotAuth
) -> None:
    strict.redirects = {"/robots.txt": (301, f"{other.base}/robots.txt"), "/moved": (302, f"{other.base}/page")}
    for kind in CLIENTS:
        other.begin()
        async with opened(kind, signer) as (_, get):
            assert await get(f"{strict.base}/moved") == 200
        assert other.pages == ["/page"]
        assert strict.refused == other.refused == []


async def test_plain_http_is_not_signed_even_after_a_redirect(
    opened: Opened, strict: Strict, site: Site, signer: WebBotAuth
) -> None:
    strict.redirects = {"/moved": (302, f"{site.base}/page")}
    for kind in CLIENTS:
        site.seen.clear()
        async with opened(kind, signer) as (_, get):
            assert await get(f"{site.base}/page") == 200
            assert await get(f"{strict.base}/moved") == 200
        assert site.paths == ["/robots.txt", "/page", "/page"]
        assert all(SIGNED.isdisjoint(seen.headers) for seen in site.seen)


@pytest.mark.realtime  # pages have a pace
async def test_demand_is_answered_by_one_signed_request_in_a_turn_of_its_own_that_counts_no_refusal(
    opened: Opened, strict: Strict, path: Path
) -> None:
    pacing = PacingOptions(min_delay_s=0.1, adaptive_factor=0.0, refused_after=1)
    requested = {
        frozenset[str](): ["/robots.txt", "/robots.txt", "/1", "/2"],  # the origin has asked: pages are signed
        frozenset({"/robots.txt"}): ["/robots.txt", "/1", "/1", "/2"],
    }
    for kind, status, (open_paths, paths) in product(CLIENTS, (401, 403, 429), requested.items()):
        strict.begin().refusal = (status, {"Accept-Signature": DEMAND})
        strict.open_paths = open_paths
        async with opened(kind, WebBotAuth(path, agent=AGENT, when="asked"), pacing) as (gate, get):
            closings = events_of(gate, HostClosed)
            for page in ("/1", "/2"):
                assert await get(f"{strict.base}{page}") == 200
            assert gate.statistics().turns == 0
        assert (strict.paths, strict.refused, closings) == (paths, paths[1:2], [])
        _, first, second, _ = strict.seen
        assert second.started - first.ended >= 0.09


@pytest.mark.clause("RFC 9421 5.1")
async def test_demand_may_be_any_line_of_its_header(opened: Opened, strict: Strict, path: Path) -> None:
    other = 'sig2=("content-digest");tag="other"'
    strict.refusal = (401, CIMultiDict([("Accept-Signature", other), ("Accept-Signature", DEMAND)]))
    for kind in CLIENTS:
        strict.begin()
        async with opened(kind, WebBotAuth(path, agent=AGENT, when="asked")) as (_, get):
            assert await get(f"{strict.base}/1") == 200
        assert strict.paths == ["/robots.txt", "/robots.txt", "/1"]


async def test_second_refusal_counts(opened: Opened, strict: Strict, signer: WebBotAuth) -> None:
    strict.open_paths, strict.takes_nonces = frozenset({"/robots.txt"}), False
    strict.refusal = (403, {"Accept-Signature": DEMAND})
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, refused_after=1)
    for kind in CLIENTS:
        strict.begin()
        async with opened(kind, signer, pacing) as (gate, get):
            closings = events_of(gate, HostClosed)
            assert await get(f"{strict.base}/1") == 403
        assert strict.pages == ["/1"]  # it was signed as the server asks
        assert [event.status for event in closings] == [403]


async def test_body_and_retry_after_are_not_answered_by_a_repetition(
    opened: Opened, strict: Strict, path: Path
) -> None:
    strict.open_paths = frozenset({"/robots.txt"})
    for kind in CLIENTS:
        for method, more in (("POST", {}), ("GET", {"Retry-After": "0"})):
            strict.begin().refusal = (401, {"Accept-Signature": DEMAND, **more})
            async with opened(kind, WebBotAuth(path, agent=AGENT, when="asked")) as (_, get):
                assert await get(f"{strict.base}/1", method) == 401
                assert await get(f"{strict.base}/2") == 200
            assert strict.pages == ["/1", "/2"]


async def test_server_that_always_asks_for_more_gets_one_repetition(opened: Opened, strict: Strict, path: Path) -> None:
    strict.open_paths, strict.takes_nonces = frozenset({"/robots.txt"}), False
    strict.refusal = (401, {"Accept-Signature": f'{DEMAND};nonce="new"'})
    for kind in CLIENTS:
        for signer in (WebBotAuth(path, agent=AGENT), WebBotAuth(path, agent=AGENT, when="asked")):
            strict.begin()
            async with opened(kind, signer) as (gate, get):
                assert [await get(f"{strict.base}/1"), await get(f"{strict.base}/1")] == [401, 401]
                assert gate.statistics().turns == 0
            assert strict.pages == ["/1"] * 4


@pytest.mark.full
@pytest.mark.realtime
async def test_cancellation_during_the_wait_for_the_repetition_frees_the_turn(
    opened: Opened, strict: Strict, path: Path
) -> None:
    strict.refusal = (401, {"Accept-Signature": DEMAND})
    strict.open_paths = frozenset({"/robots.txt"})
    for kind in CLIENTS:
        strict.begin()
        signer, pacing = WebBotAuth(path, agent=AGENT, when="asked"), PacingOptions(min_delay_s=1.0)
        async with opened(kind, signer, pacing) as (gate, get):
            task = asyncio.create_task(get(f"{strict.base}/1"))
            async with asyncio.timeout(10):
                while not (strict.refused and gate.statistics().waiting):
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert (gate.statistics().turns, gate.statistics().waiting) == (0, 0)
        assert strict.pages == ["/1"]


async def test_request_with_a_signature_of_its_own_is_left_alone(
    opened: Opened, strict: Strict, signer: WebBotAuth
) -> None:
    strict.open_paths = frozenset({"/robots.txt", "/page"})
    own = {"Signature-Input": 'own=("@method")', "Signature": "own=:AAAA:"}
    for kind in CLIENTS:
        async with opened(kind, signer) as (_, get):
            assert await get(f"{strict.base}/page", headers=own) == 200
        seen = strict.seen[-1].headers
        assert {name: seen.get(name) for name in SIGNED} == own | {"Signature-Agent": None}


async def test_middleware_without_turns_signs_too(strict: Strict, signer: WebBotAuth, trust: ssl.SSLContext) -> None:
    async with Gatekeeper(UA, fetch=FetchOptions(ssl_context=trust), signer=signer) as gate:
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector, middlewares=(RobotsMiddleware(gate),)) as session:
            assert (await session.get(f"{strict.base}/page")).status == 200


async def test_files_of_the_gate_are_signed(strict: Strict, asked: WebBotAuth, trust: ssl.SSLContext) -> None:
    strict.refusal = (401, {"Accept-Signature": DEMAND})
    strict.open_paths = frozenset({"/robots.txt"})
    async with Gatekeeper(UA, pacing=EAGER, fetch=FetchOptions(ssl_context=trust), signer=asked) as gate:
        assert (await gate.datatxt(strict.base)).status == 200
    assert strict.pages == ["/data.txt", "/data.txt"]


async def test_key_that_expires_in_mid_crawl_closes_the_site(
    strict: Strict, path: Path, signer: WebBotAuth, trust: ssl.SSLContext
) -> None:
    key_file(path, Key(0.0, 86_400.0))
    async with Gatekeeper(UA, fetch=FetchOptions(ssl_context=trust), signer=signer) as gate:
        verdict = await gate.check(f"{strict.base}/page")
    assert not verdict.allowed
    assert "no key may be used now" in str(verdict.source and verdict.source.fault)
    assert strict.paths == []


@pytest.fixture
def by_requests(
    asked: WebBotAuth, strict: Strict, authority: trustme.CA, trust: ssl.SSLContext, tmp_path: Path
) -> Callable[..., Any]:
    """Return a function that makes GETs of the site with requests, in a thread."""
    strict.refusal = (401, {"Accept-Signature": DEMAND})
    strict.open_paths = frozenset({"/robots.txt"})
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def fetch(pages: list[str], body: io.BytesIO | None = None) -> list[int]:
        gatekeeper = Gatekeeper(UA, pacing=EAGER, fetch=FetchOptions(ssl_context=trust), signer=asked)
        with Gate(gatekeeper) as gate, requests.Session() as session:
            session.mount("https://", PoliteAdapter(gate))
            session.trust_env, session.verify = False, str(tmp_path / "ca.pem")
            return [session.get(f"{strict.base}{page}", data=body, timeout=5).status_code for page in pages]

    return lambda *given: asyncio.to_thread(fetch, *given)


async def test_requests_are_signed_in_threads(by_requests: Callable[..., Any], strict: Strict) -> None:
    assert await by_requests(["/0", "/1"]) == [200, 200]
    assert strict.pages == ["/0", "/0", "/1"]


@pytest.mark.realtime
async def test_endless_body_of_a_demand_does_not_delay_the_repetition(
    by_requests: Callable[..., Any], strict: Strict
) -> None:
    strict.is_endless = True
    async with asyncio.timeout(10):
        assert await by_requests(["/0"]) == [200]
    assert strict.pages == ["/0", "/0"]


async def test_get_with_a_body_is_not_repeated(
    opened: Opened, by_requests: Callable[..., Any], strict: Strict, path: Path
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"query"

    assert await by_requests(["/0"], io.BytesIO(b"query")) == [401]
    for kind in CLIENTS:
        async with opened(kind, WebBotAuth(path, agent=AGENT, when="asked")) as (_, get):
            assert await get(f"{strict.base}/1", body=body()) == 401
    assert strict.pages == ["/0", *["/1"] * len(CLIENTS)]


@pytest.mark.full
@pytest.mark.realtime
async def test_scrapy_signs_pages_and_robots_txt(path: Path, strict: Strict) -> None:
    strict.refusal = (401, {"Accept-Signature": DEMAND})
    for when, expected in (("always", []), ("asked", ["/robots.txt"])):
        strict.seen.clear()
        settings = QUICK | {"POLITESSE_SIGNER": {"key": str(path), "agent": AGENT, "when": when}}
        crawled = await crawl([f"{strict.base}/1", f"{strict.base}/2"], settings)
        assert sorted(crawled.pages) == [f"{strict.base}/1", f"{strict.base}/2"]
        assert strict.refused == expected
        assert sorted(strict.pages) == ["/1", "/2"]
