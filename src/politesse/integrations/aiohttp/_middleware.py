"""A middleware for your own session: it checks permission, and takes turns with ``pace=True``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, hdrs

from politesse._base.checks import check_types, check_wait
from politesse._http.signing import RequestSignature
from politesse.errors import ConfigurationError, Disallowed, InvalidURL
from politesse.integrations._request import OpenTurns, StatedAgents, check_gate
from politesse.integrations.aiohttp._sending import (
    DEFAULT_USER_AGENT,
    ClientDisallowed,
    RequestTurns,
    client_error,
    send_judged,
    sent_url,
    tracing,
)

if TYPE_CHECKING:
    import aiohttp

    from politesse._gate.view import AgentView


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
        self._agents = StatedAgents(gate, DEFAULT_USER_AGENT)

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
