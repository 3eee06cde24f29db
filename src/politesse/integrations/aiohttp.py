"""A client middleware that asks the gate before each hop of each request.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
            async with session.get("https://example.com/page") as response: ...

aiohttp calls a middleware once for each hop, so a redirect from an allowed page to a disallowed one is not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs
from aiohttp.http import SERVER_SOFTWARE

from politesse.errors import Disallowed

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse.view import AgentView


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """The request was not made; caught by those who catch what aiohttp raises, too."""


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
        InvalidURL: for an URL that no robots.txt speaks for.
    """

    def __init__(self, gate: AgentView) -> None:
        self._gate = gate

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Ask, then hand on."""
        verdict = await self._gate.check(str(request.url))
        if not verdict:
            raise ClientDisallowed(verdict)
        if request.headers.get(hdrs.USER_AGENT) == SERVER_SOFTWARE:
            request.headers[hdrs.USER_AGENT] = self._gate.identity.user_agent
        return await handler(request)

    def __repr__(self) -> str:
        return f"RobotsMiddleware({self._gate!r})"
