"""WebSockets: aiohttp's own handshake, permitted and in its turn."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientResponse

from politesse import Bound, ClosedError, Gatekeeper, Reason, TooFar
from politesse.integrations.aiohttp import ClientDisallowed, ClientInvalidURL, PoliteSession, RobotsMiddleware
from politesse.testing import ScriptedFetcher
from tests.support.sites import EAGER, UA, Site, turns, until
from tests.support.tasks import apart


async def says(socket: aiohttp.ClientWebSocketResponse[Any], text: str) -> str:
    await socket.send_str(text)
    async with asyncio.timeout(5):
        return str(await socket.receive_str())


async def test_websocket_is_opened_and_closed(site: Site, polite: PoliteSession) -> None:
    async with polite.ws_connect(f"{site.ws}/ws") as socket:
        assert isinstance(socket, aiohttp.ClientWebSocketResponse)
        assert await says(socket, "hello") == "echo hello"
    assert socket.close_code == aiohttp.WSCloseCode.OK
    assert site.paths == ["/robots.txt", "/ws"]
    assert site.seen[-1].headers["User-Agent"] == UA


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_disallowed_websocket_is_not_opened(site: Site, polite: PoliteSession, scheme: str) -> None:
    with pytest.raises(ClientDisallowed) as caught:
        await polite.ws_connect(f"{site.base.replace('http', scheme, 1)}/private/ws")
    assert caught.value.verdict.url == f"{site.base}/private/ws"
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    with pytest.raises(ClientDisallowed):
        async with polite.ws_connect(f"{site.ws}/private/ws"):
            pass
    assert site.paths == ["/robots.txt"]


@pytest.mark.parametrize(
    ("url", "judged"),
    [
        ("ws://example.com/private", "http://example.com"),
        ("wss://example.com/private", "https://example.com"),
        ("ws://example.com:8080/private?x", "http://example.com:8080"),
        ("wss://example.com:443/private", "https://example.com"),
    ],
)
async def test_websocket_is_judged_by_the_robots_txt_of_its_handshake(url: str, judged: str) -> None:
    fetcher = ScriptedFetcher({judged: "User-agent: *\nDisallow: /private\n"})
    async with (
        Gatekeeper(UA, pacing=EAGER, fetcher=fetcher) as gate,
        PoliteSession(gate) as polite,
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as own,
    ):
        for session in (polite, own):
            with pytest.raises(ClientDisallowed) as caught:
                await session.ws_connect(url)
            assert caught.value.verdict.url.startswith(f"{judged.partition(':')[0]}://example.com")
    assert [str(request.origin) for request in fetcher.requests] == [judged]


async def test_websocket_without_a_host_is_an_error_of_aiohttp(gate: Gatekeeper, polite: PoliteSession) -> None:
    with pytest.raises(aiohttp.InvalidURL, match="'ws://' names no host"):
        await polite.ws_connect("ws://")
    with pytest.raises(ClientInvalidURL):
        await polite.ws_connect("ws://300.1.1.1/")
    assert turns(gate) == 0


@pytest.mark.parametrize("path", ["/403", "/404", "/page"])
async def test_refused_handshake_ends_the_turn(site: Site, gate: Gatekeeper, polite: PoliteSession, path: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await polite.ws_connect(f"{site.ws}{path}")
    assert caught.value.status == (200 if path == "/page" else int(path[1:]))
    assert turns(gate) == 0
    await polite.get(f"{site.base}/page", max_wait_s=0.0)
    assert site.pages == [path, "/page"]


async def test_handshake_answered_by_a_long_body_ends_the_turn(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await polite.ws_connect(f"{site.ws}/slow")
    assert turns(gate) == 0


@pytest.mark.parametrize("path", ["/429", "/503"])
async def test_handshake_that_is_too_many_closes_the_host(
    site: Site, gate: Gatekeeper, polite: PoliteSession, path: str
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await polite.ws_connect(f"{site.ws}{path}")
    assert turns(gate) == 0
    for ask in (polite.get, polite.ws_connect):
        async with asyncio.timeout(5):
            with pytest.raises(TooFar) as caught:
                await ask(f"{site.base}/ws", max_wait_s=60)
        assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert site.pages == [path]


async def test_open_websocket_holds_up_nobody(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.ws_connect(f"{site.ws}/ws") as socket:
        assert turns(gate) == 0
        await polite.get(f"{site.base}/page", max_wait_s=0.0)
        async with polite.ws_connect(f"{site.ws}/ws", max_wait_s=0.0) as second:
            assert await says(second, "two") == "echo two"
            assert await says(socket, "one") == "echo one"
    assert site.pages == ["/ws", "/page", "/ws"]


async def test_handshake_waits_for_its_turn(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/slow"):
        waiting = apart(polite.ws_connect(f"{site.ws}/ws"))
        await until(lambda: gate.statistics().waiting == 1)
        assert site.pages == ["/slow"]
    socket = await waiting
    assert site.pages == ["/slow", "/ws"]
    await socket.close()


async def test_handshake_redirected_to_a_disallowed_url_is_not_followed(
    site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    site.redirects |= {"/here": (302, "/private/ws"), "/there": (302, f"{other.base}/private/ws")}
    for path in site.redirects:
        with pytest.raises(ClientDisallowed):
            await polite.ws_connect(f"{site.ws}{path}")
    assert site.pages == ["/here", "/there"]
    assert other.paths == ["/robots.txt"]
    assert turns(gate) == 0


async def test_handshake_redirected_to_an_allowed_url_is_followed(site: Site, polite: PoliteSession) -> None:
    site.redirects["/moved"] = (302, "/ws")
    async with asyncio.timeout(5), polite.ws_connect(f"{site.ws}/moved") as socket:
        assert await says(socket, "hello") == "echo hello"
    assert site.pages == ["/moved", "/ws"]


async def test_handshake_sends_what_plain_aiohttp_sends(site: Site, gate: Gatekeeper) -> None:
    def jar() -> aiohttp.CookieJar:
        return aiohttp.CookieJar(unsafe=True)

    async def open_both(session: aiohttp.ClientSession | PoliteSession) -> str | None:
        await session.get(f"{site.base}/page")  # which sets a cookie
        async with session.ws_connect(
            f"{site.ws}/ws",
            params={"a": "1"},
            protocols=("sing", "chat"),
            headers={"X-Mine": "2"},
            origin="http://example.com",
            compress=15,
        ) as socket:
            return socket.protocol

    headers = {"X-More": "1", "User-Agent": UA}
    async with aiohttp.ClientSession(headers=headers, cookie_jar=jar()) as plain:
        assert await open_both(plain) == "chat"
    async with PoliteSession(gate, headers=headers, cookie_jar=jar()) as polite:
        assert await open_both(polite) == "chat"
    expected, sent = (seen for seen in site.seen if seen.path.startswith("/ws"))
    assert (sent.method, sent.path, sent.cookies) == (expected.method, expected.path, expected.cookies)
    assert (sent.path, sent.cookies) == ("/ws?a=1", {"seen": "yes"})
    keys = [seen.headers.pop("Sec-WebSocket-Key") for seen in (expected, sent)]
    assert keys[0] != keys[1]
    assert sent.headers == expected.headers
    assert {"X-Mine", "X-More", "Origin", "Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"} <= set(sent.headers)


@pytest.mark.realtime
async def test_options_of_the_socket_are_kept(site: Site, polite: PoliteSession) -> None:
    async with polite.ws_connect(f"{site.ws}/ws", heartbeat=1.0, max_msg_size=16) as socket:
        reading = asyncio.create_task(socket.receive())
        await until(lambda: site.pings > 0)
        await socket.send_str("a long message")  # comes back longer than it may be
        assert (await reading).type is aiohttp.WSMsgType.ERROR
        assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("given", [True, False])
async def test_raise_for_status_of_the_session_holds_for_handshakes(
    site: Site, gate: Gatekeeper, *, given: bool
) -> None:
    async with PoliteSession(gate, raise_for_status=given) as polite:
        assert polite.raise_for_status is given
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await polite.ws_connect(f"{site.ws}/404")
    assert isinstance(caught.value, aiohttp.WSServerHandshakeError) is not given
    assert turns(gate) == 0


async def test_raise_for_status_is_that_of_the_session_that_sends(gate: Gatekeeper) -> None:
    async def judge(response: ClientResponse) -> None:
        pass

    async with aiohttp.ClientSession(raise_for_status=judge) as own, PoliteSession(gate, session=own) as polite:
        assert polite.raise_for_status is judge


async def test_websocket_without_asking_robots_txt(site: Site, polite: PoliteSession) -> None:
    async with polite.ws_connect(f"{site.ws}/private/ws", exempt="our own server") as socket:
        assert await says(socket, "hello") == "echo hello"
    assert site.paths == ["/private/ws"]


async def test_no_websocket_after_the_session_was_closed(site: Site, gate: Gatekeeper) -> None:
    polite = PoliteSession(gate)
    polite.ws_connect(f"{site.ws}/ws").close()  # thought better of
    await polite.close()
    with pytest.raises(ClosedError):
        await polite.ws_connect(f"{site.ws}/ws")
    assert site.paths == []
