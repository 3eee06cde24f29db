"""Servers on loopback that write down what they are asked, for the tests of the integrations."""

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import WSMsgType, web
from multidict import CIMultiDict
from yarl import URL

from politesse import Gatekeeper, PacingOptions
from politesse.testing import Exchange

UA = "ExampleBot/1.0 (+https://example.com/bot)"
EAGER = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ROBOTS = "User-agent: *\nDisallow: /private\n"


@dataclass
class Seen:
    """A request as the server saw it."""

    method: str
    path: str
    headers: CIMultiDict[str]
    cookies: dict[str, str]
    body: str
    started: float
    ended: float = 0.0
    status: int = 0


@dataclass
class Server:
    """A server on loopback that writes down what it is asked; how it responds is up to its kind."""

    base: str = ""
    seen: list[Seen] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    @property
    def pages(self) -> list[str]:
        return [path for path in self.paths if path != "/robots.txt"]

    def trace(self) -> list[Exchange]:
        return [Exchange(f"{self.base}{one.path}", one.started, one.ended, one.status) for one in self.seen]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        seen = Seen(
            request.method, request.path_qs, request.headers.copy(), dict(request.cookies), body, time.monotonic()
        )
        self.seen.append(seen)
        try:
            response = await self.respond(request)
            seen.status = response.status
            if not response.prepared:
                await response.prepare(request)
                seen.ended = time.monotonic()  # before the client has the end
                await response.write_eof()
            return response
        finally:
            seen.ended = seen.ended or time.monotonic()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        raise NotImplementedError


S = TypeVar("S", bound=Server)


@dataclass
class Site(Server):
    """A server with robots.txt, pages, redirects, WebSockets and answers that do not end."""

    robots: str = ROBOTS
    redirects: dict[str, tuple[int, str]] = field(default_factory=dict)
    drops: int = 0
    work_s: float = 0.0
    pings: int = 0
    fields: CIMultiDict[str] = field(default_factory=CIMultiDict)  # of pages

    @property
    def host(self) -> str:
        return URL(self.base).host or ""

    @property
    def ws(self) -> str:
        return self.base.replace("http", "ws", 1)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in self.redirects:
            return self.redirect(path)
        if path == "/robots.txt":
            response = web.Response(text=self.robots)
            response.set_cookie("robots", "yes")
            return response
        if path == "/drop" and self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.close()
        if path in {"/204", "/403", "/404", "/429", "/503"}:
            is_busy = path in {"/429", "/503"}
            return web.Response(status=int(path[1:]), headers={"Retry-After": "3600"} if is_busy else None)
        if path == "/challenge" and "Authorization" not in request.headers:
            return web.Response(status=401, text="who is it?")
        if path == "/silent":
            await self.go_on.wait()
        if path.endswith("/ws"):
            return await self.echo(request)
        return await (self.stream(request) if path == "/slow" else self.page(request))

    async def page(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.work_s)
        response = web.Response(text=f"page {request.path_qs}", headers=self.fields)
        response.set_cookie("seen", "yes")
        return response

    def redirect(self, path: str) -> web.Response:
        status, location = self.redirects[path]
        response = web.Response(status=status, headers={"Location": location} if location else {}, text="moved")
        response.set_cookie(f"from{path.replace('/', '-')}", "yes")
        return response

    async def echo(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("chat",), autoping=False)
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(f"echo {message.data}")
            elif message.type is WSMsgType.PING:
                self.pings += 1
                await socket.pong(message.data)
        return socket

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first ")
        await self.go_on.wait()
        await response.write(b"last")
        await response.write_eof()
        return response


async def serving(
    site: S, host: str = "127.0.0.1", address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[S]:
    """Serve on a port of its own; under another name it is another host."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, address, 0, ssl_context=tls)
    await listener.start()
    site.base = f"http{'s' if tls else ''}://{host}:{runner.addresses[0][1]}"
    try:
        yield site
    finally:
        site.go_on.set()
        await runner.cleanup()


@contextmanager
def served(site: S, host: str = "127.0.0.1") -> Iterator[S]:
    """Serve in a thread of its own, for clients that block."""
    started, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        async for _ in serving(site, host):
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.005)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        yield site
    finally:
        ended.set()
        thread.join()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def turns(gate: Gatekeeper) -> int:
    return gate.statistics().turns


def slow_gate(min_delay_s: float) -> Gatekeeper:
    return Gatekeeper(UA, pacing=PacingOptions(min_delay_s=min_delay_s, adaptive_factor=0.0))
