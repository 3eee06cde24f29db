"""Fetches robots.txt and other files with aiohttp: one request, limited in time and size; returns faults as values.

Theory of operation. All fetches share a client session and its connector, which may be a borrowed connector. They share
no state: a fetch uses no cookies, no credentials and no connection of another fetch. A redirect is a
fault that names its target: the gate follows it with another fetch. The AddressGuard of a fetch checks its addresses.
The bounds are:

=============  ==================================================  ==================================================
phase          bound                                               where
=============  ==================================================  ==================================================
DNS            ``connect_timeout_s``                               the guard; ClientTimeout if another resolver is used
connect, TLS   ``connect_timeout_s``                               ClientTimeout
thread         256 lookups at once; the wait for a thread is part  ``_addresses``
               of ``total_timeout_s`` only
head           64 KiB, interim responses included                  Wire (and aiohttp's own limits)
body           ``max_body_bytes`` decoded; eight times as many     BoundedBody; Wire
               octets on the wire
dead body      a check of the connection every second              ``_read_some``
fetch          ``total_timeout_s``                                 ``fetch``
=============  ==================================================  ==================================================

Every fault of a server becomes a FetchFault. Only a cancellation or a bug raises an exception.

The session, one for each event loop, keeps no state of single fetches. A context variable holds the guard of the
fetch, through which the connector resolves names. Each fetch has its own time limits, and leaves no cookie and no open
connection behind.

A Wire observes the end of a connection and the octets that came over it, which aiohttp does not
report. For aiohttp, a body with neither Content-Length nor chunks is complete when the connection is lost for any
reason, including a reset or the closing of the session. asyncio passes this reason only to the protocol of the
transport. So a Wire stands between the transport and aiohttp's protocol while a response is read, and forwards every
call. A connection of a borrowed connector gets a Wire, too. If no Wire can be installed, such a body counts as
truncated.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import BadHttpMessage
from yarl import URL

from politesse._base.checks import check_types
from politesse._base.constants import SUCCESSFUL
from politesse._base.text import without_tls
from politesse._http.body import BodyError, BoundedBody
from politesse._http.fields import joined_fields
from politesse._http.redirects import REDIRECTS, conditions_of, fault_at, unfollowed
from politesse.errors import ConfigurationError
from politesse.fetch._addresses import GUARD, AddressGuard, CurrentGuard, SystemResolver, resolver_of
from politesse.fetch._aiohttp_internals import never_repeat, verifies
from politesse.fetch._options import FetchOptions
from politesse.ports import FaultKind, FetchRequest, FetchResponse, FetchResult, Resolver

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

MAX_HEAD_BYTES: Final = 64 * 1024
"""The longest head of a response in octets, including the status line."""

MAX_HEADERS: Final = MAX_HEAD_BYTES // len(b"a:\r\n")
"""More header lines than fit into such a head."""

_UNREAD_BYTES: Final = 1024 * 1024  # limits the octets that arrive before the body is read

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_INTERIM: Final = re.compile(rb"\s*HTTP/\d\.\d 1(?!01)\d\d\b")  # RFC 9110 15.2.2: no other head follows a 101


class Wire(asyncio.Protocol):
    """A protocol between a transport and the protocol of aiohttp.

    Args:
        protocol: the protocol of aiohttp.

    Attributes:
        most_bytes: how many octets may come after the head; more octets abort the connection. This bounds chunk
            extensions and trailers; the reader bounds the body itself.
    """

    def __init__(self, protocol: ResponseHandler) -> None:
        self.most_bytes = _UNREAD_BYTES
        self._protocol = protocol
        self._transport = transport = protocol.transport
        self._tls: ssl.SSLObject | None = None
        self._head: bytearray | None = bytearray()  # None after the end of the head
        self._finished = False
        if transport is not None:
            self._tls = transport.get_extra_info("ssl_object")
            # the transport cannot change its protocol, so the wire never sees the end
            with suppress(NotImplementedError):
                transport.set_protocol(self)

    def detach(self) -> None:
        """Reconnect the transport and aiohttp, unless another wire has been installed."""
        transport = self._transport  # a transport that is being closed needs no protocol
        if transport is not None and not transport.is_closing() and transport.get_protocol() is self:
            transport.set_protocol(self._protocol)

    @property
    def ended_cleanly(self) -> bool:
        """Whether the server closed the connection in an orderly way: with a FIN, and with TLS after a close_notify.

        RFC 9112 9.8: without a valid closure alert, a body that only the close delimits is incomplete.
        """
        return self._finished and (self._tls is None or _is_notified(self._tls))

    @property
    def peer(self) -> str | None:
        """The address of the peer; None if it is not an Internet address."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else None

    def data_received(self, data: bytes) -> None:
        """Forward data, within the bounds."""
        if self._head is not None:
            if self._is_too_long(self._head, data):
                self._protocol.set_exception(BadHttpMessage(f"a head of more than {MAX_HEAD_BYTES} octets"))
                self._abort()
                return
        else:
            self.most_bytes -= len(data)
            if self.most_bytes < 0:
                self._abort()
                return
        self._protocol.data_received(data)

    def eof_received(self) -> None:
        """Record that the data ended in an orderly way, and forward the call."""
        self._finished = True
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the call, which ends a body that has neither a length nor chunks."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward the call."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward the call."""
        self._protocol.resume_writing()

    def _is_too_long(self, head: bytearray, data: bytes) -> bool:
        """Append data to the current head and find its end; return whether a head exceeds the limit."""
        unseen = max(len(head) - len(b"\n\r"), 0)
        head += data
        while (end := _HEAD_END.search(head, unseen)) is not None:
            if end.end() > MAX_HEAD_BYTES:
                return True
            # RFC 9112 2.2: empty lines may stand before a head.
            if head[: end.end()].strip() and _INTERIM.match(head) is None:
                self._head = None
                return False
            del head[: end.end()]
            unseen = 0
        return len(head) > MAX_HEAD_BYTES

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class WatchedResponse(aiohttp.ClientResponse):
    """A response over an observed connection.

    Attributes:
        wire: the observer of the connection; None before the response has started.
    """

    wire: Wire | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Observe the connection before the first octet of the response."""
        if connection.protocol is not None:
            self.wire = Wire(connection.protocol)
        return await super().start(connection)


def _is_notified(tls: ssl.SSLObject) -> bool:
    """Whether the server sent a close_notify; after a FIN alone, only the transport reports an end, not ``read``."""
    try:
        return tls.read(1) == b""
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


def _detach(clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession]) -> None:
    for client in clients.values():
        if not client.closed:
            client.detach()


_INSPECT_S: Final = 1.0
# A response may take 8 octets on the wire for each octet of ``max_body_bytes``. A chunk of 1 octet takes 6 octets on
# the wire; the other 2 are for chunk extensions and trailers.
_OVERHEAD: Final = 8
_LOCALHOST: Final = re.compile(r"(?:.*\.)?localhost\.?", re.IGNORECASE)  # RFC 6761 6.3: these names are always loopback


class AiohttpFetcher:
    """The default Fetcher of politesse. It makes one hop, and reports the target of a redirect.

    Fetches share no state: no cookies, no netrc, no middlewares and no credentials. They share no connections, because
    the address of a connection was checked for one fetch only.

    A body with neither Content-Length nor chunks is complete only if the server closes the connection in an orderly
    way: without a reset, and with TLS after a close_notify (RFC 9112 9.8). A proxy that speaks plain HTTP may turn a
    reset into a FIN.

    >>> import asyncio
    >>> from politesse import Gatekeeper
    >>> agent = "ExampleBot/1.0 (+https://example.com/bot)"
    >>> async def crawl():
    ...     fetcher = AiohttpFetcher(agent, FetchOptions(connect_timeout_s=5))
    ...     async with Gatekeeper(agent, fetcher=fetcher) as gate:
    ...         return gate.statistics().fetches
    >>> asyncio.run(crawl())
    0

    Args:
        user_agent: the User-Agent header.
        options: see FetchOptions.
        session: an aiohttp session. The fetcher uses only the connector of the session, with the local address, proxy
            and TLS settings of that connector. By default each event loop has a connector that checks addresses.
        resolver: finds addresses. With a borrowed connector, the resolver only checks redirects, and the default is the
            resolver of that connector.

    Attributes:
        options: the options; a gate reads ``max_body_bytes`` and ``private_addresses`` of its fetcher.

    Raises:
        ConfigurationError: the session does not verify certificates, or conflicts with the options.
    """

    def __init__(
        self,
        user_agent: str,
        options: FetchOptions | None = None,
        *,
        session: aiohttp.ClientSession | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        check_types({"user_agent": (user_agent, str)}, required=True)
        check_types({"options": (options, FetchOptions), "session": (session, aiohttp.ClientSession)})
        self.options: FetchOptions = options or FetchOptions()
        self._session = session
        if session is not None and not verifies(session.connector):
            raise ConfigurationError(
                "session: its connector does not verify certificates, so robots.txt could be forged"
            )
        if session is not None and self.options.private_addresses == "deny":
            raise ConfigurationError(
                "private_addresses='deny': the addresses of a borrowed connector cannot be checked"
            )
        self._resolver = resolver or resolver_of(None if session is None else session.connector)
        # Whether a foreign resolver finds the addresses.
        self._unguarded = session is not None or self.options.proxy is not None
        connect_s = self.options.connect_timeout_s
        # A foreign resolver has no time limit of its own, so the time limit ``connect`` includes the lookup. Our guard
        # limits each lookup itself, and does not count the wait for a thread.
        limits = {"connect": connect_s} if self._unguarded else {"sock_connect": connect_s}
        self._timeout = aiohttp.ClientTimeout(total=None, **limits)
        headers = {
            "User-Agent": user_agent,
            "Accept": "text/plain, */*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
        }
        if self.options.from_address is not None:
            headers["From"] = self.options.from_address  # RFC 9110 10.1.2
        self._headers = headers
        self._clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        # Prevents aiohttp's warning of an unclosed session. Between fetches our session has no connection.
        weakref.finalize(self, _detach, self._clients)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Make one request. Raises no exception except for a cancellation."""
        options = self.options
        guard = AddressGuard(
            self._resolver,
            blind=self._unguarded,
            private_addresses=options.private_addresses,
            lookup_s=options.connect_timeout_s,
        )
        if self._session is not None and (self._session.connector is None or self._session.connector.closed):
            return fault_at(request.url, FaultKind.INTERNAL, "the session that lends its connector is closed")
        if request.redirected:
            guard.after_public()
        GUARD.set(guard)
        headers = conditions_of(request.validators, request.url) if request.validators is not None else {}
        try:
            url = URL(request.url, encoded=True)
            if not guard.permits_host(url.raw_host or ""):
                return fault_at(request.url, guard.kind, guard.refusal)
            async with asyncio.timeout(options.total_timeout_s):
                if self._unguarded and request.redirected and (refusal := await self._name_refusal(guard, url)):
                    return fault_at(request.url, FaultKind.REDIRECT_TARGET, refusal)
                async with self._client().get(
                    url,
                    headers={**headers, **(request.signature or {})},
                    allow_redirects=False,
                    proxy=options.proxy,
                    ssl=options.ssl_context or True,
                    timeout=self._timeout,
                ) as response:
                    return await self._result(request, response, guard, is_conditional=bool(headers))
        except (OSError, ValueError, aiohttp.ClientError, HttpProcessingError) as error:
            detail = guard.refusal or without_tls(str(error)) or type(error).__name__
            return fault_at(request.url, _kind(error, guard), detail)

    async def aclose(self) -> None:
        """Close all connections of the running event loop. A later fetch opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _client(self) -> aiohttp.ClientSession:
        """Return our session of the running event loop; make it at the first fetch, and again after ``aclose``."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(ended).detach()
            client = self._clients[loop] = self._made_client()
        return client

    def _made_client(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector | None
        if self._session is not None:
            connector = self._session.connector
        else:
            connector = aiohttp.TCPConnector(
                # A proxy may have a private address, and resolves the names of sites itself.
                resolver=(
                    CurrentGuard()
                    if self.options.proxy is None
                    else AddressGuard(SystemResolver(), private_addresses="allow")
                ),
                use_dns_cache=False,
                force_close=True,
                limit=0,  # the gate has its own limits, so a fetch must not wait for another fetch here
                ssl=self.options.ssl_context or True,
            )
        client = aiohttp.ClientSession(
            connector=connector,
            connector_owner=self._session is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            trust_env=False,
            auto_decompress=False,  # aiohttp would accept a truncated gzip body as complete
            middlewares=(),
            response_class=WatchedResponse,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        if self._session is None:
            # aiohttp would repeat a request if the server closes the connection without a response. A borrowed
            # connector needs the repetition, because the server may have closed a connection that the connector reuses.
            never_repeat(client)
        return client

    async def _name_refusal(self, guard: AddressGuard, url: URL) -> str:
        """Return why to refuse a redirect to a URL whose host a foreign resolver looks up; empty to permit it."""
        host = url.raw_host or ""
        if self.options.unguarded_redirects:
            return ""
        if self.options.proxy is not None:
            # A proxy may know names that this machine does not know, so only names that need no lookup are refused.
            private = guard.public_only and _LOCALHOST.fullmatch(host) is not None
            return f"a redirect to {host}, which is private; see unguarded_redirects" if private else ""
        try:
            permitted = await guard.permits_name(host, url.port or 0)
        except OSError as error:
            problem = str(error) or "it takes too long"
            return f"a redirect to {host}, whose address cannot be checked ({problem}); see unguarded_redirects"
        return "" if permitted else f"{guard.refusal}: {host}; see unguarded_redirects"

    async def _result(
        self, request: FetchRequest, response: aiohttp.ClientResponse, guard: AddressGuard, *, is_conditional: bool
    ) -> FetchResult:
        """Return the answer, with its body, or the redirect."""
        status, url = response.status, request.url
        # A mock of aiohttp, such as aioresponses, has no observer of the connection.
        wire = response.wire if isinstance(response, WatchedResponse) else None
        try:
            if status in REDIRECTS:
                if self._session is not None and self.options.proxy is None and wire is not None and wire.peer:
                    # A redirect from a private address may lead to another private address.
                    await guard.was_at(wire.peer, response.url.raw_host or "", response.url.port or 0)
                fault = unfollowed(request, status, response.headers.get("Location", ""))
                return replace(fault, private=guard.private)
            headers = joined_fields(response.headers)
            if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED and self.options.proxy is not None:
                raise aiohttp.ClientConnectionError("the proxy requires credentials")
            if status not in SUCCESSFUL:  # only a successful response has a file to read
                return FetchResponse(status, url, headers, conditional=is_conditional)
            try:
                body, truncated = await _read(response, headers, self.options.max_body_bytes)
            except BodyError as error:
                return fault_at(url, error.kind, error.detail, status)
            except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
                return fault_at(url, FaultKind.TRUNCATED, f"the body broke off: {error}", status)
            return FetchResponse(status, url, headers, body, truncated, is_conditional)
        finally:
            if wire is not None and self._session is not None:  # our own connector closes the connection
                wire.detach()


async def _read(response: aiohttp.ClientResponse, headers: Mapping[str, str], limit: int) -> tuple[bytes, bool]:
    coding = headers.get("transfer-encoding", "").strip().lower()
    if coding not in {"", "chunked"}:
        raise BodyError(FaultKind.ENCODING, f"the transfer encoding {coding!r:.50}, which was not requested")
    wire = response.wire if isinstance(response, WatchedResponse) else None
    if wire is not None:
        wire.most_bytes = _OVERHEAD * limit
    content, body = response.content, None
    # The octets that are here need no wait.
    while octets := content.read_nowait() or (b"" if content.is_eof() else await _read_some(response)):
        body = body or BoundedBody(headers.get("content-encoding", ""), limit)
        if not body.feed(octets):
            response.close()  # the rest of the body is not needed
            return body.finish()
    # RFC 9112 6.3: a body with neither a length nor chunks extends to the close of the connection. RFC 9112 8: such a
    # body is incomplete if the close is not orderly.
    delimited = response.status == HTTPStatus.NO_CONTENT or coding == "chunked" or "content-length" in headers
    if not delimited and isinstance(response, WatchedResponse) and (wire is None or not wire.ended_cleanly):
        raise BodyError(FaultKind.TRUNCATED, "the connection broke, and nothing says how long the body is")
    return (b"", False) if body is None else body.finish()


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """Wait for the next octets of the body; return nothing at its end.

    After a broken chunk aiohttp 3.14 closes the connection without waking the reader of the body. Checking the
    connection every second avoids waiting for the total timeout.
    """
    while True:
        try:
            async with asyncio.timeout(_INSPECT_S):
                return await response.content.readany()
        except TimeoutError:
            connection = response.connection
            if connection is None or connection.transport is None or connection.transport.is_closing():
                raise BodyError(FaultKind.TRUNCATED, "the connection closed in mid-body") from None


def _kind(error: Exception, guard: AddressGuard) -> FaultKind:
    """Return the FaultKind of an exception of aiohttp; specific exceptions are checked first."""
    if guard.refusal:
        return guard.kind
    return next((kind for kind, types in _KINDS if isinstance(error, types)), FaultKind.CONNECT)


_KINDS: Final[tuple[tuple[FaultKind, tuple[type[Exception], ...]], ...]] = (
    (FaultKind.TIMEOUT, (TimeoutError,)),
    (FaultKind.DNS, (aiohttp.ClientConnectorDNSError,)),
    (FaultKind.TLS, (ssl.SSLError,)),
    (FaultKind.PROTOCOL, (aiohttp.ClientResponseError, HttpProcessingError, ValueError)),
    (FaultKind.TRUNCATED, (aiohttp.ClientPayloadError,)),
)
