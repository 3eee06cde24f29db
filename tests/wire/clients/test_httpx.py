"""PoliteTransport of httpx and httpx2: over a scripted transport in virtual time, and over real servers."""

import asyncio
import gc
import re
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, Self

import httpx
import httpx2
import pytest
from aiohttp import web
from hishel import AsyncSqliteStorage
from hishel.httpx import AsyncCacheTransport

from politesse import (
    Bound,
    ClosedError,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    InvalidURL,
    PacingOptions,
    PoliteQueue,
    PolitesseError,
    TooFar,
)
from politesse.events import Decided, TurnDropped
from politesse.integrations.httpx import PoliteTransport
from politesse.queue import CrawlPage
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import events_of
from tests.support.httpx_libraries import LIBRARIES, Library
from tests.support.programs import run_code
from tests.support.sites import UA, UPGRADE, Site, slow_gate, turns, until
from tests.support.tasks import apart, ended, settle
from tests.support.tiers import first_of

SITE = "https://example.com"
ROBOTS = "User-agent: *\nDisallow: /private\n"
DELAY_S = 5.0
OTHERS = dict(zip(LIBRARIES, LIBRARIES[::-1], strict=True))


class Body(httpx.AsyncByteStream, httpx2.AsyncByteStream):
    """A body that takes its time, and breaks off or cannot be closed if told to."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0, error: Any = None, stuck: Any = None) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.error = error
        self.stuck = stuck
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"first "
        if self.takes_s:
            await self.clock.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        yield b"last"

    async def aclose(self) -> None:
        self.closed += 1
        if self.stuck is not None:
            raise self.stuck


class Wire(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):
    """A transport that answers as the test says, and writes down what it was given and when."""

    def __init__(self, clock: ManualClock, http: Any) -> None:
        self.clock = clock
        self.http = http
        self.answer: Callable[[httpx.Request], Any] = lambda _: self.slow()
        self.sent: list[httpx.Request] = []
        self.started: list[float] = []
        self.bodies: list[Body] = []
        self.life: list[str] = []

    def slow(self, status: int = 200, headers: dict[str, str] | None = None, **options: Any) -> Any:
        self.bodies.append(Body(self.clock, **options))
        return self.http.Response(status, headers=headers, stream=self.bodies[-1])

    async def handle_async_request(self, request: Any) -> Any:
        self.sent.append(request)
        self.started.append(self.clock.monotonic())
        return self.answer(request)

    async def __aenter__(self) -> Self:
        self.life.append("entered")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.life.append("left")

    async def aclose(self) -> None:
        self.life.append("closed")

    @property
    def paths(self) -> list[str]:
        return [request.url.raw_path.decode() for request in self.sent]

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.started)]


class Scripted:
    """A client over a gate with a pause of 5 s, both scripted, in virtual time."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.http = library.http
        self.clock = ManualClock(autojump=True)
        self.fetcher = ScriptedFetcher({SITE: ROBOTS})
        pacing = PacingOptions(min_delay_s=DELAY_S, adaptive_factor=0.0)
        self.gate = Gatekeeper(UA, fetcher=self.fetcher, clock=self.clock, pacing=pacing)
        self.wire = Wire(self.clock, self.http)
        self.polite = self.transport()
        self.client: httpx.AsyncClient = self.http.AsyncClient(transport=self.polite, follow_redirects=True)

    @property
    def turns(self) -> int:
        return turns(self.gate)

    def transport(self, **options: Any) -> Any:
        return self.library.polite.PoliteTransport(self.gate, wraps=self.wire, **options)

    async def open(self, path: str = "/a") -> httpx.Response:
        return await self.client.send(self.client.build_request("GET", f"{SITE}{path}"), stream=True)

    async def drop(self, *, thread: bool = False) -> None:
        """Drop an open response, which the garbage collector finds in this or another thread."""
        with pytest.warns(ResourceWarning, match=f"{SITE}/a was dropped"):
            await self._open_and_collect(thread=thread)

    async def _open_and_collect(self, *, thread: bool) -> None:
        await self.open()
        if thread:  # not awaited: the clock would jump meanwhile
            collecting = threading.Thread(target=gc.collect)
            collecting.start()
            collecting.join()
        else:
            gc.collect()


@pytest.fixture
async def scripted(library: Library) -> AsyncIterator[Scripted]:
    scripted = Scripted(library)
    async with scripted.gate, scripted.client:
        yield scripted


# Pace


async def test_pause_counts_from_the_end_of_the_body(scripted: Scripted) -> None:
    scripted.wire.answer = lambda _: scripted.wire.slow(takes_s=2.0)
    responses = await asyncio.gather(*(scripted.client.get(f"{SITE}/{n}") for n in range(3)))
    assert [response.text for response in responses] == ["first last"] * 3
    assert scripted.wire.gaps == [2.0 + DELAY_S] * 2


class ByToken(httpx.Auth, httpx2.Auth):  # type: ignore[misc]  # the types of their generators differ
    """Answers a challenge without a look at its body, or requests a token first and sends its request elsewhere."""

    def __init__(self, token: Any = None, path: str = "") -> None:
        self.token = token
        self.path = path

    def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        if self.token is not None:
            yield self.token
            request.url = request.url.copy_with(path=self.path)
        elif (yield request).status_code == 401:
            request.headers["Authorization"] = "open sesame"
        yield request


async def test_answer_to_a_challenge_has_a_turn_of_its_own(scripted: Scripted) -> None:
    scripted.wire.answer = lambda request: scripted.wire.slow(
        200 if "Authorization" in request.headers else 401, takes_s=1.0
    )
    assert (await scripted.client.get(f"{SITE}/a", auth=ByToken())).status_code == 200
    assert (scripted.wire.gaps[0], scripted.turns) == (1.0 + DELAY_S, 0)


async def test_refusal_closes_its_host_when_its_headers_come(scripted: Scripted) -> None:
    scripted.wire.answer = lambda _: scripted.wire.slow(429, {"Retry-After": "60"})
    async with scripted.client.stream("GET", f"{SITE}/a"):
        refused_wall = scripted.clock.wall()
        with pytest.raises(TooFar) as caught:  # its body is neither read nor closed
            await apart(scripted.gate.take_turn(f"{SITE}/b", max_wait_s=59.0))
    assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert caught.value.not_yet.not_before >= refused_wall + 60


async def test_no_turn_within_the_longest_wait_is_an_error_of_both_libraries(scripted: Scripted) -> None:
    async with scripted.http.AsyncClient(transport=scripted.transport(max_wait_s=DELAY_S - 1)) as client:
        await scripted.gate.check(f"{SITE}/a")
        scripted.clock.advance(DELAY_S)
        await client.get(f"{SITE}/a")
        with pytest.raises(scripted.library.polite.RequestTooFar) as caught:
            await client.get(f"{SITE}/b")
        ended_wall = scripted.clock.wall()
    error: Any = caught.value
    assert isinstance(error, TooFar)
    assert isinstance(error, scripted.http.RequestError)
    assert not isinstance(error, scripted.http.TimeoutException)
    assert (error.not_yet.bound_by, error.not_yet.not_before) == (Bound.FLOOR, ended_wall + DELAY_S)
    assert (scripted.wire.paths, error.request.url) == (["/a"], f"{SITE}/b")
    assert re.fullmatch(r"no turn at example\.com within 4 s: not before 20.*Z, by floor", str(error))


# What is judged


async def test_url_is_judged_exactly_as_it_is_sent(scripted: Scripted) -> None:
    sent = {
        f"{SITE}/a/../b": "/b",  # RFC 3986 5.2.4, by httpx
        f"{SITE}/a?b=/../c": "/a?b=/../c",  # a query has no segments
        f"{SITE}/a?": "/a?",
        SITE: "/",
        f"{SITE}/a#private": "/a",  # RFC 9112 3.2: a fragment is no part of the target
        f"{SITE}/a%2Fb": "/a%2Fb",
        f"{SITE}/é": "/%C3%A9",
        f"{SITE}:443/a": "/a",
        "https://user:word@example.com/a": "/a",
    }
    decided = events_of(scripted.gate, Decided)
    for url in sent:
        await scripted.client.get(url)
    assert dict(zip(sent, scripted.wire.paths, strict=True)) == sent
    assert [event.verdict.url for event in decided] == [f"{SITE}{target}" for target in sent.values()]


async def test_target_of_the_extension_is_what_is_judged(scripted: Scripted) -> None:
    errors: dict[bytes | str, type[Exception]] = {b"/private/page": Disallowed, "/private/page": Disallowed}
    errors |= dict.fromkeys([b"*", b"https://other.example/a", b"/a#b", b"/\xe9", b""], InvalidURL)
    found = await asyncio.gather(
        *(scripted.client.get(f"{SITE}/a", extensions={"target": target}) for target in errors), return_exceptions=True
    )
    assert [
        (target, error)
        for (target, kind), error in zip(errors.items(), found, strict=True)
        if not (isinstance(error, kind) and isinstance(error, scripted.http.RequestError))
    ] == []
    assert scripted.wire.sent == []


async def test_url_that_cannot_be_judged_is_an_error_of_both_libraries(scripted: Scripted) -> None:
    paths = [f"{SITE}/a/%2e%2e/private", f"{SITE}/%2E/private", f"{SITE}/a/.%2e?b"]
    for url in (*paths, "ftp://example.com/a", "wss://example.com/a", "https://1/", "https://a_very\\odd/"):
        with pytest.raises(scripted.library.polite.RequestInvalidURL) as caught:
            await scripted.client.get(url)
        assert isinstance(caught.value, InvalidURL)
        assert isinstance(caught.value, scripted.http.RequestError)
        assert caught.value.request.url == url
    for url in ("example.com/a", "/a", "mailto:us"):
        with pytest.raises(scripted.library.polite.RequestInvalidURL, match="is not an absolute URL") as caught:
            await scripted.client.get(url)
        assert caught.value.url == str(caught.value.request.url)  # as httpx spells it
    assert scripted.wire.sent == []


async def test_user_agent_of_httpx_becomes_that_of_the_gate(scripted: Scripted) -> None:
    await scripted.client.get(f"{SITE}/a")
    await scripted.client.send(scripted.http.Request("GET", f"{SITE}/b"))  # without any
    await scripted.client.get(f"{SITE}/c", headers={"User-Agent": "ExampleBot/2.0"})
    assert [request.headers["User-Agent"] for request in scripted.wire.sent] == [UA, UA, "ExampleBot/2.0"]


async def test_error_has_the_request_without_a_client_too(scripted: Scripted) -> None:
    for url, error in (
        (f"{SITE}/private", "RequestDisallowed"),
        ("ftp://example.com/a", "RequestInvalidURL"),
        (f"{SITE}/a", "RequestTooFar"),
    ):
        request = scripted.http.Request("GET", url)
        with pytest.raises(getattr(scripted.library.polite, error)) as caught:
            await scripted.transport(max_wait_s=0.0).handle_async_request(request)
        assert caught.value.request is request
        assert isinstance(caught.value, PolitesseError)
        assert isinstance(caught.value, scripted.http.RequestError)


# When a turn ends


async def by_reading(response: httpx.Response) -> None:
    await response.aread()


async def by_iterating(response: httpx.Response) -> None:
    assert [part async for part in response.aiter_raw()] == [b"first ", b"last"]


async def by_iterating_the_stream(response: Any) -> None:
    assert [part async for part in response.stream] == [b"first ", b"last"]


async def by_breaking_off(response: httpx.Response) -> None:
    async for _ in response.aiter_raw():
        break
    await response.aclose()


async def by_closing_twice(response: Any) -> None:
    await response.stream.aclose()
    await response.aclose()


async def test_turn_ends_with_the_response(scripted: Scripted) -> None:
    for end in (by_reading, by_iterating, by_iterating_the_stream, by_breaking_off, by_closing_twice):
        response = await scripted.open()
        assert (scripted.turns, "1 turns" in repr(scripted.polite)) == (1, True)
        await end(response)
        assert (scripted.turns, "0 turns" in repr(scripted.polite)) == (0, True), end
        await response.aclose()
        assert scripted.wire.bodies[-1].closed == 1


class SyncBody(httpx.SyncByteStream, httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"body"


async def test_turn_ends_with_a_response_whose_body_came_before_or_fails(scripted: Scripted) -> None:
    http, wire = scripted.http, scripted.wire
    wire.answer = lambda _: http.Response(200, text="read")  # as httpx.MockTransport and caches answer
    async with scripted.client.stream("GET", f"{SITE}/a") as response:
        assert scripted.turns == 0
        assert await response.aread() == b"read"
    faults: dict[type[BaseException], Callable[[object], Any]] = {
        AssertionError: lambda _: http.Response(200, stream=SyncBody()),  # of httpx, which cannot read it
        http.ReadError: lambda _: wire.slow(error=http.ReadError("broken")),
        http.CloseError: lambda _: wire.slow(stuck=http.CloseError("stuck")),
    }
    for kind, answer in faults.items():
        wire.answer = answer
        with pytest.raises(kind):
            await scripted.client.get(f"{SITE}/a")
        assert scripted.turns == 0, kind
    assert [body.closed for body in wire.bodies] == [1, 1]


async def test_dropped_response_is_closed_by_the_collector(scripted: Scripted) -> None:
    dropped = events_of(scripted.gate, TurnDropped)
    for thread in (False, True):
        asyncio.get_running_loop().set_debug(thread)  # then it refuses what another thread may not call
        await scripted.drop(thread=thread)
        await settle()
        assert (scripted.turns, scripted.wire.bodies[-1].closed) == (0, 1)
        await scripted.client.get(f"{SITE}/b")
    assert scripted.wire.gaps == [DELAY_S] * 3
    assert dropped == [TurnDropped("example.com", f"{SITE}/a")] * 2


async def test_warning_as_an_error_gives_the_host_back(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await scripted.open()
        gc.collect()
    assert [type(error) for error in raised] == [ResourceWarning]
    await settle()
    assert scripted.turns == 0
    assert scripted.clock.monotonic() < 60  # not after max_turn_s


async def test_turn_of_a_dropped_response_ends_though_others_cancel_its_closing(scripted: Scripted) -> None:
    others = asyncio.all_tasks()
    await scripted.drop()
    while not (closing := asyncio.all_tasks() - others):
        await asyncio.sleep(0)
    await ended(closing)
    assert scripted.turns == 0


def test_response_that_is_dropped_after_the_event_loop_asks_nothing_of_it(library: Library) -> None:
    async def leave_open() -> tuple[httpx.Response, Body]:
        scripted = Scripted(library)
        async with scripted.gate:
            return await scripted.open(), scripted.wire.bodies[0]

    def drop() -> Body:
        body = asyncio.run(leave_open())[1]
        gc.collect()
        return body

    with pytest.warns(ResourceWarning, match="was dropped"):
        assert drop().closed == 0


# Opening and closing


async def test_client_enters_and_exits_the_wrapped_transport_but_not_the_gate(scripted: Scripted) -> None:
    wire = scripted.wire
    wire.life.clear()  # of the client of the fixture
    async with scripted.http.AsyncClient(transport=scripted.transport()):
        assert wire.life == ["entered"]
    await scripted.http.AsyncClient(transport=scripted.transport()).aclose()
    assert wire.life == ["entered", "left", "closed"]
    assert not scripted.fetcher.closed
    assert await scripted.gate.check(f"{SITE}/a")


@pytest.mark.parametrize("is_left", [False, True])
async def test_closing_ends_open_turns_and_raises_in_waiting_requests(scripted: Scripted, *, is_left: bool) -> None:
    response = await scripted.open()
    waiting = apart(scripted.client.get(f"{SITE}/b"))
    await settle()
    assert (scripted.turns, scripted.gate.statistics().waiting) == (1, 1)
    await (scripted.polite.__aexit__() if is_left else scripted.polite.aclose())
    assert scripted.turns == 0
    with pytest.raises(ClosedError):
        await waiting
    del response
    gc.collect()  # without a warning: the connection is gone
    assert (scripted.turns, scripted.gate.statistics().waiting, scripted.wire.paths) == (0, 0, ["/a"])


async def test_closing_ends_open_turns_though_the_wrapped_transport_fails_at_once(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> NoReturn:
        raise OSError("closed badly")

    response = await scripted.open()
    with monkeypatch.context() as patch:
        patch.setattr(scripted.wire, "aclose", fail)  # not a coroutine: it fails before there is anything to await
        with pytest.raises(OSError, match="closed badly"):
            await scripted.polite.aclose()
    assert scripted.turns == 0
    del response


async def test_wrong_arguments_are_found_when_they_are_given(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError, match="give a Gatekeeper"):
        scripted.library.polite.PoliteTransport(UA)
    other = OTHERS[scripted.library.name]
    sender: Any = Library(other).http.AsyncHTTPTransport
    wanted = f"give an asynchronous transport of {scripted.library.name}"
    hint = f"; for {other}, use politesse.integrations.{other}"
    with scripted.http.HTTPTransport() as synchronous:
        for wraps, problem in (
            (synchronous, wanted),
            (sender(), wanted + hint),
            (type("Own", (sender,), {})(), wanted + hint),
        ):
            with pytest.raises(ConfigurationError, match=f"^wraps=.*: {re.escape(problem)}$"):
                scripted.library.polite.PoliteTransport(scripted.gate, wraps=wraps)
    async with Library(other).http.AsyncClient(transport=scripted.polite) as client:
        with pytest.raises(ConfigurationError) as caught:
            await client.get(f"{SITE}/a")
    problem = f"give a request of {scripted.library.name}{hint}"
    assert re.fullmatch(f"request=.*: {re.escape(problem)}", str(caught.value))
    assert (scripted.wire.sent, scripted.turns, scripted.gate.statistics().decisions) == ([], 0, 0)


async def test_transport_of_the_other_library_is_a_type_error(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError):
        PoliteTransport(gate, wraps=httpx2.AsyncHTTPTransport())  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=PoliteTransport(gate)):  # type: ignore[arg-type]
        pass


async def test_client_that_is_not_asynchronous_takes_it_neither_by_type_nor_in_fact(scripted: Scripted) -> None:
    client = httpx.Client if scripted.library.name == "httpx" else httpx2.Client
    with pytest.raises(AttributeError, match="PoliteTransport"):
        client(transport=scripted.polite).get(f"{SITE}/a")
    assert not isinstance(scripted.polite, scripted.http.BaseTransport)
    assert scripted.wire.sent == []


@pytest.mark.parametrize("name", first_of(1, LIBRARIES))
def test_integration_imports_its_own_library_alone(name: str) -> None:
    program = f"import sys; import politesse; print('{name}' in sys.modules); import politesse.integrations.{name}"
    assert run_code(f"{program}; print('{OTHERS[name]}' in sys.modules)").stdout == "False\nFalse\n"


def test_name_of_httpx_may_stand_for_httpx2() -> None:
    done = run_code(
        "import asyncio, httpx2; httpx2.alias_httpx(); import httpx; from politesse import Gatekeeper\n"
        "from politesse.integrations.httpx import PoliteTransport\n"
        "from politesse.testing import ScriptedFetcher\n"
        "answer = httpx.MockTransport(lambda request: httpx.Response(200, text=request.headers['User-Agent']))\n"
        "async def main():\n"
        f"    async with Gatekeeper('{UA}', fetcher=ScriptedFetcher()) as gate:\n"
        "        async with httpx.AsyncClient(transport=PoliteTransport(gate, wraps=answer)) as client:\n"
        "            print((await client.get('https://example.com/')).text)\n"
        "asyncio.run(main())"
    )
    assert done.stdout == f"{UA}\n", done.stderr


# Over real servers


async def test_answer_ends_its_turn(site: Site, client: httpx.AsyncClient, gate: Gatekeeper, library: Library) -> None:
    methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
    for path in ("/page", "/204", "/404"):
        for method in methods:
            await client.request(method, f"{site.base}{path}")
            assert turns(gate) == 0, (method, path)
    assert [seen.method for seen in site.seen[1:]] == methods * 3
    site.drops = 1
    with pytest.raises(library.http.RemoteProtocolError):
        await client.get(f"{site.base}/drop")
    assert turns(gate) == 0


async def test_requests_of_hooks_and_auth_are_judged(site: Site, client: httpx.AsyncClient, library: Library) -> None:
    def token(path: str) -> object:
        return library.http.Request("POST", f"{site.base}{path}")

    await client.get(f"{site.base}/page", auth=ByToken(token("/token"), "/other"))
    with pytest.raises(Disallowed):
        await client.get(f"{site.base}/page", auth=ByToken(token("/private/token"), "/page"))
    with pytest.raises(Disallowed):
        await client.get(f"{site.base}/page", auth=ByToken(token("/last"), "/private"))
    path = b"/private"

    async def rewrite(request: httpx.Request) -> None:
        request.url = request.url.copy_with(raw_path=path)

    client.event_hooks = {"request": [rewrite]}
    for path in (b"/private", b"/%70rivate"):  # noqa: B007 - rewrite reads it
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/page")
    assert site.pages == ["/token", "/other", "/last"]


async def test_upgrade_ends_its_turn_at_once(site: Site, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    async with client.stream("GET", f"{site.base}/ws", headers=UPGRADE) as response:
        assert (response.status_code, turns(gate)) == (101, 0)
        await client.get(f"{site.base}/page")
        socket = response.extensions["network_stream"]
        await socket.write(b"\x89\x80\0\0\0\0")  # a ping
        assert await socket.read(2) == b"\x8a\0"  # the connection is still open
    assert site.pages == ["/ws", "/page"]


@pytest.mark.realtime  # the timeouts of httpx are real
async def test_timeouts_of_httpx_begin_with_the_turn(site: Site) -> None:
    async def request(library: Library) -> None:
        clock = ManualClock()
        gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=PacingOptions(min_delay_s=60.0))
        timeout = library.http.Timeout(1.0)
        transport = library.polite.PoliteTransport(gate)
        async with gate, library.http.AsyncClient(transport=transport, timeout=timeout) as client:
            waiting = apart(client.get(f"{site.base}/{library.name}"))
            await until(lambda: gate.statistics().waiting == 1)
            await asyncio.sleep(1.1)
            assert (waiting.done(), f"/{library.name}" in site.pages) == (False, False)
            clock.advance(60.0)
            assert (await waiting).elapsed.total_seconds() >= 1.1
            clock.advance(60.0)
            with pytest.raises(library.http.ReadTimeout):
                await client.get(f"{site.base}/silent", timeout=library.http.Timeout(None, read=0.1))
            assert turns(gate) == 0

    await asyncio.gather(*(request(Library(name)) for name in LIBRARIES))
    assert sorted(site.pages) == ["/httpx", "/httpx2", "/silent", "/silent"]


async def test_proxy_gets_what_is_permitted(site: Site, other: Site, gate: Gatekeeper, library: Library) -> None:
    transport = library.polite.PoliteTransport(gate, wraps=library.http.AsyncHTTPTransport(proxy=other.base))
    async with library.http.AsyncClient(transport=transport) as client:
        await client.get(f"{site.base}/page")
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
    assert site.pages == []
    # A proxy is sent the absolute form (RFC 9112 3.2.2).
    assert [(seen.path, seen.headers["Host"]) for seen in other.seen] == [("/page", site.base.removeprefix("http://"))]


async def test_proxies_of_the_environment_are_not_used_and_that_of_the_client_leads_past_the_transport(
    site: Site, other: Site, gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate)) as client:
        await client.get(f"{site.base}/page")
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate), proxy=other.base) as client:
        await client.get(f"{site.base}/private")
    assert (site.pages, len(other.seen), gate.statistics().decisions) == (["/page"], 1, 1)  # which is why nobody should


async def test_mounted_transport_judges_its_own(site: Site, other: Site, gate: Gatekeeper, library: Library) -> None:
    async with library.http.AsyncClient(mounts={"http://127.0.0.1": library.polite.PoliteTransport(gate)}) as client:
        with pytest.raises(Disallowed):
            await client.get(f"{site.base}/private")
        await client.get(f"{other.base}/private")
    assert (site.pages, other.pages) == ([], ["/private"])


# A cache of pages around the transport


@dataclass
class Tagged(Site):
    """Its pages have a tag, and are fresh for an hour below /fresh."""

    async def page(self, request: web.Request) -> web.Response:
        headers = {"ETag": '"1"', "Cache-Control": "max-age=3600" if request.path == "/fresh" else "no-cache"}
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers=headers)
        return web.Response(text=request.path, headers=headers)


def cached(gate: Gatekeeper, folder: Path) -> httpx.AsyncClient:
    storage = AsyncSqliteStorage(database_path=str(folder / "pages.db"))
    return httpx.AsyncClient(transport=AsyncCacheTransport(PoliteTransport(gate), storage, rfc=True))


@pytest.mark.realtime
@pytest.mark.parametrize("site_class", [Tagged])
async def test_fresh_page_needs_no_request_and_each_conditional_one_has_its_turn(site: Tagged, tmp_path: Path) -> None:
    texts: list[str] = []

    async def handle(page: CrawlPage[None], response: httpx.Response) -> None:
        texts.append(response.text)

    async with slow_gate(0.1) as gate:
        for _ in range(3):
            async with cached(gate, tmp_path) as client:
                queue: PoliteQueue[None] = PoliteQueue(gate)
                for path in ("/fresh", "/page", "/private"):
                    await queue.put(f"{site.base}{path}")
                report = await queue.crawl(client, handle)
                assert (report.pages, report.disallowed) == (2, 1)
    asked = [(seen.path, seen.status) for seen in site.seen[1:]]
    assert asked == [("/fresh", 200), ("/page", 200), ("/page", 304), ("/page", 304)]
    assert texts == ["/fresh", "/page"] * 3
    assert [later.started - earlier.ended >= 0.1 for earlier, later in pairwise(site.seen[1:])] == [True] * 3
