"""aiohttp, politely: a session that takes a turn for each hop, and a middleware for sessions of one's own.

::

    async with PoliteSession("ExampleBot/1.0 (+https://example.com/bot)") as web:
        async with web.get("https://example.com/page") as response: ...

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
            async with session.get("https://example.com/page") as response: ...

aiohttp calls a middleware once for each hop, so a redirect from an allowed page to a disallowed one is not followed.
Both leave it to aiohttp what a redirect does to method, history and cookies. What a page that was got says to crawlers
itself, ``page_directives`` reads.

A turn ends when the connection is given up, and it is the connection that says so: aiohttp calls back from every way
out of a response (its end, ``release``, ``close``, an error, the collector), as it does for its own timeouts. That of a
WebSocket ends with its handshake: nothing is requested on it after that.
"""

from politesse.integrations.aiohttp.middleware import RobotsMiddleware
from politesse.integrations.aiohttp.page import page_directives
from politesse.integrations.aiohttp.passage import MiddlewareBypassed
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
