"""httpx, politely: a transport that takes a turn for each request that goes out.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with httpx.AsyncClient(transport=PoliteTransport(gate)) as client:
            response = await client.get("https://example.com/page")

httpx hands its transport one hop at a time, and reads a redirect or a challenge to its end before it sends what comes
next: so a redirect from an allowed page to a disallowed one is not followed, and no request waits for itself.

What a page that was got says to crawlers itself, ``page_directives`` reads.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from politesse._gate.gatekeeper import AgentView
from politesse.errors import ClosedError, ConfigurationError, InvalidURL
from politesse.integrations._request import same_site
from politesse.integrations.pages import content_codings, headers_alone, may_have_page
from politesse.page import PageDirectives
from politesse.robots.pattern import has_dot_segments
from politesse.verdict import Disallowed, TooFar

try:
    import httpx
except ImportError as error:
    raise ImportError(f"politesse.integrations.httpx needs httpx: pip install 'politesse[httpx]' ({error})") from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from politesse._gate.identity import Identity
    from politesse._pacing.turns import Turn
    from politesse.verdict import Verdict

_DECODED: Final = frozenset({"gzip", "deflate"})  # by every httpx, others where a package for them is installed
_DEFAULT_USER_AGENTS: Final = frozenset({"", f"python-httpx/{httpx.__version__}"})


class RequestDisallowed(Disallowed, httpx.RequestError):
    """The request was not made; caught by those who catch what httpx raises, too.

    Attributes:
        verdict: the answer, with its reason, rule and source.
        request: what was not sent.
    """

    def __init__(self, verdict: Verdict, *, request: httpx.Request | None = None) -> None:
        super().__init__(verdict)
        self._request = request


class RequestInvalidURL(InvalidURL, httpx.RequestError):
    """A request or a redirect leads where no robots.txt speaks; caught by those who catch what httpx raises, too.

    It is no ``httpx.InvalidURL``, which stands outside of httpx's tree of request errors.

    Attributes:
        url: what would have been sent.
        problem: what is wrong with it, as a phrase.
        request: what was not sent.
    """

    def __init__(self, url: str, problem: str, *, request: httpx.Request | None = None) -> None:
        super().__init__(url, problem)
        self._request = request


class RequestTooFar(TooFar, httpx.RequestError):
    """No turn comes within ``max_wait_s``; caught by those who catch what httpx raises, too.

    It is no ``httpx.TimeoutException``: it comes at once where it is known that the turn is too far, and whoever
    repeats what timed out would meet it again.

    Attributes:
        request: what was not sent; not pickled with it.
    """

    def __init__(self, far: TooFar, *, request: httpx.Request | None = None) -> None:
        TooFar.__init__(self, far.host, far.not_yet, far.max_wait_s)
        httpx.RequestError.__init__(self, str(far), request=request)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (TooFar(self.host, self.not_yet, self.max_wait_s),)


class PoliteTransport(httpx.AsyncBaseTransport):
    """Asks, waits and observes, for ``httpx.AsyncClient(transport=PoliteTransport(gate))``.

    Every hop of every request is permitted and has a turn: redirects, and what an auth flow sends again. What is judged
    is what is sent, escapes, dots and the extension ``target`` included. robots.txt is asked for by the gate's own
    client, which shares neither connections nor cookies nor credentials with this one.

    A turn is waited for before the wrapped transport is called, and httpx's timeouts (pool, connect, read, write) run
    within it: waiting costs nothing of them. ``response.elapsed`` counts it.

    A host is busy until its response is closed, which ``client.get`` and the like do before they return. Whoever holds
    a streamed response open holds up all who wait for that host, and whoever requests another page of it within
    ``client.stream`` waits for himself: leave the first one before, or give ``max_wait_s``. A streamed response that is
    dropped unclosed is closed by the collector, with a ResourceWarning.

    It stands directly around the transport that sends. Event hooks and auth flows come before it, so it judges what
    they have made of a request. A transport that changes requests, repeats them or keeps answers belongs outside, so
    that what is sent is judged, each repetition has a turn and a kept answer needs none;
    ``AsyncHTTPTransport(retries=...)`` repeats only attempts to connect, and may stand within.

    What AsyncClient says of connections is said to the wrapped transport instead, because httpx heeds ``verify``,
    ``cert``, ``http1``, ``http2``, ``limits`` and the proxies of the environment only where it makes the transport
    itself. A proxy, too: ``PoliteTransport(gate, wraps=httpx.AsyncHTTPTransport(proxy="http://localhost:3128"))``.
    ``AsyncClient(proxy=...)`` and ``mounts=`` lead requests past this transport, unjudged, unless one is mounted there.

    A request that would go out under httpx's own User-Agent or none gets the gate's: the name that the rules were
    chosen by is the name that the server has to see (RFC 9309 2.2.1). One that the caller set is left alone.

    For asyncio, and for AsyncClient only: it is no ``httpx.BaseTransport``.

    Args:
        gate: a Gatekeeper or one of its views; not closed with it.
        wraps: what sends, and is closed with it; an ``httpx.AsyncHTTPTransport()`` unless given.
        max_wait_s: how long to wait for a turn at the most, for each hop; None for as long as it takes.

    Raises:
        ConfigurationError: for a gate that is none, and for a transport that is not asynchronous.

    A request raises, beside what httpx does:
        RequestDisallowed: before anything is sent to an URL that may not be requested, be it by a redirect.
        RequestInvalidURL: for an URL that no robots.txt speaks for; for one that would be sent with dot segments, since
            what they are resolved to is what would be judged; and for a Host header that names another server.
        RequestTooFar: where no turn comes within ``max_wait_s``.
        ClosedError: where it or its gate was closed while the request waited.
    """

    def __init__(
        self, gate: AgentView, *, wraps: httpx.AsyncBaseTransport | None = None, max_wait_s: float | None = None
    ) -> None:
        if not isinstance(gate, AgentView):
            raise ConfigurationError(f"PoliteTransport({gate!r:.100}): give a Gatekeeper, or a view of one")
        if wraps is not None and not isinstance(wraps, httpx.AsyncBaseTransport):
            raise ConfigurationError(f"wraps={wraps!r:.100}: give an asynchronous transport of httpx")
        self._gate = gate
        self._wraps = httpx.AsyncHTTPTransport() if wraps is None else wraps
        self._max_wait_s = max_wait_s
        self._under_way = _UnderWay()
        self._closings = 0

    @property
    def gate(self) -> AgentView:
        """Who is asked."""
        return self._gate

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Take a turn, send, and see to the end of the turn; raises what the class says."""
        _introduce(request, self._gate.identity)
        closings = self._closings
        turn = await self._take(request)
        if self._closings != closings:  # else a pool that was closed would open again
            turn.give_back()
            raise ClosedError(f"{request.method} {request.url} was to be sent after the transport was closed")
        self._under_way.begin(turn)
        try:
            response = await self._wraps.handle_async_request(request)
            turn.observe(response.status_code, response.headers)
        except BaseException:
            self._under_way.end(turn)
            raise
        stream = response.stream
        if response.is_closed or not isinstance(stream, httpx.AsyncByteStream):
            self._under_way.end(turn)  # all of it has come, or it is one that AsyncClient refuses
        else:
            response.stream = _TurnStream(stream, turn, self._under_way)
        return response

    async def aclose(self) -> None:
        """Close the wrapped transport; the gate stays open. Turns of open responses end."""
        self._closings += 1
        try:
            await self._wraps.aclose()
        finally:
            self._under_way.end_all()

    async def __aenter__(self) -> Self:
        await self._wraps.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._closings += 1
        try:
            await self._wraps.__aexit__(exc_type, exc_value, traceback)
        finally:
            self._under_way.end_all()

    def __repr__(self) -> str:
        return f"<PoliteTransport {self._gate!r}: {len(self._under_way.turns)} turns under way>"

    async def _take(self, request: httpx.Request) -> Turn:
        try:
            return await self._gate.take_turn(_sent(request), max_wait_s=self._max_wait_s)
        except Disallowed as error:
            raise RequestDisallowed(error.verdict, request=request) from None
        except InvalidURL as error:
            raise RequestInvalidURL(error.url, error.problem, request=request) from None
        except TooFar as error:
            raise RequestTooFar(error, request=request) from None


async def page_directives(response: httpx.Response, gate: AgentView) -> PageDirectives:
    """Return what ``response`` says to the crawler of ``gate``, in its headers and in the METAs of its HTML.

    For any response of httpx, whatever client it came by; a page that was denied has none. Where it may be HTML, the
    body of one that is streamed is read by ``response.aread()``, which keeps it: ``text`` and the like work afterwards.
    All of it is read, as httpx does, and that ends the response's turn. Of HEAD, 204, 304 and redirects, as those in
    ``response.history``, and of other media types only the headers are read.

    A body that httpx could not decode, as one in ``br`` without the package for it, is not read, and the result is
    ``truncated``. Whoever streams bodies hands what he has to
    ``PageDirectives.from_response(response.headers, octets, gate.identity.tokens)``.

    Args:
        response: of httpx; its repeated headers are combined.
        gate: a Gatekeeper or one of its views: what names any of its product tokens counts, beside what names nobody.

    Raises:
        httpx.RequestError: what reading the body raises.
        httpx.StreamError: where the body was streamed before, or closed unread.
        ImportError: where there is a META to read, and the extra ``html`` is missing.
    """
    headers, tokens = response.headers, gate.identity.tokens
    if not may_have_page(response.request.method, response.status_code, headers):
        return PageDirectives.from_response(headers, None, tokens)
    body = await response.aread()
    if body and not content_codings(headers) <= _DECODED and response.num_bytes_downloaded == len(body):
        return headers_alone(headers, tokens)
    return PageDirectives.from_response(headers, body, tokens)


class _UnderWay:
    """The turns of one transport that have not ended.

    Attributes:
        turns: these.
    """

    __slots__ = ("_closing", "turns")

    def __init__(self) -> None:
        self.turns: set[Turn] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, turn: Turn) -> None:
        """Enter a turn."""
        self.turns.add(turn.__enter__())

    def end(self, turn: Turn) -> None:
        """End a turn; doing so again has no effect."""
        turn.end()
        self.turns.discard(turn)

    def end_all(self) -> None:
        """End all: the connections are gone, but nobody may have told the responses."""
        for turn in tuple(self.turns):
            self.end(turn)

    def close_dropped(self, stream: httpx.AsyncByteStream, turn: Turn) -> None:
        """Give up the connection of a response that nobody holds any more, and then end its turn."""
        task = asyncio.get_running_loop().create_task(self._close(stream, turn))
        self._closing.add(task)  # the event loop itself holds tasks but weakly
        task.add_done_callback(self._closing.discard)

    async def _close(self, stream: httpx.AsyncByteStream, turn: Turn) -> None:
        try:
            await stream.aclose()
        finally:
            self.end(turn)


class _TurnStream(httpx.AsyncByteStream):
    """The body of a response, whose turn ends when it is closed, has come to its end, or is broken off."""

    def __init__(self, stream: httpx.AsyncByteStream, turn: Turn, under_way: _UnderWay) -> None:
        self._stream = stream
        self._turn = turn
        self._under_way = under_way
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the wrapped stream, then end the turn."""
        if not self._closed:
            self._closed = True
            try:
                await self._stream.aclose()
            finally:
                self._under_way.end(self._turn)

    def __del__(self) -> None:
        if self._closed or self._turn not in self._under_way.turns:
            return
        warnings.warn(f"a response of {self._turn.url} was dropped without being closed", ResourceWarning, stacklevel=2)
        # The collector may run in any thread, and in mid-flight of anything.
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits there any more
            self._loop.call_soon_threadsafe(self._under_way.close_dropped, self._stream, self._turn)


def _sent(request: httpx.Request) -> str:
    """Return the URL that is sent; raises InvalidURL where what is judged would be another."""
    scheme, netloc = request.url.scheme, request.url.netloc.decode("ascii")
    target: bytes | str = request.extensions.get("target", request.url.raw_path)
    path_and_query = target if isinstance(target, str) else target.decode("latin-1")
    url = f"{scheme}://{netloc}{path_and_query}" if netloc else str(request.url)
    if not path_and_query.startswith("/") or "#" in path_and_query or not path_and_query.isascii():
        raise InvalidURL(url, f"would be sent with the target {path_and_query!r:.100}; give path and query, escaped")
    if has_dot_segments(path_and_query.partition("?")[0]):  # escaped: httpx resolves all others
        raise InvalidURL(url, "would be sent with dot segments; resolve them first")
    host = request.headers.get("Host", netloc)
    if host != netloc and not same_site(host, url):
        raise InvalidURL(url, f"would be sent with the Host header {host!r:.100}: another site, whose rules count")
    return url


def _introduce(request: httpx.Request, identity: Identity) -> None:
    if request.headers.get("User-Agent", "") in _DEFAULT_USER_AGENTS:
        request.headers["User-Agent"] = identity.user_agent
