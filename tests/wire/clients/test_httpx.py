import asyncio
from collections.abc import Generator
from typing import Any

import httpx
import httpx2
import pytest

from politesse import Disallowed, Gatekeeper, PacingOptions
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.httpx_libraries import Library
from tests.support.sites import UA, UPGRADE, Site, turns, until
from tests.support.tasks import apart


@pytest.mark.parametrize("path", ["/page", "/204", "/404"])
async def test_every_method_and_answer_ends_its_turn(
    site: Site, client: httpx.AsyncClient, gate: Gatekeeper, path: str
) -> None:
    methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
    for method in methods:
        await client.request(method, f"{site.base}{path}")
        assert turns(gate) == 0, method
    assert [seen.method for seen in site.seen] == ["GET", *methods]  # the first is for robots.txt


async def test_robots_txt_sees_neither_cookies_nor_credentials(
    site: Site, other: Site, gate: Gatekeeper, library: Library
) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    async with library.http.AsyncClient(
        transport=library.polite.PoliteTransport(gate),
        follow_redirects=True,
        auth=("user", "word"),
        cookies={"session": "secret"},
        headers={"X-Key": "secret"},
    ) as client:
        await client.get(f"{site.base}/moved")
        await gate.forget(site.base)
        await client.get(f"{site.base}/page")
    robots = [seen for seen in site.seen + other.seen if seen.path == "/robots.txt"]
    assert len(robots) == 3
    for seen in robots:
        assert {"Authorization", "Cookie", "X-Key"}.isdisjoint(seen.headers)
        assert seen.headers["User-Agent"] == UA
    page = site.seen[-1]  # and yet pages do
    assert "session=secret" in page.headers["Cookie"]
    assert page.headers["Authorization"].startswith("Basic ")
    assert page.headers["User-Agent"] == UA


@pytest.mark.parametrize("path", ["/private", "/%70rivate"])
async def test_url_that_a_hook_has_changed_is_judged_as_it_is_sent(
    site: Site, gate: Gatekeeper, path: str, library: Library
) -> None:
    async def rewrite(request: httpx.Request) -> None:
        request.url = request.url.copy_with(raw_path=path.encode())

    hooks = {"request": [rewrite]}
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate), event_hooks=hooks) as client:
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/page")
    assert site.pages == []


async def test_requests_that_an_auth_flow_makes_or_changes_are_judged(
    site: Site, client: httpx.AsyncClient, library: Library
) -> None:
    class ByToken(httpx.Auth, httpx2.Auth):  # type: ignore[misc]  # the types of their generators differ
        def __init__(self, *paths: str) -> None:
            self.paths = paths

        def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
            yield library.http.Request("POST", f"{site.base}{self.paths[0]}")
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


async def test_error_ends_the_turn(site: Site, client: httpx.AsyncClient, gate: Gatekeeper, library: Library) -> None:
    site.drops = 1
    with pytest.raises(library.http.RemoteProtocolError):
        await client.get(f"{site.base}/drop")
    assert turns(gate) == 0


async def test_upgrade_holds_its_host_during_the_handshake_only(
    site: Site, client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    async with client.stream("GET", f"{site.base}/ws", headers=UPGRADE) as response:
        assert (response.status_code, turns(gate)) == (101, 0)
        await client.get(f"{site.base}/page")
        socket = response.extensions["network_stream"]
        await socket.write(b"\x89\x80\0\0\0\0")  # a ping
        assert await socket.read(2) == b"\x8a\0"  # the connection is still open
    assert site.pages == ["/ws", "/page"]


@pytest.mark.realtime
async def test_waiting_for_a_turn_costs_nothing_of_the_timeouts(site: Site, library: Library) -> None:
    clock, timeout_s = ManualClock(), 1.0
    pacing = PacingOptions(min_delay_s=60.0)
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing)
    async with (
        gate,
        library.http.AsyncClient(transport=library.polite.PoliteTransport(gate), timeout=timeout_s) as client,
    ):
        waiting = apart(client.get(f"{site.base}/page"))
        await until(lambda: gate.statistics().waiting == 1)
        await asyncio.sleep(1.5 * timeout_s)
        assert (waiting.done(), site.pages) == (False, [])
        clock.advance(60.0)
        response = await waiting
        assert response.elapsed.total_seconds() >= 1.5 * timeout_s
    assert site.pages == ["/page"]


@pytest.mark.realtime
async def test_timeouts_of_httpx_hold_once_it_is_sent(site: Site, gate: Gatekeeper, library: Library) -> None:
    timeout = library.http.Timeout(None, read=1.0)
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate), timeout=timeout) as client:
        with pytest.raises(library.http.ReadTimeout):
            await client.get(f"{site.base}/silent")
    assert (site.pages, turns(gate)) == (["/silent"], 0)


# Proxies


async def test_proxy_of_the_wrapped_transport_is_used_for_what_is_permitted(
    site: Site, other: Site, gate: Gatekeeper, library: Library
) -> None:
    transport = library.polite.PoliteTransport(gate, wraps=library.http.AsyncHTTPTransport(proxy=other.base))
    async with library.http.AsyncClient(transport=transport) as client:
        await client.get(f"{site.base}/page")
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
    assert site.pages == []
    # A proxy is sent the absolute form (RFC 9112 3.2.2).
    assert [seen.path for seen in other.seen] == ["/page"]
    assert other.seen[0].headers["Host"] == site.base.removeprefix("http://")


async def test_proxies_of_the_environment_are_not_used(
    site: Site, gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate)) as client:
        await client.get(f"{site.base}/page")
    assert site.pages == ["/page"]


async def test_proxy_of_the_client_leads_past_the_transport(
    site: Site, other: Site, gate: Gatekeeper, library: Library
) -> None:
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate), proxy=other.base) as client:
        await client.get(f"{site.base}/private")
    assert len(other.seen) == 1  # which is why nobody should
    assert gate.statistics().decisions == 0


async def test_mounted_it_judges_what_is_mounted_there(
    site: Site, other: Site, gate: Gatekeeper, library: Library
) -> None:
    mounts = {"http://127.0.0.1": library.polite.PoliteTransport(gate)}
    async with library.http.AsyncClient(mounts=mounts) as client:
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
        await client.get(f"{other.base}/private")
    assert (site.pages, other.pages) == ([], ["/private"])
