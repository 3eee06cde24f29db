import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field

import httpx
import pytest
from aiohttp import web

from politesse import Disallowed, Gatekeeper, PacingOptions
from politesse.integrations.httpx import PoliteTransport
from politesse.testing import ManualClock, ScriptedFetcher
from tests.integration.sites import ROBOTS, UA, Seen, Server, turns, until
from tests.support.tasks import apart


@dataclass
class Site(Server):
    """A server with redirects, challenges and answers that break off."""

    redirects: dict[str, str] = field(default_factory=dict)
    work_s: float = 0.0
    at_work: int = 0
    most_at_work: int = 0

    @property
    def robots_requests(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == "/robots.txt"]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            return await super().answer(request)
        finally:
            self.at_work -= 1

    async def respond(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/robots.txt":
            return web.Response(text=ROBOTS)
        await asyncio.sleep(self.work_s)
        if path in self.redirects:
            response = web.Response(status=302, headers={"Location": self.redirects[path]}, text="moved")
            response.set_cookie("from", "redirect")
            return response
        if path in {"/204", "/404", "/429", "/503"}:
            return web.Response(status=int(path[1:]), headers={"Retry-After": "3600"})
        if path == "/digest" and "Authorization" not in request.headers:
            challenge = 'Digest realm="here", qop="auth", algorithm=MD5, nonce="one"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge}, text="who is it?")
        if path in {"/drop", "/silent", "/slow", "/broken"}:
            return await self.misbehave(request)
        page = web.Response(text=f"page {path}")
        page.set_cookie("seen", "yes")
        return page

    async def misbehave(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.path == "/drop":
            request.transport.close()
        if request.path == "/silent":
            await self.go_on.wait()
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path in {"/slow", "/broken"}:
            await response.write(b"first ")
        if request.path == "/broken":
            request.transport.close()
        if request.path == "/slow":
            await self.go_on.wait()
            await response.write(b"last")
        await response.write_eof()
        return response


@pytest.fixture
def site_class() -> type[Site]:
    return Site


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/page", "/204", "/404"])
async def test_every_method_and_answer_ends_its_turn(
    site: Site, client: httpx.AsyncClient, gate: Gatekeeper, method: str, path: str
) -> None:
    await client.request(method, f"{site.base}{path}")
    assert turns(gate) == 0
    assert [seen.method for seen in site.seen] == ["GET", method]


async def test_robots_txt_sees_neither_cookies_nor_credentials(site: Site, other: Site, gate: Gatekeeper) -> None:
    site.redirects["/moved"] = f"{other.base}/page"
    async with httpx.AsyncClient(
        transport=PoliteTransport(gate),
        follow_redirects=True,
        auth=("user", "word"),
        cookies={"session": "secret"},
        headers={"X-Key": "secret"},
    ) as client:
        await client.get(f"{site.base}/moved")
        await gate.forget(site.base)
        await client.get(f"{site.base}/page")
    [first, second] = site.robots_requests
    [elsewhere] = other.robots_requests
    for seen in (first, second, elsewhere):
        assert {"Authorization", "Cookie", "X-Key"}.isdisjoint(seen.headers)
        assert seen.headers["User-Agent"] == UA
    page = site.seen[-1]  # and yet pages do
    assert "session=secret" in page.headers["Cookie"]
    assert page.headers["Authorization"].startswith("Basic ")
    assert page.headers["User-Agent"] == UA


@pytest.mark.parametrize("path", ["/private", "/%70rivate"])
async def test_url_that_a_hook_has_changed_is_judged_as_it_is_sent(site: Site, gate: Gatekeeper, path: str) -> None:
    async def rewrite(request: httpx.Request) -> None:
        request.url = request.url.copy_with(raw_path=path.encode())

    hooks = {"request": [rewrite]}
    async with httpx.AsyncClient(transport=PoliteTransport(gate), event_hooks=hooks) as client:
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/page")
    assert site.pages == []


async def test_requests_that_an_auth_flow_makes_or_changes_are_judged(site: Site, client: httpx.AsyncClient) -> None:
    class ByToken(httpx.Auth):
        def __init__(self, *paths: str) -> None:
            self.paths = paths

        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            yield httpx.Request("POST", f"{site.base}{self.paths[0]}")
            request.url = request.url.copy_with(path=self.paths[1])
            yield request

    await client.get(f"{site.base}/page", auth=ByToken("/token", "/other"))
    assert site.pages == ["/token", "/other"]
    for paths in (("/private/token", "/page"), ("/token", "/private")):
        site.seen.clear()
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/page", auth=ByToken(*paths))
        assert [path for path in site.pages if "private" in path] == []


# When a turn ends


@pytest.mark.parametrize(("path", "error"), [("/drop", httpx.RemoteProtocolError), ("/broken", httpx.TransportError)])
async def test_error_ends_the_turn(
    site: Site, client: httpx.AsyncClient, gate: Gatekeeper, path: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await client.get(f"{site.base}{path}")
    assert turns(gate) == 0


# Pace


async def test_twenty_tasks_on_one_host_never_overlap(site: Site, client: httpx.AsyncClient) -> None:
    site.work_s = 0.01
    await asyncio.gather(*(client.get(f"{site.base}/{n}") for n in range(20)))
    assert sorted(site.pages) == sorted(f"/{n}" for n in range(20))
    assert (len(site.robots_requests), site.most_at_work) == (1, 1)


@pytest.mark.realtime
async def test_waiting_for_a_turn_costs_nothing_of_the_timeouts(site: Site) -> None:
    clock, timeout_s = ManualClock(), 1.0
    pacing = PacingOptions(min_delay_s=60.0)
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing)
    async with gate, httpx.AsyncClient(transport=PoliteTransport(gate), timeout=timeout_s) as client:
        waiting = apart(client.get(f"{site.base}/page"))
        await until(lambda: gate.statistics().waiting == 1)
        await asyncio.sleep(1.5 * timeout_s)
        assert (waiting.done(), site.pages) == (False, [])
        clock.advance(60.0)
        response = await waiting
        assert response.elapsed.total_seconds() >= 1.5 * timeout_s
    assert site.pages == ["/page"]


@pytest.mark.realtime
async def test_timeouts_of_httpx_hold_once_it_is_sent(site: Site, gate: Gatekeeper) -> None:
    timeout = httpx.Timeout(None, read=1.0)
    async with httpx.AsyncClient(transport=PoliteTransport(gate), timeout=timeout) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(f"{site.base}/silent")
    assert (site.pages, turns(gate)) == (["/silent"], 0)


# Proxies


async def test_proxy_of_the_wrapped_transport_is_used_for_what_is_permitted(
    site: Site, other: Site, gate: Gatekeeper
) -> None:
    transport = PoliteTransport(gate, wraps=httpx.AsyncHTTPTransport(proxy=other.base))
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get(f"{site.base}/page")
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
    assert site.pages == []
    # A proxy is sent the absolute form (RFC 9112 3.2.2).
    assert [seen.path for seen in other.seen] == ["/page"]
    assert other.seen[0].headers["Host"] == site.base.removeprefix("http://")


async def test_proxies_of_the_environment_are_not_used(
    site: Site, gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with httpx.AsyncClient(transport=PoliteTransport(gate)) as client:
        await client.get(f"{site.base}/page")
    assert site.pages == ["/page"]


async def test_proxy_of_the_client_leads_past_the_transport(site: Site, other: Site, gate: Gatekeeper) -> None:
    async with httpx.AsyncClient(transport=PoliteTransport(gate), proxy=other.base) as client:
        await client.get(f"{site.base}/private")
    assert len(other.seen) == 1  # which is why nobody should
    assert gate.statistics().decisions == 0


async def test_mounted_it_judges_what_is_mounted_there(site: Site, other: Site, gate: Gatekeeper) -> None:
    mounts = {"http://127.0.0.1": PoliteTransport(gate)}
    async with httpx.AsyncClient(mounts=mounts) as client:
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
        await client.get(f"{other.base}/private")
    assert (site.pages, other.pages) == ([], ["/private"])
