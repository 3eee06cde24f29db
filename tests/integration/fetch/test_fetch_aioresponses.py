"""Every row of the table of outcomes without a socket: what aiohttp is made to return or raise."""

from __future__ import annotations

import gzip
import ssl
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aioresponses import aioresponses
from yarl import URL

from politesse import Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, Validators
from politesse.testing import ManualClock
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Iterator

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = Origin.of("https://example.com/")
ROBOTS = "https://example.com/robots.txt"
FILE = b"User-agent: *\nDisallow: /private\n"
KEY = ConnectionKey("example.com", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)

SUCCESSFUL = AccessResult.SUCCESSFUL
UNAVAILABLE = AccessResult.UNAVAILABLE
UNREACHABLE = AccessResult.UNREACHABLE
TOO_MANY_REQUESTS = AccessResult.TOO_MANY_REQUESTS

REASONS = {
    SUCCESSFUL: Reason.DISALLOW_RULE,
    UNAVAILABLE: Reason.UNAVAILABLE,
    UNREACHABLE: Reason.UNREACHABLE,
    TOO_MANY_REQUESTS: Reason.TOO_MANY_REQUESTS,
}


class Response(aiohttp.ClientResponse):
    """aioresponses 0.7.9 does not know the argument ``stream_writer`` of aiohttp 3.14."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, stream_writer=Mock(output_size=0), **kwargs)


@dataclass(frozen=True)
class Hop:
    """One answer of aiohttp's: a response, or what it raises."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    exception: Exception | None = None


@dataclass(frozen=True)
class Row:
    """The hops of a fetch by URL, and what they come to."""

    name: str
    hops: dict[str, Hop]
    result: AccessResult
    status: int | None
    fault: FaultKind | None = None


def _row(name: str, hop: Hop, result: AccessResult, fault: FaultKind | None = None) -> Row:
    return Row(name, {ROBOTS: hop}, result, None if hop.exception is not None else hop.status, fault)


def _raises(name: str, exception: Exception, fault: FaultKind) -> Row:
    return _row(name, Hop(exception=exception), UNREACHABLE, fault)


def _to(location: str, status: int = 301) -> Hop:
    return Hop(status, headers={"Location": location})


def _chain(redirects: int) -> dict[str, Hop]:
    urls = [ROBOTS, *(f"https://host{number}.example/r" for number in range(1, redirects + 1))]
    return {url: _to(urls[number + 1]) if number < redirects else Hop(200, FILE) for number, url in enumerate(urls)}


ROWS = [
    *(_row(f"{status}", Hop(status, FILE), SUCCESSFUL) for status in (200, 201, 203, 299)),
    _row("200 gzip", Hop(200, gzip.compress(FILE), {"Content-Encoding": "gzip"}), SUCCESSFUL),
    _row("200 deflate", Hop(200, zlib.compress(FILE), {"Content-Encoding": "deflate"}), SUCCESSFUL),
    *(
        _row(f"{status}", Hop(status, FILE), UNAVAILABLE)
        for status in (400, 401, 402, 403, 404, 405, 410, 418, 451, 499)
    ),
    _row("429", Hop(429), TOO_MANY_REQUESTS),
    *(_row(f"{status}", Hop(status, FILE), UNREACHABLE) for status in (500, 501, 502, 503, 504, 599)),
    *(_row(f"{status}", Hop(status, FILE), UNREACHABLE) for status in (206, 300, 304, 305, 306, 600, 999)),
    _row(
        "truncated gzip",
        Hop(200, gzip.compress(FILE)[:-9], {"Content-Encoding": "gzip"}),
        UNREACHABLE,
        FaultKind.TRUNCATED,
    ),
    _row("broken gzip", Hop(200, FILE, {"Content-Encoding": "gzip"}), UNREACHABLE, FaultKind.ENCODING),
    _row("brotli", Hop(200, FILE, {"Content-Encoding": "br"}), UNREACHABLE, FaultKind.ENCODING),
    _raises("timeout", TimeoutError(), FaultKind.TIMEOUT),
    _raises("connect timeout", aiohttp.ConnectionTimeoutError(), FaultKind.TIMEOUT),
    _raises("read timeout", aiohttp.SocketTimeoutError(), FaultKind.TIMEOUT),
    _raises("no such name", aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), FaultKind.DNS),
    _raises("refused", aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "refused")), FaultKind.CONNECT),
    _raises("disconnected", aiohttp.ServerDisconnectedError(), FaultKind.CONNECT),
    _raises("reset", aiohttp.ClientOSError(104, "reset"), FaultKind.CONNECT),
    _raises("network down", OSError(101, "unreachable"), FaultKind.CONNECT),
    _raises("handshake", aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "handshake")), FaultKind.TLS),
    _raises(
        "certificate",
        aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError(1, "expired")),
        FaultKind.TLS,
    ),
    _raises("truncated", aiohttp.ClientPayloadError("not enough data"), FaultKind.TRUNCATED),
    _raises("not HTTP", aiohttp.ClientResponseError(Mock(), (), status=400, message="garbage"), FaultKind.PROTOCOL),
    _raises("proxy", aiohttp.ClientHttpProxyError(Mock(), (), status=407, message="who?"), FaultKind.PROTOCOL),
    *(
        Row(f"{status}", {ROBOTS: _to("/r", status), "https://example.com/r": Hop(200, FILE)}, SUCCESSFUL, 200)
        for status in (301, 302, 303, 307, 308)
    ),
    Row("five redirects", _chain(5), SUCCESSFUL, 200),
    Row("six redirects", _chain(6), UNAVAILABLE, 301, FaultKind.REDIRECT_LIMIT),
    Row("loop", {ROBOTS: _to(ROBOTS)}, UNAVAILABLE, 301, FaultKind.REDIRECT_LIMIT),
    Row("redirect to 404", {ROBOTS: _to("/r"), "https://example.com/r": Hop(404)}, UNAVAILABLE, 404),
    Row("redirect to 503", {ROBOTS: _to("/r"), "https://example.com/r": Hop(503)}, UNREACHABLE, 503),
    *(
        Row(f"redirect to {location!r}", {ROBOTS: _to(location)}, UNREACHABLE, 301, FaultKind.REDIRECT_TARGET)
        for location in ("", "ftp://example.com/r", "file:///etc/passwd", "https://a:99999/", "https://[")
    ),
    Row(
        "redirect from a public to a private literal",
        {"https://93.184.216.34/robots.txt": _to("http://169.254.169.254/latest")},
        UNREACHABLE,
        None,
        FaultKind.REDIRECT_TARGET,
    ),
]


@pytest.fixture
def mocked() -> Iterator[aioresponses]:
    with aioresponses() as mock:
        yield mock


def _serve(mocked: aioresponses, hops: dict[str, Hop]) -> Origin:
    """Make aiohttp answer as the hops say; return the origin of the first."""
    for url, hop in hops.items():
        mocked.get(
            url,
            status=hop.status,
            body=hop.body,
            headers=hop.headers,
            exception=hop.exception,
            content_type="text/plain",
            response_class=Response,
        )
    return Origin.of(next(iter(hops)))


@pytest.mark.clause("RFC 9309 2.3.1")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_the_fetcher_returns_what_the_outcome_table_says(row: Row, mocked: aioresponses) -> None:
    origin = _serve(mocked, row.hops)
    result = await AiohttpFetcher(UA).fetch(FetchRequest(origin, 5))
    assert result.status == row.status
    if row.fault is None:
        assert isinstance(result, FetchResponse)
        assert result.body == (FILE if 200 <= result.status <= 299 else b"")
    else:
        assert isinstance(result, FetchFault)
        assert result.kind is row.fault
        assert result.detail != ""
    assert sum(map(len, mocked.requests.values())) <= 6


@pytest.mark.clause("RFC 9309 2.3.1")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_the_gatekeeper_decides_what_the_outcome_table_says(row: Row, mocked: aioresponses) -> None:
    origin = _serve(mocked, row.hops)
    async with Gatekeeper(UA, clock=ManualClock()) as gate:
        private = await gate.check(f"{origin}/private")
        public = await gate.check(f"{origin}/public")
        robots = await gate.check(origin.robots_url)
    closed = row.result in {UNREACHABLE, TOO_MANY_REQUESTS}
    assert private.reason is REASONS[row.result]
    assert private.allowed == (row.result is UNAVAILABLE)
    assert public.allowed == (not closed)
    assert robots.allowed
    assert private.source is not None
    assert private.source.status == row.status
    assert (private.not_before is not None) == closed


async def test_no_request_follows_redirects_by_itself_or_hands_on_cookies(mocked: aioresponses) -> None:
    _serve(mocked, {ROBOTS: _to("/r"), "https://example.com/r": Hop(200, FILE)})
    await AiohttpFetcher(UA).fetch(FetchRequest(SITE, 5))
    calls = [call for calls in mocked.requests.values() for call in calls]
    assert len(calls) == 2
    for call in calls:
        assert call.kwargs["allow_redirects"] is False
        assert call.kwargs["headers"]["User-Agent"] == UA
        assert "cookies" not in call.kwargs
        assert "auth" not in call.kwargs


@pytest.mark.clause("RFC 9111 4.3.1")
async def test_a_304_to_a_conditional_request_is_conditional(mocked: aioresponses) -> None:
    _serve(mocked, {ROBOTS: Hop(304, headers={"ETag": '"y"'})})
    result = await AiohttpFetcher(UA).fetch(FetchRequest(SITE, 5, Validators(ROBOTS, '"x"', "then")))
    assert result == FetchResponse(
        304, ROBOTS, {"content-type": "text/plain", "etag": '"y"'}, b"", truncated=False, conditional=True
    )
    (call,) = mocked.requests["GET", URL(ROBOTS)]
    assert call.kwargs["headers"]["If-None-Match"] == '"x"'
    assert call.kwargs["headers"]["If-Modified-Since"] == "then"
