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
"""

from politesse.integrations.aiohttp._sending import (
    ClientDisallowed,
    ClientInvalidURL,
    MiddlewareBypassed,
    RobotsMiddleware,
)
from politesse.integrations.aiohttp._session import PendingResponse, PendingWebSocket, PoliteSession, page_directives

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
