"""Finds the requests of a traced session that bypassed RobotsMiddleware.

aiohttp traces a request in the task that makes it, and calls its middlewares there, so both see the same context
variable. ``on_request_start`` sets this variable to a new _TracedRequest. When a middleware has judged a hop, it adds
the URL to the _TracedRequest while it calls the handler. For each hop, after all middlewares, aiohttp calls
``on_request_headers_sent`` with the URL and the headers that it will write next. If the URL has not been added by then,
it was not judged.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import aiohttp
from cachetools import LRUCache

from politesse._base.text import shortened
from politesse.events import Event
from politesse.integrations.aiohttp._urls import addressed_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse


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


is_traced: Final = _TRACED.get
"""Returns a true value if the present request may be traced."""


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

    def log(method: str, url: str, judged: str | None) -> None:
        why = "nothing was judged" if judged is None else f"{shortened(judged)} was judged"
        site = url[: url.find("/", 8)]
        level = logging.DEBUG if site in logged else logging.WARNING
        logged[site] = None
        _logger.log(level, "%s %s was sent past RobotsMiddleware: %s", method, shortened(url), why)

    async def on_start(session: aiohttp.ClientSession, trace: SimpleNamespace, _: object) -> None:
        trace.outer = _TRACED.get()
        trace.request = _TracedRequest(session)
        _TRACED.set(trace.request)

    async def on_sent(_: object, trace: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams) -> None:
        traced: _TracedRequest = trace.request
        url = addressed_url(params.url, params.headers)
        if traced.permits(url) or traced.reported:
            return
        traced.reported = traced.judged is None
        publish(MiddlewareBypassed(params.method, url, traced.judged))
        log(params.method, url, traced.judged)

    async def on_end(_: object, trace: SimpleNamespace, _params: object) -> None:
        _TRACED.set(trace.outer)

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_start)
    config.on_request_headers_sent.append(on_sent)
    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_end)
    return config
