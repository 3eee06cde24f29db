"""AiohttpFetcher believes no server that cannot prove its name."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from politesse import FetchOptions, Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchRequest, FetchResult
from tests.wire.fetch.fetching import UA, faulted, fetch_from, server_context, trusting
from tests.wire.fetch.servers import FILE, Names, Server, response


async def _fetch_over_tls(certificate: trustme.LeafCert, options: FetchOptions) -> tuple[FetchResult, int]:
    """Ask secure.example; return the result and how many requests got through the handshake."""
    async with Server(response(200, FILE), server_context(certificate)) as server:
        result = await fetch_from(server, options, host="secure.example", resolver=Names("secure.example"))
        return result, len(server.requests)


def _expired(authority: trustme.CA) -> trustme.LeafCert:
    now = datetime.now(UTC)
    return authority.issue_cert("secure.example", not_before=now - timedelta(days=9), not_after=now - timedelta(days=1))


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(
    ("issue", "trusted"),
    [
        (_expired, True),
        (lambda authority: authority.issue_cert("other.example"), True),
        (lambda authority: trustme.CA().issue_cert("secure.example"), True),
        (lambda authority: authority.issue_cert("secure.example"), False),
    ],
    ids=["expired", "wrong host", "another authority", "system authorities only"],
)
async def test_a_certificate_that_does_not_hold_is_a_tls_fault(
    authority: trustme.CA, issue: Callable[[trustme.CA], trustme.LeafCert], trusted: object
) -> None:
    options = trusting(authority) if trusted else FetchOptions()
    result, requests = await _fetch_over_tls(issue(authority), options)
    fault = faulted(result)
    assert (fault.kind, fault.status) == (FaultKind.TLS, None)
    assert requests == 0


async def test_a_server_that_speaks_no_tls_is_a_tls_fault() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        with suppress(ConnectionError):
            await writer.drain()
            await reader.read()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listener:
        origin = Origin.of(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/")
        fault = faulted(await AiohttpFetcher(UA).fetch(FetchRequest(origin, 5)))
    assert fault.kind is FaultKind.TLS


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_through_the_gate_a_bad_certificate_is_a_closed_site(authority: trustme.CA) -> None:
    fetcher = AiohttpFetcher(UA, trusting(authority), resolver=Names("secure.example"))
    context = server_context(_expired(authority))
    async with Server(response(200, b""), context) as server, Gatekeeper(UA, fetcher=fetcher) as gate:
        verdict = await gate.check(server.url("/", host="secure.example"))
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert verdict.source is not None
        assert verdict.source.status is None
        assert verdict.source.fault.startswith("tls")
