"""For sessions of one's own: a middleware that asks for permission, and takes turns if it is told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._gate.gatekeeper import AgentView, agent_of
from politesse.errors import ConfigurationError, InvalidURL
from politesse.integrations.aiohttp.passage import hand_on, tracing
from politesse.integrations.aiohttp.sending import ClientDisallowed, introduce, send, take_turn
from politesse.integrations.aiohttp.urls import ClientInvalidURL, sent_url

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._pacing.turns import Turn


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

    List it last. aiohttp calls middlewares in their order, so this one judges what those before it have made of a
    request, each of their repetitions, and each redirect. A middleware behind it can change the URL or the Host header
    of what was judged, or repeat it without a turn. PoliteSession always comes last.

    ``middlewares=`` of a request replaces those of the session, and so this one: list it there too. ``trace_config``
    reports the requests where either was forgotten.

    A request that would go out under aiohttp's own User-Agent gets the gate's: the name that the rules were chosen by
    is the name that the server has to see (RFC 9309 2.2.1). One that the session or the caller set is left alone.

    Args:
        gate: a Gatekeeper or one of its views; one with ``mode="report"`` only tells.
        pace: whether to take turns, too.
        max_wait_s: with ``pace``, how long to wait for each at the most; None for as long as it takes.

    Raises:
        ClientDisallowed: where the verdict is not allowed; it carries the verdict.
        ClientInvalidURL: for an URL that no robots.txt speaks for, and for one that would be sent with dot segments:
            what they are resolved to is what would be judged; and for a Host header that names another site.
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
        return await hand_on(request, handler, url, turn=False)

    def trace_config(self) -> aiohttp.TraceConfig:
        """Return what, given to a ClientSession as ``trace_configs=[...]``, finds the requests that were not judged.

        It compares the URL and the Host header of each hop that is sent with what was judged, and publishes a
        difference as the event MiddlewareBypassed to the subscribers of the gate. The request is sent all the same. A
        request of which no hop was judged is reported once. What a middleware answers without asking the server, and
        what fails before it is sent, is not reported.

        List it last as well: another trace can change headers while they are sent. A request that a middleware makes by
        ``ClientRequest(...)`` is traced only if it is given the traces of the one that it replaces.
        """
        return tracing(agent_of(self._gate).publish)

    def __repr__(self) -> str:
        return f"RobotsMiddleware({self._gate!r}{', pace=True' if self._pace else ''})"

    async def _in_turn(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        # None until it was sent once, though aiohttp declares that it is always there.
        previous: ClientResponse | None = getattr(request, "response", None)
        if previous is not None:
            previous.release()  # a middleware outside repeats the request, as to answer a challenge
        turn = await take_turn(self._gate, sent_url(request), self._max_wait_s)
        total_s = request.session.timeout.total
        return await send(request, handler, turn, self._turns, total_s=total_s, closes=False)
