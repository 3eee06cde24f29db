"""aiohttp with politeness: a session that takes a turn for each hop, and a middleware for a session of your own.

::

    async with PoliteSession("ExampleBot/1.0 (+https://example.com/bot)") as web:
        async with web.get("https://example.com/page") as response: ...

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
            async with session.get("https://example.com/page") as response: ...

aiohttp calls a middleware once for each hop, so a redirect from an allowed page to a disallowed one is not followed.
Both classes let aiohttp decide how a redirect changes method, history and cookies. ``page_directives`` reads what a
page itself says to crawlers.

A turn ends when aiohttp releases or closes the connection: it calls the connection's callbacks on every way out of a
response (end of the body, ``release``, ``close``, an error, garbage collection), as it does for its own timeouts. The
turn of a WebSocket ends with its handshake: no request follows on that connection.
"""

from politesse.integrations.aiohttp.bypass import MiddlewareBypassed
from politesse.integrations.aiohttp.middleware import RobotsMiddleware
from politesse.integrations.aiohttp.response_directives import page_directives
from politesse.integrations.aiohttp.sending import ClientDisallowed
from politesse.integrations.aiohttp.session import PendingResponse, PendingWebSocket, PoliteSession
from politesse.integrations.aiohttp.urls import ClientInvalidURL

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
