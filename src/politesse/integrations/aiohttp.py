"""aiohttp with politeness: a session that takes a turn for each hop, and a middleware for your own session.

::

    async with PoliteSession("ExampleBot/1.0 (+https://example.com/bot)") as web:
        async with web.get("https://example.com/page") as response: ...

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
            async with session.get("https://example.com/page") as response: ...

aiohttp calls a middleware once for each hop, so a redirect from an allowed page to a disallowed page is not followed.
Both classes let aiohttp decide how a redirect changes method, history and cookies. ``page_directives`` reads the
statements of a page to crawlers.

``RequestTurns.prepare`` takes the first turn. RequestTurns is also the innermost middleware, which takes the turn of
each later hop and sends the request.

A turn ends when aiohttp releases or closes the connection. aiohttp calls the connection's callbacks whenever a response
ends: at the end of its body, after ``release`` or ``close``, after an error or a timeout, and when the garbage
collector closes the response. The turn of a WebSocket ends with its handshake, because no request follows on that
connection.

Theory of operation. A server may send a body for minutes. Meanwhile aiohttp itself keeps a dropped response alive: the
connection refers to the stream of the body, and the stream refers to the response, which has to be released at the end
of the body. This module makes the reference from the stream to the response weak. So Python collects a response that
the program drops. ``ClientResponse`` then closes its connection, and the connection calls ``OpenResponse.released``.

A program may keep only the stream, as in ``async for line in (await web.get(url)).content``. So the stream gets a
strong reference again as soon as the program or a method of the response uses ``content``. If the program drops the
response later, its turn ends at the end of the body, or soon after the total timeout.

How a bypass of RobotsMiddleware is found. aiohttp traces a request in the task that makes it, and calls its middlewares
there, so both see the same context variable. ``on_request_start`` sets this variable to a new _TracedRequest. When a
middleware has judged a hop, it adds the URL to the _TracedRequest while it calls the handler. For each hop, after all
middlewares, aiohttp calls ``on_request_headers_sent`` with the URL and the headers that it will write next. If the URL
has not been added by then, it was not judged.
"""

from __future__ import annotations

import logging
import warnings
from asyncio import get_running_loop
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypedDict, Unpack, cast
from weakref import ref

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, hdrs
from aiohttp.http import SERVER_SOFTWARE
from cachetools import LRUCache
from multidict import CIMultiDict
from yarl import URL

from politesse._base.checks import AsyncOnly, check_types, check_wait
from politesse._base.tasks import running_loop
from politesse._base.text import printable, public_url, shortened
from politesse._gate.assemble import check_unknown
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.turn import Turn, soon
from politesse._http.signing import RequestSignature
from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, WrongEventLoop
from politesse.events import Event
from politesse.fetch._aiohttp_internals import (
    PendingContext,
    base_url_of,
    collect_when_dropped,
    middlewares_of,
    open_websocket,
)
from politesse.integrations._request import (
    SWITCHING_PROTOCOLS,
    OpenTurns,
    StatedAgents,
    check_gate,
    check_sent,
    content_codings,
    headers_alone,
    may_have_page,
    other_site,
    turn_for,
)
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.page import PageDirectives

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import SimpleNamespace

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


__all__ = [
    "ClientDisallowed",
    "ClientInvalidURL",
    "MiddlewareBypassed",
    "PendingResponse",
    "PendingWebSocket",
    "PoliteSession",
    "RobotsMiddleware",
    "page_directives",
]


class ClientInvalidURL(InvalidURL, aiohttp.InvalidURL):
    """A request or a redirect has a URL that no robots.txt covers; also an ``aiohttp.InvalidURL``.

    Attributes:
        url: the URL that was not requested.
        problem: the fault of the URL, as a phrase.

    Example:
        >>> print(ClientInvalidURL("ftp://example.com/", "has the scheme 'ftp'"))
        'ftp://example.com/' has the scheme 'ftp'
    """

    url: str = ""  # in aiohttp this is a property, which cannot be set


def judged_url(url: URL) -> str:
    """Return the URL to judge for ``url``: it has no userinfo, and the scheme http(s) for a WebSocket."""
    scheme = url.scheme
    if scheme[:2] == "ws":
        scheme = f"http{scheme[2:]}"
    return f"{scheme}://{url.raw_authority.rpartition('@')[2]}{url.raw_path_qs}"


def first_url(session: aiohttp.ClientSession, url: StrOrURL, params: Any) -> str | None:  # noqa: ANN401 - aiohttp's
    """Return the URL of the first hop to judge, as aiohttp will build it; None if aiohttp will refuse the request.

    The turn for this URL is taken early, outside of the timeout. If aiohttp builds another URL, RequestTurns takes a
    turn for that URL.

    Raises:
        TypeError: ``url`` is neither a str nor a yarl.URL.
    """
    try:
        built = URL(url)
        base = None if built.absolute else base_url_of(session)
        if base is not None:
            built = base.join(built)
        if params:
            built = built.extend_query(params)
        if built.scheme not in {"http", "https", "ws", "wss"} or not built.raw_host:
            return None
        return judged_url(built)
    except ValueError:
        return None
    except TypeError:  # aiohttp will refuse the URL or the ``params``
        url_text(url)
        return None


def spelt_url(url: str) -> str:
    """Return the URL that is judged when aiohttp requests ``url``, which is the URL of a turn."""
    return judged_url(URL(url))


def sent_url(request: ClientRequest) -> str:
    """Return the URL that is sent; raises InvalidURL if the server would read another URL from the request."""
    url = request.url
    judged, path, hosts = judged_url(url), url.raw_path, request.headers.getall(hdrs.HOST, ())
    # Only URL(..., encoded=True) can have blanks or dot segments here: yarl resolves those of all other URLs.
    if hosts != [url.raw_authority] or "/." in path or "%2" in path or " " in judged:
        check_sent(judged, path, hosts, url.raw_authority)
    return judged


@dataclass(frozen=True, slots=True)
class MiddlewareBypassed(Event):
    """A request was sent without having been judged.

    There are two causes. Either the request had its own ``middlewares=``: they replaced the list of the session, and
    did not include RobotsMiddleware. Or a middleware after RobotsMiddleware changed the URL or the Host header, or
    repeated the request without a turn.

    Attributes:
        method: the method of the request.
        url: the URL as it was sent, with the host of the Host header, and with http(s) in place of ws(s). If no hop was
            judged, this is the URL of the first hop.
        judged: the URL that was judged last, or None if no hop was judged.

    Example:
        >>> MiddlewareBypassed("GET", "http://example.com/page")
        MiddlewareBypassed(method='GET', url='http://example.com/page', judged=None)
    """

    method: str
    url: str
    judged: str | None = None


@dataclass(slots=True, eq=False)
class _JudgedHop:
    """A hop that was judged and is being sent.

    Attributes:
        url: the URL, as it was judged.
        turn: whether the hop has a turn, which permits one request.
        sent: whether the hop was sent.
    """

    url: str
    turn: bool
    sent: bool = False


@dataclass(slots=True, eq=False)
class _TracedRequest:
    """A request that is traced.

    Attributes:
        session: the session that makes the request.
        hops: the judged hops under way; more than one if a middleware sends several at once.
        judged: the URL that was judged last; None before the first judgement.
        reported: whether an event has reported that no hop was judged.
    """

    session: aiohttp.ClientSession
    hops: list[_JudgedHop] = field(default_factory=list)
    judged: str | None = None
    reported: bool = False

    def permits(self, url: str) -> bool:
        """Return whether ``url`` may be sent now, and mark the judged hop as sent."""
        for hop in self.hops:
            if hop.url == url and not (hop.turn and hop.sent):
                hop.sent = True
                return True
        return False


_logger: Final = logging.getLogger("politesse.integrations")
_MAX_SITES: Final = 1_000  # at most this many logged sites are remembered

_TRACED: Final[ContextVar[_TracedRequest | None]] = ContextVar("_TRACED", default=None)


async def send_judged(request: ClientRequest, handler: ClientHandlerType, url: str, *, turn: bool) -> ClientResponse:
    """Call ``handler`` for a request that was judged as ``url``, with or without a turn."""
    traced = _TRACED.get()
    if traced is None or traced.session is not request.session:  # not traced, or made through another session
        return await handler(request)
    hop = _JudgedHop(url, turn)
    traced.judged = url
    traced.hops.append(hop)
    try:
        return await handler(request)
    finally:
        traced.hops.remove(hop)


def tracing(publish: Callable[[Event], None]) -> aiohttp.TraceConfig:
    """Return a trace that publishes MiddlewareBypassed for each unjudged request of a session.

    Each event is logged, too; the first event of a site as a WARNING.
    """
    logged: LRUCache[str, None] = LRUCache(_MAX_SITES)

    async def on_start(session: aiohttp.ClientSession, trace: SimpleNamespace, _: object) -> None:
        trace.outer = _TRACED.get()
        trace.request = _TracedRequest(session)
        _TRACED.set(trace.request)

    async def on_sent(_: object, trace: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams) -> None:
        traced: _TracedRequest = trace.request
        url, authority = judged_url(params.url), params.url.raw_authority
        other = other_site(url, params.headers.getall(hdrs.HOST, ()), authority)
        if other is not None:
            url = f"{url.partition('://')[0]}://{other}{params.url.raw_path_qs}"
        if traced.permits(url) or traced.reported:
            return
        judged, site = traced.judged, url[: url.find("/", 8)]
        traced.reported = judged is None
        publish(MiddlewareBypassed(params.method, url, judged))
        why = "nothing was judged" if judged is None else f"{shortened(judged)} was judged"
        level = logging.DEBUG if site in logged else logging.WARNING
        logged[site] = None
        _logger.log(level, "%s %s was sent past RobotsMiddleware: %s", params.method, shortened(url), why)

    async def on_end(_: object, trace: SimpleNamespace, _params: object) -> None:
        _TRACED.set(trace.outer)

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_start)
    config.on_request_headers_sent.append(on_sent)
    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_end)
    return config


_ABANDONED_S: Final = 1.0  # added to the total timeout, which aiohttp rounds up to the next second


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """A request or a redirect is not permitted, and was not sent; also an ``aiohttp.ClientError``.

    Attributes:
        verdict: the answer, with its reason, rule and source.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.verdict import Match
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(ClientDisallowed(verdict), aiohttp.ClientError)
        True
    """


def client_error(error: Disallowed | InvalidURL) -> ClientDisallowed | ClientInvalidURL:
    """Convert an error of the gate to the subclass that is also an error of aiohttp."""
    if isinstance(error, Disallowed):
        return ClientDisallowed(error.verdict)
    return ClientInvalidURL(error.url, error.problem)


@dataclass(slots=True, eq=False)
class RequestTurns:
    """The innermost middleware of a request: takes a turn for each hop that is sent.

    aiohttp calls this middleware for each hop, and again for the same hop if a kept connection is dead. An outer
    middleware may also repeat the request, to answer a challenge. The previous response is released first, so a request
    never waits for itself, and two requests that redirect to each other's hosts never wait for each other.

    Args:
        agents: judge and pace.
        turns: the open turns of the session.
        max_wait_s: the longest wait for each turn, in seconds, or None for no limit.
        exempt: the reason not to check robots.txt at the host of the first hop, or None to check it.
        total_s: the timeout of the whole request in seconds, or None. In aiohttp, the stream of a response that was
            dropped unread keeps the response and its connection alive. After this time the response is given up.
        closes: whether to close the connection of such a response, or only to end its turn.

    Attributes:
        prepared: the turn of the first hop, until the hop is sent.
    """

    agents: StatedAgents
    turns: OpenTurns
    max_wait_s: float | None
    exempt: str | None
    total_s: float | None
    closes: bool = True
    prepared: Turn | None = field(default=None, init=False)
    _exempt_host: str = field(default="", init=False)
    _prepared_gate: AgentView | None = field(default=None, init=False)
    _prepared_url: str = field(default="", init=False)  # the URL as sent; ``prepared`` may spell it otherwise
    # A weak reference, because contexts of timers and of kept connections may keep this object alive.
    _response: Callable[[], ClientResponse | None] | None = field(default=None, init=False)

    async def prepare(self, url: str, stated: Sequence[str]) -> None:
        """Take the turn of the first hop before the request starts; ``stated`` are its User-Agents."""
        agents = self.agents
        gate = self._prepared_gate = agents.gate if stated == agents.own else agents.view(stated)
        try:
            self.prepared = await turn_for(gate, url, spelt_url, max_wait_s=self.max_wait_s, exempt=self.exempt)
        except (Disallowed, InvalidURL) as error:
            raise client_error(error) from None
        self._prepared_url = url
        if self.exempt is not None:
            self._exempt_host = Origin.of(url).pacing_host

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send one hop. Use the prepared turn if it is for this URL and agent, otherwise take a new turn."""
        previous, self._response = self._response, None
        if previous is not None and (earlier := previous()) is not None:
            earlier.release()
        agents, stated = self.agents, request.headers.getall(hdrs.USER_AGENT, ())
        gate = agents.gate if stated == agents.own else agents.introduce(request.headers, stated)
        try:
            url = sent_url(request)
            turn, self.prepared = self.prepared, None
            if turn is None or self._prepared_url != url or gate is not self._prepared_gate:
                if turn is not None:
                    turn.give_back()  # a middleware changed the URL or the User-Agent
                turn = await self._another_turn(gate, url)
            signer = gate.state.signer
            if signer is None:
                response = await self._send(request, handler, turn)
            else:
                signed = RequestSignature(signer, request.method, url, request.headers)
                with signed.added_to(request.headers):
                    response = await self._send(request, handler, turn, signed)
                if signed.is_repeated:  # the server asks for another signature
                    turn = await self._another_turn(gate, url)
                    with signed.added_to(request.headers):
                        response = await self._send(request, handler, turn, signed)
        except (Disallowed, InvalidURL) as error:
            raise client_error(error) from None
        self._response = ref(response)
        return response

    def step_back(self) -> None:
        """Give back the prepared turn if it is unused, because a middleware makes another request first."""
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            prepared.give_back()

    def abandon(self) -> None:
        """Close the response of a failed request, because the program never gets the response."""
        self.step_back()
        response = None if self._response is None else self._response()
        if response is not None:
            response.close()

    async def _send(
        self, request: ClientRequest, handler: ClientHandlerType, turn: Turn, signature: RequestSignature | None = None
    ) -> ClientResponse:
        """Send a request within its turn, which ends with the response or with the error.

        Args:
            request: the hop to send.
            handler: sends the request.
            turn: a turn that was not entered yet, or a turn of the caller that was claimed.
            signature: the signature of the request, or None. If the server asks for another one, the answer is
                released, and does not count.

        Raises:
            ClosedError: the session was closed during the wait for the turn.
        """
        if request.session.closed:
            turn.give_back()
            sent = f"{request.method} {turn.verdict.url!r:.200}"
            raise ClosedError(f"{sent}: the session was closed before the request was sent")
        self.turns.begin(turn)
        try:
            response = await (send_judged(request, handler, turn.url, turn=True) if _TRACED.get() else handler(request))
            if signature is not None and signature.is_asked(response.status, response.headers):
                response.release()
                self.turns.end(turn)
                return response
            turn.observe(response.status, response.headers)
            connection = response.connection
            if connection is None or response.status == SWITCHING_PROTOCOLS:
                self.turns.end(turn)
            else:
                opened = OpenResponse(response, turn, self.turns)
                connection.add_callback(opened.released)
                if self.total_s is not None and self.total_s > 0:  # for aiohttp, 0 also means no timeout
                    close = connection.close if self.closes else partial(self.turns.end, turn)
                    alarm = get_running_loop().call_later(self.total_s + _ABANDONED_S, opened.give_up, close)
                    connection.add_callback(alarm.cancel)
                collect_when_dropped(response)
        except BaseException:
            self.turns.end(turn)
            raise
        return response

    async def _another_turn(self, gate: AgentView, url: str) -> Turn:
        """Take a turn for another URL or agent than the prepared turn's."""
        # The exemption does not cover the other host of a redirect.
        is_exempt = self.exempt is not None and Origin.of(url).pacing_host == self._exempt_host
        exempt = self.exempt if is_exempt else None
        return await turn_for(gate, url, spelt_url, max_wait_s=self.max_wait_s, exempt=exempt)


class OpenResponse:
    """The turn of an open response; it ends when aiohttp releases the connection, or soon after the total timeout.

    Args:
        response: the response, whose headers were received.
        turn: the turn of the request.
        turns: the open turns of the client.
    """

    __slots__ = ("_loop", "_response", "_turn", "_turns")

    def __init__(self, response: ClientResponse, turn: Turn, turns: OpenTurns) -> None:
        self._response = ref(response)
        self._turn = turn
        self._turns = turns
        self._loop = get_running_loop()

    def released(self) -> None:
        """End the turn when the connection is released or closed; a dropped response may call this in any thread."""
        response = self._response()
        if response is not None and response.closed:
            self._turns.end(self._turn)
        elif self._turn.under_way:  # aiohttp sets ``closed`` unless the response was dropped
            self._drop()
            self._warn("was dropped before it was read to its end or released")

    def give_up(self, close: Callable[[], None]) -> None:
        """Call ``close`` and end the turn: after the total timeout of the request, the response cannot be read."""
        if self._turn.under_way:
            self._drop()  # end the turn before ``close``, which calls ``released``
            close()
            self._warn("was neither read to its end nor released within its total timeout")

    def _drop(self) -> None:
        if running_loop() is self._loop:  # the garbage collector may run in another thread
            self._turns.drop(self._turn)
        else:
            soon(self._loop, partial(self._turns.drop, self._turn))

    def _warn(self, what: str) -> None:
        warnings.warn(f"a response of {printable(self._turn.verdict.url)} {what}", ResourceWarning, stacklevel=2)


class RobotsMiddleware:
    """A client middleware: ``aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),))``.

    The middleware checks permission before each hop. The timeout of the request includes the fetch of robots.txt. The
    gate fetches robots.txt with its own session, so the middleware never sees these requests.

    With ``pace=True`` the middleware also takes a turn for each hop; the turn ends with the response. aiohttp calls a
    middleware within the request, so the wait for a turn counts against ``ClientTimeout.total``. Give the session a
    total timeout that is longer than any wait, or use PoliteSession, which takes the first turn before the timeout
    starts. Three rules are the same as in PoliteSession. The request uses a turn that the task holds for the URL. A
    second request of the task to the host of an open response raises TurnHeld. A dropped response ends its turn.

    List this middleware last. aiohttp calls middlewares in their order. So the last middleware sees each request after
    the changes of all earlier middlewares, and sees each repetition and each redirect. A later middleware could change
    the URL or the Host header of a judged request, or repeat it without a turn. In PoliteSession the check always comes
    last.

    The ``middlewares=`` of a request replace the list of the session: list this middleware there, too.
    ``trace_config`` reports requests that bypass it.

    The middleware replaces aiohttp's default User-Agent by the gate's, because the server must see the name for which
    the rules were selected (RFC 9309 2.2.1). If a request has another User-Agent, the request is judged for the crawler
    of that User-Agent.

    Args:
        gate: a Gatekeeper or one of its views; with ``mode="report"`` the middleware only reports.
        pace: whether to take turns, too.
        max_wait_s: with ``pace``, the longest wait for each turn, in seconds, or None for no limit.

    Raises:
        ConfigurationError: ``gate`` is not a gate, or ``max_wait_s`` is given without ``pace``.

    A request raises, besides aiohttp's own errors:
        ClientDisallowed: the URL of a hop is not allowed; carries the verdict.
        ConfigurationError: the request states a User-Agent that names no crawler.
        ClientInvalidURL: no robots.txt covers the URL; or the request would have dot segments, which servers resolve,
            or a Host header that names another site.
        TooFar: no turn comes within ``max_wait_s``.
        TurnHeld: with ``pace``, this task already holds the turn of the host, for another URL or an open response.
        ClosedError: the gate was closed; with ``pace``, also if the session was closed during the wait for a turn.

    Example:
        >>> from politesse import Gatekeeper
        >>> RobotsMiddleware(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)"), pace=True, max_wait_s=60)
        RobotsMiddleware(<Gatekeeper examplebot (enforce): 0 origins known, 0 being fetched>, pace=True)
    """

    def __init__(self, gate: AgentView, *, pace: bool = False, max_wait_s: float | None = None) -> None:
        check_gate(gate, "RobotsMiddleware")
        check_types({"pace": (pace, bool)}, required=True)
        if max_wait_s is not None and not pace:
            raise ConfigurationError(f"max_wait_s={max_wait_s!r}: needs pace=True; without it no turn is waited for")
        check_wait("max_wait_s", max_wait_s)
        self._gate = gate
        self._pace = pace
        self._max_wait_s = max_wait_s
        self._turns = OpenTurns()
        self._agents = StatedAgents(gate, SERVER_SOFTWARE)

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Check the request, take its turn with ``pace``, and send it."""
        if self._pace:
            # ``request.response`` is None before the request is first sent, though aiohttp declares a response.
            previous: ClientResponse | None = getattr(request, "response", None)
            if previous is not None:
                previous.release()  # an outer middleware repeats the request, for example to answer a challenge
            total_s = request.session.timeout.total
            turns = RequestTurns(self._agents, self._turns, self._max_wait_s, None, total_s, closes=False)
            return await turns(request, handler)
        gate = self._agents.introduce(request.headers, request.headers.getall(hdrs.USER_AGENT, ()))
        try:
            url = sent_url(request)
            verdict = gate.peek(url)  # a known answer needs no coroutine
            if verdict is None:
                verdict = await gate.check(url)
        except (Disallowed, InvalidURL) as error:
            raise client_error(error) from None
        if not verdict:
            raise ClientDisallowed(verdict)
        signature = RequestSignature(gate.state.signer, request.method, url, request.headers)
        with signature.added_to(request.headers):
            response = await send_judged(request, handler, url, turn=False)
        signature.is_asked(response.status, response.headers)  # if so, later requests to this origin are signed
        return response

    def trace_config(self) -> aiohttp.TraceConfig:
        """Return a trace that finds unjudged requests, for ``aiohttp.ClientSession(trace_configs=[...])``.

        The trace compares the URL and the Host header of each sent hop with the judged URL, and publishes each
        difference as a MiddlewareBypassed event to the subscribers of the gate; the request is still sent. If no hop of
        a request was judged, the request is reported once. If a middleware answers a request without the server, or the
        request fails before it is sent, it is not reported.

        Make this trace the last of ``trace_configs``: a later trace could change the headers after this trace has
        compared them. A request that a middleware makes with ``ClientRequest(...)`` is traced only if the middleware
        passes on the traces of the original request.
        """
        return tracing(self._gate.publish)

    def __repr__(self) -> str:
        return f"RobotsMiddleware({self._gate!r}{', pace=True' if self._pace else ''})"


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
        if session is None and running_loop() is None:
            raise WrongEventLoop("no event loop is running: create a PoliteSession inside a coroutine (async def)")
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
        self._agents = StatedAgents(gate, SERVER_SOFTWARE)
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
        """Return the directives of a page for the gate's own crawler; see the function ``page_directives``."""
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
        may_nest = False
        outer = _SENDING.get()
        if outer is not None:
            outer.step_back()  # a middleware of the outer request makes this request: do not wait for the outer turn
        try:
            first = first_url(session, url, options.get("params"))
            if first is not None:
                given = options.get("headers")
                own_agents = CIMultiDict(given).getall(hdrs.USER_AGENT, ()) if given else ()
                await turns.prepare(first, own_agents or session.headers.getall(hdrs.USER_AGENT, ()))
                if self._closed:  # during the wait for the turn
                    _raise_closed(method, url)
            # Only a middleware, a trace or a subclass makes a request within this one. The context of each kept
            # connection refers to what is set here, so nothing is set for other requests.
            may_nest = bool(middlewares or session.trace_configs or type(session) is not aiohttp.ClientSession)
            if may_nest:
                _SENDING.set(turns)
            response = await session.request(method, url, middlewares=(*middlewares, turns), **options)
        except BaseException as error:
            turns.abandon()
            self._explain(error, method, url)
            raise
        finally:
            if may_nest:
                _SENDING.set(outer)
        if turns.prepared is not None:
            turns.step_back()  # the turn is unused if a middleware answered without the server
        return response

    def _explain(self, error: BaseException, method: str, url: StrOrURL) -> None:
        """If possible, raise an error with a better explanation than the error of aiohttp."""
        if type(error) is aiohttp.InvalidUrlClientError:  # not a subclass: aiohttp raises one for a redirect
            text = url_text(url)
            try:
                split(f"http{text[2:]}" if text.startswith("ws") else text)
            except InvalidURL as invalid:
                raise ClientInvalidURL(text, invalid.problem) from None
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
