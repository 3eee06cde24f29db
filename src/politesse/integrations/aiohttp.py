"""aiohttp, politely: a session that takes a turn for each hop, and a middleware that only asks for permission.

::

    async with PoliteSession("ExampleBot/1.0 (+https://example.com/bot)") as web:
        async with web.get("https://example.com/page") as response: ...

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
            async with session.get("https://example.com/page") as response: ...

aiohttp calls a middleware once for each hop, so a redirect from an allowed page to a disallowed one is not followed.
Both leave it to aiohttp what a redirect does to method, history and cookies.

A turn ends when the connection is given up, and it is the connection that says so: aiohttp calls back from every way
out of a response (its end, ``release``, ``close``, an error, the collector), as it does for its own timeouts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
from aiohttp import hdrs
from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict
from yarl import URL

from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL
from politesse.gatekeeper import Gatekeeper
from politesse.view import AgentView

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse
    from aiohttp.client import _RequestOptions
    from aiohttp.typedefs import StrOrURL

    from politesse.identity import Identity
    from politesse.turns import Turn

    class RequestOptions(_RequestOptions, total=False):
        """What a request takes: all that aiohttp's does, and how long to wait for a turn."""

        max_wait_s: float | None


_DOT_SEGMENT: Final = re.compile(r"/(?:\.|%2[Ee]){1,2}(?:/|$)")
_ABANDONED_S: Final = 1.0  # behind the total timeout, which aiohttp rounds up to the next second


# Not reset by its token: a coroutine that the collector closes ends in another context than it began in.
_SENDING: Final[ContextVar[_Hops | None]] = ContextVar("_SENDING", default=None)


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """The request was not made; caught by those who catch what aiohttp raises, too."""


class ClientInvalidURL(InvalidURL, aiohttp.ClientError):
    """A hop leads where no robots.txt speaks; caught by those who catch what aiohttp raises, too."""


def _sent(request: ClientRequest) -> str:
    """Return the URL that is sent; raises ClientInvalidURL where what is judged would be another."""
    url = str(request.url)
    if _DOT_SEGMENT.search(request.url.raw_path) is not None:  # from URL(..., encoded=True): others are resolved
        raise ClientInvalidURL(url, "would be sent with dot segments; resolve them first")
    return url


class RobotsMiddleware:
    """For ``aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),))``.

    The wait for a robots.txt that is not known yet counts against the request's own timeout. robots.txt itself is asked
    for by a session of the gate's own, so the middleware never meets its own requests.

    A request that would go out under aiohttp's own User-Agent gets the gate's: the name that the rules were chosen by
    is the name that the server has to see (RFC 9309 2.2.1). One that the session or the caller set is left alone.

    Args:
        gate: a Gatekeeper or one of its views.

    Raises:
        ClientDisallowed: where the verdict is not allowed; it carries the verdict.
        ClientInvalidURL: for an URL that no robots.txt speaks for, and for one that would be sent with dot segments:
            what they are resolved to is what would be judged.
    """

    def __init__(self, gate: AgentView) -> None:
        if not isinstance(gate, AgentView):
            raise ConfigurationError(f"RobotsMiddleware({gate!r:.100}): give a Gatekeeper, or a view of one")
        self._gate = gate

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Ask, then hand on."""
        try:
            verdict = await self._gate.check(_sent(request))
        except InvalidURL as error:
            raise ClientInvalidURL(error.url, error.problem) from None
        if not verdict:
            raise ClientDisallowed(verdict)
        _introduce(request, self._gate.identity)
        return await handler(request)

    def __repr__(self) -> str:
        return f"RobotsMiddleware({self._gate!r})"


class PoliteSession:
    """An aiohttp session that asks, waits and observes: every hop of every request is permitted and has a turn.

    The methods are those of ``aiohttp.ClientSession`` and take its arguments, and ``max_wait_s`` besides. What differs:

    The turn of the first hop is taken before the request starts, so that waiting for it costs nothing of
    ``ClientTimeout``; those of later hops (redirects, repeated attempts) are taken when they come, and that waiting
    counts against ``ClientTimeout.total``, for a redirect chain is one request to aiohttp.

    A host is busy until its response has come to its end, or is released or closed; how long that takes is seen as how
    fast the server is. Whoever holds a long response open holds up all who wait for that host, and whoever requests
    another page of it meanwhile, one request at a time, waits for himself: read or leave the first one, or give
    ``max_wait_s``. A response that was awaited and then dropped is closed a second after the total timeout, because
    aiohttp itself keeps it alive until its end.

    Middlewares, those of the session or of the request, stand outside: whatever they change, repeat or answer
    themselves, each request that goes out is judged as it is sent. ``middlewares=`` of a request replaces those of the
    session, as with aiohttp, but never this one. A repeated attempt releases the response before it. A middleware may
    ask through this session for something else first; then its own request takes its turn when it is sent.

    Made inside a running event loop, as a ClientSession is.

    Args:
        gate: a Gatekeeper or one of its views; or a User-Agent, for a Gatekeeper of its own that is closed with it.
        session: a ClientSession to send with, not closed with it; what others ask through it is not checked.
        max_wait_s: how long to wait for a turn at the most, for each hop; None for as long as it takes.
        options: those of the ClientSession that is made where none is given. Its User-Agent is that of the gate
            unless ``headers`` has one.

    Raises:
        ConfigurationError: for options beside ``session=``, and for a User-Agent that names nobody.

    A request raises, beside what aiohttp does:
        ClientDisallowed: before anything is sent to an URL that may not be requested, be it by a redirect.
        ClientInvalidURL: for an URL that no robots.txt speaks for.
        TooFar: where no turn comes within ``max_wait_s``.
        ClosedError: after it or its gate was closed.
    """

    def __init__(
        self,
        gate: AgentView | str,
        *,
        session: aiohttp.ClientSession | None = None,
        max_wait_s: float | None = None,
        **options: Any,  # noqa: ANN401 - those of ClientSession, which says what they are
    ) -> None:
        if session is not None and options:
            raise ConfigurationError(f"{', '.join(options)}: options of a session that is made, not of the one given")
        self._own_gate: Gatekeeper | None = None
        if isinstance(gate, str):
            gate = self._own_gate = Gatekeeper(gate)
        self._gate = gate
        self._own_session = session is None
        self._session = session or _session(self._gate.identity, options)
        self._max_wait_s = max_wait_s
        self._turns: set[Turn] = set()
        self._closed = False

    @property
    def gate(self) -> AgentView:
        """Who is asked."""
        return self._gate

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session that sends. What is asked through it directly is not checked."""
        return self._session

    @property
    def closed(self) -> bool:
        """Whether it, or the session that it was given, was closed."""
        return self._closed or self._session.closed

    def request(self, method: str, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a request: ``async with web.request(...) as response:`` or ``response = await web.request(...)``."""
        return PendingResponse(self._ask(method, url, options))

    def get(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a GET request."""
        return PendingResponse(self._ask(hdrs.METH_GET, url, options))

    def options(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make an OPTIONS request."""
        return PendingResponse(self._ask(hdrs.METH_OPTIONS, url, options))

    def head(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a HEAD request; as with aiohttp it follows no redirects unless told to."""
        options.setdefault("allow_redirects", False)
        return PendingResponse(self._ask(hdrs.METH_HEAD, url, options))

    def post(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a POST request."""
        return PendingResponse(self._ask(hdrs.METH_POST, url, options))

    def put(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a PUT request."""
        return PendingResponse(self._ask(hdrs.METH_PUT, url, options))

    def patch(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a PATCH request."""
        return PendingResponse(self._ask(hdrs.METH_PATCH, url, options))

    def delete(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a DELETE request."""
        return PendingResponse(self._ask(hdrs.METH_DELETE, url, options))

    async def close(self) -> None:
        """Close what it has made itself, session and gatekeeper; doing so again has no effect.

        Responses of a session that it was given stay open, and their turns end with them.
        """
        self._closed = True
        if self._own_session:
            await self._session.close()
            for turn in tuple(self._turns):  # the connections are gone, but nobody may have told the responses
                turn.end()
            self._turns.clear()
        if self._own_gate is not None:
            await self._own_gate.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._turns)} turns under way"
        return f"<PoliteSession {self._gate!r}: {state}>"

    async def _ask(self, method: str, url: StrOrURL, given: Mapping[str, Any]) -> ClientResponse:
        self._check_open(method, url)
        options = dict(given)
        hops = _Hops(self._gate, self._turns, options.pop("max_wait_s", self._max_wait_s), self._total_s(options))
        middlewares = _middlewares(self._session, options.pop("middlewares", None))
        around = _SENDING.get()
        if around is not None:
            around.step_back()  # asked by a middleware of that request, on which its turn would wait for itself
        try:
            first_url = _first_url(self._session, url, options.get("params"))
            if first_url is not None:
                await hops.prepare(first_url)
                self._check_open(method, url)
            _SENDING.set(hops)
            response = await self._session.request(method, url, middlewares=(*middlewares, hops), **options)
        except BaseException:
            hops.abandon()
            raise
        finally:
            _SENDING.set(around)
        hops.settle()
        return response

    def _check_open(self, method: str, url: StrOrURL) -> None:
        if self.closed:
            raise ClosedError(f"{method} {str(url)!r:.200} was to be requested after the session was closed")

    def _total_s(self, options: Mapping[str, Any]) -> float | None:
        timeout = options.get("timeout", self._session.timeout)
        total_s = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
        return total_s if isinstance(total_s, int | float) and total_s > 0 else None


class PendingResponse(Coroutine[Any, Any, "aiohttp.ClientResponse"]):
    """A request that starts when it is awaited or entered; leaving it releases the response."""

    __slots__ = ("_asking", "_response")

    def __init__(self, asking: Coroutine[Any, Any, ClientResponse]) -> None:
        self._asking = asking
        self._response: ClientResponse | None = None

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - as Coroutine has it
        """Run on; for event loops."""
        return self._asking.send(value)

    def throw(self, *args: Any) -> Any:  # noqa: ANN401 - as Coroutine has it
        """Raise within; for event loops."""
        return self._asking.throw(*args)

    def close(self) -> None:
        """Do without it."""
        self._asking.close()

    def __await__(self) -> Generator[Any, Any, ClientResponse]:
        return self._asking.__await__()

    async def __aenter__(self) -> ClientResponse:
        self._response = await self._asking
        return await self._response.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._response is not None:
            await self._response.__aexit__(exc_type, exc, traceback)


class _Hops:
    """The innermost middleware of one request: a turn for each time that something is sent for it.

    aiohttp calls it for each hop, and for the same hop again when a kept connection turns out to be dead; a middleware
    outside it may do so as well, to answer a challenge. In each case what went before has ended first, so a request
    never waits for itself, and two that redirect to each other's hosts never for each other.

    Args:
        gate: who is asked.
        turns: those under way, to note ours in.
        max_wait_s: how long to wait for each.
        total_s: the timeout of the whole request, after which nobody can read on; None for none.
    """

    __slots__ = ("_gate", "_max_wait_s", "_prepared", "_response", "_total_s", "_turns")

    def __init__(self, gate: AgentView, turns: set[Turn], max_wait_s: float | None, total_s: float | None) -> None:
        self._gate = gate
        self._turns = turns
        self._max_wait_s = max_wait_s
        self._total_s = total_s
        self._prepared: Turn | None = None
        self._response: ClientResponse | None = None

    async def prepare(self, url: str) -> None:
        """Take the turn of the first hop ahead."""
        self._prepared = await self._take(url)

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Take the turn unless it was taken ahead for this very URL, send, and see to the end of the turn."""
        previous, self._response = self._response, None
        if previous is not None:
            previous.release()
        _introduce(request, self._gate.identity)
        turn = await self._turn(_sent(request))
        self._turns.add(turn)
        try:
            response = await handler(request)
            turn.observe(response.status, response.headers)
            self._end_with(response, turn)
        except BaseException:
            _end(turn, self._turns)
            raise
        self._response = response
        return response

    def step_back(self) -> None:
        """Give back what was taken ahead and is not needed now: a middleware asks for something else first."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.give_back()

    def settle(self) -> None:
        """Hold nothing of the request that has succeeded: timers hold on to us, by the context they began in."""
        self.step_back()  # unused, if a middleware has answered without asking the server
        self._response = None

    def abandon(self) -> None:
        """End it: the request has failed, so nobody holds the response any more."""
        response = self._response
        self.settle()
        if response is not None:
            response.close()

    async def _turn(self, url: str) -> Turn:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            if prepared.url == url:
                return prepared.__enter__()
            prepared.give_back()  # a middleware has changed the URL since
        turn = await self._take(url)
        return turn.__enter__()

    async def _take(self, url: str) -> Turn:
        try:
            return await self._gate.take_turn(url, max_wait_s=self._max_wait_s)
        except Disallowed as error:
            raise ClientDisallowed(error.verdict) from None
        except InvalidURL as error:
            raise ClientInvalidURL(error.url, error.problem) from None

    def _end_with(self, response: ClientResponse, turn: Turn) -> None:
        """End the turn with the response: now if all of it has come, else when its connection is given up."""
        connection = response.connection
        if connection is None:
            _end(turn, self._turns)
            return
        connection.add_callback(partial(_end, turn, self._turns))
        if self._total_s is not None:
            # A response that was dropped unread is kept alive by its own stream, and its connection with it.
            alarm = asyncio.get_running_loop().call_later(self._total_s + _ABANDONED_S, connection.close)
            connection.add_callback(alarm.cancel)


def _end(turn: Turn, turns: set[Turn]) -> None:
    turn.end()
    turns.discard(turn)


def _introduce(request: ClientRequest, identity: Identity) -> None:
    if request.headers.get(hdrs.USER_AGENT) == SERVER_SOFTWARE:
        request.headers[hdrs.USER_AGENT] = identity.user_agent


def _session(identity: Identity, options: dict[str, Any]) -> aiohttp.ClientSession:
    headers = CIMultiDict(options.pop("headers", None) or ())
    headers.setdefault(hdrs.USER_AGENT, identity.user_agent)
    return aiohttp.ClientSession(headers=headers, **options)


def _middlewares(
    session: aiohttp.ClientSession, given: Sequence[ClientMiddlewareType] | None
) -> tuple[ClientMiddlewareType, ...]:
    """Return what aiohttp would call: the middlewares of the request, or else those of the session."""
    return tuple(session._middlewares if given is None else given)  # noqa: SLF001 - nothing public tells


def _first_url(session: aiohttp.ClientSession, url: StrOrURL, params: Any) -> str | None:  # noqa: ANN401 - aiohttp's
    """Return the URL of the first hop as aiohttp will make it; None for one that aiohttp will refuse.

    Should it turn out another, the middleware takes the right turn: this one is for the timeout's sake.
    """
    try:
        built = URL(url)
        if not built.absolute and session._base_url is not None:  # noqa: SLF001 - nothing public tells
            built = session._base_url.join(built)  # noqa: SLF001
        if params:
            built = built.extend_query(params)
        if built.scheme not in {"http", "https"} or not built.raw_host:
            return None
        return str(built.with_user(None).with_fragment(None))
    except (ValueError, TypeError):
        return None
