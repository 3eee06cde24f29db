"""Each exception of aiohttp is a fault of its kind, and a stand-in for aiohttp may respond."""

import ssl
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aioresponses import aioresponses

from politesse import Gatekeeper, Reason, Verdict
from politesse.ports import FaultKind
from politesse.testing import ManualClock

UA = "ExampleBot/1.0 (+https://example.com/bot)"
ROBOTS = "https://example.com/robots.txt"
KEY = ConnectionKey("example.com", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)


class Response(aiohttp.ClientResponse):
    """aioresponses 0.7.9 does not know the argument ``stream_writer`` of aiohttp 3.14."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, stream_writer=Mock(output_size=0), **kwargs)


@pytest.fixture
def mocked() -> Iterator[aioresponses]:
    with aioresponses() as mock:
        yield mock


async def _checked() -> Verdict:
    async with Gatekeeper(UA, clock=ManualClock()) as gate:
        return await gate.check("https://example.com/private")


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        (TimeoutError(), FaultKind.TIMEOUT),
        (aiohttp.ConnectionTimeoutError(), FaultKind.TIMEOUT),
        (aiohttp.SocketTimeoutError(), FaultKind.TIMEOUT),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), FaultKind.DNS),
        (aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "refused")), FaultKind.CONNECT),
        (aiohttp.ServerDisconnectedError(), FaultKind.CONNECT),
        (aiohttp.ClientOSError(104, "reset"), FaultKind.CONNECT),
        (OSError(101, "unreachable"), FaultKind.CONNECT),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "handshake")), FaultKind.TLS),
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError(1, "expired")), FaultKind.TLS),
        (aiohttp.ClientPayloadError("not enough data"), FaultKind.TRUNCATED),
        (aiohttp.ClientResponseError(Mock(), (), status=400, message="garbage"), FaultKind.PROTOCOL),
        (aiohttp.ClientHttpProxyError(Mock(), (), status=407, message="who?"), FaultKind.PROTOCOL),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_an_exception_of_aiohttp_closes_the_site(
    exception: Exception, kind: FaultKind, mocked: aioresponses
) -> None:
    mocked.get(ROBOTS, exception=exception)
    verdict = await _checked()
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
    assert verdict.source is not None
    assert verdict.source.fault.startswith(f"{kind}: ")


async def test_a_stand_in_for_aiohttp_may_respond(mocked: aioresponses) -> None:
    mocked.get(ROBOTS, body=b"User-agent: *\nDisallow: /private\n", response_class=Response)
    assert (await _checked()).reason is Reason.DISALLOW_RULE
