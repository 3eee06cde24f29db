"""An aiohttp session in which every hop of every request is permitted and has its turn."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from politesse._gate.gatekeeper import Gatekeeper
from politesse.errors import ClosedError, ConfigurationError
from politesse.integrations.aiohttp.hops import Hops
from politesse.integrations.aiohttp.page import page_directives
from politesse.integrations.aiohttp.urls import judged_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Unpack

    from aiohttp import ClientMiddlewareType, ClientResponse
    from aiohttp.client import _RequestOptions, _WSConnectOptions
    from aiohttp.typedefs import StrOrURL

    from politesse._gate.gatekeeper import AgentView
    from politesse._gate.identity import Identity
    from politesse._pacing.turns import Turn
    from politesse.page import PageDirectives

    class RequestOptions(_RequestOptions, total=False):
        """What a request takes: all that aiohttp's does, and what PoliteSession says besides."""

        max_wait_s: float | None
        exempt: str | None

    class WebSocketOptions(_WSConnectOptions, total=False):
        """What a WebSocket takes: all that aiohttp's does, and what PoliteSession says besides."""

        max_wait_s: float | None
        exempt: str | None


Held = TypeVar("Held", bound="AbstractAsyncContextManager[Any]")

# Not reset by its token: a coroutine that the collector closes ends in another context than it began in.
_SENDING: Final[ContextVar[Hops | None]] = ContextVar("_SENDING", default=None)


class PoliteSession:
    """An aiohttp session that asks, waits and observes: every hop of every request is permitted and has a turn.

    The methods are those of ``aiohttp.ClientSession`` and take its arguments, and two besides: ``max_wait_s``, and
    ``exempt``, the reason why the robots.txt of the URL's host is not asked, as in ``exempt="our own server"``; its
    pace is kept all the same, a policy that denies holds, and redirects to other hosts are judged. What differs:

    The turn of the first hop is taken before the request starts, so that waiting for it costs nothing of
    ``ClientTimeout``; those of later hops (redirects, repeated attempts) are taken when they come, and that waiting
    counts against ``ClientTimeout.total``, for a redirect chain is one request to aiohttp.

    A host is busy until its response has come to its end, or is released or closed. Whoever holds a long response open
    holds up all who wait for that host, and whoever requests another page of it meanwhile, one request at a time, waits
    for himself: read or leave the first one, or give ``max_wait_s``. A response that was awaited and then dropped is
    closed a second after the total timeout, because aiohttp itself keeps it alive until its end. A WebSocket keeps its
    host busy for the handshake alone; ``ws://`` and ``wss://`` are judged by the robots.txt of ``http://`` and
    ``https://``.

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
        ConfigurationError: for an exemption without a reason.
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

    def ws_connect(self, url: StrOrURL, **options: Unpack[WebSocketOptions]) -> PendingWebSocket:
        """Open a WebSocket; aiohttp does it by a request, which is permitted and has its turn as any other."""
        given: dict[str, Any] = dict(options)
        ours: dict[str, Any] = {name: given.pop(name) for name in ("max_wait_s", "exempt") if name in given}
        # aiohttp's own handshake, around our own request: nothing public would put a middleware into it.
        session = cast("aiohttp.ClientSession", _Handshaking(self, ours))
        return PendingWebSocket(aiohttp.ClientSession._ws_connect(session, url, **given))  # noqa: SLF001

    async def page_directives(self, response: ClientResponse) -> PageDirectives:
        """Return what a page says to the crawler of the gate itself; see ``page_directives`` of this package."""
        return await page_directives(response, self._gate)

    @property
    def raise_for_status(self) -> bool | Callable[[ClientResponse], Awaitable[None]]:
        """That of the session that sends."""
        return self._session.raise_for_status

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
        hops = Hops(
            self._gate,
            self._turns,
            max_wait_s=options.pop("max_wait_s", self._max_wait_s),
            exempt=options.pop("exempt", None),
            total_s=self._total_s(options),
        )
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
        return total_s if isinstance(total_s, int | float) else None


class _Pending(Coroutine[Any, Any, Held]):
    """What starts when it is awaited or entered."""

    __slots__ = ("_asking", "_held")

    def __init__(self, asking: Coroutine[Any, Any, Held]) -> None:
        self._asking = asking
        self._held: Held | None = None

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - as Coroutine has it
        """Run on; for event loops."""
        return self._asking.send(value)

    def throw(self, *args: Any) -> Any:  # noqa: ANN401 - as Coroutine has it
        """Raise within; for event loops."""
        return self._asking.throw(*args)

    def close(self) -> None:
        """Do without it."""
        self._asking.close()

    def __await__(self) -> Generator[Any, Any, Held]:
        return self._asking.__await__()

    async def __aenter__(self) -> Held:
        self._held = await self._asking
        await self._held.__aenter__()
        return self._held

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            await self._held.__aexit__(exc_type, exc, traceback)


class PendingResponse(_Pending["ClientResponse"]):
    """A request that starts when it is awaited or entered; leaving it releases the response."""

    __slots__ = ()


class PendingWebSocket(_Pending["aiohttp.ClientWebSocketResponse[bool]"]):
    """A WebSocket that is opened when it is awaited or entered; leaving it closes it."""

    __slots__ = ()


class _Handshaking:
    """A session as ``ClientSession._ws_connect`` needs it, whose requests are those of a PoliteSession."""

    def __init__(self, web: PoliteSession, options: Mapping[str, Any]) -> None:
        self._web = web
        self._options = options

    def request(self, method: str, url: StrOrURL, **options: Any) -> PendingResponse:  # noqa: ANN401 - aiohttp's
        return self._web.request(method, url, **options, **self._options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else it needs
        return getattr(self._web.session, name)


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
        if built.scheme not in {"http", "https", "ws", "wss"} or not built.raw_host:
            return None
        return judged_url(built.with_user(None).with_fragment(None))
    except (ValueError, TypeError):
        return None
