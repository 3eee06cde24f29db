"""httpx with politeness: a transport that takes a turn for each request that it sends.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with httpx.AsyncClient(transport=PoliteTransport(gate)) as client:
            response = await client.get("https://example.com/page")

httpx passes one hop at a time to its transport, so a redirect from an allowed page to a disallowed page is not
followed. httpx reads a redirect or a challenge to its end before it sends the next request, so no request waits for
itself.

``page_directives`` reads the statements of a page to crawlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._base.text import needing
from politesse.errors import Disallowed, InvalidURL, TooFar
from politesse.integrations._httpx import Core, Library, TransportParts, TurnStream, directives_of

with needing("politesse.integrations.httpx", "httpx"):
    import httpcore
    import httpx

if TYPE_CHECKING:
    from politesse._gate.view import AgentView
    from politesse.page import PageDirectives


class RequestDisallowed(Disallowed, httpx.RequestError):
    """A request or a redirect is not permitted, and was not sent; also an ``httpx.RequestError``.

    Attributes:
        verdict: the answer, with its reason, rule and source.
        request: the request that was not sent.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.verdict import Match
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(RequestDisallowed(verdict), httpx.RequestError)
        True
    """


class RequestInvalidURL(InvalidURL, httpx.RequestError):
    """A request or a redirect has a URL that no robots.txt covers; also an ``httpx.RequestError``.

    ``except httpx.InvalidURL`` does not catch this error.

    Attributes:
        url: the URL that was not requested.
        problem: the fault of the URL, as a phrase.
        request: the request that was not sent.

    Example:
        >>> print(RequestInvalidURL("ftp://example.com/", "has the scheme 'ftp'"))
        'ftp://example.com/' has the scheme 'ftp'
    """


class RequestTooFar(TooFar, httpx.RequestError):
    """No turn comes within ``max_wait_s``; also an ``httpx.RequestError``.

    This is not an ``httpx.TimeoutException``: the error is raised at once if the turn is too far away, and repeating
    the request would raise it again.

    Attributes:
        request: the request that was not sent; lost when the error is pickled.

    Example:
        >>> from politesse import Bound, NotYet
        >>> far = RequestTooFar("example.com", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 60.0)
        >>> far.host, far.max_wait_s
        ('example.com', 60.0)
    """


class _TurnStream(TurnStream, httpx.AsyncByteStream):
    """The body of a response of httpx."""


class PoliteTransport(TransportParts[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """A transport that checks and paces every request: ``httpx.AsyncClient(transport=PoliteTransport(gate))``.

    Every hop of every request is checked and has a turn, including redirects and the repetitions of an auth flow. The
    URL is judged exactly as it is sent, with its escapes, its dots and the extension ``target``. The gate fetches
    robots.txt with its own client, which shares no connections, cookies or credentials with your client.

    The turn is taken before the wrapped transport is called, so the wait does not count against httpx's timeouts (pool,
    connect, read, write). ``response.elapsed`` includes the wait.

    If the task or its parent holds a turn for the URL (``async with queue.turn() as turn``, or ``gate.turn``, and then
    ``client.get(turn.url)``), the request uses that turn. The answer is recorded, and the turn ends with the response.
    After a redirect, the next hop takes a new turn.

    A host is busy until the response is closed. ``client.get`` closes the response before it returns. A streamed
    response that stays open blocks every other request to that host. The task that made the request holds its turn,
    even if it hands the response to another task. A second request of this task to the host raises TurnHeld at once and
    names the open response. If a streamed response is dropped but not closed, the garbage collector closes it, with a
    ResourceWarning. The turn of an upgrade (101) ends with the handshake.

    Over HTTP/2, httpx tells the server nothing of a response that is closed early or of a request that is cancelled, so
    the server would go on beside the next request. PoliteTransport resets such a request before its turn ends. After a
    read timeout, it closes the connection.

    PoliteTransport must directly wrap the transport that sends the requests. Event hooks and auth flows run earlier, so
    PoliteTransport judges the changed request. A transport that changes or repeats requests, or caches answers, must
    wrap PoliteTransport. Then each request is judged as it is sent, each repetition has a turn, and a cached answer
    needs no turn. The ``retries`` of ``AsyncHTTPTransport`` repeat only attempts to connect, and may stay inside.

    Configure connections on the wrapped transport: httpx applies ``verify``, ``cert``, ``http1``, ``http2``, ``limits``
    and the proxies of the environment only to a transport that it creates itself. Give a proxy there, too:
    ``PoliteTransport(gate, wraps=httpx.AsyncHTTPTransport(proxy="http://localhost:3128"))``. Requests that
    ``AsyncClient(proxy=...)`` or ``mounts=`` route to another transport are not judged.

    The gate's User-Agent replaces httpx's default or a missing User-Agent, because the server must see the name that
    selected the rules (RFC 9309 2.2.1). A request with another User-Agent is judged for that crawler.

    PoliteTransport works only with asyncio and AsyncClient: it is not an ``httpx.BaseTransport``.

    Args:
        gate: a Gatekeeper or one of its views; not closed with the transport.
        wraps: the transport that sends, closed with this transport; an ``httpx.AsyncHTTPTransport()`` by default.
        max_wait_s: the longest wait for a turn, for each hop, in seconds, or None for no limit.
        private_addresses: ``"deny"`` makes the wrapped transport connect only to public addresses: it looks each name
            up once, checks the addresses, and connects to one of them. The gate must deny private addresses, too. None
            means ``"deny"`` if the gate denies them and ``wraps`` is not given.

    Attributes:
        gate: the gate that judges and paces.

    Raises:
        ConfigurationError: ``gate`` is not a gate, ``wraps`` is not an asynchronous transport, or the addresses must be
            checked but cannot be, for example because of a proxy.

    A request raises, besides httpx's own errors:
        ConfigurationError: the User-Agent of a request names no crawler.
        RequestDisallowed: the URL of a hop is not allowed, or its host has only private addresses while these are
            denied; this hop is not sent.
        RequestInvalidURL: no robots.txt covers the URL of a hop; or the request would have dot segments, which servers
            resolve, or a Host header that names another site.
        RequestTooFar: no turn comes within ``max_wait_s``.
        TurnHeld: this task already holds the turn of the host, for another URL or an open response.
        ClosedError: the transport or its gate was closed while the request waited.

    Example:
        >>> from politesse import Gatekeeper
        >>> gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)")
        >>> transport = PoliteTransport(gate, max_wait_s=60)
        >>> transport.gate is gate
        True
    """

    _library = Library(
        "httpx",
        f"python-{httpx.__title__}/{httpx.__version__}",  # after ``httpx2.alias_httpx()``, this is the title of httpx2
        httpx.URL,
        httpx.Request,
        httpx.AsyncBaseTransport,
        httpx.AsyncHTTPTransport,
        Core(httpcore.AsyncConnectionPool, httpcore.ConnectError, httpcore.ConnectTimeout),
        (RequestDisallowed, RequestInvalidURL, RequestTooFar),
        httpx.AsyncByteStream,
        _TurnStream,
    )


async def page_directives(response: httpx.Response, gate: AgentView) -> PageDirectives:
    """Return the directives for the crawler of ``gate`` in the headers of ``response`` and in the METAs of its HTML.

    The function takes any response of httpx, from any client. If the body of a streamed response may be HTML,
    ``response.aread()`` reads and keeps it, so ``text`` works afterwards. The turn of the response ends with that read.
    For HEAD, 204, 304, redirects (including ``response.history``) and other media types, only the headers are read.

    A body that httpx cannot decode, such as ``br`` without its package, is not read, and the result is ``truncated``.
    If you stream bodies, pass your octets to
    ``PageDirectives.from_response(response.headers, octets, gate.identity.tokens)``.

    Args:
        response: a response of httpx; repeated headers are combined.
        gate: a Gatekeeper or one of its views. Its product tokens select the directives that count, beside the
            directives for all crawlers.

    Raises:
        httpx.RequestError: the body cannot be read.
        httpx.StreamError: the body was streamed before, or the response was closed unread.
        ImportError: the page has a META, and the extra ``html`` is not installed.
    """
    return await directives_of(response, gate)
