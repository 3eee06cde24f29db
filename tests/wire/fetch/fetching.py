"""Requests of the tests of AiohttpFetcher, and checks of their results."""

import ssl

import aiohttp
import trustme

from politesse import FetchOptions
from politesse.fetch import AiohttpFetcher
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult, Resolver, Validators
from tests.wire.fetch.servers import Server

UA = "ExampleBot/1.0 (+https://example.com/bot)"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PUBLIC = "93.184.216.34"
"""Stands behind 127.0.0.1 in mixed answers, so that a hop counts as public; it is never connected to."""


async def fetch_from(
    server: Server,
    options: FetchOptions | None = None,
    *,
    host: str = "127.0.0.1",
    resolver: Resolver | None = None,
    session: aiohttp.ClientSession | None = None,
    validators: Validators | None = None,
    max_redirects: int = 5,
) -> FetchResult:
    fetcher = AiohttpFetcher(UA, options, session=session, resolver=resolver)
    try:
        return await fetcher.fetch(FetchRequest(server.origin(host), max_redirects, validators))
    finally:
        await fetcher.aclose()


def responded(result: FetchResult) -> FetchResponse:
    assert isinstance(result, FetchResponse), result
    return result


def faulted(result: FetchResult) -> FetchFault:
    assert isinstance(result, FetchFault), result
    return result


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> FetchOptions:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return FetchOptions(ssl_context=context)
