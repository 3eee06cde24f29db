"""What was judged of a request that is traced, and what of it is sent.

aiohttp traces a request in the task that makes it, and calls its middlewares there, so both see one context variable.
``on_request_start`` sets it to a new passage. A middleware that has judged a hop notes its URL there while it calls the
handler. aiohttp calls ``on_request_headers_sent`` for each hop, behind all middlewares, with the URL and the headers
that it writes next. A URL that is not noted then was not judged.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from politesse.events import Event
from politesse.integrations.aiohttp.urls import addressed_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse


@dataclass(frozen=True, slots=True)
class MiddlewareBypassed(Event):
    """A request went out that was not judged.

    Its ``middlewares=`` replaced those of the session, and RobotsMiddleware is not among them; or a middleware that is
    listed behind RobotsMiddleware changed its URL or Host header, or repeated it without a turn.

    Attributes:
        method: of the request.
        url: as it was sent, under the site that its Host header names, http for a WebSocket; of its first hop where no
            hop was judged.
        judged: the URL that was judged before; None where no hop was judged.
    """

    method: str
    url: str
    judged: str | None = None


class _Permission:
    """Leave to send one URL.

    Attributes:
        url: what was judged.
        turn: whether it came with a turn, which is good for one request.
        used: whether it was sent.
    """

    __slots__ = ("turn", "url", "used")

    def __init__(self, url: str, *, turn: bool) -> None:
        self.url = url
        self.turn = turn
        self.used = False


class _Passage:
    """A request that is traced.

    Attributes:
        session: that makes it.
        permissions: those of the hops that are handed on now; more than one where a middleware tries several at once.
        judged: the URL that was judged last; None before.
        told: whether it was reported that no hop was judged.
    """

    __slots__ = ("judged", "permissions", "session", "told")

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.permissions: list[_Permission] = []
        self.judged: str | None = None
        self.told = False

    def permits(self, url: str) -> bool:
        """Whether ``url`` may be sent now; a turn is used up by it."""
        for permission in self.permissions:
            if permission.url == url and not (permission.turn and permission.used):
                permission.used = True
                return True
        return False


_PASSAGE: Final[ContextVar[_Passage | None]] = ContextVar("_PASSAGE", default=None)


async def hand_on(request: ClientRequest, handler: ClientHandlerType, url: str, *, turn: bool) -> ClientResponse:
    """Call ``handler`` for a request that was judged by ``url``, and has a turn or needs none."""
    passage = _PASSAGE.get()
    if passage is None or passage.session is not request.session:  # a middleware asks through another session
        return await handler(request)
    permission = _Permission(url, turn=turn)
    passage.judged = url
    passage.permissions.append(permission)
    try:
        return await handler(request)
    finally:
        passage.permissions.remove(permission)


def tracing(publish: Callable[[Event], None]) -> aiohttp.TraceConfig:
    """Return what reports, as MiddlewareBypassed, the requests of a session that were not judged."""

    async def on_start(session: aiohttp.ClientSession, trace: SimpleNamespace, _: object) -> None:
        trace.around = _PASSAGE.get()
        trace.passage = _Passage(session)
        _PASSAGE.set(trace.passage)

    async def on_sent(_: object, trace: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams) -> None:
        passage: _Passage = trace.passage
        url = addressed_url(params.url, params.headers)
        if passage.permits(url) or passage.told:
            return
        passage.told = passage.judged is None
        publish(MiddlewareBypassed(params.method, url, passage.judged))

    async def on_end(_: object, trace: SimpleNamespace, _params: object) -> None:
        _PASSAGE.set(trace.around)

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_start)
    config.on_request_headers_sent.append(on_sent)
    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_end)
    return config
