"""PoliteSession and RobotsMiddleware: hops, turns, redirects, WebSockets and exemptions over real servers."""

import asyncio
import copy
import gc
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse, ClientSession
from yarl import URL

from politesse import (
    Bound,
    CacheOptions,
    ClosedError,
    ConfigurationError,
    Disallowed,
    FetchOptions,
    Gatekeeper,
    InvalidURL,
    PacingOptions,
    Reason,
    TooFar,
)
from politesse.errors import WrongEventLoop
from politesse.events import Decided, TurnDropped
from politesse.integrations.aiohttp import (
    ClientDisallowed,
    ClientInvalidURL,
    MiddlewareBypassed,
    PoliteSession,
    RobotsMiddleware,
)
from politesse.testing import ScriptedFetcher
from tests.support.events import events_of
from tests.support.sites import EAGER, UA, Site, serving, slow_gate, turns, until
from tests.support.tasks import apart
from tests.wire.clients.clients import Session


async def visit(session: Session, url: str, **options: Any) -> str:
    async with session.get(url, **options) as response:
        return await response.text()


def paced(gate: Gatekeeper, **options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate, pace=True),), **options)


# What is judged


async def test_every_method_is_judged_and_sent_unchanged(site: Site, sessions: dict[str, Session]) -> None:
    for name, session in sessions.items():
        for method in ("get", "options", "head", "post", "put", "patch", "delete"):
            site.seen.clear()
            with pytest.raises(ClientDisallowed, match="line 2") as caught:
                await getattr(session, method)(f"{site.base}/private/x")
            assert isinstance(caught.value, Disallowed)
            assert isinstance(caught.value, aiohttp.ClientError)
            assert caught.value.verdict.reason is Reason.DISALLOW_RULE
            async with getattr(session, method)(f"{site.base}/open") as response:
                assert response.status == 200
            (await session.request(method, f"{site.base}/again")).release()
            sent = [(seen.method, seen.path, seen.headers["User-Agent"]) for seen in site.seen]
            assert sent[-2:] == [(method.upper(), path, UA) for path in ("/open", "/again")], name
            assert [path for _, path, _ in sent[:-2]] in ([], ["/robots.txt"]), name


async def test_request_that_is_given_up_before_it_starts_asks_nothing(site: Site, polite: PoliteSession) -> None:
    pending = polite.get(f"{site.base}/page")
    assert pending.send(None) is not None
    with pytest.raises(KeyError):
        pending.throw(KeyError())
    polite.get(f"{site.base}/page").close()
    assert site.pages == []


async def test_head_follows_no_redirects_by_default(site: Site, polite: PoliteSession) -> None:
    site.redirects["/moved"] = (302, "/page")
    assert (await polite.head(f"{site.base}/moved")).status == 302
    assert (await polite.head(f"{site.base}/moved", allow_redirects=True)).status == 200


async def test_user_agent_is_sent_where_aiohttp_adds_none(site: Site, gate: Gatekeeper) -> None:
    async with PoliteSession(gate, skip_auto_headers=["User-Agent"]) as polite:
        await polite.get(f"{site.base}/page")
    assert site.seen[-1].headers["User-Agent"] == UA


async def test_turn_taken_ahead_is_for_the_url_that_is_sent(site: Site, gate: Gatekeeper) -> None:
    table: list[tuple[str | URL, Any, str]] = [
        ("", None, "/base/"),  # after which robots.txt is known
        ("page", None, "/base/page"),
        ("/page", {"a": "1"}, "/page?a=1"),
        ("page?a=1#fragment", {"b": "ü x"}, "/base/page?a=1&b=%C3%BC+x"),
        (URL("%70age/../other"), [("a", "1"), ("a", "2")], "/base/other?a=1&a=2"),
        (URL("p%2520q", encoded=True), "x=ü", "/base/p%2520q?x=%C3%BC"),
        ("", {}, "/base/"),
    ]
    decided, held = events_of(gate, Decided), []
    trace = aiohttp.TraceConfig()

    async def start(*_: object) -> None:
        held.append(turns(gate))

    trace.on_request_start.append(start)
    async with PoliteSession(gate, base_url=f"{site.base}/base/", trace_configs=[trace]) as polite:
        for given, params, _ in table:
            await polite.get(given, params=params)
        await polite.get(str(URL(f"{site.base}/page").with_user("me").with_password("secret")))
    sent = [*(target for *_, target in table), "/page"]
    assert site.pages == sent
    # One question, so one turn: the one that was taken ahead.
    assert ([event.verdict.url for event in decided], held) == (
        [site.base + target for target in sent],
        [1] * len(sent),
    )
    assert site.seen[-1].headers["Authorization"].startswith("Basic ")


async def test_escaped_and_dotted_paths_are_judged_as_they_are_sent(site: Site, sessions: dict[str, Session]) -> None:
    spellings = ("/%70rivate", "/open/../private", "/open/%2e%2e/private", "/./private#top", "/pri%76ate?x")
    for session in sessions.values():
        for spelling in spellings:
            with pytest.raises(ClientDisallowed):
                await session.get(f"{site.base}{spelling}")
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}/private", params={"a": "1"})
    assert site.paths == ["/robots.txt"]


async def test_invalid_url_is_an_error_of_aiohttp(site: Site, gate: Gatekeeper, sessions: dict[str, Session]) -> None:
    site.redirects["/moved"] = (302, "http://300.1.1.1/")
    for session in sessions.values():
        for url in ("http://300.1.1.1/", f"{site.base}/moved"):
            with pytest.raises(ClientInvalidURL) as caught:
                await session.get(url)
            assert isinstance(caught.value, InvalidURL)
            assert isinstance(caught.value, aiohttp.ClientError)
    polite = sessions["PoliteSession"]
    for url in ("ftp://example.com/", "http://exa mple.com/"):
        with pytest.raises(aiohttp.ClientError):
            await polite.get(url)
    for url in ("", "/page", "page", "//", "http://"):
        with pytest.raises(InvalidURL) as asked:
            await gate.check(url)
        with pytest.raises(ClientInvalidURL) as caught:
            await polite.get(url)
        assert isinstance(caught.value, aiohttp.InvalidURL)
        assert (str(caught.value), caught.value.url) == (str(asked.value), url)
    assert turns(gate) == 0


async def test_dot_segments_and_blanks_are_refused(site: Site, gate: Gatekeeper, sessions: dict[str, Session]) -> None:
    for path in ("/private/../a", "/private/%2e%2e/a", "/x/."):
        with pytest.raises(aiohttp.ClientError, match="dot segments"):
            await sessions["permission"].get(URL(site.base + path, encoded=True))
    for path in ("/x ", "/x y", "/x?q=a b"):
        url = URL(site.base + path, encoded=True)
        for session in sessions.values():
            with pytest.raises(aiohttp.ClientError, match="blank"):
                await session.get(url)
        with pytest.raises(InvalidURL, match="blank"):
            await gate.check(url)
        with pytest.raises(InvalidURL, match="blank"):
            gate.try_turn(url)
        assert (await gate.check(f"{site.base}{path}")).allowed  # as text, which clients escape
    assert site.pages == []


async def test_request_that_was_not_awaited_says_so(polite: PoliteSession) -> None:
    request = polite.get("http://localhost/")
    with pytest.raises(AttributeError, match="'status' is of the response: await the request, or use 'async with'"):
        request.status  # type: ignore[attr-defined]  # noqa: B018
    request.close()


# When a turn ends


async def by_iterating(response: ClientResponse) -> None:
    async for _ in response.content.iter_any():
        pass


async def by_leaving(response: ClientResponse) -> None:
    async with response:
        pass


async def by_letting_it_lie(response: ClientResponse) -> None:
    """Its body comes, and nobody reads it."""


async def by_release(response: ClientResponse) -> None:
    response.release()


async def by_close(response: ClientResponse) -> None:
    response.close()


ENDS: dict[Callable[[ClientResponse], Awaitable[object]], bool] = {  # and whether the body comes
    ClientResponse.read: True,
    by_iterating: True,
    lambda response: response.content.wait_eof(): True,
    by_letting_it_lie: True,
    by_release: False,
    by_close: False,
    by_leaving: False,
}


async def test_turn_ends_with_the_response_and_leaves_nothing(site: Site, gate: Gatekeeper, session: Session) -> None:
    await visit(session, f"{site.base}/page")
    loop: Any = asyncio.get_running_loop()
    dropped = events_of(gate, TurnDropped)
    before = set(loop._scheduled)  # with the timer of the pacer, one for all turns
    for end, has_body in ENDS.items():
        for path in ("/slow", "/page", "/204", "/404"):
            site.go_on.clear()
            response = await session.get(f"{site.base}{path}")
            assert turns(gate) == (path == "/slow")
            if has_body:
                site.go_on.set()
            await end(response)
            await until(lambda: turns(gate) == 0 or end is not by_letting_it_lie)  # noqa: B023 - called at once
            assert turns(gate) == 0, (end, path)
            callbacks = [timer._callback for timer in loop._scheduled if not timer.cancelled() and timer not in before]
            assert [callback for callback in callbacks if isinstance(callback, partial)] == []  # nor the alarm of ours
    assert dropped == []


async def test_turn_ends_with_an_error(site: Site, gate: Gatekeeper, session: Session) -> None:
    response = await session.get(f"{site.base}/404")
    with pytest.raises(aiohttp.ClientResponseError):
        response.raise_for_status()
    with pytest.raises(aiohttp.ClientResponseError):
        await session.get(f"{site.base}/404", raise_for_status=True)
    assert turns(gate) == 0
    site.drops = 1
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.post(f"{site.base}/drop")
    assert turns(gate) == 0
    with pytest.raises(ValueError, match="at the same time"):
        await session.get(f"{site.base}/page", data="1", json="2")
    assert turns(gate) == 0
    await session.get(f"{site.base}/page")
    assert site.pages == ["/404", "/404", "/drop", "/page"]


@pytest.mark.realtime
async def test_turn_ends_when_the_body_breaks_off(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(sock_read=1.0)) as response:
        with pytest.raises(aiohttp.SocketTimeoutError):
            await response.read()
    assert (turns(gate), "0 turns" in repr(polite)) == (0, True)
    await polite.get(f"{site.base}/page")


async def test_refused_connection_ends_the_turn() -> None:
    async with Gatekeeper(UA, pacing=EAGER, fetcher=ScriptedFetcher()) as gate, PoliteSession(gate) as polite:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientConnectorError):
                await polite.get("http://127.0.0.1:1/")
            assert turns(gate) == 0


@pytest.mark.realtime
async def test_unread_response_frees_its_host_after_the_timeout_of_the_session(site: Site, gate: Gatekeeper) -> None:
    none = aiohttp.ClientTimeout()
    async with paced(gate, timeout=aiohttp.ClientTimeout(total=0.05)) as session:
        response = await session.get(f"{site.base}/slow", timeout=none)
        assert turns(gate) == 1
        await until(lambda: turns(gate) == 0)
        await visit(session, f"{site.base}/page", timeout=none)
        site.go_on.set()
        assert await response.text() == "first last"  # its turn has ended, not it


@pytest.mark.realtime
async def test_session_without_a_timeout_holds_the_host_to_the_end(site: Site, other: Site, gate: Gatekeeper) -> None:
    async with (
        paced(gate, timeout=aiohttp.ClientTimeout(total=None)) as one,
        paced(gate, timeout=aiohttp.ClientTimeout(total=0)) as another,
    ):
        async with one.get(f"{site.base}/slow"), another.get(f"{other.base}/slow"):
            await asyncio.sleep(1.3)  # longer than anything waits for one that is late
            assert turns(gate) == 2
        assert turns(gate) == 0


async def test_end_of_an_open_response_ends_its_turn_after_its_session_was_closed(site: Site, gate: Gatekeeper) -> None:
    async with paced(gate) as session:
        response = await session.get(f"{site.base}/slow")
    response.close()
    assert turns(gate) == 0
    async with paced(gate) as session:
        await session.get(f"{site.base}/slow")
    del response
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # which is how aiohttp tells of it
        await until(lambda: gc.collect() >= 0 and turns(gate) == 0)
    async with paced(gate) as session:
        await visit(session, f"{site.base}/page")
    assert site.pages == ["/slow", "/slow", "/page"]


# Pace


async def test_middleware_without_pace_waits_for_nothing(site: Site, gate: Gatekeeper) -> None:
    robots = RobotsMiddleware(gate)
    async with aiohttp.ClientSession(middlewares=(robots,)) as session, session.get(f"{site.base}/slow"):
        assert turns(gate) == 0
        await session.get(f"{site.base}/page")
    assert site.pages == ["/slow", "/page"]
    assert ("pace" in repr(robots), "pace=True" in repr(RobotsMiddleware(gate, pace=True))) == (False, True)
    with pytest.raises(ConfigurationError, match="pace=True"):
        RobotsMiddleware(gate, max_wait_s=1.0)
    with pytest.raises(ConfigurationError, match="Gatekeeper"):
        RobotsMiddleware(UA, pace=True)  # type: ignore[arg-type]


@pytest.mark.realtime  # the timeouts of aiohttp are real
async def test_waiting_for_the_first_turn_costs_nothing_of_the_timeout(site: Site) -> None:
    async with slow_gate(1.2) as gate, PoliteSession(gate, timeout=aiohttp.ClientTimeout(total=1.0)) as polite:
        await polite.get(f"{site.base}/a")  # 1.2 s after robots.txt
    assert site.paths == ["/robots.txt", "/a"]
    assert site.seen[1].started - site.seen[0].ended >= 1.2


@pytest.mark.realtime
async def test_waiting_for_a_later_turn_or_by_the_middleware_counts_against_the_timeout(site: Site) -> None:
    site.redirects["/moved"] = (302, "/page")
    timeout = aiohttp.ClientTimeout(total=1.0)
    async with slow_gate(3.0) as gate, PoliteSession(gate) as polite, paced(gate) as session:
        (await gate.take_turn(f"{site.base}/", max_wait_s=3.0, exempt="for the pace alone")).give_back()
        with pytest.raises(TimeoutError):
            await polite.get(f"{site.base}/moved", timeout=timeout, exempt="for the pace alone")
        with pytest.raises(TimeoutError):
            await session.get(f"{site.base}/page", timeout=timeout)
        assert (turns(gate), gate.statistics().waiting) == (0, 0)
    assert site.pages == ["/moved"]


async def test_longest_wait_is_that_of_the_request_or_else_of_the_session(site: Site, gate: Gatekeeper) -> None:
    await gate.check(f"{site.base}/slow")  # so that no fetch of robots.txt counts
    page, hasty = f"{site.base}/page", RobotsMiddleware(gate, pace=True, max_wait_s=0.01)
    async with PoliteSession(gate, max_wait_s=0.01) as polite, aiohttp.ClientSession(middlewares=(hasty,)) as session:
        async with polite.get(f"{site.base}/slow"):
            for one in (polite, session):
                with pytest.raises(TooFar):
                    await apart(one.get(page))
            waiting = apart(polite.get(page, max_wait_s=None))
            await asyncio.sleep(0.03)
            assert (waiting.done(), site.pages, turns(gate)) == (False, ["/slow"], 1)
            waiting.cancel()
            await until(waiting.done)
        await session.get(page)


async def test_longest_wait_holds_for_each_hop(site: Site, other: Site, gate: Gatekeeper) -> None:
    other.redirects["/moved"] = (302, f"{site.base}/page")
    await gate.check(f"{other.base}/moved")  # so that no fetch of robots.txt counts
    async with PoliteSession(gate) as polite, polite.get(f"{site.base}/slow"):
        with pytest.raises(TooFar):
            await apart(polite.get(f"{other.base}/moved", max_wait_s=0.01))
        assert turns(gate) == 1
    assert (site.pages, other.pages) == (["/slow"], ["/moved"])


# Middlewares


async def authenticate(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    response = await handler(request)
    if response.status == 401:
        request.headers["Authorization"] = "Bearer 1"
        response = await handler(request)
    return response


async def test_request_is_judged_as_middlewares_changed_it(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    for middlewares in ((), (authenticate,), [authenticate, authenticate]):
        with pytest.raises(ClientDisallowed):
            await polite.get(f"{site.base}/private", middlewares=middlewares)
    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/page", middlewares=(sends(path="/private"),))
    assert turns(gate) == 0
    async with PoliteSession(gate, middlewares=(sends(path="/elsewhere"),)) as another:
        await another.get(f"{site.base}/page")
        await another.get(f"{site.base}/page", middlewares=())  # these replace those of the session
    assert (site.pages, turns(gate)) == (["/elsewhere", "/page"], 0)


async def test_middleware_that_asks_again_does_not_deadlock(site: Site, gate: Gatekeeper, session: Session) -> None:
    robots = () if isinstance(session, PoliteSession) else (RobotsMiddleware(gate, pace=True),)

    async def twice(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        await handler(request)
        assert turns(gate) == 1
        return await handler(request)

    async with asyncio.timeout(5), session.get(f"{site.base}/challenge", middlewares=(authenticate, *robots)) as last:
        assert last.status == 200
    async with asyncio.timeout(5), session.get(f"{site.base}/slow", middlewares=(twice, *robots)):
        assert turns(gate) == 1  # the body of the first has not come: it is released
    assert (site.pages, turns(gate)) == (["/challenge", "/challenge", "/slow", "/slow"], 0)


@pytest.mark.parametrize("kind", ["middleware", "trace", "session"])
async def test_request_within_a_request_does_not_block(site: Site, gate: Gatekeeper, kind: str) -> None:
    async def fetch_token(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.headers["Authorization"] = await visit(polite, f"{site.base}/token", middlewares=())
        return await handler(request)

    async def trace_token(_: object, __: SimpleNamespace, started: aiohttp.TraceRequestStartParams) -> None:
        if started.url.path == "/page":
            await visit(polite, f"{site.base}/token")

    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # aiohttp advises against subclasses

        class Session(ClientSession):
            async def _request(self, *arguments: Any, **options: Any) -> ClientResponse:
                if f"{site.base}/page" in arguments:
                    await visit(polite, f"{site.base}/token")
                return await super()._request(*arguments, **options)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(trace_token)
    own = Session() if kind == "session" else ClientSession(trace_configs=[trace] if kind == "trace" else [])
    options: dict[str, Any] = {"middlewares": (fetch_token,)} if kind == "middleware" else {}
    async with asyncio.timeout(5), own, PoliteSession(gate, session=own) as polite:
        await visit(polite, f"{site.base}/page", **options)
    assert (site.pages, turns(gate)) == (["/token", "/page"], 0)
    assert site.seen[-1].headers.get("Authorization") == ("page /token" if kind == "middleware" else None)


async def test_turn_ends_if_a_middleware_fails_or_answers(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async def refuse(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        raise LookupError("not today")

    async def spoil(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        await handler(request)
        raise LookupError("too late")

    async def from_cache(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        assert turns(gate) == 1
        return kept

    for middleware in (refuse, spoil):
        with pytest.raises(LookupError):
            await polite.get(f"{site.base}/slow", middlewares=(middleware,))
        assert turns(gate) == 0
    kept = await polite.get(f"{site.base}/page")
    assert await polite.get(f"{site.base}/page", middlewares=(from_cache,)) is kept
    assert (site.pages, turns(gate)) == (["/slow", "/page"], 0)


# What belongs to whom


async def test_given_session_is_used_and_not_closed(site: Site, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession(f"{site.base}/base/", middlewares=(authenticate,), headers={"X-More": "1"}) as own:
        async with PoliteSession(gate, session=own) as polite:
            assert (polite.session, polite.gate) == (own, gate)
            await polite.get("page")
            await polite.get("/challenge")
            with pytest.raises(ClientDisallowed):
                await polite.get("/private")
            response = await polite.get("/slow")
        assert (polite.closed, own.closed, turns(gate)) == (True, False, 1)
        with pytest.raises(ClosedError):
            await polite.get("page")
        site.go_on.set()
        assert await response.text() == "first last"
    assert site.pages == ["/base/page", "/challenge", "/challenge", "/slow"]
    assert (site.seen[1].headers["X-More"], site.seen[1].headers["User-Agent"]) == ("1", UA)
    assert turns(gate) == 0
    assert await gate.check(f"{site.base}/page")


async def test_own_gatekeeper_judges_and_is_closed_with_the_session(site: Site) -> None:
    async with PoliteSession(UA) as polite:
        with pytest.raises(Disallowed):
            await polite.get(f"{site.base}/private")
    assert (polite.closed, "closed" in repr(polite), site.paths) == (True, True, ["/robots.txt"])
    with pytest.raises(ClosedError):
        await polite.gate.check(f"{site.base}/page")
    await polite.close()


async def test_session_that_is_closed_under_it_closes_it(site: Site, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as own:
        polite = PoliteSession(gate, session=own)
    assert polite.closed
    with pytest.raises(ClosedError):
        await polite.get(f"{site.base}/page")
    assert site.paths == []

    async def close_and_request(request: ClientRequest, handler: object) -> ClientResponse:
        await request.session.close()
        return await request.session.get(request.url)

    own = aiohttp.ClientSession(middlewares=(close_and_request,))
    with pytest.raises(ClosedError, match="the session is closed"):
        await PoliteSession(gate, session=own).get(f"{site.base}/page")
    assert (site.pages, turns(gate)) == ([], 0)


@pytest.mark.parametrize("closed", ["polite", "own", "gate"])
async def test_request_that_waits_while_it_is_closed_is_not_sent(site: Site, other: Site, closed: str) -> None:
    other.redirects["/moved"] = (302, f"{site.base}/page")
    async with Gatekeeper(UA, pacing=EAGER) as gate, PoliteSession(gate) as first, aiohttp.ClientSession() as own:
        polite, second = PoliteSession(gate, session=own), PoliteSession(gate)
        async with first.get(f"{site.base}/slow"):
            waiting = [apart(visit(polite, f"{site.base}/page")), apart(visit(second, f"{other.base}/moved"))]
            await until(lambda: gate.statistics().waiting == 2)
            await {"polite": polite.close, "own": own.close, "gate": gate.aclose}[closed]()
            await second.close()
        for request in waiting:
            with pytest.raises(ClosedError):
                await request
        assert turns(gate) == 0
    assert (site.pages, other.pages) == (["/slow"], ["/moved"])


async def test_closing_early_ends_the_turns_of_open_responses(site: Site, gate: Gatekeeper) -> None:
    polite = PoliteSession(gate)
    response = await polite.get(f"{site.base}/slow")
    assert "1 turns" in repr(polite)
    await polite.close()
    assert turns(gate) == 0
    response.close()


async def test_options_of_a_session_do_not_go_with_a_given_one(gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as own:
        with pytest.raises(ConfigurationError, match="headers"):
            PoliteSession(gate, session=own, headers={"X-More": "1"})
        with pytest.raises(ConfigurationError, match="default"):
            PoliteSession("aiohttp/3.14", session=own)


async def test_session_takes_a_gate_or_the_options_of_one(tmp_path: Path) -> None:
    async with Gatekeeper(UA) as gate:
        for options in ({"fleet": "redis://localhost"}, {"store": "robots.db"}, {"pacing": PacingOptions()}):
            with pytest.raises(ConfigurationError, match=f"{next(iter(options))}=: give it to the Gatekeeper"):
                PoliteSession(gate, **options)
    with pytest.raises(ConfigurationError, match=r"PoliteSession\(\): .*PoliteSession\('ExampleBot/1\.0 .*'\)"):
        PoliteSession()
    for wrong in (None, 42):
        with pytest.raises(ConfigurationError, match=rf"PoliteSession\({wrong}\): give a User-Agent, a Gatekeeper"):
            PoliteSession(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cache=5: give a CacheOptions"):
        PoliteSession(UA, cache=5)  # type: ignore[arg-type]
    pacing, cache, fetch = PacingOptions(min_delay_s=7.0), CacheOptions(), FetchOptions(max_body_bytes=600_000)
    path = tmp_path / "robots.db"
    async with PoliteSession(UA, store=path, pacing=pacing, cache=cache, fetch=fetch) as session:
        assert not await session.gate.check("http://127.0.0.1:1/")  # nobody listens there
        assert session.gate.hosts()["127.0.0.1"].interval_s == 7.0
    assert path.exists()


def test_session_outside_of_an_event_loop_is_refused_by_a_clear_error() -> None:
    with pytest.raises(WrongEventLoop, match="create a PoliteSession inside a coroutine") as caught:
        PoliteSession(UA)
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(WrongEventLoop):
        PoliteSession(Gatekeeper(UA))


# Exempt requests


WHY = "our own server"


async def test_exemption_is_for_its_own_request_alone(site: Site, polite: PoliteSession) -> None:
    assert await visit(polite, f"{site.base}/private", exempt=WHY) == "page /private"
    async with polite.request("POST", f"{site.base}/private/2", data=b"body", exempt=WHY) as response:
        assert response.status == 200
    async with polite.ws_connect(f"{site.ws}/private/ws", exempt=WHY) as socket:
        assert await says(socket, "hello") == "echo hello"
    assert site.paths == ["/private", "/private/2", "/private/ws"]
    for pending in (polite.get(f"{site.base}/private"), polite.get(f"{site.base}/private", exempt=None)):
        with pytest.raises(ClientDisallowed):
            await pending
    assert site.paths[3:] == ["/robots.txt"]


async def test_exemption_ends_with_its_host(site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async for second in serving(Site()):  # another port is the same host
        site.redirects["/private/a"] = (302, f"{second.base}/private/b")
        second.redirects["/private/b"] = (302, f"{site.base}/private/c")
        await visit(polite, f"{site.base}/private/a", exempt=WHY)
        assert (site.paths, second.paths) == (["/private/a", "/private/c"], ["/private/b"])
    site.redirects |= {"/private/a": (302, f"{other.base}/private/b"), "/private/c": (302, f"{other.base}/page")}
    with pytest.raises(ClientDisallowed) as caught:
        await polite.get(f"{site.base}/private/a", exempt=WHY)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    await visit(polite, f"{site.base}/private/c", exempt=WHY)
    assert site.paths[2:] == ["/private/a", "/private/c"]
    assert (other.paths, turns(gate)) == (["/robots.txt", "/page"], 0)


async def test_exempt_request_may_be_led_to_its_own_host_alone(site: Site, other: Site, polite: PoliteSession) -> None:
    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/private", exempt=WHY, middlewares=(sends(base=other.base),))
    await polite.get(f"{site.base}/private/1", exempt=WHY, middlewares=(sends(path="/private/2"),))
    assert (site.paths, other.paths) == (["/private/2"], ["/robots.txt"])


# Redirects are plain aiohttp's, except for those that lead where nobody may go


async def outcome_of(session: Session, jar: aiohttp.CookieJar, sites: tuple[Site, Site], ask: Any) -> dict[str, Any]:
    """Return what became of a request, as servers and client tell it."""
    for site in sites:
        site.seen.clear()
    outcome: dict[str, Any] = {}
    method, path, options = ask
    try:
        async with session.request(method, sites[0].base + path, **options) as response:
            outcome["answer"] = (response.status, str(response.url), response.method, await response.text())
            outcome["real URL"] = str(response.real_url)
            outcome["cookies"] = {name: morsel.value for name, morsel in response.cookies.items()}
            outcome["history"] = [
                (hop.status, str(hop.url), hop.method, hop.headers.get("Location")) for hop in response.history
            ]
    except (aiohttp.ClientError, ValueError) as error:
        outcome["error"] = (type(error), str(error))
    outcome["jar"] = sorted((cookie["domain"], cookie.key, cookie.value) for cookie in jar)
    outcome["seen"] = [
        (site.base, seen.method, seen.path, seen.body, seen.cookies, {**seen.headers, "User-Agent": ""})
        for site in sites
        for seen in site.seen
        if seen.path != "/robots.txt"
    ]
    return outcome


STATUSES = (301, 302, 303, 307, 308)
CREDENTIALS = {"Authorization": "Bearer 1", "Cookie": "mine=1", "Proxy-Authorization": "Basic 1", "X-More": "1"}
BODY = {"data": b"body"}
PLAIN = "/302#here /fragment /fragment#here /deep/relative /deep/up /deep/query?a=1 /same-scheme /chain /loop /nowhere"
ASKS: list[tuple[str, str, dict[str, Any]]] = [
    *((method, f"/{status}", {}) for status in STATUSES for method in ("GET", "HEAD", "DELETE")),
    *((method, f"/{status}", BODY) for status in STATUSES for method in ("POST", "PUT", "PATCH")),
    *(("POST", f"/{status}", {"allow_redirects": False}) for status in STATUSES),
    *(
        (method, f"/away/{status}", BODY | {"headers": CREDENTIALS})
        for status in STATUSES
        for method in ("POST", "PUT")
    ),
    *(("GET", path, {}) for path in (*PLAIN.split(), "/mail", "/odd", "/missing", "/page")),
    ("GET", "/302", {"params": {"a": "1"}}),
    ("GET", "/302", {"cookies": {"mine": "1"}, "headers": {"Authorization": "Bearer 1"}}),
    ("GET", "/away/302", {"cookies": {"mine": "1"}}),
    ("GET", "/there-and-back", {"headers": CREDENTIALS}),
    ("POST", "/307", {"json": {"a": 1}}),
    ("POST", "/chain", BODY),
    ("GET", "/chain", {"max_redirects": 2}),
    ("GET", "/chain", {"max_redirects": 3}),
    ("GET", "/loop", {"max_redirects": 2}),
    ("GET", "/missing", {"raise_for_status": True}),
]


async def test_redirects_are_those_of_plain_aiohttp(site: Site, other: Site, gate: Gatekeeper) -> None:
    site.redirects = {f"/{status}": (status, "/page?x=%2F") for status in STATUSES}
    site.redirects |= {f"/away/{status}": (status, f"{other.base}/page") for status in STATUSES}
    site.redirects |= {
        "/there-and-back": (307, f"{other.base}/back"),
        "/fragment": (302, "/page#there"),
        "/deep/relative": (302, "leaf?a=1"),
        "/deep/up": (302, "../page"),
        "/deep/query": (302, "/page?b=%26"),
        "/same-scheme": (302, f"{site.base.removeprefix('http:')}/page"),
        "/chain": (302, "/301"),
        "/loop": (302, "/loop"),
        "/nowhere": (302, ""),
        "/mail": (302, "mailto:me@example.com"),
        "/odd": (302, "http://[::1/"),
        "/missing": (302, "/404"),
    }
    other.redirects["/back"] = (302, f"{site.base}/page")
    makes: tuple[Callable[..., Session], ...] = (
        aiohttp.ClientSession,
        partial(PoliteSession, gate),
        partial(paced, gate),
    )
    for ask in ASKS:
        found = []
        for make in makes:
            jar = aiohttp.CookieJar(unsafe=True)
            async with make(cookie_jar=jar) as session:
                found.append(await outcome_of(session, jar, (site, other), ask))
        expected, polite, own = found
        assert expected["seen"]
        assert polite == own == expected, ask
        assert turns(gate) == 0, ask


# WebSockets: aiohttp's own handshake, permitted and in its turn


async def says(socket: aiohttp.ClientWebSocketResponse[Any], text: str) -> str:
    await socket.send_str(text)
    async with asyncio.timeout(5):
        return str(await socket.receive_str())


async def test_disallowed_websocket_is_denied(site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    for base in (site.ws, site.base):
        with pytest.raises(ClientDisallowed) as caught:
            await polite.ws_connect(f"{base}/private/ws")
        assert caught.value.verdict.url == f"{site.base}/private/ws"
        assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    with pytest.raises(ClientDisallowed):
        async with polite.ws_connect(f"{site.ws}/private/ws"):
            pass
    site.redirects |= {"/here": (302, "/private/ws"), "/there": (302, f"{other.base}/private/ws")}
    for path in site.redirects:
        with pytest.raises(ClientDisallowed):
            await polite.ws_connect(f"{site.ws}{path}")
    assert (site.paths, other.paths) == (["/robots.txt", "/here", "/there"], ["/robots.txt"])
    assert turns(gate) == 0


async def test_websocket_is_judged_by_the_robots_txt_of_its_handshake() -> None:
    for url, judged in {
        "ws://example.com/private": "http://example.com",
        "wss://example.com/private": "https://example.com",
        "ws://example.com:8080/private?x": "http://example.com:8080",
        "wss://example.com:443/private": "https://example.com",
    }.items():
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


async def test_refused_handshake_ends_the_turn(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    for path, status in {"/403": 403, "/404": 404, "/page": 200, "/slow": 200}.items():
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await polite.ws_connect(f"{site.ws}{path}")
        assert (caught.value.status, turns(gate)) == (status, 0)
    await polite.get(f"{site.base}/page", max_wait_s=0.0)
    assert site.pages == ["/403", "/404", "/page", "/slow", "/page"]


@pytest.mark.parametrize("path", ["/429", "/503"])
async def test_handshake_may_close_the_host(site: Site, gate: Gatekeeper, polite: PoliteSession, path: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await polite.ws_connect(f"{site.ws}{path}")
    assert turns(gate) == 0
    for ask in (polite.get, polite.ws_connect):
        with pytest.raises(TooFar) as caught:
            await ask(f"{site.base}/ws", max_wait_s=60)
        assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert site.pages == [path]


async def test_open_websocket_holds_up_nobody(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.ws_connect(f"{site.ws}/ws") as socket:
        assert isinstance(socket, aiohttp.ClientWebSocketResponse)
        assert turns(gate) == 0
        await polite.get(f"{site.base}/page", max_wait_s=0.0)
        async with polite.ws_connect(f"{site.ws}/ws", max_wait_s=0.0) as second:
            assert [await says(one, text) for one, text in ((second, "2"), (socket, "1"))] == ["echo 2", "echo 1"]
    assert socket.close_code == aiohttp.WSCloseCode.OK
    assert [(seen.path, seen.headers["User-Agent"]) for seen in site.seen[1:]] == [
        ("/ws", UA),
        ("/page", UA),
        ("/ws", UA),
    ]


async def test_handshake_waits_and_follows_redirects(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    site.redirects["/moved"] = (302, "/ws")
    async with polite.get(f"{site.base}/slow"):
        waiting = apart(polite.ws_connect(f"{site.ws}/moved"))
        await until(lambda: gate.statistics().waiting == 1)
        assert site.pages == ["/slow"]
    socket = await waiting
    assert await says(socket, "hello") == "echo hello"
    assert site.pages == ["/slow", "/moved", "/ws"]
    await socket.close()


async def test_handshake_sends_what_plain_aiohttp_sends(site: Site, gate: Gatekeeper) -> None:
    offered = ("sing", "chat")
    given: Any = {"params": {"a": "1"}, "protocols": offered, "headers": {"X-Mine": "2"}, "compress": 15}
    headers = {"X-More": "1", "User-Agent": UA}
    for make in (aiohttp.ClientSession, partial(PoliteSession, gate)):
        async with make(headers=headers, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            await session.get(f"{site.base}/page")  # which sets a cookie
            async with session.ws_connect(f"{site.ws}/ws", origin="http://example.com", **given) as socket:
                assert socket.protocol == "chat"
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


async def test_raise_for_status_of_the_session_holds_for_handshakes(site: Site, gate: Gatekeeper) -> None:
    for given in (True, False):
        async with PoliteSession(gate, raise_for_status=given) as polite:
            assert polite.raise_for_status is given
            with pytest.raises(aiohttp.ClientResponseError) as caught:
                await polite.ws_connect(f"{site.ws}/404")
        assert isinstance(caught.value, aiohttp.WSServerHandshakeError) is not given
        assert turns(gate) == 0

    async def judge(response: ClientResponse) -> None:
        pass

    async with aiohttp.ClientSession(raise_for_status=judge) as own, PoliteSession(gate, session=own) as polite:
        assert polite.raise_for_status is judge  # that of the session that sends


async def test_no_websocket_after_the_session_was_closed(site: Site, gate: Gatekeeper) -> None:
    polite = PoliteSession(gate)
    polite.ws_connect(f"{site.ws}/ws").close()  # thought better of
    await polite.close()
    with pytest.raises(ClosedError):
        await polite.ws_connect(f"{site.ws}/ws")
    assert site.paths == []


# Requests that bypass the middleware


Told = list[MiddlewareBypassed]


@pytest.fixture
def robots(gate: Gatekeeper) -> RobotsMiddleware:
    return RobotsMiddleware(gate)


@pytest.fixture
async def traced(robots: RobotsMiddleware) -> AsyncIterator[ClientSession]:
    async with ClientSession(middlewares=(robots,), trace_configs=[robots.trace_config()]) as session:
        yield session


@pytest.fixture
def told(gate: Gatekeeper) -> Told:
    return events_of(gate, MiddlewareBypassed)


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


async def test_bypass_is_reported_once_by_its_first_hop(site: Site, traced: ClientSession, told: Told) -> None:
    url = f"{site.base}/private"
    site.redirects |= {"/a": (303, "/b"), "/b": (302, "/c")}
    async with traced.get(url, middlewares=()) as response:
        assert response.status == 200
    await traced.post(f"{url}?a=1#top", params={"a": "2"}, middlewares=[idle])
    await traced.get(URL(f"{site.base}/page").with_user("me").with_password("secret"), middlewares=())
    await traced.post(f"{site.base}/a", middlewares=())
    assert told == [
        MiddlewareBypassed("GET", url),
        MiddlewareBypassed("POST", f"{url}?a=1&a=2"),
        MiddlewareBypassed("GET", f"{site.base}/page"),
        MiddlewareBypassed("POST", f"{site.base}/a"),
    ]
    assert site.paths == ["/private", "/private?a=1&a=2", "/page", "/a", "/b", "/c"]


async def test_bypass_is_logged_as_a_warning_once_for_each_site_though_nobody_listens(
    site: Site, traced: ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "politesse")
    for page in ("1", "2", "%0A" * 1_000):
        await traced.get(URL(f"{site.base}/{page}", encoded=True), middlewares=())
    first, second, long = [record for record in caplog.records if record.name == "politesse.integrations"]
    message = f"GET {site.base}/1 was sent past RobotsMiddleware: nothing was judged"
    assert (first.levelname, first.getMessage()) == ("WARNING", message)
    assert (second.levelname, long.levelname) == ("DEBUG", "DEBUG")
    assert len(long.getMessage()) < 400


async def test_bypass_is_reported_even_if_it_fails(site: Site, traced: ClientSession, told: Told) -> None:
    task = asyncio.create_task(traced._request("GET", f"{site.base}/silent", middlewares=()))
    await until(lambda: site.paths == ["/silent"])
    assert told == [MiddlewareBypassed("GET", f"{site.base}/silent")]
    task.cancel()
    await until(task.done)
    site.drops = 1
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await traced.post(f"{site.base}/drop", middlewares=())
    with pytest.raises(aiohttp.ClientResponseError):
        await traced.get(f"{site.base}/404", middlewares=(), raise_for_status=True)
    assert told[1:] == [MiddlewareBypassed("POST", f"{site.base}/drop"), MiddlewareBypassed("GET", f"{site.base}/404")]


async def test_websocket_that_bypasses_is_reported(site: Site, robots: RobotsMiddleware, told: Told) -> None:
    async with (
        ClientSession(trace_configs=[robots.trace_config()]) as forgetful,
        forgetful.ws_connect(f"{site.base}/ws"),
    ):
        assert told == [MiddlewareBypassed("GET", f"{site.base}/ws")]


async def test_judged_request_is_not_reported(
    site: Site, traced: ClientSession, gate: Gatekeeper, robots: RobotsMiddleware, told: Told
) -> None:
    async def hedge(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        return await asyncio.create_task(handler(request))  # type: ignore[arg-type]  # it is a coroutine

    site.redirects["/a"] = (302, "/b")
    await traced.get(f"{site.base}/a")
    await traced.get(f"{site.base}/a", middlewares=(idle, robots))
    await traced.get(f"{site.base}/a", middlewares=(hedge, robots))
    await traced.get(f"{site.base}/a", middlewares=(robots, sends(path="/c"), robots))  # judged again
    another = RobotsMiddleware(gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0"))
    await traced.get(f"{site.base}/a", middlewares=[another, idle])
    async with traced.ws_connect(f"{site.base}/ws"):
        pass
    async with PoliteSession(gate, session=traced) as polite:
        await polite.get(f"{site.base}/a")
    assert (told, site.pages.count("/c")) == ([], 1)


async def test_request_that_is_not_sent_is_not_reported(
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    kept = await traced.get(f"{site.base}/page")

    async def from_cache(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        return kept

    assert await traced.get(f"{site.base}/page", middlewares=(from_cache, robots)) is kept
    with pytest.raises(ClientDisallowed):
        await traced.get(f"{site.base}/private")
    with pytest.raises(aiohttp.ClientConnectorError):
        await traced.get("http://127.0.0.1:1/", middlewares=())
    with pytest.raises(ValueError, match="Cannot combine"):
        await traced.get(URL(f"{site.base}/page").with_user("me"), headers={"Authorization": "Bearer 1"})
    assert told == []


@pytest.mark.parametrize("aside", [True, False])
async def test_each_of_two_nested_requests_is_reported_for_itself(
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told, *, aside: bool
) -> None:
    """A middleware asks for something else first, in its task or in another, by its session or another."""

    def asks_by(*middlewares: RobotsMiddleware, by: ClientSession = traced) -> ClientMiddlewareType:
        async def fetch_token(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
            asking = by._request("GET", f"{site.base}/token", middlewares=middlewares)
            token = await (asyncio.create_task(asking) if aside else asking)
            token.release()
            return await handler(request)

        return fetch_token

    async def ask_in_vain(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        with pytest.raises(ClientDisallowed):
            await traced.get(f"{site.base}/private", middlewares=(robots,))
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
            await traced.get(f"{site.base}/page", middlewares=middlewares)
            assert told == expected


async def test_of_many_at_once_those_that_bypass_are_reported(
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    async def ask(number: int) -> None:
        own: dict[int, tuple[ClientMiddlewareType, ...]] = {0: (), 1: (robots,), 2: (idle,), 3: (idle, robots)}
        await traced.get(f"{site.base}/{number}", middlewares=own.get(number % 5))

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
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    await traced.get(f"{site.base}/a?b", middlewares=(robots, sends(host="other.example")))
    await traced.get(f"{site.base}/a?b", middlewares=(robots, sends(host="no host")))
    await traced.get(f"{site.base}/a", middlewares=(robots, sends(host=site.base.removeprefix("http://").upper())))
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
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told
) -> None:
    async def shorten(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_path(request.url.path.removesuffix("/x"))
        return await handler(request)

    site.redirects |= {"/a": (302, "/b"), "/b": (302, "/c/x")}
    await traced.get(f"{site.base}/a/x", middlewares=(robots, shorten))
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
    site: Site, traced: ClientSession, robots: RobotsMiddleware, told: Told
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

    await traced.get(f"{site.base}/page", middlewares=(hedge, robots))
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
