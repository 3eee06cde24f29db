"""Requests that nobody judged, or that were changed after that, are told of."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse, ClientSession
from yarl import URL

from politesse import Gatekeeper
from politesse.integrations.aiohttp import (
    ClientDisallowed,
    ClientInvalidURL,
    MiddlewareBypassed,
    PoliteSession,
    RobotsMiddleware,
)
from tests.support.events import events_of
from tests.support.sites import Site, serving, until

Told = list[MiddlewareBypassed]


@pytest.fixture
def robots(gate: Gatekeeper) -> RobotsMiddleware:
    return RobotsMiddleware(gate)


@pytest.fixture
async def session(robots: RobotsMiddleware) -> AsyncIterator[ClientSession]:
    async with ClientSession(middlewares=(robots,), trace_configs=[robots.trace_config()]) as session:
        yield session


@pytest.fixture
def told(gate: Gatekeeper) -> Told:
    return events_of(gate, MiddlewareBypassed)


@pytest.fixture
async def other() -> AsyncIterator[Site]:
    async for running in serving(Site()):
        yield running


async def idle(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    return await handler(request)


def sends(**changes: str) -> ClientMiddlewareType:
    """Return a middleware that sends another path, another authority or another Host header than it is given."""

    async def rewrite(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        if "path" in changes:
            request.url = request.url.with_path(changes["path"])
        if "base" in changes:
            request.url = URL(changes["base"]).join(request.url.relative())
            request.headers["Host"] = request.url.raw_authority
        if "host" in changes:
            request.headers["Host"] = changes["host"]
        return await handler(request)

    return rewrite


# Requests that nobody judged


async def test_bypass_is_reported_once_by_its_first_hop(site: Site, session: ClientSession, told: Told) -> None:
    url = f"{site.base}/private"
    site.redirects |= {"/a": (303, "/b"), "/b": (302, "/c")}
    async with session.get(url, middlewares=()) as response:
        assert response.status == 200
    await session.post(f"{url}?a=1#top", params={"a": "2"}, middlewares=[idle])
    await session.get(URL(f"{site.base}/page").with_user("me").with_password("secret"), middlewares=())
    await session.post(f"{site.base}/a", middlewares=())
    assert told == [
        MiddlewareBypassed("GET", url),
        MiddlewareBypassed("POST", f"{url}?a=1&a=2"),
        MiddlewareBypassed("GET", f"{site.base}/page"),
        MiddlewareBypassed("POST", f"{site.base}/a"),
    ]
    assert site.paths == ["/private", "/private?a=1&a=2", "/page", "/a", "/b", "/c"]


async def test_bypass_is_logged_as_a_warning_once_for_each_site_though_nobody_listens(
    site: Site, session: ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "politesse")
    for page in ("1", "2", "%0A" * 1_000):
        await session.get(URL(f"{site.base}/{page}", encoded=True), middlewares=())
    first, second, long = [record for record in caplog.records if record.name == "politesse.integrations"]
    message = f"GET {site.base}/1 was sent past RobotsMiddleware: nothing was judged"
    assert (first.levelname, first.getMessage()) == ("WARNING", message)
    assert (second.levelname, long.levelname) == ("DEBUG", "DEBUG")
    assert len(long.getMessage()) < 400


async def test_bypass_is_reported_even_if_it_fails(site: Site, session: ClientSession, told: Told) -> None:
    task = asyncio.create_task(session._request("GET", f"{site.base}/silent", middlewares=()))
    await until(lambda: site.paths == ["/silent"])
    assert told == [MiddlewareBypassed("GET", f"{site.base}/silent")]
    task.cancel()
    await until(task.done)
    site.drops = 1
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.post(f"{site.base}/drop", middlewares=())
    with pytest.raises(aiohttp.ClientResponseError):
        await session.get(f"{site.base}/404", middlewares=(), raise_for_status=True)
    assert told[1:] == [MiddlewareBypassed("POST", f"{site.base}/drop"), MiddlewareBypassed("GET", f"{site.base}/404")]


async def test_websocket_that_bypasses_is_reported(site: Site, robots: RobotsMiddleware, told: Told) -> None:
    async with (
        ClientSession(trace_configs=[robots.trace_config()]) as forgetful,
        forgetful.ws_connect(f"{site.base}/ws"),
    ):
        assert told == [MiddlewareBypassed("GET", f"{site.base}/ws")]


async def test_judged_request_is_not_reported(
    site: Site, session: ClientSession, gate: Gatekeeper, robots: RobotsMiddleware, told: Told
) -> None:
    async def hedge(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        return await asyncio.create_task(handler(request))  # type: ignore[arg-type]  # it is a coroutine

    site.redirects["/a"] = (302, "/b")
    await session.get(f"{site.base}/a")
    await session.get(f"{site.base}/a", middlewares=(idle, robots))
    await session.get(f"{site.base}/a", middlewares=(hedge, robots))
    await session.get(f"{site.base}/a", middlewares=(robots, sends(path="/c"), robots))  # judged again
    another = RobotsMiddleware(gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0"))
    await session.get(f"{site.base}/a", middlewares=[another, idle])
    async with session.ws_connect(f"{site.base}/ws"):
        pass
    async with PoliteSession(gate, session=session) as polite:
        await polite.get(f"{site.base}/a")
    assert (told, site.pages.count("/c")) == ([], 1)


async def test_request_that_is_not_sent_is_not_reported(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    kept = await session.get(f"{site.base}/page")

    async def from_cache(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        return kept

    assert await session.get(f"{site.base}/page", middlewares=(from_cache, robots)) is kept
    with pytest.raises(ClientDisallowed):
        await session.get(f"{site.base}/private")
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get("http://127.0.0.1:1/", middlewares=())
    with pytest.raises(ValueError, match="Cannot combine"):
        await session.get(URL(f"{site.base}/page").with_user("me"), headers={"Authorization": "Bearer 1"})
    assert told == []


@pytest.mark.parametrize("aside", [True, False])
async def test_each_of_two_nested_requests_is_reported_for_itself(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told, *, aside: bool
) -> None:
    """A middleware asks for something else first, in its task or in another, by its session or another."""

    def asks_by(*middlewares: RobotsMiddleware, by: ClientSession = session) -> ClientMiddlewareType:
        async def fetch_token(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
            asking = by._request("GET", f"{site.base}/token", middlewares=middlewares)
            token = await (asyncio.create_task(asking) if aside else asking)
            token.release()
            return await handler(request)

        return fetch_token

    async def ask_in_vain(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}/private", middlewares=(robots,))
        return await handler(request)

    page, token = MiddlewareBypassed("GET", f"{site.base}/page"), MiddlewareBypassed("GET", f"{site.base}/token")
    async with ClientSession() as untraced:
        for middlewares, expected in (
            ((asks_by(),), [token, page]),
            ((asks_by(robots),), [page]),
            ((asks_by(), robots), [token]),
            ((robots, asks_by()), [token]),
            ((asks_by(robots), robots), []),
            ((asks_by(robots, by=untraced),), [page]),
            ((ask_in_vain, robots), []),
            ((ask_in_vain,), [page]),
        ):
            told.clear()
            await session.get(f"{site.base}/page", middlewares=middlewares)
            assert told == expected


async def test_of_many_at_once_those_that_bypass_are_reported(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    async def ask(number: int) -> None:
        own: dict[int, tuple[ClientMiddlewareType, ...]] = {0: (), 1: (robots,), 2: (idle,), 3: (idle, robots)}
        await session.get(f"{site.base}/{number}", middlewares=own.get(number % 5))

    await asyncio.gather(*map(ask, range(50)))
    expected = {f"{site.base}/{number}" for number in range(50) if number % 5 in {0, 2}}
    assert {event.url for event in told} == expected
    assert (len(told), len(site.pages)) == (len(expected), 50)


# Requests that were changed after they were judged


@pytest.mark.parametrize("paced", [False, True])
async def test_changed_url_is_reported(site: Site, other: Site, gate: Gatekeeper, told: Told, *, paced: bool) -> None:
    robots = RobotsMiddleware(gate, pace=paced)
    async with ClientSession(trace_configs=[robots.trace_config()]) as session:
        await session.get(f"{site.base}/a?b", middlewares=(robots, sends(path="/private")))
        await session.post(f"{site.base}/a?b#top", middlewares=(robots, sends(base=other.base), idle))
        assert told == [
            MiddlewareBypassed("GET", f"{site.base}/private", f"{site.base}/a?b"),
            MiddlewareBypassed("POST", f"{other.base}/a?b", f"{site.base}/a?b"),
        ]
        told.clear()
        await session.get(f"{site.base}/a", middlewares=(sends(path="/b"), robots))  # changed before
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}/a", middlewares=(sends(path="/private"), robots))
    assert (told, site.pages, other.paths) == ([], ["/private", "/b"], ["/a?b"])


async def test_host_header_that_is_changed_after_it_was_judged_is_reported_as_the_site_that_it_names(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    await session.get(f"{site.base}/a?b", middlewares=(robots, sends(host="other.example")))
    await session.get(f"{site.base}/a?b", middlewares=(robots, sends(host="no host")))
    await session.get(f"{site.base}/a", middlewares=(robots, sends(host=site.base.removeprefix("http://").upper())))
    assert told[0] == MiddlewareBypassed("GET", "http://other.example/a?b", f"{site.base}/a?b")
    assert [event.judged for event in told[1:]] == [f"{site.base}/a?b"]


async def test_host_header_that_a_trace_changes_is_reported(site: Site, robots: RobotsMiddleware, told: Told) -> None:
    async def misdirect(_: object, __: object, params: aiohttp.TraceRequestHeadersSentParams) -> None:
        params.headers["Host"] = "other.example"

    meddling = aiohttp.TraceConfig()
    meddling.on_request_headers_sent.append(misdirect)
    traces = [meddling, robots.trace_config()]
    async with ClientSession(middlewares=(robots,), trace_configs=traces) as session:
        await session.get(f"{site.base}/a")
    assert told == [MiddlewareBypassed("GET", "http://other.example/a", f"{site.base}/a")]


async def test_each_hop_that_is_changed_after_it_was_judged_is_reported(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    async def shorten(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_path(request.url.path.removesuffix("/x"))
        return await handler(request)

    site.redirects |= {"/a": (302, "/b"), "/b": (302, "/c/x")}
    await session.get(f"{site.base}/a/x", middlewares=(robots, shorten))
    assert site.pages == ["/a", "/b", "/c"]
    assert told == [MiddlewareBypassed("GET", site.base + path, f"{site.base}{path}/x") for path in ("/a", "/c")]


@pytest.mark.parametrize("paced", [False, True])
async def test_repetition_without_a_turn_is_reported(site: Site, gate: Gatekeeper, told: Told, *, paced: bool) -> None:
    async def twice(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        (await handler(request)).release()
        return await handler(request)

    robots, url = RobotsMiddleware(gate, pace=paced), f"{site.base}/a"
    async with ClientSession(trace_configs=[robots.trace_config()]) as session:
        await session.get(url, middlewares=(twice, robots))
        assert told == []
        await session.get(url, middlewares=(robots, twice))
    assert told == ([MiddlewareBypassed("GET", url, url)] if paced else [])
    assert site.pages == ["/a"] * 4


async def test_attempts_at_once_are_each_compared_with_what_was_judged_for_them(
    site: Site, session: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    async def hedge(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        async def attempt(path: str) -> ClientResponse:
            mine = copy.copy(request)
            mine.url = request.url.with_path(path)
            return await handler(mine)

        responses = await asyncio.gather(attempt("/a"), attempt("/b"), attempt("/a"))
        for response in responses[1:]:
            response.release()
        return responses[0]

    await session.get(f"{site.base}/page", middlewares=(hedge, robots))
    assert (sorted(site.pages), told) == (["/a", "/a", "/b"], [])


async def test_polite_session_is_no_bypass(site: Site, gate: Gatekeeper, robots: RobotsMiddleware, told: Told) -> None:
    site.redirects["/a"] = (302, "/b")
    async with PoliteSession(gate, trace_configs=[robots.trace_config()]) as polite:
        await polite.get(f"{site.base}/a")
        await polite.get(f"{site.base}/a", middlewares=(robots, sends(path="/c")))
        with pytest.raises(ClientDisallowed):
            await polite.get(f"{site.base}/a", middlewares=(robots, sends(path="/private")))
        with pytest.raises(ClientInvalidURL, match="Host"):
            await polite.get(f"{site.base}/a", middlewares=(robots, sends(host="other.example")))
    assert (site.pages, told) == (["/a", "/b", "/c"], [])
