import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from politesse import ClosedError, ConfigurationError, Disallowed, Gatekeeper, InvalidURL, PacingOptions, Reason, TooFar
from politesse.errors import WrongEventLoop
from politesse.events import Decided, Event
from politesse.integrations.aiohttp import ClientDisallowed, ClientInvalidURL, PoliteSession, RobotsMiddleware
from politesse.testing import ScriptedFetcher
from tests.support.sites import EAGER, UA, Site, serving, slow_gate, turns, until
from tests.support.tasks import apart
from tests.wire.clients.clients import Session, in_every_way


async def visit(polite: PoliteSession, url: str) -> None:
    async with polite.get(url) as response:
        await response.read()


# What is asked before what


async def test_shortest_program_is_polite(site: Site) -> None:
    async with PoliteSession(UA) as polite:
        with pytest.raises(Disallowed):
            await polite.get(f"{site.base}/private")
        assert site.paths == ["/robots.txt"]


@pytest.mark.realtime
async def test_session_for_each_page_keeps_the_pace(site: Site) -> None:
    for place in range(4):
        async with (
            PoliteSession(UA, pacing=PacingOptions(min_delay_s=0.25)) as polite,
            polite.get(f"{site.base}/{place}", exempt="a test of the pace alone") as response,
        ):
            await response.read()
    assert site.paths == ["/0", "/1", "/2", "/3"]
    assert min(after.started - before.ended for before, after in pairwise(site.seen)) >= 0.25


@in_every_way
@pytest.mark.parametrize("method", ["get", "options", "head", "post", "put", "patch", "delete"])
async def test_every_method_is_judged_and_sent_unchanged(site: Site, session: Session, method: str) -> None:
    with pytest.raises(ClientDisallowed) as caught:
        await getattr(session, method)(f"{site.base}/private/x")
    assert isinstance(caught.value, Disallowed)
    assert isinstance(caught.value, aiohttp.ClientError)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    assert "line 2" in str(caught.value)
    async with getattr(session, method)(f"{site.base}/open") as response:
        assert response.status == 200
    response = await session.request(method, f"{site.base}/again")
    response.release()
    assert site.paths == ["/robots.txt", "/open", "/again"]
    assert {seen.method for seen in site.seen[1:]} == {method.upper()}
    assert {seen.headers["User-Agent"] for seen in site.seen} == {UA}


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


@pytest.mark.parametrize(
    ("given", "params", "sent"),
    [
        ("page", None, "/base/page"),
        ("/page", {"a": "1"}, "/page?a=1"),
        ("page?a=1#fragment", {"b": "ü x"}, "/base/page?a=1&b=%C3%BC+x"),
        (URL("%70age/../other"), [("a", "1"), ("a", "2")], "/base/other?a=1&a=2"),
        (URL("p%2520q", encoded=True), "x=ü", "/base/p%2520q?x=%C3%BC"),
        ("", {}, "/base/"),
    ],
)
async def test_turn_taken_ahead_is_for_the_url_that_is_sent(
    site: Site, gate: Gatekeeper, given: str | URL, params: Any, sent: str
) -> None:
    events: list[Event] = []
    held: list[int] = []
    trace = aiohttp.TraceConfig()

    async def start(*_: object) -> None:
        held.append(turns(gate))

    trace.on_request_start.append(start)
    async with PoliteSession(gate, base_url=f"{site.base}/base/", trace_configs=[trace]) as polite:
        await polite.get("")  # after which robots.txt is known
        site.seen.clear()
        gate.subscribe(events.append)
        await polite.get(given, params=params)
    assert site.paths == [sent]
    asked = [event.verdict.url for event in events if isinstance(event, Decided)]
    assert asked == [f"{site.base}{sent}"]  # one question, so one turn: the one that was taken ahead
    assert held == [1, 1]


async def test_user_info_is_no_part_of_what_is_judged(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    events: list[Event] = []
    gate.subscribe(events.append)
    await polite.get(str(URL(f"{site.base}/page").with_user("me").with_password("secret")))
    assert [event.verdict.url for event in events if isinstance(event, Decided)] == [f"{site.base}/page"]
    assert site.seen[-1].headers["Authorization"].startswith("Basic ")


@in_every_way
async def test_escaped_and_dotted_spellings_are_judged_as_they_are_sent(site: Site, session: Session) -> None:
    for spelling in ("/%70rivate", "/open/../private", "/open/%2e%2e/private", "/./private#top", "/pri%76ate?x"):
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}{spelling}")
    with pytest.raises(ClientDisallowed):
        await session.get(f"{site.base}/private", params={"a": "1"})
    assert site.paths == ["/robots.txt"]


@pytest.mark.parametrize("url", ["http://", "ftp://example.com/", "page", "http://exa mple.com/"])
async def test_invalid_url_raises_an_error_of_aiohttp(polite: PoliteSession, gate: Gatekeeper, url: str) -> None:
    with pytest.raises(aiohttp.ClientError):
        await polite.get(url)
    assert turns(gate) == 0


@pytest.mark.parametrize("url", ["", "/page", "page", "//", "http://"])
async def test_url_without_scheme_or_host_is_explained_and_an_invalid_url_of_both_libraries(
    polite: PoliteSession, gate: Gatekeeper, url: str
) -> None:
    with pytest.raises(InvalidURL) as asked:
        await gate.check(url)
    with pytest.raises(ClientInvalidURL) as caught:
        await polite.get(url)
    assert isinstance(caught.value, aiohttp.InvalidURL)
    assert (str(caught.value), caught.value.url) == (str(asked.value), url)
    assert turns(gate) == 0


async def test_request_that_was_not_awaited_says_so(polite: PoliteSession) -> None:
    request = polite.get("http://localhost/")
    with pytest.raises(AttributeError, match="'status' is of the response: await the request, or use 'async with'"):
        request.status  # type: ignore[attr-defined]  # noqa: B018
    request.close()


@in_every_way
async def test_host_that_no_server_can_have_is_an_error_of_both_libraries(site: Site, session: Session) -> None:
    site.redirects["/moved"] = (302, "http://300.1.1.1/")
    for url in ("http://300.1.1.1/", f"{site.base}/moved"):
        with pytest.raises(ClientInvalidURL) as caught:
            await session.get(url)
        assert isinstance(caught.value, InvalidURL)
        assert isinstance(caught.value, aiohttp.ClientError)


# When a turn ends


async def test_turn_lasts_while_the_body_comes(site: Site, gate: Gatekeeper, session: Session) -> None:
    async with session.get(f"{site.base}/slow") as response:
        assert turns(gate) == 1
        waiting = apart(session.get(f"{site.base}/page"))
        await until(lambda: gate.statistics().waiting == 1)
        assert site.pages == ["/slow"]
        site.go_on.set()
        assert await response.text() == "first last"
        assert turns(gate) <= 1  # that of the next
    await waiting
    assert site.pages == ["/slow", "/page"]


async def by_reading(response: ClientResponse) -> None:
    await response.read()


async def by_iterating(response: ClientResponse) -> None:
    async for _ in response.content.iter_any():
        pass


async def by_waiting(response: ClientResponse) -> None:
    await response.content.wait_eof()


async def by_release(response: ClientResponse) -> None:
    response.release()


async def by_close(response: ClientResponse) -> None:
    response.close()


async def by_leaving(response: ClientResponse) -> None:
    async with response:
        pass


async def by_letting_it_lie(response: ClientResponse) -> None:
    """Its body comes, and nobody reads it."""


@pytest.mark.parametrize(
    "end", [by_reading, by_iterating, by_waiting, by_release, by_close, by_leaving, by_letting_it_lie]
)
@pytest.mark.parametrize("path", ["/slow", "/page", "/204", "/404"])
async def test_turn_ends_with_the_response_and_no_reference_remains(
    site: Site,
    gate: Gatekeeper,
    session: Session,
    end: Callable[[ClientResponse], Coroutine[Any, Any, None]],
    path: str,
) -> None:
    await (await session.get(f"{site.base}/page")).read()
    loop: Any = asyncio.get_running_loop()
    before = set(loop._scheduled)  # with the timer of the pacer, one for all turns
    response = await session.get(f"{site.base}{path}")
    assert turns(gate) == (1 if path == "/slow" else 0)
    if end not in {by_release, by_close, by_leaving}:
        site.go_on.set()
    await end(response)
    await until(lambda: turns(gate) == 0 or end is not by_letting_it_lie)
    assert turns(gate) == 0
    callbacks = [timer._callback for timer in loop._scheduled if not timer.cancelled() and timer not in before]
    assert [callback for callback in callbacks if isinstance(callback, partial)] == []  # nor the alarm of ours


async def test_turn_ends_with_raise_for_status(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    response = await polite.get(f"{site.base}/404")
    with pytest.raises(aiohttp.ClientResponseError):
        response.raise_for_status()
    with pytest.raises(aiohttp.ClientResponseError):
        await polite.get(f"{site.base}/404", raise_for_status=True)
    assert turns(gate) == 0
    assert "0 turns" in repr(polite)


@pytest.mark.realtime
async def test_turn_ends_when_the_body_breaks_off(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(sock_read=1.0)) as response:
        with pytest.raises(aiohttp.SocketTimeoutError):
            await response.read()
    assert turns(gate) == 0
    await polite.get(f"{site.base}/page")


async def test_error_ends_the_turn(site: Site, gate: Gatekeeper, session: Session) -> None:
    site.drops = 1
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.post(f"{site.base}/drop")
    assert turns(gate) == 0
    await session.get(f"{site.base}/page")
    assert site.pages == ["/drop", "/page"]


async def test_refused_connection_ends_the_turn() -> None:
    async with Gatekeeper(UA, pacing=EAGER, fetcher=ScriptedFetcher()) as gate, PoliteSession(gate) as polite:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientConnectorError):
                await polite.get("http://127.0.0.1:1/")
            assert turns(gate) == 0


async def test_attempt_that_aiohttp_repeats_has_a_turn_of_its_own(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    site.drops = 1
    async with asyncio.timeout(5), polite.get(f"{site.base}/drop") as response:
        assert response.status == 200
    assert site.pages == ["/drop", "/drop"]
    assert turns(gate) == 0


async def test_wrong_argument_gives_the_turn_back(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    with pytest.raises(ValueError, match="at the same time"):
        await polite.get(f"{site.base}/page", data="1", json="2")
    assert turns(gate) == 0
    assert site.pages == []


# Pace


@pytest.mark.realtime
async def test_waiting_for_the_first_turn_costs_nothing_of_the_timeout(site: Site) -> None:
    timeout = aiohttp.ClientTimeout(total=1.0)
    async with slow_gate(1.2) as gate, PoliteSession(gate, timeout=timeout) as polite:
        await polite.get(f"{site.base}/a")  # 1.2 s after robots.txt
        await polite.get(f"{site.base}/b")
    assert site.paths == ["/robots.txt", "/a", "/b"]
    assert site.seen[2].started - site.seen[1].ended >= 1.2


@pytest.mark.full
@pytest.mark.realtime
async def test_waiting_for_a_later_turn_counts_against_the_timeout(site: Site) -> None:
    site.redirects["/moved"] = (302, "/page")
    async with slow_gate(3.0) as gate, PoliteSession(gate) as polite:
        with pytest.raises(TimeoutError):
            await polite.get(f"{site.base}/moved", timeout=aiohttp.ClientTimeout(total=1.0))
        assert (turns(gate), gate.statistics().waiting) == (0, 0)
    assert site.pages == ["/moved"]


async def test_longest_wait_is_that_of_the_request_or_else_of_the_session(site: Site, gate: Gatekeeper) -> None:
    await gate.check(f"{site.base}/slow")  # so that no fetch of robots.txt counts
    async with PoliteSession(gate, max_wait_s=0.01) as polite, polite.get(f"{site.base}/slow"):
        with pytest.raises(TooFar):
            await apart(polite.get(f"{site.base}/page"))
        waiting = apart(polite.get(f"{site.base}/page", max_wait_s=None))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        assert site.pages == ["/slow"]
        waiting.cancel()
        await until(waiting.done)


async def test_longest_wait_holds_for_each_hop(site: Site, other: Site, gate: Gatekeeper) -> None:
    other.redirects["/moved"] = (302, f"{site.base}/page")
    await gate.check(f"{other.base}/moved")  # so that no fetch of robots.txt counts
    async with PoliteSession(gate) as polite, polite.get(f"{site.base}/slow"):
        with pytest.raises(TooFar):
            await apart(polite.get(f"{other.base}/moved", max_wait_s=0.01))
        assert turns(gate) == 1
    assert other.pages == ["/moved"]
    assert site.pages == ["/slow"]


# Middlewares


async def authenticate(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """As a digest middleware does: the answer to the challenge is the same request once more."""
    response = await handler(request)
    if response.status == 401:
        request.headers["Authorization"] = "Bearer 1"
        response = await handler(request)
    return response


async def trespass(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    request.url = request.url.with_path("/private")
    return await handler(request)


async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    request.url = request.url.with_path("/elsewhere")
    return await handler(request)


async def refuse(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    raise LookupError("not today")


async def spoil(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    await handler(request)
    raise LookupError("too late")


async def test_middlewares_of_a_request_do_not_bypass_politeness(site: Site, polite: PoliteSession) -> None:
    for middlewares in ((), (authenticate,), [authenticate, authenticate]):
        with pytest.raises(ClientDisallowed):
            await polite.get(f"{site.base}/private", middlewares=middlewares)
    assert site.paths == ["/robots.txt"]


async def test_request_is_judged_as_a_middleware_changed_it(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/page", middlewares=(trespass,))
    assert turns(gate) == 0
    await polite.get(f"{site.base}/page", middlewares=(stray,))
    assert turns(gate) == 0
    assert site.pages == ["/elsewhere"]


async def test_middleware_that_asks_again_waits_for_no_turn_of_its_own(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    async with asyncio.timeout(5):
        async with polite.get(f"{site.base}/challenge", middlewares=(authenticate,)) as response:
            assert response.status == 200
    assert site.pages == ["/challenge", "/challenge"]
    assert turns(gate) == 0


async def test_middleware_that_asks_again_before_the_body_came_releases_the_first(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    async def twice(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        await handler(request)
        assert turns(gate) == 1
        return await handler(request)

    async with asyncio.timeout(5), polite.get(f"{site.base}/slow", middlewares=(twice,)):
        assert turns(gate) == 1
    assert site.pages == ["/slow", "/slow"]
    assert turns(gate) == 0


async def test_middleware_that_first_makes_another_request_does_not_deadlock(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    async def fetch_token(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        async with polite.get(f"{site.base}/token", middlewares=()) as token:
            request.headers["Authorization"] = await token.text()
        return await handler(request)

    async with asyncio.timeout(5), polite.get(f"{site.base}/page", middlewares=(fetch_token,)) as response:
        assert response.status == 200
    assert site.pages == ["/token", "/page"]
    assert site.seen[-1].headers["Authorization"] == "page /token"
    assert turns(gate) == 0


async def test_trace_that_first_makes_another_request_does_not_deadlock(site: Site, gate: Gatekeeper) -> None:
    async def fetch_token(
        _: aiohttp.ClientSession, __: SimpleNamespace, started: aiohttp.TraceRequestStartParams
    ) -> None:
        if started.url.path == "/page":
            await visit(polite, f"{site.base}/token")

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(fetch_token)
    async with asyncio.timeout(5), PoliteSession(gate, trace_configs=[trace]) as polite:
        await visit(polite, f"{site.base}/page")
    assert site.pages == ["/token", "/page"]
    assert turns(gate) == 0


@pytest.mark.parametrize(("middleware", "sent"), [(refuse, []), (spoil, ["/slow"])])
async def test_middleware_that_raises_ends_the_turn(
    site: Site, gate: Gatekeeper, polite: PoliteSession, middleware: Any, sent: list[str]
) -> None:
    with pytest.raises(LookupError):
        await polite.get(f"{site.base}/slow", middlewares=(middleware,))
    assert site.pages == sent
    assert turns(gate) == 0
    await polite.get(f"{site.base}/page")


async def test_middleware_that_answers_itself_gives_the_turn_back(
    site: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    kept = await polite.get(f"{site.base}/page")

    async def from_cache(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        assert turns(gate) == 1
        return kept

    assert await polite.get(f"{site.base}/page", middlewares=(from_cache,)) is kept
    assert turns(gate) == 0
    assert site.pages == ["/page"]


async def test_middlewares_of_the_session_are_called_unless_the_request_has_its_own(
    site: Site, gate: Gatekeeper
) -> None:
    async with PoliteSession(gate, middlewares=(stray,)) as polite:
        await polite.get(f"{site.base}/page")
        await polite.get(f"{site.base}/page", middlewares=())
    assert site.pages == ["/elsewhere", "/page"]


# What belongs to whom


async def test_given_session_is_used_and_not_closed(site: Site, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession(f"{site.base}/base/", middlewares=(authenticate,), headers={"X-More": "1"}) as own:
        async with PoliteSession(gate, session=own) as polite:
            assert polite.session is own
            await polite.get("page")
            await polite.get("/challenge")
            with pytest.raises(ClientDisallowed):
                await polite.get("/private")
        assert polite.closed
        assert not own.closed
        with pytest.raises(ClosedError):
            await polite.get("page")
    assert site.pages == ["/base/page", "/challenge", "/challenge"]
    assert site.seen[1].headers["X-More"] == "1"
    assert site.seen[1].headers["User-Agent"] == UA


async def test_open_response_of_a_given_session_outlives_the_polite_one(site: Site, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as own:
        async with PoliteSession(gate, session=own) as polite:
            response = await polite.get(f"{site.base}/slow")
        assert turns(gate) == 1
        site.go_on.set()
        assert await response.text() == "first last"
    assert turns(gate) == 0


async def test_session_that_is_closed_under_it_closes_it(site: Site, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as own:
        polite = PoliteSession(gate, session=own)
    assert polite.closed
    with pytest.raises(ClosedError):
        await polite.get(f"{site.base}/page")
    assert site.paths == []


@pytest.mark.parametrize("closes_what_it_sends_with", [True, False])
async def test_request_that_waits_while_its_session_is_closed_is_not_sent(
    site: Site, gate: Gatekeeper, *, closes_what_it_sends_with: bool
) -> None:
    async with PoliteSession(gate) as first, aiohttp.ClientSession() as own:
        polite = PoliteSession(gate, session=own)
        async with first.get(f"{site.base}/slow"):
            waiting = apart(visit(polite, f"{site.base}/page"))
            await until(lambda: gate.statistics().waiting == 1)
            await (own if closes_what_it_sends_with else polite).close()
        with pytest.raises(ClosedError):
            await waiting
        assert turns(gate) == 0
    assert site.pages == ["/slow"]


async def test_session_that_a_middleware_finds_closed_is_named(site: Site, gate: Gatekeeper) -> None:
    async def close_and_request(request: aiohttp.ClientRequest, handler: object) -> aiohttp.ClientResponse:
        del handler
        await request.session.close()
        return await request.session.get(request.url)

    own = aiohttp.ClientSession(middlewares=(close_and_request,))
    with pytest.raises(ClosedError, match="the session is closed"):
        await PoliteSession(gate, session=own).get(f"{site.base}/page")
    assert (site.pages, turns(gate)) == ([], 0)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("integration", ["PoliteSession", "PoliteSession around it", "permission", "pace"])
async def test_nothing_of_the_session_reaches_robots_txt_nor_the_other_way_round(
    site: Site, integration: str, *, shares: bool
) -> None:
    secrets: Any = {
        "headers": {"X-Secret": "1", "Authorization": "Bearer 1"},
        "cookies": {"login": "1"},
        "cookie_jar": aiohttp.CookieJar(unsafe=True),
    }
    async with (
        aiohttp.ClientSession(**secrets) as own,
        Gatekeeper(UA, pacing=EAGER, session=own if shares else None) as gate,
    ):
        page, more = f"{site.base}/page", {"Cookie": "more=1"}
        if integration == "PoliteSession":
            async with PoliteSession(gate, **secrets) as polite:
                await polite.get(page, headers=more)
        elif integration == "PoliteSession around it":
            await PoliteSession(gate, session=own).get(page, headers=more)
        else:
            middleware = RobotsMiddleware(gate, pace=integration == "pace")
            await own.get(page, headers=more, middlewares=(middleware,))
    robots, asked = site.seen
    assert (robots.path, asked.path) == ("/robots.txt", "/page")
    assert not {"X-Secret", "Authorization", "Cookie"} & set(robots.headers)
    assert (asked.headers["X-Secret"], asked.headers["Authorization"]) == ("1", "Bearer 1")
    assert asked.cookies == {"login": "1", "more": "1"}  # and none that robots.txt has set
    assert "robots" not in {cookie.key for cookie in secrets["cookie_jar"]}


async def test_given_gatekeeper_is_not_closed(site: Site, gate: Gatekeeper) -> None:
    async with PoliteSession(gate) as polite:
        assert polite.gate is gate
    assert await gate.check(f"{site.base}/page")


async def test_own_gatekeeper_is_closed(site: Site) -> None:
    async with PoliteSession(UA) as polite:
        pass
    assert polite.closed
    assert "closed" in repr(polite)
    with pytest.raises(ClosedError):
        await polite.gate.check(f"{site.base}/page")
    await polite.close()


async def test_closing_early_ends_the_turns_of_open_responses(site: Site, gate: Gatekeeper) -> None:
    polite = PoliteSession(gate)
    response = await polite.get(f"{site.base}/slow")
    waiting = apart(polite.get(f"{site.base}/page"))
    await until(lambda: gate.statistics().waiting == 1)
    assert "1 turns" in repr(polite)
    await polite.close()
    with pytest.raises(ClosedError):
        await waiting
    assert turns(gate) == 0
    assert site.pages == ["/slow"]
    response.close()


async def test_closing_the_gate_raises_in_waiting_requests(site: Site) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as gate, PoliteSession(gate) as polite, polite.get(f"{site.base}/slow"):
        waiting = apart(polite.get(f"{site.base}/page"))
        await until(lambda: gate.statistics().waiting == 1)
        await gate.aclose()
        with pytest.raises(ClosedError):
            await waiting
    assert site.pages == ["/slow"]


async def test_options_of_a_session_do_not_go_with_a_given_one(gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as own:
        with pytest.raises(ConfigurationError, match="headers"):
            PoliteSession(gate, session=own, headers={"X-More": "1"})
        with pytest.raises(ConfigurationError, match="default"):
            PoliteSession("aiohttp/3.14", session=own)


def test_session_outside_of_an_event_loop_is_refused_by_a_clear_error() -> None:
    with pytest.raises(WrongEventLoop, match="create a PoliteSession inside a coroutine") as caught:
        PoliteSession(UA)
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(WrongEventLoop):
        PoliteSession(Gatekeeper(UA))


# Exempt requests


WHY = "our own server"


async def test_forbidden_page_is_requested_and_robots_txt_is_not(site: Site, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/private", exempt=WHY) as response:
        assert await response.text() == "page /private"
    async with polite.request("POST", f"{site.base}/private/2", data=b"body", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private", "/private/2"]


async def test_exemption_is_for_its_own_request_alone(site: Site, polite: PoliteSession) -> None:
    await polite.get(f"{site.base}/private", exempt=WHY)
    for pending in (polite.get(f"{site.base}/private"), polite.get(f"{site.base}/private", exempt=None)):
        with pytest.raises(ClientDisallowed):
            await pending
    assert site.paths == ["/private", "/robots.txt"]


async def test_redirect_within_the_host_is_exempt_too(site: Site, polite: PoliteSession) -> None:
    async for second in serving(Site()):  # another port is the same host
        site.redirects["/private/a"] = (302, f"{second.base}/private/b")
        second.redirects["/private/b"] = (302, f"{site.base}/private/c")
        async with polite.get(f"{site.base}/private/a", exempt=WHY) as response:
            assert response.status == 200
        assert site.paths == ["/private/a", "/private/c"]
        assert second.paths == ["/private/b"]


async def test_redirect_to_another_host_is_judged(
    site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    site.redirects |= {"/private/a": (302, f"{other.base}/private/b"), "/private/c": (302, f"{other.base}/page")}
    with pytest.raises(ClientDisallowed) as caught:
        await polite.get(f"{site.base}/private/a", exempt=WHY)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    async with polite.get(f"{site.base}/private/c", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private/a", "/private/c"]
    assert other.paths == ["/robots.txt", "/page"]
    assert turns(gate) == 0


async def test_request_that_a_middleware_sends_to_another_host_is_judged(
    site: Site, other: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_host(other.host).with_port(int(other.base.rpartition(":")[2]))
        request.headers["Host"] = request.url.raw_authority
        return await handler(request)

    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/private", exempt=WHY, middlewares=(stray,))
    assert (site.paths, other.paths) == ([], ["/robots.txt"])


async def test_request_that_a_middleware_sends_to_another_page_of_the_host_is_exempt(
    site: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_path("/private/2")
        return await handler(request)

    await polite.get(f"{site.base}/private/1", exempt=WHY, middlewares=(stray,))
    assert site.paths == ["/private/2"]
