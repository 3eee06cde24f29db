"""For sessions of one's own: a middleware that asks for permission, and takes turns if it is told to."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from politesse.errors import ConfigurationError, InvalidURL
from politesse.events import Event
from politesse.integrations.aiohttp.sending import (
    ClientDisallowed,
    ClientInvalidURL,
    introduce,
    send,
    sent_url,
    take_turn,
)
from politesse.view import AgentView

if TYPE_CHECKING:
    from types import SimpleNamespace

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse.turns import Turn


@dataclass(frozen=True, slots=True)
class MiddlewareBypassed(Event):
    """A request went out that no RobotsMiddleware has seen: its ``middlewares=`` replaced those of the session.

    Attributes:
        method: of the request.
        url: of its first hop, as it was sent.
    """

    method: str
    url: str


class _Passage:
    """A request that is traced, and whether a RobotsMiddleware has seen it, or it was told that none has."""

    __slots__ = ("seen", "session")

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.seen = False


# aiohttp traces a request in the task that makes it, and calls its middlewares there.
_PASSAGE: Final[ContextVar[_Passage | None]] = ContextVar("_PASSAGE", default=None)


class RobotsMiddleware:
    """For ``aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),))``.

    It asks for permission before each hop. The wait for a robots.txt that is not known yet counts against the request's
    own timeout. robots.txt itself is asked for by a session of the gate's own, so the middleware never meets its own
    requests.

    With ``pace=True`` it also takes a turn for each hop, which ends when the response does. That has its price: aiohttp
    calls a middleware within the request, so all of the wait counts against ``ClientTimeout.total``, and a request that
    waits holds up whoever awaits it. Give the session a total that is longer than any wait, or use PoliteSession, whose
    first turn costs nothing of it. A response that is dropped unread holds its host until the total timeout of the
    session is over.

    ``middlewares=`` of a request replaces those of the session, and so this one: list it there too. Where that was
    forgotten, ``trace_config`` tells.

    A request that would go out under aiohttp's own User-Agent gets the gate's: the name that the rules were chosen by
    is the name that the server has to see (RFC 9309 2.2.1). One that the session or the caller set is left alone.

    Args:
        gate: a Gatekeeper or one of its views; one with ``mode="report"`` only tells.
        pace: whether to take turns, too.
        max_wait_s: with ``pace``, how long to wait for each at the most; None for as long as it takes.

    Raises:
        ClientDisallowed: where the verdict is not allowed; it carries the verdict.
        ClientInvalidURL: for an URL that no robots.txt speaks for, and for one that would be sent with dot segments:
            what they are resolved to is what would be judged.
        TooFar: where no turn comes within ``max_wait_s``.
        ClosedError: after the gate was closed; with ``pace``, after the session was while a turn was waited for.
    """

    def __init__(self, gate: AgentView, *, pace: bool = False, max_wait_s: float | None = None) -> None:
        if not isinstance(gate, AgentView):
            raise ConfigurationError(f"RobotsMiddleware({gate!r:.100}): give a Gatekeeper, or a view of one")
        if max_wait_s is not None and not pace:
            raise ConfigurationError(f"max_wait_s={max_wait_s!r}: for pace=True, nothing else waits for a turn")
        self._gate = gate
        self._pace = pace
        self._max_wait_s = max_wait_s
        self._turns: set[Turn] = set()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Ask, or take a turn, then hand on."""
        passage = _PASSAGE.get()
        if passage is not None and passage.session is request.session:  # else a middleware asks through another
            passage.seen = True
        introduce(request, self._gate.identity)
        if self._pace:
            return await self._in_turn(request, handler)
        url = sent_url(request)
        try:
            verdict = self._gate.peek(url)  # what is known costs no coroutine
            if verdict is None:
                verdict = await self._gate.check(url)
        except InvalidURL as error:
            raise ClientInvalidURL(error.url, error.problem) from None
        if not verdict:
            raise ClientDisallowed(verdict)
        return await handler(request)

    def trace_config(self) -> aiohttp.TraceConfig:
        """Return what, given to a ClientSession as ``trace_configs=[...]``, finds the requests that bypass this.

        Each is told once as the event MiddlewareBypassed to the subscribers of the gate, when it is sent. What a
        middleware answers without asking the server, and what fails before, is not told.
        """
        config = aiohttp.TraceConfig()
        config.on_request_start.append(self._on_start)
        config.on_request_headers_sent.append(self._on_sent)
        config.on_request_end.append(self._on_end)
        config.on_request_exception.append(self._on_end)
        return config

    def __repr__(self) -> str:
        return f"RobotsMiddleware({self._gate!r}{', pace=True' if self._pace else ''})"

    async def _in_turn(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        previous = request.response  # None until it was sent once
        if previous is not None:
            previous.release()  # a middleware outside repeats the request, as to answer a challenge
        turn = await take_turn(self._gate, sent_url(request), self._max_wait_s)
        total_s = request.session.timeout.total
        return await send(request, handler, turn, self._turns, total_s=total_s, closes=False)

    async def _on_start(self, session: aiohttp.ClientSession, trace: SimpleNamespace, _: object) -> None:
        trace.around = _PASSAGE.get()
        trace.passage = _Passage(session)
        _PASSAGE.set(trace.passage)

    async def _on_sent(self, _: object, trace: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams) -> None:
        if not trace.passage.seen:
            trace.passage.seen = True
            self._gate.publish(MiddlewareBypassed(params.method, str(params.url)))

    async def _on_end(self, _: object, trace: SimpleNamespace, _params: object) -> None:
        _PASSAGE.set(trace.around)
