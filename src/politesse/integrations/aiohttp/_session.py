"""An aiohttp session that checks every hop of every request, and sends it in a turn."""

from __future__ import annotations

from asyncio import get_running_loop
from contextvars import ContextVar
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypedDict, Unpack, cast

import aiohttp
from aiohttp import ClientResponse, hdrs
from multidict import CIMultiDict

from politesse._base.checks import AsyncOnly, check_types, check_wait
from politesse._base.text import public_url
from politesse._gate.assemble import check_unknown
from politesse._gate.gatekeeper import Gatekeeper
from politesse.errors import ClosedError, ConfigurationError, WrongEventLoop
from politesse.fetch._aiohttp_internals import PendingContext, middlewares_of, open_websocket
from politesse.integrations._request import (
    OpenTurns,
    StatedAgents,
    check_gate,
    content_codings,
    headers_alone,
    may_have_page,
)
from politesse.integrations.aiohttp._sending import DEFAULT_USER_AGENT, RequestTurns, explained, first_url
from politesse.page import PageDirectives

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aiohttp import ClientResponse
    from aiohttp.typedefs import StrOrURL

    from politesse._cache.options import CacheOptions
    from politesse._gate.view import AgentView
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.pace import PacingOptions
    from politesse.fetch._aiohttp_internals import OptionsOfRequest, OptionsOfWebSocket
    from politesse.fetch._options import FetchOptions
    from politesse.ports import Store

    class _OwnOptions(TypedDict, total=False):
        max_wait_s: float | None
        exempt: str | None

    class RequestOptions(OptionsOfRequest, _OwnOptions, total=False):
        """The options of aiohttp for a request, and PoliteSession's own."""

    class WebSocketOptions(OptionsOfWebSocket, _OwnOptions, total=False):
        """The options of aiohttp for a WebSocket, and PoliteSession's own."""


# The old value is restored with ``set``, not ``reset``: if the garbage collector closes the coroutine, its ``finally``
# runs in another context, where the token of ``reset`` is invalid.
_SENDING: Final[ContextVar[RequestTurns | None]] = ContextVar("_SENDING", default=None)


class PoliteSession(AsyncOnly):
    """An aiohttp session that checks every hop of every request, and sends it in a turn.

    PoliteSession has the methods of ``aiohttp.ClientSession``, with the same arguments and two more: ``max_wait_s``,
    and ``exempt``, the reason why the robots.txt of the URL's host does not apply, for example ``exempt="our own
    server"``. An exempt host is still paced, a policy may still deny the host, and redirects to other hosts are judged.
    Differences:

    The turn of the first hop is taken before the request starts, so the wait does not count against ``ClientTimeout``.
    The turns of later hops (redirects, repeated attempts) are taken during the request, and that wait counts against
    ``ClientTimeout.total``, because for aiohttp a redirect chain is one request.

    If the task or its parent holds a turn for the URL (``async with queue.turn() as turn, web.get(turn.url) as
    response``, or ``gate.turn``), the request uses that turn. The answer is recorded, and the turn ends with the
    response. After a redirect, the next hop takes a new turn.

    A host is busy until the response has been read to its end, released or closed. By default a host gets one request
    at a time, and a response that stays open blocks every other request to the host. The task that made the request
    holds the turn, even if another task gets the response. A second request of this task to the host raises TurnHeld at
    once; the error names the open response. The garbage collector closes a response that was dropped unread, with a
    ResourceWarning that names its URL. If the program has used the ``content`` of a response, aiohttp keeps the
    response alive until its end, or until one second after the total timeout. A WebSocket keeps its host busy for the
    handshake only; ``ws://`` and ``wss://`` are judged by the robots.txt of ``http://`` and ``https://``.

    Middlewares of the session and of the request run before the check: a request that a middleware changes or repeats
    is judged as it is sent. As in aiohttp, the ``middlewares=`` of a request replace the middlewares of the session,
    but never the check. A repeated attempt releases the previous response. If a middleware makes another request
    through this session first, the original request takes its turn when it is sent.

    A request with another User-Agent than the gate's, in its own headers or in the session's, is judged for that
    crawler. A User-Agent that names no crawler is refused.

    Like a ClientSession, a PoliteSession must be created inside a running event loop.

    Args:
        gate: a Gatekeeper or one of its views; or a User-Agent, from which the session makes a Gatekeeper of its own.
        session: a ClientSession to send with; it is not closed, and requests made directly through it are not checked.
        max_wait_s: the longest wait for a turn, for each hop, in seconds, or None for no limit.
        store: see Gatekeeper. ``store``, ``fleet``, ``pacing``, ``cache`` and ``fetch`` are for the Gatekeeper that is
            made for a User-Agent.
        fleet: see Gatekeeper.
        pacing: see Gatekeeper.
        cache: see Gatekeeper.
        fetch: see Gatekeeper.
        options: the options of the ClientSession that is created if none is given. That session sends the gate's
            User-Agent unless ``headers`` has a User-Agent.

    Attributes:
        gate: the gate that judges and paces.
        session: the session that sends. Requests made directly through it are not checked.

    Raises:
        ConfigurationError: ``gate`` is neither a gate nor an acceptable User-Agent, options are given together with
            ``session``, or options of a Gatekeeper together with a gate.
        WrongEventLoop: no event loop is running, and no ``session`` is given.

    A request raises, besides aiohttp's own errors:
        ConfigurationError: an exemption without a reason, or a User-Agent that names no crawler.
        ClientDisallowed: the URL of a hop is not allowed; this hop is not sent.
        ClientInvalidURL: no robots.txt covers the URL of a hop.
        TooFar: no turn comes within ``max_wait_s``.
        TurnHeld: this task already holds the turn of the host, for another URL or an open response.
        ClosedError: the session or its gate was closed.

    Example:
        >>> import asyncio
        >>> async def main() -> None:
        ...     async with PoliteSession("ExampleBot/1.0 (+https://example.com/bot)") as web:
        ...         print(web.gate.identity.tokens, web.closed)
        ...     print(web.closed)
        >>> asyncio.run(main())
        ('examplebot',) False
        True
    """

    def __init__(
        self,
        gate: AgentView | str = "",
        *,
        session: aiohttp.ClientSession | None = None,
        max_wait_s: float | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        fleet: FleetOptions | str | None = None,
        pacing: PacingOptions | None = None,
        cache: CacheOptions | None = None,
        fetch: FetchOptions | None = None,
        **options: Any,  # noqa: ANN401 - typed by ClientSession
    ) -> None:
        check_unknown("PoliteSession", options.keys() - signature(aiohttp.ClientSession).parameters.keys())
        if session is not None and options:
            raise ConfigurationError(f"{', '.join(options)}: give either session= or the options of a new session")
        if session is None:
            try:
                get_running_loop()
            except RuntimeError:
                hint = "create a PoliteSession inside a coroutine (async def)"
                raise WrongEventLoop(f"no event loop is running: {hint}") from None
        self._own_gate: Gatekeeper | None = None
        if isinstance(gate, str):
            if not gate:
                example = "PoliteSession('ExampleBot/1.0 (+https://example.com/bot)')"
                raise ConfigurationError(f"PoliteSession(): give the User-Agent of your crawler, as in {example}")
            gate = self._own_gate = Gatekeeper(gate, store=store, fleet=fleet, pacing=pacing, cache=cache, fetch=fetch)
        else:
            given = {"store": store, "fleet": fleet, "pacing": pacing, "cache": cache, "fetch": fetch}
            for name, value in given.items():
                if value is not None:
                    hint = "give it to the Gatekeeper, or give a User-Agent in place of the gate"
                    raise ConfigurationError(f"{name}=: {hint}")
        check_gate(gate, "PoliteSession", "a User-Agent, a Gatekeeper, or a view of one")
        check_wait("max_wait_s", max_wait_s)
        check_types({"session": (session, aiohttp.ClientSession)})
        self.gate = gate
        self._own_session = session is None
        self.session: aiohttp.ClientSession = session or _session(self.gate, options)
        self._total_s = _total_s(self.session.timeout)
        self._max_wait_s = max_wait_s
        self._turns = OpenTurns()
        self._agents = StatedAgents(gate, DEFAULT_USER_AGENT)
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether this session, or its ClientSession, was closed."""
        return self._closed or self.session.closed

    def request(self, method: str, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a request: ``async with web.request(...) as response:`` or ``response = await web.request(...)``."""
        return PendingResponse(self._request(method, url, options))

    def get(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a GET request."""
        return PendingResponse(self._request(hdrs.METH_GET, url, options))

    def options(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make an OPTIONS request."""
        return PendingResponse(self._request(hdrs.METH_OPTIONS, url, options))

    def head(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a HEAD request. As in aiohttp, the default is to follow no redirects."""
        options.setdefault("allow_redirects", False)
        return PendingResponse(self._request(hdrs.METH_HEAD, url, options))

    def post(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a POST request."""
        return PendingResponse(self._request(hdrs.METH_POST, url, options))

    def put(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a PUT request."""
        return PendingResponse(self._request(hdrs.METH_PUT, url, options))

    def patch(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a PATCH request."""
        return PendingResponse(self._request(hdrs.METH_PATCH, url, options))

    def delete(self, url: StrOrURL, **options: Unpack[RequestOptions]) -> PendingResponse:
        """Make a DELETE request."""
        return PendingResponse(self._request(hdrs.METH_DELETE, url, options))

    def ws_connect(self, url: StrOrURL, **options: Unpack[WebSocketOptions]) -> PendingWebSocket:
        """Open a WebSocket. The handshake is checked and has a turn like any other request."""
        given: dict[str, Any] = dict(options)
        ours: dict[str, Any] = {name: given.pop(name) for name in ("max_wait_s", "exempt") if name in given}
        # aiohttp has no public way to add a middleware to a handshake. So its own function makes the handshake, and
        # sends the request through this session.
        session = cast("aiohttp.ClientSession", _Handshaking(self, ours))
        return PendingWebSocket(open_websocket(session, url, **given))

    async def page_directives(self, response: ClientResponse) -> PageDirectives:
        """Return the directives of a page for the gate's own crawler; see ``page_directives`` of this package."""
        return await page_directives(response, self.gate)

    @property
    def raise_for_status(self) -> bool | Callable[[ClientResponse], Awaitable[None]]:
        """The ``raise_for_status`` of the ClientSession that sends the requests."""
        return self.session.raise_for_status

    async def close(self) -> None:
        """Close the session and the gatekeeper that it has created itself; a second call has no effect.

        The responses of a given ``session`` stay open, and their turns end with them.
        """
        self._closed = True
        if self._own_session:
            await self.session.close()
            self._turns.end_all()
        if self._own_gate is not None:
            await self._own_gate.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report an unknown attribute

        def __getattr__(self, name: str) -> NoReturn:
            is_of_client = hasattr(aiohttp.ClientSession, name)
            hint = f": write .session.{name} for that of the ClientSession" if is_of_client else ""
            raise AttributeError(f"a PoliteSession has no attribute {name!r}{hint}", name=name)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._turns)} turns under way"
        return f"<PoliteSession {self.gate!r}: {state}>"

    async def _request(self, method: str, url: StrOrURL, own: Mapping[str, Any]) -> ClientResponse:
        session, options = self.session, dict(own)
        if self._closed or session.closed:
            _raise_closed(method, url)
        turns = RequestTurns(
            self._agents,
            self._turns,
            options.pop("max_wait_s", self._max_wait_s),
            options.pop("exempt", None),
            _total_s(options["timeout"]) if "timeout" in options else self._total_s,
        )
        middlewares = options.pop("middlewares", None)
        if middlewares is None:
            middlewares = middlewares_of(session)
        outer = _SENDING.get()
        if outer is not None:
            outer.step_back()  # a middleware of the outer request makes this request: do not wait for the outer turn
        try:
            first = first_url(session, url, options.get("params"))
            if first is not None:
                given = options.get("headers")
                stated = _stated_agents(session, given) if given else session.headers.getall(hdrs.USER_AGENT, ())
                await turns.prepare(first, stated)
                if self._closed:  # during the wait for the turn
                    _raise_closed(method, url)
            _SENDING.set(turns)
            response = await session.request(method, url, middlewares=(*middlewares, turns), **options)
        except BaseException as error:
            turns.abandon()
            self._explain(error, method, url)
            raise
        finally:
            _SENDING.set(outer)
        if turns.prepared is not None:
            turns.step_back()  # the turn is unused if a middleware answered without the server
        return response

    def _explain(self, error: BaseException, method: str, url: StrOrURL) -> None:
        """If possible, raise an error with a better explanation than the error of aiohttp."""
        if type(error) is aiohttp.InvalidUrlClientError:  # not a subclass: aiohttp raises one for a redirect
            raise explained(error, url) from None
        # aiohttp raises a RuntimeError if its session was closed during the wait for the turn.
        if type(error) is RuntimeError and (self._closed or self.session.closed):
            _raise_closed(method, url)


def _raise_closed(method: str, url: StrOrURL) -> NoReturn:
    raise ClosedError(f"{method} {public_url(str(url))!r:.200}: the session is closed")


class PendingResponse(PendingContext["ClientResponse"]):
    """A request that starts with ``await`` or ``async with``; the end of the block releases the response."""

    __slots__ = ()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report an unknown attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name!r} is of the response: await the request, or use 'async with'")


class PendingWebSocket(PendingContext["aiohttp.ClientWebSocketResponse[bool]"]):
    """A WebSocket that opens with ``await`` or ``async with``; the end of the block closes it."""

    __slots__ = ()


class _Handshaking:
    """A stand-in for the session in ``open_websocket``: it requests through a PoliteSession."""

    def __init__(self, web: PoliteSession, options: Mapping[str, Any]) -> None:
        self._web = web
        self._options = options

    def request(self, method: str, url: StrOrURL, **options: Any) -> PendingResponse:  # noqa: ANN401 - aiohttp's
        return self._web.request(method, url, **options, **self._options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any other attribute
        return getattr(self._web.session, name)


def _session(gate: AgentView, options: dict[str, Any]) -> aiohttp.ClientSession:
    headers = CIMultiDict(options.pop("headers", None) or ())
    headers.setdefault(hdrs.USER_AGENT, gate.identity.user_agent)
    resolver = gate.state.public_resolver
    # A proxy may have a private address, and looks host names up itself, so the resolver cannot check addresses.
    proxied = options.get("proxy") is not None or options.get("trust_env")
    if resolver is not None and options.get("connector") is None and not proxied:
        options["connector"] = aiohttp.TCPConnector(resolver=resolver)
    return aiohttp.ClientSession(headers=headers, **options)


def _total_s(timeout: object) -> float | None:
    """Return the total timeout of a request in seconds, or None for no limit."""
    total_s = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    return total_s if isinstance(total_s, (int, float)) else None


def _stated_agents(session: aiohttp.ClientSession, given: Any) -> Sequence[str]:  # noqa: ANN401 - aiohttp's
    """Return the User-Agents that a request states in its own headers, or else in its session's."""
    own = CIMultiDict(given).getall(hdrs.USER_AGENT, ())
    return own or session.headers.getall(hdrs.USER_AGENT, ())


async def page_directives(response: ClientResponse, gate: AgentView) -> PageDirectives:
    """Return the directives for the crawler of ``gate`` in the headers of ``response`` and in the METAs of its HTML.

    The function takes any response of aiohttp, from any session; call it before the response is released. If the body
    may be HTML, ``response.read()`` reads and keeps it, so ``text()`` works afterwards. The turn of the response ends
    with that read. For HEAD, 204, 304, redirects (including ``response.history``) and other media types, only the
    headers are read.

    Without ``auto_decompress`` a compressed body is not read, and the result is ``truncated``; aiohttp 3.12 does not
    report that a body is compressed, so the METAs are missed. If you decode or stream bodies yourself, pass your octets
    to ``PageDirectives.from_response(response.headers, octets, gate.identity.tokens)``.

    Args:
        response: a response of aiohttp; repeated headers are combined.
        gate: a Gatekeeper or one of its views. Its product tokens select the directives that count, beside the
            directives for all crawlers.

    Raises:
        aiohttp.ClientError: the body cannot be read, or the response was released before.
        TimeoutError: the body does not come within the request's timeout.
        ConfigurationError: part of the body was read from ``response.content`` before.
        ImportError: the page has a META, and the extra ``html`` is not installed.
    """
    headers, tokens = response.headers, gate.identity.tokens
    if not may_have_page(response.method, response.status, headers):
        return PageDirectives.from_response(headers, None, tokens)
    body = await response.read()
    if len(body) < response.content.total_bytes:
        raise ConfigurationError(
            f"page_directives({str(response.url)!r:.200}): part of the body was read from response.content before; "
            "call it earlier, or pass the whole body to PageDirectives.from_response"
        )
    # This count is None if aiohttp does not decompress the body; old versions of aiohttp have no such count.
    compressed = getattr(response.content, "total_compressed_bytes", 0) is None and content_codings(headers)
    if body and compressed:
        return headers_alone(headers, tokens)
    return PageDirectives.from_response(headers, body, tokens)
