"""The parts that the integrations of httpx and httpx2 share. This module imports neither library.

Both libraries have the same interface, but each accepts only objects of its own classes. So each public module defines
the classes that must inherit from its library, and describes the library by a ``Library``.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from politesse._base.checks import check_choice, check_wait, wrong_type
from politesse._base.text import printable, public_url
from politesse._gate.turn import Turn, soon
from politesse._http.signing import RequestSignature
from politesse.errors import ClosedError, ConfigurationError, ConfigurationTypeError, Disallowed, InvalidURL, TooFar
from politesse.fetch._addresses import OnlyPrivateAddresses, PublicResolver
from politesse.fetch._http2 import replace_backend, reset_given_up
from politesse.integrations._request import (
    SWITCHING_PROTOCOLS,
    OpenTurns,
    StatedAgents,
    check_gate,
    check_sent,
    content_codings,
    headers_alone,
    may_have_page,
    refusal,
    turn_for,
)
from politesse.page import PageDirectives
from politesse.verdict import Match, Reason, Verdict

if TYPE_CHECKING:
    import httpcore
    import httpcore2
    import httpx
    import httpx2

    from politesse._gate.view import AgentView
    from politesse.integrations._request import Refusals

    Backend = httpcore.AsyncNetworkBackend | httpcore2.AsyncNetworkBackend
    Stream = httpcore.AsyncNetworkStream | httpcore2.AsyncNetworkStream
    ByteStream = httpx.AsyncByteStream | httpx2.AsyncByteStream

Request = TypeVar("Request", bound="httpx.Request | httpx2.Request")
Response = TypeVar("Response", bound="httpx.Response | httpx2.Response")
_Sent_contra = TypeVar("_Sent_contra", bound="httpx.Request | httpx2.Request", contravariant=True)
_Answered_co = TypeVar("_Answered_co", bound="httpx.Response | httpx2.Response", covariant=True)

_DECODED: Final = frozenset({"gzip", "deflate"})  # both libraries decode these; other codings need a package
_PACKAGES: Final = frozenset({"httpx", "httpx2"})


class Transport(AbstractAsyncContextManager[object], Protocol[_Sent_contra, _Answered_co]):
    """An asynchronous transport of a library."""

    async def handle_async_request(self, request: _Sent_contra) -> _Answered_co:
        """Send a request."""

    async def aclose(self) -> None:
        """Close the connections."""


class Library(NamedTuple, Generic[Request, Response]):
    """Describes httpx or httpx2 for the code that both integrations share.

    Attributes:
        name: the name of its package.
        user_agent: the User-Agent that its clients send by default.
        url: the class of its URLs.
        request: the class of its requests.
        transport: the base of its asynchronous transports.
        sender: returns the transport to use if the user gives no transport.
        core: the classes of httpcore that the check of addresses needs.
        errors: the RequestDisallowed, the RequestInvalidURL and the RequestTooFar of the integration.
        body: the base of the bodies of its responses.
        body_of_turn: the TurnStream of the integration.
    """

    name: str
    user_agent: str
    url: Callable[[str], httpx.URL | httpx2.URL]
    request: type[Request]
    transport: type[Transport[Request, Response]]
    sender: Callable[[], Transport[Request, Response]]
    core: Core
    errors: Refusals
    body: type[ByteStream]
    body_of_turn: Callable[[ByteStream, Turn, StreamTurns], ByteStream]

    def wrong(self, name: str, value: object, wanted: str) -> ConfigurationTypeError:
        """Return the error for an argument that is not of this library; it names the module for the other library."""
        packages = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
        hints = (f"; for {other}, use politesse.integrations.{other}" for other in packages & _PACKAGES - {self.name})
        return wrong_type(name, value, f"{wanted} of {self.name}{''.join(hints)}")


class TransportParts(Generic[Request, Response]):
    """The methods of PoliteTransport, which the public modules document."""

    _library: Library[Request, Response]

    def __init__(
        self,
        gate: AgentView,
        *,
        wraps: Transport[Request, Response] | None = None,
        max_wait_s: float | None = None,
        private_addresses: Literal["deny"] | None = None,
    ) -> None:
        library = self._library
        check_gate(gate, "PoliteTransport")
        check_wait("max_wait_s", max_wait_s)
        check_choice("private_addresses", private_addresses, ("deny", None), "'deny' or None")
        if wraps is not None and not isinstance(wraps, library.transport):
            raise library.wrong("wraps", wraps, "an asynchronous transport")
        self.gate = gate
        self._wraps = library.sender() if wraps is None else wraps
        resolver = gate.state.public_resolver
        if private_addresses is not None or (wraps is None and resolver is not None):
            pin_addresses(self._wraps, resolver, library.core)
        self._max_wait_s = max_wait_s
        self._turns = StreamTurns(self._wraps)
        self._agents = StatedAgents(gate, library.user_agent)
        self._closings = 0

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request within its turn. Raises the errors that the class lists."""
        return await self._handle(request)

    async def _handle(self, request: Request, signature: RequestSignature | None = None) -> Response:
        if not isinstance(request, self._library.request):
            raise self._library.wrong("request", request, "a request")
        gate = self._agents.introduce(request.headers, request.headers.get_list("User-Agent"))
        closings = self._closings
        try:
            url = _sent(request)
            turn = await turn_for(gate, url, self._spelt, max_wait_s=self._max_wait_s)
        except (Disallowed, InvalidURL, TooFar) as error:
            raise refusal(error, request, self._library.errors) from None
        signature = signature or RequestSignature(gate.state.signer, request.method, url, request.headers)
        if self._closings != closings:  # a request now would open the closed connection pool again
            turn.give_back()
            raise ClosedError(
                f"{request.method} {public_url(str(request.url))!r:.200}: the transport was closed before it was sent"
            )
        self._turns.begin(turn)
        try:
            with signature.added_to(request.headers):
                response = await self._wraps.handle_async_request(request)
            if signature.is_asked(response.status_code, response.headers):
                await response.aclose()
                await self._turns.stop(turn)
                return await self._handle(request, signature)
            turn.observe(response.status_code, response.headers)
        except BaseException as error:
            await self._turns.stop(turn)
            if isinstance(error, OnlyPrivateAddresses):
                match = Match(Reason.POLICY_DENY)
                verdict = Verdict(turn.url, gate.name, allowed=False, match=match, note=str(error))
                raise refusal(Disallowed(verdict), request, self._library.errors) from None
            raise
        is_over = response.status_code == SWITCHING_PROTOCOLS or response.is_closed
        if is_over or not isinstance(response.stream, self._library.body):
            self._turns.end(turn)  # AsyncClient will refuse a response with another stream
        else:
            response.stream = self._library.body_of_turn(response.stream, turn, self._turns)
        return response

    async def aclose(self) -> None:
        """Close the wrapped transport, not the gate; the turns of open responses end."""
        await self._close(self._wraps.aclose)

    async def __aenter__(self) -> Self:
        await self._wraps.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._close(partial(self._wraps.__aexit__, exc_type, exc_value, traceback))

    async def _close(self, close: Callable[[], Awaitable[object]]) -> None:
        self._closings += 1
        try:
            await close()
        finally:
            self._turns.end_all()

    def __repr__(self) -> str:
        return f"<PoliteTransport {self.gate!r}: {len(self._turns)} turns under way>"

    def _spelt(self, url: str) -> str:
        """Return the URL that the library sends if it gets ``url``, the URL of a turn."""
        parsed = self._library.url(url)
        return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}{parsed.raw_path.decode('ascii')}"


class Core(NamedTuple):
    """The classes of httpcore or httpcore2 that the guard needs."""

    pool: type[httpcore.AsyncConnectionPool | httpcore2.AsyncConnectionPool]
    error: type[Exception]
    timeout: type[Exception]


def pin_addresses(sender: object, resolver: PublicResolver | None, core: Core) -> None:
    """Let ``sender``, a transport, connect only to the public addresses that ``resolver`` finds.

    Raises:
        ConfigurationError: ``resolver`` is None, or the addresses behind ``sender`` cannot be checked.
    """
    if resolver is None:
        raise ConfigurationError(
            "private_addresses='deny': the gate would request robots.txt from private addresses; create it with "
            "Gatekeeper(..., fetch=FetchOptions(private_addresses='deny'))"
        )
    if not replace_backend(sender, core.pool, lambda backend: PinnedBackend(backend, resolver, core)):
        raise ConfigurationError(
            f"private_addresses='deny': the addresses behind wraps={sender!r:.100} cannot be checked; give a new "
            "AsyncHTTPTransport without a proxy and without uds="
        )


class PinnedBackend:
    """A network backend that looks a name up once, and connects to the public addresses that it has found.

    Theory of operation. A check before the request would not be safe: to connect, httpcore resolves the name again, and
    the name may then have another address (DNS rebinding). So the check is a part of connecting. The connection pool of
    httpcore opens its connections through a network backend. This class wraps that backend: it resolves the name
    itself, checks the addresses, and passes only checked addresses on. Such an address is an IP literal, which needs no
    lookup. The Host header, the TLS server name and the key of the pool still come from the URL. A pooled connection
    keeps its address, so a request over a pooled connection needs no check.

    Transports with a proxy or a Unix socket are refused: a proxy resolves the names itself, and a Unix socket has no
    address. Transports without a pool, and transports that may have open connections, are also refused.

    Args:
        backend: opens the connections.
        resolver: finds and checks the addresses.
        core: has the classes of the errors that the pool expects.
    """

    def __init__(self, backend: Backend, resolver: PublicResolver, core: Core) -> None:
        self._backend = backend
        self._resolver = resolver
        self._core = core

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of httpcore
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Stream:
        """Connect to the first public address of ``host`` that answers; each address gets an equal part of the time.

        Raises:
            OnlyPrivateAddresses: ``host`` has private addresses only.
        """
        try:
            async with asyncio.timeout(timeout):
                *others, last = await self._resolver.public_addresses(host, port)
                part_s = None if timeout is None else timeout / (len(others) + 1)
                for address in others:
                    with suppress(self._core.error, self._core.timeout):
                        return await self._backend.connect_tcp(address, port, part_s, local_address, socket_options)
                return await self._backend.connect_tcp(last, port, timeout, local_address, socket_options)
        except OnlyPrivateAddresses:
            raise
        except TimeoutError:
            raise self._core.timeout(f"{host}: no connection within {timeout} s") from None
        except (OSError, ValueError) as error:  # a lookup raises UnicodeError for a label that is too long
            raise self._core.error(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """Wait before the next attempt to connect."""
        await self._backend.sleep(seconds)


async def directives_of(response: httpx.Response | httpx2.Response, gate: AgentView) -> PageDirectives:
    """Return the directives of a page; see ``page_directives`` of the public modules."""
    headers, tokens = response.headers, gate.identity.tokens
    if not may_have_page(response.request.method, response.status_code, headers):
        return PageDirectives.from_response(headers, None, tokens)
    body = await response.aread()
    if body and not content_codings(headers) <= _DECODED and response.num_bytes_downloaded == len(body):
        return headers_alone(headers, tokens)
    return PageDirectives.from_response(headers, body, tokens)


class StreamTurns(OpenTurns):
    """The turns of a transport. Each turn ends with the stream of its response."""

    def __init__(self, transport: object) -> None:
        super().__init__()
        self._transport = transport
        self._closing: set[asyncio.Task[None]] = set()

    async def stop(self, turn: Turn) -> None:
        """End the turn of a request that is over; if the request was given up over HTTP/2, reset it first."""
        try:
            await reset_given_up(self._transport)
        finally:
            self.end(turn)

    def close_dropped(self, stream: ByteStream, turn: Turn) -> None:
        """Close the connection of a response that was garbage collected, then end its turn."""

        async def close() -> None:
            await stream.aclose()
            await reset_given_up(self._transport)

        def closed(task: asyncio.Task[None]) -> None:  # also called if the task was cancelled before its first step
            self._closing.discard(task)
            self.drop(turn)

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)  # the event loop keeps only weak references to tasks
        task.add_done_callback(closed)


class TurnStream:
    """The body of a response; the turn ends when the body is closed, read to its end, or broken off."""

    def __init__(self, stream: ByteStream, turn: Turn, turns: StreamTurns) -> None:
        self._stream = stream
        self._turn = turn
        self._turns = turns
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
                await self._turns.stop(self._turn)

    def __del__(self) -> None:
        if self._closed or self._turn not in self._turns:
            return
        soon(self._loop, partial(self._turns.close_dropped, self._stream, self._turn))
        message = f"a response of {printable(self._turn.verdict.url)} was dropped without being closed"
        warnings.warn(message, ResourceWarning, stacklevel=2)  # comes last, because a filter may raise the warning


def _sent(request: httpx.Request | httpx2.Request) -> str:
    """Return the URL that is sent; raises InvalidURL if the server would see another URL in the request."""
    scheme, netloc = request.url.scheme, request.url.netloc.decode("ascii")
    target: bytes | str = request.extensions.get("target", request.url.raw_path)
    path_and_query = target if isinstance(target, str) else target.decode("latin-1")
    url = f"{scheme}://{netloc}{path_and_query}" if netloc else str(request.url)
    if not path_and_query.startswith("/") or "#" in path_and_query or not path_and_query.isascii():
        raise InvalidURL(url, f"would be sent with the target {path_and_query!r:.100}; give path and query, escaped")
    # The library has resolved the dot segments of the URL's path, except escaped dots. A target that the caller set in
    # ``extensions`` may still have dot segments.
    check_sent(url, path_and_query.partition("?")[0], (request.headers.get("Host", netloc),), netloc)
    return url
