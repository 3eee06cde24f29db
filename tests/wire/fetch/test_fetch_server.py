"""AiohttpFetcher against servers on loopback: the outcome table, faults, how a connection ends, TLS, limits."""

import asyncio
import gzip
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
import trustme
from aiohttp.client_reqrep import ConnectionKey
from aioresponses import aioresponses

from politesse import FetchOptions, Gatekeeper, Reason, Verdict
from politesse.errors import ClosedError
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchRequest, FetchResult
from politesse.testing import ManualClock
from tests.support.ports import free_port
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import (
    CHUNKED,
    FILE,
    HEAD,
    Answer,
    Names,
    Request,
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


async def assert_outcomes(
    table: dict[str, dict[str, Answer | dict[str, Answer]]], session: aiohttp.ClientSession | None = None
) -> None:
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
                "gzip in members": gzipped(gzip.compress(FILE[:14]) + gzip.compress(FILE[14:])),
                "deflate": response(200, zlib.compress(FILE), Content_Encoding="deflate"),
                "raw deflate": response(200, zlib.compress(FILE)[2:-4], Content_Encoding="deflate"),
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
                "gzip cut in half": gzipped(gzip.compress(FILE)[:20]),
                "reset in mid-body": reset_after(response(200, FILE, length=99)),
                "trailers without end": endless(CHUNKED + piece + b"0\r\n", b"X-Trailer: " + b"v" * 60_000 + b"\r\n"),
            },
            closed("encoding"): {
                "gzip that is none": gzipped(FILE),
                "gzip with a wrong checksum": gzipped(gzip.compress(FILE)[:-8] + bytes(8)),
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
    heads = {
        "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        "HTTP/1.1": HEAD + b"Connection: close\r\n\r\n",
    }
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
    async with Server() as server, asyncio.timeout(15):  # speaks no TLS, and waits for a head that never comes
        rows = {
            "lookup": ("http://nowhere.example/", FetchOptions(connect_timeout_s=0.04), Hanging()),
            "lookup, in total": ("http://nowhere.example/", FetchOptions(total_timeout_s=0.04), Hanging()),
            "TLS at an address": (f"https://127.0.0.1:{server.port}/", FetchOptions(connect_timeout_s=0.04), None),
            "TLS at a name": (
                f"https://site.example:{server.port}/",
                FetchOptions(connect_timeout_s=0.04),
                Names("site.example"),
            ),
        }
        fetches = [
            AiohttpFetcher(UA, options, resolver=resolver).fetch(FetchRequest(Origin.of(url), 5))
            for url, options, resolver in rows.values()
        ]
        faults = dict(zip(rows, map(faulted, await asyncio.gather(*fetches)), strict=True))
    assert {name: (fault.kind, fault.status) for name, fault in faults.items()} == dict.fromkeys(
        rows, (FaultKind.TIMEOUT, None)
    )


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


@pytest.mark.clause("RFC 9309 2.5")
async def test_body_of_the_limit_is_whole_and_one_beyond_it_is_cut_at_a_line() -> None:
    line = b"Disallow: /0123\n"
    whole = line * (MIN_BODY_BYTES // len(line))
    assert len(whole) == MIN_BODY_BYTES
    async with Server(response(200, whole)) as server:
        result = responded(await fetch_from(server))
        assert (result.body, result.truncated) == (whole, False)
        server.answers["/robots.txt"] = response(200, b"##" + whole)
        result = responded(await fetch_from(server))
        assert (result.body, result.truncated) == (b"##" + whole[: -len(line)], True)


async def test_body_without_end_is_read_to_the_limit_in_bounded_memory_and_the_connection_closed() -> None:
    rows: dict[str, Answer] = {
        "gzip bomb": gzipped(bomb()),
        "endless": endless(HEAD + b"\r\n", b"Disallow: /a\n" * 1000),
        "endless chunks": endless(CHUNKED, b"d\r\nDisallow: /a\n\r\n" * 1000),
        "endless gzip members": endless(
            HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"Disallow: /a\n" * 1000)
        ),
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


async def test_closing_the_gate_with_a_fetch_under_way_closes_its_connection() -> None:
    async with Server(silence) as server, asyncio.timeout(5):
        gate = Gatekeeper(UA)
        task = asyncio.create_task(gate.check(server.url("/public")))
        while not server.requests:
            await asyncio.sleep(0.001)
        await gate.aclose()
        with pytest.raises(ClosedError):
            await task
        await server.closed_by_client.wait()
