"""Fetching robots.txt and its like with aiohttp: hop by hop, each checked, everything bounded, faults as values."""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from politesse._http.body import BodyError, BoundedBody
from politesse._http.redirects import REDIRECTS, Hops
from politesse.errors import ConfigurationError
from politesse.fetch.addresses import PRIVATE_ADDRESSES, AddressGuard, PrivateAddresses, SystemResolver, is_literal
from politesse.fetch.wire import MAX_HEAD_BYTES, MAX_HEADERS, WatchedResponse, Wire
from politesse.ports import MAX_BODY_BYTES, FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from politesse.ports import Resolver

MIN_BODY_BYTES: Final = 500 * 1024
"""RFC 9309 2.5: a parsing limit must be at least 500 KiB."""

_INSPECT_S: Final = 1.0
_OVERHEAD: Final = 8  # a chunk of one octet takes six; chunk extensions and trailers are bounded by what is left
_LOCALHOST: Final = re.compile(r"(?:.*\.)?localhost\.?", re.IGNORECASE)  # RFC 6761 6.3: always loopback
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How robots.txt is fetched.

    Attributes:
        connect_timeout_s: to find the address of a host and connect to it, TLS included; positive. Waiting for a
            thread to find addresses with does not count (see SystemResolver).
        total_timeout_s: for one fetch with all its redirects; positive.
        max_body_bytes: how much of a decoded body is read; 512,000 to 67,108,864.
        from_address: an e-mail address for the From header, or None.
        proxy: the URL of an HTTP proxy, credentials included if it needs any, or None.
        ssl_context: to verify servers with, or None for the system's authorities. Verification cannot be
            switched off: whoever could forge robots.txt could open any site.
        private_addresses: ``"redirects"`` refuses a redirect from a public address to a private one; ``"deny"``
            connects to no private address at all, so that no page there is allowed; ``"allow"`` refuses none.
            Private are loopback, link-local, multicast, unspecified and all others that not everybody can reach.
        unguarded_redirects: whether to follow redirects to other hosts whatever their names stand for, over a
            borrowed connector and behind a proxy, which look names up themselves. Else, over a borrowed connector,
            such a name is followed where our own resolver finds public addresses for it and no others; behind a
            proxy every name is, but ``localhost``. An address in a URL is judged all the same.
    """

    connect_timeout_s: float = 10.0
    total_timeout_s: float = 30.0
    max_body_bytes: int = MIN_BODY_BYTES
    from_address: str | None = None
    proxy: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    private_addresses: PrivateAddresses = "redirects"
    unguarded_redirects: bool = False

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "total_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: give a positive number of seconds")
        if not MIN_BODY_BYTES <= self.max_body_bytes <= MAX_BODY_BYTES:
            raise ConfigurationError(
                f"max_body_bytes={self.max_body_bytes}: give {MIN_BODY_BYTES} (RFC 9309 2.5) to {MAX_BODY_BYTES}"
            )
        if self.from_address is not None and _HEADER_VALUE.fullmatch(self.from_address) is None:
            raise ConfigurationError(f"from_address={self.from_address!r}: give one line of printable ASCII")
        if self.ssl_context is not None and self.ssl_context.verify_mode is not ssl.CERT_REQUIRED:
            raise ConfigurationError("ssl_context: it does not verify certificates; set verify_mode=ssl.CERT_REQUIRED")
        if self.private_addresses not in PRIVATE_ADDRESSES:
            raise ConfigurationError(f"private_addresses={self.private_addresses!r}: give one of {PRIVATE_ADDRESSES}")
        if self.proxy is not None and not _is_proxy(self.proxy):
            raise ConfigurationError("proxy: give the http or https URL of a proxy")
        if self.proxy is not None and self.private_addresses == "deny":
            raise ConfigurationError("private_addresses='deny': behind a proxy no address can be looked at")


def _is_proxy(proxy: str) -> bool:
    """Whether it is the URL of a proxy; nobody repeats it where it is not, for it may hold a password."""
    try:
        url = URL(proxy)
    except ValueError:
        return False
    return url.scheme in {"http", "https"} and bool(url.host)


class AiohttpFetcher:
    """The Fetcher that politesse uses unless it is given another.

    Each fetch has a client session of its own: no cookies, no netrc, no middlewares, no credentials, no connection that
    another fetch opened, and so none whose address was judged for another purpose.

    A body without Content-Length and without chunks is complete only if the server ends its connection in an orderly
    way: not with a reset, and over TLS with a close_notify before the FIN (RFC 9112 9.8). Not seen is what a proxy
    makes of such an end: one that speaks plain HTTP with us may turn a reset into a FIN.

    Args:
        user_agent: the User-Agent header.
        options: see FetchOptions.
        session: an aiohttp session whose connector to borrow, for its local address, proxy or TLS settings; nothing
            else of it is used. Without it every fetch makes a connector that looks at addresses.
        resolver: to find addresses with; over a borrowed connector only those of hosts that redirects lead to.
    """

    def __init__(
        self,
        user_agent: str,
        options: FetchOptions | None = None,
        *,
        session: aiohttp.ClientSession | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._options = options or FetchOptions()
        self._session = session
        if session is not None and not _verifies(session.connector):
            raise ConfigurationError(
                "session: its connector does not verify certificates, and robots.txt could be forged"
            )
        if session is not None and self._options.private_addresses == "deny":
            raise ConfigurationError("private_addresses='deny': over a borrowed connector no address can be looked at")
        self._resolver = resolver or SystemResolver()
        self._proxy_guard = AddressGuard(SystemResolver(), private_addresses="allow")
        self._headers = {
            "User-Agent": user_agent,
            "Accept": "text/plain, */*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
        }
        if self._options.from_address is not None:
            self._headers["From"] = self._options.from_address  # RFC 9110 10.1.2

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Ask once, redirects included; never raises but for cancellation."""
        guard = AddressGuard(self._resolver, blind=self._unguarded, private_addresses=self._options.private_addresses)
        hops = Hops(request)
        if self._session is not None and (self._session.connector is None or self._session.connector.closed):
            return hops.fault(FaultKind.INTERNAL, "the session that lends its connector is closed")
        if request.redirected:
            guard.after_public()
        try:
            async with asyncio.timeout(self._options.total_timeout_s), self._client(guard) as client:
                while (answer := await self._hop(client, guard, hops)) is None:
                    guard.next_hop()
                return answer
        except (OSError, ValueError, aiohttp.ClientError, HttpProcessingError) as error:
            return hops.fault(_kind(error, guard), guard.refusal or str(error) or type(error).__name__)

    async def aclose(self) -> None:
        """Nothing outlives a fetch."""

    @property
    def _unguarded(self) -> bool:
        """Whether somebody else's resolver finds the addresses."""
        return self._session is not None or self._options.proxy is not None

    def _client(self, guard: AddressGuard) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector | None
        if self._session is not None:
            connector = self._session.connector
        else:
            connector = aiohttp.TCPConnector(
                # An own proxy may stand at a private address, and resolves the names of the sites itself.
                resolver=guard if self._options.proxy is None else self._proxy_guard,
                use_dns_cache=False,
                force_close=True,
                ssl=self._options.ssl_context or True,
            )
        client = aiohttp.ClientSession(
            connector=connector,
            connector_owner=self._session is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,  # a cut-off gzip body would pass for a whole one
            middlewares=(),
            trace_configs=[_stops_limit()],
            response_class=WatchedResponse,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        if self._session is None:
            # Else aiohttp asks twice where a server closes without an answer. A borrowed connector reuses connections,
            # and one that the server has closed meanwhile is worth the second try.
            client._retry_connection = False  # noqa: SLF001 - as aiohttp's own TestClient does
        return client

    async def _hop(self, client: aiohttp.ClientSession, guard: AddressGuard, hops: Hops) -> FetchResult | None:
        """Make one request; None where its redirect is to be followed."""
        url = URL(hops.url, encoded=True)
        host, port, connect_s = url.raw_host or "", url.port or 0, self._options.connect_timeout_s
        looks_up = not self._unguarded and not is_literal(host)
        if not guard.permits_host(host):
            return hops.fault(guard.kind, guard.refusal)
        if self._unguarded and (hops.request.redirected or host != URL(hops.request.url, encoded=True).raw_host):
            refusal = await self._name_refusal(guard, host, port)
            if refusal:
                return hops.fault(FaultKind.REDIRECT_TARGET, refusal)
        conditions = hops.conditions
        conditional = bool(conditions)
        async with asyncio.timeout(None) as limit:
            guard.is_to_connect(limit, connect_s)
            async with client.get(
                url,
                headers=self._headers | conditions,
                allow_redirects=False,
                proxy=self._options.proxy,
                ssl=self._options.ssl_context or True,
                timeout=aiohttp.ClientTimeout(total=None, connect=None if looks_up else connect_s),
                trace_request_ctx=limit,
            ) as response:
                try:
                    if response.status in REDIRECTS and self._session is not None and self._options.proxy is None:
                        await self._look_back(response, guard, host, port)
                    return await self._result(response, guard, hops, conditional=conditional)
                finally:
                    if (wire := _wire(response)) is not None:
                        wire.detach()

    async def _name_refusal(self, guard: AddressGuard, host: str, port: int) -> str:
        """Say why a redirect to ``host``, which somebody else looks up, is not followed; nothing where it is."""
        if self._options.unguarded_redirects:
            return ""
        if self._options.proxy is not None:
            # It may know names that this machine does not, so that only those are refused that need no lookup.
            private = guard.public_only and _LOCALHOST.fullmatch(host) is not None
            return f"a redirect to {host}, which is private; see unguarded_redirects" if private else ""
        try:
            permitted = await guard.permits_name(host, port, self._options.connect_timeout_s)
        except OSError as error:
            problem = str(error) or "it takes too long"
            return f"a redirect to {host}, whose address cannot be checked ({problem}); see unguarded_redirects"
        return "" if permitted else f"{guard.refusal}: {host}; see unguarded_redirects"

    async def _look_back(self, response: aiohttp.ClientResponse, guard: AddressGuard, host: str, port: int) -> None:
        """Learn whether a redirect over a borrowed connector comes from a private address: it may lead to another."""
        peer = None if (wire := _wire(response)) is None else wire.peer
        if peer is not None:
            await guard.was_at(peer, host, port, self._options.connect_timeout_s)

    async def _result(
        self, response: aiohttp.ClientResponse, guard: AddressGuard, hops: Hops, *, conditional: bool
    ) -> FetchResult | None:
        """Return what the answer of one hop comes to; None where its redirect is to be followed."""
        if response.status in REDIRECTS:
            return self._redirect(response, hops, guard)
        response_headers = _headers(response)
        if response.status == 407 and self._options.proxy is not None:  # noqa: PLR2004 - that of the proxy
            raise aiohttp.ClientConnectionError("the proxy asks for credentials")
        if not 200 <= response.status <= 299:  # noqa: PLR2004 - only a file has a body worth reading
            return FetchResponse(response.status, hops.url, response_headers, conditional=conditional)
        return await self._file(response, response_headers, hops, conditional=conditional)

    async def _file(
        self, response: aiohttp.ClientResponse, headers: Mapping[str, str], hops: Hops, *, conditional: bool
    ) -> FetchResult:
        try:
            body, truncated = await _read(response, self._options.max_body_bytes)
        except BodyError as error:
            return hops.fault(error.kind, error.detail, response.status)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            return hops.fault(FaultKind.TRUNCATED, f"the body broke off: {error}", response.status)
        return FetchResponse(response.status, hops.url, headers, body, truncated, conditional)

    def _redirect(self, response: aiohttp.ClientResponse, hops: Hops, guard: AddressGuard) -> FetchFault | None:
        """Move ``hops`` on to where the response points, or say why not."""
        target = hops.redirect(response.status, response.headers.get("Location", ""))
        if isinstance(target, FetchFault):
            return replace(target, private=guard.private)
        _, url = target
        hops.seen.append(url)
        return None


def _stops_limit() -> aiohttp.TraceConfig:
    """Have a connection that is made stop the limit for it, which is the context of its request."""

    async def connected(
        _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionCreateEndParams
    ) -> None:
        context.trace_request_ctx.reschedule(None)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    return trace


def _verifies(connector: aiohttp.BaseConnector | None) -> bool:
    # aiohttp tells of a connector's TLS settings nowhere else.
    setting = getattr(connector, "_ssl", True)
    return setting is not False and not (isinstance(setting, ssl.SSLContext) and setting.verify_mode is ssl.CERT_NONE)


def _headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    if "cache-control" in headers:
        headers["cache-control"] = ", ".join(response.headers.getall("Cache-Control"))  # RFC 9110 5.3
    return headers


async def _read(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    coding = ", ".join(response.headers.getall("Transfer-Encoding", ())).strip().lower()
    if coding not in {"", "chunked"}:
        raise BodyError(FaultKind.ENCODING, f"the transfer encoding {coding!r:.50}, which was not asked for")
    # RFC 9110 5.3: several lines are one list. Where there is no body there is nothing encoded.
    empty = response.status == 204 or response.headers.get("Content-Length") == "0"  # noqa: PLR2004
    encodings = () if empty else response.headers.getall("Content-Encoding", ())
    body = BoundedBody(", ".join(encodings), limit)
    wire = _wire(response)
    if wire is not None:
        wire.most_bytes = _OVERHEAD * limit
    while octets := await _read_some(response):
        if not body.feed(octets):
            response.close()  # what is still to come is not wanted
            return body.finish()
    # RFC 9112 6.3: where neither a length nor chunks delimit a body, the end of the connection does. RFC 9112 8: one
    # that is not orderly leaves the body incomplete.
    delimited = empty or coding == "chunked" or "Content-Length" in response.headers
    if not delimited and isinstance(response, WatchedResponse) and (wire is None or not wire.ended_cleanly):
        raise BodyError(FaultKind.TRUNCATED, "the connection broke, and nothing says how long the body is")
    return body.finish()


def _wire(response: aiohttp.ClientResponse) -> Wire | None:
    """Return what is seen of the connection; None where something in place of aiohttp answers, as aioresponses does."""
    return response.wire if isinstance(response, WatchedResponse) else None


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """Return the next octets of the body, none at its end.

    After a broken chunk aiohttp 3.14 closes the connection and tells nobody who waits for the body: so a look at the
    connection every second saves waiting out the total timeout.
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
    """Sort what aiohttp raises; the more special before the more general."""
    if guard.refusal:
        return guard.kind
    for kind, types in _KINDS:
        if isinstance(error, types):
            return kind
    return FaultKind.CONNECT


_KINDS: Final[tuple[tuple[FaultKind, tuple[type[Exception], ...]], ...]] = (
    (FaultKind.TIMEOUT, (TimeoutError,)),
    (FaultKind.DNS, (aiohttp.ClientConnectorDNSError,)),
    (FaultKind.TLS, (aiohttp.ClientSSLError, ssl.SSLError)),
    (FaultKind.PROTOCOL, (aiohttp.ClientResponseError, HttpProcessingError, ValueError)),
    (FaultKind.TRUNCATED, (aiohttp.ClientPayloadError,)),
)
