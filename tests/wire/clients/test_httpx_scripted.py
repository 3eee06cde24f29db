import asyncio
import gc
import re
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, Self, cast

import httpx
import httpx2
import pytest

from politesse import (
    Bound,
    ClosedError,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    InvalidURL,
    PacingOptions,
    PolitesseError,
    TooFar,
)
from politesse.events import Decided, Event
from politesse.integrations import httpx2 as integrations_httpx2
from politesse.integrations.httpx import PoliteTransport
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.httpx_libraries import LIBRARIES, Library
from tests.support.programs import run_code
from tests.support.tasks import apart, ended
from tests.support.tiers import first_of

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
ROBOTS = "User-agent: *\nDisallow: /private\n"
DELAY_S = 5.0


class Body(httpx.AsyncByteStream, httpx2.AsyncByteStream):
    """A body that takes its time, and breaks off if told to."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0, error: Exception | None = None) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.error = error
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


class Wire(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):
    """A transport that answers as the test says, and writes down what it was given and when."""

    def __init__(self, clock: ManualClock, library: Library) -> None:
        self.clock = clock
        self.http = library.http
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda _: self.slow()
        self.sent: list[httpx.Request] = []
        self.started: list[float] = []
        self.bodies: list[Body] = []
        self.hang = False
        self.life: list[str] = []

    def slow(self, status: int = 200, takes_s: float = 0.0, headers: dict[str, str] | None = None) -> Any:
        self.bodies.append(Body(self.clock, takes_s))
        return self.http.Response(status, headers=headers, stream=self.bodies[-1])

    async def handle_async_request(self, request: Any) -> Any:
        self.sent.append(request)
        self.started.append(self.clock.monotonic())
        if self.hang:
            await asyncio.Event().wait()
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


@pytest.fixture
def wire(clock: ManualClock, library: Library) -> Wire:
    return Wire(clock, library)


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: ROBOTS})


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    pacing = PacingOptions(min_delay_s=DELAY_S, adaptive_factor=0.0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        yield gate


@pytest.fixture
def polite(gate: Gatekeeper, wire: Wire, library: Library) -> Any:
    return library.polite.PoliteTransport(gate, wraps=wire)


@pytest.fixture
async def client(polite: PoliteTransport, library: Library) -> AsyncIterator[httpx.AsyncClient]:
    async with library.http.AsyncClient(transport=polite, follow_redirects=True) as client:
        yield client


def turns(gate: Gatekeeper) -> int:
    return gate.statistics().turns


def gaps(wire: Wire) -> list[float]:
    return [later - earlier for earlier, later in zip(wire.started, wire.started[1:], strict=False)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


# Pace


async def test_pause_counts_from_the_end_of_the_body(client: httpx.AsyncClient, wire: Wire) -> None:
    wire.answer = lambda _: wire.slow(takes_s=2.0)
    responses = await asyncio.gather(*(client.get(f"{SITE}/{n}") for n in range(3)))
    assert [response.text for response in responses] == ["first last"] * 3
    assert gaps(wire) == [2.0 + DELAY_S] * 2


class Twice(httpx.Auth, httpx2.Auth):  # type: ignore[misc]  # the types of their generators differ
    """Answers a challenge, and does not look at its body."""

    def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = "open sesame"
            yield request


async def test_answer_to_a_challenge_has_a_turn_of_its_own(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper
) -> None:
    wire.answer = lambda request: wire.slow(200 if "Authorization" in request.headers else 401, 1.0)
    assert (await client.get(f"{SITE}/a", auth=Twice())).status_code == 200
    assert gaps(wire) == [1.0 + DELAY_S]
    assert turns(gate) == 0


@pytest.mark.parametrize("status", [429, 503])
async def test_refusal_closes_its_host_when_its_headers_come(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, clock: ManualClock, status: int
) -> None:
    wire.answer = lambda _: wire.slow(status, headers={"Retry-After": "60"})
    async with client.stream("GET", f"{SITE}/a"):
        refused_wall = clock.wall()
        # Not read, not closed, and yet everybody knows.
        with pytest.raises(TooFar) as caught:
            await apart(gate.take_turn(f"{SITE}/b", max_wait_s=59.0))
    assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert caught.value.not_yet.not_before >= refused_wall + 60


# What is judged


@pytest.mark.parametrize(
    ("url", "target"),
    [
        (f"{SITE}/a/../b", "/b"),  # RFC 3986 5.2.4, by httpx
        (f"{SITE}/a?b=/../c", "/a?b=/../c"),  # a query has no segments
        (f"{SITE}/a?", "/a?"),
        (f"{SITE}", "/"),
        (f"{SITE}/a#private", "/a"),  # RFC 9112 3.2: a fragment is no part of the target
        (f"{SITE}/a%2Fb", "/a%2Fb"),
        (f"{SITE}/é", "/%C3%A9"),
        (f"{SITE}:443/a", "/a"),
        ("https://user:word@example.com/a", "/a"),
    ],
)
async def test_url_is_judged_exactly_as_it_is_sent(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, url: str, target: str
) -> None:
    judged: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Decided):
            judged.append(event.verdict.url)

    gate.subscribe(note)
    await client.get(url)
    assert wire.paths == [target]
    assert set(judged) == {f"{SITE}{target}"}


@pytest.mark.parametrize("target", [b"/private/page", "/private/page"])
async def test_target_of_the_extension_is_what_is_judged(
    client: httpx.AsyncClient, wire: Wire, target: bytes | str
) -> None:
    with pytest.raises(Disallowed):
        await client.get(f"{SITE}/a", extensions={"target": target})
    assert wire.sent == []


@pytest.mark.parametrize("target", [b"*", b"https://other.example/a", b"/a#b", b"/\xe9", b""])
async def test_target_that_no_rule_can_judge_is_not_sent(
    client: httpx.AsyncClient, wire: Wire, target: bytes, library: Library
) -> None:
    with pytest.raises(library.polite.RequestInvalidURL):
        await client.get(f"{SITE}/a", extensions={"target": target})
    assert wire.sent == []


@pytest.mark.parametrize(
    "url",
    [
        f"{SITE}/a/%2e%2e/private",
        f"{SITE}/%2E/private",
        f"{SITE}/a/.%2e?b",
        "ftp://example.com/a",
        "https://1/",
        "https://a_very\\odd/",
    ],
)
async def test_url_that_cannot_be_judged_is_an_error_of_both_libraries(
    client: httpx.AsyncClient, wire: Wire, url: str, library: Library
) -> None:
    with pytest.raises(library.polite.RequestInvalidURL) as caught:
        await client.get(url)
    assert isinstance(caught.value, InvalidURL)
    assert isinstance(caught.value, library.http.RequestError)
    assert caught.value.request.url == url
    assert wire.sent == []


@pytest.mark.parametrize("url", ["example.com/a", "/a", "mailto:us"])
async def test_url_without_a_host_is_reported_as_httpx_spells_it(
    client: httpx.AsyncClient, wire: Wire, url: str, library: Library
) -> None:
    with pytest.raises(library.polite.RequestInvalidURL, match="is not an absolute URL") as caught:
        await client.get(url)
    assert caught.value.url == str(caught.value.request.url)
    assert wire.sent == []


async def test_host_header_of_another_site_is_not_sent(client: httpx.AsyncClient, wire: Wire, library: Library) -> None:
    for host in ("other.example", "example.com:444", "example.com, example.com", ""):
        with pytest.raises(library.polite.RequestInvalidURL):
            await client.get(f"{SITE}/a", headers={"Host": host})
    assert wire.sent == []
    for host in ("example.com", "Example.COM", "example.com:443"):  # RFC 3986 6.2.2.1 and 6.2.3: the same
        await client.get(f"{SITE}/a", headers={"Host": host})
    assert len(wire.sent) == 3


async def test_user_agent_of_httpx_becomes_that_of_the_gate(
    client: httpx.AsyncClient, wire: Wire, library: Library
) -> None:
    await client.get(f"{SITE}/a")
    await client.send(library.http.Request("GET", f"{SITE}/b"))  # without any
    await client.get(f"{SITE}/c", headers={"User-Agent": "ExampleBot/2.0"})
    assert [request.headers["User-Agent"] for request in wire.sent] == [UA, UA, "ExampleBot/2.0"]


async def test_no_turn_within_the_longest_wait(
    gate: Gatekeeper, wire: Wire, clock: ManualClock, library: Library
) -> None:
    async with library.http.AsyncClient(
        transport=library.polite.PoliteTransport(gate, wraps=wire, max_wait_s=DELAY_S - 1)
    ) as client:
        await gate.check(f"{SITE}/a")
        clock.advance(DELAY_S)
        await client.get(f"{SITE}/a")
        with pytest.raises(library.polite.RequestTooFar) as caught:
            await client.get(f"{SITE}/b")
        ended_wall = clock.wall()
    assert wire.paths == ["/a"]
    assert isinstance(caught.value, TooFar)
    assert isinstance(caught.value, library.http.RequestError)
    assert not isinstance(caught.value, library.http.TimeoutException)
    assert (caught.value.not_yet.bound_by, caught.value.not_yet.not_before) == (Bound.FLOOR, ended_wall + DELAY_S)
    assert caught.value.request.url == f"{SITE}/b"
    assert str(caught.value).startswith("no turn at example.com within 4 s: not before 20")
    assert str(caught.value).endswith("Z, by floor")


# When a turn ends


async def by_reading(response: httpx.Response) -> None:
    await response.aread()


async def by_iterating(response: httpx.Response) -> None:
    async for _ in response.aiter_raw():
        pass


async def by_iterating_the_stream(response: httpx.Response) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream | httpx2.AsyncByteStream)
    assert [part async for part in response.stream] == [b"first ", b"last"]


async def by_breaking_off(response: httpx.Response) -> None:
    async for _ in response.aiter_raw():
        break
    await response.aclose()


async def by_closing(response: httpx.Response) -> None:
    await response.aclose()


async def by_closing_twice(response: httpx.Response) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream | httpx2.AsyncByteStream)
    await response.stream.aclose()
    await response.aclose()


@pytest.mark.parametrize(
    "end", [by_reading, by_iterating, by_iterating_the_stream, by_breaking_off, by_closing, by_closing_twice]
)
async def test_turn_ends_with_the_response(
    client: httpx.AsyncClient,
    wire: Wire,
    gate: Gatekeeper,
    polite: PoliteTransport,
    end: Callable[[httpx.Response], Coroutine[None, None, None]],
) -> None:
    response = await client.send(client.build_request("GET", f"{SITE}/a"), stream=True)
    assert turns(gate) == 1
    assert "1 turns" in repr(polite)
    await end(response)
    assert turns(gate) == 0
    assert "0 turns" in repr(polite)
    await response.aclose()
    assert wire.bodies[0].closed == 1


async def test_turn_ends_with_a_response_that_was_read_before_it_came(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, library: Library
) -> None:
    wire.answer = lambda _: library.http.Response(200, text="read")  # as httpx.MockTransport and caches answer
    async with client.stream("GET", f"{SITE}/a") as response:
        assert turns(gate) == 0
        assert await response.aread() == b"read"


class SyncBody(httpx.SyncByteStream, httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"body"


async def test_turn_ends_with_a_response_that_cannot_be_read(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, library: Library
) -> None:
    wire.answer = lambda _: library.http.Response(200, stream=SyncBody())
    with pytest.raises(AssertionError):  # of httpx
        await client.get(f"{SITE}/a")
    assert turns(gate) == 0


async def test_turn_ends_where_the_body_breaks_off(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, library: Library
) -> None:
    body = Body(wire.clock, error=library.http.ReadError("broken"))
    wire.answer = lambda _: library.http.Response(200, stream=body)
    with pytest.raises(library.http.ReadError):
        await client.get(f"{SITE}/a")
    assert (turns(gate), body.closed) == (0, 1)


class Unclosable(Body):
    async def aclose(self) -> None:
        raise httpx.CloseError("stuck")


async def test_turn_ends_where_closing_fails(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, library: Library
) -> None:
    wire.answer = lambda _: library.http.Response(200, stream=Unclosable(wire.clock))
    with pytest.raises(httpx.CloseError):
        await client.get(f"{SITE}/a")
    assert turns(gate) == 0


async def send_and_drop(client: httpx.AsyncClient, url: str, *, thread: bool) -> None:
    await client.send(client.build_request("GET", url), stream=True)
    if thread:  # not awaited: the clock would jump meanwhile
        collecting = threading.Thread(target=gc.collect)
        collecting.start()
        collecting.join()
    else:
        gc.collect()


@pytest.mark.parametrize("thread", [False, True])
async def test_dropped_response_is_closed_by_the_collector(
    client: httpx.AsyncClient, wire: Wire, gate: Gatekeeper, *, thread: bool
) -> None:
    asyncio.get_running_loop().set_debug(thread)  # then it refuses what another thread may not call
    with pytest.warns(ResourceWarning, match=f"{SITE}/a was dropped"):
        await send_and_drop(client, f"{SITE}/a", thread=thread)
    await until(lambda: turns(gate) == 0)
    assert wire.bodies[0].closed == 1
    await client.get(f"{SITE}/b")
    assert gaps(wire) == [DELAY_S]


async def test_dropped_response_gives_its_host_back_where_warnings_are_errors(
    client: httpx.AsyncClient, gate: Gatekeeper, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await send_and_drop(client, f"{SITE}/a", thread=False)
    assert [type(error) for error in raised] == [ResourceWarning]
    await until(lambda: turns(gate) == 0)
    assert clock.monotonic() < 60  # not after max_turn_s


async def test_turn_of_a_dropped_response_ends_though_others_cancel_its_closing(
    client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    others = asyncio.all_tasks()
    with pytest.warns(ResourceWarning, match=f"{SITE}/a was dropped"):
        await send_and_drop(client, f"{SITE}/a", thread=False)
    await until(lambda: asyncio.all_tasks() != others)
    await ended(asyncio.all_tasks() - others)
    assert turns(gate) == 0


def test_response_that_is_dropped_after_the_event_loop_asks_nothing_of_it(
    clock: ManualClock, wire: Wire, library: Library
) -> None:
    async def leave_open() -> Any:
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock) as gate:
            client = library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=wire))
            return await client.send(client.build_request("GET", f"{SITE}/a"), stream=True)

    def drop() -> None:
        asyncio.run(leave_open())
        gc.collect()

    with pytest.warns(ResourceWarning, match="was dropped"):
        drop()
    assert wire.bodies[0].closed == 0


# Opening and closing


async def test_client_enters_and_exits_the_wrapped_transport_but_not_the_gate(
    gate: Gatekeeper, wire: Wire, fetcher: ScriptedFetcher, library: Library
) -> None:
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=wire)):
        assert wire.life == ["entered"]
    assert wire.life == ["entered", "left"]
    await library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=wire)).aclose()
    assert wire.life == ["entered", "left", "closed"]
    assert not fetcher.closed
    assert await gate.check(f"{SITE}/a")


async def leave(transport: PoliteTransport) -> None:
    await transport.__aexit__()


@pytest.mark.parametrize("close", [PoliteTransport.aclose, leave])
async def test_closing_ends_the_turns_of_open_responses(
    polite: PoliteTransport,
    gate: Gatekeeper,
    close: Callable[[PoliteTransport], Coroutine[None, None, None]],
    library: Library,
) -> None:
    client = library.http.AsyncClient(transport=polite)
    response = await client.send(client.build_request("GET", f"{SITE}/a"), stream=True)
    await close(polite)
    assert turns(gate) == 0
    del response
    gc.collect()  # without a warning: the connection is gone


@pytest.mark.parametrize("close", [PoliteTransport.aclose, leave])
async def test_closing_raises_in_waiting_requests(
    polite: PoliteTransport,
    gate: Gatekeeper,
    wire: Wire,
    close: Callable[[PoliteTransport], Coroutine[None, None, None]],
    library: Library,
) -> None:
    client = library.http.AsyncClient(transport=polite)
    response = await client.send(client.build_request("GET", f"{SITE}/a"), stream=True)
    waiting = apart(client.get(f"{SITE}/b"))
    await until(lambda: gate.statistics().waiting == 1)
    await close(polite)
    with pytest.raises(ClosedError):
        await waiting
    await response.aclose()
    assert (turns(gate), gate.statistics().waiting, wire.paths) == (0, 0, ["/a"])


async def test_wrong_arguments_are_found_when_they_are_given(gate: Gatekeeper, library: Library) -> None:
    transport = cast("type[PoliteTransport]", library.polite.PoliteTransport)
    with pytest.raises(ConfigurationError, match="give a Gatekeeper"):
        transport(UA)  # type: ignore[arg-type]
    synchronous = cast("httpx.HTTPTransport", library.http.HTTPTransport())
    with pytest.raises(ConfigurationError, match=f"give an asynchronous transport of {library.name}$"), synchronous:
        transport(gate, wraps=synchronous)  # type: ignore[arg-type]


async def test_client_that_is_not_asynchronous_takes_it_neither_by_type_nor_in_fact(
    polite: PoliteTransport, wire: Wire, library: Library
) -> None:
    client = cast("type[httpx.Client]", library.http.Client)(transport=polite)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="PoliteTransport"):
        client.get(f"{SITE}/a")
    assert not isinstance(polite, library.http.BaseTransport)
    assert wire.sent == []


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"{SITE}/private", "RequestDisallowed"),
        ("ftp://example.com/a", "RequestInvalidURL"),
        (f"{SITE}/a", "RequestTooFar"),
    ],
)
async def test_error_has_the_request_without_a_client_too(
    gate: Gatekeeper, wire: Wire, url: str, error: str, library: Library
) -> None:
    request = library.http.Request("GET", url)
    with pytest.raises(getattr(library.polite, error)) as caught:
        await library.polite.PoliteTransport(gate, wraps=wire, max_wait_s=0.0).handle_async_request(request)
    assert caught.value.request is request
    assert isinstance(caught.value, PolitesseError)
    assert isinstance(caught.value, library.http.RequestError)


# Without httpx


@pytest.mark.parametrize("name", first_of(1, LIBRARIES))
def test_without_its_library_the_import_says_what_to_install(name: str) -> None:
    done = run_code(f"import sys; sys.modules['{name}'] = None; import politesse.integrations.{name}", check=False)
    assert done.returncode == 1
    assert f"pip install '.[{name}]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("name", "other"), [LIBRARIES, pytest.param(*LIBRARIES[::-1], marks=pytest.mark.full)])
def test_integration_does_not_import_the_other_library(name: str, other: str) -> None:
    program = f"import sys; import politesse; print('{name}' in sys.modules); import politesse.integrations.{name}"
    assert run_code(f"{program}; print('{other}' in sys.modules)").stdout == "False\nFalse\n"


# With the other library


OTHERS = {"httpx": "httpx2", "httpx2": "httpx"}


async def test_client_of_the_other_library_is_told_which_module_to_use(
    gate: Gatekeeper, wire: Wire, polite: PoliteTransport, library: Library
) -> None:
    other = OTHERS[library.name]
    async with Library(other).http.AsyncClient(transport=polite) as client:
        with pytest.raises(
            ConfigurationError,
            match=rf"^request=.*: give a request of {library.name}; for {other}, use politesse\.integrations\.{other}$",
        ):
            await client.get(f"{SITE}/a")
    assert (wire.sent, turns(gate), gate.statistics().decisions) == ([], 0, 0)


@pytest.mark.parametrize("is_derived", [False, True])
async def test_wrapped_transport_of_the_other_library_is_told_which_module_to_use(
    gate: Gatekeeper, library: Library, *, is_derived: bool
) -> None:
    other = OTHERS[library.name]
    sender: Any = Library(other).http.AsyncHTTPTransport
    wanted = f"an asynchronous transport of {library.name}; for {other}, use politesse.integrations.{other}"
    with pytest.raises(ConfigurationError, match=rf"^wraps=.*: give {re.escape(wanted)}$"):
        library.polite.PoliteTransport(gate, wraps=type("Own", (sender,), {})() if is_derived else sender())


async def test_transport_of_the_other_library_is_a_type_error(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError):
        PoliteTransport(gate, wraps=httpx2.AsyncHTTPTransport())  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=PoliteTransport(gate)):  # type: ignore[arg-type]
        pass


async def test_web_socket_is_not_opened(gate: Gatekeeper) -> None:
    async with httpx2.AsyncClient(transport=integrations_httpx2.PoliteTransport(gate)) as client:
        with pytest.raises(integrations_httpx2.RequestInvalidURL, match="has the scheme 'wss'"):
            await client.get("wss://example.com/a")


def test_name_of_httpx_may_stand_for_httpx2() -> None:
    done = run_code(
        "import httpx2; httpx2.alias_httpx(); import httpx; from politesse import Gatekeeper;"
        "from politesse.integrations.httpx import PoliteTransport;"
        "polite = PoliteTransport(Gatekeeper('ExampleBot/1.0 (+https://example.com/bot)'));"
        "headers = httpx.AsyncClient().headers;"
        "print(polite._agents.introduce(headers, headers.get_list('User-Agent')).identity.user_agent)"
    )
    assert done.stdout == f"{UA}\n", done.stderr
