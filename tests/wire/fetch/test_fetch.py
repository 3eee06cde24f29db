"""AiohttpFetcher against servers on loopback that answer octet by octet as a test says."""

import asyncio
import gc
import gzip
import ipaddress
import socket
import ssl
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import aiohttp
import pytest
import trustme
from aiohttp import web
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.test_utils import TestServer
from aioresponses import aioresponses
from yarl import URL

from politesse import CacheOptions, Disallowed, FetchOptions, Gatekeeper, HostPolicy, PoliteSession, Reason, Verdict
from politesse.errors import ConfigurationError
from politesse.fetch import AiohttpFetcher, PublicResolver
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult, Store, Validators
from politesse.robots import Dialect
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher, ScriptedResolver
from tests.support.ports import free_port
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import (
    CHUNKED,
    FILE,
    HEAD,
    PUBLIC,
    Answer,
    Loopback,
    Names,
    Request,
    Row,
    Server,
    bomb,
    borrowed,
    chunked,
    endless,
    faulted,
    fetch_from,
    gzipped,
    in_pieces,
    outcomes,
    reset_after,
    responded,
    response,
    server_context,
    silence,
    trusting,
)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    # The sockets of a server are bound by address, before any name is looked up.
    async with Server(response(200, FILE)) as server:
        yield server


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    """No task, no unclosed transport and no unretrieved exception is left."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    yield
    for _ in range(5):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    gc.collect(1)  # an unclosed transport warns when it is collected, and warnings are errors
    await asyncio.sleep(0)
    assert left == set()
    assert complaints == []


MIN_BODY_BYTES = FetchOptions().max_body_bytes
FILL = b"#" * 1023 + b"\n"

# Outcomes: the access result, the status, the reasons for /private and for /public, and the kind of the fault.


def file(status: int = 200) -> str:
    return f"successful {status} disallow-rule no-rule"


def empty(status: int = 200) -> str:
    return f"successful {status} no-rule no-rule"


def unavailable(status: int) -> str:
    return f"unavailable {status} unavailable unavailable"


def unreachable(status: int) -> str:
    return f"unreachable {status} unreachable unreachable the server answered with status {status}"


def closed(fault: str, status: int | None = 200) -> str:
    return f"unreachable {status} unreachable unreachable {fault}"


BUSY = "too-many-requests 429 too-many-requests too-many-requests the server answered with status 429"


def chain(redirects: int) -> dict[str, Answer]:
    """Return a file behind so many redirects."""
    targets = ["/robots.txt", *(f"/hop/{number}" for number in range(1, redirects + 1))]
    answers: dict[str, Answer] = {here: response(302, Location=there) for here, there in pairwise(targets)}
    return answers | {targets[-1]: response(200, FILE)}


def to(location: str) -> bytes:
    return response(302, Location=location)


def headed(lines: int, total_bytes: int) -> bytes:
    """Return an answer with a head of so many octets, in so many filling lines."""
    start, end = b"HTTP/1.1 200 OK\r\n", b"Content-Length: %d\r\n\r\n" % len(FILE)
    room = total_bytes - len(start) - len(end)
    line = room // lines
    filling = [b"X-Policy: " + b"v" * (line - 12) + b"\r\n"] * (lines - 1)
    last = room - line * (lines - 1)
    return start + b"".join(filling) + b"X-Policy: " + b"v" * (last - 12) + b"\r\n" + end + FILE


async def assert_outcomes(table: dict[str, dict[str, Row]], session: aiohttp.ClientSession | None = None) -> None:
    rows = {name: answer for of_outcome in table.values() for name, answer in of_outcome.items()}
    assert await outcomes(rows, session) == {name: outcome for outcome, names in table.items() for name in names}


@pytest.mark.clause("RFC 9309 2.3.1")
async def test_status_decides_as_the_outcome_table_says() -> None:
    page = b"<html>\n<body>Not found</body>\n"
    await assert_outcomes(
        {
            **{file(status): {f"{status}": response(status, FILE)} for status in (201, 202, 203, 226, 299)},
            file(): {
                "200": response(200, FILE),
                "100 and then 200": b"HTTP/1.1 100 Continue\r\n\r\n" + response(200, FILE),
                "103 and then 200": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(200, FILE),
            },
            empty(): {"no body": response(200), "a page instead of a file": response(200, page)},
            empty(204): {"204": b"HTTP/1.1 204 No Content\r\n\r\n"},
            empty(205): {"205": response(205)},
            unreachable(101): {"101": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"},
            unreachable(206): {"206": response(206, FILE, Content_Range="bytes 0-32/33")},
            unreachable(304): {"304 without a condition": b"HTTP/1.1 304 Not Modified\r\n\r\n"},
            **{
                unavailable(status): {f"{status}": response(status, page)}
                for status in (400, 402, 403, 405, 406, 410, 418, 421, 428, 431, 451, 499)
            },
            unavailable(401): {"401": response(401), "challenge": response(401, WWW_Authenticate='Basic realm="x"')},
            unavailable(404): {
                "404 with a page": response(404, page),
                "404 with a file": response(404, b"User-agent: *\nDisallow: /\n"),
                "404 with a broken body": response(404, b"x", length=99),
            },
            BUSY: {"429": response(429), "429 with Retry-After": response(429, Retry_After="120")},
            **{
                unreachable(status): {f"{status}": response(status, FILE)}
                for status in (500, 501, 502, 504, 511, 520, 599, 300, 305, 306, 399, 600, 999)
            },
            unreachable(503): {"503": response(503, FILE), "with a broken body": response(503, b"x", length=99)},
        }
    )


@pytest.mark.clause("RFC 9309 2.3.1")
async def test_body_decides_as_the_outcome_table_says() -> None:
    piece = b"21\r\n" + FILE + b"\r\n"
    two_encodings = HEAD + b"Content-Encoding: gzip\r\nContent-Encoding: br\r\n\r\n" + gzip.compress(FILE)
    encoded = {name: CHUNKED[:-2] + f"Content-Encoding: {name}\r\n\r\n".encode() for name in ("gzip", "deflate", "br")}
    await assert_outcomes(
        {
            file(): {
                "chunked": chunked(piece + b"0\r\n\r\n"),
                "chunked in pieces": chunked(b"10\r\n" + FILE[:16], b"\r\n11\r\n", FILE[16:] + b"\r\n", b"0\r\n\r\n"),
                "gzip": gzipped(gzip.compress(FILE)),
                "deflate": response(200, zlib.compress(FILE), Content_Encoding="deflate"),
                "endless": endless(HEAD + b"\r\n" + FILE, FILL * 64),
                "endless and chunked": endless(CHUNKED + piece, b"400\r\n" + FILL + b"\r\n"),
                "larger than the limit": response(200, FILE + FILL * 1000),
            },
            empty(): {
                "gzip bomb": gzipped(bomb()),
                **{f"chunks of no octet in {name}": head + b"0\r\n\r\n" for name, head in encoded.items()},
            },
            closed("truncated"): {
                "shorter than Content-Length": response(200, FILE, length=len(FILE) + 1),
                "no octet of Content-Length": response(200, b"", length=33),
                "chunked without an end": chunked(piece),
                "cut inside a chunk": chunked(b"21\r\n" + FILE[:20]),
                "cut before the first chunk": chunked(),
                "gzip shorter than it is": gzipped(gzip.compress(FILE)[:-1]),
                "reset in mid-body": reset_after(response(200, FILE, length=99)),
                "trailers without end": endless(CHUNKED + piece + b"0\r\n", b"X-Trailer: " + b"v" * 60_000 + b"\r\n"),
            },
            closed("encoding"): {
                "gzip that is none": gzipped(FILE),
                "an encoding not asked for": response(200, b"x", Content_Encoding="br"),
                "encodings in two lines": two_encodings,
                **{
                    f"Transfer-Encoding: {coding}": HEAD + f"Transfer-Encoding: {coding}\r\n\r\n".encode() + body
                    for body, codings in {
                        FILE: ("gzip", "x-gzip", "identity"),
                        piece + b"0\r\n\r\n": ("gzip, chunked", "chunked, chunked"),
                    }.items()
                    for coding in codings
                },
            },
        }
    )


@pytest.mark.clause("RFC 9309 2.3.1")
async def test_connection_and_head_decide_as_the_outcome_table_says() -> None:
    large = headed(4_000, 70_000)
    await assert_outcomes(
        {
            closed("connect", None): {
                "closed without a word": b"",
                "reset without a word": reset_after(b""),
                "closed in mid-head": b"HTTP/1.1 200 OK\r\nContent-",
            },
            closed("protocol", None): {
                "garbage instead of HTTP": b"\x00\xff SSH-2.0-OpenSSH_9.9\r\n\r\n",
                "HTTP/2 without being asked": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                "a status that is no number": b"HTTP/1.1 abc OK\r\n\r\n",
                "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
                "a length that is no number": HEAD + b"Content-Length: x\r\n\r\n" + FILE,
                "a header of a megabyte": HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n" + FILE,
                "endless headers": endless(HEAD, b"X-Filler: " + b"x" * 1000 + b"\r\n"),
                "an endless header": endless(HEAD + b"X: ", b"x" * 1000),
                "64 KiB and an octet in one line": headed(1, 64 * 1024 + 1),
                "70,000 octets in 10 lines": headed(10, 70_000),
                "70,000 octets in 4,000 lines": large,
                "70,000 octets in two writes": in_pieces(large[:50_000], large[50_000:]),
                "900,000 octets in 20 lines": headed(20, 900_000),
                "empty lines, and then a head of 70,000 octets": b"\r\n\r\n" + headed(3, 70_000),
            },
            file(): {
                "empty lines": b"\r\n\r\n" + headed(3, 60_000),
                "empty lines that end with LF": b"\n\n" + headed(3, 60_000),
                "80,000 octets of empty lines": b"\r\n" * 40_000 + headed(3, 60_000),
            },
        }
    )


@pytest.mark.clause("RFC 9309 2.3.1")
async def test_redirects_decide_as_the_outcome_table_says() -> None:
    targets = ["ftp://127.0.0.1/robots.txt", "file:///etc/passwd", "data:text/plain,User-agent:*", "http://[::1/"]
    targets += ["javascript:alert(1)", "gopher://127.0.0.1/", "http://127.0.0.1:99999/", "http://127.1/"]
    targets += ["http://2130706433/", "http://0x7f000001/", "http://exa mple/", ""]
    await assert_outcomes(
        {
            file(): {
                **{
                    f"{status}": {"/robots.txt": response(status, Location="/r"), "/r": response(200, FILE)}
                    for status in (301, 302, 303, 307, 308)
                },
                "in octets of UTF-8": {"/robots.txt": to("/r\xc3\xa9.txt"), "/r%C3%A9.txt": response(200, FILE)},
                "five redirects": chain(5),
            },
            f"{unavailable(302)} more than 5 redirects": {"six redirects": chain(6)},
            f"{unavailable(302)} a redirect loop through": {
                "to itself": to("/robots.txt"),
                "a loop": {"/robots.txt": to("/a"), "/a": to("/b"), "/b": to("/a")},
            },
            unavailable(404): {"to 404": {"/robots.txt": to("/a"), "/a": response(404)}},
            unreachable(503): {"to 503": {"/robots.txt": to("/a"), "/a": response(503)}},
            BUSY: {"to 429": {"/robots.txt": to("/a"), "/a": response(429)}},
            unreachable(304): {"to 304": {"/robots.txt": to("/a"), "/a": response(304)}},
            closed("redirect-target", 302): {
                "without Location": response(302),
                **{f"to {location!r}": to(location) for location in targets},
            },
        }
    )


@pytest.mark.clause("RFC 9112 8")
@pytest.mark.clause("RFC 9112 6.3")
@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_end_of_the_connection_and_a_long_head_decide_alike_over_each_connector(*, is_borrowed: bool) -> None:
    heads = {"HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"\r\n", "HTTP/1.1": HEAD + b"Connection: close\r\n\r\n"}
    bodies = {"no octet": b"", "half a file": b"User-agent: *\n", "a whole file": FILE}
    sizes = [(1, 9_000), (1, 64 * 1024), (10, 60_000), (4_000, 60_000), (4_000, 64 * 1024)]
    table: dict[str, dict[str, Answer | dict[str, Answer]]] = {
        closed("truncated"): {
            f"{version}, {name}, RST": reset_after(head + body)
            for version, head in heads.items()
            for name, body in bodies.items()
        },
        file(): {
            **{f"{version}, FIN": head + FILE for version, head in heads.items()},
            **{f"{version}, pieces, FIN": in_pieces(head, FILE[:9], FILE[9:]) for version, head in heads.items()},
            **{f"{octets} octets of head in {lines} lines": headed(lines, octets) for lines, octets in sizes},
        },
    }
    async with borrowed(is_borrowed=is_borrowed) as session:
        await assert_outcomes(table, session)


async def test_two_equal_lengths_close_the_site_and_the_fault_says_so() -> None:
    async with Server(HEAD + b"Content-Length: %d\r\n" % len(FILE) * 2 + b"\r\n" + FILE) as server:
        fault = faulted(await fetch_from(server))
    assert fault.kind is FaultKind.PROTOCOL
    assert "Content-Length" in fault.detail


async def test_body_without_length_whose_session_is_closed_meanwhile_is_truncated() -> None:
    begun = asyncio.Event()

    async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\nUser-agent: *\n")
        await writer.drain()
        begun.set()
        await reader.read()

    async with Server(answer) as server, aiohttp.ClientSession() as session, Gatekeeper(UA, session=session) as gate:
        task = asyncio.create_task(gate.check(server.url("/public")))
        await begun.wait()
        await asyncio.sleep(0.02)  # so that the head has been read
        await session.close()
        verdict = await task
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)


# Exceptions of aiohttp, whatever raises them


class Response(aiohttp.ClientResponse):
    """aioresponses 0.7.9 does not know the argument ``stream_writer`` of aiohttp 3.14."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, stream_writer=Mock(output_size=0), **kwargs)


@pytest.fixture
def mocked() -> Iterator[aioresponses]:
    with aioresponses() as mock:
        yield mock


async def checked() -> Verdict:
    async with Gatekeeper(UA, clock=ManualClock()) as gate:
        return await gate.check("https://example.com/private")


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_exception_of_aiohttp_closes_the_site(mocked: aioresponses) -> None:
    key = ConnectionKey("example.com", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
    kinds: dict[FaultKind, list[Exception]] = {
        FaultKind.TIMEOUT: [TimeoutError(), aiohttp.ConnectionTimeoutError(), aiohttp.SocketTimeoutError()],
        FaultKind.DNS: [aiohttp.ClientConnectorDNSError(key, OSError(-2, "unknown"))],
        FaultKind.CONNECT: [
            aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "refused")),
            aiohttp.ServerDisconnectedError(),
            aiohttp.ClientOSError(104, "reset"),
            OSError(101, "unreachable"),
        ],
        FaultKind.TLS: [
            aiohttp.ClientConnectorSSLError(key, ssl.SSLError(1, "handshake")),
            aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError(1, "expired")),
        ],
        FaultKind.TRUNCATED: [aiohttp.ClientPayloadError("not enough data")],
        FaultKind.PROTOCOL: [
            aiohttp.ClientResponseError(Mock(), (), status=400, message="garbage"),
            aiohttp.ClientHttpProxyError(Mock(), (), status=407, message="who?"),
        ],
    }
    table = {exception: kind for kind, exceptions in kinds.items() for exception in exceptions}
    found = {}
    for exception in table:
        mocked.get("https://example.com/robots.txt", exception=exception)
        verdict = await checked()
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert verdict.source is not None
        found[exception] = verdict.source.fault.partition(": ")[0]
    assert found == table


async def test_stand_in_for_aiohttp_may_respond(mocked: aioresponses) -> None:
    mocked.get("https://example.com/robots.txt", body=FILE, response_class=Response)
    assert (await checked()).reason is Reason.DISALLOW_RULE


# TLS


async def fetch_over_tls(certificate: trustme.LeafCert, options: FetchOptions) -> tuple[FetchResult, int]:
    """Ask secure.example; return the result and how many requests got through the handshake."""
    async with Server(response(200, FILE), server_context(certificate)) as server:
        result = await fetch_from(server, options, host="secure.example", resolver=Names("secure.example"))
        return result, len(server.requests)


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_certificate_that_does_not_hold_is_a_tls_fault(authority: trustme.CA) -> None:
    now, trusted = datetime.now(UTC), trusting(authority)
    past = {"not_before": now - timedelta(days=9), "not_after": now - timedelta(days=1)}
    rows = {
        "expired": (authority.issue_cert("secure.example", **past), trusted),  # type: ignore[arg-type]
        "wrong host": (authority.issue_cert("other.example"), trusted),
        "another authority": (trustme.CA().issue_cert("secure.example"), trusted),
        "system authorities only": (authority.issue_cert("secure.example"), FetchOptions()),
    }
    found = {name: await fetch_over_tls(*row) for name, row in rows.items()}
    assert [name for name, (result, asked) in found.items() if asked or faulted(result).kind is not FaultKind.TLS] == []
    assert responded((await fetch_over_tls(authority.issue_cert("secure.example"), trusted))[0]).body == FILE


async def test_server_that_speaks_no_tls_is_a_tls_fault() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        with suppress(ConnectionError):
            await writer.drain()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        async with Gatekeeper(UA) as gate:
            verdict = await gate.check(url)
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
    assert verdict.source is not None
    assert (verdict.source.status, verdict.source.fault.partition(": ")[0]) == (None, "tls")


@pytest.mark.clause("RFC 9112 9.8")
@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_over_tls_a_body_without_length_is_complete_only_behind_a_close_notify(
    authority: trustme.CA, *, is_borrowed: bool
) -> None:
    context = server_context(authority.issue_cert("localhost"))

    def answer(listener: socket.socket, end: Callable[[ssl.SSLSocket], object]) -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65_536)
            wrapped.sendall(HEAD + b"Connection: close\r\n\r\n" + FILE)
            end(wrapped)

    reasons = []
    for end in (ssl.SSLSocket.unwrap, ssl.SSLSocket.close):  # close sends no close_notify
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with borrowed(is_borrowed=is_borrowed) as session:
                fetcher = AiohttpFetcher(UA, trusting(authority), session=session, resolver=Names("localhost"))
                async with Gatekeeper(UA, fetcher=fetcher, pacing=EAGER) as gate:
                    serving = asyncio.create_task(asyncio.to_thread(answer, listener, end))
                    verdict = await gate.check(f"https://localhost:{listener.getsockname()[1]}/public")
                    await serving
        assert verdict.source is not None
        reasons.append((verdict.allowed, verdict.reason, verdict.source.fault.partition(": ")[0]))
    assert reasons == [(True, Reason.NO_RULE, ""), (False, Reason.UNREACHABLE, "truncated")]


# No connection, or no answer in time


async def test_refused_connection_is_a_connect_fault() -> None:
    origin = Origin.of(f"http://127.0.0.1:{free_port()}/")
    fault = faulted(await AiohttpFetcher(UA).fetch(FetchRequest(origin, 5)))
    assert (fault.kind, fault.status, fault.final_url) == (FaultKind.CONNECT, None, origin.robots_url)
    assert fault.detail.startswith(f"Cannot connect to host 127.0.0.1:{origin.port} [Connect call failed")


async def test_name_that_does_not_resolve_is_a_dns_fault() -> None:
    names = Names(empty_example=())
    for host in ("empty_example", "unknown.example"):
        fault = faulted(await AiohttpFetcher(UA, resolver=names).fetch(FetchRequest(Origin.of(f"http://{host}/"), 5)))
        assert (fault.kind, fault.status) == (FaultKind.DNS, None), host
    assert names.asked == ["empty_example", "unknown.example"]


class Hanging:
    """A Resolver that never answers."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_name_or_handshake_that_takes_too_long_is_a_timeout() -> None:
    soon = FetchOptions(connect_timeout_s=0.04)
    async with Server() as server, asyncio.timeout(15):  # speaks no TLS, and waits for a head that never comes
        rows = {
            "lookup": ("http://nowhere.example/", soon, Hanging()),
            "lookup, in total": ("http://nowhere.example/", FetchOptions(total_timeout_s=0.04), Hanging()),
            "TLS at an address": (f"https://127.0.0.1:{server.port}/", soon, None),
            "TLS at a name": (f"https://site.example:{server.port}/", soon, Names("site.example")),
        }
        fetches = [
            AiohttpFetcher(UA, options, resolver=resolver).fetch(FetchRequest(Origin.of(url), 5))
            for url, options, resolver in rows.values()
        ]
        faults = dict(zip(rows, map(faulted, await asyncio.gather(*fetches)), strict=True))
    expected = dict.fromkeys(rows, (FaultKind.TIMEOUT, None))
    assert {name: (fault.kind, fault.status) for name, fault in faults.items()} == expected


@pytest.mark.realtime
@pytest.mark.full
async def test_answer_may_take_longer_than_connecting() -> None:
    async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.8)
        writer.write(response(200, FILE))

    async with Server(answer) as server:
        options, names = FetchOptions(connect_timeout_s=0.5), Names("site.example")
        fetches = [fetch_from(server, options, host=host, resolver=names) for host in ("127.0.0.1", "site.example")]
        assert [responded(result).body for result in await asyncio.gather(*fetches)] == [FILE, FILE]


@pytest.mark.clause("RFC 9309 2.3.1.4")
async def test_server_that_takes_too_long_is_a_timeout() -> None:
    slow: dict[str, Answer] = {
        "silence": silence,
        "trickling-head": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", pause_s=0.005),
        "trickling-body": endless(HEAD + b"Content-Length: 9999\r\n\r\n", b"#", pause_s=0.005),
        "trickling-chunks": endless(CHUNKED, b"1\r\n#\r\n", pause_s=0.005),
        "endless-1xx": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_s=0.005),
    }
    hosts = [f"{name}.example" for name in slow]
    async with Server({f"{name}.example/robots.txt": answer for name, answer in slow.items()}) as server:
        options = FetchOptions(total_timeout_s=0.06)
        fetches = [fetch_from(server, options, host=host, resolver=Names(*hosts)) for host in hosts]
        kinds = [faulted(result).kind for result in await asyncio.gather(*fetches)]
    assert dict(zip(hosts, kinds, strict=True)) == dict.fromkeys(hosts, FaultKind.TIMEOUT)


async def bad_chunk_and_hold(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED)
    await writer.drain()
    await asyncio.sleep(0.01)
    writer.write(b"zz\r\n")
    await writer.drain()
    await reader.read()


async def broken_chunks() -> list[str]:
    """Return the rows whose fault is not that a chunk behind the head is broken."""
    piece = b"21\r\n" + FILE + b"\r\n"
    rows: dict[str, Answer] = {
        "first": chunked(b"zz\r\n"),
        "second": chunked(piece, b"zz\r\n"),
        "negative": chunked(piece, b"-1\r\n"),
        "no-line-end": chunked(piece[:-2] + b"XX", b"0\r\n\r\n"),
        "huge": chunked(piece, b"fffffffffffffffff\r\n"),
        "held-open": bad_chunk_and_hold,
    }
    async with Server({f"{name}.example/robots.txt": answer for name, answer in rows.items()}) as server:
        names = Names(*(f"{name}.example" for name in rows))
        fetches = [fetch_from(server, host=f"{name}.example", resolver=names) for name in rows]
        faults = dict(zip(rows, map(faulted, await asyncio.gather(*fetches)), strict=True))
    return [name for name, fault in faults.items() if (fault.kind, fault.status) != (FaultKind.TRUNCATED, 200)]


async def test_broken_chunk_behind_the_head_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse.fetch._aiohttp._INSPECT_S", 0.02)
    assert await broken_chunks() == []


@pytest.mark.realtime
@pytest.mark.full
async def test_broken_chunk_is_noticed_in_seconds_and_not_at_the_total_timeout() -> None:
    async with asyncio.timeout(15):
        assert await broken_chunks() == []


# Limits


async def test_body_without_end_is_read_to_the_limit_in_bounded_memory_and_the_connection_closed() -> None:
    rows: dict[str, Answer] = {
        "gzip bomb": gzipped(bomb()),
        "endless": endless(HEAD + b"\r\n", b"Disallow: /a\n" * 1000),
        "endless chunks": endless(CHUNKED, b"d\r\nDisallow: /a\n\r\n" * 1000),
        "endless gzip": endless(HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"Disallow: /a\n" * 1000)),
    }
    async with Server(response(200, FILE)) as server:
        await fetch_from(server)  # imports and caches are not counted
    for name, answer in rows.items():
        async with Server(answer) as server:
            tracemalloc.start()
            try:
                result = responded(await fetch_from(server))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert result.truncated, name
            assert MIN_BODY_BYTES - 20 < len(result.body) <= MIN_BODY_BYTES, name
            assert peak < 8 * MIN_BODY_BYTES, name
            async with asyncio.timeout(5):
                await server.closed_by_client.wait()


async def test_body_of_what_is_no_file_is_not_read() -> None:
    async with Server(endless(b"HTTP/1.1 404 Not Found\r\n\r\n", b"x" * 1000)) as server, asyncio.timeout(5):
        result = responded(await fetch_from(server))
        assert (result.status, result.body) == (404, b"")
        await server.closed_by_client.wait()


# Requests


async def test_request_has_the_user_agent_and_no_other_identification() -> None:
    async with Server(response(200, FILE)) as server:
        await fetch_from(server, FetchOptions(from_address="bot@example.com"))
        (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/robots.txt")
    assert request.headers.pop("accept").startswith("text/plain")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": UA,
        "from": "bot@example.com",
        "accept-encoding": "gzip, deflate",
        "connection": "close",
    }


async def test_file_is_requested_by_its_path_and_query() -> None:
    async with Server({"/data.txt?v=2": response(200, FILE)}) as server:
        request = FetchRequest(server.origin(), 5, path="/data.txt?v=2")
        result = responded(await AiohttpFetcher(UA).fetch(request))
        assert (result.status, result.body, result.final_url) == (200, FILE, server.url("/data.txt?v=2"))
        assert [asked.target for asked in server.requests] == ["/data.txt?v=2"]


async def test_cookie_is_neither_kept_nor_sent() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/r", Set_Cookie="id=42; Path=/"),
        "/r": response(200, FILE, Set_Cookie="id=43; Path=/"),
    }
    async with Server(answers) as server:
        fetcher = AiohttpFetcher(UA, resolver=Names("site.example"))
        for path in ["/robots.txt", "/r"] * 2:
            await fetcher.fetch(FetchRequest(server.origin("site.example"), 0, path=path))
        assert len(server.requests) == 4
        assert [request for request in server.requests if "cookie" in request.headers] == []


async def test_netrc_and_proxies_of_the_environment_are_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login crawler password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Server(response(200, FILE)) as server:
        assert responded(await fetch_from(server)).body == FILE
        assert "authorization" not in server.requests[0].headers


@pytest.mark.clause("RFC 9110 5.3")
async def test_headers_come_back_in_lower_case_and_their_lines_joined() -> None:
    answer = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETAG: "x"\r\nLast-Modified: then\r\nExpires: first\r\n'
        b"expires: second\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Cache-Control: public\r\nCACHE-CONTROL: max-age=60\r\nAge: 5\r\n\r\n"
    )
    async with Server(answer) as server:
        headers = responded(await fetch_from(server)).headers
    assert dict(headers) == {
        "content-length": "0",
        "etag": '"x"',
        "last-modified": "then",
        "expires": "first, second",
        "age": "5",
        "cache-control": "public, max-age=60",
        "set-cookie": "a=1",  # RFC 9110 5.3: its lines cannot be joined
    }


@pytest.mark.clause("RFC 9111 4.3.1")
async def test_validators_are_sent_to_the_url_that_the_copy_came_from_and_to_no_other() -> None:
    then = "Sun, 06 Nov 1994 08:49:37 GMT"
    rows = {
        ("/robots.txt", '"x"', ""): {"if-none-match": '"x"'},
        ("/robots.txt", 'W/"x"', ""): {"if-none-match": 'W/"x"'},
        ("/robots.txt", "", then): {"if-modified-since": then},
        ("/robots.txt", '"x"', "then"): {"if-none-match": '"x"', "if-modified-since": "then"},
        ("/elsewhere", '"x"', "then"): {},
        ("/robots.txt?v=1", '"x"', "then"): {},
        ("/", '"x"', "then"): {},
    }
    sent = {}
    async with Server(response(304, ETag='"y"')) as server:
        for row, conditions in rows.items():
            target, etag, modified = row
            result = responded(await fetch_from(server, validators=Validators(server.url(target), etag, modified)))
            assert (result.status, result.conditional, result.headers["etag"]) == (304, conditions != {}, '"y"')
            headers = server.requests[-1].headers
            sent[row] = {name: value for name, value in headers.items() if name.startswith("if-")}
    assert sent == rows


async def test_only_the_hop_or_the_file_that_the_copy_came_from_is_conditional() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/a"),
        "/a": response(302, Location="/b"),
        "/b": response(304),
        "/data.txt": response(304),
    }
    async with Server(answers) as server:
        result = responded(await fetch_from(server, validators=Validators(server.url("/b"), '"x"', "")))
        assert (result.status, result.conditional) == (304, True)
        data = FetchRequest(server.origin(), 5, Validators(server.url("/data.txt"), '"1"', ""), "/data.txt")
        result = responded(await AiohttpFetcher(UA).fetch(data))
        assert (result.status, result.conditional) == (304, True)
        assert [request.headers.get("if-none-match") for request in server.requests] == [None, None, '"x"', '"1"']


# Redirects: their number, their targets, and the authority that they bind


async def test_redirect_is_left_to_the_caller_who_is_told_its_target() -> None:
    async with Server({"/robots.txt": response(302, Location="/r"), "/r": response(200, FILE)}) as server:
        for limit in (0, 5):
            fault = faulted(await AiohttpFetcher(UA).fetch(FetchRequest(server.origin(), limit)))
            assert (fault.kind, fault.status) == (FaultKind.REDIRECT_LIMIT, 302)
            assert (fault.location, fault.private, fault.final) == (server.url("/r"), True, False)
        assert [request.target for request in server.requests] == ["/robots.txt"] * 2


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_fifth_redirect_is_followed_and_a_sixth_is_not_requested() -> None:
    hosts = [f"host{number}.example" for number in range(6)]
    targets = ["/robots.txt", *(f"/moved-{number}" for number in range(1, 6))]
    async with Server({"/moved-5": response(200, FILE)}) as server:
        for here, there, host in zip(targets, targets[1:], hosts[1:], strict=False):
            server.answers[here] = response(301, Location=server.url(there, host=host))
        result = responded(await fetch_from(server, host=hosts[0], resolver=Names(*hosts)))
        assert (result.body, result.final_url) == (FILE, server.url("/moved-5", host=hosts[5]))
        server.answers["/moved-5"] = response(301, Location="/moved-6")
        fault = faulted(await fetch_from(server, host=hosts[0], resolver=Names(*hosts)))
        assert (fault.kind, fault.final_url) == (FaultKind.REDIRECT_LIMIT, server.url("/moved-5", host=hosts[5]))
        asked = [(request.host, request.target) for request in server.requests]
        assert asked == [(f"{host}:{server.port}", target) for host, target in zip(hosts, targets, strict=True)] * 2


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_file_behind_a_redirect_binds_the_first_authority_and_no_other() -> None:
    names = Names("first.example", "second.example")
    answers: dict[str, Answer] = {"/rules": response(200, FILE), "second.example/robots.txt": response(200)}
    async with Server(answers) as server, Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names)) as gate:
        rules = server.url("/rules", host="second.example")
        answers["first.example/robots.txt"] = response(308, Location=rules)
        verdict = await gate.check(server.url("/private", host="first.example"))
        assert verdict.reason is Reason.DISALLOW_RULE
        assert verdict.source is not None
        assert verdict.source.robots_url == server.url(host="first.example")
        assert verdict.source.final_url == rules
        assert (await gate.check(server.url("/private", host="second.example"))).reason is Reason.NO_RULE


async def test_redirect_from_a_public_to_a_private_address_is_refused_before_it_is_connected_to() -> None:
    names = Names("inside.example", **{"public.example": ("127.0.0.1", PUBLIC)})
    for host in ("127.0.0.1", "inside.example", "[::1]"):
        async with Server({"/secret": response(200)}) as server:
            server.answers["/robots.txt"] = response(302, Location=server.url("/secret", host=host))
            fault = faulted(await fetch_from(server, host="public.example", resolver=names))
            assert fault.kind is FaultKind.REDIRECT_TARGET, host
            assert "private" in fault.detail
            async with Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names), pacing=EAGER) as gate:
                verdict = await gate.check(server.url("/public", host="public.example"))
                assert verdict.reason is Reason.UNREACHABLE, host
            assert [request.target for request in server.requests] == ["/robots.txt", "/robots.txt"]


async def test_name_that_turns_private_between_two_hops_is_refused() -> None:
    names = Names(**{"rebound.example": ("127.0.0.1", PUBLIC)})

    async def rebind(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names.addresses["rebound.example"] = ("127.0.0.1",)
        writer.write(response(302, Location="/secret"))

    async with Server({"/robots.txt": rebind, "/secret": response(200)}) as server:
        fault = faulted(await fetch_from(server, host="rebound.example", resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert names.asked == ["rebound.example"] * 2, "each hop is resolved anew"


# A fetch that goes on after a redirect of another request


async def test_where_another_host_has_redirected_to_must_be_public() -> None:
    names = Names("site.example")
    async with Server({"/data.txt": response(200, FILE)}) as server:
        for number, host in enumerate(("127.0.0.1", "site.example")):
            request = FetchRequest(server.origin(host), 0, path="/data.txt", redirected=True)
            fault = faulted(await AiohttpFetcher(UA, resolver=names).fetch(request))
            assert fault.kind is FaultKind.REDIRECT_TARGET, host
            assert len(server.requests) == number
            lenient = AiohttpFetcher(UA, FetchOptions(private_addresses="allow"), resolver=names)
            assert responded(await lenient.fetch(request)).body == FILE


async def test_over_a_borrowed_connector_nothing_is_asked_where_another_host_has_redirected_to() -> None:
    async with Server({"/data.txt": response(200, FILE)}) as server, aiohttp.ClientSession() as session:
        request = FetchRequest(server.origin("localhost"), 0, path="/data.txt", redirected=True)
        fault = faulted(await AiohttpFetcher(UA, session=session).fetch(request))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert "unguarded_redirects" in fault.detail
        assert server.requests == []
        unguarded = AiohttpFetcher(UA, FetchOptions(unguarded_redirects=True), session=session)
        assert responded(await unguarded.fetch(request)).body == FILE


# All fetches share a client session, and do not disturb each other.


async def test_each_fetch_has_a_connection_of_its_own_and_closes_it() -> None:
    async with Server(response(200, FILE)) as server, asyncio.timeout(5):
        fetcher = AiohttpFetcher(UA)
        for _ in range(3):
            server.closed_by_client.clear()
            await fetcher.fetch(FetchRequest(server.origin(), 5))
            await server.closed_by_client.wait()
        assert len(server.requests) == 3


async def test_fetch_that_is_cancelled_raises_that_and_closes_its_connection() -> None:
    for answer in (silence, endless(HEAD + b"\r\n", b"#", pause_s=0.001)):
        async with Server(answer) as server, asyncio.timeout(5):
            task = asyncio.create_task(fetch_from(server))
            while not server.requests:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.closed_by_client.wait()


async def test_more_than_a_hundred_fetches_are_under_way_at_once() -> None:
    async with Server(silence) as server:
        fetcher = AiohttpFetcher(UA)
        tasks = [asyncio.create_task(fetcher.fetch(FetchRequest(server.origin(), 0))) for _ in range(130)]
        async with asyncio.timeout(20):
            while len(server.requests) < 130:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await fetcher.aclose()


async def test_closing_ends_the_fetches_under_way_and_a_later_one_connects_again() -> None:
    async with Server(silence) as silent, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA)
        pending = asyncio.create_task(fetcher.fetch(FetchRequest(silent.origin(), 0)))
        while not silent.requests:
            await asyncio.sleep(0.001)
        await fetcher.aclose()
        faulted(await pending)
        assert responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body == FILE
        await fetcher.aclose()


@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_fetcher_that_nobody_closed_warns_of_nothing(*, is_borrowed: bool) -> None:
    async with borrowed(is_borrowed=is_borrowed) as session, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, session=session)
        responded(await fetcher.fetch(FetchRequest(server.origin(), 0)))
        del fetcher
        gc.collect()  # a ResourceWarning would fail the test


def test_one_fetcher_serves_one_event_loop_after_another() -> None:
    fetcher = AiohttpFetcher(UA)

    async def fetch() -> bytes:
        async with Server(response(200, FILE)) as server:
            return responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body

    assert [asyncio.run(fetch()) for _ in range(3)] == [FILE] * 3


async def test_fetches_at_the_same_time_are_each_checked_by_their_own_guard() -> None:
    async with Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, resolver=Names("inside.example"))
        inside = server.origin("inside.example")
        requests = [FetchRequest(inside, 0, redirected=True), FetchRequest(inside, 0)] * 10
        results = await asyncio.gather(*map(fetcher.fetch, requests))
        assert {faulted(result).kind for result in results[::2]} == {FaultKind.REDIRECT_TARGET}
        assert {responded(result).body for result in results[1::2]} == {FILE}
        assert len(server.requests) == 10
        await fetcher.aclose()


# Over a borrowed connector, and behind a proxy


@asynccontextmanager
async def rich_session() -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    """A session with everything that a robots.txt request must not carry."""
    used: list[str] = []

    async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        used.append(str(request.url))
        request.headers["X-Signed"] = "yes"
        return await handler(request)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Loopback()),
        headers={"User-Agent": "Browser/9", "Authorization": "Bearer secret", "X-Api-Key": "secret"},
        cookies={"session": "secret"},
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        middlewares=(middleware,),
        raise_for_status=True,
    ) as session:
        yield session, used


async def test_of_a_session_only_the_connector_is_used() -> None:
    async with Server(response(200, FILE, Set_Cookie="id=42")) as server, rich_session() as (session, used):
        result = responded(await fetch_from(server, host="site.example", session=session))
        assert result.body == FILE
        headers = server.requests[0].headers
        assert headers["user-agent"] == UA
        assert headers.keys() == {"host", "user-agent", "accept", "accept-encoding"}
        assert used == []
        assert "id" not in {cookie.key for cookie in session.cookie_jar}


async def test_session_is_open_and_usable_after_it_lent_its_connector() -> None:
    answers = [response(200, FILE), response(404, b"x" * 100), response(503), response(200, FILE, length=99)]
    for answer in (*answers, gzipped(bomb())):
        rows: dict[str, Answer] = {"/robots.txt": answer, "/page": response(200, b"page")}
        async with Server(rows) as server, rich_session() as (session, used):
            page_url = server.url("/page", host="site.example")
            async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
                await gate.check(page_url)
            assert not session.closed
            assert session.connector is not None
            assert not session.connector.closed
            async with session.get(page_url) as page:
                assert await page.text() == "page"
            assert used == [page_url]
            assert server.requests[-1].headers["authorization"] == "Bearer secret"


async def test_connection_that_is_handed_back_carries_a_large_page_afterwards() -> None:
    peers = []

    async def answer(request: web.Request) -> web.Response:
        peers.append(request.transport and request.transport.get_extra_info("peername"))
        return web.Response(body=FILE if request.path == "/robots.txt" else bytes(8 * 1024 * 1024))

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            assert await gate.check(str(server.make_url("/large")))
        async with session.get(server.make_url("/large")) as page:
            assert len(await page.read()) == 8 * 1024 * 1024  # more than a robots.txt may take on the wire
        assert peers[0] == peers[1], "it went over another connection"


async def redirected(
    addresses: Mapping[str, Sequence[str]], *, first: str = "site.example", second: str = "other.example"
) -> tuple[Verdict, list[str]]:
    """Ask over a borrowed connector about a host whose robots.txt redirects; return the requested targets."""
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host=second))
        async with Gatekeeper(UA, session=session, resolver=ScriptedResolver(addresses), pacing=EAGER) as gate:
            verdict = await gate.check(server.url("/public", host=first))
        return verdict, [request.target for request in server.requests]


async def test_over_a_borrowed_connector_a_redirect_to_another_public_host_is_followed() -> None:
    verdict, requested = await redirected({"other.example": [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946"]})
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()
    assert requested == ["/robots.txt", "/r"]


async def test_over_a_borrowed_connector_a_redirect_to_a_host_that_may_be_private_closes_the_site() -> None:
    rows: list[list[str] | None] = [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["169.254.169.254"], ["168.63.129.16"]]
    rows += [["fe80::1%eth0"], [], None]
    for addresses in rows:
        known = {} if addresses is None else {"other.example": addresses}
        verdict, requested = await redirected({"site.example": [PUBLIC], **known})
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE), addresses
        assert verdict.source is not None
        assert verdict.source.fault.startswith("redirect-target: ")
        assert "other.example" in verdict.source.fault
        assert "unguarded_redirects" in verdict.source.fault
        assert requested == ["/robots.txt"], addresses


async def test_over_a_borrowed_connector_a_private_host_may_redirect_to_another() -> None:
    rows: list[tuple[str, list[str], bool]] = [
        ("127.0.0.1", [], True),
        ("localhost", ["::1", "127.0.0.1"], True),
        ("localhost", [PUBLIC], False),  # the connection was to something else, as a proxy
        ("localhost", ["10.0.0.1"], False),
        ("localhost", [], False),
    ]
    for first, addresses, followed in rows:
        names = {"localhost": addresses, "inside.example": ["127.0.0.1"]}
        verdict, requested = await redirected(names, first=first, second="inside.example")
        assert (verdict.allowed, requested) == (followed, ["/robots.txt", "/r"] if followed else ["/robots.txt"])
        # The server listens at 127.0.0.1 alone: only the system refuses the literal there.
        verdict, _ = await redirected(names, first=first, second="127.0.0.2")
        assert verdict.source is not None
        assert ("which is private" in verdict.source.fault) is not followed, (first, addresses)


async def test_a_redirect_to_a_name_that_only_the_resolver_of_the_connector_knows_is_followed() -> None:
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(301, Location=server.url("/r", host="b.known-to-it.example"))
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            verdict = await gate.check(server.url("/private", host="a.known-to-it.example"))
            assert verdict.reason is Reason.DISALLOW_RULE, verdict.explain()


async def test_over_a_borrowed_connector_a_redirect_is_checked_at_each_hop() -> None:
    names = ScriptedResolver({"one.example": [PUBLIC], "two.example": [PUBLIC], "inside.example": ["10.0.0.1"]})
    async with Server() as server, borrowed() as session:
        for here, there in pairwise(["/robots.txt", "/one", "/two", "/inside"]):
            server.answers[here] = response(302, Location=server.url(there, host=f"{there[1:]}.example"))
        async with Gatekeeper(UA, session=session, resolver=names) as gate:
            verdict = await gate.check(server.url("/public", host="site.example"))
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert [request.target for request in server.requests] == ["/robots.txt", "/one", "/two"]


async def test_over_a_borrowed_connector_a_name_never_leads_to_a_private_literal_even_where_opted_in() -> None:
    names = ScriptedResolver({"site.example": [PUBLIC]})
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(302, Location=server.url("/r"))
        options = FetchOptions(unguarded_redirects=True)
        fault = faulted(await fetch_from(server, options, host="site.example", session=session, resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert len(server.requests) == 1


async def test_session_that_is_closed_is_a_fault_and_closes_the_gate() -> None:
    async with Server(response(200, FILE)) as server:
        session = aiohttp.ClientSession()
        await session.close()
        assert faulted(await fetch_from(server, session=session)).kind is FaultKind.INTERNAL
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            assert (await gate.check(server.url("/public"))).reason is Reason.UNREACHABLE
        assert server.requests == []


async def test_fetch_whose_session_closes_between_two_hops_is_a_fault() -> None:
    session = aiohttp.ClientSession()

    async def close(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await session.close()
        writer.write(response(302, Location="/r"))

    async with Server({"/robots.txt": close, "/r": response(200, FILE)}) as server:
        assert isinstance(await fetch_from(server, session=session), FetchFault)


# A proxy


async def test_proxy_receives_the_whole_url_and_resolves_the_name() -> None:
    names = Names()
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        for url in (proxy.url(""), URL(proxy.url(""))):
            fetcher = AiohttpFetcher(UA, FetchOptions(proxy=url), resolver=names)
            result = responded(await fetcher.fetch(FetchRequest(Origin.of("http://site.example/"), 5)))
            assert (result.body, result.final_url) == (FILE, "http://site.example/robots.txt")
            assert (proxy.requests[-1].headers["user-agent"], proxy.requests[-1].host) == (UA, "site.example")
        assert names.asked == []


async def test_only_the_proxy_receives_its_credentials() -> None:
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        options = FetchOptions(proxy=f"http://user:secret@127.0.0.1:{proxy.port}")
        assert "secret" not in repr(options)
        await AiohttpFetcher(UA, options).fetch(FetchRequest(Origin.of("http://site.example/"), 5))
        headers = proxy.requests[0].headers
        assert headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="  # RFC 7617 2: user:secret
        assert "authorization" not in headers


def tunnel(port: int) -> Answer:
    async def handler(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while octets := await source.read(65_536):
                    target.write(octets)
                    await target.drain()
            with suppress(OSError):
                target.write_eof()

        try:
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
        finally:
            there_writer.transport.abort()

    return handler


async def test_proxy_tunnels_to_a_server_whose_certificate_is_verified(authority: trustme.CA) -> None:
    context = server_context(authority.issue_cert("secure.example"))
    async with Server(response(200, FILE), context) as server, Server() as proxy:
        proxy.answers[f"secure.example:{server.port}"] = tunnel(server.port)
        verifying = FetchOptions(proxy=proxy.url(""), ssl_context=trusting(authority).ssl_context)
        result = await fetch_from(server, verifying, host="secure.example", resolver=Names())
        assert responded(result).body == FILE
        result = await fetch_from(server, FetchOptions(proxy=proxy.url("")), host="secure.example", resolver=Names())
        assert faulted(result).kind is FaultKind.TLS
        assert [request.method for request in proxy.requests] == ["CONNECT", "CONNECT"]
        assert len(server.requests) == 1


async def test_proxy_that_makes_no_connection_is_a_fault() -> None:
    rows = [
        ("https://secure.example/", response(403), FaultKind.PROTOCOL),
        ("https://secure.example/", response(407, Proxy_Authenticate="Basic"), FaultKind.PROTOCOL),
        ("https://secure.example/", response(502), FaultKind.PROTOCOL),
        ("http://site.example/", b"", FaultKind.CONNECT),
        ("http://site.example/", response(407, Proxy_Authenticate="Basic"), FaultKind.CONNECT),
    ]
    for url, answer, kind in rows:
        async with Server({"secure.example:443": answer, "http://site.example/robots.txt": answer}) as proxy:
            fetcher = AiohttpFetcher(UA, FetchOptions(proxy=proxy.url("")))
            assert faulted(await fetcher.fetch(FetchRequest(Origin.of(url), 5))).kind is kind, (url, answer)
            assert proxy.requests != []


async def test_behind_a_proxy_a_redirect_to_another_host_is_followed() -> None:
    answers: dict[str, Answer] = {
        "http://site.example/robots.txt": response(302, Location="http://other.example/r"),
        "http://other.example/r": response(200, FILE),
    }
    names = Names()
    async with Server(answers) as proxy:
        options = FetchOptions(proxy=proxy.url(""))
        async with Gatekeeper(UA, fetch=options, resolver=names) as gate:
            reasons = [(await gate.check(f"http://site.example{path}")).reason for path in ("/private", "/public")]
            assert reasons == [Reason.DISALLOW_RULE, Reason.NO_RULE]
        request = FetchRequest(Origin.of("http://other.example/"), 0, path="/r", redirected=True)
        assert responded(await AiohttpFetcher(UA, options, resolver=names).fetch(request)).body == FILE
        assert names.asked == []


async def test_behind_a_proxy_a_redirect_that_names_a_private_address_closes_the_site() -> None:
    hosts = [
        "127.0.0.1",
        "10.0.0.1",
        "[::1]",
        "169.254.169.254",
        "168.63.129.16",
        "localhost",
        "LOCALHOST",
        "a.localhost",
    ]
    for host in hosts:
        answers: dict[str, Answer] = {"http://site.example/robots.txt": response(302, Location=f"http://{host}/r")}
        async with Server(answers) as proxy:
            options = FetchOptions(proxy=proxy.url(""))
            async with Gatekeeper(UA, fetch=options, pacing=EAGER) as gate:
                verdict = await gate.check("http://site.example/public")
                assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE), host
                assert verdict.source is not None
                assert "which is private" in verdict.source.fault
            request = FetchRequest(Origin.of(f"http://{host}/"), 0, path="/r", redirected=True)
            assert faulted(await AiohttpFetcher(UA, options).fetch(request)).kind is FaultKind.REDIRECT_TARGET, host
            assert len(proxy.requests) == 1


@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_proxy_of_environment_is_for_pages_only(monkeypatch: pytest.MonkeyPatch, *, is_borrowed: bool) -> None:
    async with Server(response(200, FILE)) as server, Server() as proxy, AsyncExitStack() as stack:
        proxy.answers[server.url("/page")] = response(200, b"page")
        monkeypatch.setenv("http_proxy", proxy.url(""))
        lender = await stack.enter_async_context(aiohttp.ClientSession(trust_env=True)) if is_borrowed else None
        gate = await stack.enter_async_context(Gatekeeper(UA, session=lender, pacing=EAGER))
        client = await stack.enter_async_context(PoliteSession(gate, trust_env=True))
        async with client.get(server.url("/page")) as page:
            assert await page.read() == b"page"
        assert not await gate.check(server.url("/private"))
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert [request.target for request in proxy.requests] == [server.url("/page")]


async def test_no_proxy_of_the_environment_is_asked_for_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    options = FetchOptions(private_addresses="deny")
    async with Server() as proxy, Gatekeeper(UA, fetch=options, resolver=Names("inside.example")) as gate:
        monkeypatch.setenv("http_proxy", proxy.url("", host="localhost"))
        async with PoliteSession(gate, trust_env=True) as client:
            for host in ("127.0.0.1", "inside.example"):
                for path in ("/page", "/robots.txt"):
                    with pytest.raises(Disallowed, match="private"):
                        await client.get(f"http://{host}:{proxy.port}{path}")
            gate.set_policy("elsewhere.example", HostPolicy(exempt=True, reason="it has no robots.txt here"))
            async with client.get("http://elsewhere.example/") as page:  # the proxy is private, and may be
                assert page.status == 404
        assert [request.target for request in proxy.requests] == ["http://elsewhere.example/"]


# Options that contradict each other


def test_error_about_a_proxy_does_not_quote_its_password() -> None:
    for proxy in ("ftp://user:secret@127.0.0.1", "http://user:secret@[::1"):
        with pytest.raises(ConfigurationError) as caught:
            FetchOptions(proxy=proxy)
        assert "secret" not in str(caught.value)


async def test_options_that_would_weaken_a_check_are_an_error() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ConfigurationError, match="does not verify certificates"):
        FetchOptions(ssl_context=context)
    with pytest.raises(ConfigurationError, match="behind a proxy"):  # which resolves names itself
        FetchOptions(private_addresses="deny", proxy="http://127.0.0.1:3128")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="borrowed connector"):
            AiohttpFetcher("ExampleBot/1.0", FetchOptions(private_addresses="deny"), session=session)


# A stored copy is used only under the settings under which it was fetched


OTHER_UA = "OtherBot/1.0 (+https://example.com/other)"
NAMES = Names("inside.example", public_example=(PUBLIC, "127.0.0.1"))
ALLOWS = b"User-agent: *\nAllow: /\n"


async def ask(store: Store, url: str, user_agent: str = UA, **options: Any) -> Verdict:
    """Return the verdict of a process of its own, which has nothing but the store."""
    async with Gatekeeper(user_agent, store=store, resolver=NAMES, pacing=EAGER, **options) as gate:
        return await gate.check(url)


async def test_copy_that_was_cut_is_fetched_anew_once_the_limit_is_raised() -> None:
    lines = b"".join(b"Disallow: /%07d\n" % number for number in range(38_000))
    file = response(200, b"User-agent: *\n" + lines + b"Disallow: /private\n", ETag='"1"')
    raised = FetchOptions(max_body_bytes=1_000_000)
    store, clock = MemoryStore(), ManualClock()

    async def answer(request: Request, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(304, ETag='"1"') if "if-none-match" in request.headers else file)

    async with Server(answer) as server:
        private = server.url("/private")
        assert (await ask(store, private, clock=clock)).reason is Reason.NO_RULE
        clock.advance(90_000)
        assert (await ask(store, private, clock=clock)).reason is Reason.NO_RULE
        assert not await ask(store, private, clock=clock, fetch=raised)
        clock.advance(90_000)
        assert not await ask(store, private, clock=clock, fetch=raised)
        # It is revalidated under the limit that cut it, fetched anew under another, and then complete.
        conditional = ["if-none-match" in request.headers for request in server.requests]
        assert conditional == [False, True, False, True]


async def test_copy_that_varies_by_user_agent_is_used_by_that_user_agent_only() -> None:
    answers: dict[str, bytes] = {}

    async def answer(request: Request, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answers[request.headers["user-agent"]])

    for status in (200, 404):
        for vary in ("User-Agent", "accept-encoding, user-agent", "*", "Accept\r\nVary: User-Agent"):
            answers |= {UA: response(status, ALLOWS, Vary=vary), OTHER_UA: response(200, FILE, Vary=vary)}
            store = MemoryStore()
            async with Server(answer) as server:
                private = server.url("/private")
                allowed = [bool(await ask(store, private, user_agent)) for user_agent in (UA, UA, OTHER_UA, UA)]
                assert allowed == [True, True, False, True], (status, vary)
                assert [one.headers["user-agent"] for one in server.requests[:2]] == [UA, OTHER_UA], (status, vary)


async def test_copy_that_varies_by_nothing_is_used_by_all() -> None:
    store = MemoryStore()
    async with Server(response(200, FILE, Vary="Accept-Encoding")) as server:
        assert not await ask(store, server.url("/private"))
        assert not await ask(store, server.url("/private"), OTHER_UA)
        assert len(server.requests) == 1


async def test_redirect_loop_that_opened_a_site_does_not_open_it_in_another_dialect() -> None:
    async with Server(response(301, Location="/robots.txt")) as server:
        for dialect in (Dialect.KOSTER_1996, Dialect.KOSTER_1994):
            store = MemoryStore()
            assert (await ask(store, server.url("/"))).reason is Reason.UNAVAILABLE
            assert (await ask(MemoryStore(), server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE
            assert (await ask(store, server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
async def test_copy_from_a_private_address_is_not_used_where_those_are_denied(host: str) -> None:
    made_by: list[FetchOptions] = [FetchOptions(), FetchOptions(private_addresses="allow")]
    for answer in (response(200, ALLOWS), response(404)):
        for options in made_by:
            store = MemoryStore()
            async with Server(answer) as server:
                url = server.url("/page", host=host)
                assert await ask(store, url, fetch=options)
                verdict = await ask(store, url, fetch=FetchOptions(private_addresses="deny"))
                assert not verdict
                assert "private" in verdict.explain()
                assert len(server.requests) == 1


async def test_copy_that_a_redirect_to_a_private_address_led_to_is_not_used_where_that_is_refused() -> None:
    store, answers = MemoryStore(), dict[str, Answer]({"/r": response(200, ALLOWS)})
    async with Server(answers) as server:
        answers["/robots.txt"] = response(301, Location=server.url("/r", host="inside.example"))
        url = server.url("/", host="public_example")
        assert await ask(store, url, fetch=FetchOptions(private_addresses="allow"))
        assert not await ask(store, url)


class Excusing(ScriptedFetcher):
    """Reports each fault as the lack of a file, as Scrapy's fetcher does with POLITESSE_ON_ERROR = "allow"."""

    excuses_faults = True

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        return FetchFault(FaultKind.REDIRECT_LIMIT, "excused", request.url, final=True)


async def test_fault_that_another_program_excuses_opens_no_site() -> None:
    store = MemoryStore()
    for fetcher, allowed in ((Excusing(), True), (ScriptedFetcher({"https://example.com": 503}), False)):
        async with Gatekeeper(UA, store=store, fetcher=fetcher) as gate:
            assert bool(await gate.check("https://example.com/")) is allowed


# Which addresses are public, and which of them a connection may use


PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"
MAX_LOOKUPS: Final = 256


async def hosts_of(*addresses: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[str]:
    """Return the addresses of a name that may be connected to."""
    resolver = PublicResolver(ScriptedResolver({"site.example": list(addresses)}))
    try:
        return [found["host"] for found in await resolver.resolve("site.example", 80, family)]
    except OSError:
        return []


async def test_public_addresses_may_be_connected_to() -> None:
    public = f"{PUBLIC} {PUBLIC_6} 8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.0 192.167.255.255 168.63.129.15"
    public += " 168.63.129.17 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1 2001:4860::5efe:808:808"
    assert [address for address in public.split() if await hosts_of(address) != [address]] == []


NOT_PUBLIC = {
    "RFC 1918": "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1",
    "RFC 6598, shared by carriers": "100.64.0.1",
    "RFC 1122 3.2.1.3, this host and this network": "127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 ::1 ::",
    "link-local, with metadata services of clouds": "169.254.169.254 fe80::1",
    "unique local, with other metadata services": "fc00::1 fd00:ec2::254",
    "multicast and broadcast": "224.0.0.1 239.255.255.250 ff02::1 ff0e::1 255.255.255.255",
    "reserved": "240.0.0.1",
    "documentation, benchmarks": "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 2001:db8::1 3fff::1",
    "protocol assignments, with a metadata service": "192.0.0.192 100::1",
    "Azure's wire server": "168.63.129.16 ::ffff:168.63.129.16",
    "relays of 6to4, withdrawn (RFC 7526)": "192.88.99.1",
    "site-local, withdrawn (RFC 3879)": "fec0::1",
    "compatible with IPv4 (RFC 4291 2.5.5.1)": "::10.0.0.1",
    "translation within a network (RFC 8215), segment routing (RFC 9602)": "64:ff9b:1::808:808 5f00::1",
    "Teredo": "2001:0:4136:e378:8000:63bf:3fff:fdd2",
}


async def test_other_addresses_may_not_be_connected_to() -> None:
    addresses = [address for of_kind in NOT_PUBLIC.values() for address in of_kind.split()]
    assert [address for address in addresses if await hosts_of(address)] == []


async def test_private_address_is_seen_through_each_ipv6_form_that_wraps_it() -> None:
    forms = [
        (0xFFFF << 32, 0),  # mapped: RFC 4291 2.5.5.2
        (0x64_FF9B << 96, 0),  # NAT64: RFC 6052 2.1
        (0x2002 << 112 | 1, 80),  # 6to4: RFC 3056 2
        ((0x2001_4860 << 96) | (0x5EFE << 32), 0),  # ISATAP: RFC 5214 6.1
        ((0x2001_4860 << 96) | (0x0200_5EFE << 32), 0),  # ISATAP of a unique address
    ]
    private = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "224.0.0.1", "0.1.2.3"]
    wrapped = [
        str(ipaddress.IPv6Address(form | int(ipaddress.IPv4Address(four)) << shift))
        for form, shift in forms
        for four in private
    ]
    assert [address for address in wrapped if await hosts_of(address)] == []


async def test_of_a_mixed_answer_the_public_addresses_of_the_requested_family_are_left() -> None:
    mixed = ("10.0.0.1", PUBLIC, "::1", PUBLIC_6, "169.254.169.254", "fe80::1%eth0")
    families = {socket.AF_UNSPEC: [PUBLIC, PUBLIC_6], socket.AF_INET: [PUBLIC], socket.AF_INET6: [PUBLIC_6]}
    assert {family: await hosts_of(*mixed, family=family) for family in families} == families


async def test_public_literal_is_its_own_address_and_private_or_unknown_hosts_have_none() -> None:
    names = ScriptedResolver({"inside.example": ["10.0.0.7"]})
    for literal in (PUBLIC, PUBLIC_6):
        assert await PublicResolver(names).public_addresses(literal, 80) == [literal]
    assert names.asked == []
    private = {"10.0.0.7": "10.0.0.7", "::ffff:10.0.0.7": "::ffff:", "inside.example": "10.0.0.7"}
    errors = {host: rf"^a connection to {address}.*, which is private$" for host, address in private.items()}
    for host, error in (errors | {"unknown.example": "does not exist"}).items():
        with pytest.raises(OSError, match=error):
            await PublicResolver(names).public_addresses(host, 80)


async def test_private_address_beside_a_public_one_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", refuse)
    names = Names("inside.example", **{"mixed.example": ("127.0.0.1", PUBLIC)})
    fetcher = AiohttpFetcher(UA, FetchOptions(private_addresses="deny"), resolver=names)
    fetches = [FetchRequest(Origin.of(f"http://{name}.example/"), 0) for name in ("mixed", "inside")]
    mixed, inside = [faulted(await fetcher.fetch(request)) for request in fetches]
    assert (mixed.kind, "private" in mixed.detail) == (FaultKind.CONNECT, False)
    assert (inside.kind, inside.detail) == (FaultKind.ADDRESS, "a connection to 127.0.0.1, which is private")
    await fetcher.aclose()


# Names that never resolve


class Dns:
    """Stands in for the system's getaddrinfo: names of hangs.example have no answer until ``release``."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.threads: set[threading.Thread] = set()
        self._answer = threading.Event()

    def release(self) -> None:
        self._answer.set()

    def getaddrinfo(self, host: str, port: object, *args: object, **kwargs: object) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        self.threads.add(threading.current_thread())
        if host.endswith("hangs.example"):
            self._answer.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        if "slow" in host:
            time.sleep(0.05)
        address = PUBLIC if host.startswith("public") else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]

    async def until_asked(self, number: int) -> None:
        async with asyncio.timeout(20):
            while self.asked.total() < number:
                await asyncio.sleep(0.005)


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    dns = Dns()
    monkeypatch.setattr(socket, "getaddrinfo", dns.getaddrinfo)
    yield dns
    dns.release()
    until = time.monotonic() + 20
    while any(thread.name.startswith("politesse") for thread in threading.enumerate()):
        assert time.monotonic() < until, "a thread is left"
        time.sleep(0.005)


async def test_names_that_never_resolve_make_no_healthy_site_unreachable(dns: Dns, server: Server) -> None:
    options = FetchOptions(connect_timeout_s=5, total_timeout_s=20)
    async with Gatekeeper(UA, cache=CacheOptions(max_concurrent_fetches=10_000), fetch=options) as gate:
        tasks = [asyncio.create_task(gate.check(f"http://n{n}.hangs.example/")) for n in range(100)]
        await dns.until_asked(40)  # more than an executor of asyncio has threads
        urls = [server.url("/public", host=f"h{n}.healthy.example") for n in range(10)]
        verdicts = await asyncio.gather(*map(gate.check, urls))
        assert {verdict.reason for verdict in verdicts} == {Reason.NO_RULE}
        assert await PublicResolver().public_addresses("public.example", 80) == [PUBLIC]
        assert not any(task.done() for task in tasks), "healthy names waited for the others"
        assert [thread for thread in dns.threads if not thread.daemon] == [], "it keeps the interpreter from ending"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.realtime
async def test_waiting_for_a_thread_does_not_count_as_connecting(dns: Dns, server: Server) -> None:
    fetcher = AiohttpFetcher(UA, FetchOptions(connect_timeout_s=0.3, total_timeout_s=25))
    hanging = [FetchRequest(Origin.of(f"http://n{n}.hangs.example/"), 0) for n in range(MAX_LOOKUPS)]
    results = await asyncio.gather(*map(fetcher.fetch, hanging))  # they are given up, but keep their threads
    assert {faulted(result).kind for result in results} == {FaultKind.TIMEOUT}
    healthy = asyncio.create_task(fetcher.fetch(FetchRequest(server.origin("healthy.example"), 0)))
    await asyncio.sleep(0.6)  # twice as long as connecting may take
    dns.release()
    assert responded(await healthy).body == FILE
    await fetcher.aclose()


async def test_lookups_beyond_the_limit_wait_and_a_cancelled_one_leaves_the_queue(dns: Dns) -> None:
    resolver = PublicResolver()
    tasks = [asyncio.create_task(resolver.resolve(f"n{n}.hangs.example", 80)) for n in range(MAX_LOOKUPS)]
    await dns.until_asked(MAX_LOOKUPS)
    given_up, kept = (asyncio.create_task(resolver.resolve(f"public-{name}.example", 80)) for name in ("one", "two"))
    await asyncio.sleep(0.05)
    assert dns.asked.total() == MAX_LOOKUPS
    given_up.cancel()
    await asyncio.sleep(0)
    dns.release()
    async with asyncio.timeout(20):
        (found,) = await kept
    assert found["host"] == PUBLIC
    await asyncio.gather(*tasks, given_up, return_exceptions=True)
    assert (dns.asked["public-one.example"], dns.asked["public-two.example"]) == (0, 1)


async def test_concurrent_lookups_of_a_name_are_one_lookup(dns: Dns) -> None:
    resolver = PublicResolver()
    found = await asyncio.gather(*(resolver.resolve("public-slow.example", port) for port in range(10)))
    assert [result["host"] for [result] in found] == [PUBLIC] * 10
    assert dns.asked["public-slow.example"] == 1
