"""httpx2 with politeness: the transport of ``politesse.integrations.httpx``, for the clients of httpx2.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with httpx2.AsyncClient(transport=PoliteTransport(gate)) as client:
            response = await client.get("https://example.com/page")

httpx2 is a successor of httpx with the same interface, but neither library accepts the transports, requests and errors
of the other. The guide "httpx" describes both integrations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._base.text import needing
from politesse.errors import Disallowed, InvalidURL, TooFar
from politesse.integrations._httpx import Core, Library, TransportParts, TurnStream, directives_of

with needing("politesse.integrations.httpx2", "httpx2"):
    import httpcore2
    import httpx2

if TYPE_CHECKING:
    from politesse._gate.view import AgentView
    from politesse.page import PageDirectives


class RequestDisallowed(Disallowed, httpx2.RequestError):
    """A request or a redirect is not permitted, and was not sent; also an ``httpx2.RequestError``.

    Attributes:
        verdict: the answer, with its reason, rule and source.
        request: the request that was not sent.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.verdict import Match
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(RequestDisallowed(verdict), httpx2.RequestError)
        True
    """


class RequestInvalidURL(InvalidURL, httpx2.RequestError):
    """A request or a redirect has a URL that no robots.txt covers; also an ``httpx2.RequestError``.

    ``except httpx2.InvalidURL`` does not catch this error.

    Attributes:
        url: the URL that was not requested.
        problem: the fault of the URL, as a phrase.
        request: the request that was not sent.

    Example:
        >>> print(RequestInvalidURL("wss://example.com/", "has the scheme 'wss'"))
        'wss://example.com/' has the scheme 'wss'
    """


class RequestTooFar(TooFar, httpx2.RequestError):
    """No turn comes within ``max_wait_s``; also an ``httpx2.RequestError``, but not an ``httpx2.TimeoutException``.

    Attributes:
        request: the request that was not sent; lost when the error is pickled.

    Example:
        >>> from politesse import Bound, NotYet
        >>> far = RequestTooFar("example.com", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 60.0)
        >>> far.host, far.max_wait_s
        ('example.com', 60.0)
    """


class _TurnStream(TurnStream, httpx2.AsyncByteStream):
    """The body of a response of httpx2."""


class PoliteTransport(TransportParts[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """A transport that checks and paces every request: ``httpx2.AsyncClient(transport=PoliteTransport(gate))``.

    It does for httpx2 all that ``politesse.integrations.httpx.PoliteTransport`` does for httpx. The same rules hold for
    its turns, its place among other transports, proxies, the User-Agent and streamed responses.

    A WebSocket (``client.websocket``) raises RequestInvalidURL: no robots.txt covers ``ws`` and ``wss``.

    Args:
        gate: a Gatekeeper or one of its views; not closed with the transport.
        wraps: the transport that sends, closed with this transport; an ``httpx2.AsyncHTTPTransport()`` by default.
        max_wait_s: the longest wait for a turn, for each hop, in seconds, or None for no limit.
        private_addresses: ``"deny"`` makes the wrapped transport connect only to public addresses: it looks each name
            up once, checks the addresses, and connects to one of them. The gate must deny private addresses, too. None
            means ``"deny"`` if the gate denies them and ``wraps`` is not given.

    Attributes:
        gate: the gate that judges and paces.

    Raises:
        ConfigurationError: ``gate`` is not a gate, ``wraps`` is not an asynchronous transport of httpx2, or the
            addresses must be checked but cannot be, for example because of a proxy.

    A request raises the errors of httpx2. It also raises the errors that politesse has for httpx; here they are classes
    of this module, such as ``RequestDisallowed``.

    Example:
        >>> from politesse import Gatekeeper
        >>> gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)")
        >>> transport = PoliteTransport(gate, max_wait_s=60)
        >>> transport.gate is gate
        True
    """

    _library = Library(
        "httpx2",
        f"python-httpx2/{httpx2.__version__}",
        httpx2.URL,
        httpx2.Request,
        httpx2.AsyncBaseTransport,
        httpx2.AsyncHTTPTransport,
        Core(httpcore2.AsyncConnectionPool, httpcore2.ConnectError, httpcore2.ConnectTimeout),
        (RequestDisallowed, RequestInvalidURL, RequestTooFar),
        httpx2.AsyncByteStream,
        _TurnStream,
    )


async def page_directives(response: httpx2.Response, gate: AgentView) -> PageDirectives:
    """Return the directives for the crawler of ``gate`` in the headers of ``response`` and in the METAs of its HTML.

    See ``politesse.integrations.httpx.page_directives``.

    Args:
        response: a response of httpx2, from any client; repeated headers are combined.
        gate: a Gatekeeper or one of its views. Its product tokens select the directives that count, beside the
            directives for all crawlers.

    Raises:
        httpx2.RequestError: the body cannot be read.
        httpx2.StreamError: the body was streamed before, or the response was closed unread.
        ImportError: the page has a META, and the extra ``html`` is not installed.
    """
    return await directives_of(response, gate)
